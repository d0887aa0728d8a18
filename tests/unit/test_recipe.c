/* What the validator of recipes takes and refuses, and the canonical text of what it took. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "recipe/recipe.h"
#include "recipe/recipe_node.h"
#include "recipe/substitute.h"

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

TEST(steps_have_one_canonical_text)
{
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

TEST(what_is_no_recipe_is_refused_with_step_and_reason)
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

TEST(five_hundred_and_twelve_steps_are_taken_and_one_more_is_not)
{
    struct recipe recipe;
    for (size_t n = RECIPE_MAX_STEPS; n <= RECIPE_MAX_STEPS + 1; n++) {
        char *json = repeat("{\"drop\": [\"a\"]}", n);
        assert_int_equal(parse(json, &recipe), n > RECIPE_MAX_STEPS ? -1 : 0);
        free(json);
    }
    assert_non_null(strstr(error.message, "512"));
}

TEST(a_recipe_of_a_mebibyte_is_taken_and_one_byte_more_is_not)
{
    struct recipe recipe;
    static const char head[] = "[{\"drop\":[\"", tail[] = "\"]}]";
    char *json = malloc(RECIPE_MAX_BYTES + 1);
    size_t fill = RECIPE_MAX_BYTES - strlen(head) - strlen(tail);
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

TEST(a_line_is_told_where_it_is_known)
{
    struct recipe_step step = {.kind = STEP_CAST, .number = 3, .line = 7};
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
    arena_init(&arena, 0);
    return 0;
}

static int teardown(void **state)
{
    arena_fini(&arena);
    return 0;
}

/* So many that they fit in no memory. */
TEST(keys_without_memory_are_an_error)
{
    const struct recipe_node map = {.kind = NODE_MAP, .n_items = (size_t)1 << 62}, *key;
    assert_int_equal(recipe_node_find_duplicate(&map, &key, &error), -1);
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
}

/* --- substitute --- */

static struct arena arena;
static struct error error;
static char asked[400];

static int find(void *data, const char *key, struct recipe_node *value, struct error *problem)
{
    snprintf(asked, sizeof asked, "%s", key);
    if (strcmp(key, "n") == 0)
        recipe_value("12", value);
    else if (strcmp(key, "word") == 0)
        recipe_value("text", value);
    else
        return 0;
    return 1;
}

/* One step of one text. */
static int substitute(const char *text, struct recipe_node *document)
{
    const struct recipe_lookup lookup = {find, NULL};
    char json[1000];
    snprintf(json, sizeof json, "{\"version\": 1, \"steps\": [{\"drop\": [\"%s\"]}]}", text);
    assert_int_equal(recipe_node_parse(json, strlen(json), "test", &arena, document, &error), 0);
    return recipe_substitute(document, "r.yaml", &lookup, &arena, &error);
}

static const struct recipe_node *result(const struct recipe_node *document)
{
    return &recipe_node_get(&recipe_node_get(document, "steps")->items[0], "drop")->items[0];
}

TEST(a_whole_value_that_is_a_number_becomes_one)
{
    struct recipe_node document;
    assert_int_equal(substitute("${n}", &document), 0);
    assert_int_equal(result(&document)->kind, NODE_NUMBER);
    assert_int_equal(result(&document)->number, 12);
    assert_int_equal(substitute("a.${n}.${word}", &document), 0);
    assert_int_equal(result(&document)->kind, NODE_TEXT);
    assert_string_equal(result(&document)->text, "a.12.text");
    assert_int_equal(substitute("$n {} ${ ${}", &document), 0);
    assert_string_equal(result(&document)->text, "$n {} ${ ${}");
}

TEST(an_unknown_key_is_named_with_its_step)
{
    struct recipe_node document;
    assert_int_equal(substitute("${nobody}", &document), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "nobody"));
    assert_non_null(strstr(error.message, "step 1"));
}

TEST(a_default_stands_for_an_unknown_key)
{
    struct recipe_node document;
    assert_int_equal(substitute("${nobody:-7}", &document), 0);
    assert_int_equal(result(&document)->number, 7);
    assert_int_equal(substitute("${nobody:-null}", &document), 0);
    assert_int_equal(result(&document)->kind, NODE_NULL);
    assert_int_equal(substitute("${n:-7}", &document), 0);
    assert_int_equal(result(&document)->number, 12);
    assert_int_equal(substitute("x${nobody:-}y", &document), 0);
    assert_string_equal(result(&document)->text, "xy");
}

TEST(a_key_of_255_bytes_is_looked_up_and_a_longer_one_is_text)
{
    struct recipe_node document;
    char text[300] = "${";
    memset(text + 2, 'k', 255);
    strcpy(text + 257, "}");
    assert_int_equal(substitute(text, &document), -1);
    assert_int_equal(strlen(asked), 255);
    strcpy(text + 257, "k}");
    assert_int_equal(substitute(text, &document), 0);
    assert_string_equal(result(&document)->text, text);
}

TESTS_IN(setup, teardown)
