/* One function per object, one line per field, in the order in which people read them. */
#include "status_json.h"

#include "base/json.h"

static void put_lease(struct json_writer *writer, const Tensorcast__Daemon__V1__LeaseStatus *lease)
{
    json_write_open(writer, '{');
    json_put_u64(writer, "pid", lease->pid);
    json_put_u64(writer, "uid", lease->uid);
    json_put_text(writer, "command", lease->command);
    json_put_double(writer, "since_s", lease->since_s);
    json_put_text(writer, "cgroup", lease->cgroup);
    json_write_close(writer, '}');
}

static void put_replica(struct json_writer *writer, const Tensorcast__Daemon__V1__ReplicaStatus *replica)
{
    json_write_open(writer, '{');
    json_put_text(writer, "artifact", replica->artifact);
    json_put_text(writer, "identity", replica->identity);
    json_put_text(writer, "view_digest", replica->view_digest);
    json_put_u64(writer, "bytes", replica->bytes);
    json_put_u64(writer, "leases", replica->leases);
    json_put_text(writer, "memory", replica->memory);
    if (replica->device[0])
        json_put_text(writer, "device", replica->device);
    json_put_double(writer, "idle_s", replica->idle_s);
    json_put_open(writer, "held_by", '[');
    for (size_t i = 0; i < replica->n_held_by; i++)
        put_lease(writer, replica->held_by[i]);
    json_write_close(writer, ']');
    json_write_close(writer, '}');
}

static void put_device(struct json_writer *writer, const Tensorcast__Daemon__V1__DeviceStatus *device)
{
    json_write_open(writer, '{');
    json_put_text(writer, "device", device->device);
    json_put_text(writer, "model", device->model);
    json_put_text(writer, "state", device->state);
    json_put_text(writer, "problem", device->problem);
    json_put_u64(writer, "memory_bytes", device->memory_bytes);
    json_put_u64(writer, "budget_bytes", device->budget_bytes);
    json_put_u64(writer, "used_bytes", device->used_bytes);
    json_write_close(writer, '}');
}

static void put_running_load(struct json_writer *writer, const Tensorcast__Daemon__V1__LoadStatus *load)
{
    json_write_open(writer, '{');
    json_put_text(writer, "load_id", load->load_id);
    json_put_text(writer, "artifact", load->artifact);
    json_put_text(writer, "stage", load->stage);
    json_put_u64(writer, "done_bytes", load->done_bytes);
    json_put_u64(writer, "total_bytes", load->total_bytes);
    json_put_u64(writer, "clients", load->clients);
    json_put_double(writer, "age_s", load->age_s);
    json_write_close(writer, '}');
}

static void put_calibration(struct json_writer *writer, const Tensorcast__Daemon__V1__CalibrationStatus *calibration)
{
    json_put_open(writer, calibration->device, '{');
    json_put_double(writer, "cached_request_us", calibration->cached_request_us);
    json_put_double(writer, "cached_gbps", calibration->cached_gbps);
    json_put_double(writer, "uncached_request_us", calibration->uncached_request_us);
    json_put_double(writer, "uncached_gbps", calibration->uncached_gbps);
    json_put_double(writer, "copy_gbps", calibration->copy_gbps);
    json_put_double(writer, "fresh_gbps", calibration->fresh_gbps);
    json_put_u64(writer, "samples", calibration->samples);
    json_write_close(writer, '}');
}

/* What reading from a store costs. */
static void put_store(struct json_writer *writer, const Tensorcast__Daemon__V1__StoreStatus *store)
{
    json_put_open(writer, store->origin, '{');
    json_put_u64(writer, "latency_us", store->latency_us);
    json_put_double(writer, "connection_gbps", store->connection_gbps);
    json_put_double(writer, "total_gbps", store->total_gbps);
    json_put_u64(writer, "parallel_requests", store->parallel_requests);
    json_put_u64(writer, "in_flight", store->in_flight);
    json_put_u64(writer, "requests", store->requests);
    json_put_u64(writer, "retries", store->retries);
    json_put_u64(writer, "hedges", store->hedges);
    json_put_u64(writer, "throttled", store->throttled);
    json_put_u64(writer, "received_bytes", store->received_bytes);
    json_write_close(writer, '}');
}

static void put_user(struct json_writer *writer, const Tensorcast__Daemon__V1__UserStatus *user)
{
    json_write_open(writer, '{');
    json_put_u64(writer, "uid", user->uid);
    json_put_u64(writer, "held_bytes", user->held_bytes);
    json_put_u64(writer, "kept_bytes", user->kept_bytes);
    json_put_u64(writer, "loading_bytes", user->loading_bytes);
    json_put_u64(writer, "metadata_bytes", user->metadata_bytes);
    json_put_u64(writer, "leases", user->leases);
    json_put_u64(writer, "connections", user->connections);
    json_put_u64(writer, "calls", user->calls);
    json_put_u64(writer, "groups", user->groups);
    json_put_u64(writer, "descriptors", user->descriptors);
    json_write_close(writer, '}');
}

/* Who has how much of what users share, and how much all may have. */
static void put_users(struct json_writer *writer, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    json_put_open(writer, "users", '[');
    for (size_t i = 0; i < status->n_users; i++)
        put_user(writer, status->users[i]);
    json_write_close(writer, ']');
    json_put_open(writer, "quotas", '{');
    for (size_t i = 0; i < status->n_quotas; i++) {
        json_put_open(writer, status->quotas[i]->resource, '{');
        json_put_u64(writer, "taken", status->quotas[i]->taken);
        json_put_u64(writer, "limit", status->quotas[i]->limit);
        json_write_close(writer, '}');
    }
    json_write_close(writer, '}');
}

static void put_memory(struct json_writer *writer, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    json_put_open(writer, "memory", '{');
    json_put_u64(writer, "host_budget_bytes", status->host_budget_bytes);
    json_put_u64(writer, "used_bytes", status->used_bytes);
    json_put_u64(writer, "staging_bytes", status->staging_bytes);
    json_put_u64(writer, "extent_bytes", status->extent_bytes);
    json_put_u64(writer, "pool_bytes", status->pool_bytes);
    json_put_u64(writer, "kept_bytes", status->kept_bytes);
    json_put_u64(writer, "cached_headers_bytes", status->cached_headers_bytes);
    json_write_close(writer, '}');
}

static void put_status(struct json_writer *writer, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    json_write_open(writer, '{');
    json_put_text(writer, "version", status->version);
    json_put_u64(writer, "pid", status->pid);
    json_put_text(writer, "state", status->state);
    json_put_text(writer, "handoff_socket", status->handoff_socket);
    json_put_double(writer, "uptime_s", status->uptime_s);
    put_memory(writer, status);
    json_put_open(writer, "devices", '[');
    for (size_t i = 0; i < status->n_devices; i++)
        put_device(writer, status->devices[i]);
    json_write_close(writer, ']');
    json_put_text(writer, "devices_problem", status->devices_problem);
    json_put_open(writer, "replicas", '[');
    for (size_t i = 0; i < status->n_replicas; i++)
        put_replica(writer, status->replicas[i]);
    json_write_close(writer, ']');
    json_put_open(writer, "loads", '[');
    for (size_t i = 0; i < status->n_loads; i++)
        put_running_load(writer, status->loads[i]);
    json_write_close(writer, ']');
    json_put_u64(writer, "leases", status->leases);
    json_put_u64(writer, "connections", status->connections);
    json_put_open(writer, "calibration", '{');
    for (size_t i = 0; i < status->n_calibration; i++)
        put_calibration(writer, status->calibration[i]);
    json_write_close(writer, '}');
    json_put_open(writer, "stores", '{');
    for (size_t i = 0; i < status->n_stores; i++)
        put_store(writer, status->stores[i]);
    json_write_close(writer, '}');
    put_users(writer, status);
    json_write_close(writer, '}');
}

char *status_json(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    struct json_writer writer = {0};
    put_status(&writer, status);
    return writer.text;
}
