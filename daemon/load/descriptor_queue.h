/* Work that needs more descriptors than others have left waits here until they give some back: first come, first served. One
 * tries again at a time, so that two who would fit one after the other do not keep half of what each needs from each other.
 * Loop thread only. */
#ifndef LOAD_DESCRIPTOR_QUEUE_H
#define LOAD_DESCRIPTOR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/quota.h"

struct descriptor_queue;

struct descriptor_wait { /* embedded by who waits; zeroed but for retry */
    void (*retry)(struct descriptor_wait *wait);
    struct descriptor_wait *next;
    uint64_t since_ns; /* 0 = it has never waited */
    unsigned n_alone;  /* how often it failed and nobody had a file */
};

struct descriptor_queue *descriptor_queue_create(struct loop *loop, struct quota *quota);
void descriptor_queue_destroy(struct descriptor_queue *queue); /* nobody may wait; accepts NULL */

/* In the next two, NULL is a queue that was destroyed: nobody waits in it.
 * After a failure: retry() will be called. False: it failed of something else; nobody has a file, several times, since
 * the first others may just have failed like this one; or for 30 s nobody has got what was waited for. */
bool descriptor_queue_wait(struct descriptor_queue *queue, struct descriptor_wait *wait, const struct error *error);
/* It has what it needs, or wants it no more; also when it never waited. True: it was waiting. */
bool descriptor_queue_leave(struct descriptor_queue *queue, struct descriptor_wait *wait);

#endif
