/* What a manifest may say of where a segment lies, and how long it may get; that it says what is there is test_host_folder.c's. */
#include "tests/support/unit.h"

#include "activations/host_manifest.h"
#include "activations/host_private.h"
#include "base/memory.h"
#include "tests/support/activation_cases.h"
#include "tests/support/shell.h"

static struct error error;

static int take_none(void *data, uint32_t segment, uint32_t sample, struct error *failure)
{
    (void)data, (void)segment, (void)sample, (void)failure;
    return 0;
}

TEST(where_a_segment_lies_may_stand_anywhere_behind_its_name)
{
    static const struct {
        const char *entry, *text, *uploaded;
        bool is_good, is_local;
    } rows[] = {
        {"{\"file\": \"segment_000001.safetensors\", \"local\": false , \"bytes\": 3}",
         "{\"file\": \"segment_000001.safetensors\" , \"bytes\": 3}", NULL, true, false},
        {"{\"file\":\"segment_000001.safetensors\",\"uploaded\":\"gs://b/\\u00e4\",\"local\":false}",
         "{\"file\":\"segment_000001.safetensors\"}", "gs://b/\xc3\xa4", true, false},
        {"{\"file\":\"segment_000001.safetensors\",\"uploaded\":\"a\"}", "{\"file\":\"segment_000001.safetensors\"}", "a",
         true, true},
        {.entry = "{\"local\":false,\"file\":\"segment_000001.safetensors\"}"},
        {.entry = "{\"file\":\"segment_000001.safetensors\",\"uploaded\":\"\"}"},
        {.entry = "{\"file\":\"segment_000001.safetensors\",\"uploaded\":\"a\\u0000b\"}"},
        {.entry = "{\"file\":\"segment_000001.safetensors\",\"uploaded\":\"a\",\"bytes\":1,\"local\":false}"},
        {.entry = "{\"file\":\"segment_000001.safetensors\",\"crc32c\":\"0123\"}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct host_manifest manifest = {0};
        char *text = memory_print("{\"segments\": [%s]}", rows[i].entry);
        int status = host_manifest_parse(&manifest, 3, text, strlen(text), take_none, NULL, &error);
        assert_int_equal(status, rows[i].is_good ? 0 : -1);
        if (rows[i].is_good) {
            const struct manifest_segment *segment = &manifest.segments[0];
            assert_int_equal(segment->is_local, rows[i].is_local);
            assert_int_equal(segment->text_bytes, strlen(rows[i].text));
            assert_memory_equal(segment->text, rows[i].text, segment->text_bytes);
            assert_true(rows[i].uploaded ? segment->uploaded && strcmp(segment->uploaded, rows[i].uploaded) == 0
                                         : !segment->uploaded);
        }
        host_manifest_fini(&manifest);
        free(text);
    }
}

static void assert_unread(const char *root)
{
    struct host_folder *folder;
    char path[64];
    snprintf(path, sizeof path, "%s/acts", root);
    const struct host_folder_options options = {.roots = {&root, 1}, .path = path, .host = 3, .segment_bytes = 4096};
    assert_int_equal(host_folder_open(&options, &folder, &error), -1);
    assert_string_equal(error.reason, "BAD_MANIFEST");
    assert_non_null(strstr(error.message, "at most 1073741824 are read"));
}

TEST(a_manifest_of_more_than_a_gibibyte_is_not_read_and_a_full_one_begins_no_segment)
{
    char root[] = "/tmp/test_host_manifest_XXXXXX";
    struct case_sample made;
    assert_non_null(mkdtemp(root));
    struct host_folder *folder = case_folder_open(root, 4096);
    case_folder_append(folder, 1, 3);
    case_folder_seal(folder, true);
    folder->manifest_bytes = HOST_MANIFEST_FULL_BYTES + 1;
    case_sample_make(&made, 2, 3);
    assert_int_equal(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "MANIFEST_FULL");
    folder->manifest_bytes = HOST_MANIFEST_FULL_BYTES;
    assert_int_equal(host_folder_begin(folder, &made.sample, UINT64_MAX, &error), 0);
    uint64_t before = folder->manifest.text_bytes;
    folder->manifest.text_bytes = HOST_MANIFEST_FULL_BYTES - strlen("gs://b/x");
    assert_int_equal(host_manifest_move(&folder->manifest, 1, true, "gs://b/xy", &error), -1);
    assert_string_equal(error.reason, "MANIFEST_FULL");
    assert_int_equal(host_manifest_move(&folder->manifest, 1, true, "gs://b/x", &error), 0);
    folder->manifest.text_bytes = before;
    free(made.bytes);
    host_folder_close(folder);
    shell("truncate -s 1073741825 %s/acts/host_003/manifest.json", root);
    assert_unread(root);
    shell("rm -rf %s", root);
}
