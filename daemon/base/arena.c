/* Bump allocation in blocks that double up to 1 MiB; larger requests get a block of their own. */
#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { ALIGNMENT = 16, FIRST_BLOCK_BYTES = 4096, LARGEST_BLOCK_BYTES = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t padding; /* keeps the data 16-byte aligned */
    unsigned char data[];
};

void arena_init(struct arena *arena, size_t cap_bytes)
{
    *arena = (struct arena){.cap_bytes = cap_bytes};
}

void arena_fini(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena_init(arena, arena->cap_bytes);
}

static size_t left_until_cap(const struct arena *arena)
{
    if (!arena->cap_bytes)
        return SIZE_MAX;
    return arena->cap_bytes > arena->total_bytes ? arena->cap_bytes - arena->total_bytes : 0;
}

static void *add_block(struct arena *arena, size_t bytes)
{
    size_t room = arena->total_bytes < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : arena->total_bytes;
    size_t left = left_until_cap(arena);
    room = room > LARGEST_BLOCK_BYTES ? LARGEST_BLOCK_BYTES : room;
    room = room > left ? left : room; /* the last block ends at the cap instead of wasting what is left */
    room = room < bytes ? bytes : room;
    struct arena_block *block = memory_alloc(sizeof *block + room);
    block->next = arena->blocks;
    arena->blocks = block;
    arena->total_bytes += room;
    arena->room = room;
    arena->used = bytes;
    return block->data;
}

static bool fits_newest_block(const struct arena *arena, size_t bytes)
{
    return arena->blocks && bytes <= arena->room - arena->used;
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
    if (!fits_newest_block(arena, bytes))
        return add_block(arena, bytes);
    void *piece = arena->blocks->data + arena->used;
    arena->used += bytes;
    return piece;
}

void *arena_try(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2 || (!fits_newest_block(arena, rounded(bytes)) && rounded(bytes) > left_until_cap(arena)))
        return NULL;
    return arena_alloc(arena, bytes);
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
