/* Prepared memory: fresh memfds whose pages the kernel has made and cleared while no load was running, so that the next load
 * need not wait for that (0.05 s per GiB, half of the time of a load from the page cache).
 *
 * Of which sizes? Of those that were given back: whoever loads a view once mostly loads one of the same size again. Memory
 * that was handed out is never used again, because nobody can know who still reads it: a page that a client has spliced into
 * a pipe or is sending without a copy has neither descriptor nor mapping. Bounded by the budget: the oldest goes first.
 * Any thread; a thread of the pool's own backs the pages, a few MiB at a time. */
#ifndef DEVICE_HOST_POOL_H
#define DEVICE_HOST_POOL_H

#include "device/host_memory.h"

struct host_pool {
    pthread_mutex_t lock; /* for all of it */
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    struct host_memory *newest;
    struct host_memory *at_work; /* whose pages the thread is making; taken or not, it must not be destroyed meanwhile */
    struct host_freer freer;
    unsigned n_filling; /* loads that write to host memory now: the thread rests */
    uint64_t budget_bytes;
    uint64_t *ready_bytes; /* atomic; device->pool_bytes */
};

void host_pool_init(struct host_pool *pool, uint64_t budget_bytes, uint64_t *ready_bytes);
void host_pool_fini(struct host_pool *pool); /* every memory was given back */
/* The smallest that has room for `bytes` and wastes at most a quarter, zero as fresh memory is; NULL when there is none. */
struct host_memory *host_pool_take(struct host_pool *pool, uint64_t bytes);
/* Fresh memory, which has no pages before those that were given back are gone. */
int host_pool_create(struct host_pool *pool, uint64_t bytes, struct host_memory **memory, struct error *error);
/* Destroys memory that was in use, soon and on another thread, and has as much prepared in its place. */
void host_pool_replace(struct host_pool *pool, struct host_memory *used);
void host_pool_trim(struct host_pool *pool, uint64_t keep_bytes);
void host_pool_filling(struct host_pool *pool, bool begins); /* once when a load takes memory, once when it has filled it */

#endif
