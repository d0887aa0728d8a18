#include "shard_metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MAX_LISTED = 1 << 20 };

/* An older "total_samples" counted either. */
static const struct total {
    const char *key;
    size_t offset;
} totals[] =
    {
        {"total_shards", offsetof(struct shard_metadata, shards)},
        {"total_activations", offsetof(struct shard_metadata, arrays)},
        {"total_unique_samples", offsetof(struct shard_metadata, samples)},
},
  of_shards[] = {
      {"total_samples_in_shard", offsetof(struct told_shard, arrays)}, /* one for each layer of a sample, for all its name */
      {"num_samples", offsetof(struct told_shard, samples)},
};

/* False: it is none of them, and is not skipped. */
static bool take_number(struct json *json, const struct json_string *key, const struct total *rows, size_t n_rows,
                        void *into)
{
    for (size_t i = 0; i < n_rows; i++) {
        uint64_t value = 0;
        if (!json_string_is(key, rows[i].key) || json_peek(json) != JSON_NUMBER)
            continue;
        if (json_take_u64(json, &value))
            memcpy((char *)into + rows[i].offset, &value, sizeof value);
        return true;
    }
    return false;
}

static char *copy_string(const struct json_string *text)
{
    return memory_print("%.*s", (int)text->length, text->text);
}

static void take_shard(struct json *json, struct shard_metadata *metadata)
{
    struct told_shard shard = {0};
    struct json_string key, text = {"", 0};
    if (!json_begin_object(json))
        return;
    while (json_next_key(json, &key)) {
        if (take_number(json, &key, of_shards, sizeof of_shards / sizeof of_shards[0], &shard))
            continue;
        bool is_name = json_string_is(&key, "filename"), is_sum = json_string_is(&key, "checksum");
        if (!(is_name || is_sum) || json_peek(json) != JSON_STRING) {
            json_skip(json);
        } else if (json_take_string(json, &text) && is_name && !shard.name) {
            shard.name = copy_string(&text);
        } else if (is_sum && text.length == strlen("sha256:") + DIGEST_HEX_CHARS && memcmp(text.text, "sha256:", 7) == 0) {
            memcpy(shard.sha256, text.text + strlen("sha256:"), DIGEST_HEX_CHARS);
        }
    }
    if (metadata->n_list == MAX_LISTED)
        snprintf(metadata->complaint, sizeof metadata->complaint, "it lists more than %d shards", MAX_LISTED);
    if (!shard.name || metadata->n_list == MAX_LISTED) {
        free(shard.name);
        return;
    }
    ARRAY_RESERVE(metadata->list, metadata->n_list, metadata->capacity);
    metadata->list[metadata->n_list++] = shard;
}

void shard_metadata_parse(struct shard_metadata *metadata, const char *text, size_t length)
{
    struct arena arena = {0};
    struct json json;
    struct json_string key;
    json_init(&json, text, length, &arena);
    if (json_begin_object(&json))
        while (json_next_key(&json, &key)) {
            if (take_number(&json, &key, totals, sizeof totals / sizeof totals[0], metadata))
                continue;
            if (!json_string_is(&key, "shards") || json_peek(&json) != JSON_ARRAY || !json_begin_array(&json)) {
                json_skip(&json);
                continue;
            }
            while (json_next_item(&json)) {
                if (json_peek(&json) == JSON_OBJECT)
                    take_shard(&json, metadata);
                else
                    json_skip(&json);
            }
        }
    if (!json_end(&json))
        json_error(&json, metadata->complaint);
    arena_fini(&arena);
}

void shard_metadata_fini(struct shard_metadata *metadata)
{
    for (size_t i = 0; i < metadata->n_list; i++)
        free(metadata->list[i].name);
    free(metadata->list);
    *metadata = (struct shard_metadata){0};
}
