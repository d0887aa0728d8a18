/* libuv behind a few functions. Posted tasks go through a mutex-protected list and one uv_async_t, one wake-up a batch. */
#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <uv.h>

#include "base/helpers.h"
#include "base/memory.h"

enum { MAX_SIGNALS = 8 };

struct signal_handler {
    uv_signal_t handle;
    void (*fn)(void *data, int signal_number);
    void *data;
};

struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    struct helpers *helpers;
    pthread_mutex_t lock;
    struct loop_task *first, **last; /* under lock */
    bool is_ending;                  /* under lock: nobody waits for `wake` */
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

static void run_posted(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    struct loop_task *task = loop->first;
    loop->first = NULL;
    loop->last = &loop->first;
    pthread_mutex_unlock(&loop->lock);
    while (task) {
        struct loop_task *next = task->next;
        task->run(task);
        task = next;
    }
}

static bool has_posted(struct loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    bool found = loop->first != NULL;
    pthread_mutex_unlock(&loop->lock);
    return found;
}

static void on_wake(uv_async_t *wake)
{
    run_posted(wake->data);
}

struct loop *loop_create(void)
{
    struct loop *loop = memory_alloc(sizeof *loop);
    if (uv_loop_init(&loop->uv) || uv_async_init(&loop->uv, &loop->wake, on_wake))
        abort();
    loop->wake.data = loop;
    loop->last = &loop->first;
    pthread_mutex_init(&loop->lock, NULL);
    loop->helpers = helpers_create(loop);
    return loop;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
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
    } while (helpers_wait(loop->helpers) || has_posted(loop) || uv_loop_close(&loop->uv) == UV_EBUSY);
    helpers_destroy(loop->helpers);
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
    return helpers_submit(loop->helpers, work, error);
}

void loop_continue(struct loop *loop, struct loop_work *work)
{
    helpers_continue(loop->helpers, work);
}

void loop_cancel(struct loop *loop, struct loop_work *work)
{
    helpers_cancel(loop->helpers, work);
}

size_t loop_list_lanes(struct loop *loop, uint64_t *lanes, size_t room)
{
    return helpers_list_lanes(loop->helpers, lanes, room);
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
