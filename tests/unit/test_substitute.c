/* ${KEY} in recipes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "recipe/recipe.h"
#include "recipe/substitute.h"

#include <cmocka.h>

static struct arena arena;
static struct error error;
static char asked[400];

static int find(void *data, const char *key, struct recipe_node *value, struct error *problem)
{
    (void)data;
    (void)problem;
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

static void a_whole_value_that_is_a_number_becomes_one(void **state)
{
    struct recipe_node document;
    (void)state;
    assert_int_equal(substitute("${n}", &document), 0);
    assert_int_equal(result(&document)->kind, NODE_NUMBER);
    assert_int_equal(result(&document)->number, 12);
    assert_int_equal(substitute("a.${n}.${word}", &document), 0);
    assert_int_equal(result(&document)->kind, NODE_TEXT);
    assert_string_equal(result(&document)->text, "a.12.text");
    assert_int_equal(substitute("$n {} ${ ${}", &document), 0);
    assert_string_equal(result(&document)->text, "$n {} ${ ${}");
}

static void a_key_that_nobody_knows_is_named_with_its_step(void **state)
{
    struct recipe_node document;
    (void)state;
    assert_int_equal(substitute("${nobody}", &document), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "nobody"));
    assert_non_null(strstr(error.message, "step 1"));
}

static void a_default_stands_for_a_key_that_nobody_knows(void **state)
{
    struct recipe_node document;
    (void)state;
    assert_int_equal(substitute("${nobody:-7}", &document), 0);
    assert_int_equal(result(&document)->number, 7);
    assert_int_equal(substitute("${nobody:-null}", &document), 0);
    assert_int_equal(result(&document)->kind, NODE_NULL);
    assert_int_equal(substitute("${n:-7}", &document), 0);
    assert_int_equal(result(&document)->number, 12);
    assert_int_equal(substitute("x${nobody:-}y", &document), 0);
    assert_string_equal(result(&document)->text, "xy");
}

static void a_key_of_255_bytes_is_looked_up_and_a_longer_one_is_text(void **state)
{
    struct recipe_node document;
    char text[300] = "${";
    (void)state;
    memset(text + 2, 'k', 255);
    strcpy(text + 257, "}");
    assert_int_equal(substitute(text, &document), -1);
    assert_int_equal(strlen(asked), 255);
    strcpy(text + 257, "k}");
    assert_int_equal(substitute(text, &document), 0);
    assert_string_equal(result(&document)->text, text);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_value_that_is_a_number_becomes_one),
        cmocka_unit_test(a_key_that_nobody_knows_is_named_with_its_step),
        cmocka_unit_test(a_default_stands_for_a_key_that_nobody_knows),
        cmocka_unit_test(a_key_of_255_bytes_is_looked_up_and_a_longer_one_is_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
