/* Tickets and loads from inside: shared by load.c, which has their life, and load_group.c, which has what ranks of a group
 * do differently. Loop thread only, but for what a helper is given. */
#ifndef LOAD_PRIVATE_H
#define LOAD_PRIVATE_H

#include <stddef.h>

#include "load/group.h"
#include "load/load.h"
#include "resolve/lru.h"

struct team;

enum ticket_state {
    TICKET_CREATED,
    TICKET_RESOLVING,
    TICKET_PLANNING,
    TICKET_ASSEMBLING,
    TICKET_ECHO, /* its request is in a group already */
    TICKET_WAITING,
    TICKET_DONE,
};

struct ticket_internal {
    struct loop_work work; /* first: work and internal share an address */
    struct ticket *ticket;
    struct load_table *table;
    enum ticket_state state;
    enum ticket_goal goal;
    const struct ticket_events *events;
    void *data;
    const struct config *config; /* as it was at submit */
    struct load_target target;   /* host memory until the request was looked at */
    _Atomic bool cancelled;      /* read by its helper, too */
    size_t n_to_evict;           /* see replica_make_room() */
    struct error error;          /* of the helper's stage */
    bool failed;
    struct artifact *artifact; /* own reference between resolve and mapping */
    struct mapping *mapping;   /* owned until a load or the end takes it */
    struct plan *plan;         /* owned, likewise */
    uint64_t submitted_ns;
    struct group_member member;         /* in a group while ASSEMBLING, and then until the end */
    uint64_t assembling_ns;             /* since when */
    char attempt[DIGEST_HEX_CHARS + 1]; /* of the member: who sent it, and what it asks for */
    struct ticket_internal *echoes;     /* the same request, sent again: they get what this one gets */
    struct ticket_internal *echo_of;    /* while ECHO */
    struct reason group_problem;        /* why it does without its group; REASON_ELIGIBLE = nothing is known */
    uint64_t lane;                      /* where links led when it was resolved, see loop_enter_lane() */
    struct load *load;                  /* while WAITING */
    struct ticket_internal *next;       /* of the same load, or the next echo */
};

enum load_state { LOAD_RUNNING, LOAD_COMMITTING };

struct load {
    struct loop_work work; /* first */
    struct load_table *table;
    struct load *next;
    enum load_state state;
    uint64_t lane; /* of the ticket that it was made for */
    char id[LOAD_ID_CHARS];
    uid_t uid; /* of whoever asked first */
    struct load_target target;
    struct replica_key key;
    struct replica parts; /* becomes the replica */
    enum verify_policy verify;
    struct ticket_internal *tickets;
    uint64_t started_ns;
    bool abandoned;           /* no ticket is left: not to be joined any more; atomic, its commit asks */
    bool is_of_group;         /* the request named one, whatever became of it */
    bool shared_the_host;     /* another load ran beside it: its times teach nothing */
    struct team *team;        /* of a collective ... */
    bool has_lost_transport;  /* ... in which bytes were lost between the ranks */
    struct load *next_parked; /* done before the others of its team */
    struct error error;
    bool failed;
};

struct load_table {
    const struct load_services *services;
    struct load *loads;
    struct loop_timer *progress_timer;
    struct group_table *groups;
    struct lru *group_plans; /* joint plans of the last groups */
    uint64_t group_plans_cap;
};

static inline struct ticket_internal *load_group_ticket(struct group_member *member)
{
    return (struct ticket_internal *)((char *)member - offsetof(struct ticket_internal, member));
}

/* Ends a ticket: with an error, CANCELLED if it was cancelled, or without a replica. */
void load_finish_ticket(struct ticket_internal *internal, const struct error *error);
/* A replica or the same load in flight serves the ticket. */
bool load_take_existing(struct ticket_internal *internal);
bool load_exists(const struct ticket_internal *internal);
/* Plans again, knowing what became of its group. */
void load_plan_again(struct ticket_internal *internal);
/* A load of its own for the ticket: takes its mapping and plan, and memory for them. NULL: nothing was taken. */
struct load *load_prepare(struct ticket_internal *internal, struct error *error);
void load_unprepare(struct load *load, struct ticket_internal *internal); /* gives all of it back */
void load_join(struct ticket_internal *internal, struct load *load);
/* From here on it may be joined; then it runs. */
void load_publish(struct load *load);
void load_run(struct load *load, struct collective *collective, uint32_t rank, uint32_t n_sharers);
void load_start_alone(struct ticket_internal *internal);
void load_commit(struct load *load); /* its run is done, well or not */

#endif
