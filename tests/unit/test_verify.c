/* What is compared with what, what is healed, and what is refused: real loads through the engine, from sources that give
 * checksums and sometimes wrong bytes. */
#include "tests/support/unit.h"

#include "base/crc.h"
#include "integrity/verify.h"
#include "resolve/artifact_table.h"
#include "tests/support/load_scene.h"

enum { N_FILES = 2, COLUMNS = SCENE_COLUMNS, BLOCK_BYTES = 64 << 10 };

static struct load_scene scene;

static int open_scene(void **state)
{
    (void)state;
    scene_init_matrices(&scene);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    scene_fini(&scene);
    return 0;
}

static struct checksum sum_of(enum checksum_kind kind, const unsigned char *bytes, uint64_t count)
{
    struct checksum_stream sum;
    assert_true(checksum_start(&sum, kind));
    checksum_add(&sum, bytes, count);
    return checksum_finish(&sum);
}

static struct load *begin(const struct view_spec *view)
{
    return scene_load_create(&scene, view, EXECUTOR_PREFERENCE_AUTO, scene.device);
}

static struct load *begin_whole(void)
{
    return begin(&(struct view_spec){.whole = true, .align_bytes = 64});
}

static struct load *begin_one(const char *name)
{
    return scene_load_create_item(&scene, name, 0, NULL, EXECUTOR_PREFERENCE_AUTO);
}

/* The store of this load gives a checksum for every file. */
static struct load *with_checksums(struct load *load, enum checksum_kind kind, bool remote)
{
    for (size_t i = 0; i < N_FILES; i++)
        load->source->base.files[i].checksums[0] = sum_of(kind, scene.images[i], scene.image_bytes[i]);
    load->source->base.caps.sums_on_the_way = remote;
    return load;
}

static int finish(struct load *load, enum verify_policy policy, struct verdict *verdict, struct error *error)
{
    struct verify_options options = {.mapping = load->mapping, .segment = load->segment, .run = load->run, .policy = policy};
    if (load->run == NULL)
        scene_load_start(load);
    scene_wait(&scene);
    assert_false(load->has_failed);
    options.run = load->run;
    *error = (struct error){0};
    return verify_load(&options, verdict, error);
}

static void assert_verified(struct load *load, const char *by)
{
    struct verdict verdict;
    struct error error;
    if (finish(load, VERIFY_REQUIRED, &verdict, &error))
        fail_msg("%s", error.message);
    assert_int_equal(verdict.status, VERIFIED_ALL);
    assert_string_equal(verdict.by, by);
    assert_string_equal(verdict.reason, "");
    assert_int_equal(verdict.bytes, load->mapping->view_bytes);
    assert_true(load_is_right(load));
}

static void assert_not_verified(struct load *load, const char *reason)
{
    struct verdict verdict;
    struct error error;
    assert_int_equal(finish(load, VERIFY_AUTO, &verdict, &error), 0);
    assert_int_equal(verdict.status, VERIFIED_NOTHING);
    assert_string_equal(verdict.by, "");
    assert_int_equal(verdict.bytes, 0);
    assert_non_null(strstr(verdict.reason, reason));
    assert_int_equal(finish(load, VERIFY_REQUIRED, &verdict, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, "CANNOT_VERIFY");
    assert_non_null(strstr(error.message, reason));
}

static void assert_damaged(struct load *load, const char *file, const char *what)
{
    struct verdict verdict;
    struct error error;
    assert_int_equal(finish(load, VERIFY_AUTO, &verdict, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "CHECKSUM_MISMATCH");
    if (!strstr(error.message, file) || !strstr(error.message, what))
        fail_msg("%s", error.message);
}

/* --- sums on the way --- */

static const enum checksum_kind crcs[] = {CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_CRC64NVME};
static const enum checksum_kind digests[] = {CHECKSUM_SHA256, CHECKSUM_MD5};

TEST(sums_of_ranges_are_held_against_that_of_the_object)
{
    for (size_t i = 0; i < 3; i++) {
        struct load *load = with_checksums(begin_whole(), crcs[i], true);
        assert_verified(load, checksum_kind_name(crcs[i]));
        assert_true(load->source->n_summed > 0);
        assert_int_equal(load->source->n_fresh, 0);
        load_destroy(load);
    }
}

TEST(nothing_is_summed_unless_it_is_asked_for)
{
    struct load *load = begin_whole();
    struct verdict verdict;
    struct error error;
    load->source->base.caps.sums_on_the_way = true;
    assert_not_verified(load, "no checksum");
    assert_int_equal(load->source->n_summed, 0);
    assert_int_equal(finish(load, VERIFY_NONE, &verdict, &error), 0);
    assert_int_equal(verdict.status, VERIFIED_OFF);
    load_destroy(load);
}

TEST(a_part_of_an_object_cannot_be_verified)
{
    struct load *load = with_checksums(begin_one("t.0"), CHECKSUM_CRC32C, true);
    assert_not_verified(load, "part0.safetensors: only part of the file was read");
    load_destroy(load);
}

TEST(parts_of_several_loads_make_a_whole)
{
    struct load *first = with_checksums(begin_one("t.0"), CHECKSUM_CRC32C, true);
    struct load *second = with_checksums(begin_one("t.2"), CHECKSUM_CRC32C, true);
    assert_not_verified(first, "only part of the file was read");
    assert_verified(second, "crc32c");
    assert_verified(first, "crc32c"); /* had it waited */
    load_destroy(first);
    load_destroy(second);
}

TEST(a_file_that_is_not_loaded_does_not_count)
{
    struct view_item items[] = {{"t.0", 3, 0, NULL}, {"t.2", 3, 0, NULL}};
    struct load *load =
        with_checksums(begin(&(struct view_spec){.items = items, .n_items = 2, .align_bytes = 64}), CHECKSUM_CRC32C, true);
    assert_verified(load, "crc32c");
    load_destroy(load);
}

TEST(bytes_that_came_wrong_once_are_healed)
{
    struct load *load = with_checksums(begin_whole(), CHECKSUM_CRC32C, true);
    struct verdict verdict;
    struct error error;
    load->source->wrong_byte = scene.image_bytes[0] - 5000;
    load->source->wrong_times = 1;
    assert_int_equal(finish(load, VERIFY_AUTO, &verdict, &error), 0);
    assert_int_equal(verdict.status, VERIFIED_ALL);
    assert_int_equal(verdict.healed, 1);
    assert_true(load->source->n_fresh > 0);
    assert_true(load_is_right(load));
    load_destroy(load);
}

TEST(bytes_that_stay_wrong_fail_the_load)
{
    struct load *load = with_checksums(begin_whole(), CHECKSUM_CRC64NVME, true);
    load->source->wrong_file = 1;
    load->source->wrong_byte = scene.image_bytes[1] - 1;
    load->source->wrong_times = UINT64_MAX;
    assert_damaged(load, "part1.safetensors", "damaged at its source");
    load_destroy(load);
}

TEST(bytes_that_are_wrong_in_another_way_each_time_name_the_range)
{
    struct load *load = with_checksums(begin_whole(), CHECKSUM_CRC32C, true);
    load->source->wrong_byte = scene.image_bytes[0] - 1;
    load->source->wrong_times = UINT64_MAX;
    load->source->wrong_differently = true;
    assert_damaged(load, "tensor t.2", "something on the way corrupts them");
    load_destroy(load);
}

/* The second load finds a ledger that is right by now, and memory of its own that is not. */
TEST(who_took_wrong_bytes_from_another_load_reads_them_again)
{
    struct load *first = with_checksums(begin_whole(), CHECKSUM_CRC32C, true);
    struct load *second = with_checksums(begin_whole(), CHECKSUM_CRC32C, true);
    struct verdict verdict;
    struct error error;
    first->source->wrong_byte = second->source->wrong_byte = scene.image_bytes[0] - 1;
    first->source->wrong_times = 1;
    scene_load_start(first);
    scene_wait(&scene);
    scene_load_start(second); /* copies from the first */
    scene_wait(&scene);
    assert_false(load_is_right(second));
    assert_int_equal(finish(first, VERIFY_AUTO, &verdict, &error), 0);
    assert_true(load_is_right(first));
    assert_int_equal(finish(second, VERIFY_AUTO, &verdict, &error), 0);
    assert_int_equal(verdict.status, VERIFIED_ALL);
    assert_true(load_is_right(second));
    load_destroy(first);
    load_destroy(second);
}

/* --- a pass over memory --- */

TEST(a_whole_file_in_memory_is_held_against_any_checksum)
{
    for (size_t i = 0; i < 5; i++) {
        enum checksum_kind kind = i < 3 ? crcs[i] : digests[i - 3];
        struct load *load = with_checksums(begin_whole(), kind, i == 3);
        assert_verified(load, checksum_kind_name(kind));
        assert_int_equal(load->source->n_summed, 0);
        load_destroy(load);
    }
}

TEST(a_digest_needs_the_whole_file)
{
    struct load *load = with_checksums(scene_load_create_rows(&scene, "t.0", 0, 5), CHECKSUM_SHA256, true);
    assert_not_verified(load, "only part of the file was loaded, and its checksum is of all of it");
    load_destroy(load);
}

TEST(wrong_bytes_in_memory_are_healed_or_refused)
{
    struct load *once = with_checksums(begin_whole(), CHECKSUM_SHA256, true);
    struct load *always;
    struct verdict verdict;
    struct error error;
    once->source->wrong_byte = scene.image_bytes[0] - 1;
    once->source->wrong_times = 1;
    assert_int_equal(finish(once, VERIFY_AUTO, &verdict, &error), 0);
    assert_int_equal(verdict.healed, 1);
    assert_true(load_is_right(once));
    load_destroy(once);
    always = with_checksums(begin_whole(), CHECKSUM_SHA256, true);
    always->source->wrong_byte = scene.image_bytes[0] - 1;
    always->source->wrong_times = UINT64_MAX;
    assert_damaged(always, "part0.safetensors", "damaged at its source");
    load_destroy(always);
}

/* --- with a manifest --- */

static char *put_hex(char *out, uint32_t crc)
{
    return out + sprintf(out, "%08x", crc);
}

/* What `tensorcast manifest` would write; with_tensors false = blocks only. */
static struct manifest *make_manifest(bool with_tensors)
{
    char *json = calloc(1, 64 << 10), *out = json;
    struct error error;
    out += sprintf(out, "{\"format\":\"tensorcast-manifest\",\"version\":1,\"block_bytes\":%d,\"files\":[", BLOCK_BYTES);
    for (size_t f = 0; f < N_FILES; f++) {
        const unsigned char *image = scene.images[f];
        uint64_t bytes = scene.image_bytes[f];
        out += sprintf(out, "%s{\"name\":\"part%zu.safetensors\",\"bytes\":%llu,\"blocks\":\"", f ? "," : "", f,
                       (unsigned long long)bytes);
        for (uint64_t at = 0; at < bytes; at += BLOCK_BYTES)
            out = put_hex(out, crc32c_update(0, image + at, bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES));
        out += sprintf(out, "\",\"tensors\":{");
        for (size_t i = 0; with_tensors && i < scene.artifact->n_tensors; i++) {
            const struct tensor_record *tensor = &scene.artifact->tensors[i];
            const struct tensor_piece *piece = artifact_piece(scene.artifact, tensor, 0);
            if (piece->file == f)
                out += sprintf(out, "%s\"%s\":\"%08x\"", out[-1] == '{' ? "" : ",", tensor->name,
                               crc32c_update(0, image + piece->offset, tensor->bytes));
        }
        out += sprintf(out, "}}");
    }
    strcpy(out, "]}");
    struct manifest *manifest = manifest_parse(json, strlen(json), &error);
    if (!manifest)
        fail_msg("%s", error.message);
    free(json);
    return manifest;
}

TEST(a_manifest_vouches_for_whole_tensors)
{
    struct manifest *manifest = make_manifest(true);
    struct load *load = begin_one("t.2");
    load->artifact.manifest = manifest;
    assert_verified(load, "manifest crc32c");
    load_destroy(load);
    manifest_unref(manifest);
}

TEST(a_manifest_of_blocks_vouches_for_those_that_are_here)
{
    struct manifest *manifest = make_manifest(false);
    struct load *load = begin_whole();
    struct load *rows = scene_load_create_rows(&scene, "t.2", 100, 400);
    struct verdict verdict;
    struct error error;
    load->artifact.manifest = rows->artifact.manifest = manifest;
    assert_verified(load, "manifest crc32c");
    assert_int_equal(finish(rows, VERIFY_AUTO, &verdict, &error), 0);
    assert_int_equal(verdict.status, VERIFIED_PARTLY);
    assert_true(verdict.bytes % BLOCK_BYTES == 0 && verdict.bytes >= 300 * COLUMNS - 2 * BLOCK_BYTES);
    assert_true(verdict.bytes < 300 * COLUMNS);
    assert_non_null(strstr(verdict.reason, "share their blocks"));
    load_destroy(load);
    load_destroy(rows);
    manifest_unref(manifest);
}

TEST(columns_of_a_tensor_fill_no_block)
{
    struct manifest *manifest = make_manifest(true);
    struct slice slices[2] = {{0, INT64_MAX}, {0, 500}};
    struct view_item item = {"t.1", 3, 2, slices};
    struct load *load = begin(&(struct view_spec){.items = &item, .n_items = 1, .align_bytes = 64});
    load->artifact.manifest = manifest;
    assert_not_verified(load, "share their blocks");
    load_destroy(load);
    manifest_unref(manifest);
}

TEST(a_wrong_tensor_is_named)
{
    struct manifest *manifest = make_manifest(true);
    struct load *load = begin_one("t.3");
    load->artifact.manifest = manifest;
    load->source->wrong_file = 1;
    load->source->wrong_byte = scene.image_bytes[1] - 1;
    load->source->wrong_times = UINT64_MAX;
    assert_damaged(load, "tensor t.3", "read again from the disk, the same bytes came: the file is damaged");
    load_destroy(load);
    manifest_unref(manifest);
}

TEST(a_wrong_block_is_healed_or_named)
{
    struct manifest *manifest = make_manifest(false);
    struct verdict verdict;
    struct error error;
    for (uint64_t times = 1; times; times = times == 1 ? UINT64_MAX : 0) {
        struct load *load = scene_load_create_rows(&scene, "t.2", 100, 400);
        load->artifact.manifest = manifest;
        load->source->wrong_byte = scene.image_bytes[0] - 450 * COLUMNS;
        load->source->wrong_times = times;
        if (times == 1) {
            assert_int_equal(finish(load, VERIFY_AUTO, &verdict, &error), 0);
            assert_int_equal(verdict.healed, 1);
            assert_true(load_is_right(load));
        } else {
            char range[64];
            uint64_t lo = load->source->wrong_byte / BLOCK_BYTES * BLOCK_BYTES;
            snprintf(range, sizeof range, "bytes %llu to %llu", (unsigned long long)lo,
                     (unsigned long long)lo + BLOCK_BYTES);
            assert_damaged(load, "part0.safetensors", range);
        }
        load_destroy(load);
    }
    manifest_unref(manifest);
}

TEST(a_manifest_of_another_size_is_refused)
{
    struct manifest *manifest = make_manifest(false);
    struct load *load = begin_whole();
    struct verdict verdict;
    struct error error;
    manifest->files[1].bytes++;
    load->artifact.manifest = manifest;
    assert_int_equal(finish(load, VERIFY_AUTO, &verdict, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "MANIFEST_DISAGREES");
    load_destroy(load);
    manifest_unref(manifest);
}

TEST(a_manifest_that_cannot_be_used_fails_unless_nothing_is_verified)
{
    struct load *load = begin_whole();
    struct verdict verdict;
    struct error error;
    load->artifact.manifest_problem =
        (struct error){.code = ERROR_DATA_LOSS, .reason = "MALFORMED_MANIFEST", .message = "model.manifest.json: no"};
    assert_int_equal(finish(load, VERIFY_AUTO, &verdict, &error), -1);
    assert_string_equal(error.reason, "MALFORMED_MANIFEST");
    assert_int_equal(finish(load, VERIFY_NONE, &verdict, &error), 0);
    load_destroy(load);
}

TEST(the_crc_of_a_manifest_stands_in_for_a_store_that_gives_none)
{
    struct manifest *manifest = make_manifest(false);
    struct load *load = begin_whole();
    for (size_t i = 0; i < N_FILES; i++)
        manifest->files[i].crc32c = sum_of(CHECKSUM_CRC32C, scene.images[i], scene.image_bytes[i]);
    load->artifact.manifest = manifest;
    load->source->base.caps.sums_on_the_way = true;
    assert_verified(load, "manifest crc32c");
    assert_true(load->source->n_summed > 0);
    load_destroy(load);
    manifest_unref(manifest);
}

static bool always(void *data)
{
    (void)data;
    return true;
}

TEST(a_cancelled_load_stops_verifying)
{
    struct load *load = with_checksums(begin_whole(), CHECKSUM_SHA256, false);
    const struct cancel cancel = {always, NULL};
    struct verdict verdict;
    struct error error;
    scene_load_start(load);
    scene_wait(&scene);
    struct verify_options options = {
        .mapping = load->mapping, .segment = load->segment, .run = load->run, .cancel = &cancel};
    assert_int_equal(verify_load(&options, &verdict, &error), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
    load_destroy(load);
}

TESTS_IN(open_scene, close_scene)
