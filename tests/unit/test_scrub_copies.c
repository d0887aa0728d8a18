/* What is stored more than once is compared byte for byte; which file is damaged, and which came wrong only once. */
#include "tests/support/unit.h"

#include "integrity/scrub.h"
#include "tests/support/source_memory.h"
#include "tests/support/layout_scene.h"
#include "tests/support/source_fault.h"

static struct artifact *resolved, artifact;
static struct source_fault *source;

/* s in three files, of 9 MiB: more than is compared at once. The bytes of a file count up from `first`, so those of s are the same
 * only where they begin alike. */
static void open_artifact(unsigned char first_of_last)
{
    layout_put_text("m", "topology.json",
                    "{\"tensors\":{\"s\":{\"type\":\"Shared\",\"shape\":[9,1048576],\"dtype\":\"U8\"},"
                    "\"a\":{\"type\":\"Shared\",\"shape\":[4],\"dtype\":\"U8\",\"filename_index\":0}},"
                    "\"filenames\":[\"f0\",\"f1\",\"f2\"],\"world_size\":3}");
    layout_put("m", "f0", "s U8 9,1048576; a U8 4", NULL, 7);
    layout_put("m", "f1", "s U8 9,1048576", NULL, 7);
    layout_put("m", "f2", "s U8 9,1048576", NULL, first_of_last);
    resolved = layout_resolve("m", 0);
    source = source_fault_create(source_ref(resolved->source));
    artifact = *resolved;
    artifact.source = &source->base;
}

static int close_artifact(void **state)
{
    (void)state;
    source_unref(&source->base);
    artifact_unref(resolved);
    source_memory_clear();
    return 0;
}

static struct scrub *scrub(void)
{
    struct error error;
    struct scrub *done = scrub_run(&(struct scrub_options){.artifact = &artifact}, &error);
    if (!done)
        fail_msg("%s", error.message);
    return done;
}

TEST_IN(copies_that_are_the_same_are_no_damage, NULL, close_artifact)
{
    uint64_t done_bytes = 0;
    struct scrub_options options = {.artifact = &artifact, .done_bytes = &done_bytes};
    struct error error;
    open_artifact(7);
    struct scrub *done = scrub_run(&options, &error);
    assert_non_null(done);
    assert_null(scrub_damage(done));
    assert_int_equal(done_bytes, 2 * 9 << 20); /* each copy but the first */
    assert_int_equal(scrub_total_bytes(&options), done_bytes);
    scrub_destroy(done);
}

TEST_IN(a_copy_that_differs_is_named_with_the_other_file, NULL, close_artifact)
{
    open_artifact(8);
    struct scrub *done = scrub();
    assert_int_equal(done->files[0].error.code + done->files[1].error.code, 0);
    const struct error *damage = scrub_damage(done);
    assert_int_equal(damage->code, ERROR_DATA_LOSS);
    assert_string_equal(damage->reason, "COPIES_DIFFER");
    assert_non_null(strstr(damage->message, "f2: bytes "));
    assert_non_null(strstr(damage->message, "tensor s, are not the same as its copy in f0"));
    assert_string_equal(scrub_status(&done->files[2]), "damaged");
    scrub_destroy(done);
}

TEST_IN(one_byte_in_the_last_part_is_seen, NULL, close_artifact)
{
    open_artifact(7);
    source->wrong_file = 1;
    source->wrong_byte = artifact.source->files[1].size_bytes - 1;
    source->wrong_times = UINT64_MAX;
    struct scrub *done = scrub();
    assert_int_equal(done->files[1].error.code, ERROR_DATA_LOSS);
    assert_int_equal(done->files[2].error.code, ERROR_OK);
    scrub_destroy(done);
}

TEST_IN(what_came_wrong_once_is_read_again, NULL, close_artifact)
{
    open_artifact(7);
    source->wrong_file = 1;
    source->wrong_byte = artifact.source->files[1].size_bytes - 1;
    source->wrong_times = 1;
    struct scrub *done = scrub();
    assert_null(scrub_damage(done));
    assert_int_equal(source->n_fresh, 2); /* both copies */
    scrub_destroy(done);
}

TEST_IN(a_read_that_fails_ends_the_comparison, NULL, close_artifact)
{
    struct error error;
    open_artifact(7);
    source->fail_from = 3;
    source->fail_count = 1;
    source->fail_code = ERROR_UNAVAILABLE;
    assert_null(scrub_run(&(struct scrub_options){.artifact = &artifact}, &error));
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
}

static bool always(void *data)
{
    (void)data;
    return true;
}

TEST_IN(comparing_can_be_cancelled, NULL, close_artifact)
{
    const struct cancel cancel = {always, NULL};
    struct error error;
    open_artifact(7);
    assert_null(scrub_run(&(struct scrub_options){.artifact = &artifact, .cancel = &cancel}, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_int_equal(source->n_reads, 0);
}
