/* The tensor-parallel shorthand: which part of a tensor a rank takes.
 *
 * With rules of the user's, the first whose glob matches decides and a tensor that none matches is replicated. Without,
 * the usual Hugging Face names are split as vLLM splits them (resolve/tp_part.h). Pure; any thread. */
#ifndef CLI_TP_RULES_H
#define CLI_TP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "catalog.h"
#include "resolve/tp_part.h"

struct tp_rule { /* 'GLOB=DIM' */
    const char *glob;
    bool replicate;
    int64_t dimension; /* negative = from the last, as in NumPy */
};

struct tp_split {
    int64_t size, rank; /* 0 <= rank < size */
    const struct tp_rule *rules;
    size_t n_rules;
};

/* GLOB=DIM, DIM a number or "replicate"; the glob ends at the last '='. */
int tp_rule_parse(const char *text, struct arena *arena, struct tp_rule *rule, struct error *error);

/* This rank's slices of one tensor, one per dimension; NULL = the whole tensor. The group is the split's, with what the usual
 * names need to know. INVALID_ARGUMENT naming the tensor: a rule's dimension does not exist, or see resolve/tp_part.h. */
int tp_rules_apply(const struct tp_split *split, const struct tp_group *group, const struct catalog_tensor *tensor,
                   struct arena *arena, const struct tc_slice **slices, struct error *error);

/* The dimension that the rules, or without any the usual names, split; -1 = none. One that the tensor has not is
 * INVALID_ARGUMENT, or `lenient`ly none. */
int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error);

#endif
