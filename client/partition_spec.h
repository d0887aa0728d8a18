/* JAX's PartitionSpec: for each dimension of a tensor the axes of a mesh that it is split over. Pure; any thread.
 *
 * "model,-": dimension 0 over the axis model, dimension 1 not. "(data,model),-": dimension 0 over both, data the slower one.
 * Dimensions behind the last entry are not split; axes that do not occur replicate. */
#ifndef CLIENT_PARTITION_SPEC_H
#define CLIENT_PARTITION_SPEC_H

#include "mesh.h"

struct spec_entry { /* of one dimension */
    size_t n_axes;
    unsigned char axes[MESH_MAX_AXES]; /* slowest first */
};

struct partition_spec {
    struct spec_entry *entries; /* the arena's */
    size_t n_entries;
};

struct block { /* of one dimension */
    uint64_t offset, extent;
};

/* Fails with INVALID_ARGUMENT: an axis that the mesh lacks, or that occurs twice. */
int partition_spec_parse(const char *text, const struct mesh *mesh, struct arena *arena, struct partition_spec *spec,
                         struct error *error);

/* The block of the device at these coordinates, one entry per dimension. Fails with INVALID_ARGUMENT when the tensor has fewer
 * dimensions than the spec, or one does not divide; the caller says which tensor. */
int partition_spec_apply(const struct partition_spec *spec, const struct mesh *mesh,
                         const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape, size_t rank, struct block *blocks,
                         struct error *error);

#endif
