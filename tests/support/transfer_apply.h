/* How a transfer is done where nothing quicker is known, row by row: what every other implementation is tested against.
 * `operation` is the transfer's, or NULL for a copy. */
#ifndef TESTS_SUPPORT_TRANSFER_APPLY_H
#define TESTS_SUPPORT_TRANSFER_APPLY_H

#include <string.h>

#include "resolve/transfer.h"

static inline void transfer_apply(const struct transfer *transfer, const struct operation *operation,
                                  const unsigned char *file, unsigned char *replica)
{
    for (uint64_t row = 0; row < transfer->n_rows; row++) {
        uint64_t src_offset = transfer->src_offset + row * transfer->src_stride;
        unsigned char *dst = replica + (transfer->dst_offset + row * (uint64_t)transfer->dst_stride);
        if (operation)
            operation_apply(operation, dst, file + src_offset, src_offset, transfer->row_bytes / operation->from_bytes);
        else
            memcpy(dst, file + src_offset, transfer->row_bytes);
    }
}

#endif
