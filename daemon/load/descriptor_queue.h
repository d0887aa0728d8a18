/* Work that needs more descriptors than others have left waits here until they give some back: first come, first served. Waiters
 * retry one at a time. Otherwise two could hold half of the descriptors each and wait for each other (deadlock).
 * Loop thread only. */
#ifndef LOAD_DESCRIPTOR_QUEUE_H
#define LOAD_DESCRIPTOR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/quota.h"

struct descriptor_queue;

struct descriptor_wait { /* embedded in the waiter; zeroed except for retry */
    void (*retry)(struct descriptor_wait *wait);
    struct descriptor_wait *next;
    uint64_t since_ns; /* 0 = it has never waited */
    unsigned n_alone;  /* how often it failed while no work had a file */
};

struct descriptor_queue *descriptor_queue_create(struct loop *loop, struct quota *quota);
void descriptor_queue_destroy(struct descriptor_queue *queue); /* must have no waiters; accepts NULL */

/* In the next two, NULL is a queue that was destroyed: it has no waiters.
 * After a failure: retry() will be called. False in three cases: the failure has another cause; no other work has had a file,
 * several times in a row, since at first others may just have failed like this one; or no waiter was served for 30 s. */
bool descriptor_queue_wait(struct descriptor_queue *queue, struct descriptor_wait *wait, const struct error *error);
/* It has what it needs, or wants it no more; also when it never waited. True: it was waiting. */
bool descriptor_queue_leave(struct descriptor_queue *queue, struct descriptor_wait *wait);

#endif
