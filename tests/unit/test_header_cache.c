/* Headers survive a restart in the state directory, and nothing damaged in it is believed. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/metadata.h"
#include "resolve/header_cache.h"
#include "resolve/header_store.h"
#include "resolve/safetensors.h"
#include "tests/support/model_dir.h"

#include <cmocka.h>

static const char json[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
static const struct source_identity identity = {1, 2, 8 + sizeof json - 1 + 4, 3, 4, 0};
static char state_dir[MODEL_PATH_CHARS];

static int create(void **state)
{
    (void)state;
    model_dir_create(state_dir);
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    model_dir_destroy(state_dir);
    return 0;
}

static struct header_cache *open_cache(void)
{
    struct header_cache *cache;
    struct error error;
    if (header_cache_create(state_dir, 1 << 20, &cache, &error) < 0)
        fail_msg("%s", error.message);
    return cache;
}

static void fill(void)
{
    struct header_cache *cache = open_cache();
    struct error error;
    struct part_header *header = safetensors_parse(json, sizeof json - 1, identity.size_bytes, &error);
    header_cache_add(cache, &format_safetensors, &identity, header, json, sizeof json - 1);
    header_cache_add_index(cache, &identity, "{}", 2);
    assert_true(header_cache_memory_bytes(cache) > 0);
    part_header_unref(header);
    header_cache_destroy(cache);
}

/* Calls visit with the path of every stored file; returns how many there are. */
static int each_file(void (*visit)(const char *path))
{
    char folder[MODEL_PATH_CHARS], path[MODEL_PATH_CHARS];
    int n = 0;
    DIR *directory = opendir(model_dir_path(state_dir, "headers", folder));
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        n++;
        if (visit)
            visit(model_dir_path(folder, entry->d_name, path));
    }
    closedir(directory);
    return n;
}

static bool is_known(const struct source_identity *wanted)
{
    struct header_cache *cache = open_cache();
    struct part_header *header = header_cache_find(cache, &format_safetensors, wanted);
    if (header)
        assert_string_equal(header->tensors[0].name, "x");
    part_header_unref(header);
    header_cache_destroy(cache);
    return header != NULL;
}

static bool index_is_known(void)
{
    struct header_cache *cache = open_cache();
    char *text;
    uint64_t n = 0;
    bool known = header_cache_find_index(cache, &identity, &text, &n);
    if (known) {
        assert_true(n == 2 && memcmp(text, "{}", 2) == 0);
        metadata_free(text);
    }
    header_cache_destroy(cache);
    return known;
}

static void headers_survive_a_restart(void **state)
{
    (void)state;
    assert_false(is_known(&identity));
    fill();
    assert_true(is_known(&identity));
    assert_true(index_is_known());
    assert_int_equal(each_file(NULL), 2);
}

static void any_other_identity_is_unknown(void **state)
{
    struct source_identity others[5] = {identity, identity, identity, identity, identity};
    (void)state;
    others[0].device++;
    others[1].inode++;
    others[2].size_bytes++;
    others[3].mtime_ns++;
    others[4].ctime_ns++;
    fill();
    for (size_t i = 0; i < 5; i++)
        assert_false(is_known(&others[i]));
    assert_true(is_known(&identity));
}

static void without_a_state_directory_memory_alone_remembers(void **state)
{
    struct header_cache *cache;
    struct error error;
    (void)state;
    assert_int_equal(header_cache_create(NULL, 1 << 20, &cache, &error), 0);
    struct part_header *header = safetensors_parse(json, sizeof json - 1, identity.size_bytes, &error);
    header_cache_add(cache, &format_safetensors, &identity, header, json, sizeof json - 1);
    struct part_header *found = header_cache_find(cache, &format_safetensors, &identity);
    assert_ptr_equal(found, header);
    part_header_unref(found);
    part_header_unref(header);
    header_cache_destroy(cache);
    header_cache_destroy(NULL);
}

static int flipped_byte;

static void flip(const char *path)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, flipped_byte), 1);
    byte ^= 0xFF;
    assert_int_equal(pwrite(fd, &byte, 1, flipped_byte), 1);
    close(fd);
}

static void shorten(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - 3), 0);
}

static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void lengthen(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static void make_folder(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void damaged_files_are_dropped_and_not_believed(void **state)
{
    static void (*const damages[])(const char *path) = {shorten, empty, lengthen};
    (void)state;
    for (flipped_byte = 0; flipped_byte < 98; flipped_byte += 3) {
        fill();
        each_file(flip);
        assert_false(is_known(&identity) || index_is_known());
        assert_int_equal(each_file(NULL), 0);
    }
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        fill();
        each_file(damages[i]);
        assert_false(is_known(&identity) || index_is_known());
        assert_int_equal(each_file(NULL), 0);
    }
    fill();
    each_file(make_folder);
    assert_false(is_known(&identity));
}

static void leftovers_of_a_crash_are_swept_up(void **state)
{
    (void)state;
    fill();
    model_dir_write(state_dir, "headers/tmp-1-1", "half", 4);
    assert_int_equal(each_file(NULL), 3);
    assert_true(is_known(&identity));
    assert_int_equal(each_file(NULL), 2);
}

static void a_directory_that_cannot_be_used_is_an_error(void **state)
{
    char path[MODEL_PATH_CHARS];
    struct header_cache *cache;
    struct error error;
    (void)state;
    model_dir_write(state_dir, "file", "x", 1);
    assert_int_equal(header_cache_create(model_dir_path(state_dir, "file", path), 1 << 20, &cache, &error), -1);
    assert_non_null(strstr(error.message, "file"));
    assert_int_equal(header_cache_create(model_dir_path(state_dir, "missing/folder", path), 1 << 20, &cache, &error), -1);
}

/* Such as that of a file on tmpfs, whose times do not tell: it is over with the process's leases. */
static void an_identity_of_this_process_alone_stays_in_memory(void **state)
{
    struct source_identity of_span = identity;
    struct header_cache *cache = open_cache();
    struct error error;
    char *text;
    uint64_t n;
    (void)state;
    of_span.lease_span = 7;
    struct part_header *header = safetensors_parse(json, sizeof json - 1, identity.size_bytes, &error);
    header_cache_add(cache, &format_safetensors, &of_span, header, json, sizeof json - 1);
    header_cache_add_index(cache, &of_span, "{}", 2);
    struct part_header *found = header_cache_find(cache, &format_safetensors, &of_span);
    assert_ptr_equal(found, header);
    assert_null(header_cache_find(cache, &format_safetensors, &identity));
    assert_false(header_cache_find_index(cache, &of_span, &text, &n));
    assert_int_equal(each_file(NULL), 0);
    part_header_unref(found);
    part_header_unref(header);
    header_cache_destroy(cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, create, destroy)

static void make_sparse(const char *name, uint64_t bytes)
{
    char path[MODEL_PATH_CHARS];
    int fd = open(model_dir_path(state_dir, name, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

static void the_bytes_of_all_files_are_bounded(void **state)
{
    struct error error;
    struct source_identity other = identity;
    (void)state;
    fill(); /* makes the folder and two files */
    make_sparse("headers/00000000000000000000000000000001", HEADER_STORE_MAX_BYTES / 2);
    make_sparse("headers/00000000000000000000000000000002", HEADER_STORE_MAX_BYTES / 4);
    struct header_store *store = header_store_open(state_dir, &error);
    assert_non_null(store);
    other.inode = 1;
    header_store_add(store, HEADER_KIND_SAFETENSORS, &other, "x", 1);
    assert_int_equal(each_file(NULL), 5);
    header_store_close(store);
    make_sparse("headers/00000000000000000000000000000003", HEADER_STORE_MAX_BYTES / 4);
    store = header_store_open(state_dir, &error);
    other.inode = 2;
    header_store_add(store, HEADER_KIND_SAFETENSORS, &other, "x", 1);
    assert_in_range(each_file(NULL), 1, 5); /* down to three quarters, the oldest first */
    char *text;
    uint64_t n;
    assert_true(header_store_find(store, HEADER_KIND_SAFETENSORS, &other, &text, &n));
    metadata_free(text);
    header_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(headers_survive_a_restart),
        TEST(any_other_identity_is_unknown),
        TEST(an_identity_of_this_process_alone_stays_in_memory),
        TEST(without_a_state_directory_memory_alone_remembers),
        TEST(damaged_files_are_dropped_and_not_believed),
        TEST(leftovers_of_a_crash_are_swept_up),
        TEST(the_bytes_of_all_files_are_bounded),
        TEST(a_directory_that_cannot_be_used_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
