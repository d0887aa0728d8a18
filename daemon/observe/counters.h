/* What the daemon counts from its start to its end: one static table of names, units and meanings. The code that does the work
 * adds to it, without a lock (relaxed atomics): blocks when they end, loads when they end, HTTP requests, evictions. Status reads it.
 * A reader sees each counter as it is at that moment, not all of them at one moment. Any thread.
 *
 * A family is rows of one name, which differ in the value of their label. Labels are a closed list: nothing that a client says
 * is one. */
#ifndef OBSERVE_COUNTERS_H
#define OBSERVE_COUNTERS_H

#include <stdint.h>

/* X(id, name, label's key, its value, unit, help): help "" = as the row before; key "" = the name has this row alone. The name is
 * that of the metric tensorcast_NAME_total; of unit "ns", which is counted, the metric has seconds. */
#define COUNTERS(X)                                                                                                         \
    X(LOADS_READ, "load_results", "result", "read", "requests",                                                             \
      "Requests for weights that have ended, by what became of them.")                                                      \
    X(LOADS_JOINED, "load_results", "result", "joined", "requests", "")                                                     \
    X(LOADS_RESIDENT, "load_results", "result", "resident", "requests", "")                                                 \
    X(LOADS_MAPPED, "load_results", "result", "mapped", "requests", "")                                                     \
    X(LOADS_CANCELLED, "load_results", "result", "cancelled", "requests", "")                                               \
    X(LOADS_REFUSED, "load_results", "result", "refused", "requests", "")                                                   \
    X(LOADS_FAILED, "load_results", "result", "failed", "requests", "")                                                     \
    X(DELIVERED_BYTES, "delivered_bytes", "", "", "bytes", "Bytes of the views that were handed out.")                      \
    X(RESOLVE_NS, "load_stage_seconds", "stage", "resolve", "ns", "Time of the requests that were served, by stage.")       \
    X(PLAN_NS, "load_stage_seconds", "stage", "plan", "ns", "")                                                             \
    X(GROUP_NS, "load_stage_seconds", "stage", "group", "ns", "")                                                           \
    X(TOTAL_NS, "load_stage_seconds", "stage", "total", "ns", "")                                                           \
    X(RUNS, "load_runs", "executor", "generic_byte_range", "loads", "Loads that read, by executor.")                        \
    X(RUNS_LOCAL, "load_runs", "executor", "tensor_batched_local", "loads", "")                                             \
    X(RUNS_COLLECTIVE, "load_runs", "executor", "owner_file_collective", "loads", "")                                       \
    X(READ_BYTES, "read_bytes", "source", "disk", "bytes", "Bytes that blocks asked of sources.")                           \
    X(READ_BYTES_GS, "read_bytes", "source", "gs", "bytes", "")                                                             \
    X(READ_BYTES_S3, "read_bytes", "source", "s3", "bytes", "")                                                             \
    X(READ_BYTES_HF, "read_bytes", "source", "hf", "bytes", "")                                                             \
    X(READ_BYTES_HTTPS, "read_bytes", "source", "https", "bytes", "")                                                       \
    X(READ_BYTES_OTHER, "read_bytes", "source", "other", "bytes", "")                                                       \
    X(READ_REQUESTS, "read_extents", "", "", "extents", "Extents in which blocks asked sources for bytes.")                 \
    X(CACHED_BYTES, "cached_bytes", "", "", "bytes", "Bytes asked of disks that were in the page cache.")                   \
    X(SHARED_BYTES, "shared_bytes", "", "", "bytes",                                                                        \
      "Bytes taken from another load's read or memory instead of the source.")                                              \
    X(PEER_BYTES, "peer_bytes", "", "", "bytes", "Bytes of blocks that other hosts sent.")                                  \
    X(HEDGED_BYTES, "hedged_bytes", "", "", "bytes", "Bytes that another host or this one read, as their owner was late.")  \
    X(DIRECT_BYTES, "direct_bytes", "", "", "bytes", "Bytes read straight into their place.")                               \
    X(COPIED_BYTES, "copied_bytes", "", "", "bytes", "Bytes copied to their place from staging or another replica.")        \
    X(VERDICTS, "load_verdicts", "verified", "verified", "loads", "Loads that read, by what vouches for their bytes.")      \
    X(VERDICTS_PARTIAL, "load_verdicts", "verified", "partial", "loads", "")                                                \
    X(VERDICTS_UNVERIFIED, "load_verdicts", "verified", "unverified", "loads", "")                                          \
    X(VERDICTS_OFF, "load_verdicts", "verified", "off", "loads", "")                                                        \
    X(HEALED, "healed_ranges", "", "", "ranges",                                                                            \
      "Ranges that did not match their checksum, and did when they were read once more.")                                   \
    X(DROPPED, "replicas_dropped", "reason", "evicted", "replicas", "Replicas that went, by reason.")                       \
    X(DROPPED_IDLE, "replicas_dropped", "reason", "idle", "replicas", "")                                                   \
    X(DROPPED_RELEASED, "replicas_dropped", "reason", "released", "replicas", "")                                           \
    X(DROPPED_CHANGED, "replicas_dropped", "reason", "source_changed", "replicas", "")                                      \
    X(DROPPED_DESCRIPTORS, "replicas_dropped", "reason", "descriptors", "replicas", "")                                     \
    X(DROPPED_METADATA, "replicas_dropped", "reason", "metadata", "replicas", "")                                           \
    X(DROPPED_OTHER, "replicas_dropped", "reason", "other", "replicas", "")                                                 \
    X(HTTP_REQUESTS, "store_requests", "", "", "requests", "Requests to stores.")                                           \
    X(HTTP_RETRIES, "store_retries", "", "", "requests", "Requests to stores that were sent again after a failure.")        \
    X(HTTP_HEDGES, "store_hedges", "", "", "requests", "Requests to stores that were sent beside a slow one (hedged).")     \
    X(HTTP_THROTTLED, "store_throttled", "", "", "requests", "Requests to stores whose answer asks for fewer.")             \
    X(HTTP_RECEIVED_BYTES, "store_received_bytes", "", "", "bytes", "Bytes of the answers of stores.")                      \
    X(LOG_DROPPED, "log_lines_dropped", "", "", "lines", "Log lines for which the queue had no room.")

#define COUNTERS_ID(id, ...) COUNTER_##id,
enum counter { COUNTERS(COUNTERS_ID) COUNTERS_N };
#undef COUNTERS_ID

struct counters_row {
    const char *name, *label, *value, *unit, *help;
};
extern const struct counters_row counters_rows[COUNTERS_N];

void counters_add(enum counter counter, uint64_t n);
uint64_t counters_get(enum counter counter);
/* The row of a family, by its first one, that has this label; else its last one. */
enum counter counters_find(enum counter first, const char *value);
/* The sum of a family, by its first row. */
uint64_t counters_sum(enum counter first);

#endif
