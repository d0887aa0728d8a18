#include "operators/metrics.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>

#include "base/kernel_text.h"
#include "load/load_count.h"
#include "observe/counters.h"
#include "operators/exposition.h"

typedef Tensorcast__Daemon__V1__StatusResponse status_response;

#define LABELS(...) ((const struct exposition_label[]){__VA_ARGS__, {0}})

static void put_gauge(struct exposition *out, const char *name, const char *help, uint64_t value)
{
    exposition_family(out, name, EXPOSITION_GAUGE, help);
    exposition_u64(out, name, value, NULL);
}

/* --- loads ------------------------------------------------------------------------------------------------------------ */

static void put_loads(struct exposition *out)
{
    static const char ended[] = "tensorcast_loads", took[] = "tensorcast_load_duration_seconds";
    exposition_family(out, ended, EXPOSITION_COUNTER, "Requests for weights that have ended, by their code.");
    for (unsigned pair = 0; pair < LOAD_EXECUTORS * LOAD_SOURCES; pair++) {
        unsigned executor = pair / LOAD_SOURCES, source = pair % LOAD_SOURCES;
        const struct load_counts counts = load_counts_of(executor, source);
        for (unsigned code = 0; code < LOAD_CODES; code++)
            if (counts.ended[code])
                exposition_u64(out, ended, counts.ended[code],
                               LABELS({"executor", load_executor_names[executor]}, {"source", load_source_names[source]},
                                      {"code", error_code_name(code)}));
    }
    exposition_family(out, took, EXPOSITION_HISTOGRAM, "Time of the loads that were served, from request to answer.");
    for (unsigned pair = 0; pair < LOAD_EXECUTORS * LOAD_SOURCES; pair++) {
        unsigned executor = pair / LOAD_SOURCES, source = pair % LOAD_SOURCES;
        const struct load_counts counts = load_counts_of(executor, source);
        const struct exposition_histogram histogram = {
            .bounds = load_bucket_s, .numbers = counts.took, .n_bounds = LOAD_BUCKETS, .sum = (double)counts.total_ns / 1e9};
        if (counts.ended[ERROR_OK])
            exposition_histogram(out, took, &histogram,
                                 LABELS({"executor", load_executor_names[executor]}, {"source", load_source_names[source]}));
    }
}

static void put_load_bytes(struct exposition *out)
{
    static const char name[] = "tensorcast_load_bytes";
    exposition_family(out, name, EXPOSITION_COUNTER, "Bytes that the reports of loads tell of, by how they came.");
    for (enum load_bytes kind = 0; kind < LOAD_BYTES_KINDS; kind++)
        for (enum load_source source = 0; source < LOAD_SOURCE_NONE; source++)
            exposition_u64(out, name, load_counted_bytes(kind, source),
                           LABELS({"kind", load_bytes_names[kind]}, {"source", load_source_names[source]}));
}

static void put_artifacts(struct exposition *out, const struct artifact_counts *artifacts)
{
    static const char name[] = "tensorcast_artifact_loads";
    exposition_family(out, name, EXPOSITION_COUNTER, "Loads that were served, of the busiest artifacts and of all others.");
    for (size_t i = 0; i < artifacts->n; i++)
        exposition_u64(out, name, artifacts->busiest[i].loads, LABELS({"artifact", artifacts->busiest[i].reference}));
    exposition_u64(out, name, artifacts->other, LABELS({"artifact", "other"}));
}

/* --- everything that is in the table of counters ------------------------------------------------------------------------ */

static void put_counters(struct exposition *out)
{
    char name[64];
    for (enum counter counter = 0; counter < COUNTERS_N; counter++) {
        const struct counters_row *row = &counters_rows[counter];
        const struct exposition_label labels[] = {{row->label, row->value}, {0}}, *own = *row->label ? labels : NULL;
        snprintf(name, sizeof name, "tensorcast_%s", row->name);
        if (*row->help)
            exposition_family(out, name, EXPOSITION_COUNTER, row->help);
        if (strcmp(row->unit, "ns") == 0)
            exposition_real(out, name, (double)counters_get(counter) / 1e9, own);
        else
            exposition_u64(out, name, counters_get(counter), own);
    }
    exposition_family(out, "tensorcast_replica_evictions", EXPOSITION_COUNTER,
                      "Replicas that went because another one needed their memory, descriptors or metadata.");
    exposition_u64(out, "tensorcast_replica_evictions",
                   counters_get(COUNTER_DROPPED) + counters_get(COUNTER_DROPPED_DESCRIPTORS) +
                       counters_get(COUNTER_DROPPED_METADATA),
                   NULL);
}

/* --- gauges ------------------------------------------------------------------------------------------------------------- */

static void put_memory(struct exposition *out, const struct snapshot *snapshot, const status_response *status)
{
    static const char used[] = "tensorcast_memory_used_bytes", budget[] = "tensorcast_memory_budget_bytes";
    const struct {
        const char *name;
        uint64_t used, budget;
    } rows[] = {{"host", status->used_bytes, status->host_budget_bytes},
                {"staging", status->staging_bytes, snapshot->staging_budget_bytes},
                {"pool", status->pool_bytes, snapshot->pool_budget_bytes},
                {"extent_cache", status->extent_bytes, snapshot->extent_budget_bytes}};
    exposition_family(out, used, EXPOSITION_GAUGE, "Memory in use, by the budget that it counts for.");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        exposition_u64(out, used, rows[i].used, LABELS({"budget", rows[i].name}));
    exposition_family(out, budget, EXPOSITION_GAUGE, "Largest use of memory that a budget allows.");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        exposition_u64(out, budget, rows[i].budget, LABELS({"budget", rows[i].name}));
}

static void put_quotas(struct exposition *out, const status_response *status)
{
    exposition_family(out, "tensorcast_quota_taken", EXPOSITION_GAUGE, "What users have of a resource that they share.");
    for (size_t i = 0; i < status->n_quotas; i++)
        exposition_u64(out, "tensorcast_quota_taken", status->quotas[i]->taken,
                       LABELS({"resource", status->quotas[i]->resource}));
    exposition_family(out, "tensorcast_quota_limit", EXPOSITION_GAUGE, "What there is of a resource that users share.");
    for (size_t i = 0; i < status->n_quotas; i++)
        exposition_u64(out, "tensorcast_quota_limit", status->quotas[i]->limit,
                       LABELS({"resource", status->quotas[i]->resource}));
}

static void put_queues(struct exposition *out, const struct snapshot *snapshot)
{
    static const char waiting[] = "tensorcast_helper_work_waiting", running[] = "tensorcast_helper_work_running";
    static const char *const pools[LOOP_POOLS] = {
        [LOOP_LOCAL] = "local", [LOOP_DISK] = "disk", [LOOP_REMOTE] = "remote", [LOOP_VERIFY] = "verify"};
    exposition_family(out, waiting, EXPOSITION_GAUGE, "Steps of requests that wait for a helper thread.");
    for (enum loop_pool pool = 0; pool < LOOP_POOLS; pool++)
        exposition_u64(out, waiting, snapshot->queues[pool].waiting, LABELS({"pool", pools[pool]}));
    exposition_family(out, running, EXPOSITION_GAUGE, "Steps of requests that helper threads are at.");
    for (enum loop_pool pool = 0; pool < LOOP_POOLS; pool++)
        exposition_u64(out, running, snapshot->queues[pool].running, LABELS({"pool", pools[pool]}));
}

static void put_devices(struct exposition *out, const struct snapshot *snapshot, const status_response *status)
{
    put_gauge(out, "tensorcast_devices", "GPUs that the daemon has found.", status->n_devices);
    put_gauge(out, "tensorcast_devices_out_of_service", "GPUs that have failed and are not used any more.",
              snapshot->n_devices_out_of_service);
    if (!status->n_devices)
        return;
    exposition_family(out, "tensorcast_device_memory_used_bytes", EXPOSITION_GAUGE, "Memory of a GPU in use.");
    for (size_t i = 0; i < status->n_devices; i++)
        exposition_u64(out, "tensorcast_device_memory_used_bytes", status->devices[i]->used_bytes,
                       LABELS({"device", status->devices[i]->device}));
    exposition_family(out, "tensorcast_device_memory_budget_bytes", EXPOSITION_GAUGE,
                      "Most memory of a GPU that the daemon uses.");
    for (size_t i = 0; i < status->n_devices; i++)
        exposition_u64(out, "tensorcast_device_memory_budget_bytes", status->devices[i]->budget_bytes,
                       LABELS({"device", status->devices[i]->device}));
}

static void put_hosts(struct exposition *out, const struct snapshot *snapshot)
{
    exposition_family(out, "tensorcast_hosts", EXPOSITION_GAUGE, "Hosts that etcd lists, this one too, by state.");
    for (enum host_state state = HOST_ALIVE; state < HOST_STATES; state++)
        exposition_u64(out, "tensorcast_hosts", snapshot->n_hosts[state], LABELS({"state", host_state_name(state)}));
    if (snapshot->has_hosts)
        put_gauge(out, "tensorcast_etcd_connected", "Whether etcd answers.", snapshot->is_etcd_connected);
}

/* Of object stores that were read from; the daemon remembers a bounded number of those that it does not use now. */
static void put_origins(struct exposition *out, const status_response *status)
{
    enum { LATENCY, RATE, IN_FLIGHT, REQUESTS, RETRIES, HEDGES, THROTTLED, RECEIVED, COLUMNS };
    static const struct {
        const char *name, *help;
        enum exposition_type type;
    } columns[COLUMNS] = {
        [LATENCY] = {"tensorcast_origin_latency_seconds", "Time to the first byte of a store, as learned.",
                     EXPOSITION_GAUGE},
        [RATE] = {"tensorcast_origin_bytes_per_second", "Rate of a store, as learned.", EXPOSITION_GAUGE},
        [IN_FLIGHT] = {"tensorcast_origin_requests_running", "Blocks that are being read.", EXPOSITION_GAUGE},
        [REQUESTS] = {"tensorcast_origin_requests", "Requests to a store.", EXPOSITION_COUNTER},
        [RETRIES] = {"tensorcast_origin_retries", "Requests to a store that were sent again after a failure.",
                     EXPOSITION_COUNTER},
        [HEDGES] = {"tensorcast_origin_hedges", "Requests to a store that were sent beside a slow one.", EXPOSITION_COUNTER},
        [THROTTLED] = {"tensorcast_origin_throttled", "Requests whose answer asks for fewer.", EXPOSITION_COUNTER},
        [RECEIVED] = {"tensorcast_origin_received_bytes", "Bytes of a store's answers.", EXPOSITION_COUNTER}};
    for (size_t column = 0; column < COLUMNS && status->n_stores; column++) {
        exposition_family(out, columns[column].name, columns[column].type, columns[column].help);
        for (size_t i = 0; i < status->n_stores; i++) {
            const Tensorcast__Daemon__V1__StoreStatus *row = status->stores[i];
            const double values[COLUMNS] = {
                (double)row->latency_us / 1e6, row->total_gbps * 1e9, (double)row->in_flight, (double)row->requests,
                (double)row->retries,          (double)row->hedges,   (double)row->throttled, (double)row->received_bytes};
            exposition_real(out, columns[column].name, values[column], LABELS({"origin", row->origin}));
        }
    }
}

static void put_gauges(struct exposition *out, const struct snapshot *snapshot, const status_response *status)
{
    put_gauge(out, "tensorcast_loads_running", "Loads that read now.", snapshot->n_loads);
    put_gauge(out, "tensorcast_ranks_waiting", "Ranks whose requests wait for the others of their group.",
              snapshot->n_waiting_ranks);
    put_gauge(out, "tensorcast_replicas", "Replicas in memory.", snapshot->n_replicas);
    put_gauge(out, "tensorcast_leases", "Leases that processes hold.", status->leases);
    put_gauge(out, "tensorcast_connections", "Connections of clients.", status->connections);
    put_gauge(out, "tensorcast_cached_headers_bytes", "Memory of parsed headers.", status->cached_headers_bytes);
    put_gauge(out, "tensorcast_uploads_pending", "Files that wait to be uploaded.", status->uploads->pending);
    put_gauge(out, "tensorcast_uploads_pending_bytes", "Bytes of the files that wait to be uploaded.",
              status->uploads->pending_bytes);
    put_gauge(out, "tensorcast_uploads_failed", "Uploads that were refused and need an operator.", status->uploads->failed);
    put_gauge(out, "tensorcast_draining", "Whether the daemon is stopping.", snapshot->is_draining);
    exposition_family(out, "tensorcast_build_info", EXPOSITION_GAUGE, "The version that runs.");
    exposition_u64(out, "tensorcast_build_info", 1, LABELS({"version", status->version}));
}

/* --- this process, as the client libraries of Prometheus tell it ---------------------------------------------------------- */

static uint64_t count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t n = 0;
    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n > 3 ? n - 3 : 0; /* ".", ".." and its own */
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static void put_process(struct exposition *out, const struct snapshot *snapshot)
{
    static const char status[] = "/proc/self/status";
    struct rusage usage;
    struct rlimit files;
    getrusage(RUSAGE_SELF, &usage);
    getrlimit(RLIMIT_NOFILE, &files);
    exposition_family(out, "process_cpu_seconds", EXPOSITION_COUNTER, "Processor time, of user and kernel.");
    exposition_real(out, "process_cpu_seconds", seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime), NULL);
    put_gauge(out, "process_resident_memory_bytes", "Memory in use, shared memory too.",
              kernel_text_sum(status, (const char *const[]){"VmRSS:", NULL}) << 10);
    put_gauge(out, "process_virtual_memory_bytes", "Addresses in use.",
              kernel_text_sum(status, (const char *const[]){"VmSize:", NULL}) << 10);
    put_gauge(out, "process_open_fds", "Open descriptors.", count_descriptors());
    put_gauge(out, "process_max_fds", "Most that may be open.", files.rlim_cur);
    put_gauge(out, "process_threads", "Threads.", kernel_text_sum(status, (const char *const[]){"Threads:", NULL}));
    exposition_family(out, "process_start_time_seconds", EXPOSITION_GAUGE, "When it was started, since the epoch.");
    exposition_real(out, "process_start_time_seconds", snapshot->started_at_s, NULL);
}

char *metrics_text(const struct snapshot *snapshot, bool is_openmetrics, size_t *length)
{
    struct exposition out;
    status_response *status = snapshot_status(snapshot);
    exposition_begin(&out, is_openmetrics);
    put_loads(&out);
    put_load_bytes(&out);
    put_artifacts(&out, &snapshot->artifacts);
    put_counters(&out);
    put_gauges(&out, snapshot, status);
    put_memory(&out, snapshot, status);
    put_quotas(&out, status);
    put_queues(&out, snapshot);
    put_devices(&out, snapshot, status);
    put_hosts(&out, snapshot);
    put_origins(&out, status);
    put_process(&out, snapshot);
    snapshot_free_status(status);
    return exposition_end(&out, length);
}
