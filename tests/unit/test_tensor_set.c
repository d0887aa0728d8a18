/* What the steps of a variant have in common. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/variant_scene.h"
#include "variant/tensor_set.h"

#include <cmocka.h>

static unsigned char zero(uint64_t i)
{
    (void)i;
    return 0;
}

static void shapes_and_sizes_are_told_as_numpy_does(void **state)
{
    char out[SET_SHAPE_CHARS];
    uint64_t bytes;
    (void)state;
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

static void a_name_that_two_tensors_get_is_refused_and_named(void **state)
{
    (void)state;
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

static void the_number_of_matches_is_limited(void **state)
{
    struct arena arena;
    struct error error;
    struct tensor_set set;
    struct pattern pattern;
    struct set_patterns found;
    struct pattern_match match;
    size_t at;
    (void)state;
    variant_scene_put("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, zero);
    assert_int_equal(variant_scene_apply("[]"), 0);
    arena_init(&arena, 0);
    assert_int_equal(set_init(&set, variant_scene.artifact->stored, &arena, NULL, &error), 0);
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

static void a_match_ends_when_its_client_has_left_or_takes_too_long(void **state)
{
    enum { LONG = 20000 };
    struct arena arena;
    struct error error;
    struct tensor_set set;
    struct pattern pattern;
    int asked = 0;
    const struct cancel cancel = {is_told_to_stop, &asked};
    char name[LONG + 1];
    (void)state;
    variant_scene_put("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, zero);
    assert_int_equal(variant_scene_apply("[]"), 0);
    arena_init(&arena, 0);
    assert_int_equal(set_init(&set, variant_scene.artifact->stored, &arena, &cancel, &error), 0);
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, variant_scene_begin, variant_scene_end)
    const struct CMUnitTest tests[] = {
        TEST(shapes_and_sizes_are_told_as_numpy_does),
        TEST(a_name_that_two_tensors_get_is_refused_and_named),
        TEST(the_number_of_matches_is_limited),
        TEST(a_match_ends_when_its_client_has_left_or_takes_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
