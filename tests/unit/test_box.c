/* Boxes lower to as few runs as their geometry allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "resolve/box.h"

struct geometry {
    uint32_t rank;
    uint64_t shape[5], start[5], size[5];
    unsigned bits;
    uint64_t n_runs, src_offset, row_bytes, n_rows, src_stride;
};

static const uint64_t zeros[5];

/* Of one array, packed where it goes to. */
static struct box take(uint32_t rank, const uint64_t *shape, const uint64_t *start, const uint64_t *size)
{
    return (struct box){
        .rank = rank, .size = size, .src_shape = shape, .src_start = start, .dst_shape = size, .dst_start = zeros};
}

static const struct geometry table[] = {
    /* all of it, in any rank */
    {0, {0}, {0}, {0}, 32, 1, 0, 4, 1, 4},
    {1, {8}, {0}, {8}, 32, 1, 0, 32, 1, 32},
    {3, {2, 3, 4}, {0, 0, 0}, {2, 3, 4}, 16, 1, 0, 48, 1, 48},
    /* the outermost dimension: one contiguous run */
    {1, {8}, {2}, {4}, 32, 1, 8, 16, 1, 16},
    {3, {5, 3, 4}, {1, 0, 0}, {2, 3, 4}, 8, 1, 12, 24, 1, 24},
    /* behind dimensions of one index it is contiguous, too */
    {3, {1, 3, 4}, {0, 1, 0}, {1, 2, 4}, 8, 1, 4, 8, 1, 8},
    {3, {5, 3, 4}, {2, 1, 0}, {1, 2, 4}, 8, 1, 28, 8, 1, 8},
    {2, {5, 4}, {2, 1}, {1, 2}, 8, 1, 9, 2, 1, 2},
    /* one inner dimension: one strided run */
    {2, {4, 16}, {0, 4}, {4, 4}, 8, 1, 4, 4, 4, 16},
    {2, {2, 4}, {0, 1}, {2, 2}, 32, 1, 4, 8, 2, 16},
    {3, {2, 4, 3}, {0, 1, 0}, {2, 2, 3}, 8, 1, 3, 6, 2, 12},
    {3, {2, 4, 3}, {0, 0, 1}, {2, 4, 1}, 8, 1, 1, 1, 8, 3},
    /* rows and columns */
    {2, {6, 8}, {1, 2}, {4, 4}, 8, 1, 10, 4, 4, 8},
    /* the hundred thousand experts: one run of four rows */
    {4, {2, 3, 2, 2}, {0, 1, 0, 1}, {1, 2, 2, 1}, 8, 1, 5, 1, 4, 2},
    /* several levels */
    {3, {4, 6, 5}, {1, 2, 1}, {2, 2, 3}, 8, 2, 41, 3, 2, 5},
    {5, {2, 3, 2, 3, 2}, {0, 1, 0, 1, 0}, {2, 2, 2, 2, 1}, 16, 8, 28, 2, 2, 4},
    /* sub-byte elements on byte boundaries */
    {1, {8}, {2}, {4}, 4, 1, 1, 2, 1, 2},
    {2, {3, 8}, {0, 4}, {3, 4}, 6, 1, 3, 3, 3, 6},
};

static void boxes_lower_to_the_expected_runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct geometry *g = &table[i];
        struct box box = take(g->rank, g->shape, g->start, g->size);
        struct box_runs runs;
        assert_true(box_lower(&box, g->bits, &runs));
        if (runs.n_runs != g->n_runs || runs.src_offset != g->src_offset || runs.row_bytes != g->row_bytes ||
            runs.n_rows != g->n_rows || runs.src_stride != g->src_stride || runs.dst_offset != 0 ||
            runs.dst_stride != runs.row_bytes)
            fail_msg("case %zu: %llu runs at %llu: %llu rows of %llu, stride %llu", i, (unsigned long long)runs.n_runs,
                     (unsigned long long)runs.src_offset, (unsigned long long)runs.n_rows,
                     (unsigned long long)runs.row_bytes, (unsigned long long)runs.src_stride);
    }
}

static void run_offsets_ascend_in_c_order(void **state)
{
    static const uint64_t shape[] = {3, 4, 5, 6}, start[] = {0, 1, 1, 2}, size[] = {3, 2, 3, 2};
    struct box box = take(4, shape, start, size);
    struct box_runs runs;
    (void)state;
    assert_true(box_lower(&box, 8, &runs));
    assert_int_equal(runs.n_runs, 6);
    uint64_t index = 0, src, dst;
    for (uint64_t a = 0; a < 3; a++) {
        for (uint64_t b = 1; b < 3; b++) {
            box_run_offsets(&runs, index, &src, &dst);
            assert_int_equal(src, ((a * 4 + b) * 5 + 1) * 6 + 2);
            assert_int_equal(dst, index++ * 6);
        }
    }
}

static void an_empty_box_has_no_runs_however_large_the_array_is(void **state)
{
    static const uint64_t shape[] = {(uint64_t)1 << 63, 0, (uint64_t)1 << 40}, start[] = {0, 0, 0};
    static const uint64_t size[] = {(uint64_t)1 << 63, 0, (uint64_t)1 << 40};
    struct box box = take(3, shape, start, size);
    struct box_runs runs;
    (void)state;
    assert_true(box_lower(&box, 4, &runs));
    assert_int_equal(runs.n_runs, 0);
}

static void sub_byte_rows_off_a_byte_boundary_are_refused(void **state)
{
    static const struct {
        uint64_t shape[2], start[2], size[2];
        unsigned bits;
        bool fits;
    } cases[] = {
        {{4, 8}, {0, 1}, {4, 2}, 4, false}, {{4, 8}, {0, 2}, {4, 3}, 4, false}, {{4, 8}, {0, 2}, {4, 2}, 4, true},
        {{4, 7}, {0, 2}, {4, 2}, 4, false}, {{4, 7}, {2, 0}, {2, 7}, 4, true},  {{4, 7}, {1, 0}, {2, 7}, 4, false},
        {{4, 8}, {0, 2}, {4, 4}, 6, false}, {{4, 8}, {0, 4}, {4, 4}, 6, true},  {{4, 7}, {2, 2}, {1, 2}, 4, true},
        {{4, 7}, {1, 2}, {1, 2}, 4, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct box box = take(2, cases[i].shape, cases[i].start, cases[i].size);
        struct box_runs runs;
        if (box_lower(&box, cases[i].bits, &runs) != cases[i].fits)
            fail_msg("case %zu", i);
    }
}

/* [1:3, 2:5] of one array at [2:4, 0:3] of the other. */
static void a_box_has_a_stride_in_each_array(void **state)
{
    static const uint64_t size[] = {2, 3}, from[] = {4, 6}, first[] = {1, 2}, to[] = {4, 5}, at[] = {2, 0};
    const struct box box = {2, size, from, first, to, at};
    struct box_runs runs;
    (void)state;
    assert_true(box_lower(&box, 16, &runs));
    assert_int_equal(runs.n_runs, 1);
    assert_true(runs.row_bytes == 6 && runs.n_rows == 2 && runs.src_stride == 12 && runs.dst_stride == 10);
    assert_true(runs.src_offset == 16 && runs.dst_offset == 20);
}

/* Columns of a packed piece go to where they are wider apart: contiguous on one side only, so not one row. */
static void what_is_contiguous_on_one_side_only_is_not_merged(void **state)
{
    static const uint64_t size[] = {4, 3}, whole[] = {4, 6}, origin[] = {0, 0}, at[] = {0, 3};
    const struct box spread = {2, size, size, origin, whole, at}, gathered = {2, size, whole, at, size, origin};
    struct box_runs runs;
    (void)state;
    assert_true(box_lower(&spread, 8, &runs));
    assert_true(runs.n_runs == 1 && runs.n_rows == 4 && runs.src_stride == 3 && runs.dst_stride == 6);
    assert_true(box_lower(&gathered, 8, &runs));
    assert_true(runs.n_runs == 1 && runs.n_rows == 4 && runs.src_stride == 6 && runs.dst_stride == 3);
    assert_false(box_lower(&spread, 4, &runs)); /* rows of 12 bits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_lower_to_the_expected_runs),
        cmocka_unit_test(run_offsets_ascend_in_c_order),
        cmocka_unit_test(an_empty_box_has_no_runs_however_large_the_array_is),
        cmocka_unit_test(a_box_has_a_stride_in_each_array),
        cmocka_unit_test(what_is_contiguous_on_one_side_only_is_not_merged),
        cmocka_unit_test(sub_byte_rows_off_a_byte_boundary_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
