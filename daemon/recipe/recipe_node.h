/* A document as a tree: what JSON (here) and YAML (client/recipe_yaml.c) are read into, before it is known to be a recipe.
 *
 * Nodes and texts live in the reader's arena, whose cap bounds what a document may take. Pure; any thread. */
#ifndef RECIPE_RECIPE_NODE_H
#define RECIPE_RECIPE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"

enum recipe_node_kind { NODE_NULL, NODE_BOOL, NODE_NUMBER, NODE_FRACTION, NODE_TEXT, NODE_LIST, NODE_MAP };

struct recipe_node {
    enum recipe_node_kind kind;
    uint32_t line;    /* on which it begins, from 1; 0 = unknown */
    const char *text; /* of a text, NUL-terminated and without a NUL within; of numbers as they were written */
    size_t length;
    int64_t number;            /* whole; of a bool 0 or 1 */
    struct recipe_node *items; /* of a list; of a map its keys, which are texts, each followed by its value */
    size_t n_items;            /* of a map twice the number of keys */
};

enum { RECIPE_MAX_DEPTH = JSON_MAX_DEPTH };

/* JSON of one value. `what` names the document in messages. 0, or -1 with INVALID_ARGUMENT, or RESOURCE_EXHAUSTED when the
 * arena is full. */
int recipe_node_parse(const char *json, size_t length, const char *what, struct arena *arena, struct recipe_node *node,
                      struct error *error);
/* The same of a document that other programs write, such as config.json: as leniently as Python reads it. */
int recipe_node_parse_config(const char *json, size_t length, const char *what, struct arena *arena,
                             struct recipe_node *node, struct error *error);

/* Behind the items so far, which move when there is no room; zeroed. *capacity: of items, 0 at first. NULL: error. */
struct recipe_node *recipe_node_add(struct recipe_node *list, size_t *capacity, struct arena *arena, struct error *error);
/* 1: *key occurs twice in this map; 0: none does; -1 where there is no memory to find out. */
int recipe_node_find_duplicate(const struct recipe_node *map, const struct recipe_node **key, struct error *error);
/* NULL = there is no such key. */
const struct recipe_node *recipe_node_get(const struct recipe_node *map, const char *key);
/* "a list", "the number 7", "'two'": for messages. Returns `out`. */
enum { RECIPE_NODE_CHARS = 240 };
const char *recipe_node_show(const struct recipe_node *node, char out[RECIPE_NODE_CHARS]);
/* Text that is nothing but a whole number of 64 bits. */
bool recipe_text_is_number(const char *text, size_t length, int64_t *number);

#endif
