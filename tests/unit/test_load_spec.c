/* Every request that can be refused without looking at the source, and what a good one becomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "normalize/load_spec.h"

#include <cmocka.h> /* last: it makes a macro of fail */

struct scene {
    struct materialization_strategy strategy;
    struct load_request request;
    struct arena arena;
    struct load_spec spec;
    struct error error;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    scene->request = (struct load_request){.artifact = "disk:/models/m", .view.whole = true};
    arena_init(&scene->arena, 0);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    arena_fini(&scene->arena);
    test_free(scene);
    return 0;
}

static void accept(struct scene *scene)
{
    int rc = load_spec_build(&scene->request, &scene->strategy, &scene->arena, &scene->spec, &scene->error);
    if (rc)
        print_error("%s: %s\n", scene->error.reason, scene->error.message);
    assert_int_equal(rc, 0);
}

static void refuse(struct scene *scene, const char *reason, const char *naming)
{
    assert_int_equal(load_spec_build(&scene->request, &scene->strategy, &scene->arena, &scene->spec, &scene->error), -1);
    assert_int_equal(scene->error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(scene->error.reason, reason);
    assert_non_null(strstr(scene->error.message, naming));
}

static void a_bare_request_gets_every_default(void **state)
{
    struct scene *scene = *state;
    accept(scene);
    assert_string_equal(scene->spec.artifact, "disk:/models/m");
    assert_true(scene->spec.view.whole);
    assert_int_equal(scene->spec.view.align_bytes, 64);
    assert_int_equal(scene->spec.policy.executor, EXECUTOR_PREFERENCE_AUTO);
    assert_false(scene->spec.policy.executor_from_request);
    assert_int_equal(scene->spec.policy.collective, COLLECTIVE_AUTO);
    assert_false(scene->spec.topology.has_group);
    assert_int_equal(scene->spec.topology.source_locality, LOCALITY_AUTO);
    assert_null(scene->spec.topology.source_sharing_domain);
}

static void the_configured_preference_holds_when_the_request_says_auto(void **state)
{
    struct scene *scene = *state;
    scene->strategy.executor_preference = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    accept(scene);
    assert_int_equal(scene->spec.policy.executor, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE);
    assert_false(scene->spec.policy.executor_from_request);
}

static void the_preference_of_the_request_wins_over_the_configured_one(void **state)
{
    struct scene *scene = *state;
    scene->strategy.executor_preference = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    scene->request.executor = EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL;
    accept(scene);
    assert_int_equal(scene->spec.policy.executor, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL);
    assert_true(scene->spec.policy.executor_from_request);
}

static void an_artifact_needs_a_scheme_and_a_path(void **state)
{
    struct scene *scene = *state;
    scene->request.artifact = NULL;
    refuse(scene, "ARTIFACT_MISSING", "disk:");
    scene->request.artifact = "";
    refuse(scene, "ARTIFACT_MISSING", "disk:");
    scene->request.artifact = "/models/m";
    refuse(scene, "ARTIFACT_WITHOUT_SCHEME", "disk:/models/m");
    scene->request.artifact = ":/models/m";
    refuse(scene, "ARTIFACT_WITHOUT_SCHEME", ":/models/m");
    scene->request.artifact = "my models/a:b";
    refuse(scene, "ARTIFACT_WITHOUT_SCHEME", "my models");
    scene->request.artifact = "disk:";
    refuse(scene, "ARTIFACT_WITHOUT_PATH", "disk:");
    scene->request.artifact = "gs+x.y-1://bucket";
    accept(scene);
}

static void an_artifact_reference_has_a_longest_length(void **state)
{
    struct scene *scene = *state;
    char text[4098];
    memset(text, 'a', sizeof text);
    memcpy(text, "disk:/", 6);
    text[4096] = 0;
    scene->request.artifact = text;
    accept(scene);
    text[4096] = 'a';
    text[4097] = 0;
    refuse(scene, "ARTIFACT_TOO_LONG", "4097");
}

static void control_characters_in_an_artifact_are_escaped(void **state)
{
    struct scene *scene = *state;
    scene->request.artifact = "\x1b[31m";
    refuse(scene, "ARTIFACT_WITHOUT_SCHEME", "\\x1b[31m");
}

static void numbers_outside_their_enums_are_refused(void **state)
{
    struct scene *scene = *state;
    scene->request.executor = 4;
    refuse(scene, "UNKNOWN_ENUM_VALUE", "executor preference 4");
    scene->request.executor = -1;
    refuse(scene, "UNKNOWN_ENUM_VALUE", "executor preference -1");
    scene->request.executor = 3;
    scene->request.collective = 3;
    refuse(scene, "UNKNOWN_ENUM_VALUE", "collective policy 3");
    scene->request.collective = 2;
    scene->request.source_locality = 3;
    refuse(scene, "UNKNOWN_ENUM_VALUE", "source locality 3");
    scene->request.source_locality = 2;
    accept(scene);
}

static void a_group_says_who_and_how_many(void **state)
{
    struct scene *scene = *state;
    scene->request.has_group = true;
    scene->request.group_id = "g";
    scene->request.rank = 1;
    scene->request.world_size = 2;
    accept(scene);
    assert_true(scene->spec.topology.has_group);
    assert_string_equal(scene->spec.topology.group_id, "g");
    assert_int_equal(scene->spec.topology.rank, 1);
    assert_int_equal(scene->spec.topology.world_size, 2);
}

static void a_senseless_group_is_refused(void **state)
{
    struct scene *scene = *state;
    struct load_request *request = &scene->request;
    request->has_group = true;
    request->world_size = 2;
    refuse(scene, "GROUP_WITHOUT_ID", "group id");
    request->group_id = "";
    refuse(scene, "GROUP_WITHOUT_ID", "group id");
    request->group_id = "g";
    request->rank = 2;
    refuse(scene, "RANK_OUT_OF_RANGE", "rank 2");
    request->rank = -1;
    refuse(scene, "RANK_OUT_OF_RANGE", "rank -1");
    request->rank = 0;
    request->world_size = 0;
    refuse(scene, "WORLD_SIZE_OUT_OF_RANGE", "world size 0");
    request->world_size = -3;
    refuse(scene, "WORLD_SIZE_OUT_OF_RANGE", "world size -3");
    request->world_size = 65537;
    refuse(scene, "WORLD_SIZE_OUT_OF_RANGE", "65537");
    request->world_size = 65536;
    request->rank = 65535;
    accept(scene);
}

static void group_ids_and_attempts_have_a_longest_length(void **state)
{
    struct scene *scene = *state;
    char id[257] = {0};
    memset(id, 'g', 255);
    scene->request.has_group = true;
    scene->request.group_id = id;
    scene->request.world_size = 1;
    accept(scene);
    scene->request.attempt = id;
    accept(scene);
    assert_string_equal(scene->spec.topology.attempt, id);
    id[255] = 'g';
    refuse(scene, "GROUP_ID_TOO_LONG", "256");
    scene->request.group_id = "g";
    refuse(scene, "GROUP_ID_TOO_LONG", "group attempt");
    scene->request.attempt = "";
    scene->request.source_sharing_domain = id;
    refuse(scene, "GROUP_ID_TOO_LONG", "source sharing domain");
    scene->request.source_sharing_domain = NULL;
    accept(scene);
    assert_null(scene->spec.topology.attempt);
}

static void an_empty_sharing_domain_is_none(void **state)
{
    struct scene *scene = *state;
    scene->request.source_sharing_domain = "";
    accept(scene);
    assert_null(scene->spec.topology.source_sharing_domain);
    scene->request.source_sharing_domain = "rack-7";
    accept(scene);
    assert_string_equal(scene->spec.topology.source_sharing_domain, "rack-7");
}

static void a_required_collective_and_another_executor_contradict_each_other(void **state)
{
    struct scene *scene = *state;
    scene->request.collective = COLLECTIVE_REQUIRED;
    accept(scene);
    scene->strategy.executor_preference = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    accept(scene); /* only the request can contradict itself */
    scene->request.executor = EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE;
    accept(scene);
    scene->request.executor = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    refuse(scene, "CONTRADICTING_POLICY", "GENERIC_BYTE_RANGE");
}

static void placement_by_the_source_is_for_memory_of_this_host(void **state)
{
    struct scene *scene = *state;
    scene->request.view.placement = PLACEMENT_SOURCE;
    accept(scene);
    assert_int_equal(scene->spec.view.placement, PLACEMENT_SOURCE);
    assert_int_equal(scene->spec.view.align_bytes, 0); /* each tensor's own */
    scene->request.device = "cuda:0";
    accept(scene);
    assert_int_equal(scene->spec.view.placement, PLACEMENT_PACKED);
    assert_int_equal(scene->spec.view.align_bytes, 64);
    scene->request.view.placement = 2;
    refuse(scene, "UNKNOWN_ENUM_VALUE", "placement 2");
}

static void alignment_is_a_power_of_two_up_to_2_mib(void **state)
{
    struct scene *scene = *state;
    const uint64_t good[] = {1, 2, 64, 4096, 2 << 20},
                   bad[] = {3, 65, (2 << 20) + 1, 4 << 20, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        scene->request.view.align_bytes = good[i];
        accept(scene);
        assert_int_equal(scene->spec.view.align_bytes, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        scene->request.view.align_bytes = bad[i];
        refuse(scene, "BAD_ALIGNMENT", "power of two");
    }
}

static void a_view_of_no_tensors_is_refused(void **state)
{
    struct scene *scene = *state;
    scene->request.view.whole = false;
    refuse(scene, "EMPTY_VIEW", "whole artifact");
}

static void every_way_to_say_host_memory_is_no_device(void **state)
{
    struct scene *scene = *state;
    static const char *const host[] = {NULL, "", "cpu", "cpu:0"};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        scene->request.device = host[i];
        accept(scene);
        assert_null(scene->spec.device);
    }
    char name[65] = "";
    memset(name, 'x', 63);
    scene->request.device = name;
    accept(scene);
    assert_string_equal(scene->spec.device, name);
    name[63] = 'x';
    refuse(scene, "DEVICE_TOO_LONG", "64");
}

static void all_but_the_view_outlives_the_request(void **state)
{
    struct scene *scene = *state;
    char *artifact = memory_copy_text("disk:/m"), *name = memory_copy("a\0b", 3), *group = memory_copy_text("g");
    struct slice *slices = memory_copy(&(struct slice){-3, INT64_MAX}, sizeof *slices);
    struct view_item *items = memory_alloc_array(2, sizeof *items);
    items[0] = (struct view_item){.name = name, .name_length = 3, .n_slices = 1, .slices = slices};
    items[1] = (struct view_item){.name = "", .name_length = 0};
    scene->request = (struct load_request){
        .artifact = artifact, .view = {.items = items, .n_items = 2}, .has_group = true, .group_id = group, .world_size = 1};
    accept(scene);
    free(artifact), free(group);
    const struct view_spec *view = &scene->spec.view;
    assert_string_equal(scene->spec.artifact, "disk:/m");
    assert_string_equal(scene->spec.topology.group_id, "g");
    assert_int_equal(view->n_items, 2);
    assert_int_equal(view->items[0].name_length, 3);
    assert_memory_equal(view->items[0].name, "a\0b", 4);
    assert_int_equal(view->items[0].n_slices, 1);
    assert_true(view->items[0].slices[0].start == -3 && view->items[0].slices[0].stop == INT64_MAX);
    assert_int_equal(view->items[1].name_length, 0);
    assert_int_equal(view->items[1].n_slices, 0);
    free(name), free(slices), free(items);
}

static void files_are_for_clients_that_ask_for_them(void **state)
{
    struct scene *scene = *state;
    accept(scene);
    assert_int_equal(scene->spec.memory, MEMORY_COPIED); /* who says nothing knows of no files */
    scene->request.memory = MEMORY_AUTO;
    accept(scene);
    assert_int_equal(scene->spec.memory, MEMORY_AUTO);
    scene->request.device = "GPU-1";
    accept(scene);
    assert_int_equal(scene->spec.memory, MEMORY_COPIED);
    scene->request.memory = MEMORY_MAPPED;
    refuse(scene, "MAPPED_ELSEWHERE", "a device");
    scene->request.device = NULL;
    accept(scene);
    assert_int_equal(scene->spec.memory, MEMORY_MAPPED);
    scene->request.memory = MEMORY_MAPPED + 1;
    assert_int_equal(load_spec_build(&scene->request, &scene->strategy, &scene->arena, &scene->spec, &scene->error), -1);
    assert_int_equal(scene->error.code, ERROR_INVALID_ARGUMENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_bare_request_gets_every_default),
        TEST(files_are_for_clients_that_ask_for_them),
        TEST(the_configured_preference_holds_when_the_request_says_auto),
        TEST(the_preference_of_the_request_wins_over_the_configured_one),
        TEST(an_artifact_needs_a_scheme_and_a_path),
        TEST(an_artifact_reference_has_a_longest_length),
        TEST(control_characters_in_an_artifact_are_escaped),
        TEST(numbers_outside_their_enums_are_refused),
        TEST(a_group_says_who_and_how_many),
        TEST(a_senseless_group_is_refused),
        TEST(group_ids_and_attempts_have_a_longest_length),
        TEST(an_empty_sharing_domain_is_none),
        TEST(a_required_collective_and_another_executor_contradict_each_other),
        TEST(placement_by_the_source_is_for_memory_of_this_host),
        TEST(alignment_is_a_power_of_two_up_to_2_mib),
        TEST(a_view_of_no_tensors_is_refused),
        TEST(every_way_to_say_host_memory_is_no_device),
        TEST(all_but_the_view_outlives_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
