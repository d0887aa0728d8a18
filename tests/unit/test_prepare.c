/* What becomes of a request before a byte is read for it; on this thread, as on a helper. */
#include "base/memory.h"
#include "load/prepare.h"
#include "resolve/artifact.h"
#include "tests/support/load_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

struct scene {
    struct load_stage stage;
    struct load_request request;
    struct preparation prep;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    stage_open(&scene->stage, 0);
    scene->request = (struct load_request){.artifact = "memory:m", .view = {.whole = true}};
    scene->prep = (struct preparation){.services = &scene->stage.services,
                                       .config = &scene->stage.config,
                                       .uid = getuid(),
                                       .goal = GOAL_REPLICA,
                                       .costs = cost_defaults};
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    prepare_fini(&scene->prep);
    stage_close(&scene->stage);
    test_free(scene);
    return 0;
}

static void a_request_becomes_a_mapping_and_then_a_plan(void **state)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    assert_non_null(prep->resolved.mapping);
    assert_int_equal(prep->resolved.mapping->view_bytes, STAGE_TENSOR_BYTES);
    assert_ptr_equal(prep->resolved.target.replicas, scene->stage.host.replicas);
    assert_null(prep->planned.plan);
    prepare_plan(prep, NULL, &prep->planned);
    assert_non_null(prep->planned.plan);
    assert_int_not_equal(prep->planned.plan->executor, EXECUTOR_OWNER_FILE_COLLECTIVE);
}

static void what_cannot_be_resolved_leaves_no_mapping(void **state)
{
    struct scene *scene = *state;
    scene->request.artifact = "memory:nobody";
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_null(scene->prep.resolved.mapping);
    assert_int_not_equal(scene->prep.resolved.error.code, ERROR_OK);
}

static void an_artifact_that_is_known_is_not_resolved_again(void **state)
{
    struct scene *scene = *state;
    const struct source_options options = {0};
    struct artifact *artifact = NULL;
    struct error error;
    assert_int_equal(artifact_resolve("memory:m", &options, NULL, false, &artifact, &error), 0);
    stage_put_artifact("m", 77);
    prepare_resolve(&scene->prep, &scene->request, artifact, NULL, &scene->prep.resolved);
    assert_ptr_equal(scene->prep.resolved.mapping->artifact, artifact);
    artifact_unref(artifact);
}

static void memory_of_a_gpu_needs_its_gpu_and_no_memory_of_a_client_is_a_file(void **state)
{
    struct scene *scene = *state;
    struct device_region *region = memory_alloc(sizeof *region);
    *region = (struct device_region){.kind = DEVICE_REGION_IPC, .memory_fd = -1, .lease_fd = -1};
    scene->prep.region = region;
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_null(scene->prep.resolved.mapping);
    assert_int_equal(scene->prep.resolved.error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(scene->prep.resolved.error.reason, "REGION_WITHOUT_DEVICE");
    region->kind = DEVICE_REGION_HOST;
    scene->request.memory = MEMORY_MAPPED;
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_string_equal(scene->prep.resolved.error.reason, "REGION_AND_MAPPED");
    scene->request.memory = MEMORY_COPIED;
    prepare_resolve(&scene->prep, &scene->request, NULL, NULL, &scene->prep.resolved);
    assert_non_null(scene->prep.resolved.mapping);
}

static void what_cannot_be_mapped_is_copied_unless_the_request_insists(void **state)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    scene->request.memory = MEMORY_AUTO;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    prepare_plan(prep, NULL, &prep->planned);
    assert_non_null(prep->planned.plan);
    assert_null(prep->planned.files);
    assert_true(prep->planned.plan->mapped.is_known && !prep->planned.plan->mapped.is_possible);
    prep->resolved.spec.memory = MEMORY_MAPPED;
    prepare_plan(prep, NULL, &prep->planned);
    assert_null(prep->planned.plan);
    assert_int_equal(prep->planned.error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(prep->planned.error.reason, "NOT_ON_THIS_HOST");
    prep->goal = GOAL_PLAN; /* explain says why instead */
    prepare_plan(prep, NULL, &prep->planned);
    assert_non_null(prep->planned.plan);
    assert_non_null(strstr(prep->planned.plan->mapped.reason, "only files on a disk of this host"));
}

static void nothing_is_handed_out_unread_where_verification_is_required(void **state)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    scene->stage.config.sources.verify = VERIFY_REQUIRED;
    scene->request.memory = MEMORY_MAPPED;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    prepare_plan(prep, NULL, &prep->planned);
    assert_null(prep->planned.plan);
    assert_string_equal(prep->planned.error.reason, "VERIFICATION_REQUIRED");
}

static void a_group_is_wanted_unless_policy_or_strategy_speak_against_it(void **state)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    bool *enabled = &scene->stage.config.engine.strategy.enable_owner_file_collective;
    *enabled = true;
    assert_false(prepare_wants_group(prep));
    prep->resolved.spec.topology.has_group = true;
    prep->resolved.spec.topology.world_size = 2;
    assert_true(prepare_wants_group(prep));
    prep->resolved.spec.policy.collective = COLLECTIVE_DISABLED;
    assert_false(prepare_wants_group(prep));
    assert_true(prepare_is_of_group(prep));
    prep->resolved.spec.policy.collective = COLLECTIVE_AUTO;
    *enabled = false;
    assert_false(prepare_wants_group(prep));
}

static void a_plan_knows_why_its_group_is_out_of_reach(void **state)
{
    struct scene *scene = *state;
    struct preparation *prep = &scene->prep;
    scene->stage.config.engine.strategy.enable_owner_file_collective = true;
    scene->request.has_group = true;
    scene->request.group_id = "g";
    scene->request.world_size = 2;
    scene->request.source_locality = LOCALITY_SHARED_SOURCE;
    prepare_resolve(prep, &scene->request, NULL, NULL, &prep->resolved);
    prep->group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=%d", 1);
    prepare_plan(prep, NULL, &prep->planned);
    assert_string_equal(prep->planned.plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text,
                        "group_assemble_timeout:missing=1");
    prep->group_problem = reason_of(REASON_ELIGIBLE);
    prepare_plan(prep, NULL, &prep->planned); /* the old one is replaced */
    assert_int_not_equal(prep->planned.plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.kind,
                         REASON_GROUP_ASSEMBLE_TIMEOUT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_becomes_a_mapping_and_then_a_plan),
        TEST(what_cannot_be_resolved_leaves_no_mapping),
        TEST(an_artifact_that_is_known_is_not_resolved_again),
        TEST(memory_of_a_gpu_needs_its_gpu_and_no_memory_of_a_client_is_a_file),
        TEST(what_cannot_be_mapped_is_copied_unless_the_request_insists),
        TEST(nothing_is_handed_out_unread_where_verification_is_required),
        TEST(a_group_is_wanted_unless_policy_or_strategy_speak_against_it),
        TEST(a_plan_knows_why_its_group_is_out_of_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
