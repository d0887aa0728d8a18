/* Runs of elements that share scales by blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "convert/cast.h"
#include "convert/dequantize.h"

static const uint8_t one = 0x38, minus_two = 0xc0; /* of F8_E4M3 */

static void each_block_of_a_row_has_its_own_scale(void **state)
{
    const float scales[] = {0.5F, 3, -7};
    const uint8_t row[] = {one, one, one, minus_two, one, one, minus_two}; /* the last block is shorter */
    const struct dequantize_run run = {.scales = scales, .column = 0, .block_columns = 3};
    const float expected[] = {0.5F, 0.5F, 0.5F, -6, 3, 3, 14};
    float result[7];
    (void)state;
    dequantize_find(DTYPE_F8_E4M3, DTYPE_F32)(result, row, 7, &run);
    assert_memory_equal(result, expected, sizeof expected);
}

static void a_run_begins_and_ends_anywhere_in_a_block(void **state)
{
    const float scales[] = {1, 2, 4, 8, 16};
    uint8_t row[25];
    float whole[25], part[25];
    const struct dequantize_run all = {.scales = scales, .column = 0, .block_columns = 5};
    dequantize_function *dequantize = dequantize_find(DTYPE_F8_E4M3, DTYPE_F32);
    (void)state;
    for (uint8_t i = 0; i < sizeof row; i++)
        row[i] = (uint8_t)(one + i);
    dequantize(whole, row, 25, &all);
    for (size_t begin = 0; begin < 25; begin++) {
        for (size_t n = 0; n <= 25 - begin; n++) {
            const struct dequantize_run run = {.scales = scales, .column = begin, .block_columns = 5};
            dequantize(part, row + begin, n, &run);
            assert_memory_equal(part, whole + begin, n * sizeof *part);
        }
    }
}

static void a_block_may_be_wider_than_any_row(void **state)
{
    const float scale = 2;
    const uint8_t row[] = {one, minus_two};
    const struct dequantize_run run = {.scales = &scale, .column = 1000, .block_columns = SIZE_MAX};
    uint16_t result[2];
    (void)state;
    dequantize_find(DTYPE_F8_E4M3, DTYPE_BF16)(result, row, 2, &run);
    assert_int_equal(result[0], 0x4000);
    assert_int_equal(result[1], 0xc080);
}

static void the_product_is_rounded_once_in_f32_and_once_to_the_target(void **state)
{
    uint32_t scale_bits = 0x3f808001; /* just above a tie of BF16 */
    float scale;
    const struct dequantize_run run = {.scales = &scale, .column = 0, .block_columns = 1};
    uint16_t result;
    (void)state;
    memcpy(&scale, &scale_bits, sizeof scale);
    dequantize_find(DTYPE_F8_E4M3, DTYPE_BF16)(&result, &one, 1, &run);
    assert_int_equal(result, 0x3f81);
}

static void a_scale_that_is_no_number_makes_none_of_its_elements_one(void **state)
{
    const float scales[] = {NAN, 1};
    uint8_t row[200], result[200][2];
    const struct dequantize_run run = {.scales = scales, .column = 0, .block_columns = 100};
    (void)state;
    memset(row, one, sizeof row);
    dequantize_find(DTYPE_F8_E4M3, DTYPE_BF16)(result, row, sizeof row, &run);
    for (size_t i = 0; i < 100; i++) {
        assert_memory_equal(result[i], "\xc0\x7f", 2);
        assert_memory_equal(result[100 + i], "\x80\x3f", 2);
    }
}

static void only_types_of_eight_bits_have_scales(void **state)
{
    (void)state;
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            bool found = dequantize_find((enum dtype)from, (enum dtype)to) != NULL;
            bool is_f8 = cast_is_float((enum dtype)from) && dtype_bits((enum dtype)from) == 8;
            assert_int_equal(found, is_f8 && cast_is_float((enum dtype)to));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_of_a_row_has_its_own_scale),
        cmocka_unit_test(a_run_begins_and_ends_anywhere_in_a_block),
        cmocka_unit_test(a_block_may_be_wider_than_any_row),
        cmocka_unit_test(the_product_is_rounded_once_in_f32_and_once_to_the_target),
        cmocka_unit_test(a_scale_that_is_no_number_makes_none_of_its_elements_one),
        cmocka_unit_test(only_types_of_eight_bits_have_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
