/* libuv behind a few functions. Posted tasks go through a mutex-protected list and one uv_async_t, one wake-up a batch.
 *
 * Helpers: loop_submit -> at the end of its lane -> take_next, on a thread -> do_work -> posted to the loop -> done. One lock
 * for each pool. A user and a lane exist while they have work that waits or runs. Users take turns, and so do the lanes of a
 * user. Threads are shared by the dynamic threshold of quota.h: a user runs no more at once than there are threads left for
 * others, and a lane no more than are left for the user's other lanes. So requests that hang keep at most half of a pool's
 * threads. Threads start when they are needed, the first one with the pool; if no more can start, work waits for those that
 * run. */
#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/quota.h"

enum {
    MAX_SIGNALS = 8,
    STACK_BYTES = 1 << 20, /* name services and TLS want some; 8 MiB each would be a lot of address space */
    MAX_WAITING_PER_LANE = 4096,
};

static const uint64_t patience_ns = 1000 * (uint64_t)NS_PER_MS;

static const struct {
    const char *name;
    size_t n_threads, n_kept; /* kept: of these, for root and the daemon's own user */
} kinds[LOOP_POOLS] = {
    [LOOP_LOCAL] = {"short local work", 32, 4},
    [LOOP_DISK] = {"file systems", 64, 4}, /* they wait more than they work */
    [LOOP_REMOTE] = {"remote stores", 64, 4},
    [LOOP_VERIFY] = {"verification", 16, 4}, /* each reads as fast as it can */
};

struct loop_lane {
    TAILQ_ENTRY(loop_lane) link;
    struct user *user;
    uint64_t key;
    STAILQ_HEAD(, loop_work) works; /* that wait */
    size_t n_waiting, n_running;    /* waiting: also work of other lanes that wants to enter this one */
    uint64_t answered_ns;           /* when it began, or when work last ended */
};

struct user {
    TAILQ_ENTRY(user) link;
    struct pool *pool;
    uint32_t uid;
    TAILQ_HEAD(, loop_lane) lanes; /* the next one to serve first */
    size_t n_running, limit;       /* limit: threads that this user can have, with those of all others */
};

struct pool {
    struct loop *loop;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* there may be something to take */
    pthread_cond_t idle;    /* nothing waits or runs */
    enum loop_pool kind;
    TAILQ_HEAD(, user) users; /* the next one to serve first */
    size_t n_waiting, n_running, n_started;
    bool is_stopping;
    pthread_t *threads; /* room for all */
};

static _Thread_local struct loop_work *own_work; /* of a helper */

struct signal_handler {
    uv_signal_t handle;
    void (*fn)(void *data, int signal_number);
    void *data;
};

struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    struct pool pools[LOOP_POOLS];
    pthread_mutex_t lock;
    struct loop_task *first, **last; /* under lock */
    bool is_ending;                  /* under lock: the loop no longer waits for `wake` */
    struct signal_handler signals[MAX_SIGNALS];
    int n_signals;
};

struct loop_timer {
    uv_timer_t handle;
    void (*fn)(void *data);
    void *data;
};

struct loop_watch {
    uv_poll_t handle;
    void (*fn)(void *data, int events);
    void *data;
};

struct loop_turn {
    uv_prepare_t handle;
    void (*fn)(void *data);
    void *data;
};

/* False when there was nothing. */
static bool run_posted(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct loop_task *task = loop->first;
    bool had_tasks = task;
    loop->first = NULL;
    loop->last = &loop->first;
    pthread_mutex_unlock(&loop->lock);
    while (task) {
        struct loop_task *next = task->next;
        task->run(task);
        task = next;
    }
    return had_tasks;
}

static void on_wake(uv_async_t *wake)
{
    run_posted(wake->data);
}

/* --- helpers: with the lock of their pool held ---------------------------------------------------------------------- */

static struct loop_lane *get_lane(struct pool *pool, uint32_t uid, uint64_t key)
{
    struct user *user;
    struct loop_lane *lane;
    TAILQ_FOREACH (user, &pool->users, link)
        if (user->uid == uid)
            break;
    if (!user) {
        user = memory_alloc(sizeof *user);
        user->pool = pool;
        user->uid = uid;
        user->limit = kinds[pool->kind].n_threads - (quota_is_privileged(uid) ? 0 : kinds[pool->kind].n_kept);
        TAILQ_INIT(&user->lanes);
        TAILQ_INSERT_TAIL(&pool->users, user, link);
    }
    TAILQ_FOREACH (lane, &user->lanes, link)
        if (lane->key == key)
            return lane;
    lane = memory_alloc(sizeof *lane);
    *lane = (struct loop_lane){.user = user, .key = key, .answered_ns = clock_now_ns()};
    STAILQ_INIT(&lane->works);
    TAILQ_INSERT_TAIL(&user->lanes, lane, link);
    return lane;
}

static void forget_if_idle(struct loop_lane *lane)
{
    struct user *user = lane->user;
    if (lane->n_waiting + lane->n_running > 0)
        return;
    TAILQ_REMOVE(&user->lanes, lane, link);
    free(lane);
    if (TAILQ_EMPTY(&user->lanes)) {
        TAILQ_REMOVE(&user->pool->users, user, link);
        free(user);
    }
}

/* Of what the user can have while other users keep what they have; n_running of it at work. Nothing in lane 0 can hang. */
static bool lane_has_share(const struct loop_lane *lane, size_t n_running)
{
    const struct user *user = lane->user;
    size_t share = (user->limit - (user->pool->n_running - user->n_running) + 1) / 2;
    return lane->key == 0 || lane->n_running + n_running < share;
}

/* The lane and the user get their next turn after all others. */
static struct loop_work *take_next(struct pool *pool)
{
    struct user *user;
    struct loop_lane *lane;
    TAILQ_FOREACH (user, &pool->users, link) {
        if (user->n_running + pool->n_running >= user->limit)
            continue;
        TAILQ_FOREACH (lane, &user->lanes, link) {
            struct loop_work *work = STAILQ_FIRST(&lane->works);
            if (!work || !lane_has_share(lane, user->n_running))
                continue;
            STAILQ_REMOVE_HEAD(&lane->works, next);
            lane->n_waiting--, pool->n_waiting--;
            lane->n_running++, user->n_running++, pool->n_running++;
            TAILQ_REMOVE(&user->lanes, lane, link);
            TAILQ_INSERT_TAIL(&user->lanes, lane, link);
            TAILQ_REMOVE(&pool->users, user, link);
            TAILQ_INSERT_TAIL(&pool->users, user, link);
            work->is_waiting = false;
            return work;
        }
    }
    return NULL;
}

/* Another lane or user of the pool may have waited for its end. Its owner may free the work once it is posted. */
static void finish_work(struct pool *pool, struct loop_work *work)
{
    struct loop_lane *lane = work->own_lane;
    lane->n_running--, lane->user->n_running--, pool->n_running--;
    lane->answered_ns = clock_now_ns();
    forget_if_idle(lane);
    loop_post(pool->loop, &work->task);
    if (pool->n_waiting > 0)
        pthread_cond_broadcast(&pool->changed);
    else if (pool->n_running == 0)
        pthread_cond_broadcast(&pool->idle);
}

static void *thread_main(void *argument)
{
    struct pool *pool = argument;
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

static void finish_task(struct loop_task *task)
{
    struct loop_work *work = (struct loop_work *)((char *)task - offsetof(struct loop_work, task));
    work->done(work);
}

static void enqueue_work(struct pool *pool, struct loop_lane *lane, struct loop_work *work)
{
    work->own_lane = lane;
    work->task.run = finish_task;
    work->is_waiting = true;
    STAILQ_INSERT_TAIL(&lane->works, work, next);
    lane->n_waiting++, pool->n_waiting++;
    size_t n_wanted = pool->n_waiting + pool->n_running;
    if (pool->n_started < n_wanted && pool->n_started < kinds[pool->kind].n_threads)
        start_thread(pool); /* or not: those that run will come to it */
    pthread_cond_signal(&pool->changed);
}

/* Without the lock: blocks until nothing waits or runs. False when there was nothing to wait for. */
static bool wait_for_helpers(struct loop *loop)
{
    bool had_work = false;
    for (struct pool *pool = loop->pools; pool < loop->pools + LOOP_POOLS; pool++) {
        pthread_mutex_lock(&pool->lock);
        for (; pool->n_waiting + pool->n_running > 0; had_work = true)
            pthread_cond_wait(&pool->idle, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
    return had_work;
}

/* -------------------------------------------------------------------------------------------------------------------- */

struct loop *loop_create(void)
{
    struct loop *loop = memory_alloc(sizeof *loop);
    if (uv_loop_init(&loop->uv) || uv_async_init(&loop->uv, &loop->wake, on_wake))
        abort();
    loop->wake.data = loop;
    loop->last = &loop->first;
    pthread_mutex_init(&loop->lock, NULL);
    for (int kind = 0; kind < LOOP_POOLS; kind++) {
        struct pool *pool = &loop->pools[kind];
        pool->loop = loop;
        pool->kind = (enum loop_pool)kind;
        pool->threads = memory_alloc_array(kinds[kind].n_threads, sizeof *pool->threads);
        TAILQ_INIT(&pool->users);
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->changed, NULL);
        pthread_cond_init(&pool->idle, NULL);
        if (start_thread(pool) != 0)
            abort();
    }
    return loop;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void loop_finish(struct loop *loop)
{
    for (bool goes_on = loop; goes_on;) {
        bool had_work = wait_for_helpers(loop); /* its end is posted */
        goes_on = run_posted(loop) || had_work;
    }
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    pthread_mutex_lock(&loop->lock);
    loop->is_ending = true;
    pthread_mutex_unlock(&loop->lock);
    do { /* again: what runs here may post, submit work, or call loop_stop(), which ends uv_run() early */
        run_posted(loop);
        uv_walk(&loop->uv, close_handle, NULL);
        uv_run(&loop->uv, UV_RUN_DEFAULT);
    } while (wait_for_helpers(loop) || loop->first || uv_loop_close(&loop->uv) == UV_EBUSY);
    for (struct pool *pool = loop->pools; pool < loop->pools + LOOP_POOLS; pool++) {
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
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void loop_run(struct loop *loop)
{
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop)
{
    uv_stop(&loop->uv);
}

void loop_post(struct loop *loop, struct loop_task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&loop->lock);
    bool was_empty = loop->first == NULL;
    *loop->last = task;
    loop->last = &task->next;
    if (was_empty && !loop->is_ending) /* under the lock, so that the loop cannot end between the two */
        uv_async_send(&loop->wake);
    pthread_mutex_unlock(&loop->lock);
}

int loop_submit(struct loop *loop, struct loop_work *work, struct error *error)
{
    struct pool *pool = &loop->pools[work->pool];
    int failed = 0;
    pthread_mutex_lock(&pool->lock);
    struct loop_lane *lane = get_lane(pool, work->uid, work->lane);
    if (lane->n_waiting < MAX_WAITING_PER_LANE)
        enqueue_work(pool, lane, work);
    else
        failed = fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_WAITING",
                      "user %u has %zu requests waiting for the helpers for %s, at one server or file system, which is the "
                      "limit; %zu more are at work there; wait for answers, and see whether it still answers",
                      (unsigned)work->uid, lane->n_waiting, kinds[pool->kind].name, lane->n_running);
    pthread_mutex_unlock(&pool->lock);
    return failed;
}

void loop_continue(struct loop *loop, struct loop_work *work)
{
    struct pool *pool = &loop->pools[work->pool];
    pthread_mutex_lock(&pool->lock);
    enqueue_work(pool, get_lane(pool, work->uid, work->lane), work);
    pthread_mutex_unlock(&pool->lock);
}

void loop_cancel(struct loop *loop, struct loop_work *work)
{
    struct pool *pool = &loop->pools[work->pool];
    pthread_mutex_lock(&pool->lock);
    if (work->is_waiting) {
        struct loop_lane *lane = work->own_lane;
        STAILQ_REMOVE(&lane->works, work, loop_work, next);
        lane->n_waiting--, pool->n_waiting--;
        work->is_waiting = false;
        forget_if_idle(lane);
        loop_post(loop, &work->task);
    }
    pthread_mutex_unlock(&pool->lock);
}

int loop_enter_lane(uint64_t lanes, struct error *error)
{
    struct loop_work *work = own_work;
    if (!work || work->lane == 0 || (work->lane | lanes) == work->lane)
        return 0;
    struct loop_lane *from = work->own_lane;
    struct pool *pool = from->user->pool;
    bool is_answering = true;
    pthread_mutex_lock(&pool->lock);
    struct loop_lane *to = get_lane(pool, work->uid, work->lane | lanes);
    size_t n_stuck = to->n_running;
    to->n_waiting++, pool->n_waiting++;
    while (is_answering && !lane_has_share(to, to->user->n_running - 1)) {
        is_answering = clock_now_ns() < to->answered_ns + patience_ns;
        if (is_answering)
            condition_wait_until(&pool->changed, &pool->lock, to->answered_ns + patience_ns);
    }
    to->n_waiting--, pool->n_waiting--;
    if (is_answering) {
        from->n_running--, to->n_running++;
        work->own_lane = to;
        work->lane = to->key;
        forget_if_idle(from);
    } else {
        forget_if_idle(to);
    }
    pthread_mutex_unlock(&pool->lock);
    return is_answering
               ? 0
               : fail(error, ERROR_UNAVAILABLE, "NO_ANSWER",
                      "a link leads to a file system that has not answered %zu requests of user %u; see whether its "
                      "server is there",
                      n_stuck, (unsigned)work->uid);
}

size_t loop_list_lanes(struct loop *loop, uint64_t *lanes, size_t room)
{
    size_t n = 0;
    for (struct pool *pool = loop->pools; pool < loop->pools + LOOP_POOLS; pool++) {
        const struct user *user;
        const struct loop_lane *lane;
        pthread_mutex_lock(&pool->lock);
        TAILQ_FOREACH (user, &pool->users, link)
            TAILQ_FOREACH (lane, &user->lanes, link)
                if (lane->key != 0 && lane->n_running > 0 && n < room)
                    lanes[n++] = lane->key;
        pthread_mutex_unlock(&pool->lock);
    }
    return n;
}

struct loop_queue loop_queue_of(struct loop *loop, enum loop_pool kind)
{
    struct pool *pool = &loop->pools[kind];
    pthread_mutex_lock(&pool->lock);
    const struct loop_queue queue = {pool->n_waiting, pool->n_running};
    pthread_mutex_unlock(&pool->lock);
    return queue;
}

static void on_timer(uv_timer_t *handle)
{
    struct loop_timer *timer = handle->data;
    timer->fn(timer->data);
}

static void free_data(uv_handle_t *handle)
{
    free(handle->data);
}

struct loop_timer *loop_timer_create(struct loop *loop, void (*fn)(void *data), void *data)
{
    struct loop_timer *timer = memory_alloc(sizeof *timer);
    uv_timer_init(&loop->uv, &timer->handle);
    timer->handle.data = timer;
    timer->fn = fn;
    timer->data = data;
    return timer;
}

void loop_timer_start(struct loop_timer *timer, uint64_t delay_ms, uint64_t repeat_ms)
{
    uv_update_time(timer->handle.loop);
    uv_timer_start(&timer->handle, on_timer, delay_ms, repeat_ms);
}

void loop_timer_stop(struct loop_timer *timer)
{
    uv_timer_stop(&timer->handle);
}

void loop_timer_destroy(struct loop_timer *timer)
{
    if (timer)
        uv_close((uv_handle_t *)&timer->handle, free_data);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct loop_watch *watch = handle->data;
    int seen = status < 0 ? LOOP_HANGUP : 0;
    seen |= events & UV_READABLE ? LOOP_READABLE : 0;
    seen |= events & UV_WRITABLE ? LOOP_WRITABLE : 0;
    seen |= events & UV_DISCONNECT ? LOOP_HANGUP : 0;
    watch->fn(watch->data, seen);
}

struct loop_watch *loop_watch_create(struct loop *loop, int fd, int events, void (*fn)(void *data, int events), void *data)
{
    struct loop_watch *watch = memory_alloc(sizeof *watch);
    if (uv_poll_init(&loop->uv, &watch->handle, fd)) {
        free(watch);
        return NULL;
    }
    watch->handle.data = watch;
    watch->fn = fn;
    watch->data = data;
    loop_watch_change(watch, events);
    return watch;
}

void loop_watch_change(struct loop_watch *watch, int events)
{
    int wanted = (events & LOOP_READABLE ? UV_READABLE : 0) | (events & LOOP_WRITABLE ? UV_WRITABLE : 0) |
                 (events & LOOP_HANGUP ? UV_DISCONNECT : 0);
    uv_poll_start(&watch->handle, wanted, on_poll);
}

void loop_watch_destroy(struct loop_watch *watch)
{
    if (watch)
        uv_close((uv_handle_t *)&watch->handle, free_data);
}

static void on_turn(uv_prepare_t *handle)
{
    struct loop_turn *turn = handle->data;
    turn->fn(turn->data);
}

struct loop_turn *loop_turn_create(struct loop *loop, void (*fn)(void *data), void *data)
{
    struct loop_turn *turn = memory_alloc(sizeof *turn);
    uv_prepare_init(&loop->uv, &turn->handle);
    turn->handle.data = turn;
    turn->fn = fn;
    turn->data = data;
    uv_prepare_start(&turn->handle, on_turn);
    return turn;
}

void loop_turn_destroy(struct loop_turn *turn)
{
    if (turn)
        uv_close((uv_handle_t *)&turn->handle, free_data);
}

static void on_signal(uv_signal_t *handle, int signal_number)
{
    struct signal_handler *handler = handle->data;
    handler->fn(handler->data, signal_number);
}

void loop_on_signal(struct loop *loop, int signal_number, void (*fn)(void *data, int signal_number), void *data)
{
    if (loop->n_signals == MAX_SIGNALS)
        abort();
    struct signal_handler *handler = &loop->signals[loop->n_signals++];
    uv_signal_init(&loop->uv, &handler->handle);
    handler->handle.data = handler;
    handler->fn = fn;
    handler->data = data;
    uv_signal_start(&handler->handle, on_signal, signal_number);
}
