/* A view lowered to a program of transfers: which source bytes go where in the replica, complete and without overlap there.
 *
 * mapping_build() composes the request's view with the artifact: NumPy slices become boxes (resolve/box.h), boxes become
 * transfers. Tensors lie in view order, each at the next multiple of the view's alignment, or as resolve/placement.h says. Pure; const once built; memory
 * belongs to the mapping (mapping_destroy), which holds a reference on the artifact, and is charged to the account of the
 * thread that builds it (base/metadata.h). */
#ifndef RESOLVE_MAPPING_H
#define RESOLVE_MAPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"
#include "normalize/load_spec.h"
#include "resolve/artifact.h"
#include "resolve/target.h"
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

/* Scales of quantized tensors: read by scales_read() (execute/scales.h), not by the engine, before the first element is converted. They lie
 * one behind the other, as they are stored; struct scale_grid says which of them are whose. */
struct scales {
    struct transfer *transfers; /* copies; dst_offset is an offset among the scales. In any order */
    size_t n_transfers;
    struct scale_grid **grids; /* every grid of the mapping's operations */
    size_t n_grids;
    uint64_t bytes; /* of all scales, as they are stored; 0 = nothing is quantized */
    /* by scales_read(); without it the engine refuses to run */
    uint64_t verified_bytes;
    bool are_read;
};

/* Of a mapping whose transfers interleave in a file, or read the same bytes more than once. */
struct mapping_order {
    uint64_t *reach; /* per transfer: the largest end of it and of those before it in its file */
    /* What has to be read: the union of the transfers' source bytes, as disjoint spans by file, then src_offset. Source side,
     * file and tensor are filled in; of bytes that several tensors want, the tensor is one of them. */
    struct transfer *reads;
    size_t n_reads;
    size_t *reads_first; /* reads of file f are [reads_first[f], reads_first[f + 1]) */
};

/* Equal rows of a constant, at places like those of a transfer. */
struct mapping_fill {
    uint64_t dst_offset;
    uint64_t row_bytes; /* > 0; a multiple of value_bytes */
    uint64_t n_rows;
    uint64_t dst_stride;  /* >= row_bytes, == row_bytes when n_rows is 1 */
    uint32_t fill;        /* index into the list's fills */
    uint32_t value_bytes; /* 1, 2, 4 or 8; 1 wherever all bytes are the same, so that this is memset() */
    unsigned char value[TARGET_MAX_ELEMENT_BYTES];
};

struct mapping {
    struct artifact *artifact;
    struct view_tensor *tensors; /* view order */
    size_t n_tensors;
    struct transfer *transfers; /* by file, then src_offset */
    size_t n_transfers;
    size_t *file_first; /* transfers of file f are [file_first[f], file_first[f + 1]) */
    /* NULL as long as the transfers of every file are disjoint spans, gaps between rows included; see mapping_order() */
    struct mapping_order *order;
    struct operation *operations; /* what transfers name, [0] = the copy; NULL = all of them are copies */
    size_t n_operations;
    struct scales scales;
    /* With targets of the client (resolve/target.h) offsets count in the destination space, a tensor's is that of its element
     * with all indexes 0, rows may go backwards, and all rows of a transfer or a fill lie in one region. Never shared. */
    bool has_targets;
    struct mapping_fill *fills; /* of targets; they and the transfers never write the same byte. In any order */
    size_t n_fills;
    uint64_t fill_bytes;    /* sum of the fills' bytes */
    uint64_t view_bytes;    /* sum of the tensors' bytes */
    uint64_t replica_bytes; /* with padding: end of the last tensor. With targets the end of the last region */
    uint64_t align_bytes;   /* of every tensor; 0 = the size of its elements */
    /* PLACEMENT_SOURCE only where the source reads past the page cache: elsewhere nothing can land in place */
    enum view_placement placement;
    char view_digest[DIGEST_HEX_CHARS + 1]; /* same digest = same bytes at the same offsets, however it was spelled */
    struct arena arena;
};

/* More runs than this is UNIMPLEMENTED ("slice fewer inner dimensions"): bounds memory against hostile views. */
enum { MAPPING_MAX_RUNS = 8 << 20 };

/* Distinct bytes of the source that the view needs: the sum of all reads. One pass over them. */
uint64_t mapping_source_bytes(const struct mapping *mapping);

struct mapping *mapping_build(const struct view_spec *view, struct artifact *artifact, struct error *error);
void mapping_destroy(struct mapping *mapping); /* accepts NULL */

/* The last step of building: `transfers` (arena, n_transfers) came in any order, and destinations do not overlap. Sorts
 * them, fills in file_first (arena, n_files + 1) and, only where transfers are not disjoint spans, `order`. Costs one pass
 * where they came by file and src_offset. A window of the file looks at every transfer whose span meets it, so the innermost
 * loop should be the one with the smallest src_stride: of a transposed matrix one transfer for each row that is stored, not
 * for each column. The union is exact unless that needs more than a million rows that fit no pattern; then it takes in the
 * gaps between them. UNIMPLEMENTED when more transfers meet in a window than a worker may be asked to look at. */
int mapping_order(struct mapping *mapping, struct error *error);

/* Index of the first transfer of the file of which, or of one before it, something lies behind `at`; file_first[file + 1]
 * when there is none. With an order some of those that follow may end before `at`. */
size_t mapping_find(const struct mapping *mapping, uint32_t file, uint64_t at);

struct mapping_reads {
    const struct transfer *list; /* source side, file and tensor alone count */
    size_t n;
};
/* What has to be read of a file: disjoint spans, by offset. */
static inline struct mapping_reads mapping_reads(const struct mapping *mapping, size_t file)
{
    const struct mapping_order *order = mapping->order;
    const size_t *first = order ? order->reads_first : mapping->file_first;
    return (struct mapping_reads){(order ? order->reads : mapping->transfers) + first[file], first[file + 1] - first[file]};
}

/* Of a transfer: NULL = it is a copy. */
static inline const struct operation *mapping_operation(const struct mapping *mapping, const struct transfer *transfer)
{
    return transfer->operation ? &mapping->operations[transfer->operation] : NULL;
}

#endif
