/* Single steps on index maps, and their limits. tests/property/test_index_map.c has random chains of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/support/index_scene.h"

#include <cmocka.h>

static void is_at(const struct index_array *array, uint64_t i, uint64_t k, uint32_t source, uint64_t at)
{
    const uint64_t index[2] = {i, k};
    uint32_t found;
    assert_int_equal(index_scene_at(array, index, &found), at);
    assert_int_equal(found, source);
}

static void whole_tensors_are_one_map_and_empty_ones_none(void **state)
{
    const uint64_t shape[3] = {4, 1, 6}, empty[2] = {4, 0};
    (void)state;
    struct index_array array = index_scene_identity(0, 3, shape, true);
    assert_int_equal(array.n_maps, 1);
    assert_int_equal(array.maps[0].n_loops, 2); /* none for the extent of 1 */
    assert_int_equal(index_scene_identity(0, 2, empty, true).n_maps, 0);
    assert_int_equal(index_scene_identity(0, 0, NULL, true).maps[0].n_loops, 0);
}

static void a_transposed_slice_is_still_one_map(void **state)
{
    const uint64_t shape[2] = {4, 6}, start[2] = {1, 2}, size[2] = {3, 2};
    const uint32_t dims[2] = {1, 0};
    struct index_array array = index_scene_identity(0, 2, shape, true);
    (void)state;
    assert_int_equal(index_slice(&index_scene.work, &array, start, size, &array), 0);
    assert_int_equal(index_transpose(&index_scene.work, &array, dims, &array), 0);
    assert_int_equal(array.n_maps, 1);
    assert_int_equal(array.shape[0], 2);
    is_at(&array, 1, 2, 0, 3 * 6 + 3);
}

static void joined_tensors_keep_a_map_each(void **state)
{
    const uint64_t shape[2] = {2, 3};
    struct index_array parts[2] = {index_scene_identity(0, 2, shape, true), index_scene_identity(1, 2, shape, true)}, array;
    (void)state;
    assert_int_equal(index_concat(&index_scene.work, parts, 2, 1, &array), 0);
    assert_int_equal(array.n_maps, 2);
    assert_int_equal(array.shape[1], 6);
    is_at(&array, 1, 2, 0, 5);
    is_at(&array, 1, 3, 1, 3);
    assert_int_equal(index_stack(&index_scene.work, parts, 2, 0, &array), 0);
    assert_int_equal(array.rank, 3);
    assert_int_equal(index_unstack(&index_scene.work, &array, 0, 1, &array), 0);
    assert_int_equal(array.n_maps, 1);
    is_at(&array, 0, 2, 1, 2);
}

static void replicas_and_shuffles_repeat_what_is_stored(void **state)
{
    const uint64_t shape[1] = {4};
    static const uint32_t table[4] = {2, 3, 0, 1};
    struct index_array array = index_scene_identity(0, 1, shape, true), twice;
    (void)state;
    assert_int_equal(index_gather(&index_scene.work, &array, 0, table, &array), 0);
    assert_int_equal(array.n_maps, 1); /* however long the table is */
    assert_int_equal(index_replicate(&index_scene.work, &array, 2, &twice), 0);
    is_at(&twice, 0, 1, 0, 3);
    is_at(&twice, 1, 1, 0, 3);
    is_at(&twice, 1, 2, 0, 0);
}

static void four_million_maps_are_made_and_no_more(void **state)
{
    const uint64_t shape[1] = {4};
    struct index_array array = index_scene_identity(0, 1, shape, true), copy;
    const uint32_t dims[1] = {0};
    (void)state;
    index_scene.work.n_maps = INDEX_MAX_MAPS - 1;
    assert_int_equal(index_transpose(&index_scene.work, &array, dims, &copy), 0);
    assert_int_equal(index_transpose(&index_scene.work, &array, dims, &copy), -1);
    assert_int_equal(index_scene.error.code, ERROR_UNIMPLEMENTED);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, index_scene_begin, index_scene_end)
    const struct CMUnitTest tests[] = {
        TEST(whole_tensors_are_one_map_and_empty_ones_none),
        TEST(a_transposed_slice_is_still_one_map),
        TEST(joined_tensors_keep_a_map_each),
        TEST(replicas_and_shuffles_repeat_what_is_stored),
        TEST(four_million_maps_are_made_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
