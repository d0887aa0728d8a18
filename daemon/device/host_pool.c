/* A short list, newest first, and the thread that backs it; see host_pool.h. System calls that make or free gigabytes run
 * outside the lock. */
#include "device/host_pool.h"

#include <stddef.h>

enum {
    STEP_BYTES = 8 * HUGE_PAGE_BYTES, /* 2 ms: who takes or destroys the memory that is at work waits no longer */
    STACK_BYTES = 256 << 10,
};

void host_pool_init(struct host_pool *pool, uint64_t budget_bytes, uint64_t *ready_bytes)
{
    *pool = (struct host_pool){.budget_bytes = budget_bytes, .ready_bytes = ready_bytes};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    host_freer_init(&pool->freer);
}

static void add_ready(struct host_pool *pool, uint64_t bytes)
{
    __atomic_add_fetch(pool->ready_bytes, bytes, __ATOMIC_RELAXED);
}

/* --- all under the lock ------------------------------------------------------------------------------------------- */

static void unlink_memory(struct host_pool *pool, struct host_memory *memory)
{
    struct host_memory **link = &pool->newest;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    memory->next = NULL;
    memory->is_pooled = false;
    add_ready(pool, -memory->pool_ready_bytes);
}

static struct host_memory *find_best(const struct host_pool *pool, uint64_t bytes)
{
    struct host_memory *best = NULL;
    for (struct host_memory *memory = pool->newest; memory; memory = memory->next) {
        bool fits = memory->bytes >= bytes && memory->bytes <= bytes + bytes / 4;
        bool is_better = !best || memory->bytes < best->bytes ||
                         (memory->bytes == best->bytes && memory->pool_ready_bytes > best->pool_ready_bytes);
        if (fits && is_better)
            best = memory;
    }
    return best;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

/* Under the lock, which is given up meanwhile. When there are no pages to be had, the memory goes. */
static void back_one_step(struct host_pool *pool, struct host_memory *memory)
{
    uint64_t offset = memory->pool_ready_bytes, left = memory->bytes - offset, bytes = left < STEP_BYTES ? left : STEP_BYTES;
    struct error ignored;
    pool->at_work = memory;
    pthread_mutex_unlock(&pool->lock);
    int failed = host_memory_prepare(memory, offset, bytes, &ignored);
    pthread_mutex_lock(&pool->lock);
    pool->at_work = NULL;
    bool is_lost = failed && memory->is_pooled;
    if (is_lost) {
        unlink_memory(pool, memory);
    } else if (memory->is_pooled) {
        memory->pool_ready_bytes += bytes;
        add_ready(pool, bytes);
    }
    pthread_cond_broadcast(&pool->changed);
    if (!is_lost)
        return;
    pthread_mutex_unlock(&pool->lock);
    host_memory_destroy(memory);
    pthread_mutex_lock(&pool->lock);
}

static void *back_pages(void *argument)
{
    struct host_pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    while (!pool->is_stopping) {
        struct host_memory *memory = pool->n_filling == 0 ? pool->newest : NULL;
        while (memory && memory->pool_ready_bytes == memory->bytes)
            memory = memory->next;
        if (memory)
            back_one_step(pool, memory);
        else
            pthread_cond_wait(&pool->changed, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

void host_pool_fini(struct host_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->is_stopping = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (pool->has_thread)
        pthread_join(pool->thread, NULL);
    host_pool_trim(pool, 0);
    host_freer_fini(&pool->freer);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

void host_pool_filling(struct host_pool *pool, bool begins)
{
    pthread_mutex_lock(&pool->lock);
    pool->n_filling += begins ? 1 : -1;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

struct host_memory *host_pool_take(struct host_pool *pool, uint64_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    struct host_memory *memory = find_best(pool, bytes);
    if (memory)
        unlink_memory(pool, memory);
    pthread_mutex_unlock(&pool->lock);
    return memory;
}

static void destroy(struct host_pool *pool, struct host_memory *memory)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->at_work == memory)
        pthread_cond_wait(&pool->changed, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    host_freer_give(&pool->freer, memory);
}

int host_pool_create(struct host_pool *pool, uint64_t bytes, struct host_memory **memory, struct error *error)
{
    if (host_memory_create(bytes, memory, error) != 0)
        return -1;
    (*memory)->freer = &pool->freer;
    (*memory)->after = host_freer_now(&pool->freer);
    return 0;
}

void host_pool_trim(struct host_pool *pool, uint64_t keep_bytes)
{
    struct host_memory *surplus;
    do {
        uint64_t bytes = 0;
        struct host_memory *oldest = NULL;
        pthread_mutex_lock(&pool->lock);
        for (struct host_memory *memory = pool->newest; memory; memory = memory->next) {
            bytes += memory->bytes;
            oldest = memory;
        }
        surplus = bytes > keep_bytes ? oldest : NULL;
        if (surplus)
            unlink_memory(pool, surplus);
        pthread_mutex_unlock(&pool->lock);
        if (surplus)
            destroy(pool, surplus);
    } while (surplus);
}

void host_pool_replace(struct host_pool *pool, struct host_memory *used)
{
    uint64_t bytes = used->bytes;
    struct host_memory *fresh;
    struct error ignored;
    destroy(pool, used);
    if (bytes > pool->budget_bytes || bytes < HUGE_PAGE_BYTES)
        return;
    host_pool_trim(pool, pool->budget_bytes - bytes);
    if (host_pool_create(pool, bytes, &fresh, &ignored) != 0)
        return;
    pthread_mutex_lock(&pool->lock);
    if (!pool->has_thread) {
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        pool->has_thread = pthread_create(&pool->thread, &attributes, back_pages, pool) == 0;
        pthread_attr_destroy(&attributes);
    }
    bool is_kept = pool->has_thread; /* without a thread nothing is prepared */
    if (is_kept) {
        fresh->is_pooled = true;
        fresh->next = pool->newest;
        pool->newest = fresh;
    }
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept)
        host_memory_destroy(fresh);
}
