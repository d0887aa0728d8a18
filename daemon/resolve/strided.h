/* Sets of bytes that lie at strides, and taking them apart without expanding them: rows of equal length, repeated by loops
 * with a stride each.
 *
 *     lo                                                                       hi
 *     |row|..|row|..|row|..........|row|..|row|..|row|..........|row|..|row|..|row|      two loops of 3
 *
 * Boxes here are nested: the stride of a loop is at least what everything within it spans, so that parts follow each other
 * in memory. strided_make() makes boxes of any array, strided_unnest() nested ones of those that are not.
 *
 * Loops live in the arena of the work or with who made a box. Everything takes steps of strided_work.steps_left, which bounds
 * time and memory. One thread per work. */
#ifndef RESOLVE_STRIDED_H
#define RESOLVE_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct strided_loop {
    uint64_t size, stride; /* > 1; bytes */
};

struct strided_box {
    uint64_t lo, hi;                  /* from the first to behind the last of its bytes */
    uint64_t row;                     /* bytes that follow each other, > 0 */
    const struct strided_loop *loops; /* innermost first: strides rise */
    uint32_t n_loops;
    uint32_t owner; /* a number for the caller */
};

struct strided_list {
    struct strided_box *boxes; /* metadata_free() */
    size_t n, capacity;
};

/* What of a box lies in periods [first, first + n) of memory, counted from an origin: the same bytes of each of them. */
struct strided_part {
    uint64_t first, n;
    struct strided_box box; /* in the period: lo < hi <= the period */
};
struct strided_parts {
    struct strided_part *list; /* metadata_free() */
    size_t n, capacity;
};

struct strided_work {
    struct arena arena;
    uint64_t steps_left;
    bool is_too_long; /* the reason of a -1: out of steps. Else `error` tells */
    struct error *error;
};

/* 0, or -1 when there are no more. */
int strided_spend(struct strided_work *work, uint64_t steps);

/* An array of elements of `row` bytes: drops what does not repeat, turns round what goes backwards, joins what follows on.
 * `at`: of the element with all indexes 0. No size is 0, and lo and hi fit into 63 bits. `loops` has room for `rank`. */
struct strided_box strided_make(uint64_t at, uint64_t row, uint32_t rank, const uint64_t *sizes, const int64_t *strides,
                                struct strided_loop *loops);
bool strided_is_nested(const struct strided_box *box);
/* Two rows of it overlap for certain: no loop may have so small a stride. */
bool strided_repeats(const struct strided_box *box);
/* Adds nested boxes which together are the box. */
int strided_unnest(struct strided_work *work, const struct strided_box *box, struct strided_list *list);

int strided_add(struct strided_list *list, struct strided_box box, struct error *error);
/* Adds what lies before `at` to one list and the rest to the other, both in the order of memory. */
int strided_split(struct strided_work *work, const struct strided_box *box, uint64_t at, struct strided_list *below,
                  struct strided_list *above);
/* Adds its parts. No loop has a stride above the period, and the box begins at or behind the origin. */
int strided_divide(struct strided_work *work, struct strided_box box, uint64_t origin, uint64_t period,
                   struct strided_parts *parts);

#endif
