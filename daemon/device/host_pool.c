/* A short list, newest first, and the thread that makes it what pool_sizes_choose() says; see host_pool.h. System calls that
 * make or free gigabytes run outside the lock. */
#include "device/host_pool.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/host_headroom.h"
#include "base/huge_pages.h"

enum {
    LOOK_BYTES = 64 << 20, /* prepared between two looks at the host */
    COLLAPSE_PAGES = 8,    /* cost as much as one */
    LOW_PRIORITY = 10,     /* not the lowest: who takes memory may have to wait for a step */
    STACK_BYTES = 256 << 10,
};

static const uint64_t LOOK_NS = (uint64_t)2000 * NS_PER_MS; /* between two looks while nothing is done */

static const uint64_t SMALL_BYTES = 64 << 20; /* is not cut into halves any more */

void pool_recent_add(struct pool_recent *recent, uint64_t bytes)
{
    size_t n_kept = recent->n < POOL_RECENT ? recent->n : POOL_RECENT - 1;
    memmove(recent->sizes + 1, recent->sizes, n_kept * sizeof recent->sizes[0]);
    recent->sizes[0] = bytes;
    recent->n = n_kept + 1;
}

static uint64_t round_down(uint64_t bytes)
{
    return bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
}

size_t pool_sizes_choose(const struct pool_recent *recent, uint64_t budget_bytes, uint64_t sizes[POOL_SIZES])
{
    uint64_t left = round_down(budget_bytes);
    size_t n = 0;
    for (size_t i = 0; i < recent->n; i++) {
        if (recent->sizes[i] <= left) {
            sizes[n++] = recent->sizes[i];
            left -= recent->sizes[i];
        }
    }
    while (left > 0 && n < POOL_SIZES) {
        uint64_t half = round_down(left / 2);
        sizes[n] = half >= SMALL_BYTES ? half : left;
        left -= sizes[n++];
    }
    return n;
}

bool pool_size_is_met(uint64_t size, uint64_t memory_bytes)
{
    return memory_bytes >= size && memory_bytes - size <= size / 4;
}

/* What would be cut off was made in vain: at most as much as is used. What would be fresh behind it, at most seven eighths. */
uint64_t pool_size_gain(uint64_t bytes, uint64_t memory_bytes, uint64_t ready_bytes, bool can_grow)
{
    if (memory_bytes >= bytes)
        return memory_bytes - bytes <= bytes ? (ready_bytes < bytes ? ready_bytes : bytes) : 0;
    return can_grow && ready_bytes >= bytes / 8 ? ready_bytes : 0;
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
    __atomic_sub_fetch(pool->ready_bytes, memory->pool_ready_bytes, __ATOMIC_RELAXED);
}

/* Before it is changed or destroyed. */
static void wait_for_thread(struct host_pool *pool, const struct host_memory *memory)
{
    while (pool->at_work == memory)
        pthread_cond_wait(&pool->changed, &pool->lock);
}

static uint64_t sum_bytes(const struct host_pool *pool)
{
    uint64_t bytes = 0;
    for (const struct host_memory *memory = pool->newest; memory; memory = memory->next)
        bytes += memory->bytes;
    return bytes;
}

static struct host_memory *find_oldest(const struct host_pool *pool, bool of_unwanted)
{
    struct host_memory *oldest = NULL;
    for (struct host_memory *memory = pool->newest; memory; memory = memory->next)
        oldest = of_unwanted && memory->is_wanted ? oldest : memory;
    return oldest;
}

/* Says of each memory whether it is wanted; returns the first size for which there is none, or 0. */
static uint64_t find_missing(struct host_pool *pool)
{
    uint64_t sizes[POOL_SIZES], missing = 0;
    size_t n = pool_sizes_choose(&pool->recent, pool->budget_bytes, sizes);
    for (struct host_memory *memory = pool->newest; memory; memory = memory->next)
        memory->is_wanted = false;
    for (size_t i = 0; i < n; i++) {
        struct host_memory *memory = pool->newest;
        while (memory && (memory->is_wanted || !pool_size_is_met(sizes[i], memory->bytes)))
            memory = memory->next;
        if (memory)
            memory->is_wanted = true;
        else if (!missing)
            missing = sizes[i];
    }
    return missing;
}

/* --- under the lock, which is given up meanwhile --------------------------------------------------------------------- */

static void give_away(struct host_pool *pool, struct host_memory *memory)
{
    unlink_memory(pool, memory);
    wait_for_thread(pool, memory);
    pthread_mutex_unlock(&pool->lock);
    host_freer_give(&pool->freer, memory);
    pthread_mutex_lock(&pool->lock);
}

static void pause_thread(struct host_pool *pool)
{
    pool->paused_until_ns = clock_now_ns() + LOOK_NS;
}

static void look_at_host(struct host_pool *pool)
{
    pthread_mutex_unlock(&pool->lock);
    struct host_headroom headroom = host_headroom_at("");
    pthread_mutex_lock(&pool->lock);
    pool->allowance_bytes = headroom.free_bytes < LOOK_BYTES ? headroom.free_bytes : LOOK_BYTES;
    struct host_memory *oldest = headroom.is_short ? find_oldest(pool, false) : NULL;
    if (oldest)
        give_away(pool, oldest);
    if (pool->allowance_bytes < LOOK_BYTES) {
        pool->allowance_bytes = 0;
        pause_thread(pool);
    }
}

/* When there are no pages to be had, the memory goes. */
static void back_one_step(struct host_pool *pool, struct host_memory *memory)
{
    uint64_t step = memory->rung == HUGE_RUNG_COLLAPSE ? COLLAPSE_PAGES * HUGE_PAGE_BYTES : HUGE_PAGE_BYTES;
    uint64_t offset = memory->pool_ready_bytes, left = memory->bytes - offset, bytes = left < step ? left : step;
    struct error ignored;
    pool->at_work = memory;
    pthread_mutex_unlock(&pool->lock);
    int failed = host_memory_prepare(memory, offset, bytes, &ignored);
    pthread_mutex_lock(&pool->lock);
    pool->at_work = NULL;
    pool->allowance_bytes -= pool->allowance_bytes < bytes ? pool->allowance_bytes : bytes;
    if (!failed && memory->is_pooled) {
        memory->pool_ready_bytes += bytes;
        __atomic_add_fetch(pool->ready_bytes, bytes, __ATOMIC_RELAXED);
    } else if (failed) {
        pause_thread(pool);
        if (memory->is_pooled)
            give_away(pool, memory);
    }
    pthread_cond_broadcast(&pool->changed);
}

static void create_missing(struct host_pool *pool, uint64_t bytes)
{
    struct host_memory *fresh;
    struct error ignored;
    pthread_mutex_unlock(&pool->lock);
    int failed = host_memory_create(bytes, &fresh, &ignored);
    if (!failed) {
        fresh->freer = &pool->freer;
        fresh->after = host_freer_now(&pool->freer);
    }
    pthread_mutex_lock(&pool->lock);
    if (failed) {
        pause_thread(pool);
        return;
    }
    fresh->is_pooled = true;
    fresh->next = pool->newest;
    pool->newest = fresh;
    if (pool->is_trimmed)
        give_away(pool, fresh);
}

/* False when there is nothing to do. */
static bool do_something(struct host_pool *pool)
{
    uint64_t missing = find_missing(pool);
    struct host_memory *memory = pool->newest;
    while (memory && (!memory->is_wanted || memory->pool_ready_bytes == memory->bytes))
        memory = memory->next;
    if (!memory && !missing)
        return false;
    if (pool->allowance_bytes == 0)
        look_at_host(pool);
    else if (memory)
        back_one_step(pool, memory);
    else if (sum_bytes(pool) + missing <= pool->budget_bytes)
        create_missing(pool, missing);
    else if ((memory = find_oldest(pool, true)) && !memory->is_wanted)
        give_away(pool, memory);
    else
        return false; /* what is there is a little larger than what was chosen */
    return true;
}

static void *keep_prepared(void *argument)
{
    struct host_pool *pool = argument;
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOW_PRIORITY);
    pthread_mutex_lock(&pool->lock);
    while (!pool->is_stopping) {
        bool may_work = pool->n_filling == 0 && !pool->is_trimmed && clock_now_ns() >= pool->paused_until_ns;
        if (may_work && do_something(pool))
            continue;
        uint64_t until_ns = clock_now_ns() + LOOK_NS;
        condition_wait_until(&pool->changed, &pool->lock, until_ns);
        if (pool->newest && !pool->is_stopping && clock_now_ns() >= until_ns)
            look_at_host(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

void host_pool_init(struct host_pool *pool, uint64_t budget_bytes, uint64_t *ready_bytes)
{
    *pool = (struct host_pool){.budget_bytes = budget_bytes, .ready_bytes = ready_bytes};
    pthread_mutex_init(&pool->lock, NULL);
    condition_init(&pool->changed);
    host_freer_init(&pool->freer);
    if (budget_bytes < HUGE_PAGE_BYTES)
        return;
    pthread_attr_t attributes;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pool->has_thread = pthread_create(&pool->thread, &attributes, keep_prepared, pool) == 0; /* or nothing is prepared */
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void host_pool_fini(struct host_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->is_stopping = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (pool->has_thread)
        pthread_join(pool->thread, NULL);
    host_pool_trim(pool);
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
    struct error ignored;
    if (!pool->has_thread || bytes < HUGE_PAGE_BYTES)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    pool->is_trimmed = false;
    pool_recent_add(&pool->recent, bytes);
    struct host_memory *memory = NULL;
    uint64_t best_gain = 0;
    for (struct host_memory *one = pool->newest; one; one = one->next) {
        uint64_t gain = pool_size_gain(bytes, one->bytes, one->pool_ready_bytes, one->rung != HUGE_RUNG_RESERVED);
        if (gain > best_gain || (memory && gain == best_gain && one->bytes < memory->bytes)) {
            memory = one;
            best_gain = gain;
        }
    }
    if (memory)
        unlink_memory(pool, memory);
    if (memory && memory->bytes != bytes)
        wait_for_thread(pool, memory);
    pthread_mutex_unlock(&pool->lock);
    if (!memory || host_memory_fix(memory, bytes, &ignored) == 0)
        return memory;
    host_pool_give_back(pool, memory);
    return NULL;
}

int host_pool_create(struct host_pool *pool, uint64_t bytes, struct host_memory **memory, struct error *error)
{
    if (host_memory_create(bytes, memory, error) != 0)
        return -1;
    (*memory)->freer = &pool->freer;
    (*memory)->after = host_freer_now(&pool->freer);
    if (host_memory_fix(*memory, bytes, error) == 0)
        return 0;
    host_memory_destroy(*memory);
    return -1;
}

void host_pool_give_back(struct host_pool *pool, struct host_memory *used)
{
    pthread_mutex_lock(&pool->lock);
    wait_for_thread(pool, used); /* it may be at it since before this was taken */
    pthread_mutex_unlock(&pool->lock);
    host_freer_give(&pool->freer, used);
}

void host_pool_trim(struct host_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->is_trimmed = true;
    while (pool->newest)
        give_away(pool, pool->newest);
    pthread_mutex_unlock(&pool->lock);
}
