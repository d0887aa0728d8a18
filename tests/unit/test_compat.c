/* Extents of the original loader: packed in storage order, never across files, never through a tensor. */
#include "tests/support/unit.h"

#include "plan/compat.h"

static const char *const files[] = {"model-2.safetensors", "model-1.safetensors"};

static struct compat_plan build(const struct compat_tensor *tensors, size_t n_tensors, uint64_t chunk_bytes)
{
    return compat_plan_build(files, tensors, n_tensors, chunk_bytes);
}

static void assert_extent(const struct compat_plan *plan, size_t i, size_t file, uint64_t start, uint64_t end,
                          size_t n_tensors)
{
    assert_true(i < plan->n_extents);
    assert_int_equal(plan->extents[i].file, file);
    assert_int_equal(plan->extents[i].start, start);
    assert_int_equal(plan->extents[i].end, end);
    assert_int_equal(plan->extents[i].n_tensors, n_tensors);
}

TEST(tensors_fill_an_extent_up_to_the_last_byte)
{
    static const struct compat_tensor tensors[] = {{0, 100, 40}, {0, 140, 60}, {0, 200, 1}};
    struct compat_plan plan = build(tensors, 3, 100);
    assert_int_equal(plan.n_extents, 2);
    assert_extent(&plan, 0, 0, 100, 200, 2);
    assert_extent(&plan, 1, 0, 200, 201, 1);
    compat_plan_fini(&plan);
    plan = build(tensors, 3, 99);
    assert_int_equal(plan.n_extents, 2);
    assert_extent(&plan, 0, 0, 100, 140, 1);
    assert_extent(&plan, 1, 0, 140, 201, 2);
    compat_plan_fini(&plan);
}

TEST(a_tensor_that_is_larger_stays_whole_and_alone)
{
    static const struct compat_tensor tensors[] = {{0, 8, 2}, {0, 10, 500}, {0, 510, 2}, {0, 512, 0}};
    struct compat_plan plan = build(tensors, 4, 100);
    assert_int_equal(plan.n_extents, 3);
    assert_extent(&plan, 0, 0, 8, 10, 1);
    assert_extent(&plan, 1, 0, 10, 510, 1);
    assert_extent(&plan, 2, 0, 510, 512, 2);
    compat_plan_fini(&plan);
}

TEST(files_are_taken_by_name_and_never_share_an_extent)
{
    static const struct compat_tensor tensors[] = {{0, 18, 10}, {1, 28, 10}, {0, 8, 10}, {1, 8, 20}};
    static const size_t order[] = {3, 1, 2, 0};
    struct compat_plan plan = build(tensors, 4, 1000);
    assert_int_equal(plan.n_extents, 2);
    assert_extent(&plan, 0, 1, 8, 38, 2);
    assert_extent(&plan, 1, 0, 8, 28, 2);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(plan.order[i], order[i]);
    compat_plan_fini(&plan);
}

TEST(sizes_near_the_largest_number_do_not_wrap)
{
    static const struct compat_tensor tensors[] = {{0, 8, UINT64_MAX - 100}, {1, 8, 50}, {1, 58, UINT64_MAX - 200}};
    struct compat_plan plan = build(tensors, 3, UINT64_MAX);
    assert_int_equal(plan.n_extents, 2);
    compat_plan_fini(&plan);
    plan = build(tensors, 3, 100);
    assert_int_equal(plan.n_extents, 3);
    compat_plan_fini(&plan);
}

TEST(nothing_makes_no_extent)
{
    struct compat_plan plan = build(NULL, 0, 100);
    assert_int_equal(plan.n_extents, 0);
    compat_plan_fini(&plan);
}

TEST(owners_go_round)
{
    assert_int_equal(compat_owner(0, 3), 0);
    assert_int_equal(compat_owner(5, 3), 2);
    assert_int_equal(compat_owner(7, 1), 0);
}
