/* Bump allocation in blocks that double up to 1 MiB; larger requests get a block of their own. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"

enum { ALIGNMENT = 16, FIRST_BLOCK_BYTES = 4096, LARGEST_BLOCK_BYTES = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t bytes; /* of data; also keeps it 16-byte aligned */
    unsigned char data[];
};

void arena_init(struct arena *arena, size_t cap_bytes)
{
    *arena = (struct arena){.cap_bytes = cap_bytes};
}

static void free_blocks(struct arena_block *blocks)
{
    while (blocks) {
        struct arena_block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

void arena_fini(struct arena *arena)
{
    free_blocks(arena->blocks);
    free_blocks(arena->large);
    quota_charge_end(&arena->charge);
    arena_init(arena, arena->cap_bytes);
}

static size_t left_until_cap(const struct arena *arena)
{
    if (!arena->cap_bytes)
        return SIZE_MAX;
    return arena->cap_bytes > arena->total_bytes ? arena->cap_bytes - arena->total_bytes : 0;
}

/* Of a new block for a small piece. The last block ends at the cap instead of wasting what is left. */
static size_t room_for(const struct arena *arena, size_t bytes)
{
    size_t room = arena->total_bytes < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : arena->total_bytes;
    size_t left = left_until_cap(arena);
    room = room > LARGEST_BLOCK_BYTES ? LARGEST_BLOCK_BYTES : room;
    room = room > left ? left : room;
    return room < bytes ? bytes : room;
}

static bool is_large(size_t bytes)
{
    return bytes > LARGEST_BLOCK_BYTES;
}

/* Takes the block. The first `bytes` of it are the piece that is returned. */
static void *add_block(struct arena *arena, struct arena_block *block, size_t room, size_t bytes)
{
    struct arena_block **list = is_large(bytes) ? &arena->large : &arena->blocks;
    block->bytes = room;
    block->next = *list;
    *list = block;
    arena->total_bytes += room;
    if (!is_large(bytes)) {
        arena->room = room;
        arena->used = bytes;
    }
    return block->data;
}

static void *take_piece(struct arena *arena, size_t bytes, size_t alignment)
{
    size_t at = (arena->used + alignment - 1) & ~(alignment - 1);
    if (!arena->blocks || at > arena->room || bytes > arena->room - at)
        return NULL;
    arena->used = at + bytes;
    return arena->blocks->data + at;
}

static size_t rounded(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        abort();
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    bytes = rounded(bytes);
    void *piece = take_piece(arena, bytes, ALIGNMENT);
    if (piece)
        return piece;
    size_t room = is_large(bytes) ? bytes : room_for(arena, bytes);
    return add_block(arena, memory_alloc(sizeof(struct arena_block) + room), room, bytes);
}

static void *try_block(struct arena *arena, size_t bytes, struct error *error)
{
    size_t room = is_large(bytes) ? bytes : room_for(arena, bytes);
    if (bytes > left_until_cap(arena)) {
        fail(error, ERROR_RESOURCE_EXHAUSTED, REASON(ARENA_FULL), "more than %zu bytes of memory are needed",
             arena->cap_bytes);
        return NULL;
    }
    if (!arena->is_charged)
        arena->charge = metadata_charge();
    arena->is_charged = true;
    if (quota_charge_add(&arena->charge, room, error) != 0)
        return NULL;
    struct arena_block *block = memory_try(sizeof *block + room);
    if (block)
        return add_block(arena, block, room, bytes);
    quota_charge_subtract(&arena->charge, arena->charge.quota ? room : 0);
    metadata_fail_memory(room, error);
    return NULL;
}

static void *try_aligned(struct arena *arena, size_t bytes, size_t alignment, struct error *error)
{
    if (bytes > SIZE_MAX / 2) {
        metadata_fail_memory(bytes, error);
        return NULL;
    }
    bytes = alignment == ALIGNMENT ? rounded(bytes) : bytes;
    void *piece = take_piece(arena, bytes, alignment);
    return piece ? piece : try_block(arena, bytes, error);
}

void *arena_try(struct arena *arena, size_t bytes, struct error *error)
{
    return try_aligned(arena, bytes, ALIGNMENT, error);
}

/* The size of an object is a multiple of its alignment. */
void *arena_try_packed(struct arena *arena, size_t bytes, struct error *error)
{
    size_t alignment = bytes & -bytes;
    return try_aligned(arena, bytes, alignment == 0 || alignment > ALIGNMENT ? ALIGNMENT : alignment, error);
}

void *arena_try_array(struct arena *arena, size_t count, size_t size, struct error *error)
{
    uint64_t bytes;
    if (checked_mul(count, size, &bytes))
        return arena_try(arena, bytes, error);
    metadata_fail_memory(SIZE_MAX, error);
    return NULL;
}

char *arena_try_bytes(struct arena *arena, size_t bytes, struct error *error)
{
    return try_aligned(arena, bytes, 1, error);
}

void arena_give_back(struct arena *arena, void *piece)
{
    for (struct arena_block **at = &arena->large; *at; at = &(*at)->next) {
        struct arena_block *block = *at;
        if (block->data != piece)
            continue;
        *at = block->next;
        arena->total_bytes -= block->bytes;
        quota_charge_subtract(&arena->charge, arena->charge.quota ? block->bytes : 0);
        free(block);
        return;
    }
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        abort();
    return arena_alloc(arena, bytes);
}

char *arena_text(struct arena *arena, const char *text, size_t length)
{
    char *copy = arena_alloc(arena, length + 1);
    memcpy(copy, text, length);
    return copy;
}
