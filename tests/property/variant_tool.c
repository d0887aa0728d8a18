/* Prints what the tensors of variants hold, as transfers move and convert it, for test_variants_numpy.py. Tensors may be in
 * pieces as tests/support/pieces.h joins them.
 *
 * stdin, words separated by white space:  REFERENCE RECIPE_FILE N_ITEMS, then per item NAME N_SLICES and two bounds per slice,
 * where "." is an open end; N_ITEMS 0 = everything; again until the end of the input. stdout, per question: an `error CODE`
 * line, or `variant SOURCE_BYTES N_TENSORS` and a line `NAME DTYPE EXTENT,.. HEX` per tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "convert/cast.h"
#include "resolve/mapping.h"
#include "tests/support/source_bytes.h"
#include "tests/support/pieces.h"
#include "tests/support/transfer_apply.h"
#include "variant/variant.h"

enum { WORD_CHARS = 1000, MAX_RECIPE_BYTES = 1 << 20 };

static char recipe[MAX_RECIPE_BYTES];
static size_t recipe_bytes;

static void read_word(char word[WORD_CHARS])
{
    if (scanf("%999s", word) != 1) {
        fprintf(stderr, "variant_tool: the input ends in the middle of a question\n");
        exit(2);
    }
}

static int64_t read_number(int64_t open_end)
{
    char word[WORD_CHARS];
    read_word(word);
    return strcmp(word, ".") == 0 ? open_end : strtoll(word, NULL, 10);
}

static void read_item(struct view_item *item)
{
    char name[WORD_CHARS];
    read_word(name);
    item->name = memory_copy_text(name);
    item->name_length = strlen(name);
    item->n_slices = (uint32_t)read_number(0);
    struct slice *slices = memory_alloc_array(item->n_slices, sizeof *slices);
    for (uint32_t i = 0; i < item->n_slices; i++) {
        slices[i].start = read_number(0);
        slices[i].stop = read_number(INT64_MAX);
    }
    item->slices = slices;
}

static unsigned char *read_part(struct source *source, size_t file)
{
    uint64_t size = source->files[file].size_bytes;
    unsigned char *bytes = memory_alloc(size + 1);
    struct error error;
    if (source_read_bytes(source, file, 0, bytes, size, &error) < 0) {
        fprintf(stderr, "variant_tool: %s\n", error.message);
        exit(2);
    }
    return bytes;
}

static void read_scales(const struct mapping *mapping, unsigned char *const *files)
{
    const struct scales *scales = &mapping->scales;
    unsigned char *bytes = memory_alloc(scales->bytes + 1);
    for (size_t i = 0; i < scales->n_transfers; i++)
        transfer_apply(&scales->transfers[i], NULL, files[scales->transfers[i].file], bytes);
    for (size_t i = 0; i < scales->n_grids; i++) {
        struct scale_grid *grid = scales->grids[i];
        cast_find(grid->dtype, DTYPE_F32)(grid->values, bytes + grid->scales_offset, grid->grid_rows * grid->grid_columns);
    }
    free(bytes);
}

static void print_tensors(const struct mapping *mapping)
{
    struct source *source = mapping->artifact->source;
    unsigned char **files = memory_alloc_array(source->n_files, sizeof *files);
    unsigned char *replica = memory_alloc(mapping->replica_bytes + 1);
    for (size_t i = 0; i < source->n_files; i++)
        files[i] = read_part(source, i);
    read_scales(mapping, files);
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        transfer_apply(transfer, mapping_operation(mapping, transfer), files[transfer->file], replica);
    }
    printf("variant %" PRIu64 " %zu\n", mapping_source_bytes(mapping), mapping->n_tensors);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        printf("%s %s ", tensor->record->name, dtype_name(tensor->record->dtype));
        for (uint32_t d = 0; d < tensor->record->rank; d++)
            printf("%" PRIu64 ",", tensor->shape[d]);
        printf(". ");
        for (uint64_t b = 0; b < tensor->bytes; b++)
            printf("%02x", replica[tensor->offset + b]);
        printf(".\n");
    }
    for (size_t i = 0; i < source->n_files; i++)
        free(files[i]);
    free(files);
    free(replica);
}

static void answer(const char *reference, const struct view_spec *view)
{
    const struct source_options options = {.allow_relative = true};
    struct artifact *stored = NULL, *joined = NULL, *artifact = NULL;
    struct mapping *mapping = NULL;
    struct error error;
    if (artifact_resolve(reference, &options, NULL, 0, &stored, &error) == 0) {
        joined = pieces_join(stored);
        artifact = artifact_ref(joined);
        if (variant_apply(&artifact, recipe, recipe_bytes, NULL, NULL, &error) == 0)
            mapping = mapping_build(view, artifact, &error);
    }
    if (mapping)
        print_tensors(mapping);
    else
        printf("error %s %s\n", error_code_name(error.code), error.message);
    mapping_destroy(mapping);
    artifact_unref(artifact);
    pieces_free(joined);
    artifact_unref(stored);
}

int main(void)
{
    char reference[WORD_CHARS], path[WORD_CHARS];
    while (scanf("%999s", reference) == 1) {
        read_word(path);
        FILE *file = fopen(path, "r");
        if (!file) {
            fprintf(stderr, "variant_tool: there is no %s\n", path);
            return 2;
        }
        recipe_bytes = fread(recipe, 1, sizeof recipe, file);
        fclose(file);
        struct view_spec view = {.align_bytes = 8};
        view.n_items = (size_t)read_number(0);
        view.whole = view.n_items == 0;
        struct view_item *items = memory_alloc_array(view.n_items, sizeof *items);
        for (size_t i = 0; i < view.n_items; i++)
            read_item(&items[i]);
        view.items = items;
        answer(reference, &view);
        for (size_t i = 0; i < view.n_items; i++) {
            free((char *)items[i].name);
            free((struct slice *)items[i].slices);
        }
        free(items);
    }
    return 0;
}
