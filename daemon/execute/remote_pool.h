/* The engine's part for remote sources: threads that mostly wait for answers, as many as there are requests worth having in
 * flight, and temporary memory of their own. They take blocks of remote sources only and nobody else takes those, so loads
 * from stores and from disks never wait for each other.
 *
 * The threads are shared fairly: of the last eighth of them a user or origin gets one only while it has fewer than are left,
 * and who has half of what an origin allows lets another user go first. A block counts for the run that it was taken for.
 *
 * An origin ("gs://bucket", "https://host:port") is what a number of requests in flight is learned for; it is found by the
 * beginning of a source's reference and lives as long as the engine. Threads are created when an origin has work for them
 * and stay. Everything but remote_pool_grow() and the threads themselves is called under the engine's lock. */
#ifndef EXECUTE_REMOTE_POOL_H
#define EXECUTE_REMOTE_POOL_H

#include "execute/engine_private.h"
#include "execute/remote_pace.h"

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

void remote_pool_init(struct engine *engine, const struct engine_options *options);
void remote_pool_stop(struct engine *engine); /* without the lock, after is_stopping was set and everybody was woken */
void remote_pool_fini(struct engine *engine);

/* Fills in run->origin (NULL for other sources) and run->block_bytes. */
void remote_pool_attach(struct run *run);
void remote_pool_detach(struct run *run);

/* Whether one more block of this run may be read now. */
bool remote_pool_may_take(const struct run *run);
/* Without the lock, before the run has work: creates threads for it. Fails only when there is none at all. */
int remote_pool_grow(struct run *run, struct error *error);

/* A run failed or was cancelled: reads that nobody waits for any more are told. */
void remote_pool_interrupt(struct engine *engine);

/* Waits for a window within the staging budget; NULL when there is no memory or the read was interrupted. */
struct staging_buffer *remote_pool_take_window(struct worker *worker);
void remote_pool_give_window(struct worker *worker); /* worker->buffer */
/* How many images there may be now: a load alone, with nobody to keep them for yet, may have few. */
uint64_t remote_pool_image_budget(const struct engine *engine);

uint64_t remote_pool_bytes(const struct engine *engine); /* of windows, allocated now; any thread */

#endif
