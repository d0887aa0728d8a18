/* Tensors of variants as transfers: how many, what they read, and how they convert. */
#include "tests/support/unit.h"

#include "tests/support/variant_scene.h"

static const struct slice all = {0, INT64_MAX};

static unsigned char count_up(uint64_t i)
{
    return (unsigned char)i;
}

static void put_model(void)
{
    variant_scene_put("{\"a\":{\"dtype\":\"U8\",\"shape\":[4,6],\"data_offsets\":[0,24]},"
                      "\"b\":{\"dtype\":\"U8\",\"shape\":[4,6],\"data_offsets\":[24,48]},"
                      "\"f4\":{\"dtype\":\"F4\",\"shape\":[4,4],\"data_offsets\":[48,56]}}",
                      56, count_up);
}

static void apply(const char *recipe)
{
    if (variant_scene_apply(recipe) < 0)
        fail_msg("%s", variant_scene.error.message);
}

TEST_IN(a_renamed_tensor_is_one_transfer, variant_scene_begin, variant_scene_end)
{
    put_model();
    apply("[{\"rename\": {\"b\": \"x\", \"a\": \"b\"}}]");
    assert_int_equal(variant_scene_load(), 0);
    assert_int_equal(variant_scene.mapping->n_transfers, 3);
    assert_null(variant_scene.mapping->order);
    assert_null(variant_scene.mapping->operations);
    assert_int_equal(variant_scene_bytes("x")[0], 24);
    assert_int_equal(variant_scene_bytes("b")[5], 5);
}

TEST_IN(a_slice_of_a_stack_reads_its_own_bytes, variant_scene_begin, variant_scene_end)
{
    put_model();
    apply("[{\"rename\": {\"a\": \"e.0\", \"b\": \"e.1\"}}, {\"stack\": {\"from\": \"e.{}\", \"to\": \"s\", \"dim\": 1}}]");
    assert_int_equal(variant_scene_slice("s", (struct slice[]){{1, 3}, {1, 2}, {2, 4}}, 3), 0);
    assert_int_equal(variant_scene_read_bytes(), 4);
    assert_memory_equal(variant_scene_bytes("s"), ((unsigned char[]){32, 33, 38, 39}), 4);
}

TEST_IN(two_names_of_a_tensor_read_it_once, variant_scene_begin, variant_scene_end)
{
    put_model();
    apply("[{\"select\": [\"a\"]}, {\"alias\": {\"c\": \"a\"}}]");
    assert_int_equal(variant_scene_load(), 0);
    assert_int_equal(variant_scene_read_bytes(), 24);
    assert_int_equal(variant_scene.mapping->view_bytes, 48);
    assert_memory_equal(variant_scene_bytes("a"), variant_scene_bytes("c"), 24);
}

TEST_IN(two_variants_have_two_view_digests, variant_scene_begin, variant_scene_end)
{
    char digest[DIGEST_HEX_CHARS + 1];
    put_model();
    apply("[{\"permute_rope\": {\"tensors\": [\"a\"], \"heads\": 1, \"to\": \"halves\"}}]");
    assert_int_equal(variant_scene_load(), 0);
    memcpy(digest, variant_scene.mapping->view_digest, sizeof digest);
    apply("[{\"permute_rope\": {\"tensors\": [\"a\"], \"heads\": 2, \"to\": \"halves\"}}]");
    assert_int_equal(variant_scene_load(), 0);
    assert_string_not_equal(digest, variant_scene.mapping->view_digest);
    apply("{\"version\": 1, \"steps\": [{\"permute_rope\": {\"to\": \"halves\", \"heads\": 1, \"tensors\": [\"a\"]}}]}");
    assert_int_equal(variant_scene_load(), 0);
    assert_string_equal(digest, variant_scene.mapping->view_digest);
}

TEST_IN(elements_within_bytes_are_unimplemented_and_named, variant_scene_begin, variant_scene_end)
{
    put_model();
    apply("[{\"transpose\": {\"tensors\": [\"f4\"], \"dims\": [1, 0]}}]");
    assert_int_equal(variant_scene_load(), -1);
    assert_int_equal(variant_scene.error.code, ERROR_UNIMPLEMENTED);
    assert_non_null(strstr(variant_scene.error.message, "f4"));
    apply("[{\"slice\": {\"tensors\": [\"f4\"], \"slices\": [[0, 4], [1, 3]]}}]");
    assert_int_equal(variant_scene_load(), -1);
    apply("[{\"slice\": {\"tensors\": [\"f4\"], \"slices\": [[0, 4], [2, 4]]}}]");
    assert_int_equal(variant_scene_load(), 0);
    assert_memory_equal(variant_scene_bytes("f4"), ((unsigned char[]){49, 51, 53, 55}), 4);
}

/* --- conversions ---------------------------------------------------------------------------------------------------- */

static unsigned char floats(uint64_t i) /* of F32: the numbers from 0 */
{
    float value = (float)(i / 4);
    unsigned char bytes[4];
    memcpy(bytes, &value, 4);
    return bytes[i % 4];
}

TEST_IN(a_cast_reads_source_bytes_and_writes_its_own, variant_scene_begin, variant_scene_end)
{
    uint16_t element;
    variant_scene_put("{\"a\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[0,96]}}", 96, floats);
    apply("[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"BF16\"}}, {\"transpose\": {\"tensors\": [\"a\"], \"dims\": [1, "
          "0]}}]");
    assert_int_equal(variant_scene_slice("a", (struct slice[]){{1, 3}, all}, 2), 0);
    assert_int_equal(variant_scene.mapping->view_bytes, 16);
    assert_int_equal(variant_scene_read_bytes(), 32);
    assert_int_equal(variant_scene.mapping->n_operations, 2);
    memcpy(&element, variant_scene_bytes("a") + 2 * 5, 2); /* [1, 1] of the slice: 2 + 6 */
    assert_int_equal(element, 0x4100);                     /* 8.0 */
}

/* 4x4 of 1.0 (0x38 of F8_E4M3), then the scales 0, 1, 2, 3. */
static unsigned char quantized(uint64_t i)
{
    return i < 16 ? 0x38 : floats(i - 16);
}

static void put_quantized(void)
{
    variant_scene_put("{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,4],\"data_offsets\":[0,16]},"
                      "\"w_s\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]}}",
                      32, quantized);
}

#define DEQUANTIZE                                                                                                          \
    "{\"dequantize\": {\"tensors\": [\"w\"], \"scale\": \"{tensor}_s\", \"block\": [2, 2], \"dtype\": \"F32\"}}"
#define TRANSPOSE(names) "{\"transpose\": {\"tensors\": [" names "], \"dims\": [1, 0]}}"

TEST_IN(scales_are_read_for_the_blocks_of_a_slice, variant_scene_begin, variant_scene_end)
{
    float element;
    put_quantized();
    apply("[" DEQUANTIZE "]");
    assert_null(variant_scene_tensor("w_s"));
    assert_int_equal(variant_scene_slice("w", (struct slice[]){{2, 4}, {1, 2}}, 2), 0);
    assert_int_equal(variant_scene.mapping->scales.bytes, 4);
    memcpy(&element, variant_scene_bytes("w"), 4);
    assert_true(element == 2);
    assert_int_equal(variant_scene_load(), 0);
    assert_int_equal(variant_scene.mapping->scales.bytes, 16);
    for (int i = 0; i < 16; i++) {
        memcpy(&element, variant_scene_bytes("w") + 4 * i, 4);
        assert_true(element == (float)(i / 8 * 2 + i % 4 / 2));
    }
}

TEST_IN(scaled_elements_may_be_rearranged_afterwards, variant_scene_begin, variant_scene_end)
{
    float element;
    put_quantized();
    apply("[" DEQUANTIZE ", " TRANSPOSE("\"w\"") ", {\"slice\": {\"tensors\": [\"w\"], \"slices\": [[1, 3], [0, 4]]}}]");
    assert_int_equal(variant_scene_load(), 0);
    memcpy(&element, variant_scene_bytes("w") + 4 * 6, 4); /* [1, 2] of the result: [2, 2] of the matrix */
    assert_true(element == 3);
}

TEST_IN(a_transposed_matrix_is_scaled_by_its_own_blocks, variant_scene_begin, variant_scene_end)
{
    float element;
    put_quantized();
    apply("[" TRANSPOSE("\"w\"") ", " DEQUANTIZE "]"); /* the scales are where they were: [0, 1] is that of [0, 2] now */
    assert_int_equal(variant_scene_load(), 0);
    for (int i = 0; i < 16; i++) {
        memcpy(&element, variant_scene_bytes("w") + 4 * i, 4);
        assert_true(element == (float)(i / 8 * 2 + i % 4 / 2));
    }
    apply("[" TRANSPOSE("\"w\", \"w_s\"") ", " DEQUANTIZE "]");
    assert_int_equal(variant_scene_slice("w", (struct slice[]){{2, 4}, {1, 2}}, 2), 0);
    assert_int_equal(variant_scene.mapping->scales.bytes, 4);
    memcpy(&element, variant_scene_bytes("w"), 4);
    assert_true(element == 1);
}

TEST_IN(elements_that_changed_places_are_not_scaled, variant_scene_begin, variant_scene_end)
{
    put_quantized();
    assert_int_equal(variant_scene_apply(
                         "[{\"permute_rope\": {\"tensors\": [\"w\"], \"heads\": 1, \"to\": \"halves\"}}, " DEQUANTIZE "]"),
                     -1);
    assert_int_equal(variant_scene.error.code, ERROR_UNIMPLEMENTED);
    assert_non_null(strstr(variant_scene.error.message, "tensor w"));
    assert_non_null(strstr(variant_scene.error.message, "step 2"));
}
