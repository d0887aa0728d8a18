/* A team: the ranks of a group that is complete, those of this host. They are planned jointly, run as one collective, and commit together.
 *
 *   team_gather -> joint plan and the transport (helper) -> planned: who takes part? -> memory for all -> joined -> runs
 * start together -> runs are done, early ones are parked -> all commit -> the last one ends: the transport's memory goes
 *
 * States: README.md. Inside daemon/load only; loop thread. */
#ifndef TEAM_H
#define TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "load/group.h"
#include "load/load.h"
#include "plan/collective_plan.h"

enum team_state {
    TEAM_PLANNING,   /* helper */
    TEAM_RUNNING,    /* some of its runs are not done */
    TEAM_COMMITTING, /* all runs are done, some of its loads have not ended */
    TEAM_ENDED,
    TEAM_STATES
};
extern const struct state_machine team_machine;

struct team_events {
    /* The joint plan is there, or rank->plan is NULL. problem: why it cannot be run: there is no transport, or no memory for
     * the joint plan, and rank->plan is still its own; NULL = it can. Returns whether the rank takes part in the run; if not, it has gone its own way. */
    bool (*planned)(struct preparation *rank, uint64_t plan_ns, const struct reason *problem);
    void (*failed)(struct preparation *rank, const struct error *error); /* there was no memory for it */
    /* The load is about to run, for this rank (LOAD_OWN) or also for it. It has to be joined. */
    void (*joined)(struct preparation *rank, struct load *load, enum load_origin origin);
};

/* Every rank is here. Those left over when there is no memory for one of them are dissolved by their group. */
void team_gather(struct load_table *table, struct group *group, const struct team_events *events);

/* The joint plans of the last groups, for the next load of the same group. Any thread. */
struct joint_plans *joint_plans_create(void);
void joint_plans_destroy(struct joint_plans *plans); /* accepts NULL */
/* A reference for the caller, or NULL; keeps all but the n_kept that were used last no longer. */
struct collective_plan *joint_plans_find(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], uint64_t n_kept);
void joint_plans_add(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], struct collective_plan *plan,
                     uint64_t n_kept);
/* Forgets the least recently used one. False: there was none. */
bool joint_plans_shrink(struct joint_plans *plans);

#endif
