/* What an artifact says of itself: one file's metadata, each key once, and not without end. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/artifact.h"
#include "tests/support/source_memory.h"

#define TENSOR(name) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}"

static void put_header(const char *file, const char *header)
{
    size_t n = strlen(header);
    unsigned char *bytes = memory_alloc(8 + n + 1);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(n >> 8 * i);
    memcpy(bytes + 8, header, n);
    source_memory_put("m", file, bytes, 8 + n + 1);
    free(bytes);
}

static struct artifact *artifact;
static struct artifact_metadata metadata;
static struct arena arena;

static int clear(void **state)
{
    (void)state;
    arena_fini(&arena);
    artifact_unref(artifact);
    artifact = NULL;
    source_memory_clear();
    return 0;
}

static void collect(void)
{
    const struct source_options options = {0};
    struct error error;
    if (artifact_resolve("memory:m", &options, NULL, 0, &artifact, &error) != 0)
        fail_msg("%s", error.message);
    arena_init(&arena, 0);
    assert_int_equal(artifact_metadata_collect(artifact, &arena, &metadata, &error), 0);
}

TEST_IN(the_last_value_of_a_key_counts_and_the_order_is_kept, NULL, clear)
{
    put_header("model.safetensors",
               "{\"__metadata__\":{\"a\":\"1\",\"b\":\"x\",\"a\":\"2\\u0000\",\"c\":\"\"}," TENSOR("w"));
    collect();
    assert_int_equal(metadata.n_pairs, 3);
    assert_string_equal(metadata.pairs[0]->key, "b");
    assert_string_equal(metadata.pairs[1]->key, "a");
    assert_int_equal(metadata.pairs[1]->value_length, 2);
    assert_memory_equal(metadata.pairs[1]->value, "2\0", 2);
    assert_string_equal(metadata.pairs[2]->key, "c");
}

TEST_IN(an_empty_one_is_not_none, NULL, clear)
{
    static const char *const headers[] = {"{" TENSOR("w"), "{\"__metadata__\":{}," TENSOR("w")};
    for (int is_there = 0; is_there < 2; is_there++) {
        put_header("model.safetensors", headers[is_there]);
        collect();
        assert_int_equal(metadata.n_pairs, 0);
        assert_int_equal(metadata.is_there, is_there);
        clear(NULL);
    }
}

TEST_IN(of_several_files_the_first_counts, NULL, clear)
{
    static const char index[] = "{\"weight_map\":{\"v\":\"b.safetensors\",\"w\":\"a.safetensors\"}}";
    put_header("a.safetensors", "{\"__metadata__\":{\"of\":\"a\"}," TENSOR("w"));
    put_header("b.safetensors", "{\"__metadata__\":{\"of\":\"b\"}," TENSOR("v"));
    source_memory_put("m", "model.safetensors.index.json", index, strlen(index));
    collect();
    assert_int_equal(metadata.n_pairs, 1);
    assert_string_equal(metadata.pairs[0]->value, "a"); /* the index is sorted by file */
}

TEST_IN(eight_mebibytes_are_told_and_one_byte_more_is_left_out, NULL, clear)
{
    for (size_t more = 0; more < 2; more++) { /* one pair that takes so many bytes as they are counted */
        size_t bytes = ARTIFACT_METADATA_MAX_BYTES + more, value_bytes = bytes - ARTIFACT_METADATA_PAIR_BYTES - 1;
        char *header = memory_alloc(value_bytes + 256);
        size_t at = (size_t)sprintf(header, "{\"__metadata__\":{\"k\":\"");
        memset(header + at, 'v', value_bytes);
        sprintf(header + at + value_bytes, "\"},%s", TENSOR("w"));
        put_header("model.safetensors", header);
        free(header);
        collect();
        assert_int_equal(metadata.n_pairs, more ? 0 : 1);
        assert_int_equal(metadata.left_out_bytes, more ? bytes : 0);
        clear(NULL);
    }
}
