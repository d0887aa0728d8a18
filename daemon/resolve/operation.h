/* What happens to elements on their way from the file to the replica, beside being moved: a chain of casts and
 * dequantizations. Operation 0 of a mapping is the plain copy; transfers of that need nothing of this header.
 *
 * Who builds a mapping (all in the mapping's arena, charged) fills in:
 *   mapping->operations[1..n_operations - 1]   one for each chain; with a grid one for each stored box, because a grid knows
 *                                              where its box lies in the file. At most OPERATION_MAX_PER_MAPPING
 *   mapping->scales                            where the scales of all grids are stored, see struct scales
 * and for each transfer: `operation`; row_bytes and src_stride in bytes of the file, dst_offset and dst_stride in bytes of
 * the replica. A row of a transfer with an operation is whole elements: row_bytes is a multiple of from_bytes, a row takes
 * row_bytes / from_bytes * to_bytes in the replica. It may begin at any byte, and lies within one stored box where there is a
 * grid. Elements are of whole bytes; for every step there is a function, cast_find() (convert/cast.h) or, with a grid,
 * dequantize_find().
 *
 * Pure; any thread. */
#ifndef RESOLVE_OPERATION_H
#define RESOLVE_OPERATION_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum {
    OPERATION_COPY = 0,
    OPERATION_MAX_STEPS = 8,
    OPERATION_MAX_PER_MAPPING = 1 << 18, /* the bits of transfer.operation */
};

/* One scale for every block of block_rows x block_columns elements of a matrix. The elements lie in a stored box, C-ordered
 * and without a gap, which is all of the matrix or a part of it:
 *
 *     element at file offset o:   e = (o - origin) / from_bytes
 *                                 row = first_row + e / n_columns,  column = first_column + e % n_columns
 *     its scale:                  values[row / block_rows * grid_columns + column / block_columns]
 *
 * A tensor of more than two dimensions is such a matrix when its inner rows are a multiple of block_rows, or it has one
 * operation for each inner matrix. */
struct scale_grid {
    uint64_t origin;                  /* where the stored box begins in its file */
    uint64_t n_columns;               /* of the stored box: elements from one of its rows to the next */
    uint64_t first_row, first_column; /* of the matrix, where the box begins */
    uint64_t block_rows, block_columns;
    uint64_t grid_rows, grid_columns; /* scales that are read, from block (0, 0) of the matrix on */
    uint64_t scales_offset;           /* of the grid's scales among mapping->scales, C-ordered, packed */
    enum dtype dtype;                 /* as the scales are stored */
    float *values;                    /* in the mapping's arena; filled by scales_read(). The same scales may be shared */
};

struct operation_step {
    enum dtype to;                 /* what the elements are afterwards */
    const struct scale_grid *grid; /* NULL = a cast; else f32(element) * scale, then cast to `to` */
};

struct operation {
    enum dtype from, to;           /* in the file, in the replica: the last step's */
    uint32_t from_bytes, to_bytes; /* of one element */
    uint32_t n_steps;
    struct operation_step steps[OPERATION_MAX_STEPS];
};

static inline uint64_t operation_dst_bytes(const struct operation *operation, uint64_t src_bytes)
{
    return src_bytes / operation->from_bytes * operation->to_bytes;
}

/* Applies all steps to elements that follow each other in the file from `file_offset` on. Neither side has to be aligned, and
 * they do not overlap. Vectorised; a chain goes through a small buffer on the stack. */
void operation_apply(const struct operation *operation, void *dst, const void *src, uint64_t file_offset, size_t n_elements);

#endif
