#include "load/load_count.h"

#include <string.h>

#include "load/artifact_count.h"
#include "observe/counters.h"
#include "observe/log.h"

#define NAME(id, name, preference, alias, original) name,
const char *const load_executor_names[LOAD_EXECUTORS] = {EXECUTORS(NAME) "none"};
const char *const load_source_names[LOAD_SOURCES] = {"disk", "https", "hf", "gs", "s3", "mem", "none"};
const char *const load_bytes_names[LOAD_BYTES_KINDS] = {"needed", "read", "copied", "shared", "peer"};
const double load_bucket_s[LOAD_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

static struct load_counts counts[LOAD_EXECUTORS][LOAD_SOURCES]; /* atomic, like the bytes */
static uint64_t bytes[LOAD_BYTES_KINDS][LOAD_SOURCES];

static void count_more(uint64_t *number, uint64_t n)
{
    __atomic_fetch_add(number, n, __ATOMIC_RELAXED);
}

static uint64_t counted(const uint64_t *number)
{
    return __atomic_load_n(number, __ATOMIC_RELAXED);
}

enum load_source load_source_of(const char *reference)
{
    size_t length = reference ? strcspn(reference, ":") : 0;
    if (length == 4 && memcmp(reference, "http", 4) == 0)
        return LOAD_SOURCE_HTTPS; /* the same store */
    for (enum load_source source = 0; source < LOAD_SOURCE_NONE; source++)
        if (strlen(load_source_names[source]) == length && memcmp(reference, load_source_names[source], length) == 0)
            return source;
    return LOAD_SOURCE_NONE;
}

/* What its report says, see report_fill(). */
static void count_bytes(const struct load_result *result, enum load_source source)
{
    const struct run *run = result->origin == LOAD_FROM_REPLICA ? NULL : result->replica->run;
    count_more(&bytes[LOAD_BYTES_NEEDED][source], result->mapping->view_bytes);
    if (!run)
        return;
    const struct run_report *report = run_report(run);
    count_more(&bytes[LOAD_BYTES_READ][source], report->read_bytes);
    count_more(&bytes[LOAD_BYTES_COPIED][source], report->copied_bytes);
    count_more(&bytes[LOAD_BYTES_SHARED][source], report->shared_bytes);
    count_more(&bytes[LOAD_BYTES_PEER][source], report->peer_bytes);
}

static void count_failure(const char *reference, unsigned executor, const struct error *error)
{
    bool is_refused = error->code == ERROR_RESOURCE_EXHAUSTED || log_level_of_error(error) == LOG_INFO;
    counters_add(error->code == ERROR_CANCELLED ? COUNTER_LOADS_CANCELLED
                 : is_refused                   ? COUNTER_LOADS_REFUSED
                                                : COUNTER_LOADS_FAILED,
                 1);
    count_more(&counts[executor][load_source_of(reference)].ended[error->code], 1);
}

void load_count_refused(const char *reference, const struct error *error)
{
    count_failure(reference, EXECUTOR_COUNT, error);
}

void load_count_result(const struct load_result *result, const struct error *error)
{
    static const enum counter served[] = {[LOAD_OWN] = COUNTER_LOADS_READ,
                                          [LOAD_JOINED] = COUNTER_LOADS_JOINED,
                                          [LOAD_FROM_REPLICA] = COUNTER_LOADS_RESIDENT,
                                          [LOAD_MAPPED] = COUNTER_LOADS_MAPPED};
    if (error) {
        if (error->kind != ERROR_KIND_NOT_RESIDENT)
            count_failure(result->artifact, result->has_executor ? result->executor : EXECUTOR_COUNT, error);
        return;
    }
    const char *reference = result->mapping->artifact->reference;
    enum load_source source = load_source_of(reference);
    struct load_counts *sum = &counts[result->executor][source];
    size_t bucket = 0;
    while (bucket < LOAD_BUCKETS && (double)result->times.total_ns / 1e9 > load_bucket_s[bucket])
        bucket++;
    counters_add(served[result->origin], 1);
    counters_add(COUNTER_DELIVERED_BYTES, result->mapping->view_bytes);
    counters_add(COUNTER_RESOLVE_NS, result->times.resolve_ns);
    counters_add(COUNTER_PLAN_NS, result->times.plan_ns);
    counters_add(COUNTER_GROUP_NS, result->times.assemble_ns);
    counters_add(COUNTER_TOTAL_NS, result->times.total_ns);
    count_more(&sum->ended[ERROR_OK], 1);
    count_more(&sum->took[bucket], 1);
    count_more(&sum->total_ns, result->times.total_ns);
    count_bytes(result, source);
    artifact_count_add(reference);
}

struct load_counts load_counts_of(unsigned executor, enum load_source source)
{
    const struct load_counts *sum = &counts[executor][source];
    struct load_counts copy;
    for (size_t i = 0; i < LOAD_CODES; i++)
        copy.ended[i] = counted(&sum->ended[i]);
    for (size_t i = 0; i <= LOAD_BUCKETS; i++)
        copy.took[i] = counted(&sum->took[i]);
    copy.total_ns = counted(&sum->total_ns);
    return copy;
}

uint64_t load_counted_bytes(enum load_bytes kind, enum load_source source)
{
    return counted(&bytes[kind][source]);
}
