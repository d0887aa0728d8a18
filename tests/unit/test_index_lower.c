/* Loops of a map as rows with strides in bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "resolve/index_lower.h"
#include "tests/support/index_scene.h"

#include <cmocka.h>

static const uint64_t zeros[TENSOR_MAX_RANK], one[1] = {1};

static bool lower(const struct index_array *array, unsigned from_bits, unsigned to_bits, struct box_runs *runs)
{
    int64_t strides[TENSOR_MAX_RANK];
    uint64_t n = 1;
    struct index_draft draft;
    for (uint32_t i = array->rank; i-- > 0; n *= array->shape[i])
        strides[i] = (int64_t)(n * to_bits);
    assert_int_equal(array->n_maps, 1);
    index_draft(&array->maps[0], array->rank, &draft);
    const struct index_frame frame = {.dst_rank = array->rank,
                                      .dst_start = zeros,
                                      .dst_stride_bits = strides,
                                      .src_stride = one,
                                      .from_bits = from_bits,
                                      .to_bits = to_bits};
    return index_lower(&draft, &frame, runs);
}

static void a_whole_tensor_is_one_row(void **state)
{
    struct index_array array = index_scene_identity(0, 3, (uint64_t[]){4, 5, 6}, true);
    struct box_runs runs;
    (void)state;
    assert_true(lower(&array, 16, 16, &runs));
    assert_int_equal(runs.n_runs, 1);
    assert_int_equal(runs.n_rows, 1);
    assert_int_equal(runs.row_bytes, 240);
    assert_int_equal(runs.src_stride, 240);
}

static void a_transposed_matrix_is_a_run_for_each_row_that_is_stored(void **state)
{
    struct index_array array = index_scene_identity(0, 2, (uint64_t[]){40, 60}, true);
    struct box_runs runs;
    (void)state;
    assert_int_equal(index_transpose(&index_scene.work, &array, (uint32_t[]){1, 0}, &array), 0);
    assert_true(lower(&array, 32, 32, &runs));
    assert_int_equal(runs.n_runs, 40);
    assert_int_equal(runs.n_rows, 60);
    assert_int_equal(runs.row_bytes, 4);
    assert_int_equal(runs.src_stride, 4);
    assert_int_equal(runs.dst_stride, 160);
}

static void replicas_are_runs_of_the_same_rows(void **state)
{
    struct index_array array = index_scene_identity(0, 1, (uint64_t[]){10}, true);
    struct box_runs runs;
    uint64_t src, dst;
    (void)state;
    assert_int_equal(index_replicate(&index_scene.work, &array, 3, &array), 0);
    assert_true(lower(&array, 8, 8, &runs));
    assert_int_equal(runs.n_runs, 3);
    assert_int_equal(runs.n_rows, 1);
    box_run_offsets(&runs, 2, &src, &dst);
    assert_int_equal(src, 0);
    assert_int_equal(dst, 20);
}

static void sides_have_strides_of_their_own_elements(void **state)
{
    struct index_array array = index_scene_identity(0, 2, (uint64_t[]){3, 8}, true);
    struct box_runs runs;
    (void)state;
    assert_int_equal(index_slice(&index_scene.work, &array, (uint64_t[]){1, 2}, (uint64_t[]){2, 4}, &array), 0);
    assert_true(lower(&array, 32, 16, &runs));
    assert_int_equal(runs.row_bytes, 16);
    assert_int_equal(runs.src_offset, 40);
    assert_int_equal(runs.src_stride, 32);
    assert_int_equal(runs.dst_stride, 8);
}

static void elements_that_begin_within_a_byte_are_not_lowered(void **state)
{
    struct index_array whole = index_scene_identity(0, 2, (uint64_t[]){3, 8}, true), array;
    struct box_runs runs;
    (void)state;
    assert_int_equal(index_slice(&index_scene.work, &whole, (uint64_t[]){0, 2}, (uint64_t[]){3, 4}, &array), 0);
    assert_true(lower(&array, 4, 4, &runs));
    assert_int_equal(runs.row_bytes, 2);
    assert_int_equal(index_slice(&index_scene.work, &whole, (uint64_t[]){0, 1}, (uint64_t[]){3, 4}, &array), 0);
    assert_false(lower(&array, 4, 4, &runs));
    assert_int_equal(index_slice(&index_scene.work, &whole, (uint64_t[]){0, 0}, (uint64_t[]){2, 3}, &array), 0);
    assert_false(lower(&array, 4, 4, &runs));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, index_scene_begin, index_scene_end)
    const struct CMUnitTest tests[] = {
        TEST(a_whole_tensor_is_one_row),
        TEST(a_transposed_matrix_is_a_run_for_each_row_that_is_stored),
        TEST(replicas_are_runs_of_the_same_rows),
        TEST(sides_have_strides_of_their_own_elements),
        TEST(elements_that_begin_within_a_byte_are_not_lowered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
