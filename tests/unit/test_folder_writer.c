/* Files that appear when they are whole, and large ones that are gone on with. */
#include "tests/support/unit.h"

#include "client/folder_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/model_dir.h"

enum { BYTES = 20 << 20 };

static char root[MODEL_PATH_CHARS];
static char bytes[BYTES];
static struct error error;

static int set_up(void **state)
{
    model_dir_create(root);
    return 0;
}

static int tear_down(void **state)
{
    model_dir_destroy(root);
    return 0;
}

/* Begins the file and is cut off after so many bytes. */
static void cut_off(const char *key, size_t count)
{
    struct folder_writer writer;
    assert_int_equal(folder_writer_open(&writer, root, &error), 0);
    assert_int_equal(folder_writer_begin_kept(&writer, "f", key, &error), 0);
    assert_int_equal(folder_writer_add(&writer, bytes, count, &error), 0);
    folder_writer_close(&writer);
}

static uint64_t find(const char *key, uint64_t of_bytes)
{
    struct folder_writer writer;
    assert_int_equal(folder_writer_open(&writer, root, &error), 0);
    uint64_t had = folder_writer_find(&writer, "f", key, of_bytes);
    folder_writer_close(&writer);
    return had;
}

TEST_IN(a_large_part_is_found_under_its_key_and_becomes_the_file, set_up, tear_down)
{
    struct folder_writer writer;
    struct stat status;
    cut_off("one", BYTES - 5);
    assert_int_equal(folder_writer_open(&writer, root, &error), 0);
    assert_int_equal(folder_writer_find(&writer, "f", "one", BYTES), BYTES - 5);
    assert_int_equal(folder_writer_add(&writer, "12345", 5, &error), 0);
    assert_int_equal(folder_writer_commit(&writer, &error), 0);
    assert_int_equal(fstatat(writer.folder_fd, "f", &status, 0), 0);
    assert_int_equal(status.st_size, BYTES);
    assert_int_equal(status.st_mode & 0777, writer.mode);
    folder_writer_close(&writer);
    assert_int_equal(find("one", BYTES), 0);
}

TEST_IN(what_is_small_spoilt_or_of_another_key_is_not_kept, set_up, tear_down)
{
    struct folder_writer writer;
    cut_off("one", 1000);
    assert_int_equal(find("one", BYTES), 0);
    cut_off("one", BYTES - 5);
    assert_int_equal(find("two", BYTES), 0);
    assert_int_equal(find("one", BYTES), 0); /* removed by the look for another */
    cut_off("one", BYTES - 5);
    assert_int_equal(folder_writer_open(&writer, root, &error), 0);
    assert_int_equal(folder_writer_find(&writer, "f", "one", BYTES), BYTES - 5);
    writer.is_kept = false;
    folder_writer_close(&writer);
    assert_int_equal(find("one", BYTES), 0);
}

TEST_IN(a_part_as_long_as_the_file_or_longer_is_cut, set_up, tear_down)
{
    cut_off("one", BYTES);
    assert_int_equal(find("one", BYTES), BYTES - 1);
    assert_int_equal(find("one", BYTES - 10), BYTES - 11);
}

TEST_IN(a_part_that_is_being_written_is_not_gone_on_with_twice, set_up, tear_down)
{
    struct folder_writer writer, other;
    assert_int_equal(folder_writer_open(&writer, root, &error), 0);
    assert_int_equal(folder_writer_begin_kept(&writer, "f", "one", &error), 0);
    assert_int_equal(folder_writer_add(&writer, bytes, BYTES - 5, &error), 0);
    assert_int_equal(find("one", BYTES), 0);
    assert_int_equal(folder_writer_open(&other, root, &error), 0);
    assert_int_equal(folder_writer_begin_kept(&other, "f", "one", &error), 0); /* under a name of its own */
    assert_string_not_equal(other.temporary, writer.temporary);
    folder_writer_close(&other);
    folder_writer_close(&writer);
    assert_int_equal(find("one", BYTES), BYTES - 5);
}
