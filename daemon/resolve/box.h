/* The one engine for boxes: an n-dimensional box of a C-ordered array, lowered to byte runs.
 *
 * Dimensions that lie contiguously are merged first, so a slice of the outermost dimension is one run of one row, a slice
 * of one inner dimension one run of many rows, and only what needs more levels of strides becomes several runs. Pure;
 * any thread; nothing to free. */
#ifndef RESOLVE_BOX_H
#define RESOLVE_BOX_H

#include <stdbool.h>
#include <stdint.h>

enum { BOX_MAX_RANK = 64 };

struct box { /* start[i] + size[i] <= shape[i]; the array's size in bits fits into 64 bits unless the box is empty */
    uint32_t rank;
    const uint64_t *shape, *start, *size;
};

struct box_runs {
    uint64_t n_runs;                        /* 0 = an empty box */
    uint64_t first_offset;                  /* of the first row, in bytes from the array's beginning */
    uint64_t row_bytes, n_rows, row_stride; /* the same in every run; row_stride == row_bytes when n_rows is 1 */
    uint32_t n_levels;                      /* strides around the run, innermost first */
    uint64_t level_size[BOX_MAX_RANK], level_stride[BOX_MAX_RANK];
};

/* False when rows of elements of `element_bits` bits do not begin and end on byte boundaries. */
bool box_lower(const struct box *box, unsigned element_bits, struct box_runs *runs);

/* Byte offset of run `index` from the array's beginning; ascending. */
uint64_t box_run_offset(const struct box_runs *runs, uint64_t index);

uint64_t box_elements(const struct box *box);

#endif
