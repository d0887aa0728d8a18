/* Host memory is the first target; GPUs follow where there are some. No plugin is loaded here. */
#include "load/load_target.h"
#include "base/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

enum { BUDGET_BYTES = 64 << 20 };

struct scene {
    struct loop *loop;
    struct config config;
    struct load_targets *targets;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    scene->loop = loop_create();
    scene->config = *config_defaults();
    scene->targets = load_targets_create(scene->loop, &scene->config, BUDGET_BYTES, false);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    load_targets_destroy(scene->targets);
    loop_destroy(scene->loop);
    test_free(scene);
    return 0;
}

static void no_name_is_host_memory_with_the_host_budget(void **state)
{
    struct scene *scene = *state;
    struct load_target target;
    struct error error;
    assert_int_equal(scene->targets->n, 1);
    assert_int_equal(load_targets_find(scene->targets, NULL, &target, &error), 0);
    assert_ptr_equal(target.device, scene->targets->list[LOAD_TARGET_HOST].device);
    assert_string_equal(target.device->caps.name, "host");
    assert_int_equal(replica_budget_bytes(target.replicas), BUDGET_BYTES);
}

static void a_gpu_that_is_not_there_is_refused_with_the_reason(void **state)
{
    struct scene *scene = *state;
    struct load_target target;
    struct error error;
    assert_int_equal(load_targets_find(scene->targets, "cuda:0", &target, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "host memory only"));
}

static void a_new_configuration_changes_the_budget(void **state)
{
    struct scene *scene = *state;
    load_targets_configure(scene->targets, &scene->config, BUDGET_BYTES / 2);
    assert_int_equal(replica_budget_bytes(scene->targets->list[LOAD_TARGET_HOST].replicas), BUDGET_BYTES / 2);
}

static void replicas_may_go_before_their_memory(void **state)
{
    struct scene *scene = *state;
    load_targets_drop_replicas(scene->targets);
    assert_null(scene->targets->list[LOAD_TARGET_HOST].replicas);
    assert_non_null(scene->targets->list[LOAD_TARGET_HOST].device);
    load_targets_destroy(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_name_is_host_memory_with_the_host_budget),
        TEST(a_gpu_that_is_not_there_is_refused_with_the_reason),
        TEST(a_new_configuration_changes_the_budget),
        TEST(replicas_may_go_before_their_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
