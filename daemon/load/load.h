/* The life of a load, from a client's ticket to a committed replica.
 *
 *   ticket (one client's request)                      load (one execution, shared by identical tickets)
 *
 *   CREATED --submit--> RESOLVING --+-- replica found ----------------------------> DONE
 *                       (helper)    |
 *                                   +-- same load in flight --> WAITING ----------> DONE
 *                                   |                             ^
 *                                   +--> PLANNING --goal: plan----|---------------> DONE
 *                                        (helper) |               |
 *                                          ^      +-- reserve, allocate, start -> RUNNING --> COMMITTING --> replica
 *                                          |      |                               (workers)   (helper)
 *                          no group, alone |      +--> ASSEMBLING --> joint plan, all ranks start (load_group.c)
 *                                          +---------------'
 *   Every ticket ends by `done`, exactly once: with a replica or a plan, or with an error. A cancelled ticket leaves its
 *   load without hurting the others; the last one to leave cancels the load. A load that fails publishes nothing.
 *
 *   A ticket with memory of its client (region) gets a load of its own: no replica serves it, it joins nobody and nobody
 *   joins it. What it fills is a replica that nobody finds and that goes with the ticket.
 *
 * Loop thread only; what blocks runs on helpers. */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/loop.h"
#include "base/quota.h"
#include "config/config.h"
#include "device/device.h"
#include "calibration/calibration.h"
#include "execute/engine.h"
#include "load/load_services.h"
#include "load/load_target.h"
#include "normalize/load_spec.h"
#include "plan/plan.h"
#include "replica/replica.h"
#include "resolve/artifact.h"
#include "resolve/header_cache.h"

enum { LOAD_ID_CHARS = 17 };

struct load_table;
struct load;
struct ticket;

enum ticket_goal { GOAL_PLAN, GOAL_REPLICA };

struct ticket_events {
    void (*resolved)(void *data);                             /* optional: the request is not borrowed any more */
    void (*planned)(void *data, const struct ticket *ticket); /* optional: a load was started or joined */
    void (*progress)(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes, double eta_ms); /* optional */
    void (*done)(void *data, struct ticket *ticket, const struct error *error); /* then ticket_destroy() it */
};

struct ticket {
    uid_t uid;                    /* who asks */
    pid_t pid;                    /* the caller's to set, for the log; 0 = unknown */
    bool shares_groups;           /* its groups are those of all users who may share them; set like the request */
    char id[LOAD_ID_CHARS];       /* load_id in logs and answers */
    struct arena arena;           /* its load_spec */
    struct arena request_arena;   /* for the request, until it is resolved */
    struct load_request request;  /* filled in by the caller between create and submit; borrowed until resolved or done */
    struct device_region *region; /* likewise, owned: memory of the client to be filled; NULL = memory of our own */
    /* results, valid in `done` without an error */
    struct load_spec spec;
    const struct mapping *mapping;
    const struct plan *plan;
    struct cost_constants costs; /* what the plan was made with */
    double cached_share;
    struct replica *replica; /* pinned until ticket_destroy(); NULL for GOAL_PLAN */
    bool from_replica, joined;
    uint64_t resolve_ns, plan_ns, assemble_ns, total_ns; /* assemble: waiting for the other ranks of its group */
    struct ticket_internal *internal;
};

struct load_table *load_table_create(const struct load_services *services); /* borrows */
void load_table_destroy(struct load_table *table);                          /* no ticket may be left */

struct ticket *ticket_create(struct load_table *table, uid_t uid);
/* `done` may run before it returns. */
void ticket_submit(struct ticket *ticket, enum ticket_goal goal, const struct ticket_events *events, void *data);
void ticket_cancel(struct ticket *ticket);  /* done follows, now or later */
void ticket_destroy(struct ticket *ticket); /* accepts NULL */

/* What the facts of a plan were, for explain. */
struct plan_facts ticket_facts(const struct ticket *ticket);

struct load_info { /* for status */
    const char *id, *artifact, *stage;
    uint64_t done_bytes, total_bytes, n_tickets, age_ns;
};
void load_table_each(const struct load_table *table, void (*fn)(void *data, const struct load_info *info), void *data);
bool load_table_idle(const struct load_table *table);

#endif
