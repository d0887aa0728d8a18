/* Elements that lie at strides on both sides, lowered to equal rows: boxes of C-ordered arrays, and loop nests of any strides.
 *
 * Loops that count on where another one ends are joined first, so a slice of the outermost dimension is one run of one row, a
 * slice of one inner dimension one run of many rows, and only what needs more loops becomes several runs. Pure; any thread;
 * nothing to free. */
#ifndef RESOLVE_BOX_H
#define RESOLVE_BOX_H

#include <stdbool.h>
#include <stdint.h>

enum { BOX_MAX_RANK = 64 };

struct box { /* start[i] + size[i] <= shape[i]; each array's size in bits fits into 64 bits unless the box is empty */
    uint32_t rank;
    const uint64_t *size;
    const uint64_t *src_shape, *src_start;
    const uint64_t *dst_shape, *dst_start;
};

struct nest_loop {
    uint64_t size;
    uint64_t src; /* stride; 0 = the same elements again */
    int64_t dst;
};

struct loop_nest { /* in bits, so that elements may be smaller than a byte */
    uint64_t src;  /* of the first element */
    int64_t dst;
    uint32_t n_loops;
    struct nest_loop loops[BOX_MAX_RANK]; /* size > 1; the order says nothing */
};

struct box_runs {
    uint64_t n_runs;                                    /* 0 = an empty box */
    uint64_t src_offset, dst_offset;                    /* of the first row, in bytes from each side's beginning */
    uint64_t row_bytes, n_rows, src_stride, dst_stride; /* the same in every run; strides == row_bytes when n_rows is 1.
                                                         * A stride of a destination that goes backwards wraps around */
    uint32_t n_outer;                                   /* from run to run, the smallest src first; in bytes */
    struct nest_loop outer[BOX_MAX_RANK];
};

/* Rows are along the innermost dimension that is not part of one, so that runs come in file order and apart. False when rows of
 * elements of `element_bits` bits do not begin and end on byte boundaries on both sides. */
bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs);
/* Rows are along the loop that is closest together in the file, unless another one takes many fewer runs. The nest is used up. */
bool box_lower_nest(struct loop_nest *nest, unsigned from_bits, unsigned to_bits, struct box_runs *runs);

/* Byte offsets of run `index` from each side's beginning; those of box_lower() ascend. */
void box_run_offsets(const struct box_runs *runs, uint64_t index, uint64_t *src, uint64_t *dst);

#endif
