/* What an operation does to elements, in a word, for tests that print transfers. */
#ifndef TESTS_SUPPORT_OPERATION_NAME_H
#define TESTS_SUPPORT_OPERATION_NAME_H

#include "resolve/operation.h"

static inline const char *operation_name(const struct operation *operation)
{
    for (uint32_t i = 0; i < operation->n_steps; i++)
        if (operation->steps[i].grid)
            return "dequantize";
    return operation->n_steps ? "cast" : "copy";
}

#endif
