/* A view lowered to a program of transfers: which source bytes go where in the replica, complete and non-overlapping.
 *
 * mapping_build() composes the request's view with the artifact: NumPy slices become boxes (resolve/box.h), boxes become
 * transfers. Tensors lie in view order, each at the next multiple of the view's alignment. Pure; const once built; memory
 * belongs to the mapping (mapping_destroy), which holds a reference on the artifact, and is charged to the account of the
 * thread that builds it (base/metadata.h). */
#ifndef RESOLVE_MAPPING_H
#define RESOLVE_MAPPING_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"
#include "normalize/load_spec.h"
#include "resolve/artifact.h"
#include "resolve/transfer.h"

enum job_kind {                 /* one tensor's part of a mapping */
                JOB_REPLICATED, /* the whole tensor */
                JOB_DIM0,       /* a slice of the outermost dimension only: one contiguous run */
                JOB_DIM1,       /* rows of one width at one stride: a slice of one inner dimension of a C-ordered array */
                JOB_RECT2D,     /* rows and columns, or several levels of strides */
                JOB_EMPTY,      /* no bytes */
};
const char *job_kind_name(enum job_kind kind);

struct view_tensor {
    const struct tensor_record *record;
    const uint64_t *shape; /* of the slice; rank is the record's */
    uint64_t offset;       /* in the replica */
    uint64_t bytes;
    enum job_kind job;
};

struct mapping {
    struct artifact *artifact;
    struct view_tensor *tensors; /* view order */
    size_t n_tensors;
    /* By file, then src_offset. They never interleave: in the file they are disjoint spans, gaps between rows included. */
    struct transfer *transfers;
    size_t n_transfers;
    size_t *file_first;     /* transfers of file f are [file_first[f], file_first[f + 1]) */
    uint64_t view_bytes;    /* sum of the tensors' bytes */
    uint64_t replica_bytes; /* with padding: end of the last tensor */
    uint64_t align_bytes;
    char view_digest[DIGEST_HEX_CHARS + 1]; /* same digest = same bytes at the same offsets, however it was spelled */
    struct arena arena;
};

/* More runs than this is UNIMPLEMENTED ("slice fewer inner dimensions"): bounds memory against hostile views. */
enum { MAPPING_MAX_RUNS = 8 << 20 };

struct mapping *mapping_build(const struct view_spec *view, struct artifact *artifact, struct error *error);
void mapping_destroy(struct mapping *mapping); /* accepts NULL */

/* Index of the first transfer of the file that ends behind `at`; file_first[file + 1] when there is none. */
size_t mapping_find(const struct mapping *mapping, uint32_t file, uint64_t at);

#endif
