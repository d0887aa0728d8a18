/* Turns a plan and what its run counted into the LoadReport that clients see: in an RPC's answer and, because the command
 * line runs the same engine standalone, in its JSON object. Pure; any thread. The report lives in the arena and borrows
 * texts of what it is made of. */
#ifndef API_REPORT_FILL_H
#define API_REPORT_FILL_H

#include <stdbool.h>

#include "base/arena.h"
#include "execute/collective.h"
#include "integrity/verify.h"
#include "load/into_report.h"
#include "plan/plan.h"
#include "resolve/mapping.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct report_facts {
    const char *load_id; /* NULL = "" */
    const struct mapping *mapping;
    const struct plan *plan;
    /* NULL: nothing was run. The numbers are then the chosen candidate's estimates or, with from_replica and is_mapped, zero. */
    const struct run_report *run;
    bool from_replica, joined, is_mapped;
    const struct verdict *verdict;  /* NULL in a plan */
    const struct into_report *into; /* NULL: no targets were filled */
    const char *memory;             /* page_kind_name(); NULL = "", in a plan */
    const char *device;             /* UUID of a GPU; NULL = host memory */
    double resolve_ms, plan_ms, total_ms, assemble_ms;
    const struct execution_topology *topology;    /* of the request */
    const struct collective_counters *collective; /* NULL unless the load was part of a collective that ran */
};

Tensorcast__Daemon__V1__LoadReport *report_fill(const struct report_facts *facts, struct arena *arena);

#endif
