#include "recipe/recipe_node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"

struct reader {
    struct json json;
    struct arena *arena;
    struct error *error;
    bool has_failed; /* error is filled in */
};

bool recipe_text_is_number(const char *text, size_t length, int64_t *number)
{
    size_t at = length && (text[0] == '-' || text[0] == '+');
    uint64_t value = 0, limit = length && text[0] == '-' ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    if (at == length || length - at > 19)
        return false;
    for (; at < length; at++) {
        if (text[at] < '0' || text[at] > '9')
            return false;
        value = value * 10 + (uint64_t)(text[at] - '0');
    }
    *number = text[0] == '-' ? (int64_t)(0 - value) : (int64_t)value;
    return value <= limit;
}

static bool read_value(struct reader *reader, struct recipe_node *node);

struct recipe_node *recipe_node_add(struct recipe_node *list, size_t *capacity, struct arena *arena, struct error *error)
{
    if (list->n_items == *capacity) {
        size_t n = *capacity ? 2 * *capacity : 4;
        struct recipe_node *items = arena_try_array(arena, n, sizeof *items, error);
        if (!items)
            return NULL;
        if (list->n_items)
            memcpy(items, list->items, list->n_items * sizeof *items);
        if (list->items)
            arena_give_back(arena, list->items);
        list->items = items;
        *capacity = n;
    }
    struct recipe_node *item = &list->items[list->n_items++];
    *item = (struct recipe_node){0};
    return item;
}

static struct recipe_node *add_item(struct reader *reader, struct recipe_node *node, size_t *capacity)
{
    struct recipe_node *item = recipe_node_add(node, capacity, reader->arena, reader->error);
    reader->has_failed |= !item;
    return item;
}

static bool set_text(struct reader *reader, struct recipe_node *node, const char *text, size_t length)
{
    if (memchr(text, 0, length))
        return json_fail(&reader->json, "a text may not hold a NUL character");
    char *copy = arena_try_bytes(reader->arena, length + 1, reader->error);
    reader->has_failed = !copy;
    if (!copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    node->kind = NODE_TEXT;
    node->text = copy;
    node->length = length;
    return true;
}

static bool read_map(struct reader *reader, struct recipe_node *node)
{
    struct json_string key;
    size_t capacity = 0;
    node->kind = NODE_MAP;
    if (!json_begin_object(&reader->json))
        return false;
    while (json_next_key(&reader->json, &key)) {
        struct recipe_node *name = add_item(reader, node, &capacity);
        if (!name || !set_text(reader, name, key.text, key.length))
            return false;
        struct recipe_node *value = add_item(reader, node, &capacity), read = {0};
        if (!value || !read_value(reader, &read))
            return false;
        node->items[node->n_items - 1] = read;
    }
    return json_ok(&reader->json);
}

static bool read_list(struct reader *reader, struct recipe_node *node)
{
    size_t capacity = 0;
    node->kind = NODE_LIST;
    if (!json_begin_array(&reader->json))
        return false;
    while (json_next_item(&reader->json)) {
        struct recipe_node read = {0};
        if (!add_item(reader, node, &capacity) || !read_value(reader, &read))
            return false;
        node->items[node->n_items - 1] = read;
    }
    return json_ok(&reader->json);
}

static bool read_number(struct reader *reader, struct recipe_node *node)
{
    const char *begin = reader->json.at;
    if (!json_skip(&reader->json))
        return false;
    size_t length = (size_t)(reader->json.at - begin);
    if (!set_text(reader, node, begin, length))
        return false;
    node->kind = recipe_text_is_number(begin, length, &node->number) ? NODE_NUMBER : NODE_FRACTION;
    return true;
}

static bool read_value(struct reader *reader, struct recipe_node *node)
{
    struct json *json = &reader->json;
    struct json_string string;
    switch (json_peek(json)) {
    case JSON_OBJECT:
        return read_map(reader, node);
    case JSON_ARRAY:
        return read_list(reader, node);
    case JSON_STRING:
        return json_take_string(json, &string) && set_text(reader, node, string.text, string.length);
    case JSON_NUMBER:
        return read_number(reader, node);
    case JSON_TRUE:
    case JSON_FALSE:
        node->kind = NODE_BOOL;
        node->number = json_peek(json) == JSON_TRUE;
        return json_skip(json);
    default:
        node->kind = NODE_NULL;
        return json_take_null(json);
    }
}

static int parse_node(const char *json, size_t length, const char *what, bool is_lenient, struct arena *arena,
                      struct recipe_node *node, struct error *error)
{
    struct reader reader = {.arena = arena, .error = error};
    char problem[JSON_ERROR_CHARS];
    *node = (struct recipe_node){0};
    json_init(&reader.json, json, length, arena);
    reader.json.memory_error = error;
    reader.json.is_lenient = is_lenient;
    if (read_value(&reader, node) && json_end(&reader.json))
        return 0;
    if (reader.has_failed || reader.json.is_out_of_memory)
        return -1;
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RECIPE", "%s: %s", text_show(what), json_error(&reader.json, problem));
}

int recipe_node_parse(const char *json, size_t length, const char *what, struct arena *arena, struct recipe_node *node,
                      struct error *error)
{
    return parse_node(json, length, what, false, arena, node, error);
}

int recipe_node_parse_config(const char *json, size_t length, const char *what, struct arena *arena,
                             struct recipe_node *node, struct error *error)
{
    return parse_node(json, length, what, true, arena, node, error);
}

int recipe_node_find_duplicate(const struct recipe_node *map, const struct recipe_node **key, struct error *error)
{
    struct map seen;
    bool found = false;
    if (map_init_charged(&seen, map->n_items / 2, error) < 0)
        return -1;
    for (size_t i = 0; i < map->n_items && !found; i += 2) {
        *key = &map->items[i];
        found = map_add(&seen, map->items[i].text, map->items[i].length, 0) != MAP_NONE;
    }
    map_fini(&seen);
    return found;
}

const struct recipe_node *recipe_node_get(const struct recipe_node *map, const char *key)
{
    for (size_t i = 0; map->kind == NODE_MAP && i < map->n_items; i += 2) {
        if (strcmp(map->items[i].text, key) == 0)
            return &map->items[i + 1];
    }
    return NULL;
}

const char *recipe_node_show(const struct recipe_node *node, char out[RECIPE_NODE_CHARS])
{
    static const char *const kinds[] = {[NODE_NULL] = "null", [NODE_LIST] = "a list", [NODE_MAP] = "a mapping"};
    if (node->kind == NODE_TEXT)
        snprintf(out, RECIPE_NODE_CHARS, "'%s'", text_show_bytes(node->text, node->length));
    else if (node->kind == NODE_NUMBER || node->kind == NODE_FRACTION)
        snprintf(out, RECIPE_NODE_CHARS, "the number %s", text_show_bytes(node->text, node->length));
    else if (node->kind == NODE_BOOL)
        snprintf(out, RECIPE_NODE_CHARS, "%s", node->number ? "true" : "false");
    else if (node->kind != NODE_NULL && !node->n_items)
        snprintf(out, RECIPE_NODE_CHARS, "an empty %s", node->kind == NODE_LIST ? "list" : "mapping");
    else
        snprintf(out, RECIPE_NODE_CHARS, "%s", kinds[node->kind]);
    return out;
}
