/* Extents as the original loader cut them: deterministic, so that every host of a job knows who reads what without asking.
 *
 * Tensors in storage order (by file name, then first byte) are packed into extents of up to chunk_bytes. A tensor is never
 * split, so one that is larger is an extent by itself; an extent never spans two files. Extent i belongs to host
 * i mod world_size. Our own loads are not cut this way; see plan/steps.h. Pure. */
#ifndef PLAN_COMPAT_H
#define PLAN_COMPAT_H

#include <stddef.h>
#include <stdint.h>

#define COMPAT_DEFAULT_CHUNK_BYTES ((uint64_t)2 << 30) /* "2GB", as sizes are read everywhere here */

struct compat_tensor {
    size_t file;    /* index into the names */
    uint64_t start; /* absolute in the file */
    uint64_t bytes;
};

struct compat_extent {
    size_t file;
    uint64_t start, end;     /* of the file */
    size_t first, n_tensors; /* in order[] */
};

struct compat_plan {
    size_t *order; /* indexes of tensors in storage order */
    struct compat_extent *extents;
    size_t n_extents;
};

/* The caller frees with compat_plan_fini(). chunk_bytes > 0. */
struct compat_plan compat_plan_build(const char *const *files, const struct compat_tensor *tensors, size_t n_tensors,
                                     uint64_t chunk_bytes);
void compat_plan_fini(struct compat_plan *plan);

static inline size_t compat_owner(size_t extent, size_t world_size) /* world_size > 0 */
{
    return extent % world_size;
}

#endif
