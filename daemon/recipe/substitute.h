/* ${KEY} in the texts of a recipe, and ${KEY:-DEFAULT} for a key that need not be set. A text that is nothing but one of
 * them becomes what the value is: a number, if it is one, or null. Pure except for the lookup. */
#ifndef RECIPE_SUBSTITUTE_H
#define RECIPE_SUBSTITUTE_H

#include "recipe/recipe_node.h"

struct recipe_lookup {
    /* 1 with the key's value, which is no list or mapping; 0 = it has none; -1 with error. */
    int (*find)(void *data, const char *key, struct recipe_node *value, struct error *error);
    void *data;
};

/* In every step of a document, in place; what is new lives in the arena. `name` is what messages call the document. A key
 * without a value is INVALID_ARGUMENT, naming it. */
int recipe_substitute(struct recipe_node *document, const char *name, const struct recipe_lookup *lookup,
                      struct arena *arena, struct error *error);

/* A value as it is written on a command line: a whole number is one, everything else is text. */
void recipe_value(const char *text, struct recipe_node *value);

#endif
