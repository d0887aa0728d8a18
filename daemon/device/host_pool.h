/* Prepared memory: fresh memfds whose pages the kernel has made and cleared while no load was running, so that the next load
 * need not wait for that (0.04 s per GiB, half of the time of a load from the page cache; 2 s per GiB where the host of a
 * virtual machine has to find the memory first).
 *
 * Of which sizes, and what does for a load of another size: pool_sizes_choose(). Memory that was handed out is never used
 * again, because it cannot be known which process still reads it: a page that a client has spliced into a pipe or is sending
 * without a copy has neither descriptor nor mapping.
 *
 * Bounded by the budget, and by what the host can spare (host_headroom.h): less is prepared where that is not enough, and
 * what is prepared goes back when the host runs short. Any thread; a thread of the pool's own, of low priority, backs
 * the pages, 2 MiB at a time. */
#ifndef DEVICE_HOST_POOL_H
#define DEVICE_HOST_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/host_memory.h"

enum { POOL_RECENT = 32, POOL_SIZES = 96 };

/* Memory of a replica is one memfd, and pages cannot move from one memfd to another. But a memfd that no process has seen can
 * be made shorter (2 ms per GiB given up) or longer (0.2 ms, then it is fresh from there on), so it need not fit exactly.
 *
 * What loads asked for lately, newest first. */
struct pool_recent {
    uint64_t sizes[POOL_RECENT];
    size_t n;
};
void pool_recent_add(struct pool_recent *recent, uint64_t bytes);

/* Sizes of memory to have, multiples of HUGE_PAGE_BYTES, the most useful first; together no more than the budget: those that
 * were asked for lately, each as often, and the rest by halves, so that any load finds something. Returns how many. */
size_t pool_sizes_choose(const struct pool_recent *recent, uint64_t budget_bytes, uint64_t sizes[POOL_SIZES]);

bool pool_size_is_met(uint64_t size, uint64_t memory_bytes); /* what is there does instead of what was chosen */
/* How much of a load's `bytes` is won by memory of which so much is ready; 0 when it is not worth it. */
uint64_t pool_size_gain(uint64_t bytes, uint64_t memory_bytes, uint64_t ready_bytes, bool can_grow);

struct host_pool {
    pthread_mutex_t lock;   /* for all of it */
    pthread_cond_t changed; /* waited for with condition_wait_until() */
    pthread_t thread;
    bool has_thread, is_stopping;
    bool is_trimmed; /* nothing is prepared until the next load */
    struct host_memory *newest;
    struct host_memory *at_work; /* whose pages the thread is making: its owner waits before changing or destroying it */
    struct host_freer freer;
    unsigned n_filling; /* loads that write to host memory now: the thread rests */
    uint64_t budget_bytes;
    uint64_t allowance_bytes; /* that may be prepared before the host is asked again */
    uint64_t paused_until_ns; /* the host can spare none */
    uint64_t *ready_bytes;    /* atomic; device->pool_bytes */
    struct pool_recent recent;
};

void host_pool_init(struct host_pool *pool, uint64_t budget_bytes, uint64_t *ready_bytes); /* begins to prepare */
void host_pool_fini(struct host_pool *pool);                                               /* every memory was given back */
/* Memory of that size for a load, zero as fresh memory is; of it, pool_ready_bytes from its beginning on are backed. NULL
 * when nothing is prepared that would do. */
struct host_memory *host_pool_take(struct host_pool *pool, uint64_t bytes);
/* Fresh memory, which has no pages before those that were given back are gone. */
int host_pool_create(struct host_pool *pool, uint64_t bytes, struct host_memory **memory, struct error *error);
/* Destroys memory that was in use, soon and on another thread. */
void host_pool_give_back(struct host_pool *pool, struct host_memory *used);
/* Gives all back that is prepared; the next load begins it anew. */
void host_pool_trim(struct host_pool *pool);
void host_pool_filling(struct host_pool *pool, bool begins); /* once when a load takes memory, once when it has filled it */

#endif
