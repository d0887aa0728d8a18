/* One line about the daemon, one about its memory, then a block each for what there is of replicas, loads, calibration. */
#include "status_text.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { MAX_SHOWN_HOLDERS = 4, MAX_SHOWN_REPLICAS = 20, WIDE_COLUMNS = 100, LEAST_NAME_COLUMNS = 16 };

const char *status_age_text(double seconds, char out[TEXT_SIZE_CHARS])
{
    uint64_t s = (uint64_t)(seconds > 0 ? seconds : 0);
    if (s >= 86400)
        snprintf(out, TEXT_SIZE_CHARS, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(out, TEXT_SIZE_CHARS, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
    else if (s >= 120)
        snprintf(out, TEXT_SIZE_CHARS, "%" PRIu64 " min", s / 60);
    else
        snprintf(out, TEXT_SIZE_CHARS, "%" PRIu64 " s", s);
    return out;
}

static void put_head(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char age[TEXT_SIZE_CHARS];
    fprintf(out, "tensorcastd %s  pid %" PRIu64 "  %s for %s  %" PRIu64 " connection%s  %" PRIu64 " lease%s\n",
            status->version, status->pid, status->state, status_age_text(status->uptime_s, age), status->connections,
            text_plural(status->connections), status->leases, text_plural(status->leases));
    fprintf(out, "memory  %s of %s used (%.0f %%)", text_show_amount(status->used_bytes),
            text_show_amount(status->host_budget_bytes),
            status->host_budget_bytes ? 100.0 * (double)status->used_bytes / (double)status->host_budget_bytes : 0.0);
    if (status->kept_bytes)
        fprintf(out, "  %s kept by clients without a lease", text_show_amount(status->kept_bytes));
    fprintf(out, "\nbeside  %s staging  %s extents  %s pooled\n", text_show_amount(status->staging_bytes),
            text_show_amount(status->extent_bytes), text_show_amount(status->pool_bytes));
    if (status->totals) {
        fprintf(out, "so far  %" PRIu64 " load%s (%" PRIu64 " resident), %" PRIu64 " failed", status->totals->loads,
                text_plural(status->totals->loads), status->totals->resident,
                status->totals->failed - status->totals->cancelled - status->totals->refused);
        if (status->totals->refused)
            fprintf(out, ", %" PRIu64 " refused", status->totals->refused);
        if (status->totals->cancelled)
            fprintf(out, ", %" PRIu64 " cancelled", status->totals->cancelled);
        fprintf(out, ", %s delivered, %s read\n", text_show_amount(status->totals->delivered_bytes),
                text_show_amount(status->totals->read_bytes));
    }
}

static void put_devices(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    for (size_t i = 0; i < status->n_devices; i++) {
        const Tensorcast__Daemon__V1__DeviceStatus *device = status->devices[i];
        fprintf(out, "cuda:%zu  %s of %s used  %s  %s  %s%s%s\n", i, text_show_amount(device->used_bytes),
                text_show_amount(device->budget_bytes), device->device, device->model, device->state,
                device->problem[0] ? ": " : "", device->problem);
    }
}

/* "alice", or "uid 1000" of one who has no name here. */
static const char *user_name(uint32_t uid, char name[TEXT_NAME_CHARS])
{
    char room[1024];
    struct passwd entry, *user = NULL;
    if (getpwuid_r(uid, &entry, room, sizeof room, &user) == 0 && user)
        return text_escape(user->pw_name, strlen(user->pw_name), name);
    snprintf(name, TEXT_NAME_CHARS, "uid %" PRIu32, uid);
    return name;
}

/* "4711 VLLM::Worker (alice)", ... */
static void put_holders(FILE *out, const Tensorcast__Daemon__V1__ReplicaStatus *replica, bool is_narrow)
{
    char name[TEXT_NAME_CHARS];
    size_t most = is_narrow ? 1 : MAX_SHOWN_HOLDERS, n_shown = replica->n_held_by < most ? replica->n_held_by : most;
    for (size_t i = 0; i < n_shown; i++) {
        fputs(i ? ", " : "              held by ", out);
        const Tensorcast__Daemon__V1__LeaseStatus *lease = replica->held_by[i];
        if (lease->pid)
            fprintf(out, "%" PRIu64 " ", lease->pid);
        if (*lease->command) /* hidden by ProtectProc= */
            fprintf(out, "%s ", text_show(lease->command));
        fprintf(out, "(%s)", user_name(lease->uid, name));
    }
    if (n_shown && n_shown < replica->leases)
        fprintf(out, " and %" PRIu64 " more", replica->leases - n_shown);
    if (n_shown)
        fputc('\n', out);
}

typedef Tensorcast__Daemon__V1__ReplicaStatus replica_status;

/* Largest first. */
static int compare_replicas(const void *a, const void *b)
{
    const replica_status *one = *(replica_status *const *)a, *other = *(replica_status *const *)b;
    if (one->bytes != other->bytes)
        return one->bytes < other->bytes ? 1 : -1;
    return strcmp(one->artifact, other->artifact);
}

/* "all 291 tensors", "28 of 291 tensors", "291 tensors, 25 %" (of the artifact's bytes) */
static const char *view_words(const replica_status *replica, char out[TEXT_NAME_CHARS])
{
    bool is_all = replica->view_tensors == replica->artifact_tensors;
    double share = replica->artifact_bytes ? 100.0 * (double)replica->view_bytes / (double)replica->artifact_bytes : 100;
    if (is_all && replica->view_bytes != replica->artifact_bytes)
        snprintf(out, TEXT_NAME_CHARS, "%" PRIu64 " tensors, %.3g %%", replica->view_tensors, share);
    else if (is_all)
        snprintf(out, TEXT_NAME_CHARS, "all %" PRIu64 " tensor%s", replica->view_tensors,
                 text_plural(replica->view_tensors));
    else
        snprintf(out, TEXT_NAME_CHARS, "%" PRIu64 " of %" PRIu64 " tensors", replica->view_tensors,
                 replica->artifact_tensors);
    return out;
}

static void put_replica(FILE *out, const replica_status *replica, size_t columns)
{
    char name[TEXT_NAME_CHARS], view[TEXT_NAME_CHARS], age[TEXT_SIZE_CHARS], state[2 * TEXT_SIZE_CHARS];
    bool is_narrow = columns && columns < WIDE_COLUMNS;
    size_t used = is_narrow ? 59 : 68, left = columns > used + LEAST_NAME_COLUMNS ? columns - used : LEAST_NAME_COLUMNS;
    snprintf(state, sizeof state, "idle %s", status_age_text(replica->idle_s, age));
    fprintf(out, "  %10s  %3" PRIu64 " lease%-1s  ", text_show_amount(replica->bytes), replica->leases,
            text_plural(replica->leases));
    if (!is_narrow)
        fprintf(out, "%-7s  ", replica->memory);
    fprintf(out, "%-10s  %-19s  %s\n",
            replica->pinned   ? "pinned"
            : replica->leases ? "held"
                              : state,
            view_words(replica, view), text_fit(replica->artifact, columns ? left : 0, name));
    put_holders(out, replica, is_narrow);
}

/* A terminal gets the largest, a pipe all. */
static void put_replicas(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    size_t n = status->n_replicas, n_shown = columns && n > MAX_SHOWN_REPLICAS ? MAX_SHOWN_REPLICAS - 1 : n;
    uint64_t rest_bytes = 0;
    const replica_status **rows = memory_alloc_array(n + 1, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        rows[i] = status->replicas[i];
    qsort(rows, n, sizeof *rows, compare_replicas);
    fprintf(out, "\nreplicas  %zu\n", n);
    for (size_t i = 0; i < n_shown; i++)
        put_replica(out, rows[i], columns);
    for (size_t i = n_shown; i < n; i++)
        rest_bytes += rows[i]->bytes;
    if (n_shown < n)
        fprintf(out, "  ... and %zu more (%s)\n", n - n_shown, text_show_amount(rest_bytes));
    free(rows);
}

static void put_loads(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    char name[TEXT_NAME_CHARS], user[TEXT_NAME_CHARS], eta[TEXT_SIZE_CHARS];
    fprintf(out, "\nloads  %zu\n", status->n_loads);
    for (size_t i = 0; i < status->n_loads; i++) {
        const Tensorcast__Daemon__V1__LoadStatus *load = status->loads[i];
        double per_s = load->age_s > 0 ? (double)load->done_bytes / load->age_s : 0;
        fprintf(out, "  %-10s %3.0f %%  %s of %s  ", load->stage,
                load->total_bytes ? 100.0 * (double)load->done_bytes / (double)load->total_bytes : 0.0,
                text_show_amount(load->done_bytes), text_show_amount(load->total_bytes));
        if (load->done_bytes && load->total_bytes >= load->done_bytes)
            fprintf(out, "%s/s  ETA %s  ", text_show_amount((uint64_t)per_s),
                    status_age_text((double)(load->total_bytes - load->done_bytes) / per_s, eta));
        if (load->world_size)
            fprintf(out, "rank %" PRIu32 " of %" PRIu32 "  ", load->rank, load->world_size);
        fprintf(out, "%" PRIu64 " client%s  %.1f s\n    %s  pid %" PRIu64 " (%s)  %s\n", load->clients,
                text_plural(load->clients), load->age_s, load->load_id, load->pid, user_name(load->uid, user),
                text_fit(load->artifact,
                         columns > 80 ? columns - 52
                         : columns    ? 28
                                      : 0,
                         name));
    }
}

/* Calls that read nothing yet, or need no load. */
static void put_requests(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    char name[TEXT_NAME_CHARS], wait[TEXT_NAME_CHARS], user[TEXT_NAME_CHARS], age[TEXT_SIZE_CHARS];
    if (status->n_requests)
        fprintf(out, "\nrequests  %zu\n", status->n_requests);
    for (size_t i = 0; i < status->n_requests; i++) {
        const Tensorcast__Daemon__V1__RequestStatus *row = status->requests[i];
        fprintf(out, "  %-13s  %s  pid %" PRIu64 " (%s)  %s\n", row->method, status_age_text(row->age_s, age), row->pid,
                user_name(row->uid, user), text_fit(row->artifact, columns > 60 ? columns - 50 : 0, name));
        if (row->waiting_for[0])
            fprintf(out, "    waiting for %s\n", text_fit(row->waiting_for, columns > 60 ? columns - 16 : 0, wait));
    }
}

static void put_prewarms(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    char name[TEXT_NAME_CHARS], message[TEXT_NAME_CHARS], age[TEXT_SIZE_CHARS];
    if (status->n_prewarms)
        fprintf(out, "\nprewarms  %zu\n", status->n_prewarms);
    for (size_t i = 0; i < status->n_prewarms; i++) {
        const Tensorcast__Daemon__V1__PrewarmStatus *row = status->prewarms[i];
        fprintf(out, "  %-7s  %-6s  %-13s  %s ago  %s\n", row->state, row->pin ? "pin" : "",
                row->configured ? "configuration" : "detached", status_age_text(row->age_s, age),
                text_fit(row->artifact,
                         columns > 80 ? columns - 52
                         : columns    ? 28
                                      : 0,
                         name));
        if (*row->message)
            fprintf(out, "           %s\n", text_fit(row->message, columns ? columns - 11 : 0, message));
    }
}

static void put_folders(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    char name[TEXT_NAME_CHARS], path[TEXT_NAME_CHARS];
    size_t left = columns > 60 ? (columns - 16) / 2 : 0; /* for each of both names */
    if (status->n_folders)
        fprintf(out, "\nfolders\n");
    for (size_t i = 0; i < status->n_folders; i++) {
        const Tensorcast__Daemon__V1__FolderStatus *folder = status->folders[i];
        fprintf(out, "  %10s  %s  %s\n", text_show_amount(folder->bytes), text_fit(folder->path, left, path),
                text_fit(folder->artifact, left, name));
    }
}

static void put_users(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char name[TEXT_NAME_CHARS];
    if (status->n_users)
        fprintf(out, "\nusers        leased     kept  loading metadata leases conns calls  files uploads\n");
    for (size_t i = 0; i < status->n_users; i++) {
        const Tensorcast__Daemon__V1__UserStatus *user = status->users[i];
        fprintf(out, "  %-8s %8s %8s %8s %8s %6" PRIu64 " %5" PRIu64 " %5" PRIu64 " %6" PRIu64 " %7" PRIu64 "\n",
                user_name(user->uid, name), text_show_amount(user->held_bytes), text_show_amount(user->kept_bytes),
                text_show_amount(user->loading_bytes), text_show_amount(user->metadata_bytes), user->leases,
                user->connections, user->calls, user->descriptors, user->uploads);
    }
}

/* Of 10^9 bytes, which the daemon counts in. */
static double gib(double gigabytes)
{
    return gigabytes * 1e9 / (1 << 30);
}

/* On a narrow terminal a row has its name below. */
static void put_stores(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    bool is_narrow = columns && columns < WIDE_COLUMNS;
    char name[TEXT_NAME_CHARS];
    if (status->n_stores)
        fprintf(out, "\nstores  ms        each        all at once requests retries   received\n");
    for (size_t i = 0; i < status->n_stores; i++) {
        const Tensorcast__Daemon__V1__StoreStatus *row = status->stores[i];
        fprintf(out, "  %8.1f %11s %10s %7" PRIu32 " %8" PRIu64 " %7" PRIu64 " %10s%s%s\n", (double)row->latency_us / 1e3,
                text_show_rate(row->connection_gbps * 1e9), text_show_rate(row->total_gbps * 1e9), row->parallel_requests,
                row->requests, row->retries, text_show_amount(row->received_bytes), is_narrow ? "\n           " : "  ",
                text_fit(row->origin,
                         is_narrow ? columns - 11
                         : columns ? columns - 71
                                   : 0,
                         name));
    }
}

static void put_hosts(FILE *out, const Tensorcast__Daemon__V1__HostsStatus *hosts)
{
    fprintf(out, "hosts  etcd %s%s%s\n", hosts->etcd_state, *hosts->etcd_reason ? ": " : "", hosts->etcd_reason);
    for (size_t i = 0; i < hosts->n_hosts; i++) {
        const Tensorcast__Daemon__V1__HostStatus *row = hosts->hosts[i];
        fprintf(out, "  %-20s %-8s %-22s %-10s in %-9s out %-9s %s%s\n", row->name, row->state, row->address,
                *row->domain ? row->domain : "-", text_show_amount(row->in_bytes), text_show_amount(row->out_bytes),
                row->self ? "this host" : "", row->reason);
    }
}

char *status_hosts_text(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char *text = NULL;
    size_t length;
    FILE *out = memory_stream(&text, &length);
    if (status->hosts)
        put_hosts(out, status->hosts);
    else
        fputs("no other hosts: hosts.etcd.endpoints is empty\n", out);
    fclose(out);
    return text;
}

char *status_text(const Tensorcast__Daemon__V1__StatusResponse *status, size_t columns)
{
    char *text = NULL;
    size_t length;
    FILE *out = memory_stream(&text, &length);
    put_head(out, status);
    put_devices(out, status);
    put_replicas(out, status, columns);
    put_loads(out, status, columns);
    put_requests(out, status, columns);
    put_prewarms(out, status, columns);
    put_folders(out, status, columns);
    if (status->uploads && status->uploads->pending + status->uploads->failed)
        fprintf(out,
                "\nuploads  %" PRIu64 " to come (%s), %" PRIu64
                " failed: tensorcast activations status STORE says of which hosts, and why\n",
                status->uploads->pending, text_show_amount(status->uploads->pending_bytes), status->uploads->failed);
    put_users(out, status);
    if (status->n_calibration)
        fprintf(out, "\ncalibration  cached us GiB/s  uncached us GiB/s copy GiB/s fresh GiB/s  samples\n");
    for (size_t i = 0; i < status->n_calibration; i++) {
        const Tensorcast__Daemon__V1__CalibrationStatus *row = status->calibration[i];
        fprintf(out, "  %-10s %9.1f %5.2f %12.1f %5.2f %10.2f %11.2f %8" PRIu64 "\n", row->device, row->cached_request_us,
                gib(row->cached_gbps), row->uncached_request_us, gib(row->uncached_gbps), gib(row->copy_gbps),
                gib(row->fresh_gbps), row->samples);
    }
    put_stores(out, status, columns);
    if (status->hosts) {
        fputc('\n', out);
        put_hosts(out, status->hosts);
    }
    fclose(out);
    return text;
}
