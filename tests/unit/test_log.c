/* Each log line stands alone, in the format asked for, whatever its values hold and however many threads write. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "observe/log.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static char folder[64], path[128], text[1 << 20];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_log.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/log", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    struct error error;
    log_open("", LOG_INFO, LOG_LOGFMT, &error);
    unlink(path);
    return rmdir(folder);
}

static void open_log(enum log_level level, enum log_format format)
{
    struct error error;
    unlink(path);
    assert_int_equal(log_open(path, level, format, &error), 0);
}

static const char *logged(void)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[n] = '\0';
    return text;
}

static void assert_matches(const char *line, const char *pattern)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, line, 0, NULL, 0) != 0)
        fail_msg("%s does not match %s", line, pattern);
    regfree(&regex);
}

static void a_line_has_time_level_event_and_its_fields(void **state)
{
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    log_info("load_done", LOG_TEXT("load_id", "7f3a"), LOG_U64("read_bytes", 4096), LOG_MS("total_ms", 12300000),
             LOG_BOOL("from_replica", false));
    assert_matches(logged(), "^time=20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3}Z level=info "
                             "event=load_done load_id=7f3a read_bytes=4096 total_ms=12.3 from_replica=false\n$");
}

static void in_the_journal_a_line_has_its_priority_and_no_second_time(void **state)
{
    char stream[64];
    struct stat status;
    (void)state;
    open_log(LOG_TRACE, LOG_LOGFMT);
    assert_int_equal(stat(path, &status), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    struct error error;
    assert_int_equal(log_open(path, LOG_TRACE, LOG_LOGFMT, &error), 0);
    log_start();
    log_error("a", LOG_U64("n", 1));
    log_warn("b");
    log_info("c");
    log_debug("d");
    log_at(LOG_TRACE, "e");
    assert_true(log_flush(10000));
    assert_string_equal(logged(), "<3>level=error event=a n=1\n<4>level=warn event=b\n<6>level=info event=c\n"
                                  "<7>level=debug event=d\n<7>level=trace event=e\n");
    log_stop(10000);
    assert_int_equal(log_open(path, LOG_INFO, LOG_JSON, &error), 0);
    log_warn("f");
    assert_matches(strstr(logged(), "event=e\n"), "\n<4>\\{\"time\":\"2[^\"]*\",\"level\":\"warn\",\"event\":\"f\"\\}\n$");
    unsetenv("JOURNAL_STREAM");
}

static void values_are_quoted_when_a_reader_would_stumble(void **state)
{
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    log_info("e", LOG_TEXT("plain", "/a/b:c,d-e_f@g"), LOG_TEXT("space", "a b"), LOG_TEXT("quote", "a\"b"),
             LOG_TEXT("equals", "a=b"), LOG_TEXT("line", "a\nb"), LOG_TEXT("escape", "\x1b[31m"),
             LOG_TEXT("backslash", "a\\b"), LOG_TEXT("bad", "\xff"), LOG_TEXT("utf8", "sp\xc3\xa4t"), LOG_TEXT("empty", ""),
             LOG_TEXT("null", NULL));
    assert_non_null(
        strstr(logged(), " plain=/a/b:c,d-e_f@g space=\"a b\" quote=\"a\\\"b\" equals=\"a=b\" line=\"a\\nb\" "
                         "escape=\"\\x1b[31m\" backslash=\"a\\\\b\" bad=\"\\xff\" utf8=sp\xc3\xa4t empty=\"\" null=\"\"\n"));
}

static void numbers_are_short(void **state)
{
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    log_info("e", LOG_REAL("a", 0), LOG_REAL("b", 3), LOG_REAL("c", 1234567.25), LOG_REAL("d", 0.00001), LOG_REAL("e", 100),
             LOG_REAL("f", -2.5), LOG_U64("g", UINT64_MAX));
    assert_non_null(strstr(logged(), " a=0 b=3 c=1234567.25 d=1e-05 e=100 f=-2.5 g=18446744073709551615\n"));
}

static void lines_below_the_level_are_not_written(void **state)
{
    (void)state;
    open_log(LOG_WARN, LOG_LOGFMT);
    assert_false(log_enabled(LOG_INFO));
    log_info("hidden");
    log_fields(LOG_DEBUG, "hidden", NULL, 0);
    log_error("shown");
    log_set_level(LOG_TRACE);
    log_fields(LOG_TRACE, "traced", NULL, 0);
    assert_null(strstr(logged(), "hidden"));
    assert_matches(text, "level=error event=shown\n.*level=trace event=traced\n$");
}

/* Takes one member of the object that `json` is in. Returns its type. */
static enum json_type take_member(struct json *json, const char *key, struct json_string *value)
{
    struct json_string name;
    assert_true(json_next_key(json, &name));
    assert_int_equal(name.length, strlen(key));
    assert_memory_equal(name.text, key, name.length);
    enum json_type type = json_peek(json);
    assert_true(type == JSON_STRING ? json_take_string(json, value) : json_skip(json));
    return type;
}

static void a_json_line_is_one_object_with_the_same_values(void **state)
{
    struct arena arena;
    struct json json;
    struct json_string value;
    (void)state;
    open_log(LOG_INFO, LOG_JSON);
    log_info("load_done", LOG_TEXT("name", "a \"b\"\n\\\x01\xff"), LOG_U64("n", 5), LOG_REAL("ms", 1.5),
             LOG_BOOL("ok", true), LOG_REAL("odd", 0.0 / 0.0), LOG_TEXT("null", NULL));
    size_t length = strlen(logged());
    assert_int_equal(text[length - 1], '\n');
    assert_ptr_equal(strchr(text, '\n'), text + length - 1);
    arena_init(&arena, 0);
    json_init(&json, text, length, &arena);
    assert_true(json_begin_object(&json));
    assert_int_equal(take_member(&json, "time", &value), JSON_STRING);
    assert_int_equal(value.length, strlen("2026-11-21T12:00:00.123Z"));
    take_member(&json, "level", &value);
    assert_memory_equal(value.text, "info", 4);
    take_member(&json, "event", &value);
    assert_memory_equal(value.text, "load_done", 9);
    take_member(&json, "name", &value);
    assert_int_equal(value.length, 11);
    assert_memory_equal(value.text, "a \"b\"\n\\\x01\xef\xbf\xbd", 11);
    assert_int_equal(take_member(&json, "n", &value), JSON_NUMBER);
    assert_int_equal(take_member(&json, "ms", &value), JSON_NUMBER);
    assert_int_equal(take_member(&json, "ok", &value), JSON_TRUE);
    assert_int_equal(take_member(&json, "odd", &value), JSON_NUMBER);
    assert_int_equal(take_member(&json, "null", &value), JSON_STRING);
    assert_false(json_next_key(&json, &value));
    assert_true(json_end(&json));
    arena_fini(&arena);
}

static void an_endless_value_is_cut(void **state)
{
    (void)state;
    char *value = malloc(500000);
    memset(value, 'x', 499999);
    value[499999] = '\0';
    open_log(LOG_INFO, LOG_LOGFMT);
    log_info("e", LOG_TEXT("value", value), LOG_U64("after", 1));
    assert_true(strlen(logged()) < 10000);
    assert_non_null(strstr(text, " after=1\n"));
    free(value);
}

enum { N_THREADS = 4, N_LINES = 300 };

static void *write_lines(void *data)
{
    for (int i = 0; i < N_LINES; i++)
        log_info("line", LOG_TEXT("thread", data), LOG_U64("number", (uint64_t)i), LOG_TEXT("end", "yes"));
    return NULL;
}

static void lines_of_many_threads_do_not_mix_and_none_is_lost_while_the_file_is_swapped(void **state)
{
    pthread_t threads[N_THREADS];
    static char names[N_THREADS][2] = {"a", "b", "c", "d"};
    struct error error;
    int n_lines = 0;
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, names[i]), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(log_open(path, LOG_INFO, LOG_LOGFMT, &error), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    logged();
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n_lines++)
        assert_matches(line, "^time=[^ ]+ level=info event=line thread=[abcd] number=[0-9]+ end=yes$");
    assert_int_equal(n_lines, N_THREADS * N_LINES);
}

static void opening_again_follows_a_rotated_file(void **state)
{
    char old[160];
    struct error error;
    (void)state;
    snprintf(old, sizeof old, "%s.1", path);
    open_log(LOG_INFO, LOG_LOGFMT);
    log_info("before");
    assert_int_equal(rename(path, old), 0);
    log_info("between");
    assert_int_equal(log_open(path, LOG_INFO, LOG_LOGFMT, &error), 0);
    log_info("after");
    assert_null(strstr(logged(), "between"));
    assert_non_null(strstr(text, "event=after"));
    unlink(old);
}

static void a_file_that_cannot_be_opened_is_named_and_the_old_one_stays(void **state)
{
    struct error error;
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    assert_int_equal(log_open("/nowhere/at/all.log", LOG_DEBUG, LOG_JSON, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_non_null(strstr(error.message, "/nowhere/at/all.log"));
    log_info("still_here");
    assert_matches(logged(), "level=info event=still_here\n$");
}

static void a_log_line_leaves_errno_alone(void **state)
{
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    errno = ENOTTY;
    log_info("e", LOG_TEXT("a", "b c"));
    assert_int_equal(errno, ENOTTY);
}

/* --- a thread that writes ---------------------------------------------------------------------------------------------- */

enum { FLOOD_LINES = 3000, WAIT_MS = 60000 };

/* The log goes into a pipe that is not read yet. */
static int open_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_use(ends[1], LOG_INFO, LOG_LOGFMT);
    log_start();
    return ends[0];
}

static void flood(void)
{
    static char filler[1001];
    memset(filler, 'x', sizeof filler - 1);
    for (int i = 0; i < FLOOD_LINES; i++)
        log_info("flood", LOG_U64("number", (uint64_t)i), LOG_TEXT("filler", filler));
}

static bool read_line(FILE *reader, char *line, size_t room)
{
    return fgets(line, (int)room, reader) && strlen(line) > 0 && line[strlen(line) - 1] == '\n';
}

static void back_to_stderr(void)
{
    struct error error;
    log_stop(WAIT_MS);
    assert_int_equal(log_open("", LOG_INFO, LOG_LOGFMT, &error), 0);
}

static void a_reader_that_stops_holds_nobody_up_and_what_was_dropped_is_counted(void **state)
{
    char line[4096];
    unsigned long long n_shown = 0, n_dropped = 0, last = 0;
    (void)state;
    FILE *reader = fdopen(open_pipe(), "r");
    flood(); /* three times what may wait; a call that waited would wait for ever */
    log_error("important");
    assert_false(log_flush(1));
    while (!n_dropped && read_line(reader, line, sizeof line)) {
        const char *number = strstr(line, "event=flood number=");
        if (number) {
            assert_true(n_shown == 0 || strtoull(number + 19, NULL, 10) > last); /* in order */
            last = strtoull(number + 19, NULL, 10);
            n_shown++;
        }
        const char *dropped = strstr(line, "level=warn event=log_dropped lines=");
        if (dropped)
            n_dropped = strtoull(dropped + 35, NULL, 10);
    }
    assert_int_equal(n_shown + n_dropped, FLOOD_LINES);
    assert_true(log_flush(WAIT_MS));
    back_to_stderr();
    fclose(reader);
}

static void there_is_room_for_errors_when_a_flood_has_none(void **state)
{
    char line[4096];
    bool has_error = false;
    (void)state;
    FILE *reader = fdopen(open_pipe(), "r");
    flood();
    log_error("important");
    while (!has_error && read_line(reader, line, sizeof line))
        has_error = strstr(line, "level=error event=important");
    assert_true(has_error);
    log_stop(0);
    while (read_line(reader, line, sizeof line) && !strstr(line, "log_dropped"))
        ;
    back_to_stderr();
    fclose(reader);
}

static void a_stop_waits_for_a_stopped_reader_no_longer_than_told(void **state)
{
    (void)state;
    int reader = open_pipe();
    flood();
    log_stop(1);
    log_info("lost"); /* and no thread waits after it either */
    close(reader);
    assert_true(log_flush(WAIT_MS)); /* the thread sees EPIPE for the rest and ends */
    back_to_stderr();
}

static void a_change_of_the_file_keeps_the_order_of_lines(void **state)
{
    struct error error;
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    log_start();
    char old[160];
    snprintf(old, sizeof old, "%s.1", path);
    log_info("before");
    assert_true(log_flush(WAIT_MS));
    assert_int_equal(rename(path, old), 0);
    log_info("between");
    assert_int_equal(log_open(path, LOG_INFO, LOG_LOGFMT, &error), 0);
    log_info("after");
    assert_true(log_flush(WAIT_MS));
    assert_null(strstr(logged(), "between"));
    assert_non_null(strstr(text, "event=after"));
    log_stop(WAIT_MS);
    unlink(old);
}

static void a_fifo_without_a_reader_is_refused_at_once(void **state)
{
    struct error error;
    (void)state;
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(log_open(path, LOG_INFO, LOG_LOGFMT, &error), -1);
    assert_string_equal(error.reason, "NO_READER");
    assert_non_null(strstr(error.message, path));
    unlink(path);
}

/* --- how many one user may cause --------------------------------------------------------------------------------------- */

/* The bucket fills while we count, so the time that took is part of what is allowed. */
static uint64_t count_allowed(enum log_rate rate, const char *event, uid_t uid, uint64_t *seconds)
{
    uint64_t start = clock_now_ns(), n_allowed = 0;
    for (int i = 0; i < 10000; i++)
        n_allowed += log_allows(LOG_WARN, rate, event, uid);
    *seconds = (clock_now_ns() - start) / 1000000000 + 1;
    return n_allowed;
}

static void one_user_causes_no_more_lines_than_a_burst_and_some_a_second(void **state)
{
    uint64_t seconds;
    (void)state;
    open_log(LOG_WARN, LOG_LOGFMT);
    uint64_t n_allowed = count_allowed(LOG_FEW, "mallory_fails", 1001, &seconds);
    assert_true(n_allowed >= LOG_LIMIT_BURST && n_allowed <= LOG_LIMIT_BURST + seconds * LOG_LIMIT_PER_S);
    assert_true(log_allows(LOG_WARN, LOG_FEW, "mallory_fails", 1002)); /* others are not concerned */
    assert_true(log_allows(LOG_WARN, LOG_FEW, "something_else", 1001));
    uint64_t n_worked = count_allowed(LOG_MANY, "mallory_works", 1001, &seconds);
    assert_true(n_worked >= LOG_LIMIT_WORK_BURST && n_worked <= LOG_LIMIT_WORK_BURST + seconds * LOG_LIMIT_WORK_PER_S);
    assert_true(log_flush(WAIT_MS));
    assert_matches(logged(), "level=warn event=log_suppressed of=mallory_fails lines=99[0-9]{2} uid=1001\n");
}

static void a_line_without_a_user_names_none(void **state)
{
    (void)state;
    open_log(LOG_INFO, LOG_LOGFMT);
    log_at_of(LOG_INFO, "e", LOG_NOBODY, LOG_U64("n", 1));
    log_work_of("f", 7, LOG_U64("n", 2));
    assert_matches(logged(), "event=e n=1\n.*event=f uid=7 n=2\n$");
}

static void many_users_share_what_is_left(void **state)
{
    uint64_t start = clock_now_ns(), n_allowed = 0;
    (void)state;
    open_log(LOG_WARN, LOG_LOGFMT);
    for (int round = 0; round < 200; round++)
        for (uid_t uid = 5000; uid < 5000 + 2 * LOG_LIMIT_ROWS; uid++)
            n_allowed += log_allows(LOG_WARN, LOG_FEW, "crowd_fails", uid);
    uint64_t seconds = (clock_now_ns() - start) / 1000000000 + 1;
    assert_true(n_allowed <= LOG_LIMIT_ROWS * (LOG_LIMIT_BURST + seconds * LOG_LIMIT_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_event_and_its_fields),
        cmocka_unit_test(in_the_journal_a_line_has_its_priority_and_no_second_time),
        cmocka_unit_test(values_are_quoted_when_a_reader_would_stumble),
        cmocka_unit_test(numbers_are_short),
        cmocka_unit_test(lines_below_the_level_are_not_written),
        cmocka_unit_test(a_json_line_is_one_object_with_the_same_values),
        cmocka_unit_test(an_endless_value_is_cut),
        cmocka_unit_test(lines_of_many_threads_do_not_mix_and_none_is_lost_while_the_file_is_swapped),
        cmocka_unit_test(opening_again_follows_a_rotated_file),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_named_and_the_old_one_stays),
        cmocka_unit_test(a_log_line_leaves_errno_alone),
        cmocka_unit_test(a_reader_that_stops_holds_nobody_up_and_what_was_dropped_is_counted),
        cmocka_unit_test(there_is_room_for_errors_when_a_flood_has_none),
        cmocka_unit_test(a_stop_waits_for_a_stopped_reader_no_longer_than_told),
        cmocka_unit_test(a_change_of_the_file_keeps_the_order_of_lines),
        cmocka_unit_test(a_fifo_without_a_reader_is_refused_at_once),
        cmocka_unit_test(one_user_causes_no_more_lines_than_a_burst_and_some_a_second),
        cmocka_unit_test(a_line_without_a_user_names_none),
        cmocka_unit_test(many_users_share_what_is_left),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
