/* A short list, newest first; see host_pool.h. System calls that free gigabytes run outside the lock. */
#include "device/host_pool.h"

#include <stddef.h>

void host_pool_init(struct host_pool *pool, uint64_t budget_bytes, uint64_t *total_bytes)
{
    *pool = (struct host_pool){.budget_bytes = budget_bytes, .total_bytes = total_bytes};
    pthread_mutex_init(&pool->lock, NULL);
}

void host_pool_fini(struct host_pool *pool)
{
    pthread_mutex_destroy(&pool->lock);
}

static void add_total(struct host_pool *pool, uint64_t bytes)
{
    __atomic_add_fetch(pool->total_bytes, bytes, __ATOMIC_RELAXED);
}

static struct host_memory *unlink_at(struct host_pool *pool, struct host_memory **link)
{
    struct host_memory *memory = *link;
    *link = memory->next;
    memory->next = NULL;
    add_total(pool, -memory->bytes);
    return memory;
}

static struct host_memory *unlink_oldest(struct host_pool *pool, uint64_t keep_bytes)
{
    struct host_memory *oldest = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->newest && __atomic_load_n(pool->total_bytes, __ATOMIC_RELAXED) > keep_bytes) {
        struct host_memory **link = &pool->newest;
        while ((*link)->next)
            link = &(*link)->next;
        oldest = unlink_at(pool, link);
    }
    pthread_mutex_unlock(&pool->lock);
    return oldest;
}

void host_pool_trim(struct host_pool *pool, uint64_t keep_bytes)
{
    struct host_memory *oldest;
    while ((oldest = unlink_oldest(pool, keep_bytes)))
        host_memory_destroy(oldest);
}

void host_pool_put(struct host_pool *pool, struct host_memory *memory)
{
    if (memory->bytes > pool->budget_bytes || memory->bytes < HUGE_PAGE_BYTES || !host_memory_is_private(memory)) {
        host_memory_destroy(memory);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    memory->next = pool->newest;
    pool->newest = memory;
    add_total(pool, memory->bytes);
    pthread_mutex_unlock(&pool->lock);
    host_pool_trim(pool, pool->budget_bytes);
}

static struct host_memory *unlink_best(struct host_pool *pool, uint64_t bytes)
{
    struct host_memory **best = NULL, *memory = NULL;
    uint64_t limit = bytes + bytes / 4;
    pthread_mutex_lock(&pool->lock);
    for (struct host_memory **link = &pool->newest; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes && (*link)->bytes <= limit && (!best || (*link)->bytes < (*best)->bytes))
            best = link;
    if (best)
        memory = unlink_at(pool, best);
    pthread_mutex_unlock(&pool->lock);
    return memory;
}

struct host_memory *host_pool_take(struct host_pool *pool, uint64_t bytes)
{
    struct host_memory *memory;
    while ((memory = unlink_best(pool, bytes))) {
        if (host_memory_is_private(memory) && host_memory_reopen(memory) == 0)
            return memory;
        host_memory_destroy(memory);
    }
    return NULL;
}
