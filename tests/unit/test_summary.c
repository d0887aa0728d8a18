/* What people read about a load. */
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

static Tensorcast__Daemon__V1__LoadReport report;

static int set_up(void **state)
{
    (void)state;
    tensorcast__daemon__v1__load_report__init(&report);
    report.artifact = "disk:/m";
    return 0;
}

static void summarize(size_t n_tensors)
{
    size_t length;
    FILE *out = open_memstream(&text, &length);
    summary_print(&report, n_tensors, out);
    fclose(out);
}

static void assert_says(const char *words)
{
    if (!strstr(text, words))
        fail_msg("'%s' is missing in:\n%s", words, text);
}

static void a_load_names_executor_bytes_time_and_speed(void **state)
{
    (void)state;
    report.executor = "generic_byte_range";
    report.selection_reason = "because";
    report.view_bytes = 2147483648;
    report.read_bytes = 2147483700;
    report.copied_bytes = 1024;
    report.shared_bytes = 4096;
    report.memory = "thp";
    report.total_ms = 1000;
    summarize(2);
    assert_says("disk:/m: 2 tensors, 2.00 GiB in 1.0 s, 2.00 GiB/s");
    assert_says("generic_byte_range (because)");
    assert_says("2.00 GiB needed, 2.00 GiB read, 1.00 KiB copied, 4.00 KiB shared");
    assert_says("thp");
}

static void a_resident_replica_is_called_that(void **state)
{
    (void)state;
    report.view_bytes = 1;
    report.from_replica = true;
    report.total_ms = 0.25;
    summarize(1);
    assert_says("1 tensor, ");
    assert_says("in 0.25 ms, resident already");
}

static void what_was_verified_is_said_once(void **state)
{
    Tensorcast__Daemon__V1__Verification verified = TENSORCAST__DAEMON__V1__VERIFICATION__INIT;
    (void)state;
    report.verified = &verified;
    verified.status = "verified";
    verified.by = "manifest crc32c";
    summarize(0);
    assert_says("\n  verified  by manifest crc32c\n");
    free(text);
    verified.status = "partial";
    verified.by = "crc32c";
    verified.reason = "why";
    summarize(0);
    assert_says("\n  verified  partial by crc32c: why\n");
    free(text);
    verified.by = "";
    summarize(0);
    assert_null(strstr(text, "verified"));
}

static void names_from_outside_are_escaped(void **state)
{
    (void)state;
    report.artifact = "disk:/m\x1b[2J\n";
    summarize(0);
    assert_says("\\x1b[2J\\n");
    assert_null(strchr(text, '\x1b'));
}

static void a_progress_line_tells_share_rate_and_time_left(void **state)
{
    char line[PROGRESS_LINE_CHARS];
    (void)state;
    progress_line("read", 0, 1u << 30, 4ull << 30, 1000000000, line);
    assert_string_equal(line, "read   [####............]  25%  1.00 GiB of 4.00 GiB  1.00 GiB/s  1 s, 3 s left");
    progress_line("read", 0, 4 << 20, 400 << 20, 1000000000, line);
    assert_string_equal(line, "read   [................]   1%  4.00 MiB of 400 MiB  4.00 MiB/s  1 s, 1 min 39 s left");
    progress_line("read", 0, 1000, 400 << 20, 2000000000, line);
    assert_non_null(strstr(line, "  500 B/s  2 s, "));
    progress_line("queued", 0, 0, 0, 0, line);
    assert_non_null(strstr(line, "  0%"));
    assert_null(strstr(line, "left"));
    progress_line("read", 0, 5, 4, 1, line);
    assert_non_null(strstr(line, "100%"));
    progress_line("export", 3ull << 30, (3ull << 30) + (100 << 20), 4ull << 30, 1000000000, line); /* goes on with 3 GiB */
    assert_string_equal(line, "export [############....]  77%  3.10 GiB of 4.00 GiB  100 MiB/s  1 s, 9 s left");
}

static void a_plain_line_tells_the_same_without_a_bar(void **state)
{
    char line[PROGRESS_LINE_CHARS];
    (void)state;
    progress_plain("read", 6 << 20, 12 << 20, 1e6, line);
    assert_string_equal(line, "read: 50%, 6.00 MiB of 12.0 MiB, 977 KiB/s, 6 s left");
    progress_plain("read", 0, 12 << 20, 0, line);
    assert_string_equal(line, "read: 0%, 0 B of 12.0 MiB, 0 B/s");
    progress_plain("waiting for host", 0, 0, 0, line);
    assert_string_equal(line, "waiting for host");
}

/* What programs are told on standard error. */
static void progress_of_a_stage_never_goes_back_and_ends_with_everything(void **state)
{
    struct progress progress;
    (void)state;
    progress_init(&progress, PROGRESS_JSON, true);
    assert_int_equal(progress.kind, PROGRESS_NONE);
    progress_init(&progress, PROGRESS_NONE, false);
    progress_show(&progress, "read", 5, 10);
    progress_show(&progress, "read", 3, 10); /* a request was lost and is made again */
    assert_int_equal(progress.done_bytes, 5);
    progress_show(&progress, "waiting for host", 4, 10);
    progress_show(&progress, "read", 12, 10);
    assert_int_equal(progress.done_bytes, 10);
    progress_show(&progress, "verify", 1, 10);
    assert_int_equal(progress.done_bytes, 1);
    progress_set_before(&progress, 4);
    progress_show(&progress, "export", 3, 10);
    assert_int_equal(progress.before_bytes, 4);
    progress_finish(&progress, 10);
    assert_int_equal(progress.done_bytes, 10);
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
    char out[PACE_CHARS];
    (void)state;
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        assert_string_equal(pace_text_duration(durations[i].seconds, out), durations[i].text);
}

static void a_slow_load_takes_seconds_and_not_thousands_of_milliseconds(void **state)
{
    (void)state;
    report.artifact = "http://h/m";
    report.view_bytes = 419430400;
    report.total_ms = 18970;
    summarize(2);
    assert_says("http://h/m: 2 tensors, 400 MiB in 19.0 s, 21.1 MiB/s");
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
        cmocka_unit_test_setup_teardown(a_load_names_executor_bytes_time_and_speed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_resident_replica_is_called_that, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_verified_is_said_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_from_outside_are_escaped, set_up, tear_down),
        cmocka_unit_test(speeds_and_durations_have_the_unit_that_fits),
        cmocka_unit_test_setup_teardown(a_slow_load_takes_seconds_and_not_thousands_of_milliseconds, set_up, tear_down),
        cmocka_unit_test(a_progress_line_tells_share_rate_and_time_left),
        cmocka_unit_test(a_plain_line_tells_the_same_without_a_bar),
        cmocka_unit_test(progress_of_a_stage_never_goes_back_and_ends_with_everything),
        cmocka_unit_test(shapes_are_lists_and_long_ones_are_cut),
        cmocka_unit_test(columns_count_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
