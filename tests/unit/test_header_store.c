/* Documents in the state directory: found as they were added, and nothing that was damaged or put there by others. */
#include "tests/support/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "resolve/header_store.h"
#include "tests/support/model_dir.h"

static const struct source_identity identity = {1, 2, 3, 4, 5, 0};
static char state_dir[MODEL_PATH_CHARS], folder[MODEL_PATH_CHARS];

static struct header_store *open_store(void)
{
    struct error error;
    struct header_store *store = header_store_open(state_dir, &error);
    if (!store)
        fail_msg("%s", error.message);
    return store;
}

static int set_up(void **state)
{
    model_dir_create(state_dir);
    model_dir_path(state_dir, "headers", folder);
    *state = open_store();
    return 0;
}

static int tear_down(void **state)
{
    header_store_close(*state);
    model_dir_destroy(state_dir);
    return 0;
}

static bool has(struct header_store *store, enum header_kind kind, const struct source_identity *wanted, const char *text)
{
    char *bytes;
    uint64_t n_bytes;
    if (!header_store_find(store, kind, wanted, &bytes, &n_bytes))
        return false;
    assert_int_equal(n_bytes, strlen(text));
    assert_memory_equal(bytes, text, n_bytes);
    metadata_free(bytes);
    return true;
}

static void add(struct header_store *store, const struct source_identity *wanted, const char *text)
{
    header_store_add(store, HEADER_KIND_SAFETENSORS, wanted, text, strlen(text));
}

/* How many files there are, and the path of one of them. */
static int count_files(char path[MODEL_PATH_CHARS])
{
    int n = 0;
    DIR *directory = opendir(folder);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        n++;
        model_dir_path(folder, entry->d_name, path);
    }
    closedir(directory);
    return n;
}

TEST_IN(a_document_is_found_as_it_was_added, set_up, tear_down)
{
    assert_false(has(*state, HEADER_KIND_SAFETENSORS, &identity, ""));
    add(*state, &identity, "{\"x\": 1}");
    assert_true(has(*state, HEADER_KIND_SAFETENSORS, &identity, "{\"x\": 1}"));
    add(*state, &identity, "newer"); /* takes its place */
    assert_true(has(*state, HEADER_KIND_SAFETENSORS, &identity, "newer"));
    struct header_store *other = open_store(); /* another daemon, or this one after a restart */
    assert_true(has(other, HEADER_KIND_SAFETENSORS, &identity, "newer"));
    header_store_close(other);
}

TEST_IN(a_document_may_be_empty, set_up, tear_down)
{
    add(*state, &identity, "");
    assert_true(has(*state, HEADER_KIND_SAFETENSORS, &identity, ""));
}

TEST_IN(kinds_and_identities_do_not_mix, set_up, tear_down)
{
    add(*state, &identity, "x");
    assert_false(has(*state, HEADER_KIND_SHARD_INDEX, &identity, "x"));
    for (size_t i = 0; i < sizeof identity / sizeof(uint64_t); i++) {
        uint64_t numbers[sizeof identity / sizeof(uint64_t)];
        struct source_identity other;
        memcpy(numbers, &identity, sizeof numbers);
        numbers[i]++;
        memcpy(&other, numbers, sizeof other);
        assert_false(has(*state, HEADER_KIND_SAFETENSORS, &other, "x"));
    }
    assert_true(has(*state, HEADER_KIND_SAFETENSORS, &identity, "x"));
}

TEST_IN(no_damaged_byte_is_believed, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS];
    struct stat status;
    add(*state, &identity, "{\"x\": 1}");
    assert_int_equal(count_files(path), 1);
    assert_int_equal(stat(path, &status), 0);
    for (off_t at = 0; at < status.st_size; at++) {
        unsigned char byte;
        add(*state, &identity, "{\"x\": 1}");
        int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        assert_false(has(*state, HEADER_KIND_SAFETENSORS, &identity, ""));
        assert_int_equal(count_files(path), 0); /* and it is gone */
        add(*state, &identity, "{\"x\": 1}");
        count_files(path);
    }
}

TEST_IN(no_shortened_file_is_believed, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS];
    struct stat status;
    add(*state, &identity, "{\"x\": 1}");
    count_files(path);
    assert_int_equal(stat(path, &status), 0);
    for (off_t size = 0; size < status.st_size; size++) {
        add(*state, &identity, "{\"x\": 1}");
        assert_int_equal(truncate(path, size), 0);
        assert_false(has(*state, HEADER_KIND_SAFETENSORS, &identity, ""));
    }
}

TEST_IN(a_link_or_a_folder_in_the_place_of_a_file_is_not_followed, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS], moved[MODEL_PATH_CHARS];
    add(*state, &identity, "x");
    count_files(path);
    assert_int_equal(rename(path, model_dir_path(state_dir, "moved", moved)), 0);
    assert_int_equal(symlink(moved, path), 0);
    assert_false(has(*state, HEADER_KIND_SAFETENSORS, &identity, "x"));
    add(*state, &identity, "x");
    assert_int_equal(unlink(path) || mkdir(path, 0700), 0);
    assert_false(has(*state, HEADER_KIND_SAFETENSORS, &identity, "x"));
}

TEST_IN(leftovers_of_a_crash_are_deleted_and_nothing_else, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS];
    model_dir_write(folder, "tmp-1-1", "x", 1);
    model_dir_write(folder, "README", "x", 1);
    header_store_close(open_store());
    assert_int_equal(count_files(path), 1);
    assert_non_null(strstr(path, "README"));
}

TEST_IN(one_file_too_many_makes_room_and_the_oldest_go_first, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS];
    struct source_identity other = identity;
    add(*state, &identity, "first");
    count_files(path);
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    for (uint64_t i = 1; i < HEADER_STORE_MAX_FILES; i++) {
        other.inode = 1000 + i;
        add(*state, &other, "x");
    }
    assert_int_equal(count_files(path), HEADER_STORE_MAX_FILES);
    other.inode = 999;
    add(*state, &other, "last");
    assert_int_equal(count_files(path), HEADER_STORE_MAX_FILES / 4 * 3);
    assert_false(has(*state, HEADER_KIND_SAFETENSORS, &identity, "first"));
    assert_true(has(*state, HEADER_KIND_SAFETENSORS, &other, "last"));
    header_store_close(NULL);
}

TEST_IN(a_state_directory_that_cannot_be_made_is_an_error_that_names_it, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS];
    struct error error;
    model_dir_write(state_dir, "file", "x", 1);
    assert_null(header_store_open(model_dir_path(state_dir, "file", path), &error));
    assert_non_null(strstr(error.message, path));
    assert_null(header_store_open(model_dir_path(state_dir, "missing/folder", path), &error));
    header_store_close(NULL);
}
