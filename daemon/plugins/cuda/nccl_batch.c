/* What was delivered since the last flush. Bytes that several ranks get are staged once, so the owner's link to the host
 * carries every byte once; that is what NCCL is for. Staging memory is segments of the owner's device like any other,
 * written by the same queued copies, and used again for the next batch. There is never more of it than the limit.
 *
 * A batch holds a reference to every segment that it will write to: a rank may be gone before its bytes arrive. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "nccl_private.h"

enum { CHUNK_BYTES = TRANSPORT_STAGING_UNIT / 2, ALIGN_BYTES = 16, FEWEST_SLOTS = 64, NO_PIECE = 0 };

struct piece_key { /* without padding: compared as bytes */
    uint32_t from, file;
    uint64_t offset;
    struct device_rows rows;
};

struct piece {
    struct piece_key key;
    void *address;
};

struct chunk {
    struct segment *segment;
    uint64_t used_bytes;
};

struct nccl_batch {
    struct piece *pieces;
    size_t n_pieces, pieces_room;
    uint32_t *slots; /* open addressing: 1 + index of a piece; a power of two of them, at most half full */
    size_t n_slots;
    struct nccl_move *moves;
    size_t n_moves, moves_room;
    struct segment **segments; /* of the moves, in no order */
    size_t n_segments, segments_room;
    struct chunk *chunks;
    size_t n_chunks, chunks_room;
    uint64_t limit_bytes; /* of the chunks on each device */
};

struct nccl_batch *nccl_batch_create(uint64_t limit_bytes)
{
    struct nccl_batch *batch = memory_alloc(sizeof *batch);
    batch->limit_bytes = limit_bytes;
    batch->n_slots = FEWEST_SLOTS;
    batch->slots = memory_alloc_array(batch->n_slots, sizeof *batch->slots);
    return batch;
}

void nccl_batch_clear(struct nccl_batch *batch)
{
    for (size_t i = 0; i < batch->n_segments; i++)
        segment_unref(batch->segments[i]);
    for (size_t i = 0; i < batch->n_chunks; i++)
        batch->chunks[i].used_bytes = 0;
    memset(batch->slots, 0, batch->n_slots * sizeof *batch->slots);
    batch->n_segments = batch->n_moves = batch->n_pieces = 0;
}

void nccl_batch_destroy(struct nccl_batch *batch)
{
    nccl_batch_clear(batch);
    for (size_t i = 0; i < batch->n_chunks; i++)
        segment_unref(batch->chunks[i].segment);
    free(batch->chunks);
    free(batch->segments);
    free(batch->moves);
    free(batch->slots);
    free(batch->pieces);
    free(batch);
}

/* --- pieces by what they are ---------------------------------------------------------------------------------------- */

/* Where the piece is, or where it would go. */
static uint32_t *find_slot(const struct nccl_batch *batch, const struct piece_key *key)
{
    uint64_t words[sizeof *key / 8], hash = 0;
    memcpy(words, key, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u ^ hash >> 29;
    size_t at = (size_t)(hash >> 17) & (batch->n_slots - 1);
    while (batch->slots[at] != NO_PIECE && memcmp(&batch->pieces[batch->slots[at] - 1].key, key, sizeof *key) != 0)
        at = (at + 1) & (batch->n_slots - 1);
    return &batch->slots[at];
}

static void add_piece(struct nccl_batch *batch, const struct piece_key *key, void *address)
{
    ARRAY_RESERVE(batch->pieces, batch->n_pieces, batch->pieces_room);
    batch->pieces[batch->n_pieces++] = (struct piece){*key, address};
    *find_slot(batch, key) = (uint32_t)batch->n_pieces;
    if (batch->n_pieces * 2 <= batch->n_slots)
        return;
    batch->n_slots *= 2;
    free(batch->slots);
    batch->slots = memory_alloc_array(batch->n_slots, sizeof *batch->slots);
    for (size_t i = 0; i < batch->n_pieces; i++)
        *find_slot(batch, &batch->pieces[i].key) = (uint32_t)i + 1;
}

/* --- staging -------------------------------------------------------------------------------------------------------- */

static int find_chunk(struct nccl_batch *batch, struct device *device, uint64_t bytes, struct chunk **chunk,
                      struct error *error)
{
    uint64_t new_bytes = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES, own_bytes = 0, used_bytes = 0;
    struct segment *segment;
    *chunk = NULL;
    for (size_t i = 0; i < batch->n_chunks; i++) {
        *chunk = &batch->chunks[i];
        if ((*chunk)->segment->device != device)
            continue;
        if (bytes <= (*chunk)->segment->allocated_bytes - (*chunk)->used_bytes)
            return 0;
        own_bytes += (*chunk)->segment->allocated_bytes;
        used_bytes += (*chunk)->used_bytes;
    }
    bool fits = own_bytes + new_bytes <= batch->limit_bytes;
    if (!fits && used_bytes > 0)
        return NCCL_BATCH_FULL;
    if (!fits)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NCCL_STAGING",
                    "NCCL: a piece of %" PRIu64 " bytes cannot be staged within %" PRIu64, bytes, batch->limit_bytes);
    if (device_allocate(device, new_bytes, &segment, error))
        return -1;
    ARRAY_RESERVE(batch->chunks, batch->n_chunks, batch->chunks_room);
    *chunk = &batch->chunks[batch->n_chunks++];
    **chunk = (struct chunk){segment, 0};
    return 0;
}

struct spot {
    struct segment *segment;
    uint64_t offset;
};

static void *address_of(const struct spot *spot)
{
    return (void *)(uintptr_t)(((const struct cuda_segment *)spot->segment)->address + spot->offset);
}

/* Room for packed rows, until the batch is cleared. */
static int reserve(struct nccl_batch *batch, struct device *device, const struct device_rows *rows, struct spot *spot,
                   struct error *error)
{
    uint64_t bytes = (rows->bytes * rows->count + ALIGN_BYTES - 1) & ~(uint64_t)(ALIGN_BYTES - 1);
    struct chunk *chunk;
    int result = find_chunk(batch, device, bytes, &chunk, error);
    if (result != 0)
        return result;
    *spot = (struct spot){chunk->segment, chunk->used_bytes};
    chunk->used_bytes += bytes;
    return 0;
}

/* Gives the spot's segment its memory, without which it has no address. */
static int back_spot(const struct spot *spot, void **address, struct error *error)
{
    if (cuda_enter((struct cuda_device *)spot->segment->device, error) ||
        cuda_memory_back((struct cuda_segment *)spot->segment, error))
        return -1;
    *address = address_of(spot);
    return 0;
}

static int find_or_stage(struct nccl_batch *batch, const struct transport_delivery *delivery, struct device *staging,
                         uint32_t from, void **address, struct error *error)
{
    const struct device_rows *rows = &delivery->rows, packed = {rows->bytes, rows->count, rows->src_stride, rows->bytes};
    const struct piece_key key = {from, delivery->file, delivery->source_offset, packed};
    bool is_known = delivery->source_offset != TRANSPORT_UNKNOWN;
    uint32_t slot = is_known ? *find_slot(batch, &key) : NO_PIECE;
    if (slot != NO_PIECE) {
        *address = batch->pieces[slot - 1].address;
        return 0;
    }
    struct spot spot;
    int result = reserve(batch, staging, rows, &spot, error);
    if (result == 0 && device_copy(spot.segment, spot.offset, delivery->src, &packed, error))
        result = -1;
    if (result == 0)
        *address = address_of(&spot);
    if (result == 0 && is_known)
        add_piece(batch, &key, *address);
    return result;
}

int nccl_batch_add(struct nccl_batch *batch, const struct transport_delivery *delivery, struct device *staging,
                   uint32_t from, uint32_t to, struct error *error)
{
    const struct spot place = {delivery->segment, delivery->offset};
    const struct device_rows *rows = &delivery->rows;
    struct nccl_move move = {from, to, .rows = {rows->bytes, rows->count, rows->bytes, rows->dst_stride}};
    struct spot arrival = place; /* beside it when rows are not packed there */
    bool is_packed = device_rows_are_packed(rows->dst_stride, rows);
    int result = find_or_stage(batch, delivery, staging, from, &move.src, error);
    if (result == 0 && !is_packed && from != to)
        result = reserve(batch, place.segment->device, rows, &arrival, error);
    if (result != 0)
        return result;
    if (back_spot(&arrival, &move.arrival, error) || back_spot(&place, &move.dst, error))
        return -1;
    if (!is_packed && from == to)
        move.arrival = move.src;
    ARRAY_RESERVE(batch->segments, batch->n_segments, batch->segments_room);
    batch->segments[batch->n_segments++] = segment_ref(place.segment);
    ARRAY_RESERVE(batch->moves, batch->n_moves, batch->moves_room);
    batch->moves[batch->n_moves++] = move;
    return 0;
}

uint64_t nccl_batch_staging_bytes(const struct nccl_batch *batch)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < batch->n_chunks; i++)
        bytes += batch->chunks[i].segment->allocated_bytes;
    return bytes;
}

/* --- for the flush -------------------------------------------------------------------------------------------------- */

static int compare_moves(const void *a, const void *b)
{
    const struct nccl_move *left = a, *right = b;
    if (left->src != right->src)
        return left->src < right->src ? -1 : 1;
    return left->to < right->to ? -1 : left->to > right->to;
}

const struct nccl_move *nccl_batch_moves(struct nccl_batch *batch, size_t *n_moves)
{
    if (batch->n_moves)
        qsort(batch->moves, batch->n_moves, sizeof *batch->moves, compare_moves);
    *n_moves = batch->n_moves;
    return batch->moves;
}

int nccl_batch_land(struct nccl_batch *batch, struct error *error)
{
    for (size_t i = 0; i < batch->n_chunks; i++) {
        struct cuda_device *device = (struct cuda_device *)batch->chunks[i].segment->device;
        if (cuda_enter(device, error) || cuda_queue_land_all(device, error))
            return -1;
    }
    return 0;
}
