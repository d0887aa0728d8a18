/* What one device of a mesh holds of every tensor: rules that say how tensors of a name are split, and where the device stands.
 * Built from text once, then const and pure; any thread. Memory is the arena's. */
#ifndef CLIENT_SHARDING_H
#define CLIENT_SHARDING_H

#include "partition_spec.h"
#include "placement.h"
#include "tensorcast.h"

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
