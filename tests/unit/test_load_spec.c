/* Every request that can be refused without looking at the source, and what a good one becomes. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "normalize/load_spec.h"

static struct scene {
    struct materialization_strategy strategy;
    struct load_request request;
    struct arena arena;
    struct load_spec spec;
    struct error error;
} scene;

static int set_up(void **state)
{
    (void)state;
    scene = (struct scene){.request = {.artifact = "disk:/models/m", .view.whole = true}};
    arena_init(&scene.arena, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&scene.arena);
    return 0;
}

static void accept(void)
{
    int rc = load_spec_build(&scene.request, &scene.strategy, &scene.arena, &scene.spec, &scene.error);
    if (rc)
        print_error("%s: %s\n", scene.error.reason, scene.error.message);
    assert_int_equal(rc, 0);
}

static void refuse(const char *reason, const char *naming)
{
    assert_int_equal(load_spec_build(&scene.request, &scene.strategy, &scene.arena, &scene.spec, &scene.error), -1);
    assert_int_equal(scene.error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(scene.error.reason, reason);
    assert_non_null(strstr(scene.error.message, naming));
}

TEST_IN(a_bare_request_gets_every_default, set_up, tear_down)
{
    accept();
    assert_string_equal(scene.spec.artifact, "disk:/models/m");
    assert_true(scene.spec.view.whole);
    assert_int_equal(scene.spec.view.align_bytes, 64);
    assert_int_equal(scene.spec.policy.executor, EXECUTOR_PREFERENCE_AUTO);
    assert_false(scene.spec.policy.executor_from_request);
    assert_int_equal(scene.spec.policy.collective, COLLECTIVE_AUTO);
    assert_false(scene.spec.topology.has_group);
    assert_int_equal(scene.spec.topology.source_locality, LOCALITY_AUTO);
    assert_null(scene.spec.topology.source_sharing_domain);
}

TEST_IN(the_preference_of_the_request_wins_over_the_configured_one, set_up, tear_down)
{
    scene.strategy.executor_preference = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    accept();
    assert_int_equal(scene.spec.policy.executor, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE);
    assert_false(scene.spec.policy.executor_from_request);
    scene.request.executor = EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL;
    accept();
    assert_int_equal(scene.spec.policy.executor, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL);
    assert_true(scene.spec.policy.executor_from_request);
}

#define OF(...)                                                                                                             \
    {                                                                                                                       \
        .artifact = "disk:/m", .view.whole = true, __VA_ARGS__                                                              \
    }
#define GROUP(...) OF(.has_group = true, .group_id = "g", __VA_ARGS__)

TEST_IN(what_no_artifact_could_fulfil_is_refused_by_name, set_up, tear_down)
{
    static const struct {
        struct load_request request;
        const char *reason, *naming;
    } cases[] = {
        {{.artifact = NULL}, "ARTIFACT_MISSING", "disk:"},
        {{.artifact = ""}, "ARTIFACT_MISSING", "disk:"},
        {{.artifact = "/models/m"}, "ARTIFACT_WITHOUT_SCHEME", "disk:/models/m"},
        {{.artifact = ":/models/m"}, "ARTIFACT_WITHOUT_SCHEME", ":/models/m"},
        {{.artifact = "my models/a:b"}, "ARTIFACT_WITHOUT_SCHEME", "my models"},
        {{.artifact = "\x1b[31m"}, "ARTIFACT_WITHOUT_SCHEME", "\\x1b[31m"},
        {{.artifact = "disk:"}, "ARTIFACT_WITHOUT_PATH", "disk:"},
        {{.artifact = "disk:/m"}, "EMPTY_VIEW", "whole artifact"},
        {OF(.executor = 4), "UNKNOWN_ENUM_VALUE", "executor preference 4"},
        {OF(.executor = -1), "UNKNOWN_ENUM_VALUE", "executor preference -1"},
        {OF(.collective = 3), "UNKNOWN_ENUM_VALUE", "collective policy 3"},
        {OF(.source_locality = 3), "UNKNOWN_ENUM_VALUE", "source locality 3"},
        {OF(.view.placement = 2), "UNKNOWN_ENUM_VALUE", "placement 2"},
        {OF(.memory = MEMORY_MAPPED + 1), "UNKNOWN_ENUM_VALUE", "memory preference"},
        {OF(.has_group = true, .world_size = 2), "GROUP_WITHOUT_ID", "group id"},
        {OF(.has_group = true, .world_size = 2, .group_id = ""), "GROUP_WITHOUT_ID", "group id"},
        {GROUP(.world_size = 2, .rank = 2), "RANK_OUT_OF_RANGE", "rank 2"},
        {GROUP(.world_size = 2, .rank = -1), "RANK_OUT_OF_RANGE", "rank -1"},
        {GROUP(.world_size = 0), "WORLD_SIZE_OUT_OF_RANGE", "world size 0"},
        {GROUP(.world_size = -3), "WORLD_SIZE_OUT_OF_RANGE", "world size -3"},
        {GROUP(.world_size = 65537), "WORLD_SIZE_OUT_OF_RANGE", "65537"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scene.request = cases[i].request;
        refuse(cases[i].reason, cases[i].naming);
    }
}

TEST_IN(the_outermost_values_are_accepted, set_up, tear_down)
{
    static const struct load_request requests[] = {
        {.artifact = "gs+x.y-1://bucket", .view.whole = true},
        OF(.executor = 3, .collective = 2, .source_locality = 2),
        GROUP(.world_size = 65536, .rank = 65535),
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        scene.request = requests[i];
        accept();
    }
}

TEST_IN(an_artifact_reference_has_a_longest_length, set_up, tear_down)
{
    char text[4098];
    memset(text, 'a', sizeof text);
    memcpy(text, "disk:/", 6);
    text[4096] = 0;
    scene.request.artifact = text;
    accept();
    text[4096] = 'a';
    text[4097] = 0;
    refuse("ARTIFACT_TOO_LONG", "4097");
}

TEST_IN(a_group_says_who_and_how_many, set_up, tear_down)
{
    scene.request.has_group = true;
    scene.request.group_id = "g";
    scene.request.rank = 1;
    scene.request.world_size = 2;
    accept();
    assert_true(scene.spec.topology.has_group);
    assert_string_equal(scene.spec.topology.group_id, "g");
    assert_int_equal(scene.spec.topology.rank, 1);
    assert_int_equal(scene.spec.topology.world_size, 2);
}

TEST_IN(group_ids_and_attempts_have_a_longest_length, set_up, tear_down)
{
    char id[257] = {0};
    memset(id, 'g', 255);
    scene.request.has_group = true;
    scene.request.group_id = id;
    scene.request.world_size = 1;
    accept();
    scene.request.attempt = id;
    accept();
    assert_string_equal(scene.spec.topology.attempt, id);
    id[255] = 'g';
    refuse("GROUP_ID_TOO_LONG", "256");
    scene.request.group_id = "g";
    refuse("GROUP_ID_TOO_LONG", "group attempt");
    scene.request.attempt = "";
    scene.request.source_sharing_domain = id;
    refuse("GROUP_ID_TOO_LONG", "source sharing domain");
    scene.request.source_sharing_domain = NULL;
    accept();
    assert_null(scene.spec.topology.attempt);
}

TEST_IN(an_empty_sharing_domain_is_none, set_up, tear_down)
{
    scene.request.source_sharing_domain = "";
    accept();
    assert_null(scene.spec.topology.source_sharing_domain);
    scene.request.source_sharing_domain = "rack-7";
    accept();
    assert_string_equal(scene.spec.topology.source_sharing_domain, "rack-7");
}

TEST_IN(a_required_collective_and_another_executor_contradict_each_other, set_up, tear_down)
{
    scene.request.collective = COLLECTIVE_REQUIRED;
    accept();
    scene.strategy.executor_preference = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    accept(); /* only the request can contradict itself */
    scene.request.executor = EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE;
    accept();
    scene.request.executor = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    refuse("CONTRADICTING_POLICY", "GENERIC_BYTE_RANGE");
}

TEST_IN(placement_by_the_source_is_for_memory_of_this_host, set_up, tear_down)
{
    scene.request.view.placement = PLACEMENT_SOURCE;
    accept();
    assert_int_equal(scene.spec.view.placement, PLACEMENT_SOURCE);
    assert_int_equal(scene.spec.view.align_bytes, 0); /* each tensor's own */
    scene.request.device = "cuda:0";
    accept();
    assert_int_equal(scene.spec.view.placement, PLACEMENT_PACKED);
    assert_int_equal(scene.spec.view.align_bytes, 64);
}

TEST_IN(alignment_is_a_power_of_two_up_to_2_mib, set_up, tear_down)
{
    const uint64_t good[] = {1, 2, 64, 4096, 2 << 20},
                   bad[] = {3, 65, (2 << 20) + 1, 4 << 20, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        scene.request.view.align_bytes = good[i];
        accept();
        assert_int_equal(scene.spec.view.align_bytes, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        scene.request.view.align_bytes = bad[i];
        refuse("BAD_ALIGNMENT", "power of two");
    }
}

TEST_IN(every_way_to_say_host_memory_is_no_device, set_up, tear_down)
{
    static const char *const host[] = {NULL, "", "cpu", "cpu:0"};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        scene.request.device = host[i];
        accept();
        assert_null(scene.spec.device);
    }
    char name[65] = "";
    memset(name, 'x', 63);
    scene.request.device = name;
    accept();
    assert_string_equal(scene.spec.device, name);
    name[63] = 'x';
    refuse("DEVICE_TOO_LONG", "64");
}

TEST_IN(all_but_the_view_outlives_the_request, set_up, tear_down)
{
    char *artifact = memory_copy_text("disk:/m"), *name = memory_copy("a\0b", 3), *group = memory_copy_text("g");
    struct slice *slices = memory_copy(&(struct slice){-3, INT64_MAX}, sizeof *slices);
    struct view_item *items = memory_alloc_array(2, sizeof *items);
    items[0] = (struct view_item){.name = name, .name_length = 3, .n_slices = 1, .slices = slices};
    items[1] = (struct view_item){.name = "", .name_length = 0};
    scene.request = (struct load_request){
        .artifact = artifact, .view = {.items = items, .n_items = 2}, .has_group = true, .group_id = group, .world_size = 1};
    accept();
    free(artifact), free(group);
    const struct view_spec *view = &scene.spec.view;
    assert_string_equal(scene.spec.artifact, "disk:/m");
    assert_string_equal(scene.spec.topology.group_id, "g");
    assert_int_equal(view->n_items, 2);
    assert_int_equal(view->items[0].name_length, 3);
    assert_memory_equal(view->items[0].name, "a\0b", 4);
    assert_int_equal(view->items[0].n_slices, 1);
    assert_true(view->items[0].slices[0].start == -3 && view->items[0].slices[0].stop == INT64_MAX);
    assert_int_equal(view->items[1].name_length, 0);
    assert_int_equal(view->items[1].n_slices, 0);
    free(name), free(slices), free(items);
}

TEST_IN(files_are_for_clients_that_ask_for_them, set_up, tear_down)
{
    accept();
    assert_int_equal(scene.spec.memory, MEMORY_COPIED); /* a client that says nothing knows of no files */
    scene.request.memory = MEMORY_AUTO;
    accept();
    assert_int_equal(scene.spec.memory, MEMORY_AUTO);
    scene.request.device = "GPU-1";
    accept();
    assert_int_equal(scene.spec.memory, MEMORY_COPIED);
    scene.request.memory = MEMORY_MAPPED;
    refuse("MAPPED_ELSEWHERE", "a device");
    scene.request.device = NULL;
    accept();
    assert_int_equal(scene.spec.memory, MEMORY_MAPPED);
}
