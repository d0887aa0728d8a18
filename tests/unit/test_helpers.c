/* Helpers are shared by kind of work, between users, and between what one user waits for. Work that hangs is work that waits
 * for a gate; a test that is not served within PATIENCE_MS has failed. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/memory.h"

enum { ALICE = 1000, BOB = 1001, MANY = 200, PATIENCE_MS = 60000 };

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
};

struct stage {
    struct loop *loop;
    struct gate gate;
    int n_done; /* of the hanging work */
};

struct job {
    struct loop_work work; /* first */
    struct stage *stage;
    bool hangs, was_run, is_done;
    uint64_t enters; /* a lane, on the way; 0 = none */
    int refused;
    struct error error;
};

static void open_stage(struct stage *stage)
{
    *stage = (struct stage){.loop = loop_create()};
    pthread_mutex_init(&stage->gate.lock, NULL);
    pthread_cond_init(&stage->gate.opened, NULL);
}

static void open_gate(struct stage *stage)
{
    pthread_mutex_lock(&stage->gate.lock);
    stage->gate.is_open = true;
    pthread_cond_broadcast(&stage->gate.opened);
    pthread_mutex_unlock(&stage->gate.lock);
}

/* Everything that was submitted is done then. */
static void close_stage(struct stage *stage)
{
    open_gate(stage);
    loop_destroy(stage->loop);
    pthread_cond_destroy(&stage->gate.opened);
    pthread_mutex_destroy(&stage->gate.lock);
}

static void do_work(struct loop_work *work)
{
    struct job *job = (struct job *)work;
    struct gate *gate = &job->stage->gate;
    job->refused = loop_enter_lane(job->enters, &job->error);
    pthread_mutex_lock(&gate->lock);
    while (job->hangs && !job->refused && !gate->is_open)
        pthread_cond_wait(&gate->opened, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
    job->was_run = true;
}

static void done(struct loop_work *work)
{
    struct job *job = (struct job *)work;
    assert_false(job->is_done);
    job->is_done = true;
    job->stage->n_done += job->hangs;
    if (!job->hangs)
        loop_stop(job->stage->loop);
}

static struct job job_of(struct stage *stage, enum loop_pool pool, uint32_t uid, uint64_t lane)
{
    return (struct job){.work = {.do_work = do_work, .done = done, .pool = pool, .uid = uid, .lane = lane}, .stage = stage};
}

static struct job *hang(struct stage *stage, size_t n, enum loop_pool pool, uint32_t uid, uint64_t lane)
{
    struct job *jobs = memory_alloc_array(n, sizeof *jobs);
    struct error error;
    for (size_t i = 0; i < n; i++) {
        jobs[i] = job_of(stage, pool, uid, lane);
        jobs[i].hangs = true;
        assert_int_equal(loop_submit(stage->loop, &jobs[i].work, &error), 0);
    }
    return jobs;
}

static void give_up(void *data)
{
    loop_stop(data);
}

static bool is_served(struct stage *stage, enum loop_pool pool, uint32_t uid, uint64_t lane)
{
    struct job job = job_of(stage, pool, uid, lane);
    struct error error;
    assert_int_equal(loop_submit(stage->loop, &job.work, &error), 0);
    struct loop_timer *patience = loop_timer_create(stage->loop, give_up, stage->loop);
    loop_timer_start(patience, PATIENCE_MS, 0);
    loop_run(stage->loop);
    loop_timer_destroy(patience);
    bool served = job.is_done && job.was_run;
    if (!served) { /* it is on our stack */
        open_gate(stage);
        while (!job.is_done)
            loop_run(stage->loop);
    }
    return served;
}

TEST(work_of_one_kind_does_not_wait_for_another)
{
    struct stage stage;
    struct job *jobs[8];
    open_stage(&stage);
    for (uint64_t lane = 0; lane < 8; lane++)
        jobs[lane] = hang(&stage, MANY, LOOP_REMOTE, ALICE, 1 + lane);
    assert_true(is_served(&stage, LOOP_DISK, ALICE, 1));
    assert_true(is_served(&stage, LOOP_LOCAL, ALICE, 0));
    assert_true(is_served(&stage, LOOP_VERIFY, ALICE, 1));
    assert_int_equal(stage.n_done, 0);
    close_stage(&stage);
    assert_int_equal(stage.n_done, 8 * MANY);
    for (size_t i = 0; i < 8; i++)
        free(jobs[i]);
}

TEST(a_user_who_hangs_leaves_helpers_to_others_and_so_does_root)
{
    enum { N_LANES = 8 };
    static const uint32_t rows[][3] = {{ALICE, BOB, 0}, {0, ALICE, BOB}}; /* the first one hangs */
    struct job *jobs[N_LANES];
    for (int row = 0; row < 2 * LOOP_POOLS; row++) {
        enum loop_pool pool = (enum loop_pool)(row / 2);
        struct stage stage;
        open_stage(&stage);
        for (uint64_t lane = 0; lane < N_LANES; lane++)
            jobs[lane] = hang(&stage, MANY, pool, rows[row % 2][0], lane);
        assert_true(is_served(&stage, pool, rows[row % 2][1], 1));
        assert_true(is_served(&stage, pool, rows[row % 2][2], 1));
        assert_int_equal(stage.n_done, 0);
        close_stage(&stage);
        for (size_t i = 0; i < N_LANES; i++)
            free(jobs[i]);
    }
}

TEST(whatever_many_users_take_some_helpers_are_left_for_root)
{
    enum { N_USERS = 100, EACH = 10 };
    struct stage stage;
    struct job *jobs[N_USERS];
    open_stage(&stage);
    for (uint32_t i = 0; i < N_USERS; i++)
        jobs[i] = hang(&stage, EACH, LOOP_DISK, ALICE + i, 1);
    assert_true(is_served(&stage, LOOP_DISK, 0, 1));
    assert_int_equal(stage.n_done, 0);
    close_stage(&stage);
    assert_int_equal(stage.n_done, N_USERS * EACH);
    for (size_t i = 0; i < N_USERS; i++)
        free(jobs[i]);
}

TEST(a_server_or_mount_that_hangs_leaves_helpers_for_the_same_users_other_work)
{
    struct stage stage;
    open_stage(&stage);
    struct job *jobs = hang(&stage, MANY, LOOP_DISK, ALICE, 1);
    assert_true(is_served(&stage, LOOP_DISK, ALICE, 2));
    struct job *more = hang(&stage, MANY, LOOP_DISK, ALICE, 3);
    assert_true(is_served(&stage, LOOP_DISK, ALICE, 2));
    assert_int_equal(stage.n_done, 0);
    close_stage(&stage);
    free(jobs);
    free(more);
}

/* As a link does that leads to a dead mount. */
TEST(what_hangs_in_a_lane_found_on_the_way_leaves_helpers_where_it_began)
{
    struct stage stage;
    struct error error;
    size_t n_refused = 0;
    open_stage(&stage);
    struct job *jobs = memory_alloc_array(MANY, sizeof *jobs);
    for (size_t i = 0; i < MANY; i++) {
        jobs[i] = job_of(&stage, LOOP_DISK, ALICE, 1);
        jobs[i].hangs = true;
        jobs[i].enters = 2;
        assert_int_equal(loop_submit(stage.loop, &jobs[i].work, &error), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_true(is_served(&stage, LOOP_DISK, ALICE, 1));
    assert_true(is_served(&stage, LOOP_DISK, ALICE, 4));
    close_stage(&stage);
    for (size_t i = 0; i < MANY; i++) {
        assert_true(jobs[i].is_done);
        n_refused += jobs[i].refused != 0;
        assert_true(!jobs[i].refused || jobs[i].error.code == ERROR_UNAVAILABLE);
    }
    assert_in_range(n_refused, MANY / 2, MANY - 1); /* those that came when no request had been answered for a while */
    free(jobs);
}

TEST(work_enters_other_lanes_while_they_answer)
{
    struct stage stage;
    struct error error;
    open_stage(&stage);
    struct job *jobs = memory_alloc_array(MANY, sizeof *jobs);
    for (size_t i = 0; i < MANY; i++) {
        jobs[i] = job_of(&stage, LOOP_DISK, ALICE, 1);
        jobs[i].enters = 1 + i % 7;
        assert_int_equal(loop_submit(stage.loop, &jobs[i].work, &error), 0);
    }
    close_stage(&stage);
    for (size_t i = 0; i < MANY; i++)
        assert_true(jobs[i].is_done && jobs[i].was_run && !jobs[i].refused);
    assert_int_equal(loop_enter_lane(2, &error), 0); /* not on a helper */
    free(jobs);
}

TEST(a_full_queue_refuses_and_names_the_limit)
{
    struct stage stage;
    struct error error = {0};
    struct job step, *jobs = memory_alloc_array(8192, sizeof *jobs);
    size_t n = 0;
    open_stage(&stage);
    for (; n < 8192; n++) {
        jobs[n] = job_of(&stage, LOOP_REMOTE, ALICE, 1);
        jobs[n].hangs = true;
        if (loop_submit(stage.loop, &jobs[n].work, &error) != 0)
            break;
    }
    assert_in_range(n, 4096, 4096 + 64); /* so many wait, and those that run */
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "TOO_MANY_WAITING");
    assert_non_null(strstr(error.message, "has 4096 requests waiting"));
    assert_true(is_served(&stage, LOOP_REMOTE, ALICE, 2));
    assert_true(is_served(&stage, LOOP_REMOTE, BOB, 1));
    step = job_of(&stage, LOOP_REMOTE, ALICE, 1);
    loop_continue(stage.loop, &step.work); /* what has begun goes on */
    close_stage(&stage);
    assert_int_equal(stage.n_done, (int)n);
    assert_true(step.is_done);
    assert_false(jobs[n].is_done); /* was refused */
    free(jobs);
}

TEST(work_that_waits_can_be_cancelled_and_is_not_begun)
{
    struct stage stage;
    open_stage(&stage);
    struct job *jobs = hang(&stage, MANY, LOOP_DISK, ALICE, 1);
    assert_true(is_served(&stage, LOOP_DISK, BOB, 1));
    for (size_t i = 0; i < MANY; i++)
        loop_cancel(stage.loop, &jobs[i].work);
    close_stage(&stage);
    size_t n_run = 0;
    for (size_t i = 0; i < MANY; i++) {
        assert_true(jobs[i].is_done);
        n_run += jobs[i].was_run;
    }
    assert_in_range(n_run, 0, 64);
    free(jobs);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void limit_addresses(uint64_t spare_bytes)
{
    (void)spare_bytes;
    skip(); /* a sanitizer takes terabytes of them */
}
#else
static void limit_addresses(uint64_t spare_bytes)
{
    unsigned long n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(file, "%lu", &n_pages), 1);
    fclose(file);
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = n_pages * 4096 + spare_bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}
#endif

TEST(without_room_for_more_threads_the_first_ones_do_the_work)
{
    enum { N_JOBS = 50 };
    struct stage stage;
    struct rlimit before;
    struct job jobs[N_JOBS];
    struct error error;
    getrlimit(RLIMIT_AS, &before);
    open_stage(&stage);
    limit_addresses(256 << 10);
    for (int i = 0; i < N_JOBS; i++) {
        jobs[i] = job_of(&stage, LOOP_REMOTE, ALICE, 1);
        assert_int_equal(loop_submit(stage.loop, &jobs[i].work, &error), 0);
    }
    close_stage(&stage);
    setrlimit(RLIMIT_AS, &before);
    for (int i = 0; i < N_JOBS; i++)
        assert_true(jobs[i].is_done && jobs[i].was_run);
}

static bool is_listed(struct stage *stage, uint64_t lane)
{
    uint64_t lanes[8];
    size_t n = loop_list_lanes(stage->loop, lanes, 8);
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found = found || lanes[i] == lane;
    return found;
}

TEST(lanes_are_listed_while_work_asks_what_they_stand_for)
{
    struct stage stage;
    open_stage(&stage);
    struct job *nothing = hang(&stage, 1, LOOP_DISK, ALICE, 0), *disk = hang(&stage, 1, LOOP_DISK, ALICE, 4),
               *remote = hang(&stage, 1, LOOP_REMOTE, BOB, 8), linked = job_of(&stage, LOOP_DISK, BOB, 1);
    struct error error;
    linked.hangs = true;
    linked.enters = 2;
    assert_int_equal(loop_submit(stage.loop, &linked.work, &error), 0);
    while (!is_listed(&stage, 4) || !is_listed(&stage, 8) || !is_listed(&stage, 1 | 2))
        usleep(1000);
    assert_int_equal(loop_queue_of(stage.loop, LOOP_REMOTE).running, 1);
    assert_int_equal(loop_queue_of(stage.loop, LOOP_VERIFY).waiting, 0);
    assert_false(is_listed(&stage, 0));
    assert_false(is_listed(&stage, 2));
    open_gate(&stage);
    while (is_listed(&stage, 4) || is_listed(&stage, 8) || is_listed(&stage, 1 | 2))
        usleep(1000);
    close_stage(&stage);
    free(nothing);
    free(disk);
    free(remote);
}
