/* Every part of the daemon that has numbers lists them by a callback, which makes rows of the message. */
#include "api/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "api/codec.h"
#include "api/api_job.h"
#include "api/prewarms.h"
#include "base/redact.h"
#include "base/version.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/quota.h"
#include "base/text.h"
#include "execute/calibration.h"
#include "execute/engine.h"
#include "hosts/hosts.h"
#include "observe/counters.h"
#include "replica/replica.h"
#include "resolve/header_cache.h"
#include "upload/upload_queue.h"

typedef Tensorcast__Daemon__V1__UserStatus user_status;

enum {
    ROWS_BETWEEN_LOOKS = 16, /* at the clock */
    MAX_REQUESTS = 256,
    MAX_USERS = 256, /* of a host with more, those with most memory are of more interest than the rest */
};

const struct status_limits status_of_all = {.rows = SIZE_MAX, .holders = 256};

struct status {
    const struct status_limits *limits;
    Tensorcast__Daemon__V1__StatusResponse *response;
    struct arena *arena;                            /* of its rows */
    Tensorcast__Daemon__V1__ReplicaStatus *replica; /* whose holders are being added */
    size_t n_holders;                               /* of all replicas */
    size_t n_replicas;                              /* that are still to come, of one target */
};

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
     (message)->list[(message)->n_##list++] = CODEC_NEW(kind, arena))

static bool has_room(const struct status *status, size_t n_rows)
{
    return n_rows < status->limits->rows;
}

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
    if (status->n_holders == status->limits->holders)
        return;
    status->n_holders++;
    /* one that has ended leaves its number, and perhaps its connection to a child: then it names no process */
    uint64_t age_ns = clock_now_ns() - lease->connected_ns;
    pid_t pid = process_is_younger(lease->pid, age_ns) ? 0 : lease->pid;
    Tensorcast__Daemon__V1__LeaseStatus *row = ADD_ROW(status->arena, status->replica, held_by, lease_status);
    row->pid = (uint64_t)pid;
    row->uid = lease->uid;
    row->command = text_for_messages(status->arena, process_command(pid, command));
    row->since_s = seconds(clock_now_ns() - lease->since_ns);
    row->cgroup = text_for_messages(status->arena, process_cgroup(pid, cgroup));
}

static void add_replica(void *data, const struct replica *replica)
{
    struct status *status = data;
    if (status->n_replicas-- > status->limits->rows)
        return; /* of a longer list, those that were used last */
    Tensorcast__Daemon__V1__ReplicaStatus *row = ADD_ROW(status->arena, status->response, replicas, replica_status);
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
    if (has_room(status, status->response->n_loads) && replica->reader && page_reader_is_reading(replica->reader)) {
        /* its files are read into the page cache */
        Tensorcast__Daemon__V1__LoadStatus *load = ADD_ROW(status->arena, status->response, loads, load_status);
        load->artifact = replica->mapping->artifact->reference;
        load->stage = "read ahead";
        load->done_bytes = page_reader_done_bytes(replica->reader);
        load->total_bytes = page_reader_total_bytes(replica->reader);
        load->clients = replica->n_leases;
        load->age_s = seconds(clock_now_ns() - page_reader_started_ns(replica->reader));
        load->uid = replica->uid;
    }
    status->replica = row;
    handoff_each_lease(replica, add_holder, status);
}

/* NULL: there are too many. */
static user_status *get_user(struct status *status, uid_t uid)
{
    for (size_t i = 0; i < status->response->n_users; i++)
        if (status->response->users[i]->uid == uid)
            return status->response->users[i];
    if (status->response->n_users == MAX_USERS)
        return NULL;
    user_status *row = ADD_ROW(status->arena, status->response, users, user_status);
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
    if (!has_room(status, status->response->n_loads))
        return;
    Tensorcast__Daemon__V1__LoadStatus *row = ADD_ROW(status->arena, status->response, loads, load_status);
    row->load_id = info->id;
    row->artifact = info->artifact;
    row->stage = info->stage;
    row->done_bytes = info->done_bytes;
    row->total_bytes = info->total_bytes;
    row->clients = info->n_tickets;
    row->age_s = seconds(info->age_ns);
    row->rank = info->rank;
    row->world_size = info->world_size;
    row->uid = info->uid;
    row->pid = (uint64_t)info->pid;
    row->waited_for = info->waited_for ? info->waited_for : "";
    row->waiting_for = text_for_messages(status->arena, info->waiting_for);
}

static void add_prewarm(void *data, const struct prewarms_row *told)
{
    struct status *status = data;
    if (!has_room(status, status->response->n_prewarms))
        return;
    Tensorcast__Daemon__V1__PrewarmStatus *row = ADD_ROW(status->arena, status->response, prewarms, prewarm_status);
    row->artifact = text_for_messages(status->arena, told->artifact);
    row->uid = told->uid;
    row->state = told->state;
    row->message = text_for_messages(status->arena, told->message);
    row->age_s = seconds(clock_now_ns() - told->asked_ns);
    row->pin = told->pin;
    row->configured = told->is_configured;
}

static void add_costs(void *data, uint64_t device_id, const struct cost_constants *costs)
{
    struct status *status = data;
    char name[32] = "default";
    Tensorcast__Daemon__V1__CalibrationStatus *row =
        ADD_ROW(status->arena, status->response, calibration, calibration_status);
    if (device_id)
        snprintf(name, sizeof name, "%u:%u", major((dev_t)device_id), minor((dev_t)device_id));
    row->device = arena_text(status->arena, name, strlen(name));
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
    Tensorcast__Daemon__V1__StoreStatus *row = ADD_ROW(status->arena, status->response, stores, store_status);
    row->origin = arena_text(status->arena, origin->name, strlen(origin->name));
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

/* Host memory and the GPUs. */
static void add_targets(struct status *status, const struct load_targets *targets)
{
    Tensorcast__Daemon__V1__StatusResponse *response = status->response;
    for (size_t i = 0; i < targets->n; i++) {
        const struct load_target *target = &targets->list[i];
        if (status->limits->rows) { /* first: what was given back is not used any more */
            uint64_t kept_bytes = replica_kept_bytes(target->replicas);
            response->kept_bytes = i == LOAD_TARGET_HOST ? kept_bytes : response->kept_bytes;
        }
        if (i == LOAD_TARGET_HOST) {
            response->host_budget_bytes = replica_budget_bytes(target->replicas);
            response->used_bytes = replica_used_bytes(target->replicas);
        } else {
            const struct device *device = target->device;
            Tensorcast__Daemon__V1__DeviceStatus *row = ADD_ROW(status->arena, status->response, devices, device_status);
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
        response->leases += replica_leases(target->replicas);
        if (!status->limits->rows)
            continue;
        status->n_replicas = replica_count(target->replicas);
        if (!status->limits->in_turns)
            replica_each(target->replicas, add_replica, status);
        holders_each(replica_holders(target->replicas), add_memory, status);
    }
}

/* connection: whose; 0 = all. */
static void add_requests(struct status *status, const struct open_calls *calls, uint64_t connection)
{
    const struct open_call *one;
    LIST_FOREACH (one, calls, in_list) {
        if ((connection && rpc_call_connection(one->call) != connection) || status->response->n_requests == MAX_REQUESTS ||
            !has_room(status, status->response->n_requests))
            continue;
        const struct load_info info = one->describe(one->data);
        if (one->is_listed_as_load && info.n_tickets)
            continue;
        Tensorcast__Daemon__V1__RequestStatus *row = ADD_ROW(status->arena, status->response, requests, request_status);
        char *artifact = redact_copy(info.artifact ? info.artifact : "");
        row->method = rpc_call_method(one->call);
        row->artifact = text_for_messages(status->arena, artifact);
        row->stage = info.stage;
        row->waiting_for = text_for_messages(status->arena, info.waiting_for);
        row->done_bytes = info.done_bytes;
        row->total_bytes = info.total_bytes;
        row->age_s = seconds(info.age_ns);
        row->uid = rpc_call_uid(one->call);
        row->pid = (uint64_t)rpc_call_pid(one->call);
        free(artifact);
    }
}

static void add_host(void *data, const struct host_row *host)
{
    struct status *status = data;
    Tensorcast__Daemon__V1__HostStatus *row = ADD_ROW(status->arena, status->response->hosts, hosts, host_status);
    row->name = text_for_messages(status->arena, host->name);
    row->self = host->is_self;
    row->domain = text_for_messages(status->arena, host->domain);
    row->state = host_state_name(host->state);
    row->reason = text_for_messages(status->arena, host->reason);
    row->address = host->address;
    row->incarnation = text_for_messages(status->arena, host->incarnation);
    row->version = text_for_messages(status->arena, host->version);
    row->in_bytes = host->traffic.in_bytes;
    row->out_bytes = host->traffic.out_bytes;
    row->late_answers = host->traffic.late;
    row->wrong_answers = host->traffic.wrong;
}

static void add_hosts(struct status *status, const struct hosts *hosts)
{
    const struct hosts_summary summary = hosts_summary(hosts);
    Tensorcast__Daemon__V1__HostsStatus *message = CODEC_NEW(hosts_status, status->arena);
    status->response->hosts = message;
    message->name = summary.name;
    message->domain = summary.domain;
    message->etcd_state = summary.is_connected ? "connected" : "away";
    message->etcd_reason = text_for_messages(status->arena, summary.etcd_reason);
    hosts_each(hosts, add_host, status);
}

static const char *state_name(const struct api *api)
{
    return api->is_draining ? "draining" : "serving";
}

bool status_add_replicas(const struct api *api, const struct status_limits *limits, struct status_walk *walk,
                         uint64_t until_ns, struct arena *arena, Tensorcast__Daemon__V1__StatusResponse *response)
{
    const struct load_targets *targets = api->services.targets;
    struct status status = {.limits = limits, .response = response, .arena = arena, .n_holders = walk->n_holders};
    for (; walk->target < targets->n; walk->target++, walk->is_begun = false) {
        struct replica_table *table = targets->list[walk->target].replicas;
        const struct replica *replica;
        if (!walk->is_begun)
            replica_walk_begin(table);
        walk->is_begun = true;
        while ((replica = replica_walk_next(table))) {
            add_replica(&status, replica);
            walk->n_holders = status.n_holders;
            if (response->n_replicas % ROWS_BETWEEN_LOOKS == 0 && clock_now_ns() >= until_ns)
                return true;
        }
    }
    return false;
}

void status_requests(const struct api *api, uint64_t connection, struct arena *arena,
                     Tensorcast__Daemon__V1__StatusResponse *response)
{
    const struct status_limits limits = {.rows = MAX_REQUESTS};
    struct status status = {.limits = &limits, .response = response, .arena = arena};
    response->state = state_name(api);
    add_requests(&status, api->open_calls, connection);
}

void status_fill(const struct api *api, const struct status_limits *limits, struct arena *arena,
                 Tensorcast__Daemon__V1__StatusResponse *response)
{
    const struct load_services *services = &api->services;
    struct status status = {.limits = limits, .response = response, .arena = arena};
    Tensorcast__Daemon__V1__TotalsStatus *totals = CODEC_NEW(totals_status, arena);
    Tensorcast__Daemon__V1__UploadsStatus *uploads = CODEC_NEW(uploads_status, arena);
    response->version = version_text();
    response->pid = (uint64_t)getpid();
    response->uptime_s = seconds(clock_now_ns() - api->started_ns);
    response->staging_bytes = engine_staging_bytes(services->engine);
    response->extent_bytes = engine_extent_bytes(services->engine);
    response->pool_bytes = __atomic_load_n(&services->targets->list[LOAD_TARGET_HOST].device->pool_bytes, __ATOMIC_RELAXED);
    response->connections = rpc_server_connections(api->rpc);
    response->cached_headers_bytes = header_cache_memory_bytes(services->headers);
    response->handoff_socket = api->handoff_path;
    response->metrics_address = api->metrics_address;
    response->state = state_name(api);
    response->devices_problem = services->targets->plugins.problem;
    add_targets(&status, services->targets);
    load_table_each(api->loads, add_load, &status);
    prewarms_each(api->prewarms, add_prewarm, &status);
    const struct upload_totals counted = upload_queue_totals(api->uploads);
    uploads->pending = counted.pending;
    uploads->failed = counted.failed;
    uploads->pending_bytes = counted.pending_bytes;
    response->uploads = uploads;
    totals->resident = counters_get(COUNTER_LOADS_RESIDENT);
    totals->cancelled = counters_get(COUNTER_LOADS_CANCELLED);
    totals->refused = counters_get(COUNTER_LOADS_REFUSED);
    totals->failed = counters_get(COUNTER_LOADS_FAILED) + totals->cancelled + totals->refused;
    totals->loads = counters_sum(COUNTER_LOADS_READ) - totals->failed;
    totals->delivered_bytes = counters_get(COUNTER_DELIVERED_BYTES);
    totals->read_bytes = counters_sum(COUNTER_READ_BYTES);
    response->totals = totals;
    calibration_each(services->calibration, add_costs, &status);
    engine_each_origin(services->engine, add_store, &status);
    if (limits->rows)
        quota_each(services->quota, add_shares, &status);
    if (response->n_users > 0)
        qsort(response->users, response->n_users, sizeof(user_status *), compare_users);
    for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++) {
        if (quota_limit(services->quota, kind) == UINT64_MAX)
            continue; /* only counted */
        Tensorcast__Daemon__V1__QuotaStatus *row = ADD_ROW(arena, response, quotas, quota_status);
        row->resource = quota_kind_name(kind);
        row->taken = quota_taken(services->quota, kind);
        row->limit = quota_limit(services->quota, kind);
    }
    for (const struct folder *folder = folders_first(api->folders); folder; folder = folder->next)
        if (folder->is_there && has_room(&status, response->n_folders))
            api_folder_status(folder, ADD_ROW(arena, response, folders, folder_status));
    add_requests(&status, api->open_calls, 0);
    if (api->hosts)
        add_hosts(&status, api->hosts);
}
