/* From a view as a client writes it to the steps that are read: V1 .. V4 and P5 of the design notes through the real
 * mapping, on a checkpoint in memory. */
#include "tests/support/unit.h"

#include "normalize/load_spec.h"
#include "plan/plan.h"
#include "resolve/artifact.h"
#include "resolve/mapping.h"
#include "tests/support/source_memory.h"

/* alpha F64 [1], beta F64 [1], row F32 [8], matrix F32 [2, 4], bytes U8 [4, 16], one behind the other */
static const char header[] = "{\"alpha\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                             "\"beta\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[8,16]},"
                             "\"row\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[16,48]},"
                             "\"matrix\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[48,80]},"
                             "\"bytes\":{\"dtype\":\"U8\",\"shape\":[4,16],\"data_offsets\":[80,144]}}";
enum { HEADER_BYTES = sizeof header - 1, DATA_BYTES = 144, DATA = 8 + HEADER_BYTES };

struct scene {
    struct artifact *artifact;
    struct materialization_strategy strategy;
    struct arena arena;
    struct load_spec spec;
    struct mapping *mapping;
    struct plan *plan;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    unsigned char file[DATA + DATA_BYTES] = {HEADER_BYTES & 255, HEADER_BYTES >> 8};
    memcpy(file + 8, header, HEADER_BYTES);
    source_memory_put("plan", "model.safetensors", file, sizeof file);
    struct source_options options = {0};
    struct error error;
    if (artifact_resolve("memory:plan", &options, NULL, false, &scene->artifact, &error)) {
        print_error("%s\n", error.message);
        return -1;
    }
    scene->strategy =
        (struct materialization_strategy){.enable_local_batched_disk_load = true, .allow_mixed_execution = true};
    arena_init(&scene->arena, 0);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    plan_destroy(scene->plan);
    mapping_destroy(scene->mapping);
    arena_fini(&scene->arena);
    artifact_unref(scene->artifact);
    source_memory_clear();
    test_free(scene);
    return 0;
}

static const struct plan *plan_view(struct scene *scene, const struct view_item *items, size_t n_items,
                                    enum executor_preference executor)
{
    struct load_request request = {.artifact = "memory:plan",
                                   .view = {.whole = n_items == 0, .items = items, .n_items = n_items},
                                   .executor = executor};
    struct error error;
    struct plan_facts facts = {.strategy = &scene->strategy,
                               .costs = &cost_defaults,
                               .device.direct_segments = true,
                               .staging_budget_bytes = 1 << 20};
    assert_int_equal(load_spec_build(&request, &scene->strategy, &scene->arena, &scene->spec, &error), 0);
    scene->mapping = mapping_build(&scene->spec.view, scene->artifact, &error);
    assert_non_null(scene->mapping);
    scene->plan = plan_build(scene->mapping, &scene->spec, &facts, &error);
    assert_non_null(scene->plan);
    return scene->plan;
}

static struct view_item item(const char *name, uint32_t n_slices, const struct slice *slices)
{
    return (struct view_item){.name = name, .name_length = strlen(name), .n_slices = n_slices, .slices = slices};
}

static void assert_step(const struct plan_step *step, uint64_t data_offset, uint64_t bytes, uint64_t count, uint64_t stride)
{
    assert_int_equal(step->offset, DATA + data_offset);
    assert_int_equal(step->bytes, bytes);
    assert_int_equal(step->count, count);
    assert_int_equal(step->stride, stride);
}

TEST_IN(v1_a_slice_of_a_vector_is_one_range, set_up, tear_down)
{
    const struct view_item items[] = {item("row", 1, (struct slice[]){{2, 6}})};
    const struct plan *plan = plan_view(*state, items, 1, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE);
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 16 + 8, 16, 1, 16);
    assert_int_equal(plan->n_jobs[JOB_DIM0], 1);
}

TEST_IN(v2_a_negative_column_slice_is_two_ranges, set_up, tear_down)
{
    const struct view_item items[] = {item("matrix", 2, (struct slice[]){{0, INT64_MAX}, {-3, -1}})};
    const struct plan *plan = plan_view(*state, items, 1, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE);
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 48 + 4, 8, 2, 16);
    assert_int_equal(plan->n_jobs[JOB_DIM1], 1);
    assert_int_equal(plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE].requests, 2);
}

TEST_IN(v3_steps_are_in_file_order_whatever_the_order_of_the_view, set_up, tear_down)
{
    struct scene *scene = *state;
    const struct view_item items[] = {item("beta", 0, NULL), item("alpha", 0, NULL)};
    const struct plan *plan = plan_view(scene, items, 2, EXECUTOR_PREFERENCE_AUTO);
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 0, 16, 1, 16);
    assert_int_equal(scene->mapping->tensors[0].offset, 0);
    assert_int_equal(scene->mapping->tensors[1].offset, 64);
}

TEST_IN(v4_the_whole_artifact_is_one_request, set_up, tear_down)
{
    const struct plan *plan = plan_view(*state, NULL, 0, EXECUTOR_PREFERENCE_AUTO);
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 0, DATA_BYTES, 1, DATA_BYTES);
    assert_int_equal(plan->n_jobs[JOB_REPLICATED], 5);
}

TEST_IN(p5_a_column_slice_read_locally_is_a_hull, set_up, tear_down)
{
    const struct view_item items[] = {item("bytes", 2, (struct slice[]){{0, INT64_MAX}, {0, 4}})};
    const struct plan *plan = plan_view(*state, items, 1, EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL);
    assert_int_equal(plan->executor, EXECUTOR_TENSOR_BATCHED_LOCAL);
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 80, 52, 1, 52);
    assert_int_equal(plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL].unique_source_bytes, 16);
}
