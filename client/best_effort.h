/* The rule for who has not said how to split: as many ways as divide evenly, replicated over the rest. Pure; any thread. */
#ifndef CLIENT_BEST_EFFORT_H
#define CLIENT_BEST_EFFORT_H

#include "partition_spec.h"

/* Over n_devices: from the last dimension to the first, each is split by what its extent and the devices that are left have in
 * common; what remains replicates, as the slowest axis of the grid. One block per dimension. */
void best_effort_apply(uint64_t n_devices, uint64_t device, const uint64_t *shape, size_t rank, struct block *blocks);

/* Over a mesh: its axis "data" splits the last dimension that it divides; all other axes replicate. */
void best_effort_on_mesh(const struct mesh *mesh, const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape,
                         size_t rank, struct block *blocks);

#endif
