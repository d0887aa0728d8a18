/* The one engine for boxes: an n-dimensional box of elements that lies in two C-ordered arrays, where it comes from and
 * where it goes to, lowered to rows with a stride on each side.
 *
 * Dimensions that lie contiguously on both sides are merged first, so a slice of the outermost dimension is one run of one
 * row, a slice of one inner dimension one run of many rows, and only what needs more levels of strides becomes several
 * runs. Pure; any thread; nothing to free. */
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

struct box_level {
    uint64_t size, src_stride, dst_stride; /* strides in bytes; see dst_stride below */
};

struct box_runs {
    uint64_t n_runs;                                    /* 0 = an empty box */
    uint64_t src_offset, dst_offset;                    /* of the first row, in bytes from each array's beginning */
    uint64_t row_bytes, n_rows, src_stride, dst_stride; /* the same in every run; strides == row_bytes when n_rows is 1.
                                                         * A stride of a destination that goes backwards wraps around */
    uint32_t n_levels;                                  /* innermost first: elements of a row, rows of a run, runs */
    struct box_level levels[BOX_MAX_RANK + 1];
};

/* False when rows of elements of `element_bits` bits do not begin and end on byte boundaries on both sides. */
bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs);

/* Byte offsets of run `index` from the arrays' beginnings; both ascend. */
void box_run_offsets(const struct box_runs *runs, uint64_t index, uint64_t *src, uint64_t *dst);

#endif
