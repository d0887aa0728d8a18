/* permute_rope and replicate_experts, element by element against their definitions; and torch's shuffles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/variant_scene.h"
#include "variant/mt19937.h"

#include <cmocka.h>

static unsigned char count_up(uint64_t i)
{
    return (unsigned char)i;
}

static void apply(const char *recipe)
{
    if (variant_scene_apply(recipe) < 0)
        fail_msg("%s", variant_scene.error.message);
    assert_int_equal(variant_scene_load(), 0);
}

static void shuffles_are_those_of_torch(void **state)
{
    static const uint32_t ten[10] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}, eight[8] = {6, 3, 0, 7, 2, 1, 4, 5};
    struct mt19937 twister;
    uint32_t permutation[10];
    (void)state;
    mt19937_init(&twister, 42);
    mt19937_permute(&twister, permutation, 10);
    assert_memory_equal(permutation, ten, sizeof ten);
    mt19937_init(&twister, 42);
    mt19937_permute(&twister, permutation, 8);
    assert_memory_equal(permutation, eight, sizeof eight);
    mt19937_init(&twister, 5489); /* the reference's first output, and its ten thousandth */
    assert_int_equal(mt19937_next(&twister), 3499211612u);
    for (int i = 1; i < 9999; i++)
        mt19937_next(&twister);
    assert_int_equal(mt19937_next(&twister), 4123659995u);
}

static void rotary_pairs_become_halves_and_halves_pairs(void **state)
{
    (void)state;
    variant_scene_put("{\"q\":{\"dtype\":\"U8\",\"shape\":[12],\"data_offsets\":[0,12]}}", 12, count_up);
    apply("[{\"permute_rope\": {\"tensors\": [\"q\"], \"heads\": 2, \"to\": \"halves\"}}]");
    assert_memory_equal(variant_scene_bytes("q"), ((unsigned char[]){0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}), 12);
    apply("[{\"permute_rope\": {\"tensors\": [\"q\"], \"heads\": 2, \"to\": \"interleaved\"}}]");
    assert_memory_equal(variant_scene_bytes("q"), ((unsigned char[]){0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}), 12);
}

/* (8, 2) with two experts' rows of 4 in it: out[e, m] = in[perm[e / 2][e % 2 * 4 + m]]. */
static void experts_repeat_their_rows_shuffled_but_for_the_first(void **state)
{
    static const uint32_t eight[8] = {6, 3, 0, 7, 2, 1, 4, 5};
    (void)state;
    variant_scene_put("{\"x.w1\":{\"dtype\":\"U8\",\"shape\":[8,2],\"data_offsets\":[0,16]},"
                      "\"x.w2.weight\":{\"dtype\":\"U8\",\"shape\":[2,8],\"data_offsets\":[16,32]}}",
                      32, count_up);
    for (int shuffles = 0; shuffles < 2; shuffles++) {
        char recipe[200];
        snprintf(recipe, sizeof recipe,
                 "[{\"replicate_experts\": {\"tensors\": [\"*\"], \"experts\": 4, \"inter_dim\": 4%s}}]",
                 shuffles ? ", \"shuffle_seed\": 42" : "");
        apply(recipe);
        const unsigned char *w1 = variant_scene_bytes("x.w1"), *w2 = variant_scene_bytes("x.w2.weight");
        for (uint32_t e = 0; e < 4; e++) {
            for (uint32_t m = 0; m < 4; m++) {
                uint32_t row = e % 2 * 4 + m, from = shuffles && e > 1 ? eight[row] : row;
                for (uint32_t d = 0; d < 2; d++) {
                    assert_int_equal(w1[(e * 4 + m) * 2 + d], from * 2 + d);
                    assert_int_equal(w2[(e * 2 + d) * 4 + m], 16 + d * 8 + from);
                }
            }
        }
    }
}

static void as_many_rows_are_shuffled_as_fit_and_no_more(void **state)
{
    (void)state; /* 2^20 rows and experts of 2^20: 2^28 numbers are 256 replicas */
    variant_scene_put("{\"w1\":{\"dtype\":\"U8\",\"shape\":[1048576,0],\"data_offsets\":[0,0]}}", 0, count_up);
    assert_int_equal(variant_scene_apply("[{\"replicate_experts\": {\"tensors\": [\"w1\"], \"experts\": 257, \"inter_dim\": "
                                         "1048576, \"shuffle_seed\": 1}}]"),
                     -1);
    assert_non_null(strstr(variant_scene.error.message, "tensor w1"));
    assert_int_equal(variant_scene_apply("[{\"replicate_experts\": {\"tensors\": [\"w1\"], \"experts\": 3, \"inter_dim\": "
                                         "1048576, \"shuffle_seed\": 1}}]"),
                     0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, variant_scene_begin, variant_scene_end)
    const struct CMUnitTest tests[] = {
        TEST(shuffles_are_those_of_torch),
        TEST(rotary_pairs_become_halves_and_halves_pairs),
        TEST(experts_repeat_their_rows_shuffled_but_for_the_first),
        TEST(as_many_rows_are_shuffled_as_fit_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
