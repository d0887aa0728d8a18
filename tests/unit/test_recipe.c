/* What the validator of recipes takes and refuses, and the canonical text of what it took. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "recipe/recipe.h"
#include "recipe/recipe_node.h"

#include <cmocka.h>

static struct arena arena;
static struct error error;

static int parse(const char *json, struct recipe *recipe)
{
    return recipe_parse(json, strlen(json), &arena, recipe, &error);
}

static void is_written_as(const char *json, const char *canonical)
{
    struct recipe recipe;
    if (parse(json, &recipe) < 0)
        fail_msg("%s: %s", json, error.message);
    char *text = recipe_json(&recipe, &error);
    assert_string_equal(text, canonical);
    assert_int_equal(parse(text, &recipe), 0); /* and the same again */
    char *again = recipe_json(&recipe, &error);
    assert_string_equal(again, text);
    free(text);
    free(again);
}

static void steps_have_one_canonical_text(void **state)
{
    (void)state;
    is_written_as("{\"steps\": [], \"version\": 1}", "[]");
    is_written_as("[{\"optional\": false, \"drop\": [\"*.x\", \"y\"]}]", "[{\"drop\":[\"*.x\",\"y\"]}]");
    is_written_as("[{\"rename\": {\"b.{}\": \"a.{}\", \"a\": \"c\"}, \"optional\": true}]",
                  "[{\"rename\":{\"b.{}\":\"a.{}\",\"a\":\"c\"},\"optional\":true}]");
    is_written_as("[{\"alias\": {\"new\": \"old\"}}]", "[{\"alias\":{\"new\":\"old\"}}]");
    is_written_as("[{\"permute_rope\": {\"to\": \"halves\", \"heads\": 2, \"tensors\": [\"q\"]}}]",
                  "[{\"permute_rope\":{\"tensors\":[\"q\"],\"heads\":2,\"to\":\"halves\"}}]");
    is_written_as("[{\"slice\": {\"tensors\": [\"a\"], \"slices\": [[1, -1], [null, null]]}}]",
                  "[{\"slice\":{\"tensors\":[\"a\"],\"slices\":[[1,-1],[0,9223372036854775807]]}}]");
    is_written_as("[{\"split\": {\"dim\": -1, \"even\": true, \"to\": [\"a\", \"b\"], \"from\": \"c\"}}]",
                  "[{\"split\":{\"from\":\"c\",\"to\":[\"a\",\"b\"],\"even\":true,\"dim\":-1}}]");
    is_written_as(
        "[{\"concat\": {\"dim\": 0, \"to\": \"x\", \"from\": [\"a\", \"b\"]}}, {\"transpose\": {\"tensors\": [\"x\"], "
        "\"dims\": [1, 0]}}, {\"reshape\": {\"tensors\": [\"x\"], \"shape\": [2, -1]}}]",
        "[{\"concat\":{\"from\":[\"a\",\"b\"],\"to\":\"x\",\"dim\":0}},{\"transpose\":{\"tensors\":[\"x\"],"
        "\"dims\":[1,0]}},{\"reshape\":{\"tensors\":[\"x\"],\"shape\":[2,-1]}}]");
    is_written_as(
        "[{\"stack\": {\"from\": \"e.{}\", \"to\": \"s\", \"dim\": 0}}, {\"unstack\": {\"from\": \"s\", \"to\": \"e.{}\", "
        "\"dim\": 0}}]",
        "[{\"stack\":{\"from\":\"e.{}\",\"to\":\"s\",\"dim\":0}},{\"unstack\":{\"from\":\"s\",\"to\":\"e.{}\",\"dim\":0}}]");
    is_written_as(
        "[{\"replicate_experts\": {\"tensors\": [\"*\"], \"experts\": 8, \"inter_dim\": 4, \"shuffle_seed\": null}}, "
        "{\"replicate_experts\": {\"tensors\": [\"*\"], \"experts\": 8, \"inter_dim\": 4, \"shuffle_seed\": 0}}]",
        "[{\"replicate_experts\":{\"tensors\":[\"*\"],\"experts\":8,\"inter_dim\":4}},{\"replicate_experts\":"
        "{\"tensors\":[\"*\"],\"experts\":8,\"inter_dim\":4,\"shuffle_seed\":0}}]");
    is_written_as(
        "[{\"cast\": {\"only\": [\"F64\", \"F32\"], \"dtype\": \"BF16\", \"tensors\": [\"*\"]}}, {\"dequantize\": "
        "{\"tensors\": [\"*\"], \"scale\": \"{tensor}_s\", \"block\": [2, 3], \"dtype\": \"F32\"}}]",
        "[{\"cast\":{\"tensors\":[\"*\"],\"dtype\":\"BF16\",\"only\":[\"F32\",\"F64\"]}},{\"dequantize\":{\"tensors\":"
        "[\"*\"],\"scale\":\"{tensor}_s\",\"block\":[2,3],\"dtype\":\"F32\"}}]");
    is_written_as("[{\"expect\": {\"a\": {\"dtype\": \"F32\", \"shape\": [2, 3]}}, \"allow_extra\": true}]",
                  "[{\"expect\":{\"a\":{\"shape\":[2,3],\"dtype\":\"F32\"}},\"allow_extra\":true}]");
    is_written_as("[{\"select\": [\"a\"]}, {\"only\": [\"a\"]}]", "[{\"select\":[\"a\"]},{\"only\":[\"a\"]}]");
}

static void what_is_no_recipe_is_refused_with_step_and_reason(void **state)
{
    static const struct {
        const char *json, *named;
    } wrong[] = {
        {"", "expected"},
        {"7", "version: 1"},
        {"{\"steps\": []}", "version: 1"},
        {"{\"version\": 2, \"steps\": []}", "version: 1"},
        {"{\"version\": 1}", "steps"},
        {"{\"version\": 1, \"steps\": {}}", "steps"},
        {"{\"version\": 1, \"steps\": [], \"more\": 1}", "more"},
        {"{\"version\": 1, \"version\": 1, \"steps\": []}", "twice"},
        {"[{\"drop\": [\"a\"]}, 7]", "step 2"},
        {"[{}]", "there is no step"},
        {"[{\"optional\": true}]", "there is no step"},
        {"[{\"dropp\": [\"a\"]}]", "did you mean 'drop'"},
        {"[{\"drop\": [\"a\"], \"select\": [\"a\"]}]", "two steps"},
        {"[{\"drop\": [\"a\"], \"drop\": [\"a\"]}]", "twice"},
        {"[{\"rename\": {\"a\": \"b\", \"a\": \"c\"}}]", "twice"},
        {"[{\"drop\": \"a\"}]", "a list of names"},
        {"[{\"drop\": []}]", "a list of names or patterns, not an empty list"},
        {"[{\"drop\": [7]}]", "quote it"},
        {"[{\"drop\": [\"\"]}]", "a name"},
        {"[{\"drop\": [\"a\"], \"optional\": 1}]", "optional: expected true or false"},
        {"[{\"drop\": [\"a\"], \"allow_extra\": true}]", "belongs to expect"},
        {"[{\"rename\": {\"a\": null}}]", "use drop"},
        {"[{\"rename\": {\"a\": 7}}]", "the number 7"},
        {"[{\"rename\": {}}]", "from: to"},
        {"[{\"rename\": {\"a.{}\": \"b.{}.{}\"}}]", "more {}"},
        {"[{\"alias\": {\"x.*\": \"a\"}}]", "more {}"},
        {"[{\"cast\": [\"a\"]}]", "arguments"},
        {"[{\"cast\": {\"tensors\": [\"a\"]}}]", "dtype is missing"},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"F31\"}}]", "dtype: expected one of BOOL, F4, "},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"F31\"}}]", "'F31'"},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": 16}}]", "the number 16"},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"I32\"}}]", "I32"},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"F4\"}}]", "F4"},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"BF16\", \"only\": []}}]", "only: expected"},
        {"[{\"cast\": {\"tensors\": [\"a\"], \"dtype\": \"BF16\", \"rounding\": \"up\"}}]", "rounding"},
        {"[{\"permute_rope\": {\"tensors\": [\"a\"], \"heads\": \"two\", \"to\": \"halves\"}}]",
         "heads: expected a whole number"},
        {"[{\"permute_rope\": {\"tensors\": [\"a\"], \"heads\": 2.5, \"to\": \"halves\"}}]", "the number 2.5"},
        {"[{\"permute_rope\": {\"tensors\": [\"a\"], \"heads\": 0, \"to\": \"halves\"}}]", "above 0"},
        {"[{\"permute_rope\": {\"tensors\": [\"a\"], \"heads\": 2, \"to\": \"sideways\"}}]", "'sideways'"},
        {"[{\"reshape\": {\"tensors\": [\"a\"], \"shape\": [-1, -1]}}]", "only one"},
        {"[{\"reshape\": {\"tensors\": [\"a\"], \"shape\": [-2]}}]", "extent"},
        {"[{\"reshape\": {\"tensors\": [\"a\"], \"shape\": [99999999999999999999]}}]", "whole numbers"},
        {"[{\"slice\": {\"tensors\": [\"a\"], \"slices\": [[1]]}}]", "two bounds"},
        {"[{\"split\": {\"from\": \"a\", \"to\": [\"b\"], \"dim\": 0}}]", "either sizes or even"},
        {"[{\"split\": {\"from\": \"a\", \"to\": [\"b\"], \"dim\": 0, \"even\": true, \"sizes\": [1]}}]",
         "either sizes or even"},
        {"[{\"split\": {\"from\": \"a\", \"to\": [\"b\", \"c\"], \"dim\": 0, \"sizes\": [1]}}]", "one size for each"},
        {"[{\"split\": {\"from\": \"a\", \"to\": [\"b\"], \"dim\": 0, \"sizes\": [-1]}}]", "from 0"},
        {"[{\"concat\": {\"from\": [\"a.{}\", \"b\"], \"to\": \"c\", \"dim\": 0}}]", "same number"},
        {"[{\"concat\": {\"from\": [\"a\", \"b\"], \"to\": \"c.{}\", \"dim\": 0}}]", "more {}"},
        {"[{\"stack\": {\"from\": \"a\", \"to\": \"b\", \"dim\": 0}}]", "no {}"},
        {"[{\"stack\": {\"from\": \"a.{}\", \"to\": \"b.{}\", \"dim\": 0}}]", "more {}"},
        {"[{\"unstack\": {\"from\": \"a\", \"to\": \"b\", \"dim\": 0}}]", "no {}"},
        {"[{\"replicate_experts\": {\"tensors\": [\"a\"], \"experts\": 0, \"inter_dim\": 1}}]",
         "experts: expected a number above 0"},
        {"[{\"replicate_experts\": {\"tensors\": [\"a\"], \"experts\": 1, \"inter_dim\": 1, \"shuffle_seed\": -1}}]",
         "from 0"},
        {"[{\"dequantize\": {\"tensors\": [\"a\"], \"scale\": \"s\", \"block\": [1, 1], \"dtype\": \"F32\"}}]", "{tensor}"},
        {"[{\"dequantize\": {\"tensors\": [\"a\"], \"scale\": \"{tensor}\", \"block\": [1], \"dtype\": \"F32\"}}]", "block"},
        {"[{\"expect\": []}]", "{name:"},
        {"[{\"expect\": {\"a\": {\"shape\": [1]}}}]", "a: expected {shape"},
        {"[{\"expect\": {\"a\": {\"shape\": [-1], \"dtype\": \"F32\"}}}]", "from 0"},
        {" [{\"drop\": [\"a\\u0000b\"]}]", "NUL"},
    };
    struct recipe recipe;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (parse(wrong[i].json, &recipe) == 0)
            fail_msg("%s is taken", wrong[i].json);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        if (!strstr(error.message, wrong[i].named))
            fail_msg("%s: %s does not name %s", wrong[i].json, error.message, wrong[i].named);
        if (strncmp(wrong[i].json, "[{", 2) == 0 && !strstr(error.message, "step "))
            fail_msg("%s: %s names no step", wrong[i].json, error.message);
    }
}

static char *repeat(const char *text, size_t n)
{
    size_t length = strlen(text);
    char *all = malloc(n * (length + 1) + 3), *at = all;
    *at++ = '[';
    for (size_t i = 0; i < n; i++) {
        memcpy(at, text, length);
        at += length;
        *at++ = i + 1 < n ? ',' : ']';
    }
    *at = 0;
    return all;
}

static void five_hundred_and_twelve_steps_are_taken_and_one_more_is_not(void **state)
{
    struct recipe recipe;
    (void)state;
    for (size_t n = RECIPE_MAX_STEPS; n <= RECIPE_MAX_STEPS + 1; n++) {
        char *json = repeat("{\"drop\": [\"a\"]}", n);
        assert_int_equal(parse(json, &recipe), n > RECIPE_MAX_STEPS ? -1 : 0);
        free(json);
    }
    assert_non_null(strstr(error.message, "512"));
}

static void a_recipe_of_a_mebibyte_is_taken_and_one_byte_more_is_not(void **state)
{
    struct recipe recipe;
    static const char head[] = "[{\"drop\":[\"", tail[] = "\"]}]";
    char *json = malloc(RECIPE_MAX_BYTES + 1);
    size_t fill = RECIPE_MAX_BYTES - strlen(head) - strlen(tail);
    (void)state;
    for (size_t more = 0; more <= 1; more++) {
        memcpy(json, head, strlen(head));
        memset(json + strlen(head), 'x', fill + more);
        memcpy(json + strlen(head) + fill + more, tail, strlen(tail));
        int status = recipe_parse(json, RECIPE_MAX_BYTES + more, &arena, &recipe, &error);
        assert_int_equal(status, more ? -1 : 0);
        if (!more)
            free(recipe_json(&recipe, &error));
    }
    assert_string_equal(error.reason, "RECIPE_TOO_LARGE");
    free(json);
    /* short to read, long when it is written: the slices that are left open */
    char *slices = repeat("[0, null]", 50000);
    json = memory_print("[{\"slice\": {\"tensors\": [\"a\"], \"slices\": %s}}]", slices);
    assert_int_equal(parse(json, &recipe), 0);
    assert_null(recipe_json(&recipe, &error));
    assert_string_equal(error.reason, "RECIPE_TOO_LARGE");
    free(slices);
    free(json);
}

static void a_line_is_told_where_it_is_known(void **state)
{
    struct recipe_step step = {.kind = STEP_CAST, .number = 3, .line = 7};
    (void)state;
    (fail)(&error, ERROR_INVALID_ARGUMENT, "X", "wrong");
    recipe_error_prefix(&step, "a.yaml", &error);
    assert_string_equal(error.message, "a.yaml:7: step 3 (cast): wrong");
    step.line = 0;
    (fail)(&error, ERROR_INVALID_ARGUMENT, "X", "wrong");
    recipe_error_prefix(&step, "a.yaml", &error);
    assert_string_equal(error.message, "step 3 (cast): wrong");
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

/* So many that they fit in no memory. */
static void keys_without_memory_are_an_error(void **state)
{
    const struct recipe_node map = {.kind = NODE_MAP, .n_items = (size_t)1 << 62}, *key;
    (void)state;
    assert_int_equal(recipe_node_find_duplicate(&map, &key, &error), -1);
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_one_canonical_text),
        cmocka_unit_test(what_is_no_recipe_is_refused_with_step_and_reason),
        cmocka_unit_test(five_hundred_and_twelve_steps_are_taken_and_one_more_is_not),
        cmocka_unit_test(a_recipe_of_a_mebibyte_is_taken_and_one_byte_more_is_not),
        cmocka_unit_test(a_line_is_told_where_it_is_known),
        cmocka_unit_test(keys_without_memory_are_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
