/* See remote_pool.h. Two kinds of temporary memory, both freed some time after the last use:
 *
 *   images    of whole blocks of which only a part was wanted so far: the extent cache, bounded by its own setting, and
 *             by little more than half the staging budget while a load is alone and of no group
 *   windows   for memory that sockets cannot write into: within the staging budget, of which the other threads then keep
 *             only the buffers that they work with */
#include "execute/remote_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/quota.h"
#include "blocks/blocks.h"
#include "execute/engine_private.h"
#include "plan/cost.h"

enum { KEPT_THREADS = REMOTE_MAX_THREADS / 8 };
static const uint64_t early_ns = 100 * (uint64_t)NS_PER_MS;
static const uint64_t alone_bytes = 32 << 20; /* of images, beside the staging budget: within what a daemon needs to run */

void remote_pool_init(struct remote_pool *pool, const struct engine_options *options)
{
    pool->staging_budget_bytes = options->staging_budget_bytes;
    pool->extent_cache_bytes = options->extent_cache_bytes;
    pthread_cond_init(&pool->window_free, NULL);
}

void remote_pool_fini(struct remote_pool *pool)
{
    staging_fini(&pool->images);
    staging_fini(&pool->windows);
    while (pool->origins) {
        struct remote_origin *next = pool->origins->next;
        free(pool->origins->name);
        free(pool->origins);
        pool->origins = next;
    }
    pthread_cond_destroy(&pool->window_free);
}

uint64_t remote_pool_bytes(const struct remote_pool *pool)
{
    return __atomic_load_n(&pool->windows.n_buffers, __ATOMIC_RELAXED) * pool->windows.buffer_bytes;
}

bool remote_pool_has_memory(const struct remote_pool *pool)
{
    return pool->images.n_buffers > 0 || pool->windows.n_buffers > 0;
}

uint64_t engine_extent_bytes(const struct engine *engine)
{
    const struct remote_pool *pool = &engine->remote;
    return __atomic_load_n(&pool->images.n_buffers, __ATOMIC_RELAXED) * pool->images.buffer_bytes;
}

static uint64_t extent_cache_limit(const struct remote_pool *pool, bool is_alone)
{
    uint64_t most = pool->staging_budget_bytes / 2 + alone_bytes;
    return is_alone && most < pool->extent_cache_bytes ? most : pool->extent_cache_bytes;
}

uint64_t engine_extent_cache_bytes(const struct engine *engine, bool is_alone)
{
    return extent_cache_limit(&engine->remote, is_alone);
}

static bool is_alone(const struct remote_pool *pool)
{
    return pool->n_runs < 2 && pool->n_of_groups == 0;
}

uint64_t remote_pool_image_budget(const struct remote_pool *pool)
{
    return extent_cache_limit(pool, is_alone(pool)) / pool->images.buffer_bytes;
}

/* --- origins -------------------------------------------------------------------------------------------------------- */

/* "s3://bucket/key" -> "s3://bucket", without a user and a password; a reference without an authority is its own origin.
 * malloced. */
static char *name_of_origin(const char *reference)
{
    const char *mark = strstr(reference, "://");
    if (!mark)
        return memory_copy_text(reference);
    const char *authority = mark + 3, *end = authority + strcspn(authority, "/?#");
    const char *user = memrchr(authority, '@', (size_t)(end - authority));
    authority = user ? user + 1 : authority;
    size_t scheme_chars = (size_t)(mark + 3 - reference), rest_chars = (size_t)(end - authority);
    char *name = memory_alloc(scheme_chars + rest_chars + 1);
    memcpy(name, reference, scheme_chars);
    memcpy(name + scheme_chars, authority, rest_chars);
    return name;
}

/* A fresh one, or one that no run refers to any more. */
static struct remote_origin *make_origin(struct remote_pool *pool)
{
    struct remote_origin *idle = NULL;
    size_t n_idle = 0;
    for (struct remote_origin *origin = pool->origins; origin; origin = origin->next) {
        if (origin->n_runs > 0 || origin->n_in_flight > 0)
            continue;
        idle = origin;
        n_idle++;
    }
    if (n_idle >= REMOTE_MAX_IDLE_ORIGINS)
        return idle;
    struct remote_origin *fresh = memory_alloc(sizeof *fresh);
    fresh->next = pool->origins;
    pool->origins = fresh;
    return fresh;
}

static struct remote_origin *find_origin(const struct remote_pool *pool, const char *name)
{
    struct remote_origin *origin = pool->origins;
    while (origin && strcmp(origin->name, name) != 0)
        origin = origin->next;
    return origin;
}

static struct remote_origin *find_or_make_origin(struct remote_pool *pool, const struct source *source)
{
    char *name = name_of_origin(source->reference);
    struct remote_origin *found = find_origin(pool, name);
    if (found) {
        free(name);
        return found;
    }
    struct remote_origin *made = make_origin(pool);
    const struct source_speed unknown = {0};
    free(made->name);
    made->name = name;
    made->speed = unknown;
    remote_pace_init(&made->pace, remote_parallel_requests(&source->caps, &unknown));
    return made;
}

static void attach_remote(struct run *run)
{
    struct engine *engine = run->engine;
    const struct source *source = run->options.mapping->artifact->source;
    if (engine->remote.images.buffer_bytes == 0) { /* all images have one size: that of the first remote source's blocks */
        struct remote_pool *pool = &engine->remote;
        staging_init(&pool->images, remote_block_bytes(&source->caps), pool->extent_cache_bytes);
        staging_init(&pool->windows, remote_window_bytes(&source->caps, pool->staging_budget_bytes), 0);
    }
    run->origin = find_or_make_origin(&engine->remote, source);
    run->origin->n_runs++;
    engine->remote.n_runs++;
    engine->remote.n_of_groups += run->options.is_of_group;
    run->block_bytes = run->destination->address ? remote_block_bytes(&source->caps) : engine->remote.windows.buffer_bytes;
}

void remote_pool_attach(struct run *run)
{
    const struct block_holder *holder = run->options.holders;
    run->block_bytes = run->engine->block_bytes;
    if (run->options.mapping->artifact->source->caps.reads_are_requests)
        attach_remote(run);
    if (holder && holder->block_bytes > 0 && holder->block_bytes < run->block_bytes)
        run->block_bytes = holder->block_bytes;
}

void remote_pool_detach(struct run *run)
{
    struct remote_pool *pool = &run->engine->remote;
    if (!run->origin)
        return;
    run->origin->n_runs--;
    pool->n_runs--;
    pool->n_of_groups -= run->options.is_of_group;
}

/* --- threads -------------------------------------------------------------------------------------------------------- */

static uint32_t limit_of(const struct remote_origin *origin)
{
    uint32_t allowed = origin->speed.parallel_requests;
    return allowed > 0 && allowed < origin->pace.limit ? allowed : origin->pace.limit;
}

void engine_each_origin(struct engine *engine, void (*fn)(void *data, const struct engine_origin *origin), void *data)
{
    pthread_mutex_lock(&engine->lock);
    for (const struct remote_origin *origin = engine->remote.origins; origin; origin = origin->next)
        fn(data, &(struct engine_origin){origin->name, origin->speed, limit_of(origin), origin->n_in_flight});
    pthread_mutex_unlock(&engine->lock);
}

struct source_speed engine_source_speed(struct engine *engine, struct source *source)
{
    struct source_speed speed;
    char *name = name_of_origin(source->reference);
    source_speed(source, &speed);
    pthread_mutex_lock(&engine->lock);
    const struct remote_origin *origin = source->caps.reads_are_requests ? find_origin(&engine->remote, name) : NULL;
    uint32_t limit = origin ? origin->pace.limit : 0;
    pthread_mutex_unlock(&engine->lock);
    free(name);
    if (limit > 0 && (speed.parallel_requests == 0 || limit < speed.parallel_requests))
        speed.parallel_requests = limit;
    return speed;
}

/* What a load that is alone so far reads for a part of it, it reads for no other load beyond its few images: it goes slowly in
 * the beginning, so that ranks which come a moment later find most of it still to be read. */
static bool is_early(const struct run *run, uint64_t n_images)
{
    bool is_partial = run->needs.pass == 1 && run->destination->address && n_images > 0;
    return is_partial && is_alone(&run->engine->remote) && clock_now_ns() - run->account.started_ns < early_ns;
}

static struct remote_share *find_share(const struct remote_origin *origin, uid_t uid)
{
    struct remote_share *share = origin->shares;
    while (share && share->uid != uid)
        share = share->next;
    return share;
}

static void share_add(struct remote_origin *origin, uid_t uid)
{
    struct remote_share *share = find_share(origin, uid);
    if (!share) {
        share = memory_alloc(sizeof *share);
        share->uid = uid;
        share->next = origin->shares;
        origin->shares = share;
    }
    share->n_in_flight++;
    origin->n_in_flight++;
}

static void share_subtract(struct remote_origin *origin, uid_t uid)
{
    struct remote_share **link = &origin->shares, *share;
    origin->n_in_flight--;
    while ((*link)->uid != uid)
        link = &(*link)->next;
    share = *link;
    if (--share->n_in_flight > 0)
        return;
    *link = share->next;
    free(share);
}

/* Threads wait as long as servers do: some are kept for the next user. */
static bool leaves_threads(const struct run *run)
{
    const struct remote_pool *pool = &run->engine->remote;
    uid_t uid = run->options.uid;
    uint32_t n_free = REMOTE_MAX_THREADS - pool->n_busy, n_of_user = 0;
    if (n_free > KEPT_THREADS)
        return true;
    for (const struct remote_origin *origin = pool->origins; origin; origin = origin->next) {
        const struct remote_share *share = find_share(origin, uid);
        n_of_user += share ? share->n_in_flight : 0;
    }
    return run->origin->n_in_flight < n_free && (quota_is_privileged(uid) || n_of_user < n_free);
}

bool remote_pool_may_take(const struct run *run)
{
    uint64_t limit = limit_of(run->origin), n_images = remote_pool_image_budget(&run->engine->remote);
    if (n_images < limit && is_early(run, n_images)) {
        limit = n_images;
        run->engine->remote.is_held_back = true;
    }
    return run->origin->n_in_flight < limit && leaves_threads(run);
}

void remote_pool_begin(struct worker *worker, const struct run *run)
{
    worker->started_ns = clock_now_ns(); /* making memory ready for the answer takes its share of the time, too */
    worker->engine->remote.n_busy++;
    share_add(run->origin, run->options.uid);
}

void remote_pool_end(struct worker *worker)
{
    struct remote_pool *pool = &worker->engine->remote;
    const struct item *item = &worker->item;
    const struct run *run = item->parts[0].run;
    struct remote_origin *origin = run->origin;
    uint32_t before = limit_of(origin);
    uint64_t now_ns = clock_now_ns();
    origin->speed = worker->speed;
    if (item->read_ns > 0 && !item->should_stop && !run->options.holders) /* other hosts' pace is none of the store's */
        remote_pace_add(&origin->pace, now_ns, now_ns - worker->started_ns, origin->n_in_flight);
    share_subtract(origin, run->options.uid);
    pool->n_busy--;
    if (limit_of(origin) > before || pool->is_held_back)
        pthread_cond_broadcast(&pool->crew.work);
    pool->is_held_back = false; /* until the next one says so */
}

/* What reads of other sources give up while windows are in use. */
static void share_staging(struct engine *engine)
{
    struct remote_pool *pool = &engine->remote;
    uint64_t images = is_alone(pool) ? pool->images.n_buffers * pool->images.buffer_bytes : 0;
    uint64_t most = pool->staging_budget_bytes / 2, budget = pool->staging_budget_bytes - (images < most ? images : most);
    uint64_t others = engine->n_workers * engine->staging.buffer_bytes;
    others *= engine->has_spares ? 2 : 1;
    bool in_use = pool->windows.n_buffers > 0 || pool->n_waiting > 0;
    staging_resize(&engine->staging, in_use && others < budget ? others : budget);
    uint64_t own = in_use && others < budget ? (budget - others) / pool->windows.buffer_bytes : 0;
    pool->windows.budget_buffers = own > 0 ? own : 1;
}

void remote_pool_expire(struct engine *engine, uint64_t before_ns)
{
    struct remote_pool *pool = &engine->remote;
    staging_expire(&pool->images, before_ns);
    if (pool->windows.n_buffers > 0 && !staging_expire(&pool->windows, before_ns))
        share_staging(engine);
}

size_t remote_pool_wanted_threads(const struct remote_pool *pool)
{
    size_t n_wanted = 0;
    for (const struct remote_origin *origin = pool->origins; origin; origin = origin->next)
        if (origin->n_runs > 0)
            n_wanted += origin->pace.most;
    return n_wanted < REMOTE_MAX_THREADS ? n_wanted : REMOTE_MAX_THREADS;
}

struct staging_buffer *remote_pool_take_window(struct remote_pool *pool, struct item *item)
{
    bool waits = false;
    uint64_t started_ns = clock_now_ns();
    struct engine *engine = item->engine;
    struct staging_buffer *window = NULL;
    pthread_mutex_lock(&engine->lock);
    pool->n_waiting++;
    while (!item->cancel.is_set(item->cancel.data)) {
        share_staging(engine);
        window = staging_take(&pool->windows, NULL);
        if (window || pool->windows.n_buffers == 0) /* no thread will give one back */
            break;
        if (!waits)
            waiting_begin(&item->note, "staging memory that other loads use", 0);
        waits = true;
        pthread_cond_wait(&pool->window_free, &engine->lock);
    }
    if (waits)
        waiting_end(&item->note);
    pool->n_waiting--;
    item->memory_ns += clock_now_ns() - started_ns;
    pthread_mutex_unlock(&engine->lock);
    return window;
}
