/* Part files that are opened to be handed out, on the operator's word: descriptors, and what they are charged to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/metadata.h"
#include "replica/mapped_files.h"
#include "tests/support/model_dir.h"

#include <cmocka.h>

static char root[MODEL_PATH_CHARS];
static const char *const roots[] = {root};
static struct quota *quota;
static struct artifact *artifact;
static struct mapping *mapping;

static void resolve_view(const struct view_spec *view, const char *const *immutable_roots, size_t n)
{
    const struct source_options options = {
        .trusted_roots = roots, .n_trusted_roots = 1, .immutable_roots = immutable_roots, .n_immutable_roots = n};
    char reference[MODEL_PATH_CHARS + 8];
    struct error error;
    snprintf(reference, sizeof reference, "disk:%s", root);
    if (artifact_resolve(reference, &options, NULL, 0, &artifact, &error) != 0)
        fail_msg("%s", error.message);
    mapping = mapping_build(view, artifact, &error);
    assert_non_null(mapping);
}

static void resolve(const char *const *immutable_roots, size_t n)
{
    resolve_view(&(struct view_spec){.whole = true, .align_bytes = 64}, immutable_roots, n);
}

static int set_up(void **state)
{
    (void)state;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}", 16);
    model_dir_safetensors(root, "b.safetensors", "{\"b\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}}", 16);
    quota = quota_create();
    metadata_enter((struct metadata_account){.quota = quota, .uid = 7});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mapping_destroy(mapping);
    artifact_unref(artifact);
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
    model_dir_destroy(root);
    return 0;
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void each_file_gets_a_read_only_descriptor_of_its_own(void **state)
{
    struct mapped_files *files;
    struct error error;
    (void)state;
    resolve(roots, 1);
    assert_int_equal(mapped_files_open(mapping, &files, &error), 0);
    assert_int_equal(files->view->n_files, 2);
    assert_int_equal(files->proof, IMMUTABLE_BY_ROOT);
    for (size_t i = 0; i < 2; i++) {
        struct stat status;
        assert_int_equal(fcntl(files->fds[i], F_GETFL) & O_ACCMODE, O_RDONLY);
        assert_int_equal(fstat(files->fds[i], &status), 0);
        assert_int_equal(status.st_ino, artifact->source->files[i].identity.inode);
        assert_int_equal(fcntl(files->fds[i], F_GETLEASE), F_UNLCK); /* the daemon's lease is not on it */
    }
    mapped_files_close(files);
}

static void a_view_without_bytes_needs_no_file_and_claims_no_proof(void **state)
{
    const struct slice none = {0, 0};
    const struct view_item item = {.name = "a", .name_length = 1, .slices = &none, .n_slices = 1};
    struct mapped_files *files;
    struct error error;
    (void)state;
    resolve_view(&(struct view_spec){.items = &item, .n_items = 1, .align_bytes = 64}, NULL, 0);
    assert_int_equal(mapped_files_open(mapping, &files, &error), 0);
    assert_int_equal(files->view->n_files, 0);
    assert_int_equal(files->proof, IMMUTABLE_BY_NOTHING);
    assert_string_equal(immutability_name(files->proof), "");
    mapped_files_close(files);
}

static void descriptors_are_charged_until_they_were_sent(void **state)
{
    struct mapped_files *files;
    struct error error;
    (void)state;
    resolve(roots, 1);
    uint64_t before = quota_taken(quota, QUOTA_DESCRIPTORS);
    size_t n_open = open_descriptors();
    assert_int_equal(mapped_files_open(mapping, &files, &error), 0);
    assert_int_equal(quota_taken(quota, QUOTA_DESCRIPTORS), before + 2);
    mapped_files_sent(files, 1);
    assert_int_equal(quota_taken(quota, QUOTA_DESCRIPTORS), before + 1);
    assert_int_equal(files->fds[0], -1);
    mapped_files_close(files);
    assert_int_equal(quota_taken(quota, QUOTA_DESCRIPTORS), before);
    assert_int_equal(open_descriptors(), n_open);
}

static void a_file_that_can_change_is_named_and_nothing_stays_open(void **state)
{
    char file[MODEL_PATH_CHARS];
    const char *only_one[] = {model_dir_path(root, "a.safetensors", file)};
    struct mapped_files *files;
    struct error error;
    (void)state;
    resolve(only_one, 1); /* a root that is a file has nothing below it */
    size_t n_open = open_descriptors();
    assert_int_equal(mapped_files_open(mapping, &files, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "a.safetensors can change"));
    assert_int_equal(open_descriptors(), n_open);
}

static void too_few_descriptors_open_nothing(void **state)
{
    struct mapped_files *files;
    struct error error;
    (void)state;
    resolve(roots, 1);
    uint64_t before = quota_taken(quota, QUOTA_DESCRIPTORS);
    quota_set_limits(quota, QUOTA_DESCRIPTORS, before + 1, 0);
    assert_int_equal(mapped_files_open(mapping, &files, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(quota_taken(quota, QUOTA_DESCRIPTORS), before);
}

static void a_process_without_descriptors_opens_nothing(void **state)
{
    struct mapped_files *files;
    struct rlimit limit, none;
    struct error error;
    (void)state;
    resolve(roots, 1);
    size_t n_open = open_descriptors();
    int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = (rlim_t)next + 1; /* for the first file */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int failed = mapped_files_open(mapping, &files, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(failed, -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(open_descriptors(), n_open);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(each_file_gets_a_read_only_descriptor_of_its_own),
        IN_FOLDER(a_view_without_bytes_needs_no_file_and_claims_no_proof),
        IN_FOLDER(descriptors_are_charged_until_they_were_sent),
        IN_FOLDER(a_file_that_can_change_is_named_and_nothing_stays_open),
        IN_FOLDER(too_few_descriptors_open_nothing),
        IN_FOLDER(a_process_without_descriptors_opens_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
