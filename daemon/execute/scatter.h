/* Reads a window straight into place, with as few system calls as there are requests. */
#ifndef EXECUTE_SCATTER_H
#define EXECUTE_SCATTER_H

#include <sys/uio.h>

#include "execute/item.h"
#include "execute/window.h"

struct piece { /* contiguous in the file and at its destination */
    uint64_t src, bytes, dst_offset;
    uint32_t part;
};

struct pieces {
    struct piece *list;
    size_t n, room;
};

struct copy {
    uint64_t dst_offset, bytes;
    const void *src;
    uint32_t part;
};

struct scatter { /* arrays that are kept from window to window */
    struct pieces pieces, primaries;
    struct copy *copies;
    size_t n_copies, copies_room;
    struct iovec *iov;
    size_t iov_room;
};

void scatter_fini(struct scatter *scatter);

/* All parts have addresses; extents and clips are collected. Bytes that several parts want are read into the first and
 * copied to the others. `trash` takes what no run wants; a remote source needs none. Returns -1 when reading fails. */
int scatter_window(struct scatter *scatter, struct item *item, struct window *window, struct iovec trash,
                   struct error *error);

#endif
