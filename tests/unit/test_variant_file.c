/* Recipes as the client reads them: YAML, values for ${KEY}, expectations in files, and where the daemon's errors are. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "base/memory.h"
#include "client/variant.h"
#include "recipe/builtin_recipes.h"
#include "recipe/recipe_node.h"

static struct error error;
static char folder[64], path[100];
static const char *config;
static int n_asked;

static int give_config(void *data, char **json, size_t *length, struct error *problem)
{
    n_asked++;
    *json = config ? memory_copy_text(config) : NULL;
    *length = config ? strlen(config) : 0;
    return 0;
}

static void put(const char *name, const char *text, size_t length)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

static struct tc_variant *read_with(const char *yaml, const struct tc_setting *settings, size_t n_settings)
{
    put("recipe.yaml", yaml, strlen(yaml));
    const struct variant_input input = {
        .recipe = path, .settings = settings, .n_settings = n_settings, .config = give_config};
    n_asked = 0;
    return variant_read(&input, &error);
}

static void reads_as(const char *yaml, const char *json)
{
    struct tc_variant *variant = read_with(yaml, NULL, 0);
    if (!variant)
        fail_msg("%s: %s", yaml, error.message);
    assert_string_equal(variant->json, json);
    tc_variant_release(variant);
}

static void refuses(const char *yaml, const char *named)
{
    struct tc_variant *variant = read_with(yaml, NULL, 0);
    if (variant)
        fail_msg("%s is taken", yaml);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, named) || !strstr(error.message, "recipe.yaml"))
        fail_msg("%s: %s does not name %s", yaml, error.message, named);
}

TEST(yaml_is_read_as_its_core_schema_says)
{
    reads_as("steps: []\nversion: 1\n", "[]");
    reads_as("version: 1\nsteps:\n- drop: [a, 'b', \"c\\u00e9\", '7']\n  optional: true\n",
             "[{\"drop\":[\"a\",\"b\",\"c\303\251\",\"7\"],\"optional\":true}]");
    reads_as("version: 1\nsteps: [{rename: {7: '8'}}]", "[{\"rename\":{\"7\":\"8\"}}]");
    reads_as("version: 1\nsteps: [{drop: [!!str 7]}]", "[{\"drop\":[\"7\"]}]");
    reads_as("version: !!int '1'\nsteps: [{drop: [&x a, *x]}]", "[{\"drop\":[\"a\",\"a\"]}]");
    reads_as("version: 1\nsteps: [{slice: {tensors: [a], slices: [[~, null], [+1, -2]]}}]",
             "[{\"slice\":{\"tensors\":[\"a\"],\"slices\":[[0,9223372036854775807],[1,-2]]}}]");
    reads_as("{\"version\": 1, \"steps\": [{\"drop\": [\"a\"]}]}", "[{\"drop\":[\"a\"]}]");
    reads_as("version: 0x1\nsteps: [{permute_rope: {tensors: [q], heads: 0x10, to: halves}}]",
             "[{\"permute_rope\":{\"tensors\":[\"q\"],\"heads\":16,\"to\":\"halves\"}}]");
    reads_as("version: 1\nsteps: [{permute_rope: {tensors: [q], heads: 0o20, to: halves}}]",
             "[{\"permute_rope\":{\"tensors\":[\"q\"],\"heads\":16,\"to\":\"halves\"}}]");
    reads_as("version: 1\nsteps: [{drop: [\"0x10\", 0xg, 0o8, 0x]}]", "[{\"drop\":[\"0x10\",\"0xg\",\"0o8\",\"0x\"]}]");
    refuses("version: 1\nsteps:\n  - drop: [0x10]", ":3: step 1");
}

TEST(what_is_no_recipe_is_refused_by_line)
{
    refuses("", "empty");
    refuses("{", "this is no YAML");
    refuses("[]", "version: 1");
    refuses("version: 1\nsteps: []\n---\nversion: 1", ":3: a second document");
    refuses("version: 1\nsteps: []\nsteps: []", ":3: 'steps' is there twice");
    refuses("version: 1\nsteps:\n- rename: {a: x,\n   a: y}", ":4: 'a' is there twice");
    refuses("version: 1\nsteps: [!!python/object/apply:os.system [echo]]", ":2: tags");
    refuses("version: 1\nsteps: [!mine a]", "tags");
    refuses("version: 1\nsteps:\n  - drop: [!!int x]", ":3: the tag");
    refuses("version: !!float 1\nsteps: []", ":1: the tag");
    refuses("version: 1\nsteps: [{drop: &l [a]}, {drop: *l}]", "alias");
    refuses("version: 1\nsteps: [{drop: [&x a]}, {drop: &x [a]}, {drop: [*x]}]", "alias"); /* the list has the name now */
    refuses("version: 1\nsteps:\n\t- drop: [a]", "this is no YAML");
    refuses("version: 1\nsteps: [{[a]: b}]", "a key has to be text");
    refuses("version: 1.0\nsteps: []", "version: 1");
    refuses("version: 1\nsteps:\n  - drop: [a]\n\n  - drop: [1e5]", ":5: step 2");
    refuses("version: 1\nsteps: [{drop: [true]}]", "true");
    refuses("version: 1\nsteps: [\"\\0\"]", "NUL");
    char deep[200] = "version: 1\nsteps: ";
    for (int i = 0; i < 70; i++)
        strcat(deep, "[");
    refuses(deep, "levels");
}

TEST(a_recipe_has_sixty_four_levels_and_not_one_more)
{
    for (int n_lists = RECIPE_MAX_DEPTH - 1; n_lists <= RECIPE_MAX_DEPTH; n_lists++) { /* in the mapping, which is a level */
        char text[200] = "version: 1\nsteps: ";
        for (int i = 0; i < n_lists; i++)
            strcat(text, "[");
        for (int i = 0; i < n_lists; i++)
            strcat(text, "]");
        refuses(text, n_lists < RECIPE_MAX_DEPTH ? "step 1" : "too many levels");
    }
}

TEST(values_come_from_settings_before_config_json)
{
    const char yaml[] = "version: 1\nsteps: [{permute_rope: {tensors: [q], heads: '${heads}', to: '${way}'}}]";
    struct tc_variant *variant;
    config = "{\"heads\": 4, \"way\": \"halves\", \"list\": [1]}";
    assert_non_null(variant = read_with(yaml, NULL, 0));
    assert_non_null(strstr(variant->json, "\"heads\":4,\"to\":\"halves\""));
    assert_int_equal(n_asked, 1);
    tc_variant_release(variant);
    const struct tc_setting settings[] = {{"heads", "8"}, {"way", "interleaved"}, {"unused", "1"}};
    assert_non_null(variant = read_with(yaml, settings, 2));
    assert_non_null(strstr(variant->json, "\"heads\":8,\"to\":\"interleaved\""));
    assert_int_equal(n_asked, 0);
    tc_variant_release(variant);
    assert_null(read_with(yaml, settings, 3));
    assert_non_null(strstr(error.message, "unused"));
    config = NULL;
    refuses(yaml, "heads");
    config = "{\"heads\": [4]}";
    refuses(yaml, "a list");
    config = "{\"way\": \"halves\", \"heads\": 4, \"heads\": 6}";
    assert_non_null(variant = read_with(yaml, NULL, 0));
    assert_non_null(strstr(variant->json, "\"heads\":6,"));
    tc_variant_release(variant);
    config = "{";
    assert_null(read_with(yaml, NULL, 0));
    config = NULL;
}

TEST(expectations_may_be_in_a_file_beside_the_recipe)
{
    static const char expected[] = "{\"a\": {\"shape\": [2], \"dtype\": \"F32\"}}";
    put("expected.json", expected, strlen(expected));
    reads_as("version: 1\nsteps: [{expect: expected.json}]", "[{\"expect\":{\"a\":{\"shape\":[2],\"dtype\":\"F32\"}}}]");
    unlink(path);
    assert_null(read_with("version: 1\nsteps: [{expect: missing.json}]", NULL, 0));
    assert_non_null(strstr(error.message, "missing.json"));
    snprintf(path, sizeof path, "%s/expected.json", folder);
    unlink(path);
}

TEST(errors_of_a_step_are_found_in_the_file)
{
    struct tc_variant *variant = read_with("version: 1\nsteps:\n  - drop: [a]\n\n  - drop: [b]\n", NULL, 0);
    assert_int_equal(tc_variant_line(variant, 2), 5);
    assert_int_equal(tc_variant_line(variant, 0), 0);
    assert_int_equal(tc_variant_line(variant, 3), 0);
    (fail)(&error, ERROR_INVALID_ARGUMENT, "X", "step 2 (drop): no");
    error_note(&error, "tensor", "t");
    error_note(&error, "step", "2");
    variant_locate(variant, &error);
    assert_non_null(strstr(error.message, "recipe.yaml:5: step 2 (drop): no"));
    (fail)(&error, ERROR_INVALID_ARGUMENT, "X", "of no step");
    variant_locate(variant, &error);
    assert_string_equal(error.message, "of no step");
    variant_locate(NULL, &error);
    tc_variant_release(variant);
    tc_variant_release(NULL);
}

TEST(built_in_recipes_can_be_read)
{
    static const struct tc_setting of_upcycling[] = {{"experts", "8"}, {"inter_dim", "4"}};
    const char *name, *summary;
    config = "{\"num_attention_heads\": 4, \"num_key_value_heads\": 2}";
    for (size_t i = 0; (name = tc_builtin_variant(i, &summary)); i++) {
        bool upcycles = strcmp(name, "moe-upcycle") == 0;
        const struct variant_input input = {
            .recipe = name, .settings = of_upcycling, .n_settings = upcycles ? 2 : 0, .config = give_config};
        struct tc_variant *variant = variant_read(&input, &error);
        if (!variant)
            fail_msg("%s: %s", name, error.message);
        assert_true(*summary);
        tc_variant_release(variant);
    }
    assert_null(builtin_recipe_find("nothing"));
    const struct variant_input input = {.recipe = "nothing"};
    assert_null(variant_read(&input, &error));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    config = NULL;
}

TEST(text_is_json)
{
    const struct variant_input good = {.text = "{\"version\": 1, \"steps\": [{\"drop\": [\"a\"]}]}"},
                               bad = {.text = "version: 1"};
    struct tc_variant *variant = variant_read(&good, &error);
    assert_string_equal(tc_variant_json(variant), "[{\"drop\":[\"a\"]}]");
    tc_variant_release(variant);
    assert_null(variant_read(&bad, &error));
}

TEST(a_file_of_16_mib_is_read_and_one_byte_more_is_not)
{
    static const char yaml[] = "version: 1\nsteps: []\n# ";
    char *text = malloc(VARIANT_MAX_FILE_BYTES + 1);
    memset(text, 'x', VARIANT_MAX_FILE_BYTES + 1);
    memcpy(text, yaml, strlen(yaml));
    for (size_t more = 0; more <= 1; more++) {
        put("recipe.yaml", text, VARIANT_MAX_FILE_BYTES + more);
        const struct variant_input input = {.recipe = path};
        struct tc_variant *variant = variant_read(&input, &error);
        assert_int_equal(variant == NULL, more);
        tc_variant_release(variant);
    }
    assert_string_equal(error.reason, "RECIPE_TOO_LARGE");
    free(text);
}

static int setup(void **state)
{
    strcpy(folder, "/tmp/test_variant_file.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    snprintf(path, sizeof path, "%s/recipe.yaml", folder);
    unlink(path);
    return rmdir(folder);
}

TESTS_IN(setup, teardown)
