/* A ticket: one request for weights, from submit to done. README.md has the drawing of its states.
 *
 * Every ticket that was submitted ends by `done`, exactly once: with a replica or a plan, or with an error. Identical
 * requests share one load; a cancelled ticket leaves it, and the others go on. A ticket with memory of its client
 * (region) gets a load of its own: no replica serves it, and no request joins it.
 *
 * Loop thread only; what blocks runs on helpers. */
#ifndef TICKET_H
#define TICKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/state.h"
#include "base/traceparent.h"
#include "load/load_result.h"
#include "load/load_services.h"

enum ticket_state {
    TICKET_CREATED,
    TICKET_RESOLVING,        /* helper: spec, headers, mapping */
    TICKET_PLANNING,         /* helper: for a rank of a group, what it would like */
    TICKET_ASSEMBLING,       /* waits for the other ranks of its group */
    TICKET_ECHO,             /* its request is in the group already: it gets what the first one gets */
    TICKET_PLANNING_JOINTLY, /* helper: every rank of its group is here */
    TICKET_PLANNING_ALONE,   /* helper: it has to do without its group */
    TICKET_WAITING,          /* for a load */
    TICKET_LEAVING,          /* cancelled; what a helper does for it ends first */
    TICKET_DONE,
    TICKET_STATES
};
extern const struct state_machine ticket_machine;

struct load_table;
struct rank_registry;
struct ticket;

struct ticket_events {
    void (*resolved)(void *data);                                  /* optional: the request is not borrowed any more */
    void (*planned)(void *data, const struct load_result *result); /* optional: a load was started or joined */
    void (*progress)(void *data, const struct load_info *info);    /* optional */
    void (*done)(void *data, const struct load_result *result, const struct error *error); /* then ticket_destroy() */
};

struct ticket_input {
    uid_t uid;                    /* who asks */
    pid_t pid;                    /* for the log; 0 = unknown */
    struct traceparent parent;    /* of which trace of another program it is a part */
    bool shares_groups;           /* its groups are those of all users who may share them */
    struct arena arena;           /* of the request, until it is resolved */
    struct load_request request;  /* borrowed until resolved or done */
    struct artifact *artifact;    /* borrowed likewise: what the request's reference led to; NULL = not resolved yet */
    struct device_region *region; /* memory of the client to be filled; NULL = memory of our own */
};

struct ticket *ticket_create(struct load_table *table, const struct ticket_input *input); /* takes arena and region */
/* `done` may run before it returns. */
void ticket_submit(struct ticket *ticket, enum load_goal goal, const struct ticket_events *events, void *data);
void ticket_cancel(struct ticket *ticket); /* done follows, now or later, unless it has run */
/* Its client gets the answer now: the time since it was done counts, too. Of one that is done without an error. */
void ticket_hand_off(struct ticket *ticket);
void ticket_destroy(struct ticket *ticket); /* accepts NULL */

enum ticket_state ticket_state(const struct ticket *ticket);
const struct load_result *ticket_result(const struct ticket *ticket);
struct load_info ticket_describe(struct ticket *ticket); /* how far it is; until it is done */
/* What the facts of its plan were, for explain: of a ticket that is done, and was for a plan only. */
struct plan_facts ticket_facts(const struct ticket *ticket);

/* All loads in flight, for status and for the end of the daemon. */
struct load_table *load_table_create(const struct load_services *services); /* borrows */
/* Groups may span hosts from now on; before the first ticket. Borrowed. */
void load_table_join_hosts(struct load_table *table, struct rank_registry *ranks);
void load_table_destroy(struct load_table *table); /* no ticket may be left; accepts NULL */

void load_table_each(const struct load_table *table, void (*fn)(void *data, const struct load_info *info), void *data);
/* Gives back a joint plan that is only kept for the next group; any thread. False: there was none. */
bool load_table_forget_plan(struct load_table *table);
const struct traces *
load_table_traces(const struct load_table *table); /* of the last requests for weights that were destroyed */
bool load_table_idle(const struct load_table *table);
uint64_t load_table_n_waiting_ranks(const struct load_table *table); /* requests that wait for the others of their group */
bool load_table_awaits_ranks(
    const struct load_table *table); /* a rank's request is here, and its group may not be complete */

#endif
