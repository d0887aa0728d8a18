/* Equal rows that move from one file to one place of the replica, with a stride on both sides: what a mapping is made of.
 *
 *     file      |row|.....|row|.....|row|         src_stride apart, from src_offset on
 *     replica   |row|..|row|..|row|               dst_stride apart, from dst_offset on
 *
 * At destinations in memory of a client (resolve/target.h) rows may go backwards: dst_stride is negative then.
 *
 * With an operation (resolve/operation.h) the elements of a row are converted on their way, and a row may have another size
 * in the replica than in the file: src_offset, row_bytes and src_stride are bytes of the file, dst_offset and dst_stride
 * bytes of the replica. A value: no pointers, the same on every host. Pure; any thread. */
#ifndef RESOLVE_TRANSFER_H
#define RESOLVE_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resolve/operation.h"

struct transfer {
    uint64_t src_offset;     /* absolute in the part file */
    uint64_t dst_offset;     /* in the replica */
    uint64_t row_bytes;      /* > 0; in the file */
    uint64_t n_rows;         /* > 0 */
    uint64_t src_stride;     /* >= row_bytes, == row_bytes when n_rows is 1 */
    int64_t dst_stride;      /* its magnitude >= what a row takes there; the same where rows are packed or n_rows is 1 */
    uint32_t file : 14;      /* an artifact has at most 10000 (discover.c) */
    uint32_t operation : 18; /* index into mapping->operations; OPERATION_COPY = the bytes as they are */
    uint32_t tensor;         /* index into mapping->tensors */
};

/* End of the last row in the file. */
static inline uint64_t transfer_end(const struct transfer *transfer)
{
    return transfer->src_offset + (transfer->n_rows - 1) * transfer->src_stride + transfer->row_bytes;
}

/* In the file, gaps not counted. */
static inline uint64_t transfer_bytes(const struct transfer *transfer)
{
    return transfer->n_rows * transfer->row_bytes;
}

/* From the first byte that is written to behind the last one, all rows together; rows may go backwards. `row_bytes` is what
 * a row takes at the destination. */
struct transfer_extent {
    uint64_t lo, hi;
};
static inline struct transfer_extent transfer_extent(uint64_t dst_offset, uint64_t n_rows, int64_t dst_stride,
                                                     uint64_t row_bytes)
{
    uint64_t last = dst_offset + (n_rows - 1) * (uint64_t)dst_stride;
    bool is_backwards = n_rows > 1 && dst_stride < 0;
    return (struct transfer_extent){is_backwards ? last : dst_offset, (is_backwards ? dst_offset : last) + row_bytes};
}

/* Behind the last byte that is written. */
static inline uint64_t transfer_dst_end(const struct transfer *transfer, uint64_t row_bytes)
{
    return transfer_extent(transfer->dst_offset, transfer->n_rows, transfer->dst_stride, row_bytes).hi;
}

#endif
