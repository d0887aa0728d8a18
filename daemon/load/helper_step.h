/* A step of a request on a helper. One that fails for want of descriptors or metadata is tried again: at once when idle
 * replicas make room, or when other loads give descriptors back.
 *
 * Steps that wait for descriptors stand in a queue, first come, first served. They retry one at a time. Otherwise two could hold
 * half of the descriptors each and wait for each other (deadlock). A step that waits fails in three cases: its error has another
 * cause; no other work has had a file, several times in a row, since at first others may just have failed like this one; or no
 * waiting step was served for 30 s. Loop thread only. */
#ifndef LOAD_HELPER_STEP_H
#define LOAD_HELPER_STEP_H

#include "base/waiting.h"
#include "load/load_services.h"
#include "replica/replica.h"

struct helper_step { /* embedded in the owner of the work */
    const struct load_services *services;
    struct loop_work *work;   /* of the step at hand; its do_work ends the wait for its turn in `waiting` */
    struct waiting *waiting;  /* told what the step waits for; NULL = not told */
    size_t n_to_evict;        /* see replica_make_room() */
    struct helper_step *next; /* in the queue */
    uint64_t since_ns;        /* 0 = it has never waited there */
    unsigned n_alone;         /* how often it failed while no work had a file */
};

void helper_step_init(struct helper_step *step, const struct load_services *services, struct loop_work *work,
                      struct waiting *waiting);
int helper_step_submit(struct helper_step *step, struct error *error); /* the first one, see loop_submit() */
void helper_step_run(struct helper_step *step);                        /* each later one */
/* After a failure. True: the step runs again, now or later. Only callers of helper_step_end() may wait for descriptors. */
bool helper_step_again(struct helper_step *step, struct replica_table *replicas, const struct error *error);
bool helper_step_again_or_wait(struct helper_step *step, struct replica_table *replicas, const struct error *error);
/* It has what it needs, or wants it no more; also when it never waited. True: it was waiting. */
bool helper_step_end(struct helper_step *step);

struct descriptor_queue *descriptor_queue_create(struct loop *loop, struct quota *quota);
void descriptor_queue_destroy(struct descriptor_queue *queue); /* must have no waiters; accepts NULL */

#endif
