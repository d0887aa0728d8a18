#include "recipe/substitute.h"

#include <string.h>

#include "base/text.h"
#include "recipe/recipe.h"

enum { MAX_KEY_BYTES = 255 };

struct substituting {
    const struct recipe_lookup *lookup;
    struct arena *arena;
    struct error *error;
};

struct variable { /* in a text */
    size_t begin, end;
    char key[MAX_KEY_BYTES + 1];
    const char *fallback; /* NULL = none */
    size_t fallback_length;
};

void recipe_value(const char *text, struct recipe_node *value)
{
    *value = (struct recipe_node){.kind = NODE_TEXT, .text = text, .length = strlen(text)};
    if (recipe_text_is_number(text, value->length, &value->number))
        value->kind = NODE_NUMBER;
}

/* The first one at or behind `from`. False: there is none; what is no key is text. */
static bool find_variable(const struct recipe_node *node, size_t from, struct variable *variable)
{
    const char *begin = from < node->length ? strstr(node->text + from, "${") : NULL;
    for (; begin; begin = strstr(begin + 2, "${")) {
        const char *end = strchr(begin, '}'), *dash = strstr(begin, ":-");
        if (!end)
            return false;
        const char *key_end = dash && dash < end ? dash : end;
        size_t length = (size_t)(key_end - begin) - 2;
        if (!(length > 0 && length <= MAX_KEY_BYTES &&
              strspn((begin + 2), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") >= length))
            continue;
        memcpy(variable->key, begin + 2, length);
        variable->key[length] = 0;
        variable->fallback = key_end == dash ? dash + 2 : NULL;
        variable->fallback_length = variable->fallback ? (size_t)(end - variable->fallback) : 0;
        variable->begin = (size_t)(begin - node->text);
        variable->end = (size_t)(end - node->text) + 1;
        return true;
    }
    return false;
}

static int find_value(const struct substituting *at, const struct variable *variable, struct recipe_node *value)
{
    int found = at->lookup->find(at->lookup->data, variable->key, value, at->error);
    if (found)
        return found < 0 ? -1 : 0;
    if (!variable->fallback) {
        const char *shown = text_show(variable->key);
        return fail(at->error, ERROR_INVALID_ARGUMENT, "UNKNOWN_VARIABLE",
                    "nothing says what ${%s} is: pass --set %s=VALUE, or have it in the artifact's config.json", shown,
                    shown);
    }
    char *text = arena_try_bytes(at->arena, variable->fallback_length + 1, at->error);
    if (!text)
        return -1;
    memcpy(text, variable->fallback, variable->fallback_length);
    text[variable->fallback_length] = '\0';
    recipe_value(text, value);
    if (strcmp(value->text, "null") == 0)
        value->kind = NODE_NULL;
    return 0;
}

static int substitute_text(const struct substituting *at, struct recipe_node *node, bool is_name)
{
    struct variable variable;
    for (size_t from = 0; find_variable(node, from, &variable);) {
        struct recipe_node value = {0};
        if (find_value(at, &variable, &value) < 0)
            return -1;
        if (!is_name && variable.begin == 0 && variable.end == node->length) {
            value.line = node->line;
            *node = value;
            return 0;
        }
        size_t length = node->length - (variable.end - variable.begin) + value.length;
        char *text = arena_try_bytes(at->arena, length + 1, at->error);
        if (!text)
            return -1;
        memcpy(text, node->text, variable.begin);
        memcpy(text + variable.begin, value.text, value.length);
        memcpy(text + variable.begin + value.length, node->text + variable.end, node->length - variable.end + 1);
        node->text = text;
        node->length = length;
        from = variable.begin + value.length; /* values are not looked into */
    }
    return 0;
}

static int substitute_in(const struct substituting *at, struct recipe_node *node)
{
    if (node->kind == NODE_TEXT)
        return substitute_text(at, node, false);
    for (size_t i = 0; i < node->n_items; i++) {
        bool is_name = node->kind == NODE_MAP && i % 2 == 0;
        if (is_name ? substitute_text(at, &node->items[i], true) : substitute_in(at, &node->items[i]))
            return -1;
    }
    return 0;
}

int recipe_substitute(struct recipe_node *document, const char *name, const struct recipe_lookup *lookup,
                      struct arena *arena, struct error *error)
{
    const struct substituting at = {lookup, arena, error};
    struct recipe_node *steps = document->kind == NODE_LIST ? document : NULL;
    for (size_t i = 0; document->kind == NODE_MAP && i < document->n_items; i += 2) {
        if (strcmp(document->items[i].text, "steps") == 0)
            steps = &document->items[i + 1];
    }
    for (size_t i = 0; steps && steps->kind == NODE_LIST && i < steps->n_items; i++) {
        const struct recipe_step step = {.kind = STEP_COUNT, .number = (uint32_t)i + 1, .line = steps->items[i].line};
        if (substitute_in(&at, &steps->items[i]) < 0)
            return error->code == ERROR_INVALID_ARGUMENT ? recipe_error_prefix(&step, name, error) : -1;
    }
    return 0;
}
