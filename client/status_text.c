/* One line about the daemon, one about its memory, then a block each for what there is of replicas, loads, calibration. */
#include "status_text.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { MAX_SHOWN_HOLDERS = 4 };

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void put_head(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char used[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS], staging[TEXT_SIZE_CHARS], extents[TEXT_SIZE_CHARS],
        pool[TEXT_SIZE_CHARS];
    fprintf(out, "tensorcastd %s  pid %" PRIu64 "  %s for %.0f s  %" PRIu64 " connection%s  %" PRIu64 " lease%s\n",
            status->version, status->pid, status->state, status->uptime_s, status->connections, plural(status->connections),
            status->leases, plural(status->leases));
    fprintf(out, "memory  %s of %s used  %s staging  %s extents  %s pooled", text_people_bytes(status->used_bytes, used),
            text_people_bytes(status->host_budget_bytes, budget), text_people_bytes(status->staging_bytes, staging),
            text_people_bytes(status->extent_bytes, extents), text_people_bytes(status->pool_bytes, pool));
    if (status->kept_bytes)
        fprintf(out, "  %s kept by clients without a lease", text_people_bytes(status->kept_bytes, used));
    fputc('\n', out);
}

static void put_devices(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char used[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS];
    for (size_t i = 0; i < status->n_devices; i++) {
        const Tensorcast__Daemon__V1__DeviceStatus *device = status->devices[i];
        fprintf(out, "cuda:%zu  %s of %s used  %s  %s  %s%s%s\n", i, text_people_bytes(device->used_bytes, used),
                text_people_bytes(device->budget_bytes, budget), device->device, device->model, device->state,
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
static void put_holders(FILE *out, const Tensorcast__Daemon__V1__ReplicaStatus *replica)
{
    char name[TEXT_NAME_CHARS];
    size_t n_shown = replica->n_held_by < MAX_SHOWN_HOLDERS ? replica->n_held_by : MAX_SHOWN_HOLDERS;
    for (size_t i = 0; i < n_shown; i++) {
        fputs(i ? ", " : "              held by ", out);
        const Tensorcast__Daemon__V1__LeaseStatus *lease = replica->held_by[i];
        if (lease->pid)
            fprintf(out, "%" PRIu64 " %s ", lease->pid, text_escape(lease->command, strlen(lease->command), name));
        fprintf(out, "(%s)", user_name(lease->uid, name));
    }
    if (n_shown && n_shown < replica->leases)
        fprintf(out, " and %" PRIu64 " more", replica->leases - n_shown);
    if (n_shown)
        fputc('\n', out);
}

static void put_replicas(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char size[TEXT_SIZE_CHARS], name[TEXT_NAME_CHARS], idle[32];
    fprintf(out, "\nreplicas  %zu\n", status->n_replicas);
    for (size_t i = 0; i < status->n_replicas; i++) {
        const Tensorcast__Daemon__V1__ReplicaStatus *replica = status->replicas[i];
        snprintf(idle, sizeof idle, "idle %6.0f s", replica->idle_s);
        fprintf(out, "  %10s  %3" PRIu64 " lease%-1s  %-7s  %-13s  view %.12s  %s\n",
                text_people_bytes(replica->bytes, size), replica->leases, plural(replica->leases), replica->memory,
                replica->leases ? "held" : idle, replica->view_digest,
                text_escape(replica->artifact, strlen(replica->artifact), name));
        put_holders(out, replica);
    }
}

static void put_loads(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char done[TEXT_SIZE_CHARS], total[TEXT_SIZE_CHARS], name[TEXT_NAME_CHARS];
    fprintf(out, "\nloads  %zu\n", status->n_loads);
    for (size_t i = 0; i < status->n_loads; i++) {
        const Tensorcast__Daemon__V1__LoadStatus *load = status->loads[i];
        fprintf(out, "  %-10s %s of %s  %" PRIu64 " client%s  %.1f s  %s  %s\n", load->stage,
                text_people_bytes(load->done_bytes, done), text_people_bytes(load->total_bytes, total), load->clients,
                plural(load->clients), load->age_s, load->load_id,
                text_escape(load->artifact, strlen(load->artifact), name));
    }
}

static void put_folders(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char size[TEXT_SIZE_CHARS], name[TEXT_NAME_CHARS], path[TEXT_NAME_CHARS];
    if (status->n_folders)
        fprintf(out, "\nfolders\n");
    for (size_t i = 0; i < status->n_folders; i++) {
        const Tensorcast__Daemon__V1__FolderStatus *folder = status->folders[i];
        fprintf(out, "  %10s  %s  %s\n", text_people_bytes(folder->bytes, size),
                text_escape(folder->path, strlen(folder->path), path),
                text_escape(folder->artifact, strlen(folder->artifact), name));
    }
}

static void put_users(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char held[TEXT_SIZE_CHARS], kept[TEXT_SIZE_CHARS], loading[TEXT_SIZE_CHARS], metadata[TEXT_SIZE_CHARS],
        name[TEXT_NAME_CHARS];
    if (status->n_users)
        fprintf(out,
                "\nusers      leased        kept     loading    metadata   leases   connections   requests   descriptors\n");
    for (size_t i = 0; i < status->n_users; i++) {
        const Tensorcast__Daemon__V1__UserStatus *user = status->users[i];
        fprintf(out, "       %10s  %10s  %10s  %10s  %7" PRIu64 "  %12" PRIu64 "  %9" PRIu64 "  %12" PRIu64 "  %s\n",
                text_people_bytes(user->held_bytes, held), text_people_bytes(user->kept_bytes, kept),
                text_people_bytes(user->loading_bytes, loading), text_people_bytes(user->metadata_bytes, metadata),
                user->leases, user->connections, user->calls, user->descriptors, user_name(user->uid, name));
    }
}

static void put_calibration(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    if (status->n_calibration)
        fprintf(out, "\ncalibration   cached us   GB/s   uncached us   GB/s   copy GB/s   fresh GB/s   samples\n");
    for (size_t i = 0; i < status->n_calibration; i++) {
        const Tensorcast__Daemon__V1__CalibrationStatus *row = status->calibration[i];
        fprintf(out, "  %-10s  %9.1f  %5.2f  %12.1f  %5.2f  %10.2f  %11.2f  %8" PRIu64 "\n", row->device,
                row->cached_request_us, row->cached_gbps, row->uncached_request_us, row->uncached_gbps, row->copy_gbps,
                row->fresh_gbps, row->samples);
    }
}

static void put_stores(FILE *out, const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char name[TEXT_NAME_CHARS], received[TEXT_SIZE_CHARS];
    if (status->n_stores)
        fprintf(out, "\nstores   latency ms   GB/s each   GB/s all   at once   requests   retries    received\n");
    for (size_t i = 0; i < status->n_stores; i++) {
        const Tensorcast__Daemon__V1__StoreStatus *row = status->stores[i];
        fprintf(out, "         %10.1f  %10.3f  %9.2f  %8" PRIu32 "  %9" PRIu64 "  %8" PRIu64 "  %10s  %s\n",
                (double)row->latency_us / 1e3, row->connection_gbps, row->total_gbps, row->parallel_requests, row->requests,
                row->retries, text_people_bytes(row->received_bytes, received),
                text_escape(row->origin, strlen(row->origin), name));
    }
}

char *status_text(const Tensorcast__Daemon__V1__StatusResponse *status)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        abort(); /* out of memory for a page of text */
    put_head(out, status);
    put_devices(out, status);
    put_replicas(out, status);
    put_loads(out, status);
    put_folders(out, status);
    put_users(out, status);
    put_calibration(out, status);
    put_stores(out, status);
    fclose(out);
    return text;
}
