/* Requests in flight: all are told, whoever leaves in the middle, and a long wait is one line of the log. */
#include "load/pending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "load/load.h"
#include "observe/log.h"

#include <cmocka.h> /* last: it has a macro called fail */

struct request {
    struct pending pending; /* first */
    struct load_table *table;
    unsigned n_told;
    bool leaves;
};

static struct load_table table;

static void tell(struct pending *pending)
{
    struct request *request = (struct request *)pending;
    request->n_told++;
    if (request->leaves)
        pending_remove(request->table, pending);
}

static int open_table(void **state)
{
    struct loop *loop = loop_create();
    table = (struct load_table){.progress_timer = loop_timer_create(loop, pending_tell_all, &table)};
    *state = loop;
    return 0;
}

static int close_table(void **state)
{
    assert_null(table.pending);
    loop_timer_destroy(table.progress_timer);
    loop_destroy(*state);
    return 0;
}

static void all_are_told_also_when_one_leaves_meanwhile(void **state)
{
    struct request requests[3];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        requests[i] = (struct request){.table = &table, .leaves = i == 1};
        pending_init(&requests[i].pending, tell);
        pending_add(&table, &requests[i].pending);
    }
    pending_tell_all(&table);
    pending_tell_all(&table);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(requests[i].n_told, i == 1 ? 1 : 2);
        pending_remove(&table, &requests[i].pending);
        pending_fini(&requests[i].pending);
    }
}

static size_t count_lines(int fd)
{
    static char text[1 << 12];
    size_t n = 0;
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    for (const char *at = text; (at = strstr(at, "event=load_waiting ")); at++)
        n++;
    return n;
}

static void a_wait_is_logged_once_when_it_is_long(void **state)
{
    const struct load_result result = {.load_id = "0123456789abcdef"};
    struct load_info info = {.artifact = "http://user:secret@host/m", .stage = "resolve"};
    struct pending pending;
    int fd = memfd_create("lines", MFD_CLOEXEC);
    (void)state;
    log_use(dup(fd), LOG_INFO, LOG_LOGFMT);
    pending_init(&pending, NULL);
    pending_log(&pending, &info, &result);
    snprintf(info.waiting_for, sizeof info.waiting_for, "http://host to answer");
    pending_log(&pending, &info, &result);
    assert_int_equal(count_lines(fd), 0);
    pending.waits_since_ns -= 10 * 1000 * (uint64_t)NS_PER_MS;
    pending_log(&pending, &info, &result);
    pending_log(&pending, &info, &result);
    log_use(dup(STDERR_FILENO), LOG_ERROR, LOG_LOGFMT);
    assert_int_equal(count_lines(fd), 1);
    char line[1 << 12] = "";
    assert_true(pread(fd, line, sizeof line - 1, 0) > 0);
    assert_non_null(strstr(line, "waiting_for=\"http://host to answer\""));
    assert_null(strstr(line, "secret"));
    pending_fini(&pending);
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_table, close_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_are_told_also_when_one_leaves_meanwhile),
        TEST(a_wait_is_logged_once_when_it_is_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
