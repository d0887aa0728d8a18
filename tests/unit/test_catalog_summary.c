/* inspect --summary: what is counted, and that it is a page and never more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/catalog_summary.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static const uint64_t shape[] = {1000, 3}, large[] = {8030261, 1000};

static char *print(const struct catalog *catalog)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    catalog_summary_print(catalog, out);
    fclose(out);
    return text;
}

static size_t count_lines(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void types_are_counted_largest_first(void **state)
{
    (void)state;
    struct catalog_tensor tensors[] = {
        {.name = "x", .dtype = "F32", .shape = shape, .rank = 1, .bytes = 4000},
        {.name = "y", .dtype = "BF16", .shape = shape, .rank = 2, .bytes = 6000},
        {.name = "z", .dtype = "F32", .rank = 0, .bytes = 4},
    };
    struct tc_metadata pair = {.key = "format", .value = "pt", .key_bytes = 6, .value_bytes = 2};
    const struct catalog catalog = {.reference = "disk:/m",
                                    .identity = "1",
                                    .layout_name = "plain",
                                    .tensors = tensors,
                                    .n_tensors = 3,
                                    .n_all_tensors = 4,
                                    .n_files = 1,
                                    .metadata = &pair,
                                    .n_metadata = 1};
    char *text = print(&catalog), *json = catalog_summary_json(&catalog);
    assert_string_equal(text, "disk:/m\n"
                              "parameters  4,001\n"
                              "size        9.77 KiB (10004 bytes), 3 of 4 tensors in 1 file\n"
                              "  BF16        5.86 KiB  3,000\n"
                              "  F32         3.91 KiB  1,001\n"
                              "metadata    format=pt\n"
                              "identity    1\n");
    assert_string_equal(json,
                        "{\"artifact\":\"disk:/m\",\"identity\":\"1\",\"layout\":\"plain\",\"n_files\":1,\"n_tensors\":3,"
                        "\"parameters\":4001,\"total_bytes\":10004,\"dtypes\":[{\"dtype\":\"BF16\",\"n_tensors\":1,"
                        "\"parameters\":3000,\"bytes\":6000},{\"dtype\":\"F32\",\"n_tensors\":2,\"parameters\":1001,"
                        "\"bytes\":4004}],\"metadata\":{\"format\":\"pt\"}}");
    free(text);
    free(json);
}

static void it_has_at_most_twelve_lines_whatever_there_is(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"BOOL", "U8", "I8", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"};
    enum { N = sizeof dtypes / sizeof dtypes[0] };
    struct catalog_tensor tensors[N];
    struct tc_metadata pairs[100];
    for (size_t i = 0; i < N; i++)
        tensors[i] = (struct catalog_tensor){.name = "t", .dtype = dtypes[i], .shape = large, .rank = 2, .bytes = 1};
    for (size_t i = 0; i < 100; i++)
        pairs[i] = (struct tc_metadata){.key = "a\nb", .value = "\x1b[2J\n", .key_bytes = 3, .value_bytes = 5};
    const struct catalog catalog = {.reference = "disk:/m\n",
                                    .identity = "1",
                                    .layout_name = "dcp",
                                    .layout.world_size = 8,
                                    .tensors = tensors,
                                    .n_tensors = N,
                                    .n_all_tensors = N,
                                    .metadata = pairs,
                                    .n_metadata = 100};
    char *text = print(&catalog);
    assert_true(count_lines(text) <= CATALOG_SUMMARY_LINES);
    assert_non_null(strstr(text, "88.3 billion (88,332,871,000)"));
    assert_non_null(strstr(text, "others"));
    assert_non_null(strstr(text, " and 92 more\n"));
    assert_null(strchr(text, '\x1b'));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_counted_largest_first),
        cmocka_unit_test(it_has_at_most_twelve_lines_whatever_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
