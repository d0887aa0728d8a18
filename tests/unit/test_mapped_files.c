/* Part files that are opened to be handed out, on the operator's word: descriptors, and what they are charged to. */
#include "tests/support/unit.h"

#include "base/metadata.h"
#include "replica/mapped_files.h"
#include "tests/support/model_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

TEST_IN(each_file_gets_a_read_only_descriptor_of_its_own, set_up, tear_down)
{
    struct mapped_files *files;
    struct error error;
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

TEST_IN(a_view_without_bytes_needs_no_file_and_claims_no_proof, set_up, tear_down)
{
    const struct slice none = {0, 0};
    const struct view_item item = {.name = "a", .name_length = 1, .slices = &none, .n_slices = 1};
    struct mapped_files *files;
    struct error error;
    resolve_view(&(struct view_spec){.items = &item, .n_items = 1, .align_bytes = 64}, NULL, 0);
    assert_int_equal(mapped_files_open(mapping, &files, &error), 0);
    assert_int_equal(files->view->n_files, 0);
    assert_int_equal(files->proof, IMMUTABLE_BY_NOTHING);
    assert_string_equal(immutability_name(files->proof), "");
    mapped_files_close(files);
}

TEST_IN(descriptors_are_charged_until_they_were_sent, set_up, tear_down)
{
    struct mapped_files *files;
    struct error error;
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

TEST_IN(a_file_that_can_change_is_named_and_nothing_stays_open, set_up, tear_down)
{
    char file[MODEL_PATH_CHARS];
    const char *only_one[] = {model_dir_path(root, "a.safetensors", file)};
    struct mapped_files *files;
    struct error error;
    resolve(only_one, 1); /* a root that is a file has nothing below it */
    size_t n_open = open_descriptors();
    assert_int_equal(mapped_files_open(mapping, &files, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "a.safetensors can change"));
    assert_int_equal(open_descriptors(), n_open);
}

TEST_IN(too_few_descriptors_open_nothing, set_up, tear_down)
{
    struct mapped_files *files;
    struct error error;
    resolve(roots, 1);
    uint64_t before = quota_taken(quota, QUOTA_DESCRIPTORS);
    quota_set_limits(quota, QUOTA_DESCRIPTORS, before + 1, 0);
    assert_int_equal(mapped_files_open(mapping, &files, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(quota_taken(quota, QUOTA_DESCRIPTORS), before);
}

TEST_IN(a_process_without_descriptors_opens_nothing, set_up, tear_down)
{
    struct mapped_files *files;
    struct rlimit limit, none;
    struct error error;
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

enum { KiB = 1 << 10, MAX_RANGES = 1 << 16 };

static struct page_ranges ranges;

static void build(const struct plan_step *steps, size_t n)
{
    struct plan_step copy[8];
    for (size_t i = 0; i < n; i++)
        copy[i] = steps[i];
    struct plan plan = {.steps = copy, .n_steps = n};
    struct error error;
    metadata_free(ranges.list);
    assert_int_equal(page_ranges_build(&plan, &ranges, &error), 0);
}

static void is_range(size_t i, uint32_t file, uint64_t offset, uint64_t bytes)
{
    assert_true(i < ranges.n);
    assert_int_equal(ranges.list[i].file, file);
    assert_int_equal(ranges.list[i].offset, offset);
    assert_int_equal(ranges.list[i].bytes, bytes);
}

TEST(neighbours_are_one_range_and_files_are_apart)
{
    const struct plan_step steps[] = {{.offset = 100, .bytes = 200 * KiB, .count = 1, .file = 0},
                                      {.offset = 100 + 300 * KiB, .bytes = 100 * KiB, .count = 1, .file = 0},
                                      {.offset = 0, .bytes = 70 * KiB, .count = 1, .file = 1}};
    build(steps, 3);
    assert_int_equal(ranges.n, 2);
    is_range(0, 0, 100, 400 * KiB);
    is_range(1, 1, 0, 70 * KiB);
    assert_int_equal(ranges.bytes, 470 * KiB);
}

TEST(rows_that_are_close_are_one_piece)
{
    const struct plan_step steps[] = {{.offset = 0, .bytes = 4 * KiB, .count = 100, .stride = 32 * KiB}};
    build(steps, 1);
    assert_int_equal(ranges.n, 1);
    is_range(0, 0, 0, 99 * 32 * KiB + 4 * KiB);
}

TEST(small_rows_far_apart_are_left_to_faults)
{
    const struct plan_step steps[] = {{.offset = 0, .bytes = 4 * KiB, .count = 100, .stride = 1024 * KiB},
                                      {.offset = 200 * 1024 * KiB, .bytes = 60 * KiB, .count = 1}};
    build(steps, 2);
    assert_int_equal(ranges.n, 0);
    assert_int_equal(ranges.bytes, 0);
}

TEST(large_rows_far_apart_are_ranges_each)
{
    const struct plan_step steps[] = {{.offset = 7, .bytes = 64 * KiB, .count = 3, .stride = 1024 * KiB}};
    build(steps, 1);
    assert_int_equal(ranges.n, 3);
    is_range(2, 0, 7 + 2 * 1024 * KiB, 64 * KiB);
}

TEST(ranges_without_end_are_left_to_faults)
{
    struct plan_step step = {.bytes = 64 * KiB, .count = MAX_RANGES, .stride = 1024 * KiB};
    build(&step, 1);
    assert_int_equal(ranges.n, MAX_RANGES);
    step.count++;
    build(&step, 1);
    assert_int_equal(ranges.n, MAX_RANGES);
}

TEST(a_user_who_has_too_much_metadata_gets_none)
{
    const struct plan_step step = {.bytes = 64 * KiB, .count = MAX_RANGES, .stride = 1024 * KiB};
    struct plan_step copy = step;
    struct plan plan = {.steps = &copy, .n_steps = 1};
    struct quota *few = quota_create();
    struct error error;
    quota_set_limits(few, QUOTA_METADATA, 8 * KiB, 0);
    metadata_enter((struct metadata_account){.quota = few, .uid = 7});
    metadata_free(ranges.list);
    assert_int_equal(page_ranges_build(&plan, &ranges, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_null(ranges.list);
    assert_int_equal(quota_taken(few, QUOTA_METADATA), 0);
    metadata_enter((struct metadata_account){0});
    quota_destroy(few);
}

static int close_page_ranges(void **state)
{
    (void)state;
    metadata_free(ranges.list);
    return 0;
}

TESTS_IN(NULL, close_page_ranges)
