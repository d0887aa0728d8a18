/* Sets of bytes that lie at strides: rows of equal length, repeated by loops with a stride each. Pure.
 *
 *     lo                                                                       hi
 *     |row|..|row|..|row|..........|row|..|row|..|row|..........|row|..|row|..|row|      two loops of 3
 */
#ifndef RESOLVE_STRIDED_H
#define RESOLVE_STRIDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strided_loop {
    uint64_t size, stride; /* > 1; bytes */
};

struct strided_box {
    uint64_t lo, hi;                  /* from the first to behind the last of its bytes */
    uint64_t row;                     /* bytes that follow each other, > 0 */
    const struct strided_loop *loops; /* the caller's; innermost first: strides rise */
    uint32_t n_loops;
    uint32_t owner; /* a number for the caller */
};

/* An array of elements of `row` bytes: drops what does not repeat, turns round what goes backwards, joins what follows on.
 * `at`: of the element with all indexes 0. No size is 0, and lo and hi fit into 63 bits. `loops` has room for `rank`. */
struct strided_box strided_make(uint64_t at, uint64_t row, uint32_t rank, const uint64_t *sizes, const int64_t *strides,
                                struct strided_loop *loops);
/* The stride of each loop is at least what lies within it, so that rows follow each other in memory. */
bool strided_is_nested(const struct strided_box *box);
/* Two rows of it overlap for certain: no loop may have so small a stride. */
bool strided_repeats(const struct strided_box *box);

#endif
