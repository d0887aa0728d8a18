/* What one device of a mesh holds of every tensor: rules that say how tensors of a name are split, and where the device stands.
 * Built from text once, then const and pure; any thread. Memory is the arena's. */
#ifndef CLIENT_SHARDING_H
#define CLIENT_SHARDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "tensorcast.h"

/* A mesh: devices in a grid whose axes have names, as JAX and torch.distributed have them. Devices are numbered row-major: the
 * last axis turns fastest. */
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

/* JAX's PartitionSpec: for each dimension of a tensor the axes of a mesh that it is split over.
 *
 * "model,-": dimension 0 over the axis model, dimension 1 not. "(data,model),-": dimension 0 over both, data the slower one.
 * Dimensions behind the last entry are not split; axes that do not occur replicate. */
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

/* DTensor placements: for each dimension of a torch.distributed mesh what it does with a tensor, applied from the first mesh
 * dimension to the last, as torch 2.15 does (distributed/tensor/_utils.py, _compute_local_shape_and_global_offset).
 *
 * S(d) cuts dimension d, of what is left of it, into chunks of the rounded-up share; the last ones may be smaller or empty.
 * _S(d,k) first cuts it into k chunks, and each of these as S(d) does; a rank has the same chunk of all k. That is how FSDP's
 * split of a tensor that tensor parallelism has split before it is written from left to right. R keeps it whole. */
enum { PLACEMENT_MAX_RUNS = 65536 }; /* that a strided placement may cut a dimension into */

struct placement {
    bool shards;           /* else R */
    int64_t dimension;     /* negative = from the last */
    uint64_t split_factor; /* k of _S(d,k); 1 = S(d) */
};

struct placements {
    struct placement *of_axis; /* one per axis of the mesh; the arena's */
};

/* The rule for a mesh without rules: as many ways as divide evenly, replicated over the rest. Over n_devices: from the last dimension to the first, each is split by what its extent and the devices that are left have in
 * common; what remains replicates, as the slowest axis of the grid. One block per dimension. */
void best_effort_apply(uint64_t n_devices, uint64_t device, const uint64_t *shape, size_t rank, struct block *blocks);

enum sharding_kind { SHARDING_SPECS, SHARDING_PLACEMENTS, SHARDING_BEST_EFFORT };

struct sharding_rule { /* the first whose glob matches a name decides; a tensor that none matches is whole */
    const char *glob, *text;
    union {
        struct partition_spec spec;
        struct placements placements;
    };
};

struct sharding {
    enum sharding_kind kind;
    struct mesh mesh;
    uint64_t n_devices, device;
    uint64_t coordinates[MESH_MAX_AXES]; /* of the device on the mesh */
    struct sharding_rule *rules;
    size_t n_rules;
};

/* Fails with INVALID_ARGUMENT. */
int sharding_build(const struct tc_sharding_options *options, struct arena *arena, struct sharding *sharding,
                   struct error *error);

/* The device's slices of one tensor, one per dimension; NULL = the whole tensor. Errors name the tensor. */
int sharding_apply(const struct sharding *sharding, const char *name, size_t name_length, const uint64_t *shape, size_t rank,
                   struct arena *arena, const struct tc_slice **slices, struct error *error);

#endif
