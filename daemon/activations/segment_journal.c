#include "activations/segment_journal.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/crc.h"
#include "base/memory.h"
#include "base/metadata.h"

static const char magic[8] = "TCACTJ01";

enum { RECORD_HEAD_BYTES = 8, SAMPLE_BYTES = 20, TENSOR_BYTES = 8, DIMENSION_BYTES = 8 };

void segment_journal_head(uint64_t room_bytes, unsigned char head[SEGMENT_JOURNAL_HEAD_BYTES])
{
    uint64_t room = htole64(room_bytes);
    memcpy(head, magic, sizeof magic);
    memcpy(head + sizeof magic, &room, sizeof room);
}

/* --- writing --- */

static void put(struct journal_text *text, const void *bytes, size_t count)
{
    if (text->capacity - text->length < count) {
        text->capacity = 2 * text->capacity > text->length + count ? 2 * text->capacity : text->length + count + 256;
        text->bytes = memory_grow(text->bytes, text->capacity, 1);
    }
    if (count)
        memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
}

static void put_u32(struct journal_text *text, uint32_t value)
{
    value = htole32(value);
    put(text, &value, sizeof value);
}

static void put_u64(struct journal_text *text, uint64_t value)
{
    value = htole64(value);
    put(text, &value, sizeof value);
}

static void put_tensor(struct journal_text *text, const struct sample_tensor *tensor)
{
    const unsigned char kinds[2] = {(unsigned char)tensor->dtype, tensor->is_narrowed};
    uint16_t rank = htole16((uint16_t)tensor->rank);
    put_u32(text, tensor->layer);
    put(text, kinds, sizeof kinds);
    put(text, &rank, sizeof rank);
    for (uint32_t d = 0; d < tensor->rank; d++)
        put_u64(text, tensor->shape[d]);
}

size_t segment_journal_record_bytes(const struct sample *sample)
{
    size_t bytes = RECORD_HEAD_BYTES + SAMPLE_BYTES + sample->info_bytes;
    for (size_t i = 0; i < sample->n_tensors; i++)
        bytes += TENSOR_BYTES + DIMENSION_BYTES * (size_t)sample->tensors[i].rank;
    return bytes;
}

int segment_journal_reserve(struct journal_text *text, const struct sample *sample, struct error *error)
{
    size_t needed = text->length + segment_journal_record_bytes(sample);
    size_t capacity = 2 * text->capacity > needed ? 2 * text->capacity : needed;
    if (needed <= text->capacity)
        return 0;
    unsigned char *grown = capacity <= SIZE_MAX / 2 ? realloc(text->bytes, capacity) : NULL;
    if (!grown)
        return metadata_fail_memory(capacity, error);
    text->bytes = grown;
    text->capacity = capacity;
    return 0;
}

void segment_journal_add(struct journal_text *text, const struct sample *sample, uint64_t data_end)
{
    size_t start = text->length;
    put_u32(text, 0);
    put_u32(text, 0);
    put_u32(text, sample->id);
    put_u32(text, (uint32_t)sample->n_tensors);
    put_u64(text, data_end);
    put_u32(text, (uint32_t)sample->info_bytes);
    for (size_t i = 0; i < sample->n_tensors; i++)
        put_tensor(text, &sample->tensors[i]);
    put(text, sample->info, sample->info_bytes);
    uint32_t length = (uint32_t)(text->length - start - RECORD_HEAD_BYTES);
    uint32_t head[2] = {htole32(length), htole32(crc32c_update(0, text->bytes + start + RECORD_HEAD_BYTES, length))};
    memcpy(text->bytes + start, head, sizeof head);
}

/* --- reading --- */

struct cursor {
    const unsigned char *at, *end;
    bool is_short;
};

static uint64_t take_number(struct cursor *cursor, size_t n_bytes)
{
    uint64_t value = 0;
    if ((size_t)(cursor->end - cursor->at) < n_bytes) {
        cursor->is_short = true;
        return 0;
    }
    memcpy(&value, cursor->at, n_bytes);
    cursor->at += n_bytes;
    return le64toh(value);
}

/* False: the record is whole but says what cannot be. */
static bool read_tensor(struct cursor *cursor, struct sample_tensor *tensor, struct arena *arena, struct error *error)
{
    tensor->layer = (uint32_t)take_number(cursor, 4);
    tensor->dtype = (enum dtype)take_number(cursor, 1);
    tensor->is_narrowed = take_number(cursor, 1) != 0;
    tensor->rank = (uint32_t)take_number(cursor, 2);
    if (cursor->is_short || tensor->rank > SAMPLE_MAX_RANK)
        return false;
    uint64_t *shape = arena_try_array(arena, tensor->rank + 1, sizeof *shape, error);
    for (uint32_t d = 0; shape && d < tensor->rank; d++)
        shape[d] = take_number(cursor, DIMENSION_BYTES);
    tensor->shape = shape;
    return shape && !cursor->is_short;
}

static bool read_record(struct cursor cursor, struct sample *sample, uint64_t *data_end, struct arena *arena,
                        struct error *error)
{
    *sample = (struct sample){.id = (uint32_t)take_number(&cursor, 4)};
    sample->n_tensors = (size_t)take_number(&cursor, 4);
    *data_end = take_number(&cursor, 8);
    sample->info_bytes = (size_t)take_number(&cursor, 4);
    if (cursor.is_short || !sample->n_tensors || sample->n_tensors > SAMPLE_MAX_TENSORS)
        return false;
    struct sample_tensor *tensors = arena_try_array(arena, sample->n_tensors, sizeof *tensors, error);
    for (size_t i = 0; tensors && i < sample->n_tensors; i++)
        if (!read_tensor(&cursor, &tensors[i], arena, error))
            return false;
    sample->info = (const char *)cursor.at;
    return tensors && (size_t)(cursor.end - cursor.at) == sample->info_bytes && sample_check(sample, tensors, error) == 0;
}

int segment_journal_read(const unsigned char *bytes, size_t count, uint64_t *room_bytes, size_t *valid_bytes,
                         int (*take)(void *data, const struct sample *sample, uint64_t data_end, struct error *error),
                         void *data, struct error *error)
{
    struct cursor cursor = {bytes, bytes + count, false};
    int failed = 0;
    *valid_bytes = 0;
    *room_bytes = 0;
    if (count < SEGMENT_JOURNAL_HEAD_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return 0;
    cursor.at += sizeof magic;
    *room_bytes = take_number(&cursor, 8);
    while (!failed) {
        struct sample sample;
        struct arena arena = {0};
        uint64_t data_end;
        *valid_bytes = (size_t)(cursor.at - bytes);
        size_t length = (size_t)take_number(&cursor, 4);
        uint32_t sum = (uint32_t)take_number(&cursor, 4);
        if (cursor.is_short || length > SEGMENT_JOURNAL_MAX_RECORD_BYTES || (size_t)(cursor.end - cursor.at) < length ||
            crc32c_update(0, cursor.at, length) != sum)
            break;
        struct cursor record = {cursor.at, cursor.at + length, false};
        *error = (struct error){0};
        if (read_record(record, &sample, &data_end, &arena, error))
            failed = take(data, &sample, data_end, error);
        else
            failed = error->code ? -1 : fail(error, ERROR_DATA_LOSS, "BAD_JOURNAL", "a record of the journal is damaged");
        cursor.at += length;
        arena_fini(&arena);
    }
    return failed;
}
