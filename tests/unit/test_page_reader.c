/* The page cache, filled on a helper: ahead, awaited, locked within a budget, and given up. */
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/metadata.h"
#include "replica/page_reader.h"
#include "tests/support/model_dir.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

enum { DATA_BYTES = 1 << 20 };

static struct {
    char root[MODEL_PATH_CHARS];
    struct loop *loop;
    struct artifact *artifact;
    struct quota *quota;
    enum error_kind error_kind;
    bool is_done, mlock_fails;
    size_t n_populated;
} scene;

int mlock2(const void *address, size_t bytes, unsigned flags)
{
    int (*real)(const void *, size_t, unsigned) = (int (*)(const void *, size_t, unsigned))dlsym(RTLD_NEXT, "mlock2");
    errno = ENOMEM;
    return scene.mlock_fails ? -1 : real(address, bytes, flags);
}

int madvise(void *address, size_t bytes, int advice)
{
    int (*real)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    scene.n_populated += advice == MADV_POPULATE_READ;
    return real(address, bytes, advice);
}

static int set_up(void **state)
{
    const char *root = scene.root;
    char reference[MODEL_PATH_CHARS + 8];
    struct error error;
    (void)state;
    memset(&scene, 0, sizeof scene);
    model_dir_create(scene.root);
    model_dir_safetensors(scene.root, "a.safetensors",
                          "{\"a\":{\"dtype\":\"U8\",\"shape\":[1048576],\"data_offsets\":[0,1048576]}}", DATA_BYTES);
    const struct source_options options = {.trusted_roots = &root, .n_trusted_roots = 1};
    snprintf(reference, sizeof reference, "disk:%s", scene.root);
    if (artifact_resolve(reference, &options, NULL, 0, &scene.artifact, &error) != 0)
        fail_msg("%s", error.message);
    scene.loop = loop_create();
    scene.quota = quota_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_destroy(scene.loop);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        assert_int_equal(quota_taken(scene.quota, kind), 0);
    quota_destroy(scene.quota);
    artifact_unref(scene.artifact);
    model_dir_destroy(scene.root);
    return 0;
}

static uint64_t resident(void)
{
    return source_resident_bytes(scene.artifact->source, 0, 0, DATA_BYTES);
}

/* Out of the page cache, where the file system has one of its own. */
static bool evict(void)
{
    char path[MODEL_PATH_CHARS];
    int fd = open(model_dir_path(scene.root, "a.safetensors", path), O_RDONLY);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return resident() == 0;
}

static void on_done(void *data, const struct error *error)
{
    scene.error_kind = error ? error->kind : 0;
    scene.is_done = true;
    loop_stop(data);
}

static struct page_reader *start_as(uid_t uid, bool is_awaited, uint64_t lock_budget_bytes)
{
    struct error error;
    quota_set_limits(scene.quota, QUOTA_LOCKED, lock_budget_bytes, 0);
    struct page_range *list = metadata_array(1, sizeof *list, &error);
    *list = (struct page_range){.offset = 0, .bytes = DATA_BYTES};
    const struct page_reading reading = {.loop = scene.loop,
                                         .artifact = scene.artifact,
                                         .ranges = {list, 1, DATA_BYTES},
                                         .uid = uid,
                                         .is_awaited = is_awaited,
                                         .quota = scene.quota,
                                         .done = on_done,
                                         .data = scene.loop};
    struct page_reader *reader = page_reader_start(&reading, &error);
    assert_non_null(reader);
    return reader;
}

static struct page_reader *start(bool is_awaited, uint64_t lock_budget_bytes)
{
    return start_as(getuid(), is_awaited, lock_budget_bytes);
}

static void await(void)
{
    scene.is_done = false;
    loop_run(scene.loop);
    assert_true(scene.is_done);
}

static struct page_reader *run_as(uid_t uid, bool is_awaited, uint64_t lock_budget_bytes)
{
    struct page_reader *reader = start_as(uid, is_awaited, lock_budget_bytes);
    await();
    assert_int_equal(scene.error_kind, 0);
    assert_int_equal(page_reader_done_bytes(reader), DATA_BYTES);
    return reader;
}

static struct page_reader *run(bool is_awaited, uint64_t lock_budget_bytes)
{
    return run_as(getuid(), is_awaited, lock_budget_bytes);
}

/* What this process has locked. */
static uint64_t locked(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmLck: %lu", &kib) == 1)
            break;
    fclose(status);
    return (uint64_t)kib << 10;
}

TEST_IN(what_is_awaited_is_in_the_page_cache, set_up, tear_down)
{
    evict();
    struct page_reader *reader = run(true, 0);
    assert_int_equal(resident(), DATA_BYTES);
    assert_int_equal(page_reader_locked_bytes(reader), 0);
    assert_int_equal(locked(), 0);
    page_reader_end(reader);
}

TEST_IN(ahead_the_device_is_asked_only_for_what_is_not_there, set_up, tear_down)
{
    bool is_cold = evict();
    page_reader_end(run(false, 0));
    assert_int_equal(scene.n_populated, is_cold ? 1 : 0);
    page_reader_end(run(true, 0));
    scene.n_populated = 0;
    page_reader_end(run(false, 0));
    assert_int_equal(scene.n_populated, 0);
}

TEST_IN(pages_are_locked_until_the_end, set_up, tear_down)
{
    struct page_reader *reader = run(true, DATA_BYTES);
    assert_int_equal(page_reader_locked_bytes(reader), DATA_BYTES);
    assert_int_equal(locked(), DATA_BYTES);
    page_reader_end(reader);
    loop_destroy(scene.loop); /* waits for the helper that unlocks */
    assert_int_equal(locked(), 0);
    scene.loop = loop_create();
}

TEST_IN(what_does_not_fit_the_budget_in_full_is_read_and_not_locked, set_up, tear_down)
{
    struct page_reader *one = run(true, 2 * DATA_BYTES - 1), *other = run(true, 2 * DATA_BYTES - 1);
    assert_int_equal(page_reader_locked_bytes(one), DATA_BYTES);
    assert_int_equal(page_reader_locked_bytes(other), 0);
    page_reader_end(one);
    page_reader_end(other);
    loop_destroy(scene.loop);
    scene.loop = loop_create();
    one = run(true, DATA_BYTES); /* what was given back can be had again */
    assert_int_equal(page_reader_locked_bytes(one), DATA_BYTES);
    page_reader_end(one);
}

/* Of ten there is always one left for others; root and the daemon's user take the last. */
TEST_IN(a_user_leaves_locked_pages_to_others_and_root_takes_the_last, set_up, tear_down)
{
    static const uid_t uids[] = {70001, 70001, 70001, 70002, 70003, 0};
    static const bool may[] = {true, true, false, true, false, true};
    struct page_reader *readers[6];
    for (size_t i = 0; i < 6; i++) {
        quota_set_kept(scene.quota, 30);
        readers[i] = run_as(uids[i], true, 4 * DATA_BYTES);
        assert_int_equal(page_reader_locked_bytes(readers[i]), may[i] ? DATA_BYTES : 0);
    }
    assert_int_equal(quota_taken(scene.quota, QUOTA_LOCKED), 4 * DATA_BYTES);
    for (size_t i = 0; i < 6; i++)
        page_reader_end(readers[i]);
    loop_destroy(scene.loop);
    scene.loop = loop_create();
    assert_int_equal(quota_taken(scene.quota, QUOTA_LOCKED), 0);
}

TEST_IN(without_metadata_for_its_windows_it_fails, set_up, tear_down)
{
    quota_set_limits(scene.quota, QUOTA_METADATA, 16, 0);
    struct page_reader *reader = start(true, DATA_BYTES);
    await();
    assert_int_equal(scene.error_kind, ERROR_KIND_METADATA_EXCEEDED);
    assert_int_equal(page_reader_done_bytes(reader), 0);
    page_reader_end(reader);
}

TEST_IN(pages_that_may_not_be_locked_are_read_all_the_same, set_up, tear_down)
{
    evict();
    scene.mlock_fails = true;
    struct page_reader *reader = run(true, DATA_BYTES);
    assert_int_equal(resident(), DATA_BYTES);
    assert_int_equal(page_reader_locked_bytes(reader), 0);
    page_reader_end(reader);
}

TEST_IN(who_ends_it_early_is_not_told, set_up, tear_down)
{
    struct page_reader *reader = start(true, DATA_BYTES);
    page_reader_end(reader);
    page_reader_end(NULL);
    loop_destroy(scene.loop);
    assert_false(scene.is_done);
    assert_int_equal(locked(), 0);
    assert_int_equal(scene.artifact->references, 1);
    scene.loop = loop_create();
}
