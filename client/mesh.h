/* A mesh: devices in a grid whose axes have names, as JAX and torch.distributed have them. Devices are numbered row-major: the
 * last axis turns fastest. Pure; any thread; names are the arena's. */
#ifndef CLIENT_MESH_H
#define CLIENT_MESH_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum { MESH_MAX_AXES = 16, MESH_MAX_DEVICES = 1 << 30 };

struct mesh_axis {
    const char *name;
    uint64_t size; /* 1 or more */
};

struct mesh {
    struct mesh_axis axes[MESH_MAX_AXES];
    size_t n_axes;
    uint64_t n_devices; /* the product of the sizes; 0 = there is no mesh */
};

/* "data=4,model=8", or the name of a known topology such as "v5e-64". Fails with INVALID_ARGUMENT. */
int mesh_parse(const char *text, struct arena *arena, struct mesh *mesh, struct error *error);

int mesh_find(const struct mesh *mesh, const char *name, size_t name_length); /* index of the axis, -1 = none */

/* Where a device stands on each axis. */
void mesh_coordinates(const struct mesh *mesh, uint64_t device, uint64_t coordinates[MESH_MAX_AXES]);

/* "data=4, model=8" for a message. Returns `out`. */
enum { MESH_TEXT_CHARS = 160 };
const char *mesh_text(const struct mesh *mesh, char out[MESH_TEXT_CHARS]);

#endif
