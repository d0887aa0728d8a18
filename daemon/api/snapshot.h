/* What the daemon is at, holds and has learned, at one moment: the numbers behind Status, whatever form they are told in.
 *
 * Plain data. Texts are borrowed and lists live in the snapshot's arena, so it is to be told of before the loop goes on.
 * Loop thread. */
#ifndef API_SNAPSHOT_H
#define API_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/api.h"
#include "base/arena.h"
#include "base/quota.h"
#include "execute/engine.h"
#include "plan/cost.h"

struct snapshot_target { /* host memory first, then the GPUs */
    const struct device *device;
    bool is_out_of_service;
    uint64_t budget_bytes, used_bytes;
};

struct snapshot_replica {
    const struct replica *replica;
    uint64_t idle_ns;               /* 0 = somebody pins it */
    size_t first_holder, n_holders; /* in `holders` */
};

struct snapshot_holder { /* of a lease; command and cgroup as text that a message may hold */
    struct handoff_lease lease;
    uint64_t held_ns;
    const char *command, *cgroup;
};

struct snapshot_device_costs {
    uint64_t device_id; /* 0 = of devices that are not known */
    struct cost_constants costs;
};

struct snapshot_user {
    struct holders_user memory; /* on all targets */
    uint64_t amounts[QUOTA_KINDS];
};

struct snapshot_quota {
    uint64_t taken, limit; /* UINT64_MAX = only counted */
};

struct snapshot {
    uint64_t uptime_ns, kept_bytes, staging_bytes, extent_bytes, pool_bytes, cached_headers_bytes, leases, connections;
    struct snapshot_quota quotas[QUOTA_KINDS];
    struct snapshot_target *targets;
    struct snapshot_replica *replicas; /* by target, least recently used first */
    struct snapshot_holder *holders;   /* at most 256 */
    struct load_info *loads;
    struct snapshot_device_costs *costs;
    struct engine_origin *stores;
    struct snapshot_user *users; /* most memory first; at most 256 */
    size_t n_targets, n_replicas, n_holders, n_loads, n_costs, n_stores, n_users;
    struct arena arena;
};

void snapshot_collect(const struct api *api, struct snapshot *snapshot);
void snapshot_fini(struct snapshot *snapshot);

#endif
