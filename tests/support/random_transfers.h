/* Random transfers of every kind that a mapping may have: rows that alternate, matrices that are turned by their rows or by
 * their columns, rows that go backwards, the same bytes several times, and elements that are cast or dequantized; at any offset of a file. */
#ifndef SUPPORT_RANDOM_TRANSFERS_H
#define SUPPORT_RANDOM_TRANSFERS_H

#include <stdbool.h>

#include "resolve/transfer.h"

enum { RANDOM_TRANSFERS_MOST = 4000, RANDOM_OPERATIONS_MOST = 24, RANDOM_SCALES_MOST = 1 << 14 };

struct random_transfers {
    uint64_t random;
    uint64_t dst_bytes; /* so far */
    struct transfer list[RANDOM_TRANSFERS_MOST];
    size_t n;
    struct operation operations[RANDOM_OPERATIONS_MOST]; /* [0] = the copy */
    size_t n_operations;
    struct scale_grid grids[RANDOM_OPERATIONS_MOST];
    float scales[RANDOM_SCALES_MOST];
};

/* From files of at least so many bytes each. has_operations = some are converted. */
void random_transfers_fill(struct random_transfers *transfers, uint64_t seed, uint32_t n_files, uint64_t file_bytes,
                           bool has_operations);

#endif
