/* Checks the daemon's layout columns against each other and against the memory or the files that were handed off, and computes
 * what they leave out. Pure. */
#ifndef CLIENT_LAYOUT_H
#define CLIENT_LAYOUT_H

#include "base/arena.h"
#include "base/error.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct layout {
    size_t n_tensors;
    size_t *first_dim; /* of each tensor, in the columns' dims and in strides */
    uint64_t *strides; /* in elements; C order where tensors are in memory */
};

int layout_build(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, uint64_t memory_bytes, struct arena *arena,
                 struct layout *layout, struct error *error);
/* The same of tensors in files of these sizes, where they have strides of their own. Those of a tensor without elements, or
 * with elements below a byte, which lie packed, are as in memory. */
int layout_build_files(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, const uint64_t *file_bytes,
                       size_t n_files, struct arena *arena, struct layout *layout, struct error *error);

#endif
