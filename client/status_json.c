/* One function per object, one line per field, in the order in which people read them. */
#include "status_json.h"

#include "base/json.h"

static void put_text(struct json_writer *writer, const char *key, const char *value)
{
    json_write_key(writer, key);
    json_write_text(writer, value);
}

static void put_u64(struct json_writer *writer, const char *key, uint64_t value)
{
    json_write_key(writer, key);
    json_write_u64(writer, value);
}

static void put_double(struct json_writer *writer, const char *key, double value)
{
    json_write_key(writer, key);
    json_write_double(writer, value);
}

static void open_under(struct json_writer *writer, const char *key, char bracket)
{
    json_write_key(writer, key);
    json_write_open(writer, bracket);
}

static void put_replica(struct json_writer *writer, const Tensorcast__Daemon__V1__ReplicaStatus *replica)
{
    json_write_open(writer, '{');
    put_text(writer, "artifact", replica->artifact);
    put_text(writer, "identity", replica->identity);
    put_text(writer, "view_digest", replica->view_digest);
    put_u64(writer, "bytes", replica->bytes);
    put_u64(writer, "leases", replica->leases);
    put_text(writer, "memory", replica->memory);
    if (replica->device[0])
        put_text(writer, "device", replica->device);
    put_double(writer, "idle_s", replica->idle_s);
    json_write_close(writer, '}');
}

static void put_device(struct json_writer *writer, const Tensorcast__Daemon__V1__DeviceStatus *device)
{
    json_write_open(writer, '{');
    put_text(writer, "device", device->device);
    put_text(writer, "model", device->model);
    put_text(writer, "state", device->state);
    put_text(writer, "problem", device->problem);
    put_u64(writer, "memory_bytes", device->memory_bytes);
    put_u64(writer, "budget_bytes", device->budget_bytes);
    put_u64(writer, "used_bytes", device->used_bytes);
    json_write_close(writer, '}');
}

static void put_running_load(struct json_writer *writer, const Tensorcast__Daemon__V1__LoadStatus *load)
{
    json_write_open(writer, '{');
    put_text(writer, "load_id", load->load_id);
    put_text(writer, "artifact", load->artifact);
    put_text(writer, "stage", load->stage);
    put_u64(writer, "done_bytes", load->done_bytes);
    put_u64(writer, "total_bytes", load->total_bytes);
    put_u64(writer, "clients", load->clients);
    put_double(writer, "age_s", load->age_s);
    json_write_close(writer, '}');
}

static void put_calibration(struct json_writer *writer, const Tensorcast__Daemon__V1__CalibrationStatus *calibration)
{
    open_under(writer, calibration->device, '{');
    put_double(writer, "cached_request_us", calibration->cached_request_us);
    put_double(writer, "cached_gbps", calibration->cached_gbps);
    put_double(writer, "uncached_request_us", calibration->uncached_request_us);
    put_double(writer, "uncached_gbps", calibration->uncached_gbps);
    put_double(writer, "copy_gbps", calibration->copy_gbps);
    put_double(writer, "fresh_gbps", calibration->fresh_gbps);
    put_u64(writer, "samples", calibration->samples);
    json_write_close(writer, '}');
}

/* Under calibration as well: what reading from a store costs. */
static void put_store(struct json_writer *writer, const Tensorcast__Daemon__V1__StoreStatus *store)
{
    open_under(writer, store->origin, '{');
    put_u64(writer, "latency_us", store->latency_us);
    put_double(writer, "connection_gbps", store->connection_gbps);
    put_double(writer, "total_gbps", store->total_gbps);
    put_u64(writer, "parallel_requests", store->parallel_requests);
    put_u64(writer, "in_flight", store->in_flight);
    put_u64(writer, "requests", store->requests);
    put_u64(writer, "retries", store->retries);
    put_u64(writer, "hedges", store->hedges);
    put_u64(writer, "throttled", store->throttled);
    put_u64(writer, "received_bytes", store->received_bytes);
    json_write_close(writer, '}');
}

static void put_memory(struct json_writer *writer, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    open_under(writer, "memory", '{');
    put_u64(writer, "host_budget_bytes", status->host_budget_bytes);
    put_u64(writer, "used_bytes", status->used_bytes);
    put_u64(writer, "staging_bytes", status->staging_bytes);
    put_u64(writer, "pool_bytes", status->pool_bytes);
    put_u64(writer, "cached_headers_bytes", status->cached_headers_bytes);
    json_write_close(writer, '}');
}

static void put_status(struct json_writer *writer, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    json_write_open(writer, '{');
    put_text(writer, "version", status->version);
    put_u64(writer, "pid", status->pid);
    put_text(writer, "state", status->state);
    put_double(writer, "uptime_s", status->uptime_s);
    put_memory(writer, status);
    open_under(writer, "devices", '[');
    for (size_t i = 0; i < status->n_devices; i++)
        put_device(writer, status->devices[i]);
    json_write_close(writer, ']');
    put_text(writer, "devices_problem", status->devices_problem);
    open_under(writer, "replicas", '[');
    for (size_t i = 0; i < status->n_replicas; i++)
        put_replica(writer, status->replicas[i]);
    json_write_close(writer, ']');
    open_under(writer, "loads", '[');
    for (size_t i = 0; i < status->n_loads; i++)
        put_running_load(writer, status->loads[i]);
    json_write_close(writer, ']');
    put_u64(writer, "leases", status->leases);
    put_u64(writer, "connections", status->connections);
    open_under(writer, "calibration", '{');
    for (size_t i = 0; i < status->n_calibration; i++)
        put_calibration(writer, status->calibration[i]);
    for (size_t i = 0; i < status->n_stores; i++)
        put_store(writer, status->stores[i]);
    json_write_close(writer, '}');
    json_write_close(writer, '}');
}

char *status_json(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    struct json_writer writer = {0};
    put_status(&writer, status);
    return writer.text;
}
