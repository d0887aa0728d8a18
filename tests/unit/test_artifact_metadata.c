/* What an artifact says of itself: one file's metadata, each key once, and not without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "resolve/artifact_metadata.h"
#include "source/source_memory.h"

#include <cmocka.h>

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

static struct artifact *resolve(void)
{
    const struct source_options options = {0};
    struct artifact *artifact;
    struct error error;
    if (artifact_resolve("memory:m", &options, NULL, 0, &artifact, &error) != 0)
        fail_msg("%s", error.message);
    return artifact;
}

static int clear(void **state)
{
    (void)state;
    source_memory_clear();
    return 0;
}

static void the_last_value_of_a_key_counts_and_the_order_is_kept(void **state)
{
    (void)state;
    struct artifact_metadata metadata;
    struct arena arena;
    struct error error;
    put_header("model.safetensors",
               "{\"__metadata__\":{\"a\":\"1\",\"b\":\"x\",\"a\":\"2\\u0000\",\"c\":\"\"}," TENSOR("w"));
    struct artifact *artifact = resolve();
    arena_init(&arena, 0);
    assert_int_equal(artifact_metadata_collect(artifact, &arena, &metadata, &error), 0);
    assert_int_equal(metadata.n_pairs, 3);
    assert_string_equal(metadata.pairs[0]->key, "b");
    assert_string_equal(metadata.pairs[1]->key, "a");
    assert_int_equal(metadata.pairs[1]->value_length, 2);
    assert_memory_equal(metadata.pairs[1]->value, "2\0", 2);
    assert_string_equal(metadata.pairs[2]->key, "c");
    arena_fini(&arena);
    artifact_unref(artifact);
}

static void an_empty_one_is_not_none(void **state)
{
    (void)state;
    static const char *const headers[] = {"{" TENSOR("w"), "{\"__metadata__\":{}," TENSOR("w")};
    for (int is_there = 0; is_there < 2; is_there++) {
        struct artifact_metadata metadata;
        struct arena arena;
        struct error error;
        put_header("model.safetensors", headers[is_there]);
        struct artifact *artifact = resolve();
        arena_init(&arena, 0);
        assert_int_equal(artifact_metadata_collect(artifact, &arena, &metadata, &error), 0);
        assert_int_equal(metadata.n_pairs, 0);
        assert_int_equal(metadata.is_there, is_there);
        arena_fini(&arena);
        artifact_unref(artifact);
        source_memory_clear();
    }
}

static void of_several_files_the_first_counts(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"v\":\"b.safetensors\",\"w\":\"a.safetensors\"}}";
    struct artifact_metadata metadata;
    struct arena arena;
    struct error error;
    put_header("a.safetensors", "{\"__metadata__\":{\"of\":\"a\"}," TENSOR("w"));
    put_header("b.safetensors", "{\"__metadata__\":{\"of\":\"b\"}," TENSOR("v"));
    source_memory_put("m", "model.safetensors.index.json", index, strlen(index));
    struct artifact *artifact = resolve();
    arena_init(&arena, 0);
    assert_int_equal(artifact_metadata_collect(artifact, &arena, &metadata, &error), 0);
    assert_int_equal(metadata.n_pairs, 1);
    assert_string_equal(metadata.pairs[0]->value, "a"); /* the index is sorted by file */
    arena_fini(&arena);
    artifact_unref(artifact);
}

/* One pair that takes so many bytes as they are counted. */
static struct artifact *with_metadata_of(uint64_t bytes)
{
    size_t value_bytes = bytes - ARTIFACT_METADATA_PAIR_BYTES - 1;
    char *header = memory_alloc(value_bytes + 256);
    size_t at = (size_t)sprintf(header, "{\"__metadata__\":{\"k\":\"");
    memset(header + at, 'v', value_bytes);
    sprintf(header + at + value_bytes, "\"},%s", TENSOR("w"));
    put_header("model.safetensors", header);
    free(header);
    return resolve();
}

static void eight_mebibytes_are_told_and_one_byte_more_is_left_out(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct artifact_metadata metadata;
        struct arena arena;
        struct error error;
        uint64_t bytes = (uint64_t)ARTIFACT_METADATA_MAX_BYTES + (uint64_t)more;
        struct artifact *artifact = with_metadata_of(bytes);
        arena_init(&arena, 0);
        assert_int_equal(artifact_metadata_collect(artifact, &arena, &metadata, &error), 0);
        assert_int_equal(metadata.n_pairs, more ? 0 : 1);
        assert_int_equal(metadata.left_out_bytes, more ? bytes : 0);
        arena_fini(&arena);
        artifact_unref(artifact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_last_value_of_a_key_counts_and_the_order_is_kept, clear),
        cmocka_unit_test_teardown(an_empty_one_is_not_none, clear),
        cmocka_unit_test_teardown(of_several_files_the_first_counts, clear),
        cmocka_unit_test_teardown(eight_mebibytes_are_told_and_one_byte_more_is_left_out, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
