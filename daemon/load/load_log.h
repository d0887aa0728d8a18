/* The log lines of a load: one at info per request, the plan and the executor's timings at debug. Loop thread. */
#ifndef LOAD_LOG_H
#define LOAD_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "execute/collective.h"
#include "load/load_result.h"

void load_log_plan(const struct load_result *result,
                   double cached_share); /* strategy_plan, and why candidates were skipped */
void load_log_run(const char *load_id, const struct replica *parts, const struct error *error); /* executor timings */
void load_log_result(const struct load_result *result, bool plan_only,
                     const struct error *error); /* load_done, load_failed; nothing for NOT_RESIDENT */
/* What a whole group did, with what its plan estimated beside it. */
void load_log_collective(const char *group_id, uid_t uid, const struct plan *plan,
                         const struct collective_counters *counters);

struct into_report {
    bool collective_handled;     /* by the collective of a group */
    bool direct_write_supported; /* bytes may go from the source straight into the targets: there is an address, no element
                                    * is converted */
    bool source_ordered; /* every extent is read once, in the order of the file; else row by row, as they are wanted */
    const char *dominant_executor; /* an executor that was chosen does all of it */
    uint64_t committed_bytes;      /* written to targets, constants included; before the end those of the plan */
    uint64_t fallback_bytes;       /* of these, what the generic executor did for the chosen one */
};

/* False when there are no targets. Needs a plan. */
bool into_report_make(const struct load_result *result, struct into_report *report);

#endif
