/* In how many parts reshaping leaves a tensor. tests/property/test_index_map.c has the elements. */
#include "tests/support/unit.h"

#include "tests/support/index_scene.h"

static size_t n_maps(bool is_flat, uint32_t rank, const uint64_t *from, uint32_t new_rank, const uint64_t *to)
{
    struct index_array array = index_scene_identity(0, rank, from, is_flat);
    assert_int_equal(index_reshape(&index_scene.work, &array, new_rank, to, &array), 0);
    assert_int_equal(array.rank, new_rank);
    return array.n_maps;
}

TEST_IN(what_is_stored_in_one_piece_stays_one_map, index_scene_begin, index_scene_end)
{
    assert_int_equal(n_maps(true, 2, (uint64_t[]){6, 4}, 1, (uint64_t[]){24}), 1);
    assert_int_equal(n_maps(true, 2, (uint64_t[]){6, 4}, 2, (uint64_t[]){8, 3}), 1);
    assert_int_equal(n_maps(true, 3, (uint64_t[]){6, 1, 4}, 4, (uint64_t[]){1, 2, 12, 1}), 1);
    assert_int_equal(n_maps(true, 1, (uint64_t[]){1}, 0, NULL), 1);
    assert_int_equal(n_maps(true, 2, (uint64_t[]){0, 4}, 1, (uint64_t[]){0}), 0);
}

TEST_IN(where_dimensions_are_kept_only_cuts_across_them_cost_maps, index_scene_begin, index_scene_end)
{
    assert_int_equal(n_maps(false, 2, (uint64_t[]){6, 4}, 3, (uint64_t[]){2, 3, 4}), 1);
    assert_int_equal(n_maps(false, 2, (uint64_t[]){6, 4}, 1, (uint64_t[]){24}), 1);
    assert_in_range(n_maps(false, 2, (uint64_t[]){6, 4}, 2, (uint64_t[]){8, 3}), 2, 16);
}

TEST_IN(what_begins_in_the_middle_of_a_row_is_three_parts_and_not_one_per_row, index_scene_begin, index_scene_end)
{
    struct index_array parts[2] = {index_scene_identity(0, 1, (uint64_t[]){3}, true),
                                   index_scene_identity(1, 1, (uint64_t[]){1000 * 1000 - 3}, true)},
                       array;
    assert_int_equal(index_concat(&index_scene.work, parts, 2, 0, &array), 0);
    assert_int_equal(index_reshape(&index_scene.work, &array, 2, (uint64_t[]){100 * 1000, 10}, &array), 0);
    assert_int_equal(array.n_maps, 3); /* the first tensor; the rest of its row; all other rows */
}

/* A map with gaps as wide as these has no rows in between to be looked at. */
TEST_IN(rows_without_elements_cost_nothing, index_scene_begin, index_scene_end)
{
    const uint64_t n = (uint64_t)1 << 40;
    struct index_array array = index_scene_identity(0, 2, (uint64_t[]){2, n - 1}, true);
    struct index_array wide = index_scene_identity(1, 2, (uint64_t[]){2, 1}, true), parts[2] = {wide, array};
    assert_int_equal(index_concat(&index_scene.work, parts, 2, 1, &array), 0); /* (2, n) */
    assert_int_equal(index_reshape(&index_scene.work, &array, 2, (uint64_t[]){n / 64, 128}, &array), 0);
    assert_in_range(array.n_maps, 2, 16);
}
