/* model.manifest.json: what is taken from it, what is refused, and where it is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "resolve/artifact.h"
#include "base/memory.h"
#include "resolve/manifest.h"
#include "source/source_memory.h"

#include <cmocka.h>

#define HEAD "\"format\":\"tensorcast-manifest\",\"version\":1"
#define SHA256 "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"

static struct manifest *parse(const char *text, struct error *error)
{
    return manifest_parse(text, strlen(text), error);
}

static void everything_in_it_is_taken(void **state)
{
    struct error error;
    struct manifest *manifest = parse(
        "{\"more\":[{}]," HEAD ",\"files\":[{\"name\":\"a.safetensors\",\"bytes\":5000,\"version\":"
        "\"generation 17\",\"sha256\":\"" SHA256 "\",\"crc32c\":\"e3069283\",\"header_crc32c\":\"00000007\",\"blocks\":"
        "\"0000000affffffff\",\"tensors\":{\"w\":\"00000001\",\"v\":\"80000000\"},\"later\":7},"
        "{\"bytes\":0,\"name\":\"b\"}],\"block_bytes\":4096}",
        &error);
    char text[CHECKSUM_TEXT_CHARS];
    (void)state;
    if (!manifest)
        fail_msg("%s", error.message);
    const struct manifest_file *a = manifest_find_file(manifest, "a.safetensors"), *b = manifest_find_file(manifest, "b");
    assert_int_equal(a->bytes, 5000);
    assert_string_equal(a->version, "generation 17");
    assert_string_equal(checksum_print(&a->sha256, text), "sha256 " SHA256);
    assert_string_equal(checksum_print(&a->crc32c, text), "crc32c e3069283");
    assert_int_equal(checksum_crc(&a->header), 7);
    assert_int_equal(a->n_blocks, 2);
    assert_int_equal(a->blocks[0], 10);
    assert_int_equal(a->blocks[1], UINT32_MAX);
    const struct manifest_tensor *v = manifest_find_tensor(manifest, "v", 1);
    assert_int_equal(v->crc32c, 0x80000000);
    assert_ptr_equal(&manifest->files[v->file], a);
    assert_int_equal(b->crc32c.kind, CHECKSUM_NONE);
    assert_null(b->blocks);
    assert_string_equal(b->version, "");
    assert_null(manifest_find_file(manifest, "c"));
    assert_null(manifest_find_tensor(manifest, "x", 1));
    manifest_unref(manifest);
}

static void what_is_malformed_is_refused(void **state)
{
    static const char *const malformed[] = {
        "",
        "[]",
        "{}",
        "{\"format\":\"tensorcast\",\"version\":1}",
        "{" HEAD ",\"files\":{}}",
        "{" HEAD ",\"files\":[7]}",
        "{" HEAD ",\"files\":[]} x",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1}],\"files\":[]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\"}]}",
        "{" HEAD ",\"files\":[{\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":-1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1.5}]}",
        "{" HEAD ",\"files\":[{\"name\":\"../a\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a/../b\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"/a\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\".a\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\\u0000b\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1},{\"name\":\"a\",\"bytes\":1}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1,\"tensors\":{\"t\":\"00000000\",\"t\":\"00000000\"}}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1,\"tensors\":{\"t\":7}}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1,\"crc32c\":\"e306928\"}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1,\"sha256\":\"e3069283\"}]}",
        "{" HEAD ",\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e3069283\"}]}",
        "{" HEAD ",\"block_bytes\":4095,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e3069283\"}]}",
        "{" HEAD ",\"block_bytes\":2048,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e3069283\"}]}",
        "{" HEAD ",\"block_bytes\":134217728,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e3069283\"}]}",
        "{" HEAD ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"\"}]}",
        "{" HEAD ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":4096,\"blocks\":\"e3069283e3069283\"}]}",
        "{" HEAD ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":4097,\"blocks\":\"e3069283\"}]}",
        "{" HEAD
        ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":18446744073709551615,\"blocks\":\"e3069283\"}]}",
        "{" HEAD ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e306928\"}]}",
        "{" HEAD ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e306928x\"}]}",
    };
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        error = (struct error){0};
        assert_null(parse(malformed[i], &error));
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        assert_string_equal(error.reason, "MALFORMED_MANIFEST");
    }
}

static void a_later_version_is_not_guessed_at(void **state)
{
    struct error error;
    (void)state;
    assert_null(parse("{\"format\":\"tensorcast-manifest\",\"version\":2,\"files\":[]}", &error));
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
}

static void block_counts_are_those_of_the_size(void **state)
{
    struct error error;
    struct manifest *manifest = parse(
        "{" HEAD ",\"block_bytes\":4096,\"files\":[{\"name\":\"a\",\"bytes\":4096,\"blocks\":\"e3069283\"},"
        "{\"name\":\"b\",\"bytes\":4097,\"blocks\":\"e3069283e3069283\"},{\"name\":\"c\",\"bytes\":0,\"blocks\":\"\"}]}",
        &error);
    (void)state;
    assert_non_null(manifest);
    manifest_unref(manifest);
}

static void its_name_comes_from_the_checkpoint(void **state)
{
    static const char *const names[][2] = {
        {NULL, "model.manifest.json"},
        {"model.safetensors", "model.manifest.json"},
        {"llama.q8.safetensors", "llama.q8.manifest.json"},
        {".safetensors", ".safetensors.manifest.json"},
        {"weights", "weights.manifest.json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *name = manifest_name(names[i][0]);
        assert_string_equal(name, names[i][1]);
        free(name);
    }
}

/* --- beside a checkpoint --- */

static const char checkpoint[] =
    "\x3c\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}       abcd";

static struct artifact *resolve(const char *manifest)
{
    struct artifact *artifact = NULL;
    struct error error;
    source_memory_put("m", "model.safetensors", checkpoint, sizeof checkpoint - 1);
    if (manifest)
        source_memory_put("m", "model.manifest.json", manifest, strlen(manifest));
    if (artifact_resolve("memory:m", &(struct source_options){0}, NULL, false, &artifact, &error))
        fail_msg("%s", error.message);
    source_memory_clear();
    return artifact;
}

static void a_manifest_beside_the_checkpoint_is_found(void **state)
{
    struct artifact *artifact = resolve("{" HEAD ",\"files\":[{\"name\":\"model.safetensors\",\"bytes\":72}]}");
    (void)state;
    assert_non_null(artifact->manifest);
    assert_int_equal(artifact->manifest_problem.code, ERROR_OK);
    assert_int_equal(artifact->source->n_files, 1); /* it is no part of the artifact */
    artifact_unref(artifact);
}

static void an_artifact_without_one_has_no_problem(void **state)
{
    struct artifact *artifact = resolve(NULL);
    (void)state;
    assert_null(artifact->manifest);
    assert_int_equal(artifact->manifest_problem.code, ERROR_OK);
    artifact_unref(artifact);
}

static void a_malformed_one_is_a_problem_for_later(void **state)
{
    struct artifact *artifact = resolve("{}");
    (void)state;
    assert_null(artifact->manifest);
    assert_int_equal(artifact->manifest_problem.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(artifact->manifest_problem.message, "model.manifest.json: "));
    artifact_unref(artifact);
}

static void there_may_be_10000_files_and_no_more(void **state)
{
    (void)state;
    for (int n = MANIFEST_MAX_FILES; n <= MANIFEST_MAX_FILES + 1; n++) {
        struct error error;
        size_t count = 0, room = 48 * (size_t)n + 128;
        char *text = memory_alloc(room);
        for (int i = 0; i < n; i++)
            count += (size_t)snprintf(text + count, room - count, "%s{\"name\":\"f%d\",\"bytes\":1}",
                                      i ? "," : "{" HEAD ",\"files\":[", i);
        snprintf(text + count, room - count, "]}");
        struct manifest *manifest = parse(text, &error);
        free(text);
        if (n <= MANIFEST_MAX_FILES)
            assert_int_equal(manifest->n_files, n);
        else
            assert_true(!manifest && error.code == ERROR_DATA_LOSS);
        manifest_unref(manifest);
    }
}

static void blocks_may_have_64_mib_and_no_more(void **state)
{
    struct error error;
    (void)state;
    struct manifest *manifest = parse(
        "{" HEAD ",\"block_bytes\":67108864,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e3069283\"}]}", &error);
    assert_non_null(manifest);
    manifest_unref(manifest);
    assert_null(parse(/* the next power of two */
                      "{" HEAD
                      ",\"block_bytes\":134217728,\"files\":[{\"name\":\"a\",\"bytes\":1,\"blocks\":\"e3069283\"}]}",
                      &error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_in_it_is_taken),
        cmocka_unit_test(what_is_malformed_is_refused),
        cmocka_unit_test(a_later_version_is_not_guessed_at),
        cmocka_unit_test(there_may_be_10000_files_and_no_more),
        cmocka_unit_test(blocks_may_have_64_mib_and_no_more),
        cmocka_unit_test(block_counts_are_those_of_the_size),
        cmocka_unit_test(its_name_comes_from_the_checkpoint),
        cmocka_unit_test(a_manifest_beside_the_checkpoint_is_found),
        cmocka_unit_test(an_artifact_without_one_has_no_problem),
        cmocka_unit_test(a_malformed_one_is_a_problem_for_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
