/* What became of a request, as its answers and the log tell it, and how far a load is. Texts and objects are borrowed from the
 * ticket. Loop thread. */
#ifndef LOAD_RESULT_H
#define LOAD_RESULT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/waiting.h"
#include "normalize/load_spec.h"
#include "plan/plan.h"
#include "replica/replica.h"
#include "resolve/mapping.h"

enum { LOAD_ID_CHARS = 17 };

struct trace;

enum load_goal { GOAL_PLAN, GOAL_REPLICA };

enum load_origin {
    LOAD_OWN,          /* read for this request */
    LOAD_JOINED,       /* by another request's load, which was in flight */
    LOAD_FROM_REPLICA, /* nothing was read: it was there */
    LOAD_MAPPED,       /* nothing was read: its files themselves were handed out */
};

struct load_times { /* assemble: waiting for the other ranks of its group */
    uint64_t resolve_ns, plan_ns, assemble_ns, total_ns;
};

struct load_result {             /* ticket_result(): owned by the ticket */
    char load_id[LOAD_ID_CHARS]; /* in logs and answers */
    uid_t uid;
    pid_t pid;            /* 0 = unknown */
    const char *artifact; /* as the request names it; may be NULL when it failed */
    /* valid once it was planned */
    const struct load_spec *spec;
    const struct device *device;
    const struct mapping *mapping;
    const struct plan *plan;
    enum executor executor; /* of the load that it waited for, once has_executor; also when that failed */
    bool has_executor;
    /* valid once it is done without an error */
    struct replica *replica; /* pinned until ticket_destroy(); NULL when only a plan was asked for */
    enum load_origin origin;
    struct load_times times;
    const struct trace *trace; /* where its time went, see trace.h */
};

struct load_info { /* of a load in flight; stage: "resolve", "plan", "group", "read", "commit" */
    const char *id, *artifact, *stage;
    uid_t uid; /* of the request that has waited longest */
    pid_t pid; /* 0 = unknown */
    uint64_t done_bytes, total_bytes, n_tickets, age_ns;
    uint32_t rank, world_size; /* of one of those who wait, where ranks load together; world_size 0 = they do not */
    const char *waited_for;    /* name of the cause that took most of the run so far; NULL = nothing runs */
    char waiting_for[WAITING_TEXT_CHARS]; /* "" = it does not wait */
};

#endif
