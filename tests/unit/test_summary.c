/* What people read about a load says the same as the JSON object, whatever else that object holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/pace_text.h"
#include "client/cli/progress.h"
#include "client/cli/shape_text.h"
#include "client/cli/summary.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static char *text;

static int tear_down(void **state)
{
    (void)state;
    free(text);
    text = NULL;
    return 0;
}

static int summarize(const char *json)
{
    struct error error;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    int status = summary_print(json, out, &error);
    fclose(out);
    return status;
}

static void assert_says(const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is missing in:\n%s", words, text);
}

static void a_load_names_executor_bytes_time_and_speed(void **state)
{
    (void)state;
    assert_int_equal(
        summarize("{\"load_id\":\"1\",\"artifact\":\"disk:/m\",\"executor\":\"generic_byte_range\","
                  "\"selection_reason\":\"because\",\"candidates\":[{\"eligible\":true}],"
                  "\"bytes\":{\"view\":2147483648,\"read\":2147483700,\"copied\":1024,\"shared\":4096,\"x\":[1]},"
                  "\"from_replica\":false,\"memory\":\"thp\",\"ms\":{\"plan\":0.5,\"total\":1000.0},"
                  "\"tensors\":[{\"name\":\"a\"},{\"name\":\"b\"}],\"later\":null}"),
        0);
    assert_says("disk:/m: 2 tensors, 2.00 GiB in 1.0 s, 2.15 GB/s");
    assert_says("generic_byte_range (because)");
    assert_says("2.00 GiB needed, 2.00 GiB read, 1.00 KiB copied, 4.00 KiB shared");
    assert_says("thp");
}

static void a_resident_replica_is_called_that(void **state)
{
    (void)state;
    assert_int_equal(
        summarize("{\"artifact\":\"disk:/m\",\"bytes\":{\"view\":1},\"from_replica\":true,\"ms\":{\"total\":0.25},"
                  "\"tensors\":[{}]}"),
        0);
    assert_says("1 tensor, ");
    assert_says("in 0.25 ms, resident already");
}

static void what_was_verified_is_said_once(void **state)
{
    (void)state;
    assert_int_equal(summarize("{\"verified\":{\"status\":\"verified\",\"by\":\"manifest crc32c\",\"reason\":\"\"}}"), 0);
    assert_says("\n  verified  by manifest crc32c\n");
    free(text);
    assert_int_equal(summarize("{\"verified\":{\"status\":\"partial\",\"by\":\"crc32c\",\"reason\":\"why\"}}"), 0);
    assert_says("\n  verified  partial by crc32c: why\n");
}

static void names_from_outside_are_escaped(void **state)
{
    (void)state;
    assert_int_equal(summarize("{\"artifact\":\"disk:/m\\u001b[2J\\n\"}"), 0);
    assert_says("\\x1b[2J\\n");
    assert_null(strchr(text, '\x1b'));
}

static void a_report_that_is_none_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(summarize("{\"bytes\":{\"view\":-1}}"), -1);
    assert_int_equal(strlen(text), 0);
}

static void a_progress_line_tells_share_rate_and_time_left(void **state)
{
    char line[PROGRESS_LINE_CHARS];
    (void)state;
    progress_line("read", 1u << 30, 4ull << 30, 1000000000, line);
    assert_string_equal(line, "read   [####............]  25%  1.00 GiB of 4.00 GiB  1.07 GB/s  1 s, 3 s left");
    progress_line("read", 4 << 20, 400 << 20, 1000000000, line);
    assert_string_equal(line, "read   [................]   1%  4.00 MiB of 400 MiB  4.19 MB/s  1 s, 1 min 39 s left");
    progress_line("read", 1000, 400 << 20, 2000000000, line);
    assert_non_null(strstr(line, "  0.5 kB/s  2 s, "));
    progress_line("queued", 0, 0, 0, line);
    assert_non_null(strstr(line, "  0%"));
    assert_null(strstr(line, "left"));
    progress_line("read", 5, 4, 1, line);
    assert_non_null(strstr(line, "100%"));
}

static void speeds_and_durations_have_the_unit_that_fits(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } durations[] = {{0, "0.00 ms"},     {0.00025, "0.25 ms"}, {0.0998, "99.80 ms"}, {0.34512, "345 ms"},
                     {0.9996, "1.0 s"},  {18.97, "19.0 s"},    {59.94, "59.9 s"},    {59.96, "1 min 0 s"},
                     {125, "2 min 5 s"}, {119.6, "2 min 0 s"}, {3780, "1 h 3 min"},  {3599.6, "1 h 0 min"},
                     {7199, "2 h 0 min"}};
    static const struct {
        double bytes_per_s;
        const char *text;
    } speeds[] = {{0, "0.0 kB/s"},         {8400, "8.4 kB/s"}, {1e5, "0.10 MB/s"},
                  {22.12e6, "22.12 MB/s"}, {1e8, "0.10 GB/s"}, {2.147e9, "2.15 GB/s"}};
    char out[PACE_CHARS];
    (void)state;
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        assert_string_equal(pace_text_duration(durations[i].seconds, out), durations[i].text);
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
        assert_string_equal(pace_text_speed(speeds[i].bytes_per_s, out), speeds[i].text);
}

static void a_slow_load_takes_seconds_and_not_thousands_of_milliseconds(void **state)
{
    (void)state;
    assert_int_equal(summarize("{\"artifact\":\"http://h/m\",\"bytes\":{\"view\":419430400},\"ms\":{\"total\":18970},"
                               "\"tensors\":[{},{}]}"),
                     0);
    assert_says("http://h/m: 2 tensors, 400 MiB in 19.0 s, 22.11 MB/s");
}

static void shapes_are_lists_and_long_ones_are_cut(void **state)
{
    char out[SHAPE_TEXT_CHARS];
    uint64_t shape[64];
    (void)state;
    assert_string_equal(shape_text(NULL, 0, out), "[]");
    shape[0] = 4096;
    shape[1] = 0;
    assert_string_equal(shape_text(shape, 2, out), "[4096, 0]");
    for (size_t d = 0; d < 64; d++)
        shape[d] = UINT64_MAX;
    for (size_t rank = 1; rank <= 64; rank++) {
        shape_text(shape, rank, out);
        assert_true(strlen(out) < SHAPE_TEXT_CHARS);
        assert_int_equal(out[strlen(out) - 1], ']');
    }
    assert_non_null(strstr(out, ", ...]"));
}

static void columns_count_characters(void **state)
{
    (void)state;
    assert_int_equal(text_columns("a\xc3\xa9\xe2\x82\xac"), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_load_names_executor_bytes_time_and_speed, tear_down),
        cmocka_unit_test_teardown(a_resident_replica_is_called_that, tear_down),
        cmocka_unit_test_teardown(what_was_verified_is_said_once, tear_down),
        cmocka_unit_test_teardown(what_was_verified_is_said_once, tear_down),
        cmocka_unit_test_teardown(names_from_outside_are_escaped, tear_down),
        cmocka_unit_test_teardown(a_report_that_is_none_is_an_error, tear_down),
        cmocka_unit_test(speeds_and_durations_have_the_unit_that_fits),
        cmocka_unit_test(a_slow_load_takes_seconds_and_not_thousands_of_milliseconds),
        cmocka_unit_test(a_progress_line_tells_share_rate_and_time_left),
        cmocka_unit_test(shapes_are_lists_and_long_ones_are_cut),
        cmocka_unit_test(columns_count_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
