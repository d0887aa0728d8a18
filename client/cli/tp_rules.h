/* The tensor-parallel shorthand: which dimension of a tensor a rank takes its part of.
 *
 * With rules of the user's, the first whose glob matches decides and a tensor that none matches is replicated. Without,
 * the usual Hugging Face names are split as vLLM splits them: q/k/v/gate/up and the like on dimension 0 with their biases,
 * o/down and the like on dimension 1 with their biases replicated, embeddings and lm_head on 0, all else replicated.
 * Pure; any thread. */
#ifndef CLI_TP_RULES_H
#define CLI_TP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "catalog.h"

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

/* This rank's slices of one tensor, one per dimension; NULL = the whole tensor. Fails with INVALID_ARGUMENT naming the
 * tensor when the dimension does not exist or does not divide. */
int tp_rules_apply(const struct tp_split *split, const struct catalog_tensor *tensor, struct arena *arena,
                   const struct tc_slice **slices, struct error *error);

/* The dimension that the rules, or without any the usual names, split; -1 = none. One that the tensor has not is
 * INVALID_ARGUMENT, or `lenient`ly none. */
int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error);

#endif
