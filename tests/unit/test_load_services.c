/* What loads need of their process: made together, given back together, also when only a part was made. */
#include "tests/support/unit.h"

#include "base/loop.h"
#include "load/load_services.h"

#include <unistd.h>

TEST(a_failed_start_is_given_back_like_a_whole_one)
{
    const struct load_room room = {.host_budget_bytes = 1 << 20};
    struct config config = *config_defaults();
    struct load_services services = {.loop = loop_create(), .config = &config};
    struct error error;
    assert_int_equal(load_services_open(&services, &room, &error), 0);
    assert_non_null(services.engine);
    assert_int_equal(replica_budget_bytes(services.targets->list[LOAD_TARGET_HOST].replicas), 1 << 20);
    load_services_close(&services);
    struct load_services half = {.loop = services.loop, .config = &config};
    half.targets = load_targets_create(half.loop, &config, 1 << 20, false);
    load_services_close(&half);
    loop_destroy(services.loop);
}

TEST(roots_bind_all_but_who_has_started_the_process)
{
    struct config config = *config_defaults();
    struct load_services services = {.config = &config};
    assert_false(load_services_source_options(&services, &config, 1000, NULL).allow_relative);
    assert_int_equal(load_services_source_options(&services, &config, 1000, NULL).uid, 1000);
    services.of_one_user = true;
    assert_true(load_services_source_options(&services, &config, 1000, NULL).allow_relative);
}

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

TEST_IN(no_name_is_host_memory_with_the_host_budget, set_up, tear_down)
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

TEST_IN(a_gpu_that_is_not_there_is_refused_with_the_reason, set_up, tear_down)
{
    struct scene *scene = *state;
    struct load_target target;
    struct error error;
    assert_int_equal(load_targets_find(scene->targets, "cuda:0", &target, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "host memory only"));
}

TEST_IN(a_new_configuration_changes_the_budget, set_up, tear_down)
{
    struct scene *scene = *state;
    load_targets_configure(scene->targets, &scene->config, BUDGET_BYTES / 2);
    assert_int_equal(replica_budget_bytes(scene->targets->list[LOAD_TARGET_HOST].replicas), BUDGET_BYTES / 2);
}

TEST_IN(replicas_may_go_before_their_memory, set_up, tear_down)
{
    struct scene *scene = *state;
    load_targets_drop_replicas(scene->targets);
    assert_null(scene->targets->list[LOAD_TARGET_HOST].replicas);
    assert_non_null(scene->targets->list[LOAD_TARGET_HOST].device);
    load_targets_destroy(NULL);
}
