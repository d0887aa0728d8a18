/* A step on a helper that lacks descriptors runs again when there are some. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "load/helper_step.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

enum { LIMIT = 20 };

struct scene {
    struct loop_work work; /* first */
    struct load_services services;
    struct replica_table *replicas;
    struct quota_charge others, own;
    struct waiting waiting;
    struct helper_step step;
    struct error error;
    bool waits_for_others;
    int failed, n_runs, n_failures;
};

static void take_descriptor(struct loop_work *work)
{
    struct scene *scene = (struct scene *)work;
    waiting_end(&scene->waiting);
    scene->n_runs++;
    scene->failed = quota_charge_add(&scene->own, 1, &scene->error);
}

static void on_taken(struct loop_work *work)
{
    struct scene *scene = (struct scene *)work;
    bool goes_on =
        scene->failed && (scene->waits_for_others ? helper_step_again_or_wait(&scene->step, scene->replicas, &scene->error)
                                                  : helper_step_again(&scene->step, scene->replicas, &scene->error));
    scene->n_failures += scene->failed != 0;
    quota_charge_end(&scene->others);
    if (goes_on)
        return;
    helper_step_end(&scene->step);
    loop_stop(scene->services.loop);
}

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    const struct replica_limits limits = {.budget_bytes = 1 << 20};
    scene->services.loop = loop_create();
    scene->services.quota = quota_create();
    quota_set_limits(scene->services.quota, QUOTA_DESCRIPTORS, LIMIT, 0);
    scene->services.descriptors = descriptor_queue_create(scene->services.loop, scene->services.quota);
    scene->replicas = replica_table_create(scene->services.loop, REPLICA_MEMORY_HOST, &limits);
    scene->others = scene->own =
        (struct quota_charge){.quota = scene->services.quota, .kind = QUOTA_DESCRIPTORS, .is_bulk = true};
    scene->work = (struct loop_work){.do_work = take_descriptor, .done = on_taken};
    waiting_init(&scene->waiting);
    helper_step_init(&scene->step, &scene->services, &scene->work, &scene->waiting);
    assert_int_equal(quota_charge_add(&scene->others, LIMIT, &scene->error), 0);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    quota_charge_end(&scene->own);
    replica_table_destroy(scene->replicas);
    descriptor_queue_destroy(scene->services.descriptors);
    loop_destroy(scene->services.loop);
    quota_destroy(scene->services.quota);
    waiting_fini(&scene->waiting);
    test_free(scene);
    return 0;
}

static void run_step(struct scene *scene)
{
    assert_int_equal(helper_step_submit(&scene->step, &scene->error), 0);
    loop_run(scene->services.loop);
}

static void a_step_runs_again_when_others_give_back_and_then_waits_for_nothing(void **state)
{
    struct scene *scene = *state;
    scene->waits_for_others = true;
    run_step(scene);
    assert_true(scene->n_runs == 2 && scene->n_failures == 1);
    assert_int_equal(scene->waiting.n_waits, 0);
}

static void a_step_that_waits_for_nobody_fails_when_nothing_makes_room(void **state)
{
    struct scene *scene = *state;
    run_step(scene);
    assert_true(scene->n_runs == 1 && scene->n_failures == 1);
}

static void another_failure_is_not_tried_again(void **state)
{
    struct scene *scene = *state;
    (fail)(&scene->error, ERROR_INVALID_ARGUMENT, "OTHER", "something else");
    assert_false(helper_step_again_or_wait(&scene->step, scene->replicas, &scene->error));
    assert_false(helper_step_end(&scene->step));
    quota_charge_end(&scene->others);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_step_runs_again_when_others_give_back_and_then_waits_for_nothing),
        TEST(a_step_that_waits_for_nobody_fails_when_nothing_makes_room),
        TEST(another_failure_is_not_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
