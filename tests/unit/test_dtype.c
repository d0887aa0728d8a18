/* The table of element types: names lead there and back, nothing else does. */
#include "tests/support/unit.h"

#include "base/dtype.h"

TEST(every_name_leads_back_to_its_type)
{
    enum dtype dtype;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const char *name = dtype_name((enum dtype)i);
        assert_true(dtype_parse(name, strlen(name), &dtype));
        assert_int_equal(dtype, i);
        assert_false(dtype_parse(name, strlen(name) - 1, &dtype) && dtype == (enum dtype)i);
    }
}

TEST(other_names_are_unknown)
{
    static const char *const names[] = {"", "U", "u8", "U9", "U8 ", "BF16x", "F8", "F6", "F8_E4M3FN", "float32"};
    enum dtype dtype;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(dtype_parse(names[i], strlen(names[i]), &dtype));
    assert_false(dtype_parse("U8\0", 3, &dtype));
}

TEST(people_may_write_the_names_of_torch_and_numpy)
{
    static const struct {
        const char *text;
        enum dtype dtype;
    } cases[] = {
        {"F64", DTYPE_F64},
        {"f64", DTYPE_F64},
        {"float64", DTYPE_F64},
        {"torch.float64", DTYPE_F64},
        {"np.float16", DTYPE_F16},
        {"numpy.float16", DTYPE_F16},
        {"Half", DTYPE_F16},
        {"double", DTYPE_F64},
        {"FP64", DTYPE_F64},
        {"BFloat16", DTYPE_BF16},
        {"jnp.bfloat16", DTYPE_BF16},
        {"torch.float8_e5m2", DTYPE_F8_E5M2},
        {"fp8_e5m2", DTYPE_F8_E5M2},
        {"float8_e4m3fn", DTYPE_F8_E4M3},
        {"ml_dtypes.float8_e8m0fnu", DTYPE_F8_E8M0},
        {"uint16", DTYPE_U16},
        {"F8_e4m3fnUZ", DTYPE_F8_E4M3FNUZ},
        {"F4", DTYPE_F4},
        {"i2", DTYPE_I16},
    };
    enum dtype dtype;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!dtype_read(cases[i].text, strlen(cases[i].text), &dtype) || dtype != cases[i].dtype)
            fail_msg("%s", cases[i].text);
}

TEST(a_name_of_none_or_of_two_types_is_refused)
{
    static const char *const names[] = {"",   "torch.", "float7", "fp8",  "float8",           "f4", "f8",
                                        "i8", "u8",     "int",    "F64 ", "torch.torch.half", "F2"};
    enum dtype dtype;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (dtype_read(names[i], strlen(names[i]), &dtype))
            fail_msg("%s is %s", names[i], dtype_name(dtype));
}

TEST(help_lists_every_type_and_names_the_nearest)
{
    char out[DTYPE_HELP_CHARS];
    dtype_help("torch.flaot64", strlen("torch.flaot64"), out);
    for (int i = 0; i < DTYPE_COUNT; i++)
        assert_non_null(strstr(out, dtype_name((enum dtype)i)));
    assert_non_null(strstr(out, "did you mean F64?"));
    assert_null(strstr(dtype_help("quaternion", 10, out), "mean"));
    assert_non_null(dtype_help("", 0, out));
}

TEST(widths_follow_the_names)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        unsigned bits = 8;
        if (i != DTYPE_BOOL)
            sscanf(dtype_name((enum dtype)i), "%*[A-Z]%u", &bits);
        assert_int_equal(dtype_bits((enum dtype)i), bits);
        assert_true(bits <= 8 * DTYPE_WIDEST_BYTES);
        assert_int_equal(dtype_torch_name((enum dtype)i) == NULL, bits < 8);
    }
}
