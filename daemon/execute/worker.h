/* The engine's threads: each waits for an item, does it, reports it, and takes the next. Two crews: one for each device that
 * is read from, sharing its time with copies, and one for stores, whose threads mostly wait (remote_pool.h). */
#ifndef EXECUTE_WORKER_H
#define EXECUTE_WORKER_H

#include <pthread.h>

#include "execute/item.h"
#include "execute/scatter.h"
#include "execute/staging.h"
#include "execute/window.h"

struct worker {
    struct engine *engine;
    struct crew *crew;
    pthread_t thread;
    struct item item;
    struct io_device *device; /* of the item at hand; NULL = none, or a remote worker */
    struct window window;     /* at hand; its arrays are kept */
    struct scatter scatter;
    struct staging_buffer *buffer; /* NULL while idle; of a remote worker, while it reads straight into place */
    struct staging_buffer *spare;  /* to read into while a device copies out of `buffer`; NULL until one does */
    struct source_speed speed;     /* of a store, after the last block */
    uint64_t started_ns;           /* with a store's block */
};

struct crew {
    struct worker *workers; /* room for all there may ever be: others look at their items */
    size_t n, room;
    pthread_cond_t work;
    uint64_t keep_ns; /* how long unused memory is kept */
};

void crew_init(struct crew *crew, size_t room, uint64_t keep_ns);
/* Under the lock. One more thread; 0 or what went wrong. */
int crew_grow(struct crew *crew, struct engine *engine, bool is_remote);
void crew_fini(struct crew *crew); /* without the lock, after is_stopping was set and all were woken */

/* Under the lock: the next item of the active runs in turn becomes the worker's. */
bool worker_take_item(struct worker *worker);
/* Under the lock, which is released while the work is done. */
void worker_run_item(struct worker *worker);

#endif
