/* What is counted of requests for replicas when they end: by executor, source and code; how long they took; how many bytes their
 * reports tell of. Plain numbers from the start to the end of the process, like those of observe/counters.h, for which this is
 * the table with more than one label. Every label is of a closed list.
 *
 * A load is counted by its own thread, the loop; any thread reads. A reader sees each number as it is at that moment. */
#ifndef LOAD_LOAD_COUNT_H
#define LOAD_LOAD_COUNT_H

#include <stdint.h>

#include "base/error.h"
#include "config/executor.h"
#include "load/load_result.h"

enum load_source {
    LOAD_SOURCE_DISK,
    LOAD_SOURCE_HTTPS,
    LOAD_SOURCE_HF,
    LOAD_SOURCE_GS,
    LOAD_SOURCE_S3,
    LOAD_SOURCE_MEM,
    LOAD_SOURCE_NONE, /* of a reference that names no source; its loads have all failed */
    LOAD_SOURCES
};
enum load_bytes {
    LOAD_BYTES_NEEDED,
    LOAD_BYTES_READ,
    LOAD_BYTES_COPIED,
    LOAD_BYTES_SHARED,
    LOAD_BYTES_PEER,
    LOAD_BYTES_KINDS
};
enum {
    LOAD_EXECUTORS = EXECUTOR_COUNT + 1, /* the last one: it ended before it had one */
    LOAD_CODES = ERROR_DATA_LOSS + 1,
    LOAD_BUCKETS = 16,
};
extern const char *const load_executor_names[LOAD_EXECUTORS], *const load_source_names[LOAD_SOURCES],
                                                                  *const load_bytes_names[LOAD_BYTES_KINDS];
extern const double load_bucket_s[LOAD_BUCKETS]; /* the upper bounds, rising */

/* "disk:/models/llama" -> LOAD_SOURCE_DISK; NULL is none. Pure. */
enum load_source load_source_of(const char *reference);

/* Loop thread. error NULL = it was served. A question whether something is resident is no load. */
void load_count_result(const struct load_result *result, const struct error *error);
/* Of one that was refused before it was a ticket. */
void load_count_refused(const char *reference, const struct error *error);

struct load_counts { /* of one executor and source */
    uint64_t ended[LOAD_CODES];
    uint64_t took[LOAD_BUCKETS + 1]; /* loads that were served, by time; each is in one; the last: longer than every bound */
    uint64_t total_ns;               /* of these */
};
struct load_counts load_counts_of(unsigned executor, enum load_source source);
uint64_t load_counted_bytes(enum load_bytes kind, enum load_source source);

#endif
