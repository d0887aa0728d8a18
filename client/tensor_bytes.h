/* The elements of a tensor in C order as runs of bytes, whatever its strides are. Any thread. */
#ifndef CLIENT_TENSOR_BYTES_H
#define CLIENT_TENSOR_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct tensor_bytes {
    const void *data;
    const uint64_t *shape, *strides; /* in bytes; strides NULL = packed */
    size_t rank;
    uint64_t bytes; /* of all elements together */
};

/* Gives take() one piece after the other, together `bytes`; a piece is valid during its call. What take() returns when it is
 * not 0 ends the walk and is the result. */
int tensor_bytes_walk(const struct tensor_bytes *tensor, int (*take)(void *data, const void *piece, size_t bytes),
                      void *data);

#endif
