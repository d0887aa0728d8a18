/* DTensor placements: for each dimension of a torch.distributed mesh what it does with a tensor, applied from the first mesh
 * dimension to the last, as torch 2.15 does (distributed/tensor/_utils.py, _compute_local_shape_and_global_offset). Pure; any thread.
 *
 * S(d) cuts dimension d, of what is left of it, into chunks of the rounded-up share; the last ones may be smaller or empty.
 * _S(d,k) first cuts it into k chunks, and each of these as S(d) does; a rank has the same chunk of all k. That is how FSDP's
 * split of a tensor that tensor parallelism has split before it is written from left to right. R keeps it whole. */
#ifndef CLIENT_PLACEMENT_H
#define CLIENT_PLACEMENT_H

#include <stdbool.h>

#include "partition_spec.h"

enum { PLACEMENT_MAX_RUNS = 65536 }; /* that a strided placement may cut a dimension into */

struct placement {
    bool shards;           /* else R */
    int64_t dimension;     /* negative = from the last */
    uint64_t split_factor; /* k of _S(d,k); 1 = S(d) */
};

struct placements {
    struct placement *of_axis; /* one per axis of the mesh; the arena's */
};

/* "S(0),R,_S(1,2)", or with torch's long names: Shard(0), Shard(dim=0), Replicate(), _StridedShard(dim=0, sf=2). Fails with
 * INVALID_ARGUMENT. */
int placements_parse(const char *text, const struct mesh *mesh, struct arena *arena, struct placements *placements,
                     struct error *error);

/* The block of the device at these coordinates. Fails with INVALID_ARGUMENT when the tensor has no such dimension, with
 * UNIMPLEMENTED when the device has several runs of a dimension that do not lie together; the caller says which tensor. */
int placements_apply(const struct placements *placements, const struct mesh *mesh, const uint64_t coordinates[MESH_MAX_AXES],
                     const uint64_t *shape, size_t rank, struct block *blocks, struct error *error);

#endif
