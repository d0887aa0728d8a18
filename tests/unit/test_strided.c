/* Boxes of strided bytes: the same bytes as the array's, in the order of memory, with as few loops as it takes. */
#include "tests/support/unit.h"

#include "resolve/strided.h"

static struct strided_loop loops[4];

static struct strided_box make(uint64_t at, uint64_t row, uint32_t rank, const uint64_t *sizes, const int64_t *strides)
{
    return strided_make(at, row, rank, sizes, strides, loops);
}

#define SIZES(...) ((const uint64_t[]){__VA_ARGS__})
#define STRIDES(...) ((const int64_t[]){__VA_ARGS__})

TEST(what_follows_on_is_one_row_or_one_loop)
{
    struct strided_box box = make(100, 2, 3, SIZES(3, 4, 5), STRIDES(40, 10, 2));
    assert_int_equal(box.lo, 100);
    assert_int_equal(box.hi, 220);
    assert_int_equal(box.row, 120);
    assert_int_equal(box.n_loops, 0);
    box = make(100, 2, 3, SIZES(3, 4, 5), STRIDES(64, 16, 2));
    assert_int_equal(box.row, 10);
    assert_int_equal(box.n_loops, 1);
    assert_int_equal(box.loops[0].size, 12);
    assert_int_equal(box.loops[0].stride, 16);
    assert_int_equal(box.hi, 100 + 11 * 16 + 10);
}

TEST(backward_strides_and_lengths_of_one_leave_the_same_bytes)
{
    struct strided_box box = make(130, 1, 3, SIZES(4, 1, 3), STRIDES(-10, 999, 3));
    assert_int_equal(box.lo, 100);
    assert_int_equal(box.hi, 137);
    assert_int_equal(box.n_loops, 2);
    assert_int_equal(box.loops[0].stride, 3);
    assert_int_equal(box.loops[1].stride, 10);
    assert_true(strided_is_nested(&box));
}

TEST(strides_that_cross_are_not_nested_and_equal_ones_repeat)
{
    struct strided_box box = make(0, 1, 2, SIZES(2, 2), STRIDES(2, 3)); /* 0 2 3 5 */
    assert_true(strided_is_nested(&box));
    box = make(0, 1, 2, SIZES(3, 2), STRIDES(2, 3)); /* 0 2 4 3 5 7 */
    assert_false(strided_is_nested(&box));
    assert_false(strided_repeats(&box));
    box = make(0, 1, 2, SIZES(3, 2), STRIDES(3, -3));
    assert_true(strided_repeats(&box));
    box = make(0, 4, 1, SIZES(3), STRIDES(2));
    assert_true(strided_repeats(&box));
}
