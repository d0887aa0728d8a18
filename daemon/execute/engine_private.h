/* What all runs of the host share: crews, memory, turns, scans. Everything is under the lock except for what is const after
 * engine_create(). */
#ifndef EXECUTE_ENGINE_PRIVATE_H
#define EXECUTE_ENGINE_PRIVATE_H

#include "execute/engine.h"
#include "execute/remote_pool.h"
#include "execute/scan.h"
#include "execute/staging.h"
#include "execute/worker.h"

struct engine {
    struct loop *loop;
    pthread_mutex_t lock;
    struct crew crew; /* that reads from devices; the stores' is in `remote` */
    struct remote_pool remote;
    size_t n_workers; /* that may read from one device */
    struct staging staging;
    bool has_spares;      /* the budget has two buffers for every worker */
    bool wants_buffers;   /* an item was not taken for lack of staging buffers */
    uint64_t block_bytes; /* a multiple of the staging buffers' size */
    TAILQ_HEAD(turn_list, turn)
    turns; /* of users with active runs: the next one to serve is first. Zero while there is none */
    struct scan *scans;
    struct io_device *devices; /* with runs that are not finished */
    size_t n_devices;
    pthread_cond_t unpinned; /* a run has fewer pins */
    bool is_stopping;
};

uint64_t engine_auto_threads(uint64_t n_cores); /* for one device, where the configuration does not say */

/* Under the lock: there may be something to take. */
static inline void engine_wake(struct engine *engine)
{
    pthread_cond_broadcast(&engine->crew.work);
    if (engine->remote.crew.n > 0)
        pthread_cond_broadcast(&engine->remote.crew.work);
}

#endif
