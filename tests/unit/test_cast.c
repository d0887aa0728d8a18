/* What the contract of cast.h promises, by example; tests/property/test_casts_ml_dtypes.py has all values. */
#include "tests/support/unit.h"

#include <math.h>

#include "convert/cast.h"
#include "convert/dequantize.h"

static uint64_t cast_bits(enum dtype from, uint64_t bits, enum dtype to)
{
    uint64_t result = 0;
    cast_function *cast = cast_find(from, to);
    assert_non_null(cast);
    cast(&result, &bits, 1);
    return result;
}

TEST(floats_of_a_byte_or_more_are_cast_to_each_other_and_nothing_else_is)
{
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            bool both = dtype_is_float((enum dtype)from) && dtype_is_float((enum dtype)to);
            assert_int_equal(cast_find((enum dtype)from, (enum dtype)to) != NULL, both);
        }
    }
    assert_true(dtype_is_float(DTYPE_F64) && dtype_is_float(DTYPE_F32) && dtype_is_float(DTYPE_F16) &&
                dtype_is_float(DTYPE_BF16));
    assert_true(dtype_is_float(DTYPE_F8_E4M3) && dtype_is_float(DTYPE_F8_E5M2) && dtype_is_float(DTYPE_F8_E8M0));
    assert_true(dtype_is_float(DTYPE_F8_E4M3FNUZ) && dtype_is_float(DTYPE_F8_E5M2FNUZ));
    assert_false(dtype_is_float(DTYPE_F4) || dtype_is_float(DTYPE_F6_E2M3) || dtype_is_float(DTYPE_F6_E3M2));
    assert_false(dtype_is_float(DTYPE_C64) || dtype_is_float(DTYPE_I32) || dtype_is_float(DTYPE_BOOL));
}

TEST(ties_go_to_even)
{
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f808000, DTYPE_BF16), 0x3f80);
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f818000, DTYPE_BF16), 0x3f82);
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f808001, DTYPE_BF16), 0x3f81);
    assert_int_equal(cast_bits(DTYPE_F32, 0x33000000, DTYPE_F16), 0); /* half of the smallest subnormal */
    assert_int_equal(cast_bits(DTYPE_F32, 0x33000001, DTYPE_F16), 1);
    assert_int_equal(cast_bits(DTYPE_F32, 0x33c00000, DTYPE_F16), 2);
}

TEST(f64_rounds_twice_on_its_way_to_bf16_and_once_to_f16)
{
    const uint64_t above_tie_of_bf16 = 0x3ff0100000000001, above_tie_of_f16 = 0x3ff0020000000001;
    assert_int_equal(cast_bits(DTYPE_F64, above_tie_of_bf16, DTYPE_BF16), 0x3f80);
    assert_int_equal(cast_bits(DTYPE_F64, above_tie_of_f16, DTYPE_F16), 0x3c01);
}

TEST(what_is_too_large_becomes_infinity_or_the_types_nan)
{
    const uint64_t f464 = 0x43e80000, f465 = 0x43e88000;
    assert_int_equal(cast_bits(DTYPE_F32, f464, DTYPE_F8_E4M3), 0x7e);
    assert_int_equal(cast_bits(DTYPE_F32, f465, DTYPE_F8_E4M3), 0x7f);
    assert_int_equal(cast_bits(DTYPE_F32, f465 | 1u << 31, DTYPE_F8_E4M3), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0x7f7fffff, DTYPE_BF16), 0x7f80);
    assert_int_equal(cast_bits(DTYPE_F32, 0x477ff000, DTYPE_F16), 0x7c00);
    assert_int_equal(cast_bits(DTYPE_F32, 0x47800000, DTYPE_F8_E5M2), 0x7c);
    assert_int_equal(cast_bits(DTYPE_F32, 0x43800000, DTYPE_F8_E4M3FNUZ), 0x80);
    assert_int_equal(cast_bits(DTYPE_F32, 0x7f7fffff, DTYPE_F8_E8M0), 0xff);
}

TEST(a_nan_keeps_its_sign_and_among_wide_types_its_payload)
{
    assert_int_equal(cast_bits(DTYPE_F32, 0xff800001, DTYPE_BF16), 0xffc0);
    assert_int_equal(cast_bits(DTYPE_F32, 0xffe12345, DTYPE_F8_E4M3), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0xffe12345, DTYPE_F8_E5M2), 0xfe);
    assert_int_equal(cast_bits(DTYPE_F32, 0xffe12345, DTYPE_F8_E5M2FNUZ), 0x80);
    assert_int_equal(cast_bits(DTYPE_F32, 0xffe12345, DTYPE_F8_E8M0), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0xffe12345, DTYPE_F16), 0xff09);
    assert_int_equal(cast_bits(DTYPE_F32, 0xffe12345, DTYPE_F64), 0xfffc2468a0000000);
    assert_int_equal(cast_bits(DTYPE_F64, 0xfffc000012345678, DTYPE_F16), 0xff00);
    assert_int_equal(cast_bits(DTYPE_F16, 0xff09, DTYPE_F32), 0xffe12000);
    assert_int_equal(cast_bits(DTYPE_F8_E5M2, 0x7d, DTYPE_F8_E5M2), 0x7d);
}

TEST(e8m0_has_neither_zero_nor_signs)
{
    assert_int_equal(cast_bits(DTYPE_F32, 0, DTYPE_F8_E8M0), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0xbf800000, DTYPE_F8_E8M0), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f800000, DTYPE_F8_E8M0), 0x7f);
    assert_int_equal(cast_bits(DTYPE_F8_E8M0, 0, DTYPE_F32), 0x00400000);
    assert_int_equal(cast_bits(DTYPE_F8_E8M0, 0x80, DTYPE_F8_E4M3), 0x40);
}

TEST(no_element_has_to_be_aligned_and_none_beside_the_run_is_touched)
{
    unsigned char src[8 * 67 + 8], dst[8 * 67 + 8], aligned_src[8 * 67], aligned_dst[8 * 67];
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)(37 * i);
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            cast_function *cast = cast_find((enum dtype)from, (enum dtype)to);
            size_t from_bytes = dtype_bits((enum dtype)from) / 8, to_bytes = dtype_bits((enum dtype)to) / 8;
            for (size_t n = 0; cast && n <= 67; n++) {
                memcpy(aligned_src, src + n % 8, n * from_bytes);
                cast(aligned_dst, aligned_src, n);
                memset(dst, 0xa5, sizeof dst);
                cast(dst + 1 + n % 7, src + n % 8, n);
                assert_memory_equal(dst + 1 + n % 7, aligned_dst, n * to_bytes);
                assert_int_equal(dst[n % 7], 0xa5);
                if (1 + n % 7 + n * to_bytes < sizeof dst)
                    assert_int_equal(dst[1 + n % 7 + n * to_bytes], 0xa5);
            }
        }
    }
}

/* --- dequantize --- */

static const uint8_t one = 0x38, minus_two = 0xc0; /* of F8_E4M3 */

TEST(each_block_of_a_row_has_its_own_scale)
{
    const float scales[] = {0.5F, 3, -7};
    const uint8_t row[] = {one, one, one, minus_two, one, one, minus_two}; /* the last block is shorter */
    const struct dequantize_run run = {.scales = scales, .column = 0, .block_columns = 3};
    const float expected[] = {0.5F, 0.5F, 0.5F, -6, 3, 3, 14};
    float result[7];
    dequantize_find(DTYPE_F8_E4M3, DTYPE_F32)(result, row, 7, &run);
    assert_memory_equal(result, expected, sizeof expected);
}

TEST(a_run_begins_and_ends_anywhere_in_a_block)
{
    const float scales[] = {1, 2, 4, 8, 16};
    uint8_t row[25];
    float whole[25], part[25];
    const struct dequantize_run all = {.scales = scales, .column = 0, .block_columns = 5};
    dequantize_function *dequantize = dequantize_find(DTYPE_F8_E4M3, DTYPE_F32);
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

TEST(a_block_may_be_wider_than_any_row)
{
    const float scale = 2;
    const uint8_t row[] = {one, minus_two};
    const struct dequantize_run run = {.scales = &scale, .column = 1000, .block_columns = SIZE_MAX};
    uint16_t result[2];
    dequantize_find(DTYPE_F8_E4M3, DTYPE_BF16)(result, row, 2, &run);
    assert_int_equal(result[0], 0x4000);
    assert_int_equal(result[1], 0xc080);
}

TEST(the_product_is_rounded_once_in_f32_and_once_to_the_target)
{
    uint32_t scale_bits = 0x3f808001; /* just above a tie of BF16 */
    float scale;
    const struct dequantize_run run = {.scales = &scale, .column = 0, .block_columns = 1};
    uint16_t result;
    memcpy(&scale, &scale_bits, sizeof scale);
    dequantize_find(DTYPE_F8_E4M3, DTYPE_BF16)(&result, &one, 1, &run);
    assert_int_equal(result, 0x3f81);
}

TEST(a_scale_that_is_no_number_makes_none_of_its_elements_one)
{
    const float scales[] = {NAN, 1};
    uint8_t row[200], result[200][2];
    const struct dequantize_run run = {.scales = scales, .column = 0, .block_columns = 100};
    memset(row, one, sizeof row);
    dequantize_find(DTYPE_F8_E4M3, DTYPE_BF16)(result, row, sizeof row, &run);
    for (size_t i = 0; i < 100; i++) {
        assert_memory_equal(result[i], "\xc0\x7f", 2);
        assert_memory_equal(result[100 + i], "\x80\x3f", 2);
    }
}

TEST(only_types_of_eight_bits_have_scales)
{
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            bool found = dequantize_find((enum dtype)from, (enum dtype)to) != NULL;
            bool is_f8 = dtype_is_float((enum dtype)from) && dtype_bits((enum dtype)from) == 8;
            assert_int_equal(found, is_f8 && dtype_is_float((enum dtype)to));
        }
    }
}
