/* The state directory: made where it is missing, refused where another user could change what is believed there. */
#include "state_dir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/log.h"
#include "tests/support/model_dir.h"

#include <cmocka.h>

enum { STRANGER = 70001 };

static char root[MODEL_PATH_CHARS], path[MODEL_PATH_CHARS], above[MODEL_PATH_CHARS];
static struct error error;

static int set_up(void **state)
{
    (void)state;
    model_dir_create(root);
    model_dir_path(root, "a", above);
    model_dir_path(root, "a/b", path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    model_dir_destroy(root);
    return 0;
}

static void assert_refused(const char *named)
{
    assert_int_equal(state_dir_make(path, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "FOREIGN_STATE_DIR");
    assert_non_null(strstr(error.message, named));
}

static void what_is_missing_is_made_for_this_user_alone(void **state)
{
    struct stat status;
    (void)state;
    assert_int_equal(state_dir_make(path, &error), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0700);
    assert_int_equal(stat(above, &status), 0);
    assert_int_equal(status.st_mode & 022, 0);
    assert_int_equal(state_dir_make(path, &error), 0); /* again */
}

/* What a file got from the log since the last time. */
static bool was_warned(FILE *log)
{
    char text[4096];
    size_t length = fread(text, 1, sizeof text - 1, log);
    text[length] = '\0';
    clearerr(log);
    return strstr(text, "event=state_dir_open_to_all") != NULL;
}

static void that_everybody_may_write_to_it_is_told(void **state)
{
    static const struct {
        mode_t above, own;
        bool is_told;
    } cases[] = {{0755, 0700, false}, {0755, 0770, false}, {0755, 0777, true},
                 {0755, 01777, true}, {0777, 0700, true},  {01777, 0700, false}};
    char log_path[MODEL_PATH_CHARS];
    (void)state;
    assert_int_equal(log_open(model_dir_path(root, "log", log_path), LOG_WARN, LOG_LOGFMT, &error), 0);
    FILE *log = fopen(log_path, "r");
    assert_non_null(log);
    assert_int_equal(state_dir_make(path, &error), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(chmod(above, cases[i].above), 0);
        assert_int_equal(chmod(path, cases[i].own), 0);
        assert_int_equal(state_dir_make(path, &error), 0);
        assert_int_equal(was_warned(log), cases[i].is_told);
    }
    fclose(log);
    assert_int_equal(log_open("", LOG_WARN, LOG_LOGFMT, &error), 0);
}

static void a_folder_of_another_user_is_refused_and_so_is_one_within(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(state_dir_make(path, &error), 0);
    assert_int_equal(chown(path, STRANGER, STRANGER), 0);
    assert_refused("user 70001");
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(chown(above, STRANGER, STRANGER), 0);
    assert_refused("user 70001");
    assert_int_equal(chown(above, 0, 0), 0);
    assert_int_equal(state_dir_make(path, &error), 0);
}

static void what_cannot_be_made_is_named(void **state)
{
    (void)state;
    assert_int_equal(state_dir_make("/proc/nowhere/state", &error), -1);
    assert_non_null(strstr(error.message, "/proc/nowhere"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_missing_is_made_for_this_user_alone),
        TEST(that_everybody_may_write_to_it_is_told),
        TEST(a_folder_of_another_user_is_refused_and_so_is_one_within),
        TEST(what_cannot_be_made_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
