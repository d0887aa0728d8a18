/* Where the time of a request went, from submit to the answer. Its stages follow each other without gaps. The stage `execute` also
 * has what the load's run did. Bounded: a request with more stages than there is room for stays in the last one.
 *
 * Loop thread. The last TRACES_KEPT requests for weights stay, however they ended. */
#ifndef LOAD_TRACE_H
#define LOAD_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/traceparent.h"
#include "execute/engine.h"
#include "load/load_result.h"
#include "observe/cause.h"
#include "observe/lanes.h"

enum { TRACES_KEPT = 256, TRACE_MAX_STAGES = 24 };

enum trace_kind {
    TRACE_QUEUE,
    TRACE_RESOLVE,
    TRACE_PLAN,
    TRACE_GROUP,
    TRACE_ALLOCATE,
    TRACE_EXECUTE, /* the run */
    TRACE_COMMIT,
    TRACE_HANDOFF,
    TRACE_KINDS
};
extern const char *const trace_kind_names[TRACE_KINDS]; /* "resolve" */
extern const char *const trace_origin_names[];          /* "resident", by enum load_origin */

struct trace_step {
    enum trace_kind kind;
    uint64_t begin_ns; /* until the next one, or the end */
};

struct trace_facts { /* of a request that has ended; texts are the trace's */
    char load_id[LOAD_ID_CHARS];
    char *artifact; /* without what has to be kept secret */
    char *group_id; /* NULL = it named none */
    uint32_t rank, world_size;
    uid_t uid;
    pid_t pid;
    enum error_code code;
    const char *executor, *memory, *verified; /* "" = it did not get so far */
    enum load_origin origin;
    uint64_t view_bytes, n_tensors, n_files, pool_budget_bytes;
    bool has_plan, is_remote, reads_direct; /* has_plan: what its source is, is known */
};

struct trace {
    struct traceparent parent;
    uint64_t begin_unix_ns; /* the same moment as steps[0].begin_ns */
    struct trace_step steps[TRACE_MAX_STAGES];
    size_t n_steps;
    uint64_t end_ns;        /* 0 = it goes on */
    struct run_spent spent; /* of its loads, while it waited for them or before; the report of the last one */
    struct lanes *lanes;    /* one reference; NULL = nothing was run */
    struct trace_facts facts;
};

struct trace_sink { /* is told of every trace that is kept; see load_services */
    void (*take)(struct trace_sink *sink, const struct trace *trace);
};

struct trace *trace_create(void);
void trace_destroy(struct trace *trace); /* accepts NULL */

/* From then on it is in that stage, or, when that is before the stage at hand began, since that one did. */
void trace_enter(struct trace *trace, enum trace_kind kind, uint64_t begin_ns);
/* A run that it waited for. Takes a reference to the lanes, which may be NULL. */
void trace_add_run(struct trace *trace, const struct run_spent *spent, struct lanes *lanes);
/* The request is done. */
void trace_finish(struct trace *trace, const struct load_result *result, const struct error *error);
/* Its client has got the answer now. */
void trace_hand_off(struct trace *trace);

uint64_t trace_begin_ns(const struct trace *trace);
uint64_t trace_step_ns(const struct trace *trace, size_t step);
uint64_t trace_total_ns(const struct trace *trace);

struct traces { /* the last ones; zeroed = none */
    struct trace *ring[TRACES_KEPT];
    size_t n, next; /* next: where the next one goes */
};
void traces_keep(struct traces *traces, struct trace *trace);          /* takes it; the oldest one goes */
const struct trace *traces_get(const struct traces *traces, size_t i); /* i < n; 0 = the newest */
void traces_fini(struct traces *traces);
const struct trace *traces_find(const struct traces *traces, const char *load_id); /* NULL = it is not there */
/* Both are of one group, of different ranks, and were there at the same time. */
bool trace_is_beside(const struct trace *trace, const struct trace *other);

#endif
