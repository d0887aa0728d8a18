#include "activations/sample.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/metadata.h"
#include "base/text.h"

enum { MAX_INFO_DEPTH = 32 };

static int fail_sample(const struct sample *sample, const char *reason, const char *complaint, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, reason, "sample %" PRIu32 ": %s", sample->id, complaint);
}

static int check_tensor(const struct sample *sample, struct sample_tensor *tensor, struct error *error)
{
    uint64_t bits;
    if (tensor->rank > SAMPLE_MAX_RANK)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHAPE",
                    "sample %" PRIu32 ", layer %" PRIu32 ": %" PRIu32 " dimensions; at most %d are supported", sample->id,
                    tensor->layer, tensor->rank, SAMPLE_MAX_RANK);
    if ((unsigned)tensor->dtype >= DTYPE_COUNT || (tensor->is_narrowed && tensor->dtype != DTYPE_BF16))
        return fail_sample(sample, "BAD_DTYPE", "an array has an element type that there is not", error);
    bits = dtype_bits(tensor->dtype);
    bool fits = true, is_empty = false;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        is_empty = is_empty || !tensor->shape[d];
        fits = fits && checked_mul(bits, tensor->shape[d] ? tensor->shape[d] : 1, &bits);
    }
    if (!fits || bits % 8 || bits / 8 > SAMPLE_MAX_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHAPE",
                    "sample %" PRIu32 ", layer %" PRIu32
                    ": an array of that shape has no whole number of bytes below 64 TiB",
                    sample->id, tensor->layer);
    tensor->bytes = is_empty ? 0 : bits / 8;
    return 0;
}

static int compare_layers(const void *a, const void *b)
{
    uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
    return first < second ? -1 : first > second;
}

static int check_layers(const struct sample *sample, struct error *error)
{
    uint32_t *layers = metadata_array(sample->n_tensors, sizeof *layers, error), twice = 0;
    bool has_twice = false;
    if (!layers)
        return -1;
    for (size_t i = 0; i < sample->n_tensors; i++)
        layers[i] = sample->tensors[i].layer;
    qsort(layers, sample->n_tensors, sizeof *layers, compare_layers);
    for (size_t i = 1; i < sample->n_tensors; i++)
        if (layers[i] == layers[i - 1]) {
            has_twice = true;
            twice = layers[i];
        }
    metadata_free(layers);
    return has_twice ? fail(error, ERROR_INVALID_ARGUMENT, "LAYER_TWICE", "sample %" PRIu32 " has layer %" PRIu32 " twice",
                            sample->id, twice)
                     : 0;
}

/* Within a manifest it lies deeper, and readers know no more than JSON_MAX_DEPTH levels. */
static bool is_shallow(const char *json, size_t length)
{
    int depth = 0, deepest = 0;
    bool in_text = false;
    for (size_t i = 0; i < length; i++) {
        if (in_text && json[i] == '\\')
            i++;
        else if (json[i] == '"')
            in_text = !in_text;
        else if (!in_text)
            depth += (json[i] == '{' || json[i] == '[') - (json[i] == '}' || json[i] == ']');
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest <= MAX_INFO_DEPTH;
}

static int check_info(const struct sample *sample, struct error *error)
{
    struct json json;
    struct arena arena = {0};
    char complaint[JSON_ERROR_CHARS];
    if (!sample->info_bytes)
        return 0;
    if (sample->info_bytes > SAMPLE_MAX_INFO_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_INFO",
                    "sample %" PRIu32 ": the texts about it take %zu bytes; at most %d are kept", sample->id,
                    sample->info_bytes, SAMPLE_MAX_INFO_BYTES);
    json_init(&json, sample->info, sample->info_bytes, &arena);
    bool is_good = text_is_utf8(sample->info, sample->info_bytes) && is_shallow(sample->info, sample->info_bytes) &&
                   json_peek(&json) == JSON_OBJECT && json_skip(&json) && json_end(&json);
    if (!is_good && !is_shallow(sample->info, sample->info_bytes))
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_INFO", "sample %" PRIu32 ": the texts about it are nested too deeply",
             sample->id);
    else if (!is_good)
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_INFO", "sample %" PRIu32 ": the texts about it are no JSON object (%s)",
             sample->id, json_error(&json, complaint));
    arena_fini(&arena);
    return is_good ? 0 : -1;
}

int sample_check(struct sample *sample, struct sample_tensor *tensors, struct error *error)
{
    sample->tensors = tensors;
    sample->bytes = 0;
    if (sample->id > ACTIVATION_MAX_SAMPLE)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SAMPLE", "%" PRIu32 " is no number of a sample: those are 0 to %d",
                    sample->id, ACTIVATION_MAX_SAMPLE);
    if (!sample->n_tensors)
        return fail_sample(sample, "NO_LAYERS", "it has no layers", error);
    if (sample->n_tensors > SAMPLE_MAX_TENSORS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_LAYERS",
                    "sample %" PRIu32 " has %zu layers; at most %d are supported", sample->id, sample->n_tensors,
                    SAMPLE_MAX_TENSORS);
    for (size_t i = 0; i < sample->n_tensors; i++) {
        if (check_tensor(sample, &tensors[i], error) < 0)
            return -1;
        sample->bytes += tensors[i].bytes; /* 65536 times 2^46 fits */
        if (sample->bytes > SAMPLE_MAX_BYTES)
            return fail_sample(sample, "SAMPLE_TOO_LARGE", "it has more than 64 TiB", error);
    }
    return check_layers(sample, error) < 0 || check_info(sample, error) < 0 ? -1 : 0;
}
