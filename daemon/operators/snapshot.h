/* What the loop's thread knows, in a form that another thread can read: the packed message of Status, with or without its
 * lists, and what only metrics tell. Made on the loop: without lists in some ten microseconds, with all replicas in turns. */
#ifndef OPERATORS_SNAPSHOT_H
#define OPERATORS_SNAPSHOT_H

#include <stddef.h>
#include <stdint.h>

#include "api/status.h"
#include "base/arena.h"
#include "base/loop.h"
#include "hosts/hosts.h"
#include "load/artifact_count.h"

struct snapshot {
    struct arena arena;
    uint8_t *packed; /* a StatusResponse */
    size_t packed_bytes;
    struct status_walk walk; /* the loop's: of replicas that come in turns */
    bool is_draining, has_hosts, is_etcd_connected;
    uint64_t n_hosts[HOST_STATES], n_devices_out_of_service;
    uint64_t n_replicas, n_loads, n_waiting_ranks, staging_budget_bytes, extent_budget_bytes, pool_budget_bytes;
    struct artifact_counts artifacts; /* of the arena */
    struct loop_queue queues[LOOP_POOLS];
    double started_at_s; /* of the epoch */
};

/* Loop thread; snapshot_free() any thread. */
struct snapshot *snapshot_make(const struct api *api, const struct status_limits *limits);
/* Of one whose limits say in_turns: more replicas, until that time. False: those were all. */
bool snapshot_add_replicas(struct snapshot *snapshot, const struct api *api, const struct status_limits *limits,
                           uint64_t until_ns);
void snapshot_free(struct snapshot *snapshot); /* accepts NULL */

/* Any thread. The caller frees it by snapshot_free_status(). */
Tensorcast__Daemon__V1__StatusResponse *snapshot_status(const struct snapshot *snapshot);
void snapshot_free_status(Tensorcast__Daemon__V1__StatusResponse *status);

#endif
