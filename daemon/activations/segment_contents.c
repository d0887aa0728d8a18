#include "activations/segment_contents.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"

enum {
    LENGTH_BYTES = 8,
    ENTRY_BYTES = 150,    /* of a tensor without its shape: names, offsets, brackets */
    DIMENSION_BYTES = 21, /* a number of 64 bits and a comma */
    ESCAPED = 6,          /* "\u001f" for a byte */
    FIXED_BYTES = 128,    /* what is in every header */
    CRC_CHARS = 8,
    ARRAY_BYTES = sizeof(uint64_t) + sizeof(uint32_t), /* what is kept of an array beside texts */
};

/* Kept sorted: there are few, and mostly the same ones come again. */
static void add_layer(struct segment_contents *contents, uint32_t layer)
{
    size_t low = 0, high = contents->n_layers;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (contents->layers[middle] < layer)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < contents->n_layers && contents->layers[low] == layer)
        return;
    memmove(contents->layers + low + 1, contents->layers + low, (contents->n_layers - low) * sizeof *contents->layers);
    contents->layers[low] = layer;
    contents->n_layers++;
}

static void add_tensor(struct segment_contents *contents, uint32_t sample, const struct sample_tensor *tensor)
{
    struct json_writer *entries = &contents->entries;
    char name[ACTIVATION_NAME_CHARS];
    activation_tensor_name(tensor->layer, sample, name);
    json_put_open(entries, name, '{');
    json_put_text(entries, "dtype", dtype_name(tensor->dtype));
    json_put_open(entries, "shape", '[');
    for (uint32_t d = 0; d < tensor->rank; d++)
        json_write_u64(entries, tensor->shape[d]);
    json_write_close(entries, ']');
    json_put_open(entries, "data_offsets", '[');
    json_write_u64(entries, contents->data_bytes);
    json_write_u64(entries, contents->data_bytes + tensor->bytes);
    json_write_close(entries, ']');
    json_write_close(entries, '}');
    if (tensor->is_narrowed)
        json_write_text(&contents->narrowed, name);
    contents->data_bytes += tensor->bytes;
    contents->array_ends[contents->n_arrays++] = contents->data_bytes;
    add_layer(contents, tensor->layer);
}

static bool reserve_items(void **items, size_t count, size_t *capacity, size_t size)
{
    size_t more = 2 * *capacity > count ? 2 * *capacity : count;
    if (count <= *capacity)
        return true;
    void *grown = more <= SIZE_MAX / 2 / size ? realloc(*items, more * size) : NULL;
    if (!grown)
        return false;
    *items = grown;
    *capacity = more;
    return true;
}
#define RESERVE_ITEMS(items, count, capacity) reserve_items((void **)&(items), count, &(capacity), sizeof *(items))

/* All that the sample adds: half of one would be in the header. */
static bool reserve_sample(struct segment_contents *contents, const struct sample *sample)
{
    size_t head_bytes = contents_head_bytes_of(sample);
    return json_write_reserve(&contents->entries, head_bytes) &&
           json_write_reserve(&contents->info, sample->info_bytes + 32) &&
           json_write_reserve(&contents->narrowed, sample->n_tensors * (ACTIVATION_NAME_CHARS + 3)) &&
           RESERVE_ITEMS(contents->array_ends, contents->n_arrays + sample->n_tensors, contents->arrays_capacity) &&
           RESERVE_ITEMS(contents->layers, contents->n_layers + sample->n_tensors, contents->layers_capacity) &&
           RESERVE_ITEMS(contents->samples, contents->n_samples + 1, contents->samples_capacity);
}

int contents_add(struct segment_contents *contents, const struct sample *sample, struct error *error)
{
    char id[16];
    if (!contents->charge.quota)
        contents->charge = metadata_charge();
    uint64_t bytes = contents_head_bytes_of(sample) + ARRAY_BYTES * sample->n_tensors;
    if (quota_charge_add(&contents->charge, bytes, error) < 0)
        return -1;
    if (!reserve_sample(contents, sample)) {
        quota_charge_subtract(&contents->charge, bytes);
        return metadata_fail_memory(bytes, error);
    }
    for (size_t i = 0; i < sample->n_tensors; i++)
        add_tensor(contents, sample->id, &sample->tensors[i]);
    if (sample->info_bytes) {
        snprintf(id, sizeof id, "%" PRIu32, sample->id);
        json_write_key(&contents->info, id);
        json_write_json(&contents->info, sample->info, sample->info_bytes);
    }
    contents->samples[contents->n_samples++] = sample->id;
    return 0;
}

void contents_fini(struct segment_contents *contents)
{
    free(contents->entries.text);
    free(contents->info.text);
    free(contents->narrowed.text);
    free(contents->samples);
    free(contents->layers);
    free(contents->array_ends);
    free(contents->array_sums);
    quota_charge_end(&contents->charge);
    *contents = (struct segment_contents){0};
}

uint64_t contents_head_bytes(const struct segment_contents *contents)
{
    return FIXED_BYTES + contents->entries.length + ESCAPED * (contents->info.length + contents->narrowed.length);
}

uint64_t contents_head_bytes_of(const struct sample *sample)
{
    uint64_t bytes = ESCAPED * (uint64_t)sample->info_bytes + 16;
    for (size_t i = 0; i < sample->n_tensors; i++)
        bytes += ENTRY_BYTES + DIMENSION_BYTES * (uint64_t)sample->tensors[i].rank +
                 (sample->tensors[i].is_narrowed ? ACTIVATION_NAME_CHARS : 0);
    return bytes;
}

/* A text that holds JSON: a value of __metadata__ is a string. */
static void put_json_text(struct json_writer *json, const char *key, const char *brackets, const struct json_writer *inner)
{
    if (!inner->length)
        return;
    char *text = inner->length < SIZE_MAX / 2 ? malloc(inner->length + 2) : NULL;
    if (!text) {
        json->has_failed = true;
        return;
    }
    text[0] = brackets[0];
    memcpy(text + 1, inner->text, inner->length);
    text[inner->length + 1] = brackets[1];
    json_put_string(json, key, text, inner->length + 2);
    free(text);
}

static char *fail_json(struct json_writer *json, struct error *error)
{
    metadata_fail_memory(json->length, error);
    free(json->text);
    return NULL;
}

char *contents_head(const struct segment_contents *contents, uint64_t room_bytes, size_t *length, struct error *error)
{
    struct json_writer json = {.can_fail = true};
    json_write_open(&json, '{');
    json_put_open(&json, "__metadata__", '{');
    json_put_text(&json, "format", "pt");
    put_json_text(&json, CONTENTS_INFO, "{}", &contents->info);
    put_json_text(&json, CONTENTS_NARROWED, "[]", &contents->narrowed);
    json_write_close(&json, '}');
    json_write_json(&json, contents->entries.text, contents->entries.length);
    json_write_close(&json, '}');
    if (json.has_failed)
        return fail_json(&json, error);
    size_t padded = (json.length + LENGTH_BYTES - 1) / LENGTH_BYTES * LENGTH_BYTES;
    if (padded + LENGTH_BYTES < room_bytes)
        padded = (size_t)room_bytes - LENGTH_BYTES;
    char *head = memory_try(LENGTH_BYTES + padded);
    if (!head)
        return fail_json(&json, error);
    for (int i = 0; i < LENGTH_BYTES; i++)
        head[i] = (char)((uint64_t)padded >> 8 * i);
    memcpy(head + LENGTH_BYTES, json.text, json.length);
    memset(head + LENGTH_BYTES + json.length, ' ', padded - json.length);
    *length = LENGTH_BYTES + padded;
    free(json.text);
    return head;
}

static void put_numbers(struct json_writer *json, const char *key, const uint32_t *numbers, size_t count)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < count; i++)
        json_write_u64(json, numbers[i]);
    json_write_close(json, ']');
}

static void put_members(struct json_writer *json, const char *key, const char *brackets, const struct json_writer *inner)
{
    json_put_open(json, key, brackets[0]);
    if (inner->length)
        json_write_json(json, inner->text, inner->length);
    json_write_close(json, brackets[1]);
}

/* Last of all, so that entries without them are the beginnings of those with them. */
static void put_sums(struct json_writer *json, const struct segment_contents *contents, const struct segment_facts *facts)
{
    char *sums = memory_try(contents->n_arrays * CRC_CHARS + 1), header[CRC_CHARS + 1];
    if (!sums) {
        json->has_failed = true;
        return;
    }
    for (size_t i = 0; i < contents->n_arrays; i++)
        snprintf(sums + i * CRC_CHARS, CRC_CHARS + 1, "%08" PRIx32, contents->array_sums[i]);
    snprintf(header, sizeof header, "%08" PRIx32, facts->header_crc32c);
    json_put_text(json, "header_crc32c", header);
    json_put_text(json, "array_crc32c", sums);
    free(sums);
}

char *contents_entry(const struct segment_contents *contents, const struct segment_facts *facts, struct error *error)
{
    struct json_writer json = {.can_fail = true};
    char file[ACTIVATION_NAME_CHARS], identity[DIGEST_HEX_CHARS + 1], crc[16];
    unsigned char sum[DIGEST_BYTES];
    struct digest *digest = digest_create(); /* the same wherever the segment lies: of its name, size and content */
    activation_segment_name(facts->number, ACTIVATION_SEALED, file);
    digest_add_text(digest, file);
    digest_add_u64(digest, facts->file_bytes);
    digest_add_text(digest, facts->sha256);
    digest_finish(digest, sum);
    digest_hex(sum, sizeof sum, identity);
    snprintf(crc, sizeof crc, "%08" PRIx32, facts->crc32c);
    json_write_open(&json, '{');
    json_put_text(&json, "file", file);
    json_put_u64(&json, "bytes", facts->file_bytes);
    json_put_text(&json, "identity", identity);
    json_put_text(&json, "sha256", facts->sha256);
    json_put_text(&json, "crc32c", crc);
    put_numbers(&json, "samples", contents->samples, contents->n_samples);
    put_numbers(&json, "layers", contents->layers, contents->n_layers);
    put_members(&json, "info", "{}", &contents->info);
    if (contents->narrowed.length)
        put_members(&json, "narrowed", "[]", &contents->narrowed);
    if (contents->array_sums)
        put_sums(&json, contents, facts);
    json_write_close(&json, '}');
    return json.has_failed ? fail_json(&json, error) : json.text;
}
