#include "variant/documents.h"

#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "recipe/recipe.h"
#include "variant/config_document.h"
#include "variant/quantized.h"

struct facts {       /* of the tensors */
    bool is_plain;   /* nothing is quantized any more */
    bool is_cast;    /* a step of the recipe was a cast; the last one to `cast` */
    bool is_made;    /* by a cast or a dequantization */
    bool is_uniform; /* all floats are of `type` */
    enum dtype cast, type;
    size_t n_floats, n_of_cast;
};

static int read_recipe(const struct documents_of *of, struct facts *facts, struct error *error)
{
    struct recipe recipe;
    struct arena arena;
    arena_init(&arena, 0);
    int failed = recipe_parse(of->recipe, of->recipe_bytes, &arena, &recipe, error);
    for (size_t i = 0; !failed && i < recipe.n_steps; i++) {
        const struct recipe_step *step = &recipe.steps[i];
        facts->is_cast |= step->kind == STEP_CAST;
        facts->is_made |= step->kind == STEP_CAST || step->kind == STEP_DEQUANTIZE;
        if (step->kind == STEP_CAST)
            facts->cast = step->dtype;
    }
    arena_fini(&arena);
    return failed;
}

/* Where there are floats of 16 bits and more, those of 8 do not say what type the model is of. */
static void count_floats(const struct artifact *artifact, struct facts *facts)
{
    size_t counts[DTYPE_COUNT] = {0}, n_wide = 0, n_small = 0;
    for (size_t i = 0; i < artifact->n_tensors; i++)
        counts[artifact->tensors[i].dtype]++;
    static const enum dtype wide[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_F64};
    static const enum dtype small[] = {DTYPE_F8_E4M3, DTYPE_F8_E5M2, DTYPE_F8_E4M3FNUZ, DTYPE_F8_E5M2FNUZ};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        n_wide += counts[wide[i]];
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        n_small += counts[small[i]];
    facts->n_floats = n_wide ? n_wide : n_small;
    facts->n_of_cast = counts[facts->cast];
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const enum dtype type = n_wide ? wide[i] : small[i];
        if (counts[type] && counts[type] == facts->n_floats) {
            facts->is_uniform = true;
            facts->type = type;
        }
    }
}

/* --- files --- */

static char *read_whole(struct sidecars *sidecars, size_t at, const struct cancel *cancel, struct error *error)
{
    uint64_t size_bytes = sidecars->files[at].size_bytes;
    char *bytes = metadata_alloc(size_bytes + 1, error);
    if (bytes && sidecars_read(sidecars, at, 0, bytes, size_bytes, cancel, error) == 0)
        return bytes;
    metadata_free(bytes);
    return NULL;
}

/* 1 = it says in which file which tensor is. */
static int is_index(struct sidecars *sidecars, size_t at, const struct cancel *cancel, struct error *error)
{
    static const char key[] = "\"weight_map\"";
    const char *name = sidecars->files[at].name;
    if (!strstr(name, ".index") || !text_ends_with(name, strlen(name), ".json"))
        return 0;
    char *bytes = read_whole(sidecars, at, cancel, error);
    if (!bytes)
        return -1;
    bool has_key = memmem(bytes, sidecars->files[at].size_bytes, key, strlen(key)) != NULL;
    metadata_free(bytes);
    return has_key;
}

static bool is_of_files(const char *name)
{
    return strcmp(name, "topology.json") == 0 || text_ends_with(name, strlen(name), ".manifest.json");
}

static bool is_of_quantization(const char *name)
{
    return strcmp(name, "hf_quant_config.json") == 0 || strcmp(name, "quantize_config.json") == 0 ||
           strcmp(name, "quant_config.json") == 0;
}

/* With memory that its user pays for. */
static int replace_bytes(struct sidecar *sidecar, const struct config_corrected *corrected, struct error *error)
{
    sidecar->bytes = metadata_alloc(corrected->length + 1, error);
    if (sidecar->bytes) {
        memcpy(sidecar->bytes, corrected->text, corrected->length);
        sidecar->size_bytes = corrected->length;
    }
    free(corrected->text);
    return sidecar->bytes ? 0 : -1;
}

static int correct_config(struct sidecars *sidecars, size_t at, const struct facts *facts, const struct cancel *cancel,
                          struct error *error)
{
    const struct config_correction correction = {.drop_quantization = facts->is_plain,
                                                 .set_dtype = facts->is_made && facts->is_uniform,
                                                 .dtype = facts->is_uniform ? facts->type : facts->cast};
    struct config_corrected corrected;
    if (!facts->is_plain && !facts->is_made)
        return 0;
    char *bytes = read_whole(sidecars, at, cancel, error);
    if (!bytes)
        return -1;
    config_correct(bytes, sidecars->files[at].size_bytes, &correction, &corrected);
    metadata_free(bytes);
    if (corrected.text && replace_bytes(&sidecars->files[at], &corrected, error) < 0)
        return -1;
    if (corrected.text && corrected.has_dropped)
        notes_add(&sidecars->changes, "config.json has no quantization_config any more");
    if (corrected.text && corrected.has_other_dtype && correction.set_dtype)
        notes_add(&sidecars->changes, "config.json says %s now, not %s", dtype_name(correction.dtype),
                  dtype_name(corrected.other_dtype));
    if (corrected.has_other_dtype && !correction.set_dtype && facts->is_cast)
        notes_add(&sidecars->notes, "config.json still says %s, and %zu of %zu floating-point tensors are %s",
                  dtype_name(corrected.other_dtype), facts->n_of_cast, facts->n_floats, dtype_name(facts->cast));
    return 0;
}

int documents_correct(struct sidecars *sidecars, const struct documents_of *of, const struct cancel *cancel,
                      struct error *error)
{
    struct facts facts = {0};
    size_t n_kept = 0;
    if (of->recipe && read_recipe(of, &facts, error) < 0)
        return -1;
    if (facts.is_made)
        count_floats(of->artifact, &facts);
    if (of->recipe)
        facts.is_plain = quantized_artifact(of->artifact->stored) && !quantized_artifact(of->artifact);
    int failed = 0;
    for (size_t i = 0; i < sidecars->n_files && !failed; i++) {
        const char *name = sidecars->files[i].name;
        int found = is_index(sidecars, i, cancel, error);
        bool is_untrue = found > 0 || is_of_files(name) || (facts.is_plain && is_of_quantization(name));
        failed = found < 0 ? -1 : 0;
        if (!failed && strcmp(name, "config.json") == 0)
            failed = correct_config(sidecars, i, &facts, cancel, error);
        if (!failed && !is_untrue)
            sidecars->files[n_kept++] = sidecars->files[i];
    }
    sidecars->n_files = n_kept;
    return failed;
}
