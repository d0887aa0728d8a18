/* Reading everything and summing it: what a manifest says, and what is found damaged. */
#include "tests/support/unit.h"

#include "base/crc.h"
#include "integrity/scrub.h"
#include "tests/support/load_scene.h"

enum { N_FILES = 2 };

static struct load_scene scene;
static struct source_fault *source;
static struct artifact artifact;

/* File 0 has 21 MB in t.0, t.2 and t.4, so several pieces; file 1 has 8 MB in t.1, t.3 and the empty t.5. */
static int open_scene(void **state)
{
    (void)state;
    scene_init(&scene, 11, 8 << 20, 1, 0);
    scene_add_tensor(&scene, 1, (uint64_t[]){9000001});
    scene_add_tensor(&scene, 1, (uint64_t[]){5});
    scene_add_tensor(&scene, 1, (uint64_t[]){3});
    scene_add_tensor(&scene, 1, (uint64_t[]){8000000});
    scene_add_tensor(&scene, 1, (uint64_t[]){12000000});
    scene_add_tensor(&scene, 1, (uint64_t[]){0});
    scene_write(&scene, N_FILES, false);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    scene_fini(&scene);
    return 0;
}

static int open_source(void **state)
{
    (void)state;
    source = source_fault_create(source_ref(scene.artifact->source));
    artifact = *scene.artifact;
    artifact.source = &source->base;
    return 0;
}

static int close_source(void **state)
{
    (void)state;
    source_unref(&source->base);
    return 0;
}

static struct checksum sum_of(enum checksum_kind kind, size_t file)
{
    struct checksum_stream sum;
    assert_true(checksum_start(&sum, kind));
    checksum_add(&sum, scene.images[file], scene.image_bytes[file]);
    return checksum_finish(&sum);
}

static struct scrub *scrub(bool for_manifest)
{
    struct scrub_options options = {.artifact = &artifact, .for_manifest = for_manifest};
    struct error error;
    struct scrub *done = scrub_run(&options, &error);
    if (!done)
        fail_msg("%s", error.message);
    return done;
}

/* Of all files, or of none. */
static struct manifest *manifest_of(const struct scrub *done)
{
    struct error error;
    char *json = scrub_manifest_json(done, &error);
    struct manifest *manifest = manifest_parse(json, strlen(json), &error);
    if (!manifest)
        fail_msg("%s", error.message);
    free(json);
    return manifest;
}

TEST_IN(a_manifest_says_what_the_bytes_are, open_source, close_source)
{
    struct scrub *done = scrub(true);
    struct manifest *manifest = manifest_of(done);
    assert_int_equal(manifest->n_files, N_FILES);
    for (size_t f = 0; f < N_FILES; f++) {
        const struct manifest_file *file = &manifest->files[f];
        struct checksum crc = sum_of(CHECKSUM_CRC32C, f), sha = sum_of(CHECKSUM_SHA256, f);
        uint64_t last = (file->n_blocks - 1) * manifest->block_bytes;
        assert_int_equal(file->bytes, scene.image_bytes[f]);
        assert_true(checksum_equal(&file->crc32c, &crc));
        assert_true(checksum_equal(&file->sha256, &sha));
        assert_int_equal(file->blocks[0], crc32c_update(0, scene.images[f], manifest->block_bytes));
        assert_int_equal(file->blocks[file->n_blocks - 1],
                         crc32c_update(0, scene.images[f] + last, scene.image_bytes[f] - last));
    }
    assert_int_equal(manifest->n_tensors, artifact.n_tensors);
    for (size_t i = 0; i < artifact.n_tensors; i++) {
        const struct tensor_record *tensor = &artifact.tensors[i];
        const struct tensor_piece *piece = artifact_piece(&artifact, tensor, 0);
        const struct manifest_tensor *known = manifest_find_tensor(manifest, tensor->name, tensor->name_length);
        assert_int_equal(known->crc32c, crc32c_update(0, scene.images[piece->file] + piece->offset, tensor->bytes));
    }
    manifest_unref(manifest);
    scrub_destroy(done);
}

TEST_IN(what_nothing_is_known_of_is_not_read, open_source, close_source)
{
    struct scrub *done = scrub(false);
    assert_int_equal(source->n_reads, 0);
    assert_string_equal(scrub_status(&done->files[0]), "unverified");
    assert_null(scrub_damage(done));
    scrub_destroy(done);
}

TEST_IN(every_checksum_of_a_store_is_compared, open_source, close_source)
{
    static const enum checksum_kind kinds[][2] = {
        {CHECKSUM_CRC32C, CHECKSUM_MD5}, {CHECKSUM_CRC64NVME, CHECKSUM_SHA256}, {CHECKSUM_CRC32, CHECKSUM_NONE}};
    static const char *const names[] = {"crc32c + md5", "crc64nvme + sha256", "crc32"};
    char by[SCRUB_BY_CHARS];
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < CHECKSUM_PER_FILE; k++)
            source->base.files[1].checksums[k] =
                kinds[i][k] ? sum_of(kinds[i][k], 1) : (struct checksum){.kind = CHECKSUM_NONE};
        struct scrub *done = scrub(false);
        assert_string_equal(scrub_status(&done->files[0]), "unverified");
        assert_string_equal(scrub_status(&done->files[1]), "verified");
        assert_string_equal(scrub_by(&done->files[1], by), names[i]);
        scrub_destroy(done);
    }
}

static void assert_damage(const struct scrub *done, const char *file, const char *what)
{
    const struct error *damage = scrub_damage(done);
    assert_non_null(damage);
    assert_int_equal(damage->code, ERROR_DATA_LOSS);
    if (!strstr(damage->message, file) || !strstr(damage->message, what))
        fail_msg("%s", damage->message);
}

TEST_IN(a_wrong_byte_is_found_and_named_by_its_block, open_source, close_source)
{
    struct scrub *first = scrub(true);
    struct manifest *manifest = manifest_of(first);
    scrub_destroy(first);
    artifact.manifest = manifest;
    source->wrong_byte = 9000000; /* in block 2 */
    source->wrong_times = UINT64_MAX;
    struct scrub *done = scrub(false);
    assert_string_equal(scrub_status(&done->files[0]), "damaged");
    assert_damage(done, "part0.safetensors", "bytes 8388608 to 12582912");
    assert_string_equal(scrub_status(&done->files[1]), "verified");
    assert_true(source->n_fresh > 0);
    scrub_destroy(done);
    manifest_unref(manifest);
}

TEST_IN(a_byte_that_was_wrong_once_is_no_damage, open_source, close_source)
{
    source->base.files[0].checksums[0] = sum_of(CHECKSUM_SHA256, 0);
    source->wrong_byte = 20000000;
    source->wrong_times = 1;
    struct scrub *done = scrub(false);
    assert_string_equal(scrub_status(&done->files[0]), "verified");
    assert_true(done->files[0].healed);
    scrub_destroy(done);
}

TEST_IN(a_byte_that_is_wrong_in_many_ways_names_its_piece, open_source, close_source)
{
    source->base.files[0].checksums[0] = sum_of(CHECKSUM_SHA256, 0);
    source->wrong_byte = 20000000;
    source->wrong_times = UINT64_MAX;
    source->wrong_differently = true;
    struct scrub *done = scrub(false);
    assert_damage(done, "part0.safetensors", "bytes 16777216 to ");
    assert_damage(done, "part0.safetensors", "came differently");
    scrub_destroy(done);
}

TEST_IN(a_manifest_of_another_file_is_damage, open_source, close_source)
{
    struct scrub *first = scrub(true);
    struct manifest *manifest = manifest_of(first);
    scrub_destroy(first);
    manifest->files[0].bytes--;
    artifact.manifest = manifest;
    struct scrub *done = scrub(false);
    assert_damage(done, "part0.safetensors", "by its manifest");
    scrub_destroy(done);
    manifest_unref(manifest);
}

TEST_IN(a_read_that_fails_ends_it, open_source, close_source)
{
    struct scrub_options options = {.artifact = &artifact, .for_manifest = true};
    struct error error;
    for (uint64_t n = 1; n <= 4; n++) {
        source->n_reads = 0;
        source->fail_from = n;
        source->fail_code = ERROR_UNAVAILABLE;
        assert_null(scrub_run(&options, &error));
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
    }
}

static bool always(void *data)
{
    (void)data;
    return true;
}

TEST_IN(it_can_be_cancelled, open_source, close_source)
{
    const struct cancel cancel = {always, NULL};
    struct scrub_options options = {.artifact = &artifact, .for_manifest = true, .cancel = &cancel};
    struct error error;
    assert_null(scrub_run(&options, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_int_equal(source->n_reads, 0);
}

TEST_IN(it_tells_how_far_it_is, open_source, close_source)
{
    uint64_t done_bytes = 0;
    struct scrub_options options = {.artifact = &artifact, .for_manifest = true, .done_bytes = &done_bytes};
    struct error error;
    scrub_destroy(scrub_run(&options, &error));
    assert_int_equal(done_bytes, scene.image_bytes[0] + scene.image_bytes[1]);
    assert_int_equal(scrub_total_bytes(&options), done_bytes);
}

TESTS_IN(open_scene, close_scene)
