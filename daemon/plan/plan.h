/* The materialization facade: builds one read-only plan out of three candidates, in fixed order, each with its numbers
 * and a stated reason; then selects one. Only this module decides which executor runs; executors never fall back.
 *
 * Pure: no clock, no I/O. What it knows of the machine arrives as `struct plan_facts`. The plan is const once built;
 * memory belongs to it (plan_destroy). Candidate and selection reasons, and what to do about them: docs/planning.md. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"
#include "device/device.h"
#include "normalize/load_spec.h"
#include "plan/collective_plan.h"
#include "plan/cost.h"
#include "plan/hosts_choice.h"
#include "plan/reason.h"
#include "plan/transport_choice.h"
#include "resolve/mapping.h"
#include "source/source.h"

/* Whether a view had better be handed out as the files' own pages than be copied: for clients that leave that to the daemon. */
struct mapped_facts {
    bool is_possible;
    enum immutability proof; /* when it is possible: the weakest of the files', by nothing when there are none */
    const char *reason;      /* else why not, naming a file or a tensor */
};

struct mapped_choice {
    bool is_known; /* there were facts; else nothing of the rest means anything */
    bool is_possible;
    enum immutability proof;
    const char *reason;  /* NULL when possible */
    double estimated_ms; /* when possible: until every page was touched, as nothing is read before */
    bool is_quicker;     /* than copying */
};

struct candidate {
    enum executor executor;
    bool eligible;
    struct reason reason;         /* "eligible", "exact_generic_fallback", or why not */
    uint64_t requested_bytes;     /* bytes of the view */
    uint64_t unique_source_bytes; /* distinct source bytes the view needs */
    uint64_t read_bytes;          /* bytes it would ask of the source */
    uint64_t requests;
    uint64_t peak_temporary_bytes;
    double estimated_ms;
};

/* `count` extents of `bytes`, `stride` apart: what is read from one file. Sorted by offset, disjoint spans; together they
 * cover every byte run of the mapping. An extent may be long: the engine cuts it into work items. */
struct plan_step {
    uint64_t offset, bytes, count, stride;
    uint32_t file;
};

struct plan {
    struct candidate candidates[EXECUTOR_COUNT];
    enum executor executor;
    struct reason selection;
    struct plan_step *steps; /* by file, then offset */
    size_t n_steps;
    size_t *file_first;      /* steps of file f are [file_first[f], file_first[f + 1]) */
    uint64_t residual_bytes; /* bytes the chosen executor cannot cover: 0 in every plan we run */
    uint64_t merge_gap_bytes;
    double cached_share;               /* as in the facts: what was in the page cache when it was made */
    uint64_t n_jobs[JOB_EMPTY + 1];    /* tensors per kind */
    struct collective_plan *group;     /* one reference; NULL unless the whole group's plan was known */
    uint32_t rank, world_size;         /* of the group; 0 of 0 without one */
    const char *group_id;              /* NULL without one */
    struct transport_choice transport; /* of the group; empty unless its plan was known */
    struct mapped_choice mapped;       /* instead of running it; the caller's to decide */
    struct hosts_choice hosts;         /* which way the bytes come when it runs */
    struct arena arena;
};

struct plan_facts {
    const struct materialization_strategy *strategy;
    const struct cost_constants *costs; /* of the source's device */
    struct source_caps source;
    struct source_speed speed; /* of a remote source: what it has learned */
    struct device_caps device;
    uint64_t staging_budget_bytes, extent_cache_bytes;
    uint64_t host_budget_bytes;        /* that what is loaded has to fit into; 0 = it goes elsewhere */
    double cached_share;               /* of the mapping's source bytes */
    const struct mapped_facts *mapped; /* NULL = not asked for */
    struct transport_supply transports;
    struct collective_plan *group;            /* what the ranks do together, once all of them are known; else NULL */
    const struct transport_choice *transport; /* the group's; NULL like it */
    struct hosts_facts hosts;                 /* what is known of other hosts; plan_build() adds what is of the load */
    struct reason
        group_problem; /* why this load has to do without its group; REASON_ELIGIBLE = nothing is known against it */
};

/* A plan that selects the collective without facts->group is what one rank would like: it cannot be run, the group has to
 * assemble first. Fails only when nothing may run: a required collective that cannot be (FAILED_PRECONDITION), or whose
 * other ranks did not come in time (DEADLINE_EXCEEDED). NULL on error. */
struct plan *plan_build(const struct mapping *mapping, const struct load_spec *spec, const struct plan_facts *facts,
                        struct error *error);
void plan_destroy(struct plan *plan); /* accepts NULL */

#endif
