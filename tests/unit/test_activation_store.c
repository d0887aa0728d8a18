/* Runs of segments are named in one way, and the hosts of a store are those that have a folder. */
#include "tests/support/unit.h"

#include <sys/stat.h>

#include "base/metadata.h"
#include "resolve/activation_store.h"
#include "tests/support/model_dir.h"

static char folder[MODEL_PATH_CHARS];

static int set_up(void **state)
{
    (void)state;
    model_dir_create(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    model_dir_destroy(folder);
    return 0;
}

static void make_folder(const char *name)
{
    char path[MODEL_PATH_CHARS + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static char *reference_of(const char *name, char *reference, size_t room)
{
    snprintf(reference, room, "disk:%s%s", folder, name);
    return reference;
}

TEST(a_run_is_two_numbers_of_segments_in_their_order)
{
    static const char *const wrong[] = {"disk:/a/segment_000002-000001",
                                        "disk:/a/segment_000000-000001",
                                        "disk:/a/segment_1-2",
                                        "disk:/a/segment_000001-1000000",
                                        "disk:/a/segment_000001-000002x",
                                        "disk:/a/segment_000001-",
                                        "disk:/a/segment_000001",
                                        "disk:/a/segment_000001-000002/",
                                        "segment_000001-000002",
                                        "disk:/a/segment_000001-000002.safetensors"};
    struct activation_run run;
    char *found = activation_parse_run("disk:/a/host_003/segment_000001-999999", &run);
    assert_string_equal(found, "disk:/a/host_003");
    assert_int_equal(run.first, 1);
    assert_int_equal(run.last, ACTIVATION_MAX_SEGMENT);
    free(found);
    found = activation_parse_run("gs://b/segment_000007-000007", &run);
    assert_string_equal(found, "gs://b");
    assert_int_equal(run.first, 7);
    assert_int_equal(run.last, 7);
    free(found);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_null(activation_parse_run(wrong[i], &run));
}

TEST_IN(what_is_opened_is_the_folder_and_the_run_is_told, set_up, tear_down)
{
    char reference[MODEL_PATH_CHARS + 64];
    const char *roots[] = {folder};
    const struct source_options options = {.trusted_roots = roots, .n_trusted_roots = 1};
    struct activation_run run = {0, 0};
    struct source *source;
    struct error error;
    bool is_run;
    make_folder("host_003");
    reference_of("/host_003/segment_000004-000009", reference, sizeof reference);
    assert_int_equal(activation_store_open(reference, &options, &source, &is_run, &run, &error), 0);
    assert_true(is_run);
    assert_int_equal(run.first, 4);
    assert_int_equal(run.last, 9);
    assert_string_equal(strrchr(source->reference, '/'), "/host_003");
    source_unref(source);
    reference_of("/host_003", reference, sizeof reference);
    assert_int_equal(activation_store_open(reference, &options, &source, &is_run, NULL, &error), 0);
    assert_false(is_run);
    source_unref(source);
}

TEST_IN(hosts_are_folders_of_that_name_ascending, set_up, tear_down)
{
    static const char *const names[] = {"host_010", "host_002", "host_1", "host_12345", "claims", "host_100000"};
    char reference[MODEL_PATH_CHARS + 64];
    const char *roots[] = {folder};
    const struct source_options options = {.trusted_roots = roots, .n_trusted_roots = 1};
    uint32_t *hosts;
    size_t n_hosts;
    struct error error;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        make_folder(names[i]);
    assert_int_equal(
        activation_store_hosts(reference_of("", reference, sizeof reference), &options, &hosts, &n_hosts, &error), 0);
    assert_int_equal(n_hosts, 3);
    assert_int_equal(hosts[0], 2);
    assert_int_equal(hosts[1], 10);
    assert_int_equal(hosts[2], 12345);
    metadata_free(hosts);
    assert_int_equal(
        activation_store_hosts(reference_of("/none", reference, sizeof reference), &options, &hosts, &n_hosts, &error), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_null(hosts);
}
