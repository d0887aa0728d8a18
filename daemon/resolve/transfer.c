/* Row by row; see transfer.h. */
#include "resolve/transfer.h"

#include <string.h>

void transfer_apply(const struct transfer *transfer, const struct operation *operation, const unsigned char *file,
                    unsigned char *replica)
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
