/* Status: loads, replicas, leases, budgets, calibration, as they are now. */
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "api/api.h"
#include "api/user_status.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "calibration/calibration.h"
#include "execute/engine.h"
#include "resolve/header_cache.h"

enum { MAX_HOLDERS = 256 }; /* each costs a look into /proc, and the loop waits for it */

/* Lists double in the arena of the answer. */
struct status {
    Tensorcast__Daemon__V1__StatusResponse response;
    const struct handoff *handoff;
    Tensorcast__Daemon__V1__ReplicaStatus *replica; /* whose holders are listed */
    size_t n_holders;                               /* of all replicas */
    struct arena arena;
};

#define APPEND_TO(status, message, list, element)                                                                           \
    do {                                                                                                                    \
        size_t n_ = (message)->n_##list;                                                                                    \
        if ((n_ & (n_ - 1)) == 0) /* none, or a power of two: full */                                                       \
            (message)->list = grow(&(status)->arena, (message)->list, n_);                                                  \
        (message)->list[(message)->n_##list++] = (element);                                                                 \
    } while (0)
#define APPEND(status, list, element) APPEND_TO(status, &(status)->response, list, element)

/* Room for twice as many pointers. */
static void *grow(struct arena *arena, const void *list, size_t count)
{
    void *grown = arena_array(arena, 2 * count + 1, sizeof(void *));
    return count ? memcpy(grown, list, count * sizeof(void *)) : grown;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* What a process calls itself, as text that a message may hold. */
static char *utf8(struct arena *arena, const char *text)
{
    char escaped[TEXT_NAME_CHARS];
    text = text_is_utf8(text, strlen(text)) ? text : text_escape(text, strlen(text), escaped);
    return arena_text(arena, text, strlen(text));
}

static void add_holder(void *data, const struct handoff_lease *lease)
{
    struct status *status = data;
    char command[PROCESS_COMMAND_CHARS], cgroup[PROCESS_CGROUP_CHARS];
    if (status->n_holders++ >= MAX_HOLDERS)
        return;
    Tensorcast__Daemon__V1__LeaseStatus *row = arena_alloc(&status->arena, sizeof *row);
    tensorcast__daemon__v1__lease_status__init(row);
    row->pid = (uint64_t)lease->pid;
    row->uid = lease->uid;
    row->command = utf8(&status->arena, process_command(lease->pid, command));
    row->since_s = seconds(clock_now_ns() - lease->since_ns);
    row->cgroup = utf8(&status->arena, process_cgroup(lease->pid, cgroup));
    APPEND_TO(status, status->replica, held_by, row);
}

static void add_replica(void *data, const struct replica *replica)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__ReplicaStatus *row = arena_alloc(&status->arena, sizeof *row);
    tensorcast__daemon__v1__replica_status__init(row);
    row->artifact = (char *)replica->mapping->artifact->reference;
    row->identity = (char *)replica->mapping->artifact->identity;
    row->view_digest = (char *)replica->key.view_digest;
    row->bytes = replica->charged_bytes;
    row->leases = replica->n_leases;
    row->memory = (char *)page_kind_name(device_page_kind(replica->segment));
    if (!replica->segment->host_address)
        row->device = replica->segment->device->caps.name;
    row->idle_s = replica->holding.n_pins ? 0 : seconds(clock_now_ns() - replica->idle_since_ns);
    status->replica = row;
    handoff_each_lease(status->handoff, replica, add_holder, status);
    APPEND(status, replicas, row);
}

static void add_device(struct status *status, const struct load_target *target)
{
    struct device *device = target->device;
    bool is_out = __atomic_load_n(&device->is_out_of_service, __ATOMIC_ACQUIRE);
    Tensorcast__Daemon__V1__DeviceStatus *row = arena_alloc(&status->arena, sizeof *row);
    tensorcast__daemon__v1__device_status__init(row);
    row->device = device->caps.name;
    row->model = device->model;
    row->state = is_out ? "out_of_service" : "in_service";
    if (is_out)
        row->problem = device->problem;
    row->memory_bytes = device->memory_bytes;
    row->budget_bytes = replica_budget_bytes(target->replicas);
    row->used_bytes = replica_used_bytes(target->replicas);
    APPEND(status, devices, row);
}

static void add_targets(struct status *status, struct load_targets *targets)
{
    status->response.devices_problem = targets->plugins.problem;
    for (size_t i = 0; i < targets->n; i++) {
        if (i >= LOAD_TARGET_FIRST_GPU)
            add_device(status, &targets->list[i]);
        status->response.leases += replica_leases(targets->list[i].replicas);
        replica_each(targets->list[i].replicas, add_replica, status);
    }
}

static void add_load(void *data, const struct load_info *info)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__LoadStatus *row = arena_alloc(&status->arena, sizeof *row);
    tensorcast__daemon__v1__load_status__init(row);
    row->load_id = (char *)info->id;
    row->artifact = (char *)info->artifact;
    row->stage = (char *)info->stage;
    row->done_bytes = info->done_bytes;
    row->total_bytes = info->total_bytes;
    row->clients = info->n_tickets;
    row->age_s = seconds(info->age_ns);
    APPEND(status, loads, row);
}

static void add_calibration(void *data, uint64_t device_id, const struct cost_constants *costs)
{
    struct status *status = data;
    char name[32] = "default";
    Tensorcast__Daemon__V1__CalibrationStatus *row = arena_alloc(&status->arena, sizeof *row);
    tensorcast__daemon__v1__calibration_status__init(row);
    if (device_id)
        snprintf(name, sizeof name, "%u:%u", major((dev_t)device_id), minor((dev_t)device_id));
    row->device = arena_text(&status->arena, name, sizeof name - 1);
    row->cached_request_us = costs->cached.request_ns / 1e3;
    row->cached_gbps = costs->cached.bytes_per_ns;
    row->uncached_request_us = costs->uncached.request_ns / 1e3;
    row->uncached_gbps = costs->uncached.bytes_per_ns;
    row->copy_gbps = costs->copy_bytes_per_ns;
    row->fresh_gbps = costs->fresh_bytes_per_ns;
    row->samples = costs->cached.samples + costs->uncached.samples;
    APPEND(status, calibration, row);
}

static double gbps(uint64_t bytes_per_s)
{
    return (double)bytes_per_s / 1e9;
}

static void add_store(void *data, const struct engine_origin *origin)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__StoreStatus *row = arena_alloc(&status->arena, sizeof *row);
    tensorcast__daemon__v1__store_status__init(row);
    row->origin = arena_text(&status->arena, origin->name, strlen(origin->name));
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
    APPEND(status, stores, row);
}

void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    const struct api *api = context;
    const struct load_services *services = &api->services;
    const struct load_target *host = &services->targets->list[LOAD_TARGET_HOST];
    struct status status = {.response = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT, .handoff = api->handoff};
    Tensorcast__Daemon__V1__StatusResponse *response = &status.response;
    (void)request;
    response->version = VERSION;
    response->pid = (uint64_t)getpid();
    response->uptime_s = seconds(clock_now_ns() - api->started_ns);
    response->host_budget_bytes = replica_budget_bytes(host->replicas);
    replica_kept_bytes(host->replicas); /* what clients have let go of meanwhile is not used any more */
    response->used_bytes = replica_used_bytes(host->replicas);
    response->staging_bytes = engine_staging_bytes(services->engine);
    response->extent_bytes = engine_extent_bytes(services->engine);
    response->pool_bytes = __atomic_load_n(&host->device->pool_bytes, __ATOMIC_RELAXED);
    response->connections = rpc_server_connections(api->rpc);
    response->cached_headers_bytes = header_cache_memory_bytes(services->headers);
    response->handoff_socket = (char *)services->config->server.handoff_socket_path;
    response->state = api->is_draining ? "draining" : "serving";
    add_targets(&status, services->targets);
    load_table_each(api->loads, add_load, &status);
    calibration_each(services->calibration, add_calibration, &status);
    engine_each_origin(services->engine, add_store, &status);
    user_status_fill(services, &status.arena, response);
    rpc_call_reply(call, &response->base);
    arena_fini(&status.arena);
}
