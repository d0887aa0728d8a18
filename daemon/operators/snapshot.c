#include "operators/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "execute/engine.h"

static void count_load(void *data, const struct load_info *info)
{
    (void)info;
    ++*(uint64_t *)data;
}

static void count_host(void *data, const struct host_row *host)
{
    ++((uint64_t *)data)[host->state];
}

static void append_packed(struct snapshot *snapshot, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    size_t bytes = tensorcast__daemon__v1__status_response__get_packed_size(status);
    snapshot->packed = memory_grow(snapshot->packed, snapshot->packed_bytes + bytes, 1);
    snapshot->packed_bytes +=
        tensorcast__daemon__v1__status_response__pack(status, snapshot->packed + snapshot->packed_bytes);
}

struct snapshot *snapshot_make(const struct api *api, const struct status_limits *limits)
{
    const struct load_services *services = &api->services;
    Tensorcast__Daemon__V1__StatusResponse status = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    struct snapshot *made = memory_alloc(sizeof *made);
    struct arena rows = {0};
    status_fill(api, limits, &rows, &status);
    append_packed(made, &status);
    arena_fini(&rows);
    for (size_t i = 0; i < services->targets->n; i++) {
        const struct load_target *target = &services->targets->list[i];
        made->n_replicas += replica_count(target->replicas);
        made->n_devices_out_of_service += __atomic_load_n(&target->device->is_out_of_service, __ATOMIC_ACQUIRE);
    }
    made->is_draining = api->is_draining;
    made->has_hosts = api->hosts != NULL;
    if (api->hosts) {
        made->is_etcd_connected = hosts_summary(api->hosts).is_connected;
        hosts_each(api->hosts, count_host, made->n_hosts);
    }
    load_table_each(api->loads, count_load, &made->n_loads);
    made->n_waiting_ranks = load_table_n_waiting_ranks(api->loads);
    made->staging_budget_bytes = services->config->memory.staging_budget_bytes;
    made->extent_budget_bytes = engine_extent_cache_bytes(services->engine, false);
    made->pool_budget_bytes = services->config->memory.pool_budget_bytes;
    for (enum loop_pool pool = 0; pool < LOOP_POOLS; pool++)
        made->queues[pool] = loop_queue_of(services->loop, pool);
    made->artifacts = artifact_count_get();
    for (size_t i = 0; i < made->artifacts.n; i++) {
        const char *reference = made->artifacts.busiest[i].reference;
        made->artifacts.busiest[i].reference = arena_text(&made->arena, reference, strlen(reference));
    }
    made->started_at_s = api->started_at_s;
    return made;
}

bool snapshot_add_replicas(struct snapshot *snapshot, const struct api *api, const struct status_limits *limits,
                           uint64_t until_ns)
{
    Tensorcast__Daemon__V1__StatusResponse status = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    struct arena rows = {0};
    bool has_more = status_add_replicas(api, limits, &snapshot->walk, until_ns, &rows, &status);
    append_packed(snapshot, &status);
    arena_fini(&rows);
    return has_more;
}

void snapshot_free(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    arena_fini(&snapshot->arena);
    free(snapshot->packed);
    free(snapshot);
}

Tensorcast__Daemon__V1__StatusResponse *snapshot_status(const struct snapshot *snapshot)
{
    Tensorcast__Daemon__V1__StatusResponse *status =
        tensorcast__daemon__v1__status_response__unpack(NULL, snapshot->packed_bytes, snapshot->packed);
    if (!status)
        abort(); /* no memory for what this process has packed itself */
    return status;
}

void snapshot_free_status(Tensorcast__Daemon__V1__StatusResponse *status)
{
    tensorcast__daemon__v1__status_response__free_unpacked(status, NULL);
}
