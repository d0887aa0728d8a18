/* Moving single elements between two matrices with strides of their own on both sides: turns what lies by rows into what
 * lies by columns, in tiles that fit into the cache. Any thread. */
#ifndef BASE_TRANSPOSE_H
#define BASE_TRANSPOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transpose { /* element (r, c) of the source to (r, c) of the destination; strides in bytes */
    uint64_t n_rows, n_columns;
    uint64_t src_row_stride, src_column_stride;
    int64_t dst_row_stride, dst_column_stride; /* may be negative: dst is where the first element goes */
};

bool transpose_takes(uint64_t element_bytes); /* 1, 2, 4, 8 */
/* Neither side has to be aligned, and they do not overlap. */
void transpose_copy(const struct transpose *transpose, uint64_t element_bytes, void *dst, const void *src);

#endif
