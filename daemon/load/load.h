/* A load: one execution of a plan, from memory for it to a replica, for all tickets that wait for the same bytes.
 *
 *   load_create -> load_join (who waits) -> load_start -> the engine -> [load_park] -> load_commit (helper) -> a replica
 *
 * Nothing of it is visible to others before its end: it publishes everything or nothing. A ticket that leaves does not hurt
 * those that still wait; the last one to leave cancels it. A load into memory of a client (region) is for one request alone:
 * no other joins it, and what it fills is a replica that no request finds and that goes with its ticket.
 *
 * States: README.md. Inside daemon/load only; loop thread. */
#ifndef LOAD_H
#define LOAD_H

#include <sys/queue.h>

#include "base/state.h"
#include "execute/collective.h"
#include "load/load_services.h"
#include "load/load_result.h"
#include "load/prepare.h"
#include "load/trace.h"

enum load_state {
    LOAD_PREPARED,
    LOAD_RUNNING,    /* the engine reads */
    LOAD_PARKED,     /* its run has ended before the others of its team */
    LOAD_COMMITTING, /* helper: source unchanged? verify, seal */
    LOAD_ABANDONED,  /* no ticket waits: its run was cancelled, and ends */
    LOAD_DISCARDING, /* no ticket waits: its helper ends */
    LOAD_ENDED,
    LOAD_STATES
};
extern const struct state_machine load_machine;

struct load;
struct load_waiter { /* embedded by what waits */
    /* The load goes afterwards. The replica is to be pinned before this returns; NULL: load->error says why there is none. */
    void (*ended)(struct load_waiter *waiter, struct load *load, struct replica *replica);
    uid_t uid;
    pid_t pid;                 /* 0 = unknown */
    uint32_t rank, world_size; /* in its group; world_size 0 = it is in none */
    struct load *load;         /* while it waits */
    struct load_waiter *next;
};

struct load_team_events {                            /* of a load that starts and ends with others */
    void (*run_done)(void *team, struct load *load); /* load_park(), or load_commit() */
    void (*ended)(void *team);
};

/* What is being read, for all who wait for it. `parts` fills up on the way: mapping, plan, memory, run, verdict. The loop
 * thread's; the helper that commits it has `parts` and `error` meanwhile. */
struct load {
    struct loop_work work; /* first: of the commit */
    struct load_table *table;
    struct load *next;
    _Atomic enum load_state state; /* its commit looks whether it is to end */
    char id[LOAD_ID_CHARS];        /* of the ticket that it was made for, like uid and lane */
    uid_t uid;
    uint64_t lane;
    struct load_target target;
    struct replica parts; /* becomes the replica; parts.uid pays */
    enum verify_policy verify;
    struct load_waiter *waiters;
    const struct load_team_events *team_events; /* NULL = it is alone */
    void *team;
    struct load *next_parked; /* of its team */
    struct load_times_of_run {
        uint64_t running_ns, done_ns,
            commit_ns;                  /* when its run began and ended, and its commit was asked for; 0 = not yet */
        _Atomic uint64_t committing_ns; /* when a helper began with that */
    } at;
    struct lanes *lanes; /* what workers do for it is drawn there */
    uint64_t started_ns;
    bool is_of_group;        /* the request named one, whatever became of it */
    bool shared_the_host;    /* another load ran beside it: its times teach nothing */
    bool has_lost_transport; /* its run failed because bytes were lost between the ranks */
    struct error error;      /* code ERROR_OK: nothing has failed so far */
};

struct load_table {
    const struct load_services *services;
    struct load *loads;          /* that were started */
    LIST_HEAD(, ticket) tickets; /* in flight */
    struct loop_timer *progress_timer;
    struct group_table *groups;
    struct rank_registry *ranks; /* of groups that span hosts; NULL = none does */
    struct joint_plans *joint_plans;
    struct traces traces;
};

/* Takes mapping, plan and region, and memory for them. NULL: nothing was taken but the region. */
struct load *load_create(struct load_table *table, struct preparation *prep, struct error *error);
void load_give_back(struct load *load, struct preparation *prep); /* instead of load_start(): undoes it */
/* Of one that has failed: the client's memory, so that it can be filled by another load. False: it is lost. */
bool load_give_back_region(struct load *load, struct preparation *prep);
void load_join(struct load *load, struct load_waiter *waiter);
void load_leave(struct load_waiter *waiter);
/* From here on it is found. collective, rank, n_sharers: see run_options; NULL, 0, 1 for one that is alone. */
void load_start(struct load *load, struct collective *collective, uint32_t rank, uint32_t n_sharers);
/* One to join for the same bytes, or NULL. */
struct load *load_find(const struct load_table *table, const struct preparation *prep);
/* After run_done of its team. */
void load_park(struct load *load);
void load_commit(struct load *load);
struct load_info load_describe(const struct load *load);
/* Where the time of a ticket that waits for it has gone so far, whenever its wait began. */
void load_trace(const struct load *load, struct trace *trace);

/* Why a request that no client waits for any more was cancelled. */
void load_say_why_cancelled(const struct load_table *table, struct error *error);

#endif
