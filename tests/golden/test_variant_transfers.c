/* What slices of variants come to, as text, compared with tests/golden/variant_transfers.txt: every kind of step, what is
 * read, and each transfer. TENSORCAST_REWRITE_GOLDEN=1 writes the file anew. Run from the repository's root. */
#include "tests/support/unit.h"

#include <inttypes.h>

#include "tests/support/operation_name.h"
#include "tests/support/variant_scene.h"

#define PATH "tests/golden/variant_transfers.txt"

static unsigned char zero(uint64_t i)
{
    (void)i;
    return 0;
}

static void print_mapping(const char *recipe, FILE *out)
{
    const struct mapping *mapping = variant_scene.mapping;
    const struct artifact *artifact = mapping->artifact;
    uint64_t data = artifact->pieces[0].offset; /* where the first tensor begins */
    fprintf(out, "%s\n", recipe);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        fprintf(out, "  %-8s %-7s (", tensor->record->name, dtype_name(tensor->record->dtype));
        for (uint32_t d = 0; d < tensor->record->rank; d++)
            fprintf(out, "%s%" PRIu64, d ? ", " : "", tensor->shape[d]);
        fprintf(out, ") at %" PRIu64 "\n", tensor->offset);
    }
    fprintf(out, "  reads %" PRIu64 " of %" PRIu64 " bytes%s\n", mapping_source_bytes(mapping), mapping->view_bytes,
            mapping->order ? ", transfers interleave" : "");
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        fprintf(out,
                "  %-10s %4" PRIu64 " -> %4" PRIu64 "  %" PRIu64 " x %" PRIu64 " bytes, %" PRIu64 " and %" PRIu64 " apart\n",
                transfer->operation ? operation_name(mapping_operation(mapping, transfer)) : "copy",
                transfer->src_offset - data, transfer->dst_offset, transfer->n_rows, transfer->row_bytes,
                transfer->src_stride, transfer->dst_stride);
    }
    fprintf(out, "\n");
}

TEST_IN(slices_of_variants_come_to_these_transfers, variant_scene_begin, variant_scene_end)
{
    static const char *const recipes[] = {
        "[{\"select\": [\"q\"]}, {\"rename\": {\"q\": \"wq\"}}]",
        "[{\"select\": [\"q\"]}, {\"alias\": {\"tied\": \"q\"}}]",
        "[{\"select\": [\"q\"]}, {\"slice\": {\"tensors\": [\"q\"], \"slices\": [[2, 6], [1, 3]]}}]",
        "[{\"select\": [\"q\"]}, {\"transpose\": {\"tensors\": [\"q\"], \"dims\": [1, 0]}}]",
        "[{\"select\": [\"q\"]}, {\"reshape\": {\"tensors\": [\"q\"], \"shape\": [2, -1]}}]",
        "[{\"select\": [\"e.*\"]}, {\"stack\": {\"from\": \"e.{}\", \"to\": \"all\", \"dim\": 0}}]",
        "[{\"select\": [\"e.*\"]}, {\"stack\": {\"from\": \"e.{}\", \"to\": \"all\", \"dim\": 1}}]",
        "[{\"select\": [\"e.*\"]}, {\"concat\": {\"from\": [\"e.1\", \"e.0\"], \"to\": \"both\", \"dim\": 1}}]",
        "[{\"select\": [\"q\"]}, {\"split\": {\"from\": \"q\", \"to\": [\"l\", \"r\"], \"even\": true, \"dim\": 1}}]",
        "[{\"select\": [\"q\"]}, {\"unstack\": {\"from\": \"q\", \"to\": \"row.{}\", \"dim\": 0}}, {\"select\": [\"row.3\", "
        "\"row.5\"]}]",
        "[{\"select\": [\"q\"]}, {\"permute_rope\": {\"tensors\": [\"q\"], \"heads\": 2, \"to\": \"halves\"}}]",
        "[{\"select\": [\"w1\"]}, {\"replicate_experts\": {\"tensors\": [\"w1\"], \"experts\": 4, \"inter_dim\": 2}}]",
        "[{\"select\": [\"w1\"]}, {\"replicate_experts\": {\"tensors\": [\"w1\"], \"experts\": 4, \"inter_dim\": 2, "
        "\"shuffle_seed\": 42}}]",
        "[{\"select\": [\"q\"]}, {\"cast\": {\"tensors\": [\"q\"], \"dtype\": \"BF16\"}}]",
        "[{\"select\": [\"f8*\"]}, {\"dequantize\": {\"tensors\": [\"f8\"], \"scale\": \"{tensor}_scale\", \"block\": [2, "
        "2], "
        "\"dtype\": \"BF16\"}}]",
    };
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    variant_scene_put("{\"q\":{\"dtype\":\"F32\",\"shape\":[8,4],\"data_offsets\":[0,128]},"
                      "\"e.0\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[128,140]},"
                      "\"e.1\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[140,152]},"
                      "\"w1\":{\"dtype\":\"U8\",\"shape\":[4,8],\"data_offsets\":[152,184]},"
                      "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,3],\"data_offsets\":[184,196]},"
                      "\"f8_scale\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[196,212]}}",
                      212, zero);
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        if (variant_scene_apply(recipes[i]) < 0 || variant_scene_load() < 0)
            fail_msg("%s: %s", recipes[i], variant_scene.error.message);
        print_mapping(recipes[i], out);
    }
    fclose(out);
    if (getenv("TENSORCAST_REWRITE_GOLDEN")) {
        FILE *file = fopen(PATH, "w");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
    }
    static char golden[1 << 16];
    FILE *file = fopen(PATH, "r");
    size_t n = file ? fread(golden, 1, sizeof golden - 1, file) : 0;
    golden[n] = 0;
    if (file)
        fclose(file);
    if (strcmp(text, golden) != 0)
        fail_msg("%s differs from what is made now:\n%s", PATH, text);
    free(text);
}
