/* model.manifest.json: what is taken from it, what is refused, and where it is found. */
#include "tests/support/unit.h"

#include "resolve/artifact.h"
#include "base/memory.h"
#include "resolve/manifest.h"
#include "tests/support/source_memory.h"

#define HEAD "\"format\":\"tensorcast-manifest\",\"version\":1"
#define SHA256 "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"

static struct manifest *parse(const char *text, struct error *error)
{
    return manifest_parse(text, strlen(text), error);
}

TEST(everything_in_it_is_taken)
{
    struct error error;
    struct manifest *manifest = parse(
        "{\"more\":[{}]," HEAD ",\"files\":[{\"name\":\"a.safetensors\",\"bytes\":5000,\"version\":"
        "\"generation 17\",\"sha256\":\"" SHA256 "\",\"crc32c\":\"e3069283\",\"header_crc32c\":\"00000007\",\"blocks\":"
        "\"0000000affffffff\",\"tensors\":{\"w\":\"00000001\",\"v\":\"80000000\"},\"later\":7},"
        "{\"bytes\":0,\"name\":\"b\"}],\"block_bytes\":4096}",
        &error);
    char text[CHECKSUM_TEXT_CHARS];
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

TEST(what_is_malformed_is_refused)
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
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        error = (struct error){0};
        assert_null(parse(malformed[i], &error));
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        assert_string_equal(error.reason, "MALFORMED_MANIFEST");
    }
}

TEST(a_later_version_is_not_guessed_at)
{
    struct error error;
    assert_null(parse("{\"format\":\"tensorcast-manifest\",\"version\":2,\"files\":[]}", &error));
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
}

TEST(its_name_comes_from_the_checkpoint)
{
    static const char *const names[][2] = {
        {NULL, "model.manifest.json"},
        {"model.safetensors", "model.manifest.json"},
        {"llama.q8.safetensors", "llama.q8.manifest.json"},
        {".safetensors", ".safetensors.manifest.json"},
        {"weights", "weights.manifest.json"},
    };
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

TEST(a_manifest_beside_the_checkpoint_is_found)
{
    struct artifact *artifact = resolve("{" HEAD ",\"files\":[{\"name\":\"model.safetensors\",\"bytes\":72}]}");
    assert_non_null(artifact->manifest);
    assert_int_equal(artifact->manifest_problem.code, ERROR_OK);
    assert_int_equal(artifact->source->n_files, 1); /* it is no part of the artifact */
    artifact_unref(artifact);
}

TEST(there_may_be_10000_files_and_no_more)
{
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

TEST(blocks_may_have_64_mib_and_no_more_and_there_are_as_many_as_the_size_has)
{
    static const struct {
        uint64_t block_bytes, bytes;
        const char *blocks;
        bool is_good;
    } cases[] = {{4096, 4096, "e3069283", true},
                 {4096, 4097, "e3069283e3069283", true},
                 {4096, 0, "", true},
                 {67108864, 1, "e3069283", true},
                 {134217728, 1, "e3069283", false}}; /* the next power of two */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error;
        char text[256];
        snprintf(text, sizeof text,
                 "{" HEAD ",\"block_bytes\":%llu,\"files\":[{\"name\":\"a\",\"bytes\":%llu,\"blocks\":\"%s\"}]}",
                 (unsigned long long)cases[i].block_bytes, (unsigned long long)cases[i].bytes, cases[i].blocks);
        struct manifest *manifest = parse(text, &error);
        if (!manifest != !cases[i].is_good)
            fail_msg("%s", text);
        manifest_unref(manifest);
    }
}
