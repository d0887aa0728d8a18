/* Freed replica memory, kept faulted for the next load: saves making and zeroing pages (0.05 s per GiB), which is half of
 * the time of a load from the page cache.
 *
 * Only memory that no other process has open or mapped goes in, and it is looked at again when it comes out. The bytes of
 * the replica before are still in it. Bounded by the budget: the oldest goes first. Any thread. */
#ifndef DEVICE_HOST_POOL_H
#define DEVICE_HOST_POOL_H

#include "device/host_memory.h"

struct host_pool {
    pthread_mutex_t lock;
    struct host_memory *newest;
    uint64_t budget_bytes;
    uint64_t *total_bytes; /* atomic; device->pool_bytes */
};

void host_pool_init(struct host_pool *pool, uint64_t budget_bytes, uint64_t *total_bytes);
void host_pool_fini(struct host_pool *pool);                            /* after host_pool_trim() */
void host_pool_put(struct host_pool *pool, struct host_memory *memory); /* takes it, keeps or destroys it */
/* The smallest that has room for `bytes` and wastes at most a quarter; writable again; NULL when there is none. */
struct host_memory *host_pool_take(struct host_pool *pool, uint64_t bytes);
void host_pool_trim(struct host_pool *pool, uint64_t keep_bytes);

#endif
