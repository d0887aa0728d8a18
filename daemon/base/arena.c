/* Bump allocation in blocks that double up to 1 MiB; larger requests get a block of their own. */
#include "base/arena.h"

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

static void *add_block(struct arena *arena, size_t bytes)
{
    size_t room = arena->total_bytes < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : arena->total_bytes;
    room = room > LARGEST_BLOCK_BYTES ? LARGEST_BLOCK_BYTES : room;
    room = room < bytes ? bytes : room;
    if (arena->cap_bytes && room > arena->cap_bytes - arena->total_bytes)
        return NULL;
    struct arena_block *block = memory_alloc(sizeof *block + room);
    block->next = arena->blocks;
    arena->blocks = block;
    arena->total_bytes += room;
    arena->room = room;
    arena->used = bytes;
    return block->data;
}

void *arena_try(struct arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!arena->blocks || bytes > arena->room - arena->used)
        return add_block(arena, bytes);
    void *piece = arena->blocks->data + arena->used;
    arena->used += bytes;
    return piece;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    void *piece = arena_try(arena, bytes);
    if (!piece)
        abort();
    return piece;
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
