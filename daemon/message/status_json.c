#include "message/status_json.h"

#include "base/json.h"
#include "message/message_json.h"

static void write_hosts(struct json_writer *writer, const Tensorcast__Daemon__V1__HostsStatus *hosts)
{
    json_put_bool(writer, "enabled", hosts != NULL);
    if (hosts) {
        json_put_text(writer, "name", hosts->name);
        json_put_text(writer, "domain", hosts->domain);
        json_put_open(writer, "etcd", '{');
        json_put_text(writer, "state", hosts->etcd_state);
        json_put_text(writer, "reason", hosts->etcd_reason);
        json_write_close(writer, '}');
    }
    json_put_open(writer, "hosts", '[');
    for (size_t i = 0; hosts && i < hosts->n_hosts; i++) {
        const Tensorcast__Daemon__V1__HostStatus *row = hosts->hosts[i];
        json_write_open(writer, '{');
        json_put_text(writer, "name", row->name);
        json_put_bool(writer, "self", row->self);
        json_put_text(writer, "domain", row->domain);
        json_put_text(writer, "state", row->state);
        json_put_text(writer, "reason", row->reason);
        json_put_text(writer, "address", row->address);
        json_put_text(writer, "incarnation", row->incarnation);
        json_put_text(writer, "version", row->version);
        json_put_open(writer, "bytes", '{');
        json_put_u64(writer, "in", row->in_bytes);
        json_put_u64(writer, "out", row->out_bytes);
        json_write_close(writer, '}');
        json_put_open(writer, "answers", '{');
        json_put_u64(writer, "late", row->late_answers);
        json_put_u64(writer, "wrong", row->wrong_answers);
        json_write_close(writer, '}');
        json_write_close(writer, '}');
    }
    json_write_close(writer, ']');
}

char *status_hosts_json(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    write_hosts(&json, status->hosts);
    json_write_close(&json, '}');
    return json.text;
}

char *status_json(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    struct json_writer json = {0}, *writer = &json;
    json_write_open(writer, '{');
    json_put_text(writer, "version", status->version);
    json_put_u64(writer, "pid", status->pid);
    json_put_text(writer, "state", status->state);
    json_put_text(writer, "handoff_socket", status->handoff_socket);
    json_put_text(writer, "metrics_address", status->metrics_address);
    json_put_double(writer, "uptime_s", status->uptime_s);
    json_put_open(writer, "memory", '{');
    json_put_u64(writer, "host_budget_bytes", status->host_budget_bytes);
    json_put_u64(writer, "used_bytes", status->used_bytes);
    json_put_u64(writer, "staging_bytes", status->staging_bytes);
    json_put_u64(writer, "extent_bytes", status->extent_bytes);
    json_put_u64(writer, "pool_bytes", status->pool_bytes);
    json_put_u64(writer, "kept_bytes", status->kept_bytes);
    json_put_u64(writer, "cached_headers_bytes", status->cached_headers_bytes);
    json_write_close(writer, '}');
    message_json_put_list(writer, "devices", (ProtobufCMessage *const *)status->devices, status->n_devices);
    json_put_text(writer, "devices_problem", status->devices_problem);
    message_json_put_list(writer, "replicas", (ProtobufCMessage *const *)status->replicas, status->n_replicas);
    message_json_put_list(writer, "loads", (ProtobufCMessage *const *)status->loads, status->n_loads);
    message_json_put_list(writer, "requests", (ProtobufCMessage *const *)status->requests, status->n_requests);
    message_json_put_list(writer, "prewarms", (ProtobufCMessage *const *)status->prewarms, status->n_prewarms);
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
    message_json_put_list(writer, "users", (ProtobufCMessage *const *)status->users, status->n_users);
    json_put_open(writer, "quotas", '{');
    for (size_t i = 0; i < status->n_quotas; i++)
        message_json_put_object(writer, status->quotas[i]->resource, &status->quotas[i]->base, 1);
    json_write_close(writer, '}');
    json_put_open(writer, "hosts", '{');
    write_hosts(writer, status->hosts);
    json_write_close(writer, '}');
    json_write_close(writer, '}');
    return json.text;
}
