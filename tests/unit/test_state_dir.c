/* The state directory: made where it is missing, refused where another user could change what is believed there. */
#include "tests/support/unit.h"

#include "state_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include "observe/log.h"
#include "tests/support/model_dir.h"

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

TEST_IN(what_is_missing_is_made_for_this_user_alone, set_up, tear_down)
{
    struct stat status;
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

TEST_IN(that_everybody_may_write_to_it_is_told, set_up, tear_down)
{
    static const struct {
        mode_t above, own;
        bool is_told;
    } cases[] = {{0755, 0700, false}, {0755, 0770, false}, {0755, 0777, true},
                 {0755, 01777, true}, {0777, 0700, true},  {01777, 0700, false}};
    char log_path[MODEL_PATH_CHARS];
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

TEST_IN(a_folder_of_another_user_is_refused_and_so_is_one_within, set_up, tear_down)
{
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

TEST_IN(what_cannot_be_made_is_named, set_up, tear_down)
{
    assert_int_equal(state_dir_make("/proc/nowhere/state", &error), -1);
    assert_non_null(strstr(error.message, "/proc/nowhere"));
}

static void write_format(const char *text)
{
    char name[MODEL_PATH_CHARS + 16];
    snprintf(name, sizeof name, "%s/format", path);
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST_IN(one_daemon_at_a_time_owns_it, set_up, tear_down)
{
    int first, second;
    assert_int_equal(state_dir_make(path, &error), 0);
    assert_int_equal(state_dir_own(path, &first, &error), 0);
    assert_true(first >= 0);
    assert_int_equal(state_dir_own(path, &second, &error), 0);
    assert_int_equal(second, -1);
    close(first);
    assert_int_equal(state_dir_own(path, &second, &error), 0);
    assert_true(second >= 0);
    close(second);
}

TEST_IN(what_a_newer_daemon_wrote_is_refused, set_up, tear_down)
{
    static const struct {
        const char *text;
        bool is_taken;
    } cases[] = {{"1\n", true}, {"", true}, {"nonsense", true}, {"2\n", false}, {"99999999999999999999", false}};
    int fd;
    assert_int_equal(state_dir_make(path, &error), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_format(cases[i].text);
        assert_int_equal(state_dir_own(path, &fd, &error), cases[i].is_taken ? 0 : -1);
        assert_int_equal(fd >= 0, cases[i].is_taken);
        if (fd >= 0)
            close(fd);
        else
            assert_string_equal(error.reason, "STATE_DIR_NEWER");
    }
}
