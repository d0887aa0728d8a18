#include "best_effort.h"

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) /* of 0 and b: b */
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* In the grid of devices (replicas, parts of dimension 0, parts of dimension 1 ...) the last one turns fastest, and the parts
 * are chosen in the same order: one loop does both. */
void best_effort_apply(uint64_t n_devices, uint64_t device, const uint64_t *shape, size_t rank, struct block *blocks)
{
    for (size_t d = rank; d-- > 0;) {
        uint64_t parts = greatest_common_divisor(shape[d], n_devices), extent = shape[d] / parts;
        blocks[d] = (struct block){extent * (device % parts), extent};
        n_devices /= parts;
        device /= parts;
    }
}

void best_effort_on_mesh(const struct mesh *mesh, const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape,
                         size_t rank, struct block *blocks)
{
    int axis = mesh_find(mesh, "data", 4);
    uint64_t parts = axis < 0 ? 1 : mesh->axes[axis].size;
    for (size_t d = rank; d-- > 0;) {
        blocks[d] = (struct block){0, shape[d]};
        if (parts == 1 || shape[d] % parts)
            continue;
        blocks[d] = (struct block){shape[d] / parts * coordinates[axis], shape[d] / parts};
        parts = 1;
    }
}
