/* One line per field, in the order in which people read them; what a message has in that order is written as it is. */
#include "status_json.h"

#include "message_json.h"

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
    json_put_bool(writer, "pinned", replica->pinned);
    json_put_u64(writer, "view_tensors", replica->view_tensors);
    json_put_u64(writer, "view_bytes", replica->view_bytes);
    json_put_u64(writer, "artifact_tensors", replica->artifact_tensors);
    json_put_u64(writer, "artifact_bytes", replica->artifact_bytes);
    json_put_open(writer, "held_by", '[');
    for (size_t i = 0; i < replica->n_held_by; i++)
        message_json_put_object(writer, NULL, &replica->held_by[i]->base, 0);
    json_write_close(writer, ']');
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
    json_put_u64(writer, "locked_bytes", user->locked_bytes);
    json_put_u64(writer, "leases", user->leases);
    json_put_u64(writer, "connections", user->connections);
    json_put_u64(writer, "calls", user->calls);
    json_put_u64(writer, "groups", user->groups);
    json_put_u64(writer, "descriptors", user->descriptors);
    json_put_u64(writer, "uploads", user->uploads);
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
    for (size_t i = 0; i < status->n_quotas; i++)
        message_json_put_object(writer, status->quotas[i]->resource, &status->quotas[i]->base, 1);
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

char *status_json(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    struct json_writer json = {0}, *writer = &json;
    json_write_open(writer, '{');
    json_put_text(writer, "version", status->version);
    json_put_u64(writer, "pid", status->pid);
    json_put_text(writer, "state", status->state);
    json_put_text(writer, "handoff_socket", status->handoff_socket);
    json_put_double(writer, "uptime_s", status->uptime_s);
    put_memory(writer, status);
    json_put_open(writer, "devices", '[');
    for (size_t i = 0; i < status->n_devices; i++)
        message_json_put_object(writer, NULL, &status->devices[i]->base, 0);
    json_write_close(writer, ']');
    json_put_text(writer, "devices_problem", status->devices_problem);
    json_put_open(writer, "replicas", '[');
    for (size_t i = 0; i < status->n_replicas; i++)
        put_replica(writer, status->replicas[i]);
    json_write_close(writer, ']');
    json_put_open(writer, "loads", '[');
    for (size_t i = 0; i < status->n_loads; i++)
        message_json_put_object(writer, NULL, &status->loads[i]->base, 0);
    json_write_close(writer, ']');
    json_put_open(writer, "requests", '[');
    for (size_t i = 0; i < status->n_requests; i++)
        message_json_put_object(writer, NULL, &status->requests[i]->base, 0);
    json_write_close(writer, ']');
    json_put_open(writer, "prewarms", '[');
    for (size_t i = 0; i < status->n_prewarms; i++)
        message_json_put_object(writer, NULL, &status->prewarms[i]->base, 0);
    json_write_close(writer, ']');
    if (status->totals)
        message_json_put_object(writer, "totals", &status->totals->base, 0);
    if (status->uploads)
        message_json_put_object(writer, "uploads", &status->uploads->base, 0);
    json_put_open(writer, "folders", '[');
    for (size_t i = 0; i < status->n_folders; i++) {
        json_write_open(writer, '{');
        json_put_text(writer, "path", status->folders[i]->path);
        json_put_text(writer, "artifact", status->folders[i]->artifact);
        json_put_u64(writer, "bytes", status->folders[i]->bytes);
        json_put_u64(writer, "uid", status->folders[i]->uid);
        json_write_close(writer, '}');
    }
    json_write_close(writer, ']');
    json_put_u64(writer, "leases", status->leases);
    json_put_u64(writer, "connections", status->connections);
    json_put_open(writer, "calibration", '{');
    for (size_t i = 0; i < status->n_calibration; i++)
        message_json_put_object(writer, status->calibration[i]->device, &status->calibration[i]->base, 1);
    json_write_close(writer, '}');
    json_put_open(writer, "stores", '{');
    for (size_t i = 0; i < status->n_stores; i++)
        message_json_put_object(writer, status->stores[i]->origin, &status->stores[i]->base, 1);
    json_write_close(writer, '}');
    put_users(writer, status);
    json_write_close(writer, '}');
    return json.text;
}
