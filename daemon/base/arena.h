/* A bump allocator: many small pieces, one free. Ownership: the arena owns everything it hands out.
 * Not thread-safe: one owner at a time. With a cap (hostile input) arena_try() returns NULL beyond it. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *blocks;
    size_t used, room;  /* in the newest block */
    size_t total_bytes; /* of all blocks */
    size_t cap_bytes;   /* of total_bytes, for arena_try(); 0 = none */
};

void arena_init(struct arena *arena, size_t cap_bytes);
void arena_fini(struct arena *arena);                 /* accepts a zeroed arena */
void *arena_try(struct arena *arena, size_t bytes);   /* zeroed, 16-byte aligned; NULL when the cap is reached */
void *arena_alloc(struct arena *arena, size_t bytes); /* the same without a cap: never NULL */
void *arena_array(struct arena *arena, size_t count, size_t size);
char *arena_text(struct arena *arena, const char *text, size_t length); /* a copy with a final NUL */

#endif
