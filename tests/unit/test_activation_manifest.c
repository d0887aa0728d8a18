/* What is taken from the manifests of an activation store's hosts, and what is refused. */
#include "tests/support/unit.h"

#include "base/activation_name.h"
#include "base/memory.h"
#include "resolve/activation_manifest.h"
#include "resolve/artifact.h"
#include "tests/support/source_memory.h"

#define HEAD "{\"format\": \"tensorcast-activations\", \"version\": 1, \"host\": 3, \"segments\": ["
#define SHA256 "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
#define FIRST                                                                                                               \
    "{\"file\":\"segment_000001.safetensors\",\"bytes\":5000,\"sha256\":\"" SHA256 "\",\"crc32c\":\"e3069283\","            \
    "\"samples\":[1,2],\"info\":{\"1\":{\"file\":7}},\"header_crc32c\":\"00000007\",\"array_crc32c\":\"0000000aFFFFFFFF\"}"

static struct error error;

static struct manifest *parse(const char *folder, const char *text)
{
    struct manifest *manifest = manifest_create();
    size_t room = 0;
    if (manifest_add_segments(manifest, &room, folder, text, strlen(text), &error) == 0)
        return manifest;
    manifest_unref(manifest);
    return NULL;
}

TEST(segments_are_named_from_the_store_on_with_all_their_sums)
{
    char text[CHECKSUM_TEXT_CHARS];
    struct manifest *manifest = parse("host_003", HEAD FIRST ",{\"file\":\"segment_000002.safetensors\",\"bytes\":0}]}");
    assert_non_null(manifest);
    assert_int_equal(manifest_index(manifest, &error), 0);
    const struct manifest_file *first = manifest_find_file(manifest, "host_003/segment_000001.safetensors");
    const struct manifest_file *second = manifest_find_file(manifest, "host_003/segment_000002.safetensors");
    assert_int_equal(first->bytes, 5000);
    assert_string_equal(checksum_print(&first->sha256, text), "sha256 " SHA256);
    assert_string_equal(checksum_print(&first->crc32c, text), "crc32c e3069283");
    assert_int_equal(checksum_crc(&first->header), 7);
    assert_int_equal(first->n_arrays, 2);
    assert_string_equal(first->arrays, "0000000aFFFFFFFF");
    assert_null(second->arrays);
    assert_int_equal(second->crc32c.kind, CHECKSUM_NONE);
    manifest_unref(manifest);
}

TEST(what_is_damaged_is_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        HEAD,
        HEAD "7]}",
        HEAD "{}]}",
        HEAD "{\"file\":\"segment_000001.safetensors\"}]}",
        HEAD "{\"bytes\":7}]}",
        HEAD "{\"bytes\":7,\"file\":\"model.safetensors\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"../segment_000001.safetensors\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"host_001/segment_000001.safetensors\"}]}",
        HEAD "{\"bytes\":-7,\"file\":\"segment_000001.safetensors\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"segment_000001.safetensors\\u0000\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"segment_000001.safetensors\",\"crc32c\":\"e306928\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"segment_000001.safetensors\",\"sha256\":\"e3069283\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"segment_000001.safetensors\",\"array_crc32c\":\"e3069283e\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"segment_000001.safetensors\",\"array_crc32c\":\"e306928x\"}]}",
        HEAD "{\"bytes\":7,\"file\":\"segment_000001.safetensors\",\"array_crc32c\":7}]}",
        HEAD FIRST "]} ,",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (parse("", bad[i]))
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        assert_string_equal(error.reason, "BAD_MANIFEST");
    }
}

TEST(a_document_of_another_format_is_no_manifest)
{
    static const char *const others[] = {"{}", "{\"segments\":[]}", "{\"format\":\"mine\",\"segments\":[7]}",
                                         "{\"format\":\"mine\",\"segments\":[" FIRST "]}"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct manifest *manifest = parse("", others[i]);
        assert_non_null(manifest);
        assert_int_equal(manifest->n_files, 0);
        manifest_unref(manifest);
    }
}

TEST(a_segment_that_is_listed_twice_is_a_damaged_manifest)
{
    struct manifest *manifest = parse("", HEAD FIRST "," FIRST "]}");
    assert_non_null(manifest);
    assert_int_equal(manifest_index(manifest, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    manifest_unref(manifest);
}

TEST(only_segments_of_hosts_are_segments)
{
    assert_true(activation_is_segment("segment_000001.safetensors"));
    assert_true(activation_is_segment("host_003/segment_000001.safetensors"));
    assert_false(activation_is_segment("host_3/segment_000001.safetensors"));
    assert_false(activation_is_segment("a/host_003/segment_000001.safetensors"));
    assert_false(activation_is_segment("host_003/segment_1.safetensors"));
    assert_false(activation_is_segment("segment_000001.open"));
}

/* --- by place ----------------------------------------------------------------------------------------------------------- */

#define HEADER                                                                                                              \
    "{\"layer_1/sample_00000001\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"                                 \
    "\"layer_2/sample_00000001\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,4]},"                                  \
    "\"layer_3/sample_00000001\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,6]}}"

static void put_segment(const char *manifest)
{
    char file[8 + sizeof HEADER + 6] = {(char)((sizeof HEADER - 1) & 0xff), (char)((sizeof HEADER - 1) >> 8)};
    memcpy(file + 8, HEADER, sizeof HEADER - 1);
    memcpy(file + 8 + sizeof HEADER - 1, "123456", 6);
    source_memory_put("acts", "segment_000001.safetensors", file, 8 + sizeof HEADER - 1 + 6);
    source_memory_put("acts", "manifest.json", manifest, strlen(manifest));
}

static bool find(const char *sums, size_t piece, uint32_t *crc32c)
{
    static const struct source_options options = {0};
    struct artifact *artifact;
    char *manifest = memory_print(HEAD "{\"file\":\"segment_000001.safetensors\",\"bytes\":%zu,\"array_crc32c\":\"%s\"}]}",
                                  8 + sizeof HEADER - 1 + 6, sums);
    source_memory_clear();
    put_segment(manifest);
    free(manifest);
    assert_int_equal(artifact_resolve("memory:acts", &options, NULL, 0, &artifact, &error), 0);
    assert_int_equal(artifact->manifest_problem.code, ERROR_OK);
    assert_non_null(artifact->manifest);
    const struct manifest_file *file = manifest_find_file(artifact->manifest, "segment_000001.safetensors");
    bool is_known = artifact_piece_crc32c(artifact, file, &artifact->pieces[piece], crc32c);
    artifact_unref(artifact);
    source_memory_clear();
    return is_known;
}

TEST(arrays_have_the_sums_of_their_places_also_behind_empty_ones)
{
    uint32_t crc32c;
    assert_true(find("00000001000000000000000a", 0, &crc32c));
    assert_int_equal(crc32c, 1);
    assert_true(find("00000001000000000000000a", 2, &crc32c));
    assert_int_equal(crc32c, 10);
    assert_false(find("000000010000000a", 0, &crc32c)); /* of another number of arrays */
    assert_false(find("", 0, &crc32c));
}

static struct artifact *resolve(struct header_cache *cache)
{
    static const struct source_options options = {0};
    struct artifact *artifact;
    assert_int_equal(artifact_resolve("memory:acts/segment_000001-000009", &options, cache, 0, &artifact, &error), 0);
    assert_non_null(artifact->manifest);
    return artifact;
}

TEST(a_hosts_manifest_is_parsed_once_until_it_is_replaced)
{
    static const char text[] = HEAD "{\"file\":\"segment_000001.safetensors\",\"bytes\":1}]}";
    struct header_cache *cache;
    assert_int_equal(header_cache_create(NULL, 1 << 20, &cache, &error), 0);
    put_segment(text);
    struct artifact *first = resolve(cache), *again = resolve(cache);
    assert_ptr_equal(again->manifest, first->manifest);
    source_memory_put("acts", "manifest.json", HEAD "{\"file\":\"segment_000001.safetensors\",\"bytes\":22}]}", sizeof text);
    struct artifact *other = resolve(cache);
    assert_int_equal(manifest_find_file(other->manifest, "segment_000001.safetensors")->bytes, 22);
    assert_int_equal(manifest_find_file(first->manifest, "segment_000001.safetensors")->bytes, 1);
    while (header_cache_shrink(cache))
        ;
    assert_int_equal(manifest_find_file(again->manifest, "segment_000001.safetensors")->bytes, 1);
    artifact_unref(first);
    artifact_unref(again);
    artifact_unref(other);
    header_cache_destroy(cache);
    source_memory_clear();
}
