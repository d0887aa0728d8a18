#include "variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "client.h"
#include "read_file.h"
#include "recipe/builtin_recipes.h"
#include "recipe/recipe.h"
#include "recipe/substitute.h"
#include "recipe_yaml.h"
#include "sidecars.h"

/* --- files ---------------------------------------------------------------------------------------------------------- */

/* The caller frees; a NUL follows the bytes. NULL on error. */
static char *read_whole(const char *path, size_t *length, struct error *error)
{
    char *text;
    *length = 0;
    if (read_file(path, VARIANT_MAX_FILE_BYTES, &text, length, error) < 0 && *length > VARIANT_MAX_FILE_BYTES)
        fail(error, ERROR_INVALID_ARGUMENT, "RECIPE_TOO_LARGE", "%s has more than %d MiB", text_show(path),
             VARIANT_MAX_FILE_BYTES >> 20);
    return text;
}

/* --- values --------------------------------------------------------------------------------------------------------- */

struct values {
    const struct variant_input *input;
    struct arena *arena;
    bool *is_used; /* of each setting */
    bool has_config;
    struct recipe_node config;
};

static int read_config(struct values *values, struct error *error)
{
    char *json = NULL;
    size_t length = 0;
    if (values->has_config)
        return 0;
    values->has_config = true;
    if (!values->input->config)
        return 0;
    if (values->input->config(values->input->data, &json, &length, error) < 0)
        return -1;
    int failed =
        json ? recipe_node_parse_config(json, length, "the artifact's config.json", values->arena, &values->config, error)
             : 0;
    free(json);
    return failed;
}

static int find_value(void *data, const char *key, struct recipe_node *value, struct error *error)
{
    struct values *values = data;
    const struct variant_input *input = values->input;
    char shown[RECIPE_NODE_CHARS];
    for (size_t i = 0; i < input->n_settings; i++) {
        if (strcmp(input->settings[i].key, key) == 0) {
            values->is_used[i] = true;
            recipe_value(input->settings[i].value, value);
            return 1;
        }
    }
    if (read_config(values, error) < 0)
        return -1;
    const struct recipe_node *config = &values->config, *found = NULL;
    for (size_t i = 0; config->kind == NODE_MAP && i < config->n_items; i += 2)
        if (strcmp(config->items[i].text, key) == 0)
            found = &config->items[i + 1]; /* the last one, as for all programs that read the file */
    if (!found || found->kind == NODE_NULL)
        return 0;
    if (found->kind == NODE_LIST || found->kind == NODE_MAP)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_VARIABLE",
                    "${%s} is %s in the artifact's config.json; set it: --set %s=..", key, recipe_node_show(found, shown),
                    key);
    *value = *found;
    if (found->kind == NODE_BOOL) {
        value->text = found->number ? "true" : "false";
        value->length = strlen(value->text);
    }
    return 1;
}

static int check_used(const struct values *values, struct error *error)
{
    for (size_t i = 0; i < values->input->n_settings; i++) {
        const char *key = values->input->settings[i].key;
        if (!values->is_used[i])
            return fail(error, ERROR_INVALID_ARGUMENT, "UNKNOWN_SETTING", "the recipe has no ${%s} that could be set",
                        text_show(key));
    }
    return 0;
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

/* Beside the recipe's file, where there is one. The caller frees. */
static char *path_of(const struct variant_input *input, const char *path)
{
    const char *slash = input->recipe && *path != '/' ? strrchr(input->recipe, '/') : NULL;
    return slash ? memory_print("%.*s/%s", (int)(slash - input->recipe), input->recipe, path) : memory_copy_text(path);
}

/* A path of JSON becomes what the file says. */
static int inline_expectation(const struct variant_input *input, struct recipe_node *value, struct arena *arena,
                              struct error *error)
{
    size_t length;
    uint32_t line = value->line;
    char *path = path_of(input, value->text), *text = read_whole(path, &length, error);
    int failed = text ? recipe_node_parse(text, length, path, arena, value, error) : -1;
    value->line = line;
    free(text);
    free(path);
    return failed;
}

static int inline_expectations(const struct variant_input *input, const char *name, struct recipe_node *document,
                               struct arena *arena, struct error *error)
{
    const struct recipe_node *steps = document->kind == NODE_LIST ? document : recipe_node_get(document, "steps");
    for (size_t i = 0; steps && steps->kind == NODE_LIST && i < steps->n_items; i++) {
        const struct recipe_node *node = &steps->items[i];
        const struct recipe_step step = {.kind = STEP_EXPECT, .number = (uint32_t)i + 1, .line = node->line};
        for (size_t k = 0; node->kind == NODE_MAP && k < node->n_items; k += 2) {
            struct recipe_node *value = &node->items[k + 1];
            if (strcmp(node->items[k].text, "expect") == 0 && value->kind == NODE_TEXT &&
                inline_expectation(input, value, arena, error) < 0)
                return recipe_error_prefix(&step, name, error);
        }
    }
    return 0;
}

static int read_document(const struct variant_input *input, const char **name, struct arena *arena,
                         struct recipe_node *document, struct error *error)
{
    const struct builtin_recipe *builtin = input->recipe && !input->text ? builtin_recipe_find(input->recipe) : NULL;
    size_t length;
    *name = input->recipe ? input->recipe : "the recipe";
    if (!input->recipe)
        return recipe_node_parse(input->text, strlen(input->text), *name, arena, document, error);
    if (input->text)
        return recipe_yaml_parse(input->text, input->length, *name, arena, document, error);
    if (builtin)
        return recipe_yaml_parse(builtin->yaml, strlen(builtin->yaml), *name, arena, document, error);
    char *text = read_whole(input->recipe, &length, error);
    int failed = text ? recipe_yaml_parse(text, length, *name, arena, document, error) : -1;
    free(text);
    if (!text && error->code == ERROR_NOT_FOUND)
        error_append(error, "; `tensorcast variants` lists the built-in recipes");
    return failed;
}

static struct tc_variant *keep_recipe(const struct recipe *recipe, const struct variant_input *input, struct error *error)
{
    char *json = recipe_json(recipe, error);
    if (!json)
        return NULL;
    struct tc_variant *variant = memory_alloc(sizeof *variant);
    variant->json = json;
    variant->length = strlen(json);
    variant->name = memory_copy_text(input->recipe);
    variant->n_steps = recipe->n_steps;
    variant->lines = memory_alloc_array(recipe->n_steps + 1, sizeof *variant->lines);
    for (size_t i = 0; i < recipe->n_steps; i++)
        variant->lines[i] = recipe->steps[i].line;
    return variant;
}

struct tc_variant *variant_read(const struct variant_input *input, struct error *error)
{
    struct tc_variant *variant = NULL;
    struct recipe_node document;
    struct recipe recipe;
    struct arena arena;
    const char *name;
    arena_init(&arena, 0);
    struct values values = {.input = input, .arena = &arena};
    const struct recipe_lookup lookup = {find_value, &values};
    values.is_used = memory_alloc_array(input->n_settings + 1, sizeof *values.is_used);
    if (read_document(input, &name, &arena, &document, error) == 0 &&
        recipe_substitute(&document, name, &lookup, &arena, error) == 0 && check_used(&values, error) == 0 &&
        inline_expectations(input, name, &document, &arena, error) == 0 &&
        recipe_build(&document, name, &arena, &recipe, error) == 0)
        variant = keep_recipe(&recipe, input, error);
    free(values.is_used);
    arena_fini(&arena);
    return variant;
}

/* Canonical JSON is the list of steps. The line of the new one is unknown. */
void variant_append(struct tc_variant **variant, const char *step)
{
    struct tc_variant *all = *variant;
    if (!all)
        all = *variant = memory_alloc(sizeof *all);
    size_t n_kept = all->n_steps ? all->length - 1 : 0;
    char *json = n_kept ? memory_print("%.*s,%s]", (int)n_kept, all->json, step) : memory_print("[%s]", step);
    free(all->json);
    all->json = json;
    all->length = strlen(json);
    all->lines = memory_grow(all->lines, all->n_steps + 1, sizeof *all->lines);
    all->lines[all->n_steps++] = 0;
}

int variant_locate(const struct tc_variant *variant, struct error *error)
{
    const char *value, *key = error_next_note(error, NULL, &value);
    while (key && strcmp(key, "step") != 0)
        key = error_next_note(error, key, &value);
    size_t step = key ? strtoul(value, NULL, 10) : 0;
    if (!variant || !variant->name || step == 0 || step > variant->n_steps || !variant->lines[step - 1])
        return -1;
    return error_prefix(error, "%s:%u", text_show(variant->name), variant->lines[step - 1]);
}

/* --- the library's functions ---------------------------------------------------------------------------------------- */

struct config_question {
    struct tc_client *client;
    const char *artifact;
    const struct tc_options *options;
};

static int ask_config(void *data, char **json, size_t *length, struct error *error)
{
    const struct config_question *question = data;
    if (!question->client)
        return 0;
    return sidecars_stored_config(question->client, question->artifact, question->options, json, length, error);
}

/* With the artifact's config.json, asked of the daemon; client NULL = without. */
static struct tc_variant *read_variant(struct tc_client *client, const char *artifact, const struct tc_options *options,
                                       struct variant_input input, struct tc_error *error)
{
    struct error cause;
    struct config_question question = {client, artifact, options};
    input.config = ask_config;
    input.data = &question;
    struct tc_variant *variant = variant_read(&input, &cause);
    if (!variant)
        client_fail(error, &cause);
    return variant;
}

struct tc_variant *tc_variant_create(struct tc_client *client, const char *artifact, const char *recipe,
                                     const struct tc_setting *settings, size_t n_settings, const struct tc_options *options,
                                     struct tc_error *error)
{
    const struct variant_input input = {.recipe = recipe, .settings = settings, .n_settings = n_settings};
    return read_variant(client, artifact, options, input, error);
}

struct tc_variant *tc_variant_parse(struct tc_client *client, const char *artifact, const char *json,
                                    const struct tc_setting *settings, size_t n_settings, const struct tc_options *options,
                                    struct tc_error *error)
{
    const struct variant_input input = {.text = json, .settings = settings, .n_settings = n_settings};
    return read_variant(client, artifact, options, input, error);
}

void tc_variant_release(struct tc_variant *variant)
{
    if (!variant)
        return;
    free(variant->json);
    free(variant->name);
    free(variant->lines);
    free(variant);
}

const char *tc_variant_json(const struct tc_variant *variant)
{
    return variant->json;
}

unsigned tc_variant_line(const struct tc_variant *variant, size_t step)
{
    return step > 0 && step <= variant->n_steps ? variant->lines[step - 1] : 0;
}

const char *tc_builtin_variant(size_t index, const char **summary)
{
    if (index >= n_builtin_recipes)
        return NULL;
    if (summary)
        *summary = builtin_recipes[index].summary;
    return builtin_recipes[index].name;
}
