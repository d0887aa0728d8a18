/* Single steps on index maps, and their limits. tests/property/test_index_map.c has random chains of them. */
#include "tests/support/unit.h"

#include "tests/support/index_scene.h"

static void is_at(const struct index_array *array, uint64_t i, uint64_t k, uint32_t source, uint64_t at)
{
    const uint64_t index[2] = {i, k};
    uint32_t found;
    assert_int_equal(index_scene_at(array, index, &found), at);
    assert_int_equal(found, source);
}

TEST_IN(whole_tensors_are_one_map_and_empty_ones_none, index_scene_begin, index_scene_end)
{
    const uint64_t shape[3] = {4, 1, 6}, empty[2] = {4, 0};
    struct index_array array = index_scene_identity(0, 3, shape, true);
    assert_int_equal(array.n_maps, 1);
    assert_int_equal(array.maps[0].n_loops, 2); /* none for the extent of 1 */
    assert_int_equal(index_scene_identity(0, 2, empty, true).n_maps, 0);
    assert_int_equal(index_scene_identity(0, 0, NULL, true).maps[0].n_loops, 0);
}

TEST_IN(a_transposed_slice_is_still_one_map, index_scene_begin, index_scene_end)
{
    const uint64_t shape[2] = {4, 6}, start[2] = {1, 2}, size[2] = {3, 2};
    const uint32_t dims[2] = {1, 0};
    struct index_array array = index_scene_identity(0, 2, shape, true);
    assert_int_equal(index_slice(&index_scene.work, &array, start, size, &array), 0);
    assert_int_equal(index_transpose(&index_scene.work, &array, dims, &array), 0);
    assert_int_equal(array.n_maps, 1);
    assert_int_equal(array.shape[0], 2);
    is_at(&array, 1, 2, 0, 3 * 6 + 3);
}

TEST_IN(joined_tensors_keep_a_map_each, index_scene_begin, index_scene_end)
{
    const uint64_t shape[2] = {2, 3};
    struct index_array parts[2] = {index_scene_identity(0, 2, shape, true), index_scene_identity(1, 2, shape, true)}, array;
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

TEST_IN(replicas_and_shuffles_repeat_what_is_stored, index_scene_begin, index_scene_end)
{
    const uint64_t shape[1] = {4};
    static const uint32_t table[4] = {2, 3, 0, 1};
    struct index_array array = index_scene_identity(0, 1, shape, true), twice;
    assert_int_equal(index_gather(&index_scene.work, &array, 0, table, &array), 0);
    assert_int_equal(array.n_maps, 1); /* however long the table is */
    assert_int_equal(index_replicate(&index_scene.work, &array, 2, &twice), 0);
    is_at(&twice, 0, 1, 0, 3);
    is_at(&twice, 1, 1, 0, 3);
    is_at(&twice, 1, 2, 0, 0);
}

TEST_IN(four_million_maps_are_made_and_no_more, index_scene_begin, index_scene_end)
{
    const uint64_t shape[1] = {4};
    struct index_array array = index_scene_identity(0, 1, shape, true), copy;
    const uint32_t dims[1] = {0};
    index_scene.work.n_maps = INDEX_MAX_MAPS - 1;
    assert_int_equal(index_transpose(&index_scene.work, &array, dims, &copy), 0);
    assert_int_equal(index_transpose(&index_scene.work, &array, dims, &copy), -1);
    assert_int_equal(index_scene.error.code, ERROR_UNIMPLEMENTED);
}
