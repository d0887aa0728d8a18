/* Helper threads for what may block or takes long, in pools by kind of work and shared fairly between users.
 *
 *   pool --users--> queue of each user --lanes--> queue of each server or file system that the user's work goes to
 *
 * Users take turns, and so do the lanes of a user. Threads are shared by the dynamic threshold of quota.h: a user runs no
 * more at once than there are threads left for others, and a lane of a user no more than are left for that user's other
 * lanes. So who hangs, at a silent server or on a dead mount, keeps at most half of a pool's threads, and there is always
 * one for somebody else and for something else. A few threads are only for root and the daemon's own user. Queues are
 * bounded. Threads start when they are needed; the first one of each pool with the pool, so that there is always one.
 *
 * Used by loop.c, which says more in loop.h. All functions but the threads' own on the loop thread. */
#ifndef BASE_HELPERS_H
#define BASE_HELPERS_H

#include <stdbool.h>

#include "base/error.h"
#include "base/loop.h"

struct helpers;

struct helpers *helpers_create(struct loop *loop); /* aborts when there is no room for a thread */
void helpers_destroy(struct helpers *helpers);     /* nothing may be left to do; ends the threads */

/* -1 with RESOURCE_EXHAUSTED when the queue is full; then work->done is not called. */
int helpers_submit(struct helpers *helpers, struct loop_work *work, struct error *error);
void helpers_continue(struct helpers *helpers, struct loop_work *work);
void helpers_cancel(struct helpers *helpers, struct loop_work *work);
size_t helpers_list_lanes(struct helpers *helpers, uint64_t *lanes, size_t room); /* any thread */
/* Blocks until nothing waits or runs; work->done is posted for all of it. False when there was nothing to wait for. */
bool helpers_wait(struct helpers *helpers);

#endif
