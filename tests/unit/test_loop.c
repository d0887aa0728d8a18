/* The loop runs what is posted exactly once, on its own thread, in order, from any thread, and to the end. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/memory.h"

struct counting {
    struct loop_task task;
    struct loop *loop;
    int *n_run;
    int stop_at;
};

static void count(struct loop_task *task)
{
    struct counting *counting = (struct counting *)task;
    if (++*counting->n_run == counting->stop_at)
        loop_stop(counting->loop);
}

TEST(a_task_posted_before_the_loop_runs_is_run)
{
    int n_run = 0;
    struct loop *loop = loop_create();
    struct counting last = {.task.run = count, .loop = loop, .n_run = &n_run, .stop_at = 1};
    loop_post(loop, &last.task);
    assert_int_equal(n_run, 0);
    loop_run(loop);
    assert_int_equal(n_run, 1);
    loop_destroy(loop);
}

enum { N_THREADS = 4, N_POSTS = 2000 };

struct poster {
    struct loop *loop;
    struct numbered *tasks;
    int thread;
};

struct numbered {
    struct loop_task task;
    struct shared *shared;
    int thread, number;
};

struct shared { /* touched on the loop thread only */
    struct loop *loop;
    pthread_t loop_thread;
    int next_number[N_THREADS], n_run, n_wrong;
};

static void check_order(struct loop_task *task)
{
    struct numbered *numbered = (struct numbered *)task;
    struct shared *shared = numbered->shared;
    shared->n_wrong += numbered->number != shared->next_number[numbered->thread]++;
    shared->n_wrong += !pthread_equal(pthread_self(), shared->loop_thread);
    if (++shared->n_run == N_THREADS * N_POSTS)
        loop_stop(shared->loop);
}

static void *post_all(void *data)
{
    struct poster *poster = data;
    for (int i = 0; i < N_POSTS; i++)
        loop_post(poster->loop, &poster->tasks[i].task);
    return NULL;
}

TEST(tasks_of_many_threads_run_once_each_in_the_order_of_their_thread)
{
    struct shared shared = {.loop = loop_create(), .loop_thread = pthread_self()};
    struct numbered *tasks = memory_alloc_array(N_THREADS * N_POSTS, sizeof *tasks);
    struct poster posters[N_THREADS];
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS * N_POSTS; i++) {
        tasks[i] =
            (struct numbered){.task.run = check_order, .shared = &shared, .thread = i / N_POSTS, .number = i % N_POSTS};
    }
    for (int i = 0; i < N_THREADS; i++) {
        posters[i] = (struct poster){shared.loop, tasks + i * N_POSTS, i};
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
    }
    loop_run(shared.loop);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.n_run, N_THREADS * N_POSTS);
    assert_int_equal(shared.n_wrong, 0);
    loop_destroy(shared.loop);
    free(tasks);
}

struct sum {
    struct loop_work work;
    struct loop *loop;
    pthread_t loop_thread;
    bool ran_elsewhere;
    int input, output, *n_left;
};

static void square(struct loop_work *work)
{
    struct sum *sum = (struct sum *)work;
    sum->ran_elsewhere = !pthread_equal(pthread_self(), sum->loop_thread);
    sum->output = sum->input * sum->input;
}

static void squared(struct loop_work *work)
{
    struct sum *sum = (struct sum *)work;
    assert_true(pthread_equal(pthread_self(), sum->loop_thread));
    if (--*sum->n_left == 0)
        loop_stop(sum->loop);
}

TEST(work_runs_on_a_helper_thread_and_is_done_on_the_loop)
{
    struct loop *loop = loop_create();
    struct sum sums[20];
    int n_left = 20;
    for (int i = 0; i < 20; i++) {
        sums[i] = (struct sum){.work = {.do_work = square, .done = squared},
                               .loop = loop,
                               .loop_thread = pthread_self(),
                               .input = i,
                               .n_left = &n_left};
        loop_continue(loop, &sums[i].work);
    }
    loop_run(loop);
    assert_int_equal(n_left, 0);
    for (int i = 0; i < 20; i++)
        assert_true(sums[i].ran_elsewhere && sums[i].output == i * i);
    loop_destroy(loop);
}

enum { N_SUMS = 500 };

struct submitter {
    struct loop *loop;
    struct sum *sums;
    int n_refused;
};

static void *submit_all(void *data)
{
    struct submitter *submitter = data;
    struct error error;
    for (int i = 0; i < N_SUMS; i++)
        submitter->n_refused += loop_submit(submitter->loop, &submitter->sums[i].work, &error) != 0;
    return NULL;
}

TEST(any_thread_may_submit_work_which_is_done_once_on_the_loop)
{
    struct loop *loop = loop_create();
    struct sum *sums = memory_alloc_array(N_THREADS * N_SUMS, sizeof *sums);
    struct submitter submitters[N_THREADS];
    pthread_t threads[N_THREADS];
    int n_left = N_THREADS * N_SUMS;
    for (int i = 0; i < N_THREADS * N_SUMS; i++)
        sums[i] = (struct sum){.work = {.do_work = square, .done = squared, .uid = (uint32_t)i % 3},
                               .loop = loop,
                               .loop_thread = pthread_self(),
                               .input = i,
                               .n_left = &n_left};
    for (int i = 0; i < N_THREADS; i++) {
        submitters[i] = (struct submitter){.loop = loop, .sums = sums + i * N_SUMS};
        assert_int_equal(pthread_create(&threads[i], NULL, submit_all, &submitters[i]), 0);
    }
    loop_run(loop);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(submitters[i].n_refused, 0);
    }
    for (int i = 0; i < N_THREADS * N_SUMS; i++)
        assert_true(sums[i].ran_elsewhere && sums[i].output == i * i);
    assert_int_equal(n_left, 0);
    loop_destroy(loop);
    free(sums);
}

struct chain { /* a task that posts the next one and, at the end, submits work */
    struct loop_task task;
    struct loop_work work;
    struct loop *loop;
    int n_left;
    bool worked, done;
};

static void chain_work(struct loop_work *work)
{
    ((struct chain *)((char *)work - offsetof(struct chain, work)))->worked = true;
}

static void chain_done(struct loop_work *work)
{
    ((struct chain *)((char *)work - offsetof(struct chain, work)))->done = true;
}

static void chain_run(struct loop_task *task)
{
    struct chain *chain = (struct chain *)task;
    loop_stop(chain->loop);
    if (--chain->n_left > 0)
        loop_post(chain->loop, &chain->task);
    else
        loop_continue(chain->loop, &chain->work);
}

TEST(finishing_and_destroying_run_what_is_posted_and_what_that_posts_and_wait_for_work)
{
    for (int finishes = 0; finishes < 2; finishes++) {
        struct loop *loop = loop_create();
        struct chain chain = {
            .task.run = chain_run, .work = {.do_work = chain_work, .done = chain_done}, .loop = loop, .n_left = 5};
        loop_post(loop, &chain.task);
        (finishes ? loop_finish : loop_destroy)(loop);
        assert_int_equal(chain.n_left, 0);
        assert_true(chain.worked && chain.done);
        if (finishes)
            loop_destroy(loop);
    }
}

struct ticking {
    struct loop *loop;
    struct loop_timer *timer;
    int n_ticks, stop_at;
};

static void tick(void *data)
{
    struct ticking *ticking = data;
    if (++ticking->n_ticks == ticking->stop_at)
        loop_stop(ticking->loop);
}

TEST(a_repeating_timer_ticks_until_it_is_stopped)
{
    struct ticking often = {.loop = loop_create(), .stop_at = 3};
    struct ticking once = {.loop = often.loop};
    often.timer = loop_timer_create(often.loop, tick, &often);
    once.timer = loop_timer_create(often.loop, tick, &once);
    loop_timer_start(once.timer, 0, 0);
    loop_timer_start(often.timer, 1, 1);
    loop_run(often.loop);
    loop_timer_stop(often.timer);
    assert_int_equal(often.n_ticks, 3);
    assert_int_equal(once.n_ticks, 1);
    loop_timer_start(once.timer, 2, 0);
    once.stop_at = 2;
    loop_run(often.loop);
    assert_int_equal(often.n_ticks, 3);
    loop_timer_destroy(often.timer);
    loop_timer_destroy(once.timer);
    loop_timer_destroy(NULL);
    loop_destroy(often.loop);
}

static void destroy_own_timer(void *data)
{
    struct ticking *ticking = data;
    loop_timer_destroy(ticking->timer);
    loop_stop(ticking->loop);
}

TEST(a_timer_may_be_destroyed_inside_its_own_callback)
{
    struct ticking ticking = {.loop = loop_create()};
    ticking.timer = loop_timer_create(ticking.loop, destroy_own_timer, &ticking);
    loop_timer_start(ticking.timer, 0, 1);
    loop_run(ticking.loop);
    loop_destroy(ticking.loop);
}

struct watching {
    struct loop *loop;
    struct loop_watch *watch;
    int fd, seen, n_bytes;
};

static void on_event(void *data, int events)
{
    struct watching *watching = data;
    char byte;
    watching->seen |= events;
    ssize_t n = events & LOOP_READABLE ? read(watching->fd, &byte, 1) : 1;
    watching->n_bytes += n > 0;
    if (n == 0 || watching->n_bytes == 2 || events & LOOP_HANGUP)
        loop_stop(watching->loop);
}

TEST(a_watch_sees_bytes_and_the_end_of_the_peer)
{
    int fds[2];
    struct watching watching = {.loop = loop_create()};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    watching.fd = fds[0];
    watching.watch = loop_watch_create(watching.loop, fds[0], LOOP_READABLE | LOOP_HANGUP, on_event, &watching);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    loop_run(watching.loop);
    assert_int_equal(watching.n_bytes, 2);
    assert_int_equal(watching.seen, LOOP_READABLE);
    close(fds[1]);
    loop_run(watching.loop);
    assert_true(watching.seen & LOOP_HANGUP);
    assert_int_equal(watching.n_bytes, 2);
    loop_watch_destroy(watching.watch);
    loop_watch_destroy(NULL);
    loop_destroy(watching.loop);
    close(fds[0]);
}

TEST(a_writable_descriptor_is_reported_writable)
{
    int fds[2];
    struct watching watching = {.loop = loop_create(), .n_bytes = 1};
    assert_int_equal(pipe(fds), 0);
    watching.watch = loop_watch_create(watching.loop, fds[1], LOOP_WRITABLE, on_event, &watching);
    loop_run(watching.loop);
    assert_int_equal(watching.seen, LOOP_WRITABLE);
    loop_watch_destroy(watching.watch);
    loop_destroy(watching.loop);
    close(fds[0]);
    close(fds[1]);
}

struct turning {
    struct loop *loop;
    struct loop_task task;
    int n_turns, n_tasks;
};

static void on_task(struct loop_task *task)
{
    struct turning *turning = (struct turning *)((char *)task - offsetof(struct turning, task));
    assert_int_equal(turning->n_tasks++, 0);
}

static void on_turn(void *data)
{
    struct turning *turning = data;
    turning->n_turns++;
    if (turning->n_tasks)
        loop_stop(turning->loop);
}

TEST(a_turn_ends_with_what_is_done_before_the_loop_waits)
{
    struct turning turning = {.loop = loop_create(), .task.run = on_task};
    struct loop_turn *turn = loop_turn_create(turning.loop, on_turn, &turning);
    loop_post(turning.loop, &turning.task);
    loop_run(turning.loop);
    assert_int_equal(turning.n_tasks, 1);
    assert_int_equal(turning.n_turns, 2);
    loop_turn_destroy(turn);
    loop_turn_destroy(NULL);
    loop_destroy(turning.loop);
}

TEST(a_watch_may_be_changed)
{
    int fds[2];
    struct watching watching = {.loop = loop_create()};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    watching.fd = fds[0];
    watching.watch = loop_watch_create(watching.loop, fds[0], LOOP_READABLE, on_event, &watching);
    loop_watch_change(watching.watch, LOOP_WRITABLE);
    assert_int_equal(write(fds[1], "ab", 2), 2);
    loop_run(watching.loop);
    assert_int_equal(watching.seen, LOOP_WRITABLE);
    loop_watch_destroy(watching.watch);
    loop_destroy(watching.loop);
    close(fds[0]), close(fds[1]);
}

TEST(a_descriptor_that_cannot_be_watched_gives_null)
{
    struct loop *loop = loop_create();
    assert_null(loop_watch_create(loop, -1, LOOP_READABLE, on_event, NULL));
    loop_destroy(loop);
}

static void on_signal(void *data, int signal_number)
{
    struct ticking *ticking = data;
    ticking->n_ticks = signal_number;
    loop_stop(ticking->loop);
}

TEST(a_signal_is_handled_on_the_loop)
{
    struct ticking ticking = {.loop = loop_create()};
    loop_on_signal(ticking.loop, SIGHUP, on_signal, &ticking);
    raise(SIGHUP);
    loop_run(ticking.loop);
    assert_int_equal(ticking.n_ticks, SIGHUP);
    loop_destroy(ticking.loop);
}

TEST(destroying_nothing_is_harmless)
{
    loop_finish(NULL);
    loop_destroy(NULL);
    loop_destroy(loop_create());
}
