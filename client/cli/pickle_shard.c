/* Everything is looked at: what an import does not understand it does not drop silently. See pickle_shard.h. */
#include "pickle_shard.h"

#include <string.h>

#include "base/text.h"
#include "pickle_reader.h"

struct entry { /* the values of an entry's keys; NULL = it has none */
    const struct pickle_value *sample, *activation, *shape, *preview;
};

static int refuse_shard(struct error *error, const char *what)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "NOT_A_SHARD", "%s", what);
}

static bool is_key(const struct pickle_value *text, const char *what)
{
    return text->n_bytes == strlen(what) && memcmp(text->bytes, what, text->n_bytes) == 0;
}

/* 15, or "layer_15". */
static int read_layer(const struct pickle_value *key, uint32_t *layer, struct error *error)
{
    static const char prefix[] = "layer_";
    uint64_t number = 0, n = sizeof prefix - 1;
    if (key->kind == PICKLE_INT && key->number >= 0 && key->number <= PICKLE_SHARD_MAX_LAYER) {
        *layer = (uint32_t)key->number;
        return 0;
    }
    bool is_layer =
        key->kind == PICKLE_TEXT && key->n_bytes > n && key->n_bytes < n + 10 && memcmp(key->bytes, prefix, n) == 0;
    for (; is_layer && n < key->n_bytes; n++) {
        is_layer = key->bytes[n] >= '0' && key->bytes[n] <= '9';
        number = 10 * number + (uint64_t)(key->bytes[n] - '0');
    }
    if (!is_layer || number > PICKLE_SHARD_MAX_LAYER)
        return refuse_shard(error, "one of its keys is no layer: a number of at least 0, or \"layer_15\"");
    *layer = (uint32_t)number;
    return 0;
}

static int read_keys(const struct pickle_value *dict, struct entry *entry, struct error *error)
{
    const struct {
        const char *name;
        const struct pickle_value **value;
    } rows[] = {{"sample_idx", &entry->sample},
                {"activation", &entry->activation},
                {"shape", &entry->shape},
                {"text_preview", &entry->preview}};
    char shown[TEXT_NAME_CHARS];
    for (size_t i = 0; i < dict->n_items; i += 2) {
        const struct pickle_value *key = dict->items[i];
        size_t k = 0, n = sizeof rows / sizeof *rows;
        while (k < n && !(key->kind == PICKLE_TEXT && is_key(key, rows[k].name)))
            k++;
        if (k == n)
            return fail(error, ERROR_INVALID_ARGUMENT, "NOT_A_SHARD", "its key %s is none that an activation has",
                        key->kind == PICKLE_TEXT ? text_escape((const char *)key->bytes, key->n_bytes, shown)
                                                 : "without a name");
        *rows[k].value = dict->items[i + 1]; /* the last one counts, as in Python */
    }
    return 0;
}

static bool is_shape(const struct pickle_value *tuple, const struct pickle_array *array)
{
    if ((tuple->kind != PICKLE_TUPLE && tuple->kind != PICKLE_LIST) || tuple->n_items != array->rank)
        return false;
    for (uint32_t d = 0; d < array->rank; d++)
        if (tuple->items[d]->kind != PICKLE_INT || (uint64_t)tuple->items[d]->number != array->shape[d])
            return false;
    return true;
}

static int read_entry(const struct pickle_value *dict, struct pickle_activation *activation, struct error *error)
{
    struct entry entry = {0};
    if (dict->kind != PICKLE_DICT)
        return refuse_shard(error, "it is no dictionary");
    if (read_keys(dict, &entry, error))
        return -1;
    if (!entry.sample || entry.sample->kind != PICKLE_INT || entry.sample->number < 0 ||
        entry.sample->number > PICKLE_SHARD_MAX_SAMPLE)
        return refuse_shard(error, "its sample_idx is no number from 0 to 99999999");
    if (!entry.activation || entry.activation->kind != PICKLE_ARRAY || !entry.activation->array->is_complete)
        return refuse_shard(error, "its activation is no array of numbers");
    if (entry.shape && entry.shape->kind != PICKLE_NONE && !is_shape(entry.shape, entry.activation->array))
        return refuse_shard(error, "its shape is not that of its activation");
    if (entry.preview && entry.preview->kind != PICKLE_TEXT && entry.preview->kind != PICKLE_NONE)
        return refuse_shard(error, "its text_preview is no text");
    activation->sample = (uint32_t)entry.sample->number;
    activation->array = entry.activation->array;
    if (entry.preview && entry.preview->kind == PICKLE_TEXT) {
        activation->preview = entry.preview->bytes;
        activation->preview_bytes = entry.preview->n_bytes;
    }
    return 0;
}

static int read_list(const struct pickle_value *list, uint32_t layer, struct pickle_shard *shard, struct error *error)
{
    if (list->kind != PICKLE_LIST)
        return refuse_shard(error, "it is no list");
    for (size_t i = 0; i < list->n_items; i++) {
        struct pickle_activation *activation = &shard->list[shard->n++];
        activation->layer = layer;
        if (read_entry(list->items[i], activation, error))
            return error_prefix(error, "entry %zu", i), -1;
    }
    return 0;
}

static int read_layers(const struct pickle_value *layers, struct arena *arena, struct pickle_shard *shard,
                       struct error *error)
{
    size_t n = 0;
    if (layers->kind != PICKLE_DICT)
        return refuse_shard(error, "it is no dictionary of layers");
    for (size_t i = 1; i < layers->n_items; i += 2) {
        n += layers->items[i]->kind == PICKLE_LIST ? layers->items[i]->n_items : 0;
        if (n > PICKLE_MAX_VALUES) /* one list, many times */
            return refuse_shard(error, "it has more entries than values");
    }
    if (!(shard->list = arena_try_array(arena, n ? n : 1, sizeof *shard->list, error)))
        return -1;
    for (size_t i = 0; i < layers->n_items; i += 2) {
        uint32_t layer = 0;
        if (read_layer(layers->items[i], &layer, error))
            return -1;
        if (read_list(layers->items[i + 1], layer, shard, error))
            return error_prefix(error, "layer %u", (unsigned)layer), -1;
    }
    return 0;
}

int pickle_shard_read(const unsigned char *bytes, uint64_t n_bytes, struct arena *arena, struct pickle_shard *shard,
                      struct error *error)
{
    *shard = (struct pickle_shard){0};
    const struct pickle_value *value = pickle_read(bytes, n_bytes, arena, error);
    return value ? read_layers(value, arena, shard, error) : -1;
}
