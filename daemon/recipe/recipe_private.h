/* Shared by the reader of steps (recipe.c) and their checks (recipe_check.c). */
#ifndef RECIPE_RECIPE_PRIVATE_H
#define RECIPE_RECIPE_PRIVATE_H

#include "recipe/recipe.h"

struct reading { /* of one step */
    struct arena *arena;
    struct recipe_step *step;
    const char *argument; /* that is being read; NULL = the step itself */
    struct error *error;
};

int recipe_complain(const struct reading *reading, const char *complaint); /* -1, INVALID_ARGUMENT */

/* Arguments that contradict each other, or that no tensor would fit. INVALID_ARGUMENT in the error of the reading. */
int recipe_check_step(const struct reading *reading);

#endif
