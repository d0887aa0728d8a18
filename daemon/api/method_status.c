/* Status: a snapshot as a message. */
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "api/snapshot.h"

typedef Tensorcast__Daemon__V1__StatusResponse status_response;

/* n zeroed messages, and the list of them that protobuf-c wants. */
#define MAKE_ROWS(message, list, n, arena)                                                                                  \
    do {                                                                                                                    \
        (message)->n_##list = (n);                                                                                          \
        (message)->list = arena_array(arena, (n), sizeof *(message)->list);                                                 \
        for (size_t i_ = 0; i_ < (n); i_++)                                                                                 \
            (message)->list[i_] = arena_alloc(arena, sizeof **(message)->list);                                             \
    } while (0)

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double gbps(uint64_t bytes_per_s)
{
    return (double)bytes_per_s / 1e9;
}

static void fill_holders(Tensorcast__Daemon__V1__ReplicaStatus *replica, const struct snapshot_holder *holders, size_t n,
                         struct arena *arena)
{
    MAKE_ROWS(replica, held_by, n, arena);
    for (size_t i = 0; i < n; i++) {
        Tensorcast__Daemon__V1__LeaseStatus *row = replica->held_by[i];
        tensorcast__daemon__v1__lease_status__init(row);
        row->pid = (uint64_t)holders[i].lease.pid;
        row->uid = holders[i].lease.uid;
        row->command = holders[i].command;
        row->since_s = seconds(holders[i].held_ns);
        row->cgroup = holders[i].cgroup;
    }
}

static void fill_replicas(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    MAKE_ROWS(response, replicas, snapshot->n_replicas, arena);
    for (size_t i = 0; i < snapshot->n_replicas; i++) {
        const struct replica *replica = snapshot->replicas[i].replica;
        Tensorcast__Daemon__V1__ReplicaStatus *row = response->replicas[i];
        tensorcast__daemon__v1__replica_status__init(row);
        row->artifact = replica->mapping->artifact->reference;
        row->identity = replica->mapping->artifact->identity;
        row->view_digest = replica->key.view_digest;
        row->bytes = replica->charged_bytes;
        row->leases = replica->n_leases;
        row->memory = page_kind_name(device_page_kind(replica->segment));
        if (!replica->segment->host_address)
            row->device = replica->segment->device->caps.name;
        row->idle_s = seconds(snapshot->replicas[i].idle_ns);
        fill_holders(row, &snapshot->holders[snapshot->replicas[i].first_holder], snapshot->replicas[i].n_holders, arena);
    }
}

static void fill_devices(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    const struct snapshot_target *gpus = snapshot->targets + LOAD_TARGET_FIRST_GPU;
    MAKE_ROWS(response, devices, snapshot->n_targets - LOAD_TARGET_FIRST_GPU, arena);
    for (size_t i = 0; i < response->n_devices; i++) {
        Tensorcast__Daemon__V1__DeviceStatus *row = response->devices[i];
        tensorcast__daemon__v1__device_status__init(row);
        row->device = gpus[i].device->caps.name;
        row->model = gpus[i].device->model;
        row->state = gpus[i].is_out_of_service ? "out_of_service" : "in_service";
        if (gpus[i].is_out_of_service)
            row->problem = gpus[i].device->problem;
        row->memory_bytes = gpus[i].device->memory_bytes;
        row->budget_bytes = gpus[i].budget_bytes;
        row->used_bytes = gpus[i].used_bytes;
    }
}

static void fill_loads(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    MAKE_ROWS(response, loads, snapshot->n_loads, arena);
    for (size_t i = 0; i < snapshot->n_loads; i++) {
        const struct load_info *info = &snapshot->loads[i];
        Tensorcast__Daemon__V1__LoadStatus *row = response->loads[i];
        tensorcast__daemon__v1__load_status__init(row);
        row->load_id = info->id;
        row->artifact = info->artifact;
        row->stage = info->stage;
        row->done_bytes = info->done_bytes;
        row->total_bytes = info->total_bytes;
        row->clients = info->n_tickets;
        row->age_s = seconds(info->age_ns);
    }
}

static void fill_calibration(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    MAKE_ROWS(response, calibration, snapshot->n_costs, arena);
    for (size_t i = 0; i < snapshot->n_costs; i++) {
        const struct cost_constants *costs = &snapshot->costs[i].costs;
        uint64_t device_id = snapshot->costs[i].device_id;
        char name[32] = "default";
        Tensorcast__Daemon__V1__CalibrationStatus *row = response->calibration[i];
        tensorcast__daemon__v1__calibration_status__init(row);
        if (device_id)
            snprintf(name, sizeof name, "%u:%u", major((dev_t)device_id), minor((dev_t)device_id));
        row->device = arena_text(arena, name, strlen(name));
        row->cached_request_us = costs->cached.request_ns / 1e3;
        row->cached_gbps = costs->cached.bytes_per_ns;
        row->uncached_request_us = costs->uncached.request_ns / 1e3;
        row->uncached_gbps = costs->uncached.bytes_per_ns;
        row->copy_gbps = costs->copy_bytes_per_ns;
        row->fresh_gbps = costs->fresh_bytes_per_ns;
        row->samples = costs->cached.samples + costs->uncached.samples;
    }
}

static void fill_stores(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    MAKE_ROWS(response, stores, snapshot->n_stores, arena);
    for (size_t i = 0; i < snapshot->n_stores; i++) {
        const struct engine_origin *origin = &snapshot->stores[i];
        Tensorcast__Daemon__V1__StoreStatus *row = response->stores[i];
        tensorcast__daemon__v1__store_status__init(row);
        row->origin = origin->name;
        row->latency_us = origin->speed.latency_us;
        row->connection_gbps = gbps(origin->speed.connection_bytes_per_s);
        row->total_gbps = gbps(origin->speed.bytes_per_s);
        row->parallel_requests = origin->parallel_requests;
        row->in_flight = origin->in_flight;
        row->requests = origin->speed.requests;
        row->retries = origin->speed.retries;
        row->hedges = origin->speed.hedges;
        row->throttled = origin->speed.throttled;
        row->received_bytes = origin->speed.received_bytes;
    }
}

static void fill_users(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    MAKE_ROWS(response, users, snapshot->n_users, arena);
    for (size_t i = 0; i < snapshot->n_users; i++) {
        const struct snapshot_user *user = &snapshot->users[i];
        Tensorcast__Daemon__V1__UserStatus *row = response->users[i];
        tensorcast__daemon__v1__user_status__init(row);
        row->uid = user->memory.uid;
        row->held_bytes = user->memory.held_bytes;
        row->kept_bytes = user->memory.kept_bytes;
        row->loading_bytes = user->memory.reserved_bytes;
        row->connections = user->amounts[QUOTA_CONNECTIONS];
        row->calls = user->amounts[QUOTA_CALLS];
        row->leases = user->amounts[QUOTA_LEASES];
        row->descriptors = user->amounts[QUOTA_DESCRIPTORS];
        row->groups = user->amounts[QUOTA_GROUPS];
        row->metadata_bytes = user->amounts[QUOTA_METADATA];
    }
}

static void fill_quotas(status_response *response, const struct snapshot *snapshot, struct arena *arena)
{
    MAKE_ROWS(response, quotas, QUOTA_KINDS, arena);
    response->n_quotas = 0;
    for (int kind = 0; kind < QUOTA_KINDS; kind++) {
        if (snapshot->quotas[kind].limit == UINT64_MAX)
            continue; /* only counted */
        Tensorcast__Daemon__V1__QuotaStatus *row = response->quotas[response->n_quotas++];
        tensorcast__daemon__v1__quota_status__init(row);
        row->resource = quota_kind_name((enum quota_kind)kind);
        row->taken = snapshot->quotas[kind].taken;
        row->limit = snapshot->quotas[kind].limit;
    }
}

void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    const struct api *api = context;
    struct snapshot snapshot;
    status_response response = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    (void)request;
    snapshot_collect(api, &snapshot);
    const struct snapshot_target *host = &snapshot.targets[LOAD_TARGET_HOST];
    response.version = VERSION;
    response.pid = (uint64_t)getpid();
    response.uptime_s = seconds(snapshot.uptime_ns);
    response.host_budget_bytes = host->budget_bytes;
    response.used_bytes = host->used_bytes;
    response.kept_bytes = snapshot.kept_bytes;
    response.staging_bytes = snapshot.staging_bytes;
    response.extent_bytes = snapshot.extent_bytes;
    response.pool_bytes = snapshot.pool_bytes;
    response.leases = snapshot.leases;
    response.connections = snapshot.connections;
    response.cached_headers_bytes = snapshot.cached_headers_bytes;
    response.handoff_socket = api->services.config->server.handoff_socket_path;
    response.state = api->is_draining ? "draining" : "serving";
    response.devices_problem = api->services.targets->plugins.problem;
    fill_replicas(&response, &snapshot, &snapshot.arena);
    fill_devices(&response, &snapshot, &snapshot.arena);
    fill_loads(&response, &snapshot, &snapshot.arena);
    fill_calibration(&response, &snapshot, &snapshot.arena);
    fill_stores(&response, &snapshot, &snapshot.arena);
    fill_users(&response, &snapshot, &snapshot.arena);
    fill_quotas(&response, &snapshot, &snapshot.arena);
    rpc_call_reply(call, &response.base);
    snapshot_fini(&snapshot);
}
