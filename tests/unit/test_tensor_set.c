/* What the steps of a variant have in common. */
#include "tests/support/unit.h"

#include "tests/support/variant_scene.h"
#include "variant/mt19937.h"
#include "variant/tensor_set.h"

static unsigned char zero(uint64_t i)
{
    return 0;
}

TEST_IN(shapes_and_sizes_are_told_as_numpy_does, variant_scene_begin, variant_scene_end)
{
    char out[SET_SHAPE_CHARS];
    uint64_t bytes;
    assert_string_equal(set_show_shape(0, NULL, out), "()");
    assert_string_equal(set_show_shape(1, (uint64_t[]){3}, out), "(3,)");
    assert_string_equal(set_show_shape(2, (uint64_t[]){3, 4}, out), "(3, 4)");
    assert_true(set_bytes(2, (uint64_t[]){3, 4}, DTYPE_F32, &bytes));
    assert_int_equal(bytes, 48);
    assert_false(set_bytes(1, (uint64_t[]){3}, DTYPE_F4, &bytes));
    assert_false(set_bytes(2, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 31}, DTYPE_F32, &bytes));
    assert_true(set_bytes(3, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 32, 0}, DTYPE_F32, &bytes));
    assert_int_equal(bytes, 0);
}

TEST_IN(a_name_that_two_tensors_get_is_refused_and_named, variant_scene_begin, variant_scene_end)
{
    variant_scene_put("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
                      "\"data_offsets\":[1,2]}}",
                      2, zero);
    assert_int_equal(variant_scene_apply("[{\"rename\": {\"a\": \"b\"}}]"), -1);
    assert_int_equal(variant_scene.error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(variant_scene.error.message, "tensor b"));
    assert_int_equal(variant_scene_apply("[{\"rename\": {\"a\": \"b\", \"b\": \"a\"}}]"), 0);
    assert_int_equal(variant_scene_apply("[{\"rename\": {\"*\": \"x.*\", \"a\": \"y\"}}]"), 0); /* the first rule took it */
    assert_non_null(variant_scene_tensor("x.a"));
    assert_int_equal(variant_scene_apply("[{\"rename\": {\"a\": \"x\", \"c\": \"y\"}}]"), -1);
    assert_non_null(strstr(variant_scene.error.message, "called c"));
}

static struct arena arena;
static struct error error;
static struct tensor_set set;

/* Of one tensor. */
static void begin_set(const struct cancel *cancel)
{
    variant_scene_put("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, zero);
    assert_int_equal(variant_scene_apply("[]"), 0);
    arena_init(&arena, 0);
    assert_int_equal(set_init(&set, variant_scene.artifact->stored, &arena, cancel, &error), 0);
}

TEST_IN(the_number_of_matches_is_limited, variant_scene_begin, variant_scene_end)
{
    struct pattern pattern;
    struct set_patterns found;
    struct pattern_match match;
    size_t at;
    begin_set(NULL);
    pattern_init(&pattern, "*", 1);
    const struct recipe_patterns patterns = {&pattern, 1};
    assert_int_equal(set_patterns_init(&set, &patterns, &found), 0);
    set.n_matches = SET_MAX_MATCHES - 1;
    assert_int_equal(set_find(&set, &found, &set.tensors[0], &at, &match), 0);
    assert_int_equal(at, 0);
    assert_int_equal(set_find(&set, &found, &set.tensors[0], &at, &match), -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    set.n_matches = 0;
    set.match_steps_left = 2;
    assert_int_equal(set_find(&set, &found, &set.tensors[0], &at, &match), 0);
    assert_int_equal(set_find(&set, &found, &set.tensors[0], &at, &match), -1);
    assert_string_equal(error.reason, "TOO_MANY_PATTERNS");
    set_patterns_fini(&found);
    set_fini(&set);
    arena_fini(&arena);
}

static bool is_told_to_stop(void *data)
{
    return ++*(int *)data > 2;
}

TEST_IN(a_match_ends_when_its_client_has_left_or_takes_too_long, variant_scene_begin, variant_scene_end)
{
    enum { LONG = 20000 };
    struct pattern pattern;
    int asked = 0;
    const struct cancel cancel = {is_told_to_stop, &asked};
    char name[LONG + 1];
    begin_set(&cancel);
    pattern_init(&pattern, "*a*b", 4);
    memset(name, 'a', LONG);
    name[LONG] = 0;
    set.tensors[0].name = name;
    set.tensors[0].name_length = 10;
    assert_int_equal(set_match(&set, &pattern, &set.tensors[0], NULL), 0);
    set.tensors[0].name_length = LONG;
    assert_int_equal(set_match(&set, &pattern, &set.tensors[0], NULL), -1);
    assert_string_equal(error.reason, "TOO_MANY_PATTERNS");
    assert_true(set.match_steps_left > SET_MAX_MATCH_STEPS - 2 * SET_MAX_ONE_MATCH_STEPS);
    set.tensors[0].name_length = 10;
    assert_int_equal(set_match(&set, &pattern, &set.tensors[0], NULL), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
    set_fini(&set);
    arena_fini(&arena);
}

/* --- step model --- */

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

TEST_IN(shuffles_are_those_of_torch, variant_scene_begin, variant_scene_end)
{
    static const uint32_t ten[10] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}, eight[8] = {6, 3, 0, 7, 2, 1, 4, 5};
    struct mt19937 twister;
    uint32_t permutation[10];
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

TEST_IN(rotary_pairs_become_halves_and_halves_pairs, variant_scene_begin, variant_scene_end)
{
    variant_scene_put("{\"q\":{\"dtype\":\"U8\",\"shape\":[12],\"data_offsets\":[0,12]}}", 12, count_up);
    apply("[{\"permute_rope\": {\"tensors\": [\"q\"], \"heads\": 2, \"to\": \"halves\"}}]");
    assert_memory_equal(variant_scene_bytes("q"), ((unsigned char[]){0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}), 12);
    apply("[{\"permute_rope\": {\"tensors\": [\"q\"], \"heads\": 2, \"to\": \"interleaved\"}}]");
    assert_memory_equal(variant_scene_bytes("q"), ((unsigned char[]){0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}), 12);
}

/* (8, 2) with two experts' rows of 4 in it: out[e, m] = in[perm[e / 2][e % 2 * 4 + m]]. */
TEST_IN(experts_repeat_their_rows_shuffled_but_for_the_first, variant_scene_begin, variant_scene_end)
{
    static const uint32_t eight[8] = {6, 3, 0, 7, 2, 1, 4, 5};
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

TEST_IN(as_many_rows_are_shuffled_as_fit_and_no_more, variant_scene_begin, variant_scene_end)
{
    variant_scene_put("{\"w1\":{\"dtype\":\"U8\",\"shape\":[1048576,0],\"data_offsets\":[0,0]}}", 0, count_up);
    assert_int_equal(variant_scene_apply("[{\"replicate_experts\": {\"tensors\": [\"w1\"], \"experts\": 257, \"inter_dim\": "
                                         "1048576, \"shuffle_seed\": 1}}]"),
                     -1);
    assert_non_null(strstr(variant_scene.error.message, "tensor w1"));
    assert_int_equal(variant_scene_apply("[{\"replicate_experts\": {\"tensors\": [\"w1\"], \"experts\": 3, \"inter_dim\": "
                                         "1048576, \"shuffle_seed\": 1}}]"),
                     0);
}
