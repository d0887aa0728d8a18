/* Status: every part of the daemon that has numbers lists them by a callback, which makes rows of the message. Texts are
 * borrowed, so it is packed before the loop goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "api/api.h"
#include "api/open_calls.h"
#include "api/prewarms.h"
#include "base/version.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/quota.h"
#include "base/text.h"
#include "calibration/calibration.h"
#include "execute/engine.h"
#include "replica/user_pins.h"
#include "resolve/header_cache.h"
#include "upload/upload_queue.h"

typedef Tensorcast__Daemon__V1__UserStatus user_status;

enum {
    MAX_HOLDERS = 256, /* each costs a look into /proc, and the loop waits for it */
    MAX_REQUESTS = 256,
    MAX_USERS = 256, /* of a host with more, those with most memory are of more interest than the rest */
};

struct status {
    Tensorcast__Daemon__V1__StatusResponse response;
    struct arena arena;                             /* of its rows */
    Tensorcast__Daemon__V1__ReplicaStatus *replica; /* whose holders are being added */
    size_t n_holders;                               /* of all replicas */
};

static void *new_row(struct arena *arena, const ProtobufCMessageDescriptor *kind)
{
    void *row = arena_alloc(arena, kind->sizeof_message);
    protobuf_c_message_init(kind, row);
    return row;
}

/* A list of pointers is full when it has none, or a power of two of them. */
static void *reserve_row(struct arena *arena, void *list, size_t n)
{
    if (n & (n - 1))
        return list;
    void *grown = arena_array(arena, 2 * n + 1, sizeof(void *));
    return n ? memcpy(grown, list, n * sizeof(void *)) : grown;
}

/* One more row of a message's list. */
#define ADD_ROW(arena, message, list, kind)                                                                                 \
    ((message)->list = reserve_row(arena, (message)->list, (message)->n_##list),                                            \
     (message)->list[(message)->n_##list++] = new_row(arena, &tensorcast__daemon__v1__##kind##__descriptor))

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* What a process calls itself, as text that a message may hold. */
static char *text_for_messages(struct arena *arena, const char *text)
{
    char escaped[TEXT_NAME_CHARS];
    text = text_is_utf8(text, strlen(text)) ? text : text_escape(text, strlen(text), escaped);
    return arena_text(arena, text, strlen(text));
}

static void add_holder(void *data, const struct handoff_lease *lease)
{
    struct status *status = data;
    char command[PROCESS_COMMAND_CHARS], cgroup[PROCESS_CGROUP_CHARS];
    if (status->n_holders == MAX_HOLDERS)
        return;
    status->n_holders++;
    /* one that has ended leaves its number, and perhaps its connection to a child: then it is nobody's name */
    uint64_t age_ns = clock_now_ns() - lease->connected_ns;
    pid_t pid = process_is_younger(lease->pid, age_ns) ? 0 : lease->pid;
    Tensorcast__Daemon__V1__LeaseStatus *row = ADD_ROW(&status->arena, status->replica, held_by, lease_status);
    row->pid = (uint64_t)pid;
    row->uid = lease->uid;
    row->command = text_for_messages(&status->arena, process_command(pid, command));
    row->since_s = seconds(clock_now_ns() - lease->since_ns);
    row->cgroup = text_for_messages(&status->arena, process_cgroup(pid, cgroup));
}

/* Its files are read into the page cache. */
static void add_reader(struct status *status, const struct replica *replica)
{
    Tensorcast__Daemon__V1__LoadStatus *row = ADD_ROW(&status->arena, &status->response, loads, load_status);
    row->artifact = replica->mapping->artifact->reference;
    row->stage = "read ahead";
    row->done_bytes = page_reader_done_bytes(replica->reader);
    row->total_bytes = page_reader_total_bytes(replica->reader);
    row->clients = replica->n_leases;
    row->age_s = seconds(clock_now_ns() - page_reader_started_ns(replica->reader));
}

static void add_replica(void *data, const struct replica *replica)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__ReplicaStatus *row = ADD_ROW(&status->arena, &status->response, replicas, replica_status);
    row->artifact = replica->mapping->artifact->reference;
    row->identity = replica->mapping->artifact->identity;
    row->view_digest = replica->key.view_digest;
    row->bytes = replica_held_bytes(replica);
    row->leases = replica->n_leases;
    row->memory = replica_memory_name(replica);
    if (replica->segment && !replica->segment->host_address)
        row->device = replica->segment->device->caps.name;
    row->idle_s = replica->holding.n_pins ? 0 : seconds(clock_now_ns() - replica->idle_since_ns);
    row->pinned = user_pins_any(replica);
    row->view_tensors = replica->mapping->n_tensors;
    row->view_bytes = replica->mapping->view_bytes;
    row->artifact_tensors = replica->mapping->artifact->n_tensors;
    row->artifact_bytes = replica->mapping->artifact->total_bytes;
    if (replica->reader && page_reader_is_reading(replica->reader))
        add_reader(status, replica);
    status->replica = row;
    handoff_each_lease(replica, add_holder, status);
}

static void add_gpu(struct status *status, const struct load_target *target)
{
    const struct device *device = target->device;
    Tensorcast__Daemon__V1__DeviceStatus *row = ADD_ROW(&status->arena, &status->response, devices, device_status);
    bool is_out_of_service = __atomic_load_n(&device->is_out_of_service, __ATOMIC_ACQUIRE);
    row->device = device->caps.name;
    row->model = device->model;
    row->state = is_out_of_service ? "out_of_service" : "in_service";
    if (is_out_of_service)
        row->problem = device->problem;
    row->memory_bytes = device->memory_bytes;
    row->budget_bytes = replica_budget_bytes(target->replicas);
    row->used_bytes = replica_used_bytes(target->replicas);
}

/* NULL: there are too many. */
static user_status *get_user(struct status *status, uid_t uid)
{
    for (size_t i = 0; i < status->response.n_users; i++)
        if (status->response.users[i]->uid == uid)
            return status->response.users[i];
    if (status->response.n_users == MAX_USERS)
        return NULL;
    user_status *row = ADD_ROW(&status->arena, &status->response, users, user_status);
    row->uid = uid;
    return row;
}

/* Of one target. */
static void add_memory(void *data, const struct holders_user *memory)
{
    user_status *row = get_user(data, memory->uid);
    if (!row)
        return;
    row->held_bytes += memory->held_bytes;
    row->kept_bytes += memory->kept_bytes;
    row->loading_bytes += memory->reserved_bytes;
}

static void add_shares(void *data, const struct quota_user *shares)
{
    user_status *row = get_user(data, shares->uid);
    if (!row)
        return;
    row->connections = shares->amounts[QUOTA_CONNECTIONS];
    row->calls = shares->amounts[QUOTA_CALLS];
    row->leases = shares->amounts[QUOTA_LEASES];
    row->descriptors = shares->amounts[QUOTA_DESCRIPTORS];
    row->groups = shares->amounts[QUOTA_GROUPS];
    row->metadata_bytes = shares->amounts[QUOTA_METADATA];
    row->uploads = shares->amounts[QUOTA_UPLOADS];
    row->locked_bytes = shares->amounts[QUOTA_LOCKED];
}

/* Most memory first. */
static int compare_users(const void *a, const void *b)
{
    const user_status *one = *(user_status *const *)a, *other = *(user_status *const *)b;
    uint64_t own = one->held_bytes + one->kept_bytes + one->loading_bytes;
    uint64_t others = other->held_bytes + other->kept_bytes + other->loading_bytes;
    if (own != others)
        return own < others ? 1 : -1;
    return one->uid < other->uid ? -1 : one->uid > other->uid;
}

static void add_load(void *data, const struct load_info *info)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__LoadStatus *row = ADD_ROW(&status->arena, &status->response, loads, load_status);
    row->load_id = info->id;
    row->artifact = info->artifact;
    row->stage = info->stage;
    row->done_bytes = info->done_bytes;
    row->total_bytes = info->total_bytes;
    row->clients = info->n_tickets;
    row->age_s = seconds(info->age_ns);
    row->rank = info->rank;
    row->world_size = info->world_size;
}

static void add_prewarm(void *data, const struct prewarms_row *told)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__PrewarmStatus *row = ADD_ROW(&status->arena, &status->response, prewarms, prewarm_status);
    row->artifact = text_for_messages(&status->arena, told->artifact);
    row->uid = told->uid;
    row->state = told->state;
    row->message = text_for_messages(&status->arena, told->message);
    row->age_s = seconds(clock_now_ns() - told->asked_ns);
    row->pin = told->pin;
    row->configured = told->is_configured;
}

static void add_costs(void *data, uint64_t device_id, const struct cost_constants *costs)
{
    struct status *status = data;
    char name[32] = "default";
    Tensorcast__Daemon__V1__CalibrationStatus *row =
        ADD_ROW(&status->arena, &status->response, calibration, calibration_status);
    if (device_id)
        snprintf(name, sizeof name, "%u:%u", major((dev_t)device_id), minor((dev_t)device_id));
    row->device = arena_text(&status->arena, name, strlen(name));
    row->cached_request_us = costs->cached.request_ns / 1e3;
    row->cached_gbps = costs->cached.bytes_per_ns;
    row->uncached_request_us = costs->uncached.request_ns / 1e3;
    row->uncached_gbps = costs->uncached.bytes_per_ns;
    row->copy_gbps = costs->copy_bytes_per_ns;
    row->fresh_gbps = costs->fresh_bytes_per_ns;
    row->samples = costs->cached.samples + costs->uncached.samples;
}

/* Under the engine's lock, which its name is good for. */
static void add_store(void *data, const struct engine_origin *origin)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__StoreStatus *row = ADD_ROW(&status->arena, &status->response, stores, store_status);
    row->origin = arena_text(&status->arena, origin->name, strlen(origin->name));
    row->latency_us = origin->speed.latency_us;
    row->connection_gbps = (double)origin->speed.connection_bytes_per_s / 1e9;
    row->total_gbps = (double)origin->speed.bytes_per_s / 1e9;
    row->parallel_requests = origin->parallel_requests;
    row->in_flight = origin->in_flight;
    row->requests = origin->speed.requests;
    row->retries = origin->speed.retries;
    row->hedges = origin->speed.hedges;
    row->throttled = origin->speed.throttled;
    row->received_bytes = origin->speed.received_bytes;
}

static void fill_totals(Tensorcast__Daemon__V1__TotalsStatus *totals, const struct load_totals *counted)
{
    totals->loads = counted->loads;
    totals->resident = counted->resident;
    totals->failed = counted->failed;
    totals->cancelled = counted->cancelled;
    totals->refused = counted->refused;
    totals->delivered_bytes = counted->delivered_bytes;
    totals->read_bytes = counted->read_bytes;
}

static void add_quotas(struct status *status, struct quota *quota)
{
    for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++) {
        if (quota_limit(quota, kind) == UINT64_MAX)
            continue; /* only counted */
        Tensorcast__Daemon__V1__QuotaStatus *row = ADD_ROW(&status->arena, &status->response, quotas, quota_status);
        row->resource = quota_kind_name(kind);
        row->taken = quota_taken(quota, kind);
        row->limit = quota_limit(quota, kind);
    }
}

/* Host memory and the GPUs. */
static void add_targets(struct status *status, const struct load_targets *targets)
{
    Tensorcast__Daemon__V1__StatusResponse *response = &status->response;
    for (size_t i = 0; i < targets->n; i++) {
        const struct load_target *target = &targets->list[i];
        uint64_t kept_bytes = replica_kept_bytes(target->replicas); /* first: what was given back is not used any more */
        if (i == LOAD_TARGET_HOST) {
            response->kept_bytes = kept_bytes;
            response->host_budget_bytes = replica_budget_bytes(target->replicas);
            response->used_bytes = replica_used_bytes(target->replicas);
        } else {
            add_gpu(status, target);
        }
        response->leases += replica_leases(target->replicas);
        replica_each(target->replicas, add_replica, status);
        holders_each(replica_holders(target->replicas), add_memory, status);
    }
}

static void add_folders(struct status *status, const struct folders *folders)
{
    for (const struct folder *folder = folders_first(folders); folder; folder = folder->next)
        if (folder->is_there)
            api_folder_status(folder, ADD_ROW(&status->arena, &status->response, folders, folder_status));
}

/* connection: of whom; 0 = of everybody. */
static void add_requests(struct status *status, const struct open_calls *calls, uint64_t connection)
{
    for (const struct open_call *one = calls->first; one && status->response.n_requests < MAX_REQUESTS; one = one->next) {
        if (connection && rpc_call_connection(one->call) != connection)
            continue;
        const struct load_info info = one->describe(one->data);
        Tensorcast__Daemon__V1__RequestStatus *row = ADD_ROW(&status->arena, &status->response, requests, request_status);
        char *artifact = source_shown(info.artifact ? info.artifact : "");
        row->method = rpc_call_method(one->call);
        row->artifact = text_for_messages(&status->arena, artifact);
        row->stage = info.stage;
        row->waiting_for = text_for_messages(&status->arena, info.waiting_for);
        row->done_bytes = info.done_bytes;
        row->total_bytes = info.total_bytes;
        row->age_s = seconds(info.age_ns);
        row->uid = rpc_call_uid(one->call);
        row->pid = (uint64_t)rpc_call_pid(one->call);
        free(artifact);
    }
}

void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    const struct api *api = context;
    const struct load_services *services = &api->services;
    struct status status = {.response = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT};
    Tensorcast__Daemon__V1__StatusResponse *response = &status.response;
    Tensorcast__Daemon__V1__TotalsStatus totals = TENSORCAST__DAEMON__V1__TOTALS_STATUS__INIT;
    Tensorcast__Daemon__V1__UploadsStatus uploads = TENSORCAST__DAEMON__V1__UPLOADS_STATUS__INIT;
    if (((const Tensorcast__Daemon__V1__StatusRequest *)request)->own_requests_only) {
        add_requests(&status, api->open_calls, rpc_call_connection(call));
        rpc_call_reply(call, &response->base);
        arena_fini(&status.arena);
        return;
    }
    response->version = version_text();
    response->pid = (uint64_t)getpid();
    response->uptime_s = seconds(clock_now_ns() - api->started_ns);
    response->staging_bytes = engine_staging_bytes(services->engine);
    response->extent_bytes = engine_extent_bytes(services->engine);
    response->pool_bytes = __atomic_load_n(&services->targets->list[LOAD_TARGET_HOST].device->pool_bytes, __ATOMIC_RELAXED);
    response->connections = rpc_server_connections(api->rpc);
    response->cached_headers_bytes = header_cache_memory_bytes(services->headers);
    response->handoff_socket = services->config->server.handoff_socket_path;
    response->state = api->is_draining ? "draining" : "serving";
    response->devices_problem = services->targets->plugins.problem;
    add_targets(&status, services->targets);
    load_table_each(api->loads, add_load, &status);
    prewarms_each(api->prewarms, add_prewarm, &status);
    const struct upload_totals counted = upload_queue_totals(api->uploads);
    uploads.pending = counted.pending;
    uploads.failed = counted.failed;
    uploads.pending_bytes = counted.pending_bytes;
    response->uploads = &uploads;
    const struct load_totals loads = load_table_totals(api->loads);
    fill_totals(&totals, &loads);
    response->totals = &totals;
    calibration_each(services->calibration, add_costs, &status);
    engine_each_origin(services->engine, add_store, &status);
    quota_each(services->quota, add_shares, &status);
    if (response->n_users > 0)
        qsort(response->users, response->n_users, sizeof(user_status *), compare_users);
    add_quotas(&status, services->quota);
    add_folders(&status, api->folders);
    add_requests(&status, api->open_calls, 0);
    rpc_call_reply(call, &response->base);
    arena_fini(&status.arena);
}
