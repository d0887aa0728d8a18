/* A run: one load's way through the engine. Under the engine's lock except for what says otherwise.
 *
 *   NEW --> SETUP --> ACTIVE ------------> FINISHED          whose destination has an ending: ACTIVE --> ENDING --> FINISHED
 *               \--> GATHERED (waits for its collective) --> ACTIVE
 *
 * A run that failed or was cancelled takes no more blocks; what is in flight ends in peace, then it is finished (or ended,
 * which abandons its destination), from whatever stage it is in. Once FINISHED it belongs to the loop and may be gone at any
 * moment. */
#ifndef EXECUTE_RUN_H
#define EXECUTE_RUN_H

#include <stdbool.h>
#include <sys/queue.h>

#include "base/quota.h"
#include "base/state.h"
#include "execute/destination.h"
#include "execute/engine.h"

enum run_stage { RUN_NEW, RUN_SETUP, RUN_GATHERED, RUN_ACTIVE, RUN_ENDING, RUN_FINISHED, RUN_N_STAGES };

enum need_state { NEED_PENDING, NEED_TAKEN, NEED_DONE };

struct need { /* one block of a part file that a run needs */
    uint64_t block;
    uint32_t file;
    uint32_t read_bytes, wanted_bytes; /* its steps' and its transfers' bytes in the block */
    enum need_state state : 8;
    uint32_t is_far : 24; /* 0 or 1: a holder of the run has it from another host */
};

struct run_needs {     /* the blocks of a run, and how far it is with them */
    struct need *list; /* by file, then block; const except for the states once the run is active */
    size_t n, n_pending;
    struct quota_charge charge; /* for it */
    size_t pass;                /* 0 = blocks that are wanted whole, 1 = the others */
    uint32_t *far;              /* needs whose blocks come from elsewhere, in their order; NULL = none do */
    size_t n_far;
    size_t n_seen[2];  /* needs that were looked at in this pass, for a near block and for a far one */
    size_t n_taken[2]; /* that workers are at, likewise */
    size_t *deferred;  /* needs that were in flight for another run when their turn came */
    size_t n_deferred, deferred_room;
};

struct run_clock {     /* see run_clock.h */
    uint64_t at_ns;    /* up to when its time is divided; 0 = nothing of it is */
    uint64_t share_ns; /* what an item has had that is in flight since the beginning */
    uint64_t spent_ns[CAUSES];
};

struct run_account { /* what was done for it */
    struct run_report report;
    struct from_hosts from;
    uint64_t started_ns;
    uint64_t placed_bytes;
    uint64_t done_bytes;      /* atomic: for progress; what was placed, and what has come of blocks that are being read */
    uint64_t temporary_bytes; /* atomic: staging in use for it now */
    struct run_clock clock;
    double source_share; /* distinct bytes of the source for each that is placed; const once it is set up */
};

struct member { /* one run's interest in one scan */
    struct run *run;
    struct scan *scan;
    struct member *next; /* in the scan, newest first */
    size_t first_need, end_need;
};

struct run {
    struct loop_task task; /* first: the loop gives it back */
    struct engine *engine;
    struct run_options options;
    struct destination memory, *destination; /* the segment's; where it writes: to that, or to what the options say */
    uint64_t block_bytes;
    enum run_stage stage; /* run_set_stage() */
    bool has_failed;
    struct error error;
    struct run_needs needs;
    size_t n_taken; /* its parts of items that workers are at */
    struct run_account account;
    struct waiting waiting;       /* what its blocks wait for */
    TAILQ_ENTRY(run) in_turn;     /* among its user's runs; zero while it is not listed */
    struct io_device *device;     /* until it is finished */
    struct remote_origin *origin; /* NULL = its source is not remote */
    struct member *members;       /* one for each file that it needs */
    size_t n_members;
    bool has_gathered; /* its collective does not wait for it any more */
    bool is_leaving;   /* it is no provider from now on */
    unsigned pins;     /* workers that copy from its memory */
};

/* Aborts when the drawing above does not have that arrow. */
extern const struct state_machine run_machine;
static inline void run_set_stage(struct run *run, enum run_stage stage)
{
    state_check(&run_machine, run->stage, stage);
    run->stage = stage;
}

/* It does nothing more, and is finished as soon as nothing of it is in flight. Keeps its first error. */
void run_fail(struct run *run, const struct error *error);
/* A worker is done with its part of an item; failed: with an error that run_fail() was told. */
void run_add_report(struct run *run, const struct run_report *part, uint64_t placed_bytes);
/* It is over, and a worker has to end it: finish or abandon its destination. */
bool run_wants_ending(const struct run *run);
/* When the run is over: tells the loop, once, or that it wants to be ended. It may be gone when this returns. */
void run_settle(struct run *run);

/* From pending to taken to done. */
void run_take_need(struct run *run, size_t need);
void run_finish_need(struct run *run, size_t need);

/* Fills in the list, which is metadata, from a plan and its mapping; when it runs out there are none. */
int run_build_needs(struct run_needs *needs, const struct plan *plan, const struct mapping *mapping, uint64_t block_bytes,
                    struct error *error);
/* Finds out which of them are far, and their order. Asks the run's holders: without the lock. */
void run_find_far(struct run *run);

/* Reading the block mostly serves others: their turn comes late, when the others are here. */
static inline bool need_is_amplified(const struct need *need)
{
    return need->wanted_bytes < need->read_bytes / 8 * 7;
}

#endif
