/* When the owner-file collective may run: every condition, threshold and default by itself, at its limit and beyond. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/plan_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define COLLECTIVE EXECUTOR_OWNER_FILE_COLLECTIVE
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static void the_collective_names_the_first_thing_that_is_missing(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 2 * GIB);
    mapping_fake_add_bytes(scene->fake, 0, 100);
    struct materialization_strategy *strategy = &scene->strategy;
    scene->spec.policy.collective = COLLECTIVE_DISABLED;
    assert_string_equal(plan_scene_collective_reason(scene), "collective_policy_disabled");
    scene->spec.policy.collective = COLLECTIVE_AUTO;
    assert_string_equal(plan_scene_collective_reason(scene), "strategy_disabled");
    strategy->enable_owner_file_collective = true;
    assert_string_equal(plan_scene_collective_reason(scene), "collective_group_missing");
    plan_scene_join_group(scene, LOCALITY_HOST_LOCAL);
    assert_string_equal(plan_scene_collective_reason(scene), "source_locality_host_local");
    scene->spec.topology.source_locality = LOCALITY_AUTO;
    assert_string_equal(plan_scene_collective_reason(scene), "shared_source_unproven");
    scene->spec.topology.source_sharing_domain = "d";
    scene->facts.device.direct_segments = false;
    assert_string_equal(plan_scene_collective_reason(scene), "target_not_gpu:no_direct_segments");
    scene->facts.device.direct_segments = true;
    scene->facts.group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=1");
    assert_string_equal(plan_scene_collective_reason(scene), "group_assemble_timeout:missing=1");
    scene->facts.group_problem = reason_of(REASON_ELIGIBLE);
    assert_string_equal(plan_scene_collective_reason(scene), "eligible");
}

/* --- every condition of the collective, by itself --------------------------------------------------------------------- */

/* A group to which nothing stands in the way, with a joint plan whose numbers a test sets by hand. */
static struct collective_plan *open_group(struct plan_scene *scene)
{
    static const uint32_t leaders[] = {0, 0};
    struct error error;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    const struct collective_rank rank = {mapping_fake_finish(scene->fake), 0, 2};
    const struct collective_facts facts = {.strategy = &scene->strategy,
                                           .group_id = "g",
                                           .world_size = 2,
                                           .leaders = leaders,
                                           .staging_budget_bytes = 64 * MIB};
    scene->strategy.enable_owner_file_collective = true;
    plan_scene_join_group(scene, LOCALITY_SHARED_SOURCE);
    scene->facts.group = collective_plan_build(&rank, 1, &facts, &error);
    scene->facts.group->numbers.dedup_saving_bytes = scene->strategy.owner_file_collective_min_dedup_saving_bytes;
    return scene->facts.group;
}

static void assert_reason(struct plan_scene *scene, const char *reason)
{
    assert_string_equal(plan_scene_collective_reason(scene), reason);
    assert_int_equal(scene->plan->candidates[COLLECTIVE].eligible, strcmp(reason, "eligible") == 0);
    assert_int_equal(scene->plan->executor == COLLECTIVE, strcmp(reason, "eligible") == 0);
}

static void close_group(struct plan_scene *scene)
{
    assert_reason(scene, "eligible"); /* whatever the test broke, it has mended */
    collective_plan_unref(scene->facts.group);
}

static void the_collective_needs_the_consent_of_the_request(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->spec.policy.collective = COLLECTIVE_DISABLED;
    assert_reason(scene, "collective_policy_disabled");
    scene->spec.policy.collective = COLLECTIVE_AUTO;
    close_group(scene);
}

static void the_collective_needs_the_consent_of_the_configuration(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->strategy.enable_owner_file_collective = false;
    assert_reason(scene, "strategy_disabled");
    scene->strategy.enable_owner_file_collective = true;
    close_group(scene);
}

static void the_collective_needs_a_group(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->spec.topology.has_group = false;
    assert_reason(scene, "collective_group_missing");
    scene->spec.topology.has_group = true;
    close_group(scene);
}

static void the_collective_is_not_for_media_of_one_host(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->spec.topology.source_sharing_domain = "d"; /* not even with that */
    scene->spec.topology.source_locality = LOCALITY_HOST_LOCAL;
    assert_reason(scene, "source_locality_host_local");
    scene->spec.topology.source_locality = LOCALITY_SHARED_SOURCE;
    close_group(scene);
}

/* A network file system is a guess: no type of file system is proof. */
static void the_collective_needs_proof_that_the_source_is_shared(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->spec.topology.source_locality = LOCALITY_AUTO;
    for (int filesystem = SOURCE_LOCAL; filesystem <= SOURCE_NETWORK; filesystem++) {
        scene->facts.source.filesystem = filesystem;
        assert_reason(scene, "shared_source_unproven");
    }
    scene->spec.topology.source_sharing_domain = "d";
    close_group(scene);
}

static void the_proof_can_be_waived_by_the_configuration(void **state)
{
    struct plan_scene *scene = *state;
    struct collective_plan *group = open_group(scene);
    scene->spec.topology.source_locality = LOCALITY_AUTO;
    scene->strategy.owner_file_collective_shared_fs_only = false;
    scene->facts.source.filesystem = SOURCE_NETWORK;
    assert_string_equal(plan_scene_collective_reason(scene), "eligible");
    collective_plan_unref(group);
}

static void a_file_system_of_one_host_needs_the_proof_in_any_case(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->spec.topology.source_locality = LOCALITY_AUTO;
    scene->strategy.owner_file_collective_shared_fs_only = false;
    scene->facts.source = (struct source_caps){.filesystem = SOURCE_LOCAL, .filesystem_type = "xfs"};
    assert_reason(scene, "source_locality_host_local:xfs");
    scene->spec.topology.source_locality = LOCALITY_SHARED_SOURCE;
    close_group(scene);
}

static void the_collective_needs_memory_that_something_can_reach(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->facts.device = (struct device_caps){.name = "odd"};
    assert_reason(scene, "target_not_gpu:no_direct_segments");
    scene->facts.device.queued_copies = true;
    close_group(scene);
}

static void the_collective_needs_its_ranks(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->facts.group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=1");
    assert_reason(scene, "group_assemble_timeout:missing=1");
    scene->facts.group_problem = reason_of(REASON_ELIGIBLE);
    close_group(scene);
}

static void the_collective_needs_the_transport_that_is_asked_for(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene);
    scene->facts.transports.wish = COLLECTIVE_TRANSPORT_NCCL;
    assert_reason(scene, "transport_unavailable:nccl");
    scene->facts.transports.wish = COLLECTIVE_TRANSPORT_AUTO;
    const struct transport_choice none = {.problem = reason_with(REASON_TRANSPORT_NEEDS_A_GPU_PER_RANK, "nccl")};
    scene->facts.transport = &none;
    assert_reason(scene, "transport_needs_a_gpu_per_rank:nccl");
    scene->facts.transport = NULL;
    close_group(scene);
}

static void residual_bytes_need_permission(void **state)
{
    struct plan_scene *scene = *state;
    open_group(scene)->numbers.residual_bytes = 1;
    assert_reason(scene, "residual_fallback_requires_generic_executor");
    scene->strategy.owner_file_collective_allow_mixed_residual = true;
    close_group(scene);
}

static void temporary_memory_keeps_to_its_budget(void **state)
{
    struct plan_scene *scene = *state;
    struct collective_plan *group = open_group(scene);
    group->numbers.peak_temporary_bytes = 8 * GIB + 1;
    assert_reason(scene, "peak_budget_exceeded");
    group->numbers.peak_temporary_bytes = 8 * GIB;
    close_group(scene);
}

static void owners_are_not_too_uneven(void **state)
{
    struct plan_scene *scene = *state;
    struct collective_plan *group = open_group(scene);
    group->owner_skew = 1.51;
    assert_reason(scene, "owner_skew_threshold_exceeded");
    group->owner_skew = 1.5;
    close_group(scene);
}

static void what_is_saved_must_be_worth_it(void **state)
{
    struct plan_scene *scene = *state;
    struct collective_plan *group = open_group(scene);
    group->numbers.dedup_saving_bytes = 512 * MIB - 1;
    assert_reason(scene, "dedup_saving_below_threshold");
    group->numbers.dedup_saving_bytes = 512 * MIB;
    close_group(scene);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, plan_scene_set_up, plan_scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_collective_names_the_first_thing_that_is_missing),
        TEST(the_collective_needs_the_consent_of_the_request),
        TEST(the_collective_needs_the_consent_of_the_configuration),
        TEST(the_collective_needs_a_group),
        TEST(the_collective_is_not_for_media_of_one_host),
        TEST(the_collective_needs_proof_that_the_source_is_shared),
        TEST(the_proof_can_be_waived_by_the_configuration),
        TEST(a_file_system_of_one_host_needs_the_proof_in_any_case),
        TEST(the_collective_needs_memory_that_something_can_reach),
        TEST(the_collective_needs_its_ranks),
        TEST(the_collective_needs_the_transport_that_is_asked_for),
        TEST(residual_bytes_need_permission),
        TEST(temporary_memory_keeps_to_its_budget),
        TEST(owners_are_not_too_uneven),
        TEST(what_is_saved_must_be_worth_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
