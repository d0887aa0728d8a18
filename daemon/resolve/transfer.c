/* One row per operation; see transfer.h. */
#include "resolve/transfer.h"

#include <string.h>

static void copy_bytes(const struct transfer *transfer, const unsigned char *file, unsigned char *replica)
{
    for (uint64_t row = 0; row < transfer->n_rows; row++)
        memcpy(replica + transfer->dst_offset + row * transfer->dst_stride,
               file + transfer->src_offset + row * transfer->src_stride, transfer->row_bytes);
}

const struct transfer_row transfer_table[TRANSFER_N_OPERATIONS] = {
    [TRANSFER_COPY] = {"copy", copy_bytes},
};
