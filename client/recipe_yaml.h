/* A YAML document as the tree of recipe/recipe_node.h: libyaml's events, with what a recipe has no use for refused by name.
 * Plain scalars are null, booleans, numbers or text, as in YAML's core schema; everything quoted is text. Refused are a
 * second document, tags other than the core ones, keys that are there twice, aliases of lists and mappings (which can grow
 * without bound), and more than RECIPE_MAX_DEPTH levels. Pure; any thread. */
#ifndef CLIENT_RECIPE_YAML_H
#define CLIENT_RECIPE_YAML_H

#include "recipe/recipe_node.h"

/* Nodes live in the arena. -1: INVALID_ARGUMENT as "NAME:LINE: ..". */
int recipe_yaml_parse(const char *text, size_t length, const char *name, struct arena *arena, struct recipe_node *node,
                      struct error *error);

#endif
