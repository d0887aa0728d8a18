/* What people read about a load. */
#include "tests/support/unit.h"

#include "client/cli/catalog.h"
#include "client/cli/fit_text.h"
#include "client/cli/progress.h"
#include "client/cli/summary.h"

static char *printed;

static int tear_down(void **state)
{
    free(printed);
    printed = NULL;
    return 0;
}

static Tensorcast__Daemon__V1__LoadReport report;

static int set_up(void **state)
{
    tensorcast__daemon__v1__load_report__init(&report);
    report.artifact = "disk:/m";
    return 0;
}

static void summarize(size_t n_tensors)
{
    size_t length;
    FILE *out = open_memstream(&printed, &length);
    summary_print(&report, n_tensors, out);
    fclose(out);
}

static void assert_says(const char *words)
{
    if (!strstr(printed, words))
        fail_msg("'%s' is missing in:\n%s", words, printed);
}

TEST_IN(a_load_names_executor_bytes_time_and_speed, set_up, tear_down)
{
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

TEST_IN(hosts_that_sent_bytes_are_named_up_to_eight_of_them, set_up, tear_down)
{
    Tensorcast__Daemon__V1__HostBytes rows[9], *from[9];
    Tensorcast__Daemon__V1__HostsReport hosts = TENSORCAST__DAEMON__V1__HOSTS_REPORT__INIT;
    char names[9][4];
    for (int i = 0; i < 9; i++) {
        rows[i] = (Tensorcast__Daemon__V1__HostBytes)TENSORCAST__DAEMON__V1__HOST_BYTES__INIT;
        snprintf(names[i], sizeof names[i], "h%d", i + 1);
        rows[i].host = names[i];
        rows[i].bytes = (uint64_t)(i + 1) << 20;
        from[i] = &rows[i];
    }
    hosts.from_hosts = from;
    report.hosts = &hosts;
    summarize(1);
    assert_null(strstr(printed, "hosts"));
    free(printed);
    hosts.n_from_hosts = 8;
    summarize(1);
    assert_says("  from hosts: h1 1.00 MiB, h2 2.00 MiB, ");
    assert_says("h8 8.00 MiB\n");
    free(printed);
    hosts.n_from_hosts = 9;
    hosts.hedged_bytes = 1 << 20;
    summarize(1);
    assert_says("h8 8.00 MiB, 1 more; 1.00 MiB read instead, since a host was late\n");
}

TEST_IN(a_resident_replica_is_called_that, set_up, tear_down)
{
    report.view_bytes = 1;
    report.from_replica = true;
    report.total_ms = 0.25;
    summarize(1);
    assert_says("1 tensor, ");
    assert_says("in 0.25 ms, resident already");
}

TEST_IN(what_was_verified_is_said_once, set_up, tear_down)
{
    Tensorcast__Daemon__V1__Verification verified = TENSORCAST__DAEMON__V1__VERIFICATION__INIT;
    report.verified = &verified;
    verified.status = "verified";
    verified.by = "manifest crc32c";
    summarize(0);
    assert_says("\n  verified  by manifest crc32c\n");
    free(printed);
    verified.status = "partial";
    verified.by = "crc32c";
    verified.reason = "why";
    summarize(0);
    assert_says("\n  verified  partial by crc32c: why\n");
    free(printed);
    verified.by = "";
    summarize(0);
    assert_null(strstr(printed, "verified"));
}

TEST_IN(names_from_outside_are_escaped, set_up, tear_down)
{
    report.artifact = "disk:/m\x1b[2J\n";
    summarize(0);
    assert_says("\\x1b[2J\\n");
    assert_null(strchr(printed, '\x1b'));
}

TEST(a_progress_line_tells_share_rate_and_time_left)
{
    char line[PROGRESS_LINE_CHARS];
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

TEST(a_plain_line_tells_the_same_without_a_bar)
{
    char line[PROGRESS_LINE_CHARS];
    progress_plain("read", 6 << 20, 12 << 20, 1e6, line);
    assert_string_equal(line, "read: 50%, 6.00 MiB of 12.0 MiB, 977 KiB/s, 6 s left");
    progress_plain("read", 0, 12 << 20, 0, line);
    assert_string_equal(line, "read: 0%, 0 B of 12.0 MiB, 0 B/s");
    progress_plain("waiting for host", 0, 0, 0, line);
    assert_string_equal(line, "waiting for host");
}

/* What programs are told on standard error. */
TEST(progress_of_a_stage_never_goes_back_and_ends_with_everything)
{
    struct progress progress;
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

TEST(speeds_and_durations_have_the_unit_that_fits)
{
    static const struct {
        double seconds;
        const char *text;
    } durations[] = {{0, "0.00 ms"},     {0.00025, "0.25 ms"}, {0.0998, "99.80 ms"}, {0.34512, "345 ms"},
                     {0.9996, "1.0 s"},  {18.97, "19.0 s"},    {59.94, "59.9 s"},    {59.96, "1 min 0 s"},
                     {125, "2 min 5 s"}, {119.6, "2 min 0 s"}, {3780, "1 h 3 min"},  {3599.6, "1 h 0 min"},
                     {7199, "2 h 0 min"}};
    char out[PACE_CHARS];
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++)
        assert_string_equal(pace_text_duration(durations[i].seconds, out), durations[i].text);
}

TEST_IN(a_slow_load_takes_seconds_and_not_thousands_of_milliseconds, set_up, tear_down)
{
    report.artifact = "http://h/m";
    report.view_bytes = 419430400;
    report.total_ms = 18970;
    summarize(2);
    assert_says("http://h/m: 2 tensors, 400 MiB in 19.0 s, 21.1 MiB/s");
}

TEST(columns_count_characters)
{
    assert_int_equal(text_columns("a\xc3\xa9\xe2\x82\xac"), 3);
}

/* --- fit text --- */

static const char page[] =
    "artifact  disk:/models/llama (2 files, 1.13 GiB)\n"
    "source    local ext4, 0% in the page cache; gaps below 72.3 KiB cost less than a request\n"
    "gate    > time          local 218 ms, generic 1.42 s -> local\n"
    "\n"
    "  candidate                  needs      reads   requests  temporary   estimate  reason\n"
    "  generic_byte_range       384 MiB    384 MiB     65,552   64.0 MiB     1.42 s  exact_generic_fallback\n"
    "> tensor_batched_local     384 MiB          -          -          -          -  eligible\n"
    "\n"
    "  file                                      extents      reads     wanted       span  lands\n"
    "  a model of \xc3\xa4 that-1-of-2.safetensors           12    384 MiB    192 MiB    560 MiB  staged\n"
    "  an_even_longer_name_of_a_file.safetensors       1    384 MiB    192 MiB    560 MiB  direct\n"
    "  ... and 3 more files\n";

/* The caller frees. */
static char *fit(const char *text, size_t columns)
{
    static char *fitted;
    static size_t length;
    FILE *out = open_memstream(&fitted, &length);
    fit_text(text, columns, out);
    fclose(out);
    return fitted;
}

TEST(no_line_is_longer_than_the_terminal_and_no_word_is_lost)
{
    for (size_t columns = 80; columns < 130; columns++) {
        char *text = fit(page, columns), line[256];
        for (const char *at = text; *at; at += strcspn(at, "\n") + 1) {
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
            assert_true(text_columns(line) <= columns);
        }
        static const char *const words[] = {"less than",
                                            "request\n",
                                            "exact_generic_fallback",
                                            "eligible",
                                            "65,552",
                                            "560 MiB",
                                            "> tensor_batched_local ",
                                            "direct\n",
                                            "... and 3 more files\n"};
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            assert_non_null(strstr(text, words[i]));
        free(text);
    }
}

TEST(what_fits_or_goes_elsewhere_stays_as_it_is)
{
    const size_t enough[] = {0, 120, 1000};
    for (size_t i = 0; i < 3; i++) {
        char *text = fit(page, enough[i]);
        assert_string_equal(text, page);
        free(text);
    }
}

TEST(lines_go_on_below_their_text)
{
    char *text = fit(page, 80);
    assert_non_null(strstr(text, "source    local ext4, 0% in the page cache; gaps below 72.3 KiB cost less than a\n"
                                 "          request\n"));
    free(text);
}

TEST(executors_keep_their_names_and_get_a_line_for_the_reason)
{
    char *text = fit(page, 80);
    assert_non_null(strstr(text, "  generic_byte_range    384 MiB    384 MiB     65,552   64.0 MiB     1.42 s\n"
                                 "      exact_generic_fallback\n"
                                 "> tensor_batched_local  384 MiB          -          -          -          -\n"
                                 "      eligible\n"));
    free(text);
}

TEST(names_of_files_are_cut_in_the_middle_and_numbers_stay_in_columns)
{
    char *text = fit(page, 80);
    assert_non_null(strstr(text, "  file                          extents      reads     wanted       span  lands\n"
                                 "  a model of \xc3\xa4 ....safetensors       12    384 MiB    192 MiB    560 MiB  staged\n"
                                 "  an_even_longe....safetensors        1    384 MiB    192 MiB    560 MiB  direct\n"));
    free(text);
}

TEST(a_word_that_is_too_long_for_a_line_has_one_of_its_own)
{
    char *text = fit("mapped    because_of_one_word_without_any_blank_in_it and more\nlast\n", 40);
    assert_string_equal(text, "mapped\n          because_of_one_word_without_any_blank_in_it\n          and more\nlast\n");
    free(text);
}

/* --- catalog summary --- */

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

TEST(types_are_counted_largest_first)
{
    struct catalog_tensor tensors[] = {
        {.name = "x", .dtype = "F32", .shape = shape, .rank = 1, .bytes = 4000},
        {.name = "y", .dtype = "BF16", .shape = shape, .rank = 2, .bytes = 6000},
        {.name = "z", .dtype = "F32", .rank = 0, .bytes = 4},
    };
    ProtobufCBinaryData key = {6, (uint8_t *)"format"}, value = {2, (uint8_t *)"pt"};
    const Tensorcast__Daemon__V1__ResolveResponse told = {.artifact = "disk:/m",
                                                          .identity = "1",
                                                          .layout = "plain",
                                                          .n_files = 1,
                                                          .metadata_keys = &key,
                                                          .metadata_values = &value,
                                                          .n_metadata_keys = 1};
    const struct catalog catalog = {.told = &told, .tensors = tensors, .n_tensors = 3, .n_all_tensors = 4};
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

TEST(it_has_at_most_twelve_lines_whatever_there_is)
{
    static const char *const dtypes[] = {"BOOL", "U8", "I8", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"};
    enum { N = sizeof dtypes / sizeof dtypes[0] };
    struct catalog_tensor tensors[N];
    ProtobufCBinaryData keys[100], values[100];
    for (size_t i = 0; i < N; i++)
        tensors[i] = (struct catalog_tensor){.name = "t", .dtype = dtypes[i], .shape = large, .rank = 2, .bytes = 1};
    for (size_t i = 0; i < 100; i++)
        keys[i] = (ProtobufCBinaryData){3, (uint8_t *)"a\nb"}, values[i] = (ProtobufCBinaryData){5, (uint8_t *)"\x1b[2J\n"};
    const Tensorcast__Daemon__V1__ResolveResponse told = {.artifact = "disk:/m\n",
                                                          .identity = "1",
                                                          .layout = "dcp",
                                                          .world_size = 8,
                                                          .metadata_keys = keys,
                                                          .metadata_values = values,
                                                          .n_metadata_keys = 100};
    const struct catalog catalog = {.told = &told, .tensors = tensors, .n_tensors = N, .n_all_tensors = N};
    char *text = print(&catalog);
    assert_true(count_lines(text) <= CATALOG_SUMMARY_LINES);
    assert_non_null(strstr(text, "88.3 billion (88,332,871,000)"));
    assert_non_null(strstr(text, "others"));
    assert_non_null(strstr(text, " and 92 more\n"));
    assert_null(strchr(text, '\x1b'));
    free(text);
}
