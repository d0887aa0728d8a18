/* Reads one buffer of a file through the page cache. */
#ifndef SUPPORT_SOURCE_BYTES_H
#define SUPPORT_SOURCE_BYTES_H

#include "source/source.h"

static inline int source_read_bytes(struct source *source, size_t file, uint64_t offset, void *bytes, uint64_t count,
                                    struct error *error)
{
    struct iovec iov = {.iov_base = bytes, .iov_len = count};
    struct source_read read = {.file = file, .offset = offset, .iov = &iov, .n_iov = 1};
    return source_read(source, &read, error);
}

#endif
