/* Records of folders in the state directory: what was written is read, what is damaged is removed. */
#include "replica/folder_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/model_dir.h"

#include <cmocka.h>

static char folder[MODEL_PATH_CHARS];
static struct error error;

static int make(void **state)
{
    (void)state;
    model_dir_create(folder);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    model_dir_destroy(folder);
    return 0;
}

struct read_back {
    size_t n;
    struct folder last;
};

static void take(void *data, const struct folder *record)
{
    struct read_back *back = data;
    if (back->n++) {
        free(back->last.path);
        free(back->last.artifact);
        free(back->last.identity);
    }
    back->last = *record;
}

static struct read_back read_all(void)
{
    struct read_back back = {0};
    folder_record_read_all(folder, take, &back);
    return back;
}

static void drop_texts(struct read_back *back)
{
    free(back->last.path);
    free(back->last.artifact);
    free(back->last.identity);
}

static const struct folder example = {.path = (char *)"/dev/shm/\"m\"",
                                      .artifact = (char *)"disk:/models/m",
                                      .identity = (char *)"abc",
                                      .uid = 1000,
                                      .bytes = 1,
                                      .copy = 2,
                                      .device = 3,
                                      .inode = 0xffffffffffffffff,
                                      .stamp_ns = 5,
                                      .is_seen = true};

static void what_was_written_is_read(void **state)
{
    (void)state;
    assert_int_equal(folder_record_write(folder, &example, &error), 0);
    assert_int_equal(folder_record_write(folder, &example, &error), 0); /* again: the same one */
    struct read_back back = read_all();
    assert_int_equal(back.n, 1);
    assert_string_equal(back.last.path, example.path);
    assert_string_equal(back.last.artifact, example.artifact);
    assert_string_equal(back.last.identity, example.identity);
    assert_int_equal(back.last.uid, 1000);
    assert_int_equal(back.last.bytes, 1);
    assert_int_equal(back.last.copy, 2);
    assert_int_equal(back.last.device, 3);
    assert_true(back.last.inode == example.inode);
    assert_int_equal(back.last.stamp_ns, 5);
    assert_true(back.last.is_seen);
    drop_texts(&back);
    folder_record_remove(folder, example.uid, example.device, example.inode);
    assert_int_equal(read_all().n, 0);
}

static void a_record_is_its_user_s_whatever_folder_another_one_names(void **state)
{
    struct folder other = example;
    (void)state;
    other.uid = 1001;
    assert_int_equal(folder_record_write(folder, &example, &error), 0);
    assert_int_equal(folder_record_write(folder, &other, &error), 0);
    folder_record_remove(folder, other.uid, other.device, other.inode);
    struct read_back back = read_all();
    assert_int_equal(back.n, 1);
    assert_int_equal(back.last.uid, example.uid);
    drop_texts(&back);
}

static void a_folder_without_records_has_none(void **state)
{
    (void)state;
    assert_int_equal(read_all().n, 0);
}

static void what_is_damaged_is_removed(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "{}",
        "{\"version\":2}",
        "{\"version\":1,\"path\":\"/a\",\"artifact\":\"b\"}",
        "{\"version\":1,\"path\":\"/a\",\"path\":\"/b\",\"artifact\":\"b\",\"identity\":\"c\"}",
        "{\"version\":1,\"path\":\"/a\",\"artifact\":\"b\",\"identity\":\"c\",\"more\":1}",
        "{\"version\":1,\"path\":\"/a\\u0000\",\"artifact\":\"b\",\"identity\":\"c\"}",
        "{\"version\":1,\"path\":1,\"artifact\":\"b\",\"identity\":\"c\"}",
    };
    char records[MODEL_PATH_CHARS], path[MODEL_PATH_CHARS + 16];
    (void)state;
    model_dir_mkdir(folder, "folders");
    model_dir_path(folder, "folders", records);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        model_dir_write(records, "1-1.json", texts[i], strlen(texts[i]));
        assert_int_equal(read_all().n, 0);
        snprintf(path, sizeof path, "%s/1-1.json", records);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void a_record_longer_than_64_kib_is_not_believed(void **state)
{
    static const char good[] = "{\"version\":1,\"path\":\"/a\",\"artifact\":\"b\",\"identity\":\"c\"}";
    enum { LIMIT = 64 << 10 };
    char records[MODEL_PATH_CHARS], *text = malloc(LIMIT + 1);
    (void)state;
    memset(text, ' ', LIMIT + 1);
    memcpy(text, good, sizeof good - 1);
    model_dir_mkdir(folder, "folders");
    model_dir_write(model_dir_path(folder, "folders", records), "1-1.json", text, LIMIT);
    struct read_back back = read_all();
    assert_int_equal(back.n, 1);
    drop_texts(&back);
    model_dir_write(records, "1-1.json", text, LIMIT + 1);
    assert_int_equal(read_all().n, 0);
    free(text);
}

static void a_state_directory_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(folder_record_write("/proc/nowhere", &example, &error), -1);
    assert_non_null(strstr(error.message, "/proc/nowhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_is_read, make, drop),
        cmocka_unit_test_setup_teardown(a_record_is_its_user_s_whatever_folder_another_one_names, make, drop),
        cmocka_unit_test_setup_teardown(a_folder_without_records_has_none, make, drop),
        cmocka_unit_test_setup_teardown(what_is_damaged_is_removed, make, drop),
        cmocka_unit_test_setup_teardown(a_record_longer_than_64_kib_is_not_believed, make, drop),
        cmocka_unit_test_setup_teardown(a_state_directory_that_cannot_be_written_is_an_error, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
