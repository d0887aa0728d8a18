/* What the contract of cast.h promises, by example; tests/property/test_casts_ml_dtypes.py has all values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "convert/cast.h"

static uint64_t cast_bits(enum dtype from, uint64_t bits, enum dtype to)
{
    uint64_t result = 0;
    cast_function *cast = cast_find(from, to);
    assert_non_null(cast);
    cast(&result, &bits, 1);
    return result;
}

static void floats_of_a_byte_or_more_are_cast_to_each_other_and_nothing_else_is(void **state)
{
    (void)state;
    for (int from = 0; from < DTYPE_COUNT; from++) {
        for (int to = 0; to < DTYPE_COUNT; to++) {
            bool both = cast_is_float((enum dtype)from) && cast_is_float((enum dtype)to);
            assert_int_equal(cast_find((enum dtype)from, (enum dtype)to) != NULL, both);
        }
    }
    assert_true(cast_is_float(DTYPE_F64) && cast_is_float(DTYPE_F32) && cast_is_float(DTYPE_F16) &&
                cast_is_float(DTYPE_BF16));
    assert_true(cast_is_float(DTYPE_F8_E4M3) && cast_is_float(DTYPE_F8_E5M2) && cast_is_float(DTYPE_F8_E8M0));
    assert_true(cast_is_float(DTYPE_F8_E4M3FNUZ) && cast_is_float(DTYPE_F8_E5M2FNUZ));
    assert_false(cast_is_float(DTYPE_F4) || cast_is_float(DTYPE_F6_E2M3) || cast_is_float(DTYPE_F6_E3M2));
    assert_false(cast_is_float(DTYPE_C64) || cast_is_float(DTYPE_I32) || cast_is_float(DTYPE_BOOL));
}

static void ties_go_to_even(void **state)
{
    (void)state;
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f808000, DTYPE_BF16), 0x3f80);
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f818000, DTYPE_BF16), 0x3f82);
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f808001, DTYPE_BF16), 0x3f81);
    assert_int_equal(cast_bits(DTYPE_F32, 0x33000000, DTYPE_F16), 0); /* half of the smallest subnormal */
    assert_int_equal(cast_bits(DTYPE_F32, 0x33000001, DTYPE_F16), 1);
    assert_int_equal(cast_bits(DTYPE_F32, 0x33c00000, DTYPE_F16), 2);
}

static void f64_rounds_twice_on_its_way_to_bf16_and_once_to_f16(void **state)
{
    const uint64_t above_tie_of_bf16 = 0x3ff0100000000001, above_tie_of_f16 = 0x3ff0020000000001;
    (void)state;
    assert_int_equal(cast_bits(DTYPE_F64, above_tie_of_bf16, DTYPE_BF16), 0x3f80);
    assert_int_equal(cast_bits(DTYPE_F64, above_tie_of_f16, DTYPE_F16), 0x3c01);
}

static void what_is_too_large_becomes_infinity_or_the_types_nan(void **state)
{
    const uint64_t f464 = 0x43e80000, f465 = 0x43e88000;
    (void)state;
    assert_int_equal(cast_bits(DTYPE_F32, f464, DTYPE_F8_E4M3), 0x7e);
    assert_int_equal(cast_bits(DTYPE_F32, f465, DTYPE_F8_E4M3), 0x7f);
    assert_int_equal(cast_bits(DTYPE_F32, f465 | 1u << 31, DTYPE_F8_E4M3), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0x7f7fffff, DTYPE_BF16), 0x7f80);
    assert_int_equal(cast_bits(DTYPE_F32, 0x477ff000, DTYPE_F16), 0x7c00);
    assert_int_equal(cast_bits(DTYPE_F32, 0x47800000, DTYPE_F8_E5M2), 0x7c);
    assert_int_equal(cast_bits(DTYPE_F32, 0x43800000, DTYPE_F8_E4M3FNUZ), 0x80);
    assert_int_equal(cast_bits(DTYPE_F32, 0x7f7fffff, DTYPE_F8_E8M0), 0xff);
}

static void a_nan_keeps_its_sign_and_among_wide_types_its_payload(void **state)
{
    (void)state;
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

static void e8m0_has_neither_zero_nor_signs(void **state)
{
    (void)state;
    assert_int_equal(cast_bits(DTYPE_F32, 0, DTYPE_F8_E8M0), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0xbf800000, DTYPE_F8_E8M0), 0xff);
    assert_int_equal(cast_bits(DTYPE_F32, 0x3f800000, DTYPE_F8_E8M0), 0x7f);
    assert_int_equal(cast_bits(DTYPE_F8_E8M0, 0, DTYPE_F32), 0x00400000);
    assert_int_equal(cast_bits(DTYPE_F8_E8M0, 0x80, DTYPE_F8_E4M3), 0x40);
}

static void no_element_has_to_be_aligned_and_none_beside_the_run_is_touched(void **state)
{
    unsigned char src[8 * 67 + 8], dst[8 * 67 + 8], aligned_src[8 * 67], aligned_dst[8 * 67];
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_of_a_byte_or_more_are_cast_to_each_other_and_nothing_else_is),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(f64_rounds_twice_on_its_way_to_bf16_and_once_to_f16),
        cmocka_unit_test(what_is_too_large_becomes_infinity_or_the_types_nan),
        cmocka_unit_test(a_nan_keeps_its_sign_and_among_wide_types_its_payload),
        cmocka_unit_test(e8m0_has_neither_zero_nor_signs),
        cmocka_unit_test(no_element_has_to_be_aligned_and_none_beside_the_run_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
