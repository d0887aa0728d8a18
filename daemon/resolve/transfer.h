/* Equal rows that move from one file to one place of the replica, with a stride on both sides: what a mapping is made of.
 *
 *     file      |row|.....|row|.....|row|         src_stride apart, from src_offset on
 *     replica   |row|..|row|..|row|               dst_stride apart, from dst_offset on
 *
 * A value: no pointers, the same on every host. Pure; any thread. */
#ifndef RESOLVE_TRANSFER_H
#define RESOLVE_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

enum transfer_operation {
    TRANSFER_COPY, /* the bytes as they are */
    TRANSFER_N_OPERATIONS,
};

struct transfer {
    uint64_t src_offset; /* absolute in the part file */
    uint64_t dst_offset; /* in the replica */
    uint64_t row_bytes;  /* > 0 */
    uint64_t n_rows;     /* > 0 */
    uint64_t src_stride; /* >= row_bytes; both strides == row_bytes when n_rows is 1 */
    uint64_t dst_stride; /* >= row_bytes; == row_bytes where rows are packed */
    uint32_t file : 24;  /* an artifact has at most 10000 (artifact.c) */
    enum transfer_operation operation : 8;
    uint32_t tensor; /* index into mapping->tensors */
};

/* How each operation is done where nothing quicker is known: what every other implementation is tested against. */
struct transfer_row {
    const char *name;
    void (*apply)(const struct transfer *transfer, const unsigned char *file, unsigned char *replica);
};
extern const struct transfer_row transfer_table[TRANSFER_N_OPERATIONS];

/* End of the last row in the file, and in the replica. */
static inline uint64_t transfer_end(const struct transfer *transfer)
{
    return transfer->src_offset + (transfer->n_rows - 1) * transfer->src_stride + transfer->row_bytes;
}

static inline uint64_t transfer_dst_end(const struct transfer *transfer)
{
    return transfer->dst_offset + (transfer->n_rows - 1) * transfer->dst_stride + transfer->row_bytes;
}

static inline uint64_t transfer_bytes(const struct transfer *transfer)
{
    return transfer->n_rows * transfer->row_bytes;
}

#endif
