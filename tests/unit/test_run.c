/* A run's stages and its end: only along the arrows of run.h, and told once. No thread runs. */
#include "tests/support/unit.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/loop.h"
#include "execute/io_device.h"
#include "execute/turns.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static bool aborts(struct run *run, void (*set)(struct run *run, int value), int value)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL);
        set(run, value);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void set_stage(struct run *run, int stage)
{
    run_set_stage(run, (enum run_stage)stage);
}

TEST(stages_follow_the_drawing)
{
    static const char *const may_follow[RUN_N_STAGES] = {/* NEW SETUP GATHERED ACTIVE ENDING FINISHED */
                                                         ".x..xx", "..xx..", "...xxx", "....xx", ".....x", "......"};
    for (int from = 0; from < RUN_N_STAGES; from++)
        for (int to = 0; to < RUN_N_STAGES; to++) {
            struct run run = {.stage = (enum run_stage)from};
            assert_int_equal(aborts(&run, set_stage, to), may_follow[from][to] != 'x');
        }
}

static void finish_need(struct run *run, int need)
{
    run_finish_need(run, (size_t)need);
}

static void take_need(struct run *run, int need)
{
    run_take_need(run, (size_t)need);
}

TEST(a_need_is_taken_once_and_then_done_once)
{
    struct need need = {0};
    struct run run = {.needs = {.list = &need, .n = 1, .n_pending = 1}};
    assert_true(aborts(&run, finish_need, 0));
    run_take_need(&run, 0);
    assert_int_equal(run.needs.n_pending, 0);
    assert_true(aborts(&run, take_need, 0));
    run_finish_need(&run, 0);
    assert_true(aborts(&run, finish_need, 0));
}

static struct transfer_scene scene;
static struct run *run;
static int n_told;

static void count_end(struct loop_task *task)
{
    assert_ptr_equal(task, &run->task);
    n_told++;
    loop_stop(scene.loop);
}

static int open_scene(void **state)
{
    struct transfer bytes = {.row_bytes = 10, .n_rows = 1, .src_stride = 10, .dst_stride = 10};
    (void)state;
    transfer_scene_init(&scene, 1, 100);
    scene.engine.loop = scene.loop = loop_create();
    pthread_cond_init(&scene.engine.crew.work, NULL);
    run = &transfer_scene_add_transfers(&scene, &bytes, 1, true)->run;
    run->task.run = count_end;
    io_device_attach(run);
    turns_add(run);
    n_told = 0;
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    loop_destroy(scene.loop);
    pthread_cond_destroy(&scene.engine.crew.work);
    transfer_scene_fini(&scene);
    return 0;
}

TEST_IN(a_run_ends_when_nothing_is_in_flight_and_every_byte_is_in_place, open_scene, close_scene)
{
    run->destination->has_ending = false;
    run_settle(run); /* its part of the item is still taken */
    assert_int_equal(run->stage, RUN_ACTIVE);
    run_add_report(run, &(struct run_report){.read_bytes = 4, .peak_temporary_bytes = 9}, 6);
    run_add_report(run, &(struct run_report){.read_bytes = 4, .peak_temporary_bytes = 2}, 4);
    run->n_taken = 0;
    run_settle(run);
    run_settle(run);
    loop_run(scene.loop);
    assert_int_equal(n_told, 1);
    assert_false(run->has_failed);
    assert_int_equal(run->account.report.read_bytes, 8);
    assert_int_equal(run->account.report.peak_temporary_bytes, 9);
}

TEST_IN(bytes_that_are_missing_fail_it, open_scene, close_scene)
{
    run->destination->has_ending = false;
    run_add_report(run, &(struct run_report){0}, 9);
    run->n_taken = 0;
    run_settle(run);
    loop_run(scene.loop);
    assert_string_equal(run->error.reason, "BYTES_UNACCOUNTED");
}

TEST_IN(an_ending_comes_before_the_end_and_the_first_error_stays, open_scene, close_scene)
{
    struct error error;
    fail(&error, ERROR_UNAVAILABLE, "FIRST", "the first");
    run_fail(run, &error);
    fail(&error, ERROR_UNAVAILABLE, "SECOND", "the second");
    run_fail(run, &error);
    assert_false(run_wants_ending(run));
    run->n_taken = 0;
    run_settle(run);
    assert_true(run_wants_ending(run)); /* to be abandoned */
    assert_int_equal(run->stage, RUN_ACTIVE);
    run_set_stage(run, RUN_ENDING);
    run_settle(run);
    assert_int_equal(run->stage, RUN_FINISHED);
    loop_run(scene.loop);
    assert_int_equal(n_told, 1);
    assert_string_equal(run->error.reason, "FIRST");
}
