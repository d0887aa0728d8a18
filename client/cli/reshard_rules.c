#include "reshard_rules.h"

#include <stdbool.h>
#include <string.h>

enum { SHARED = -1 };

static const char *const of_columns[] = {"c_fc",   "c_attn", "wpe", "wte",  "lm_head", "q_proj",
                                         "k_proj", "v_proj", "up",  "gate", NULL};
static const char *const of_rows[] = {"c_attn", "c_proj", "o_proj", "down", NULL};
static const char *const of_all[] = {"norm", "bias", NULL};

static bool has_part(const char *name, size_t length, const char *const *parts)
{
    for (; *parts; parts++)
        if (memmem(name, length, *parts, strlen(*parts)))
            return true;
    return false;
}

int reshard_rules_dimension(const char *name, size_t name_length, size_t rank)
{
    int dimension = 0;
    bool is_bias = memmem(name, name_length, "bias", strlen("bias")) != NULL;
    if (!is_bias && has_part(name, name_length, of_columns))
        dimension = 1;
    else if (!has_part(name, name_length, of_rows) && has_part(name, name_length, of_all))
        dimension = SHARED;
    return dimension < (int)rank ? dimension : SHARED;
}
