/* Where each tensor of a view lies in the part files themselves: in one of them, from an offset on, with a stride per
 * dimension, so that a mapping of the file is a view of the tensor.
 *
 * Worked out from the mapping's transfers, whatever they were made of (slices, pieces, variants): a tensor can be so viewed
 * when all of its elements are bytes of one file, unconverted, at offset + sum of index[d] * stride[d] with strides >= 0.
 * Pure; const once built. */
#ifndef RESOLVE_MAPPED_VIEW_H
#define RESOLVE_MAPPED_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "resolve/mapping.h"

struct mapped_tensor {
    uint32_t file;           /* index into mapped_view.files; 0 for a tensor without bytes */
    uint64_t offset;         /* in that file, of its first element */
    const uint64_t *strides; /* in bytes, of each dimension; all 0 of elements of less than a byte, and of none */
};

struct mapped_view {
    struct mapped_tensor *tensors; /* as the mapping's */
    size_t n_tensors;
    uint32_t *files; /* the source's that have any of their bytes, ascending */
    size_t n_files;
};

/* In the arena, charged. NULL: FAILED_PRECONDITION naming a tensor that cannot be viewed, TENSOR_COMPUTED,
 * TENSOR_IN_SEVERAL_FILES or TENSOR_NOT_STRIDED; or there is no memory for it. */
const struct mapped_view *mapped_view_build(const struct mapping *mapping, struct arena *arena, struct error *error);

#endif
