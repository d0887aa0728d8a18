/* Loops with a stride on each side as few rows. tests/property/test_mapping.c checks the bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "resolve/loop_nest.h"

static struct box_runs runs;

/* Loops in bytes. */
static bool lower(unsigned element_bytes, uint32_t n, const struct nest_loop *loops)
{
    struct loop_nest nest = {.src = 80, .dst = 160, .n_loops = n};
    for (uint32_t i = 0; i < n; i++)
        nest.loops[i] = (struct nest_loop){loops[i].size, loops[i].src * 8, loops[i].dst * 8};
    return loop_nest_lower(&nest, element_bytes * 8, element_bytes * 8, &runs);
}
#define LOOPS(...) ((const struct nest_loop[]){__VA_ARGS__})

static void is(uint64_t n_runs, uint64_t row_bytes, uint64_t n_rows, uint64_t src_stride, int64_t dst_stride)
{
    assert_int_equal(runs.src_offset, 10);
    assert_int_equal(runs.dst_offset, 20);
    assert_int_equal(runs.n_runs, n_runs);
    assert_int_equal(runs.row_bytes, row_bytes);
    assert_int_equal(runs.n_rows, n_rows);
    assert_int_equal(runs.src_stride, src_stride);
    assert_int_equal((int64_t)runs.dst_stride, dst_stride);
}

static void what_follows_on_both_sides_is_one_row(void **state)
{
    (void)state;
    assert_true(lower(2, 0, NULL));
    is(1, 2, 1, 2, 2);
    assert_true(lower(2, 2, LOOPS({3, 8, 8}, {4, 2, 2})));
    is(1, 24, 1, 24, 24);
    assert_true(lower(2, 2, LOOPS({4, 2, 2}, {3, 8, 10})));
    is(1, 8, 3, 8, 10);
    assert_true(lower(2, 3, LOOPS({3, 8, 10}, {5, 24, 30}, {4, 2, 2})));
    is(1, 8, 15, 8, 10);
}

static void rows_may_go_backwards(void **state)
{
    (void)state;
    assert_true(lower(2, 2, LOOPS({3, 8, -8}, {4, 2, 2})));
    is(1, 8, 3, 8, -8);
    assert_true(lower(2, 2, LOOPS({3, 8, -8}, {4, 2, -2})));
    is(1, 2, 12, 2, -2);
    assert_true(lower(2, 2, LOOPS({3, 8, 8}, {4, 2, -2})));
    is(3, 2, 4, 2, -2);
    uint64_t src, dst;
    box_run_offsets(&runs, 2, &src, &dst);
    assert_int_equal(src, 26);
    assert_int_equal(dst, 36);
}

static void rows_lie_close_together_in_the_file_unless_that_takes_many_more(void **state)
{
    (void)state;
    assert_true(lower(1, 2, LOOPS({50, 40, 1}, {40, 1, 50}))); /* transposed */
    is(50, 1, 40, 1, 50);
    assert_true(lower(1, 2, LOOPS({50, 4, 1}, {4, 1, 50})));
    is(4, 1, 50, 4, 1);
}

static void what_is_no_whole_bytes_is_refused(void **state)
{
    struct loop_nest nest = {.n_loops = 1, .loops = {{8, 4, 4}}};
    (void)state;
    assert_true(loop_nest_lower(&nest, 4, 4, &runs));
    assert_int_equal(runs.row_bytes, 4);
    nest = (struct loop_nest){.n_loops = 1, .loops = {{7, 4, 4}}};
    assert_false(loop_nest_lower(&nest, 4, 4, &runs));
    nest = (struct loop_nest){.n_loops = 2, .loops = {{8, 4, 4}, {3, 32, -36}}};
    assert_false(loop_nest_lower(&nest, 4, 4, &runs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_follows_on_both_sides_is_one_row),
        cmocka_unit_test(rows_may_go_backwards),
        cmocka_unit_test(rows_lie_close_together_in_the_file_unless_that_takes_many_more),
        cmocka_unit_test(what_is_no_whole_bytes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
