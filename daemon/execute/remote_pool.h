/* The engine's part for remote sources: threads that mostly wait for answers, as many as there are requests worth having in
 * flight, and temporary memory of their own. They take blocks of remote sources only and no other thread takes those, so loads
 * from stores and from disks never wait for each other.
 *
 * Users take turns (see turns.h), and of the last eighth of the threads a user or origin gets one only while it has fewer
 * than are left. A block counts for the run that it was taken for.
 *
 * An origin ("gs://bucket", "https://host:port") is what a number of requests in flight is learned for; it is found by the
 * beginning of a source's reference and lives as long as the engine. Threads are created when an origin has work for them
 * and stay. Everything but the threads themselves is called under the engine's lock. */
#ifndef EXECUTE_REMOTE_POOL_H
#define EXECUTE_REMOTE_POOL_H

#include "execute/remote_pace.h"
#include "execute/worker.h"

enum { REMOTE_MAX_THREADS = 256, REMOTE_MAX_IDLE_ORIGINS = 64 };

struct remote_share { /* of one user in what is read from an origin */
    struct remote_share *next;
    uid_t uid;
    uint32_t n_in_flight;
};

struct remote_origin {
    struct remote_origin *next;
    char *name;
    size_t n_runs;
    uint32_t n_in_flight; /* blocks being read */
    struct remote_share *shares;
    struct source_speed speed;
    struct remote_pace pace;
};

struct remote_pool {
    struct crew crew;
    pthread_cond_t window_free;
    struct remote_origin *origins;
    struct staging images, windows;
    uint64_t staging_budget_bytes, extent_cache_bytes;
    size_t n_runs, n_of_groups; /* runs from remote sources; those of a group */
    size_t n_waiting;           /* for a window */
    uint32_t n_busy;            /* threads that have an item */
    bool is_held_back;          /* a load is, for the sake of others that may come */
};

void remote_pool_init(struct remote_pool *pool, const struct engine_options *options);
void remote_pool_fini(struct remote_pool *pool); /* the threads have ended */

/* Fills in run->origin (NULL for other sources) and run->block_bytes, which is at most that of the run's holder. */
void remote_pool_attach(struct run *run);
void remote_pool_detach(struct run *run);

/* Whether one more block of this run may be read now. */
bool remote_pool_may_take(const struct run *run);
/* A worker has a block of the run, or is done with it: counted for its origin and user. */
void remote_pool_begin(struct worker *worker, const struct run *run);
void remote_pool_end(struct worker *worker);
size_t remote_pool_wanted_threads(const struct remote_pool *pool); /* of the runs there are */

/* Without the lock: waits for a window within the staging budget; NULL when there is no memory or the item was interrupted.
 */
struct staging_buffer *remote_pool_take_window(struct remote_pool *pool, struct item *item);
/* How many images there may be now: a load alone, with no other load to keep them for yet, may have few. */
uint64_t remote_pool_image_budget(const struct remote_pool *pool);

bool remote_pool_has_memory(const struct remote_pool *pool);
void remote_pool_expire(struct engine *engine, uint64_t before_ns); /* frees what has not been used since */
uint64_t remote_pool_bytes(const struct remote_pool *pool);         /* of windows, allocated now; any thread */

#endif
