/* How the lines of the log are found again; what they say is test_upload_queue.c's. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "upload/upload_log.h"
#include "base/memory.h"
#include "tests/support/shell.h"

static char folder[] = "/tmp/tc-upload-log-XXXXXX", path[64];

struct told {
    size_t n, longest;
    char last[64];
};

static void note(void *data, char **fields, size_t n_fields)
{
    struct told *told = data;
    size_t length = strlen(fields[n_fields - 1]);
    told->n++;
    told->longest = length > told->longest ? length : told->longest;
    snprintf(told->last, sizeof told->last, "%s", fields[n_fields - 1]);
}

static struct told read_log(void)
{
    struct told told = {0};
    struct error error;
    assert_int_equal(upload_log_read(folder, note, &told, &error), 0);
    return told;
}

static FILE *open_log(void)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    return file;
}

static void put_line(FILE *file, size_t bytes)
{
    char *text = memory_alloc(bytes + 1);
    memset(text, 'x', bytes);
    memcpy(text, "S 1 ", 4);
    fprintf(file, "%s\n", text);
    free(text);
}

TEST(a_line_of_a_mebibyte_is_read_and_a_longer_one_is_left_out)
{
    static const size_t longer[] = {1, 2, UPLOAD_LOG_MAX_LINE_BYTES, 3 * UPLOAD_LOG_MAX_LINE_BYTES};
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++) {
        FILE *file = open_log();
        fputs("D 1\n", file);
        put_line(file, UPLOAD_LOG_MAX_LINE_BYTES);
        put_line(file, UPLOAD_LOG_MAX_LINE_BYTES + longer[i]);
        fputs("D last\nD cut", file);
        fclose(file);
        struct told told = read_log();
        assert_int_equal(told.n, 3);
        assert_int_equal(told.longest, UPLOAD_LOG_MAX_LINE_BYTES - 4);
        assert_string_equal(told.last, "last");
    }
}

TEST(what_is_written_is_read_again)
{
    static const char *const fields[] = {"A", "a b\n\xc3\xbc%", "", "/x/y"};
    struct upload_log log;
    struct error error;
    assert_int_equal(upload_log_begin(&log, folder, &error), 0);
    assert_int_equal(upload_log_add(&log, fields, 4, true, &error), 0);
    assert_int_equal(upload_log_add(&log, fields, 2, false, &error), 0);
    assert_int_equal(upload_log_replace(&log, &error), 0);
    upload_log_close(&log);
    struct told told = read_log();
    assert_int_equal(told.n, 2);
    assert_string_equal(told.last, fields[1]);
}

static int create(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/uploads.log", mkdtemp(folder));
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    shell("rm -rf %s", folder);
    return 0;
}

TESTS_IN(create, destroy)
