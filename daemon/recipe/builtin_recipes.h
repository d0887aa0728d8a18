/* The recipes that come with the program, as the YAML that a user would write. */
#ifndef RECIPE_BUILTIN_RECIPES_H
#define RECIPE_BUILTIN_RECIPES_H

#include <stddef.h>

struct builtin_recipe {
    const char *name, *summary; /* a line for people */
    const char *yaml;
};

extern const struct builtin_recipe builtin_recipes[];
extern const size_t n_builtin_recipes;

const struct builtin_recipe *builtin_recipe_find(const char *name); /* may be NULL */

#endif
