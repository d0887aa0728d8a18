/* Which files make up an artifact, and what is wrong with them. What a second resolve does is in test_artifact_again.c. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "base/memory.h"
#include "resolve/artifact.h"
#include "resolve/header_cache.h"
#include "resolve/manifest.h"
#include "resolve/safetensors.h"
#include "resolve/shard_index.h"
#include "tests/support/source_memory.h"
#include "tests/support/artifact_scene.h"
#include "tests/support/layout_scene.h"
#include "tests/support/model_dir.h"

static void refuses(enum error_code code, const char *named)
{
    struct artifact *artifact;
    struct error error;
    assert_int_equal(artifact_resolve("memory:m", &artifact_scene_options, artifact_scene_cache, false, &artifact, &error),
                     -1);
    assert_null(artifact);
    if (error.code != code || !strstr(error.message, named))
        fail_msg("%s: %s", error_code_name(error.code), error.message);
}

TEST_IN(the_index_decides_and_other_files_are_ignored, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("two.safetensors", "bd");
    artifact_scene_put_part("one.safetensors", "ac");
    artifact_scene_put_part("model.safetensors", "ax");
    artifact_scene_put_text("junk.safetensors", "not a safetensors file");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX,
                            "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\",\"c\":\"one.safetensors\","
                            "\"d\":\"two.safetensors\"}}");
    struct artifact *artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "acbd");
    assert_int_equal(artifact->source->n_files, 2);
    assert_string_equal(artifact->source->files[0].name, "one.safetensors");
    assert_int_equal(artifact_piece(artifact, &artifact->tensors[2], 0)->file, 1);
    artifact_unref(artifact);
}

TEST_IN(a_folder_without_safetensors_is_not_an_artifact, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_text("pytorch_model.bin", "PK");
    refuses(ERROR_NOT_FOUND, "memory:m");
}

TEST_IN(broken_parts_are_named, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("a.safetensors", "a");
    artifact_scene_put_text("b.safetensors", "1234567");
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
    artifact_scene_put_text("b.safetensors", "");
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
    source_memory_put("m", "b.safetensors", "\2\0\0\0\0\0\0\0{", 9);
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
    source_memory_put("m", "b.safetensors", "\2\0\0\0\0\0\0\0{}1", 11);
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
}

TEST_IN(index_and_files_must_agree, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("one.safetensors", "a");
    artifact_scene_put_part("two.safetensors", "b");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}");
    refuses(ERROR_DATA_LOSS, "tensor b is not in one.safetensors");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":{\"a\":\"gone.safetensors\"}}");
    refuses(ERROR_NOT_FOUND, "gone.safetensors");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":[]}");
    refuses(ERROR_DATA_LOSS, ARTIFACT_SCENE_INDEX);
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "");
    refuses(ERROR_DATA_LOSS, ARTIFACT_SCENE_INDEX);
}

TEST_IN(what_the_index_does_not_name_is_left_out_and_said, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("one.safetensors", "aeb");
    artifact_scene_put_part("two.safetensors", "bf");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}");
    for (int again = 0; again < 2; again++) { /* also from the cache */
        struct artifact *artifact = artifact_scene_resolve(false);
        artifact_scene_holds(artifact, "ab");
        assert_int_equal(artifact->notes.n, 2);
        assert_non_null(
            strstr(artifact->notes.texts[0], "2 tensors that " ARTIFACT_SCENE_INDEX " does not name are left out"));
        assert_non_null(strstr(artifact->notes.texts[0], "e of one.safetensors"));
        assert_non_null(strstr(artifact->notes.texts[1], "b in one.safetensors"));
        artifact_unref(artifact);
    }
}

TEST_IN(a_file_that_the_index_names_may_be_absent_where_the_caller_asks, artifact_scene_open, artifact_scene_close)
{
    struct error error;
    struct artifact *artifact;
    artifact_scene_put_part("one.safetensors", "a");
    artifact_scene_put_text(
        ARTIFACT_SCENE_INDEX,
        "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"sub/two.safetensors\",\"c\":\"sub/two.safetensors\"}}");
    refuses(ERROR_NOT_FOUND, "sub/two.safetensors");
    for (int there = 0; there < 2; there++) { /* it comes while the rest is known */
        assert_int_equal(artifact_resolve("memory:m", &artifact_scene_options, artifact_scene_cache,
                                          RESOLVE_ALLOW_ABSENT_FILES, &artifact, &error),
                         0);
        const struct artifact_absent *absent = artifact_absent(artifact);
        assert_true(absent->files.n == (there ? 0 : 1) && absent->n_tensors == (there ? 0 : 2));
        assert_int_equal(artifact_check_complete(artifact, &error), there ? 0 : -1);
        artifact_scene_holds(artifact, there ? "abc" : "a");
        artifact_unref(artifact);
        artifact_scene_put_part("sub/two.safetensors", "bc");
    }
}

TEST_IN(files_that_say_how_many_they_are_are_counted, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("x-00001-of-00003.safetensors", "a");
    artifact_scene_put_part("x-00003-of-00003.safetensors", "c");
    refuses(ERROR_NOT_FOUND, "x-00002-of-00003.safetensors");
    artifact_scene_put_part("x-00002-of-00003.safetensors", "b");
    struct artifact *artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "abc");
    artifact_unref(artifact);
}

TEST_IN(the_number_of_part_files_is_limited, artifact_scene_open, artifact_scene_close)
{
    char name[32];
    for (int i = 0; i < 10001; i++) {
        if (i == 10000) {
            struct artifact *artifact = artifact_scene_resolve(false);
            assert_int_equal(artifact->source->n_files, 10000);
            artifact_unref(artifact);
        }
        snprintf(name, sizeof name, "%05d.safetensors", 10000 - i); /* put in front: the table is a list */
        source_memory_put("m", name, "\2\0\0\0\0\0\0\0{}", 10);
    }
    refuses(ERROR_UNIMPLEMENTED, "10000");
}

TEST_IN(a_file_without_tensors_is_an_empty_artifact, artifact_scene_open, artifact_scene_close)
{
    source_memory_put("m", "model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    struct artifact *artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "");
    artifact_unref(artifact);
}

TEST_IN(links_that_lead_nowhere_are_not_taken_for_absent_files, artifact_scene_open, artifact_scene_close)
{
    static const char *const links[] = {ARTIFACT_SCENE_INDEX, "model.safetensors", "z.safetensors", "topology.json"};
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *artifact;
    struct error error;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{}", 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        model_dir_link(root, links[i], "nowhere");
        assert_int_equal(artifact_resolve(reference, &relative, artifact_scene_cache, false, &artifact, &error), -1);
        assert_int_equal(error.code, ERROR_NOT_FOUND);
        if (!strstr(error.message, links[i]))
            fail_msg("%s is not named: %s", links[i], error.message);
        assert_int_equal(unlink(model_dir_path(root, links[i], path)), 0);
    }
    model_dir_destroy(root);
}

TEST_IN(a_topology_of_more_than_a_gibibyte_is_refused_unread, artifact_scene_open, artifact_scene_close)
{
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *artifact;
    struct error error;
    model_dir_create(root);
    model_dir_write(root, "topology.json", "", 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    assert_int_equal(truncate(model_dir_path(root, "topology.json", path), (1 << 30) + 1L), 0); /* a hole */
    assert_int_equal(artifact_resolve(reference, &relative, artifact_scene_cache, false, &artifact, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "topology.json: 1073741825 bytes are too many"));
    model_dir_destroy(root);
}

/* What one caller is allowed is in the artifact_scene_cache for all, but not allowed to all. */
TEST_IN(leave_to_miss_shards_is_the_callers_own, artifact_scene_open, artifact_scene_close)
{
    struct artifact *artifact;
    struct error error;
    layout_put("m", "shard-00002-model-00001-of-00001.safetensors", "w U8 2", "{\"w\": {\"saved_offsets\": [0]}}", 0);
    refuses(ERROR_DATA_LOSS, "shard-00001");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(artifact_resolve("memory:m", &artifact_scene_options, artifact_scene_cache,
                                          RESOLVE_ALLOW_MISSING_SHARDS, &artifact, &error),
                         0);
        artifact_unref(artifact);
        refuses(ERROR_DATA_LOSS, "shard-00001");
    }
}

/* A document of `bytes` bytes: it ends in blanks. */
static void put_padded(const char *file, const char *json, size_t bytes)
{
    char *text = memory_alloc(bytes);
    memset(text, ' ', bytes);
    memcpy(text, json, strlen(json));
    source_memory_put("m", file, text, bytes);
    free(text);
}

TEST_IN(an_index_of_a_hundred_million_bytes_is_read_and_one_byte_more_is_refused, artifact_scene_open, artifact_scene_close)
{
    static const char index[] = "{\"weight_map\":{\"a\":\"one.safetensors\"}}";
    artifact_scene_put_part("one.safetensors", "a");
    put_padded("model.safetensors.index.json", index, SHARD_INDEX_MAX_BYTES);
    struct artifact *artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "a");
    artifact_unref(artifact);
    put_padded("model.safetensors.index.json", index, SHARD_INDEX_MAX_BYTES + 1);
    refuses(ERROR_DATA_LOSS, "100000001 bytes are too many for an index");
}

TEST_IN(a_manifest_of_64_mib_is_read_and_one_byte_more_is_a_problem, artifact_scene_open, artifact_scene_close)
{
    static const char manifest[] = "{\"format\":\"tensorcast-manifest\",\"version\":1,\"files\":[]}";
    artifact_scene_put_part("model.safetensors", "a");
    for (size_t longer = 0; longer < 2; longer++) {
        put_padded("model.manifest.json", manifest, MANIFEST_MAX_BYTES + longer);
        struct artifact *artifact = artifact_scene_resolve(false);
        bool is_refused = strstr(artifact->manifest_problem.message, "67108865 bytes are too many for a manifest");
        assert_int_equal(is_refused, longer);
        artifact_unref(artifact);
    }
}

/* The header is not that of the file: 16 million tensors would take gigabytes. */
TEST_IN(more_than_16_million_tensors_of_all_files_are_refused, artifact_scene_open, artifact_scene_close)
{
    struct error error;
    struct source *source;
    artifact_scene_put_part("model-1.safetensors", "a");
    artifact_scene_put_part("model-2.safetensors", "b");
    artifact_unref(artifact_scene_resolve(false));
    if (source_open("memory:m", &artifact_scene_options, &source, &error) < 0 ||
        source_add_file(source, "model-1.safetensors", &(size_t){0}, &error) < 0)
        fail_msg("%s", error.message);
    struct part_header *header = header_cache_find(artifact_scene_cache, &format_safetensors, &source->files[0].identity);
    assert_non_null(header);
    header->n_tensors = 1 << 24;
    artifact_scene_put_part("model-3.safetensors", "c"); /* other files: no table of them is known */
    refuses(ERROR_UNIMPLEMENTED, "more than 16777216 tensors");
    header->n_tensors = 1;
    part_header_unref(header);
    source_unref(source);
}
