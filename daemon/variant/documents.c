#include "variant/documents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/metadata.h"
#include "base/text.h"
#include "recipe/recipe.h"
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
    if (corrected.text) {
        struct sidecar *sidecar = &sidecars->files[at];
        sidecar->bytes = metadata_alloc(corrected.length + 1, error); /* memory that its user pays for */
        if (sidecar->bytes)
            memcpy(sidecar->bytes, corrected.text, sidecar->size_bytes = corrected.length);
        free(corrected.text);
        if (!sidecar->bytes)
            return -1;
        if (corrected.has_dropped)
            notes_add(&sidecars->changes, "config.json has no quantization_config any more");
        if (corrected.has_other_dtype && correction.set_dtype)
            notes_add(&sidecars->changes, "config.json says %s now, not %s", dtype_name(correction.dtype),
                      dtype_name(corrected.other_dtype));
    }
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
        bool is_untrue =
            found > 0 || (strcmp(name, "topology.json") == 0 || text_ends_with(name, strlen(name), ".manifest.json")) ||
            (facts.is_plain && (strcmp(name, "hf_quant_config.json") == 0 || strcmp(name, "quantize_config.json") == 0 ||
                                strcmp(name, "quant_config.json") == 0));
        failed = found < 0 ? -1 : 0;
        if (!failed && strcmp(name, "config.json") == 0)
            failed = correct_config(sidecars, i, &facts, cancel, error);
        if (!failed && !is_untrue)
            sidecars->files[n_kept++] = sidecars->files[i];
    }
    sidecars->n_files = n_kept;
    return failed;
}

/* --- config document --- */

struct editing {
    struct json json;
    const struct config_correction *correction;
    struct config_corrected *corrected;
    const char *copied; /* up to here */
    FILE *out;
    bool has_changed;
};

static void replace_text(struct editing *editing, const char *start, const char *end, const char *with)
{
    if (start < editing->copied) /* a comma that went with the member before */
        start = editing->copied;
    fwrite(editing->copied, 1, (size_t)(start - editing->copied), editing->out);
    fputs(with, editing->out);
    editing->copied = end;
    editing->has_changed = true;
}

static bool is_quantization(const struct json_string *key)
{
    return json_string_equals(key, "quantization_config") || json_string_equals(key, "compression_config");
}

static void take_dtype(struct editing *editing)
{
    static const char module[] = "torch.";
    struct json *json = &editing->json;
    struct json_string value;
    const char *start = json->at;
    enum dtype dtype;
    char with[64];
    if (!json_take_string(json, &value) || !dtype_read(value.text, value.length, &dtype) ||
        dtype == editing->correction->dtype)
        return;
    if (!editing->corrected->has_other_dtype)
        editing->corrected->other_dtype = dtype;
    editing->corrected->has_other_dtype = true;
    const char *name = dtype_torch_name(editing->correction->dtype);
    if (!editing->correction->set_dtype || !name)
        return;
    bool has_module = value.length > strlen(module) && memcmp(value.text, module, strlen(module)) == 0;
    snprintf(with, sizeof with, "\"%s\"", has_module ? name : name + strlen(module));
    replace_text(editing, start, json->at, with);
}

/* From the end of what is before it; the first one takes the comma behind it along. */
static void drop_member(struct editing *editing, const char *start, bool is_first)
{
    struct json *json = &editing->json;
    const char *end = json->at;
    editing->corrected->has_dropped = true;
    while (is_first && end < json->end && strchr(" \t\r\n", *end))
        end++;
    bool has_comma = is_first && end < json->end && *end == ',';
    replace_text(editing, start, has_comma ? end + 1 : json->at, "");
}

static void edit_object(struct editing *editing)
{
    struct json *json = &editing->json;
    struct json_string key;
    bool is_first = true; /* of those that stay */
    json_begin_object(json);
    for (const char *start = json->at; json_next_key(json, &key); start = json->at) {
        enum json_type type = json_peek(json);
        bool is_dtype = json_string_equals(&key, "dtype") || json_string_equals(&key, "torch_dtype");
        if (editing->correction->drop_quantization && is_quantization(&key)) {
            json_skip(json);
            drop_member(editing, start, is_first);
            continue;
        }
        if (type == JSON_STRING && is_dtype)
            take_dtype(editing);
        /* The parts of a model that have a configuration each. */
        else if (type == JSON_OBJECT && (!is_quantization(&key) && text_ends_with(key.text, key.length, "_config")))
            edit_object(editing);
        else
            json_skip(json);
        is_first = false;
    }
}

void config_correct(const char *json, size_t length, const struct config_correction *correction,
                    struct config_corrected *corrected)
{
    struct editing editing = {.correction = correction, .corrected = corrected, .copied = json};
    struct arena arena;
    char *text = NULL;
    *corrected = (struct config_corrected){0};
    editing.out = open_memstream(&text, &corrected->length);
    if (!editing.out)
        return;
    arena_init(&arena, 0);
    json_init(&editing.json, json, length, &arena);
    editing.json.is_lenient = true;
    if (json_peek(&editing.json) == JSON_OBJECT)
        edit_object(&editing);
    bool is_sound = json_end(&editing.json) && editing.has_changed;
    fwrite(editing.copied, 1, (size_t)(json + length - editing.copied), editing.out);
    is_sound = fclose(editing.out) == 0 && is_sound;
    arena_fini(&arena);
    if (is_sound)
        corrected->text = text;
    else
        free(text);
}
