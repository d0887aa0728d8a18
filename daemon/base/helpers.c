/* One lock for each pool. A user and a lane exist while they have work that waits or runs.
 *
 * Happy path: helpers_submit -> at the end of its lane -> take_next, on a thread -> do_work -> posted to the loop -> done.
 * Failure modes: a full queue refuses; a thread that cannot start is done without, work then waits for those there are. */
#include "base/helpers.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/quota.h"

enum {
    STACK_BYTES = 1 << 20, /* name services and TLS want some; 8 MiB each would be a lot of address space */
    MAX_WAITING_PER_USER = 4096,
    MAX_WAITING_PER_LANE = 1024,
};

static const struct {
    const char *name;
    size_t n_threads, n_kept; /* kept: of these, for root and the daemon's own user */
} kinds[LOOP_POOLS] = {
    [LOOP_LOCAL] = {"short local work", 32, 4},
    [LOOP_DISK] = {"file systems", 64, 4}, /* they wait more than they work */
    [LOOP_REMOTE] = {"remote stores", 64, 4},
    [LOOP_VERIFY] = {"verification", 16, 4}, /* each reads as fast as it can */
};

struct lane {
    struct lane *next;
    uint64_t key;
    struct loop_work *first, **last;
    size_t n_waiting, n_running, n_entering;
    uint64_t answered_ns; /* when it began, or when work last ended */
};

struct user {
    struct user *next;
    uint32_t uid;
    struct lane *lanes; /* the next one to serve first */
    size_t n_waiting, n_running;
};

struct pool {
    struct loop *loop;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* there may be something to take */
    pthread_cond_t idle;    /* nothing waits or runs */
    enum loop_pool kind;
    struct user *users; /* the next one to serve first */
    size_t n_waiting, n_running, n_entering, n_started;
    bool is_stopping;
    pthread_t *threads; /* room for all */
};

static _Thread_local struct pool *own_pool; /* of a helper */
static _Thread_local struct loop_work *own_work;
static const uint64_t patience_ns = 1000 * (uint64_t)NS_PER_MS;

struct helpers {
    struct pool pools[LOOP_POOLS];
};

/* --- users and lanes ---------------------------------------------------------------------------------------------- */

static struct user **find_user(struct pool *pool, uint32_t uid)
{
    struct user **link = &pool->users;
    while (*link && (*link)->uid != uid)
        link = &(*link)->next;
    return link;
}

static struct lane **find_lane(struct user *user, uint64_t key)
{
    struct lane **link = &user->lanes;
    while (*link && (*link)->key != key)
        link = &(*link)->next;
    return link;
}

static struct lane *find_or_make_lane(struct user *user, uint64_t key)
{
    struct lane **link = find_lane(user, key);
    if (!*link) {
        *link = memory_alloc(sizeof **link);
        (*link)->key = key;
        (*link)->last = &(*link)->first;
        (*link)->answered_ns = clock_now_ns();
    }
    return *link;
}

static void forget_lane_if_idle(struct user *user, struct lane *lane)
{
    if (lane->n_waiting + lane->n_running + lane->n_entering > 0)
        return;
    *find_lane(user, lane->key) = lane->next;
    free(lane);
}

static void forget_if_idle(struct pool *pool, struct user *user, struct lane *lane)
{
    forget_lane_if_idle(user, lane);
    if (user->n_waiting + user->n_running == 0) {
        *find_user(pool, user->uid) = user->next;
        free(user);
    }
}

/* --- who is next -------------------------------------------------------------------------------------------------- */

/* Of `limit` threads `taken` are at work, `own` of them for somebody who wants one more. */
static bool has_share(size_t own, size_t taken, size_t limit)
{
    return taken < limit && own < limit - taken;
}

static size_t limit_of(const struct pool *pool, const struct user *user)
{
    return kinds[pool->kind].n_threads - (quota_is_privileged(user->uid) ? 0 : kinds[pool->kind].n_kept);
}

/* What the user can have at most while the others keep what they have. */
static size_t share_of(const struct pool *pool, const struct user *user)
{
    return (limit_of(pool, user) - (pool->n_running - user->n_running) + 1) / 2;
}

static struct lane *find_ready_lane(const struct pool *pool, const struct user *user)
{
    if (user->n_waiting == 0 || !has_share(user->n_running, pool->n_running, limit_of(pool, user)))
        return NULL;
    for (struct lane *lane = user->lanes; lane; lane = lane->next) {
        bool is_alone = lane->key == 0; /* nothing that could hang */
        if (lane->n_waiting && (is_alone || has_share(lane->n_running, user->n_running, share_of(pool, user))))
            return lane;
    }
    return NULL;
}

static struct loop_work *take_next(struct pool *pool)
{
    for (struct user *user = pool->users; user; user = user->next) {
        struct lane *lane = find_ready_lane(pool, user);
        if (!lane)
            continue;
        struct loop_work *work = lane->first;
        lane->first = work->next;
        if (!lane->first)
            lane->last = &lane->first;
        lane->n_waiting--, user->n_waiting--, pool->n_waiting--;
        lane->n_running++, user->n_running++, pool->n_running++;
        struct lane **lane_end = find_lane(user, lane->key);
        for (*lane_end = lane->next; *lane_end; lane_end = &(*lane_end)->next)
            ;
        lane->next = NULL;
        *lane_end = lane;
        struct user **user_end = find_user(pool, user->uid);
        for (*user_end = user->next; *user_end; user_end = &(*user_end)->next)
            ;
        user->next = NULL;
        *user_end = user;
        work->is_waiting = false;
        return work;
    }
    return NULL;
}

static void tell_if_idle(struct pool *pool)
{
    if (pool->n_waiting + pool->n_running == 0)
        pthread_cond_broadcast(&pool->idle);
}

/* Its end may be what another lane or user of the pool waits for: everybody looks. Nobody touches the work once it is
 * posted. */
static void finish_work(struct pool *pool, struct loop_work *work)
{
    struct user *user = *find_user(pool, work->uid);
    struct lane *lane = *find_lane(user, work->lane);
    lane->n_running--, user->n_running--, pool->n_running--;
    lane->answered_ns = clock_now_ns();
    forget_if_idle(pool, user, lane);
    loop_post(pool->loop, &work->task);
    tell_if_idle(pool);
    if (pool->n_waiting + pool->n_entering > 0)
        pthread_cond_broadcast(&pool->changed);
}

static void *thread_main(void *argument)
{
    struct pool *pool = argument;
    own_pool = pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct loop_work *work = own_work = take_next(pool);
        if (work) {
            pthread_mutex_unlock(&pool->lock);
            work->do_work(work);
            pthread_mutex_lock(&pool->lock);
            finish_work(pool, work);
        } else if (pool->is_stopping) {
            break;
        } else {
            pthread_cond_wait(&pool->changed, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* --- lanes that are found on the way ------------------------------------------------------------------------------ */

/* Under the lock, which is given up meanwhile. False when nobody was answered there for a while. */
static bool wait_for_room(struct pool *pool, const struct user *user, struct lane *lane)
{
    bool is_answering = true;
    lane->n_entering++, pool->n_entering++;
    while (is_answering && !has_share(lane->n_running, user->n_running - 1, share_of(pool, user))) {
        uint64_t until_ns = lane->answered_ns + patience_ns;
        struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
        is_answering = clock_now_ns() < until_ns;
        if (is_answering)
            pthread_cond_clockwait(&pool->changed, &pool->lock, CLOCK_MONOTONIC, &until);
    }
    lane->n_entering--, pool->n_entering--;
    return is_answering;
}

int loop_enter_lane(uint64_t lanes, struct error *error)
{
    struct pool *pool = own_pool;
    struct loop_work *work = own_work;
    if (!work || work->lane == 0 || (work->lane | lanes) == work->lane)
        return 0;
    pthread_mutex_lock(&pool->lock);
    struct user *user = *find_user(pool, work->uid);
    struct lane *from = *find_lane(user, work->lane), *to = find_or_make_lane(user, work->lane | lanes);
    size_t n_stuck = to->n_running;
    bool is_answering = wait_for_room(pool, user, to);
    if (is_answering) {
        from->n_running--, to->n_running++;
        work->lane = to->key;
        forget_lane_if_idle(user, from);
    }
    forget_lane_if_idle(user, to);
    pthread_mutex_unlock(&pool->lock);
    return is_answering
               ? 0
               : fail(error, ERROR_UNAVAILABLE, "NO_ANSWER",
                      "a link leads to a file system that has not answered %zu requests of user %u; see whether its "
                      "server is there",
                      n_stuck, (unsigned)work->uid);
}

static int start_thread(struct pool *pool)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int why = pthread_create(&pool->threads[pool->n_started], &attributes, thread_main, pool);
    pthread_attr_destroy(&attributes);
    pool->n_started += why == 0;
    return why;
}

/* --- from outside ------------------------------------------------------------------------------------------------- */

struct helpers *helpers_create(struct loop *loop)
{
    struct helpers *helpers = memory_alloc(sizeof *helpers);
    for (int kind = 0; kind < LOOP_POOLS; kind++) {
        struct pool *pool = &helpers->pools[kind];
        pool->loop = loop;
        pool->kind = (enum loop_pool)kind;
        pool->threads = memory_alloc_array(kinds[kind].n_threads, sizeof *pool->threads);
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->changed, NULL);
        pthread_cond_init(&pool->idle, NULL);
        if (start_thread(pool) != 0)
            abort();
    }
    return helpers;
}

void helpers_destroy(struct helpers *helpers)
{
    for (int kind = 0; kind < LOOP_POOLS; kind++) {
        struct pool *pool = &helpers->pools[kind];
        pthread_mutex_lock(&pool->lock);
        pool->is_stopping = true;
        pthread_cond_broadcast(&pool->changed);
        pthread_mutex_unlock(&pool->lock);
        for (size_t i = 0; i < pool->n_started; i++)
            pthread_join(pool->threads[i], NULL);
        pthread_cond_destroy(&pool->idle);
        pthread_cond_destroy(&pool->changed);
        pthread_mutex_destroy(&pool->lock);
        free(pool->threads);
    }
    free(helpers);
}

static void finish_task(struct loop_task *task)
{
    struct loop_work *work = (struct loop_work *)((char *)task - offsetof(struct loop_work, task));
    work->done(work);
}

/* Under the lock. */
static void enqueue_work(struct pool *pool, struct loop_work *work)
{
    struct user **link = find_user(pool, work->uid);
    if (!*link) {
        *link = memory_alloc(sizeof **link);
        (*link)->uid = work->uid;
    }
    struct user *user = *link;
    struct lane *lane = find_or_make_lane(user, work->lane);
    work->next = NULL;
    work->task.run = finish_task;
    work->is_waiting = true;
    *lane->last = work;
    lane->last = &work->next;
    lane->n_waiting++, user->n_waiting++, pool->n_waiting++;
    size_t n_wanted = pool->n_waiting + pool->n_running;
    if (pool->n_started < n_wanted && pool->n_started < kinds[pool->kind].n_threads)
        start_thread(pool); /* or not: those that run will come to it */
    pthread_cond_signal(&pool->changed);
}

/* Under the lock. */
static int check_room(struct pool *pool, const struct loop_work *work, struct error *error)
{
    struct user *user = *find_user(pool, work->uid);
    struct lane *lane = user ? *find_lane(user, work->lane) : NULL;
    if (lane && lane->key != 0 && lane->n_waiting >= MAX_WAITING_PER_LANE)
        return fail(
            error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_WAITING",
            "user %u has %zu requests waiting for one server or file system, which is the limit; %zu more are at work "
            "there; wait for answers, and see whether it still answers",
            (unsigned)work->uid, lane->n_waiting, lane->n_running);
    if (user && user->n_waiting >= MAX_WAITING_PER_USER)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_WAITING",
                    "user %u has %zu requests waiting for the helpers for %s, which is the limit; wait for answers before "
                    "sending more",
                    (unsigned)work->uid, user->n_waiting, kinds[pool->kind].name);
    return 0;
}

int helpers_submit(struct helpers *helpers, struct loop_work *work, struct error *error)
{
    struct pool *pool = &helpers->pools[work->pool];
    pthread_mutex_lock(&pool->lock);
    int failed = check_room(pool, work, error);
    if (!failed)
        enqueue_work(pool, work);
    pthread_mutex_unlock(&pool->lock);
    return failed;
}

void helpers_continue(struct helpers *helpers, struct loop_work *work)
{
    struct pool *pool = &helpers->pools[work->pool];
    pthread_mutex_lock(&pool->lock);
    enqueue_work(pool, work);
    pthread_mutex_unlock(&pool->lock);
}

/* Under the lock; it waits. */
static void dequeue(struct pool *pool, struct loop_work *work)
{
    struct user *user = *find_user(pool, work->uid);
    struct lane *lane = *find_lane(user, work->lane);
    struct loop_work **link = &lane->first;
    while (*link != work)
        link = &(*link)->next;
    *link = work->next;
    if (!*link)
        lane->last = link;
    lane->n_waiting--, user->n_waiting--, pool->n_waiting--;
    work->is_waiting = false;
    forget_if_idle(pool, user, lane);
}

void helpers_cancel(struct helpers *helpers, struct loop_work *work)
{
    struct pool *pool = &helpers->pools[work->pool];
    pthread_mutex_lock(&pool->lock);
    if (work->is_waiting) {
        dequeue(pool, work);
        loop_post(pool->loop, &work->task);
        tell_if_idle(pool);
    }
    pthread_mutex_unlock(&pool->lock);
}

bool helpers_wait(struct helpers *helpers)
{
    bool had_work = false;
    for (int kind = 0; kind < LOOP_POOLS; kind++) {
        struct pool *pool = &helpers->pools[kind];
        pthread_mutex_lock(&pool->lock);
        for (; pool->n_waiting + pool->n_running > 0; had_work = true)
            pthread_cond_wait(&pool->idle, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    return had_work;
}

size_t helpers_list_lanes(struct helpers *helpers, uint64_t *lanes, size_t room)
{
    size_t n = 0;
    for (int kind = 0; kind < LOOP_POOLS; kind++) {
        struct pool *pool = &helpers->pools[kind];
        pthread_mutex_lock(&pool->lock);
        for (const struct user *user = pool->users; user; user = user->next)
            for (const struct lane *lane = user->lanes; lane && n < room; lane = lane->next)
                if (lane->key != 0 && lane->n_running > 0)
                    lanes[n++] = lane->key;
        pthread_mutex_unlock(&pool->lock);
    }
    return n;
}
