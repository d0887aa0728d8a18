/* The table of element types: names lead there and back, nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/dtype.h"

static void every_name_leads_back_to_its_type(void **state)
{
    enum dtype dtype;
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const char *name = dtype_name((enum dtype)i);
        assert_true(dtype_parse(name, strlen(name), &dtype));
        assert_int_equal(dtype, i);
        assert_false(dtype_parse(name, strlen(name) - 1, &dtype) && dtype == (enum dtype)i);
    }
}

static void other_names_are_unknown(void **state)
{
    static const char *const names[] = {"", "U", "u8", "U9", "U8 ", "BF16x", "F8", "F6", "F8_E4M3FN", "float32"};
    enum dtype dtype;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(dtype_parse(names[i], strlen(names[i]), &dtype));
    assert_false(dtype_parse("U8\0", 3, &dtype));
}

static void widths_follow_the_names(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        unsigned bits = 8;
        if (i != DTYPE_BOOL)
            sscanf(dtype_name((enum dtype)i), "%*[A-Z]%u", &bits);
        assert_int_equal(dtype_bits((enum dtype)i), bits);
        assert_true(bits <= 8 * DTYPE_WIDEST_BYTES);
        assert_int_equal(dtype_torch_name((enum dtype)i) == NULL, bits < 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_leads_back_to_its_type),
        cmocka_unit_test(other_names_are_unknown),
        cmocka_unit_test(widths_follow_the_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
