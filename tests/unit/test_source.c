/* References and wrappers, the disk backend's opening half, and the memory backend. */
#include "tests/support/unit.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/disk/filesystem.h"
#include "source/source.h"
#include "source/disk/source_disk.h"
#include "tests/support/source_memory.h"
#include "tests/support/source_bytes.h"
#include "tests/support/model_dir.h"

static char root[MODEL_PATH_CHARS];
static const char *const roots[] = {root};
static const struct source_options confined = {.trusted_roots = roots, .n_trusted_roots = 1};
static const struct source_options relative = {.allow_relative = true};
static struct error error; /* of the last call */

static int create(void **state)
{
    (void)state;
    model_dir_create(root);
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    model_dir_destroy(root);
    return 0;
}

static size_t n_made_up, n_told;

/* In place of the C library's: a folder with as many entries as a test wants. */
struct dirent *readdir(DIR *directory)
{
    static struct dirent entry;
    if (!n_made_up) {
        struct dirent *(*real)(DIR *) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir");
        return real(directory);
    }
    snprintf(entry.d_name, sizeof entry.d_name, "%zu", n_told);
    return n_told++ < n_made_up ? &entry : NULL;
}

static struct source *open_disk(const char *name)
{
    char reference[MODEL_PATH_CHARS + 8];
    struct source *source;
    snprintf(reference, sizeof reference, "disk:%s/%s", root, name);
    if (source_open(reference, &confined, &source, &error) < 0)
        fail_msg("%s", error.message);
    return source;
}

TEST(bad_references_are_refused)
{
    static const struct {
        const char *reference;
        enum error_code code;
    } cases[] = {
        {"", ERROR_INVALID_ARGUMENT},           {"/models/llama", ERROR_INVALID_ARGUMENT},
        {":x", ERROR_INVALID_ARGUMENT},         {"disk:", ERROR_INVALID_ARGUMENT},
        {"disk:llama", ERROR_INVALID_ARGUMENT}, {"tape:/x", ERROR_UNIMPLEMENTED},
        {"disks:/x", ERROR_UNIMPLEMENTED},      {"s3://bucket/x", ERROR_UNIMPLEMENTED},
        {"memory:nobody", ERROR_NOT_FOUND},     {"disk:/etc/passwd", ERROR_PERMISSION_DENIED},
    };
    struct source *source;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(source_open(cases[i].reference, &confined, &source, &error), -1);
        if (error.code != cases[i].code)
            fail_msg("%s: %s: %s", cases[i].reference, error_code_name(error.code), error.message);
    }
}

TEST(trailing_slashes_do_not_belong_to_a_reference)
{
    char reference[MODEL_PATH_CHARS + 8];
    struct source *source;
    snprintf(reference, sizeof reference, "disk:%s///", root);
    assert_int_equal(source_open(reference, &confined, &source, &error), 0);
    assert_int_equal(strlen(source->reference), strlen(reference) - 3);
    source_unref(source);
    assert_int_equal(source_open("disk:/", &relative, &source, &error), 0);
    assert_string_equal(source->reference, "disk:/");
    source_unref(source);
}

TEST(relative_paths_are_for_the_command_line)
{
    struct source *source;
    assert_int_equal(source_open("disk:.", &confined, &source, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_int_equal(source_open("disk:.", &relative, &source, &error), 0);
    source_unref(source);
    assert_int_equal(source_open("disk:no/such/place", &relative, &source, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
}

TEST(a_directory_lists_its_names_sorted)
{
    char **names;
    size_t n_names;
    model_dir_mkdir(root, "listed");
    static const char *const files[] = {"listed/b", "listed/B", "listed/a10", "listed/a2", "listed/.hidden"};
    for (size_t i = 0; i < 5; i++)
        model_dir_write(root, files[i], "x", 1);
    struct source *source = open_disk("listed");
    assert_false(source->is_single_file);
    assert_int_equal(source_list(source, NULL, &names, &n_names, &error), 0);
    static const char *const sorted[] = {".", "..", ".hidden", "B", "a10", "a2", "b"};
    assert_int_equal(n_names, 7);
    for (size_t i = 0; i < n_names; i++) {
        assert_string_equal(names[i], sorted[i]);
        free(names[i]);
    }
    free(names);
    source_unref(source);
}

TEST(a_folder_of_a_million_entries_is_listed_and_one_with_one_more_is_refused)
{
    char **names;
    size_t n_names;
    model_dir_mkdir(root, "crowded");
    struct source *source = open_disk("crowded");
    for (size_t more = 0; more < 2; more++) {
        n_made_up = (1 << 20) + more;
        n_told = 0;
        int failed = source_list(source, NULL, &names, &n_names, &error);
        n_made_up = 0;
        assert_int_equal(failed, more ? -1 : 0);
        assert_int_equal(n_names, more ? 0 : 1 << 20);
        for (size_t i = 0; i < n_names; i++)
            free(names[i]);
        free(names);
    }
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "TOO_MANY_FILES");
    assert_non_null(strstr(error.message, "more than 1048576 entries"));
    source_unref(source);
}

TEST(files_are_opened_and_identified)
{
    char path[MODEL_PATH_CHARS], bytes[5] = "";
    struct stat status;
    size_t file;
    model_dir_mkdir(root, "opened");
    model_dir_write(root, "opened/f", "hello", 5);
    model_dir_link(root, "opened/link", "f");
    struct source *source = open_disk("opened");
    assert_int_equal(source_add_file(source, "link", &file, &error), 0);
    assert_int_equal(stat(model_dir_path(root, "opened/f", path), &status), 0);
    assert_string_equal(source->files[file].name, "link");
    assert_int_equal(source->files[file].size_bytes, 5);
    assert_int_equal(source->files[file].identity.inode, status.st_ino);
    assert_int_equal(source->files[file].identity.mtime_ns,
                     (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec);
    assert_int_equal(source_read_bytes(source, file, 1, bytes, 4, &error), 0);
    assert_string_equal(bytes, "ello");
    assert_int_equal(source_read_bytes(source, file, 2, bytes, 4, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_int_equal(source_check_unchanged(source, file, &error), 0);
    source_unref(source_ref(source)); /* the first reference still holds it */
    assert_int_equal(source_check_unchanged(source, file, &error), 0);
    source_unref(source);
    source_unref(NULL);
}

TEST(a_single_file_is_an_artifact_of_its_own)
{
    size_t file;
    model_dir_write(root, "single.safetensors", "abc", 3);
    struct source *source = open_disk("single.safetensors");
    assert_true(source->is_single_file);
    assert_int_equal(source_add_file(source, "single.safetensors", &file, &error), 0);
    assert_int_equal(source->files[file].size_bytes, 3);
    assert_int_equal(source_check_unchanged(source, file, &error), 0);
    source_unref(source);
}

TEST(only_regular_files_are_opened)
{
    char path[MODEL_PATH_CHARS];
    size_t file;
    model_dir_mkdir(root, "odd");
    model_dir_mkdir(root, "odd/folder");
    assert_int_equal(mkfifo(model_dir_path(root, "odd/fifo", path), 0600), 0);
    model_dir_link(root, "odd/device", "/dev/zero");
    struct source *source = open_disk("odd");
    assert_int_equal(source_add_file(source, "folder", &file, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_int_equal(source_add_file(source, "fifo", &file, &error), -1); /* and does not wait for a writer */
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_int_equal(source_add_file(source, "device", &file, &error), -1);
    assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
    assert_int_equal(source_add_file(source, "missing", &file, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_int_equal(source->n_files, 0);
    source_unref(source);
}

static void rewrite(const char *name)
{
    model_dir_write(root, name, "HELLO", 5);
}

static void replace(const char *name)
{
    char path[MODEL_PATH_CHARS], fresh[MODEL_PATH_CHARS];
    model_dir_write(root, "fresh", "HELLO", 5);
    assert_int_equal(rename(model_dir_path(root, "fresh", fresh), model_dir_path(root, name, path)), 0);
}

static void truncate_it(const char *name)
{
    char path[MODEL_PATH_CHARS];
    assert_int_equal(truncate(model_dir_path(root, name, path), 4), 0);
}

static void remove_it(const char *name)
{
    char path[MODEL_PATH_CHARS];
    assert_int_equal(unlink(model_dir_path(root, name, path)), 0);
}

static void lead_outside(const char *name)
{
    remove_it(name);
    model_dir_link(root, name, "/etc/hostname");
}

TEST(a_changed_file_is_noticed_and_named)
{
    static void (*const changes[])(const char *name) = {rewrite, replace, truncate_it, remove_it, lead_outside};
    size_t file;
    model_dir_mkdir(root, "changing");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char path[MODEL_PATH_CHARS];
        unlink(model_dir_path(root, "changing/part.f", path));
        model_dir_write(root, "changing/part.f", "hello", 5);
        struct source *source = open_disk("changing");
        assert_int_equal(source_add_file(source, "part.f", &file, &error), 0);
        assert_int_equal(source_check_unchanged(source, file, &error), 0);
        usleep(20000); /* file times tick every few milliseconds */
        changes[i]("changing/part.f");
        assert_int_equal(source_check_unchanged(source, file, &error), -1);
        assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
        assert_non_null(strstr(error.message, "part.f"));
        source_unref(source);
    }
}

TEST(a_folder_swapped_for_another_is_noticed)
{
    char path[MODEL_PATH_CHARS], away[MODEL_PATH_CHARS];
    size_t file;
    model_dir_mkdir(root, "swapped");
    model_dir_write(root, "swapped/f", "hello", 5);
    struct source *source = open_disk("swapped");
    assert_int_equal(source_add_file(source, "f", &file, &error), 0);
    assert_int_equal(rename(model_dir_path(root, "swapped", path), model_dir_path(root, "away", away)), 0);
    model_dir_mkdir(root, "swapped");
    model_dir_write(root, "swapped/f", "hello", 5);
    assert_int_equal(source_check_unchanged(source, file, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    source_unref(source);
}

TEST(capabilities_come_from_the_files)
{
    size_t file;
    struct stat status;
    model_dir_mkdir(root, "caps");
    model_dir_write(root, "caps/f", "hello", 5);
    struct source *source = open_disk("caps");
    assert_int_equal(source_add_file(source, "f", &file, &error), 0);
    const struct source_disk_file *opened = source->handles[file];
    assert_int_equal(fstat(opened->fd, &status), 0);
    assert_int_equal(source->caps.device_id, status.st_dev);
    assert_true(source->caps.residency && source->caps.filesystem_type[0]);
    assert_int_equal(source->caps.direct_reads, opened->direct_fd >= 0);
    uint32_t alignment = source->caps.direct_offset_alignment;
    assert_true(!source->caps.direct_reads || (alignment && (alignment & (alignment - 1)) == 0));
    source_unref(source);
}

TEST(known_filesystems_of_this_host_count_as_local)
{
    static const struct {
        long magic;
        const char *name;
        enum source_filesystem kind;
    } cases[] = {
        {0xEF53, "ext4", SOURCE_LOCAL},
        {0x58465342, "xfs", SOURCE_LOCAL},
        {(long)0x9123683E, "btrfs", SOURCE_LOCAL},
        {0x2FC12FC1, "zfs", SOURCE_LOCAL},
        {0x01021994, "tmpfs", SOURCE_LOCAL},
        {0x6969, "nfs", SOURCE_NETWORK},
        {0x65735546, "fuse", SOURCE_NETWORK},
        {0x73717368, "squashfs", SOURCE_LOCAL},
        {(long)0xE0F5E1E2, "erofs", SOURCE_LOCAL},
        {0x12345, "0x12345", SOURCE_NETWORK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct filesystem_traits traits = filesystem_traits(cases[i].magic);
        assert_int_equal(traits.kind, cases[i].kind);
        assert_string_equal(traits.name, cases[i].name);
    }
}

TEST(memory_sources_behave_like_files)
{
    char **names, bytes[4] = "";
    size_t n_names, a, b;
    struct source *source;
    source_memory_put("m", "b", "bbb", 3);
    source_memory_put("m", "a", "aaa", 3);
    source_memory_put("other", "c", "ccc", 3);
    assert_int_equal(source_open("memory:m", &confined, &source, &error), 0);
    assert_int_equal(source_list(source, NULL, &names, &n_names, &error), 0);
    assert_int_equal(n_names, 2);
    assert_string_equal(names[0], "a");
    free(names[0]);
    free(names[1]);
    free(names);
    assert_int_equal(source_add_file(source, "c", &a, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_true(source_add_file(source, "a", &a, &error) == 0 && source_add_file(source, "b", &b, &error) == 0);
    source_memory_put("m", "a", "AAA", 3);
    assert_int_equal(source_check_unchanged(source, a, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_int_equal(source_check_unchanged(source, b, &error), 0);
    struct iovec iov[] = {{bytes, 1}, {bytes + 1, 2}};
    struct source_read read = {.file = a, .iov = iov, .n_iov = 2};
    assert_int_equal(source_read(source, &read, &error), 0);
    assert_string_equal(bytes, "aaa"); /* what was opened */
    assert_int_equal(source_resident_bytes(source, a, 0, 3), 0);
    source_memory_clear();
    source_unref(source);
}

TESTS_IN(create, destroy)
