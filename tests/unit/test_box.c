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
    uint64_t n_runs, first_offset, row_bytes, n_rows, row_stride;
};

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
        struct box box = {.rank = g->rank, .shape = g->shape, .start = g->start, .size = g->size};
        struct box_runs runs;
        assert_true(box_lower(&box, g->bits, &runs));
        if (runs.n_runs != g->n_runs || runs.first_offset != g->first_offset || runs.row_bytes != g->row_bytes ||
            runs.n_rows != g->n_rows || runs.row_stride != g->row_stride)
            fail_msg("case %zu: %llu runs at %llu: %llu rows of %llu, stride %llu", i, (unsigned long long)runs.n_runs,
                     (unsigned long long)runs.first_offset, (unsigned long long)runs.n_rows,
                     (unsigned long long)runs.row_bytes, (unsigned long long)runs.row_stride);
    }
}

static void run_offsets_ascend_in_c_order(void **state)
{
    static const uint64_t shape[] = {3, 4, 5, 6}, start[] = {0, 1, 1, 2}, size[] = {3, 2, 3, 2};
    struct box box = {.rank = 4, .shape = shape, .start = start, .size = size};
    struct box_runs runs;
    (void)state;
    assert_true(box_lower(&box, 8, &runs));
    assert_int_equal(runs.n_runs, 6);
    uint64_t index = 0;
    for (uint64_t a = 0; a < 3; a++) {
        for (uint64_t b = 1; b < 3; b++)
            assert_int_equal(box_run_offset(&runs, index++), ((a * 4 + b) * 5 + 1) * 6 + 2);
    }
}

static void an_empty_box_has_no_runs_however_large_the_array_is(void **state)
{
    static const uint64_t shape[] = {(uint64_t)1 << 63, 0, (uint64_t)1 << 40}, start[] = {0, 0, 0};
    static const uint64_t size[] = {(uint64_t)1 << 63, 0, (uint64_t)1 << 40};
    struct box box = {.rank = 3, .shape = shape, .start = start, .size = size};
    struct box_runs runs;
    (void)state;
    assert_true(box_lower(&box, 4, &runs));
    assert_int_equal(runs.n_runs, 0);
    assert_int_equal(box_elements(&box), 0);
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
        struct box box = {.rank = 2, .shape = cases[i].shape, .start = cases[i].start, .size = cases[i].size};
        struct box_runs runs;
        if (box_lower(&box, cases[i].bits, &runs) != cases[i].fits)
            fail_msg("case %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_lower_to_the_expected_runs),
        cmocka_unit_test(run_offsets_ascend_in_c_order),
        cmocka_unit_test(an_empty_box_has_no_runs_however_large_the_array_is),
        cmocka_unit_test(sub_byte_rows_off_a_byte_boundary_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
