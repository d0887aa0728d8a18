/* The log lines of a load: one at info per request, the plan and the executor's timings at debug. Loop thread. */
#ifndef LOAD_LOG_H
#define LOAD_LOG_H

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

#endif
