/* A bump allocator: many small pieces, one free. Ownership: the arena owns everything it hands out.
 * Not thread-safe: one owner at a time.
 *
 * arena_alloc() never fails, for things of fixed size. What depends on a size from outside is asked for by arena_try...():
 * those blocks are charged to the account that the thread was in when the first of them was taken (base/metadata.h). */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/quota.h"

struct arena_block;
struct arena {
    struct arena_block *blocks, *large; /* large: one piece each */
    size_t used, room;                  /* in the newest of blocks */
    size_t total_bytes;                 /* of all blocks */
    size_t cap_bytes;                   /* of total_bytes, for arena_try(); 0 = none */
    struct quota_charge charge;
    bool is_charged;
};

void arena_init(struct arena *arena, size_t cap_bytes);
void arena_fini(struct arena *arena);                 /* accepts a zeroed arena */
void *arena_alloc(struct arena *arena, size_t bytes); /* zeroed, 16-byte aligned; never NULL */
void *arena_array(struct arena *arena, size_t count, size_t size);
char *arena_text(struct arena *arena, const char *text, size_t length); /* a copy with a final NUL */

/* The same, but NULL when the cap is reached (ARENA_FULL), the user has too much, or the host has no memory. */
void *arena_try(struct arena *arena, size_t bytes, struct error *error);
void *arena_try_array(struct arena *arena, size_t count, size_t size, struct error *error);
char *arena_try_bytes(struct arena *arena, size_t bytes, struct error *error); /* not aligned: for text */
/* Aligned only as an object of that size can need it: no padding behind texts. */
void *arena_try_packed(struct arena *arena, size_t bytes, struct error *error);
/* Frees a piece of arena_try...() at once if it is large enough to have a block of its own; others stay until the end. */
void arena_give_back(struct arena *arena, void *piece);

#endif
