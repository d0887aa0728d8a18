/* A rule picks a dimension; the arithmetic of the split is the same for all of them. */
#include "tp_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "shape_text.h"

enum { REPLICATED = -1 };

/* Module name (the component before "weight" or "bias") -> where vLLM's linear and embedding layers split it. Layers that
 * split their output split their bias with it; layers that split their input add their bias once, after the sum. */
static const struct usual_split {
    const char *module;
    int weight_dimension, bias_dimension;
} usual_splits[] = {
    {"q_proj", 0, 0},
    {"k_proj", 0, 0},
    {"v_proj", 0, 0},
    {"o_proj", 1, REPLICATED},
    {"gate_proj", 0, 0},
    {"up_proj", 0, 0},
    {"w1", 0, 0},
    {"down_proj", 1, REPLICATED},
    {"w3", 0, 0},
    {"w2", 1, REPLICATED},
    {"fc1", 0, 0},
    {"fc2", 1, REPLICATED},
    {"q_b_proj", 0, 0},
    {"kv_b_proj", 0, 0},
    {"lm_head", 0, 0},
    {"out_proj", 1, REPLICATED},
    {"embed_tokens", 0, REPLICATED},
};

static int64_t usual_dimension(const struct catalog_tensor *tensor)
{
    const char *dot = memrchr(tensor->name, '.', tensor->name_length); /* "a.b.q_proj.weight" */
    if (!dot)
        return REPLICATED;
    const char *before = memrchr(tensor->name, '.', (size_t)(dot - tensor->name)), *parameter = dot + 1;
    const char *module = before ? before + 1 : tensor->name;
    size_t length = (size_t)(dot - module);
    for (size_t i = 0; i < sizeof usual_splits / sizeof usual_splits[0]; i++) {
        const struct usual_split *usual = &usual_splits[i];
        if (strlen(usual->module) != length || memcmp(usual->module, module, length) != 0)
            continue;
        /* weight_scale_inv holds one factor per 128 x 128 block of its weight, in the same order */
        if (strcmp(parameter, "weight") == 0 || strcmp(parameter, "weight_scale_inv") == 0)
            return usual->weight_dimension;
        return strcmp(parameter, "bias") == 0 ? usual->bias_dimension : REPLICATED;
    }
    return REPLICATED;
}

int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error)
{
    char name[TEXT_NAME_CHARS], glob[TEXT_NAME_CHARS], shape[SHAPE_TEXT_CHARS];
    int64_t rank = (int64_t)tensor->rank;
    *dimension = REPLICATED;
    if (!split->n_rules) {
        *dimension = usual_dimension(tensor);
        if (*dimension >= rank) /* a scalar or vector that only shares the name */
            *dimension = REPLICATED;
        return 0;
    }
    for (size_t i = 0; i < split->n_rules; i++) {
        const struct tp_rule *rule = &split->rules[i];
        if (!text_glob(rule->glob, tensor->name, tensor->name_length))
            continue;
        bool is_missing = rule->dimension < -rank || rule->dimension >= rank;
        if (rule->replicate || (is_missing && lenient))
            return 0;
        if (is_missing)
            return fail(error, ERROR_INVALID_ARGUMENT, "NO_SUCH_DIMENSION",
                        "tensor '%s' %s has no dimension %" PRId64
                        ", which rule '%s' splits; put a rule for it before this one",
                        text_escape(tensor->name, tensor->name_length, name), shape_text(tensor->shape, tensor->rank, shape),
                        rule->dimension, text_escape(rule->glob, strlen(rule->glob), glob));
        *dimension = rule->dimension < 0 ? rule->dimension + rank : rule->dimension;
        return 0;
    }
    return 0;
}

int tp_rules_apply(const struct tp_split *split, const struct catalog_tensor *tensor, struct arena *arena,
                   const struct tc_slice **slices, struct error *error)
{
    int64_t dimension;
    *slices = NULL;
    if (tp_rules_dimension(split, tensor, false, &dimension, error) < 0)
        return -1;
    if (dimension == REPLICATED || split->size == 1)
        return 0;
    uint64_t extent = tensor->shape[dimension], size = (uint64_t)split->size;
    if (extent > INT64_MAX) /* only of an empty tensor: there is nothing to split */
        return 0;
    if (extent % size) {
        char name[TEXT_NAME_CHARS], shape[SHAPE_TEXT_CHARS];
        return fail(error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
                    "tensor '%s' %s: dimension %" PRId64 " (%" PRIu64 ") does not divide by %" PRIu64
                    " ranks; choose another with --tp-rule '%s=DIM' or '%s=replicate'",
                    text_escape(tensor->name, tensor->name_length, name), shape_text(tensor->shape, tensor->rank, shape),
                    dimension, extent, size, name, name);
    }
    struct tc_slice *parts = arena_array(arena, tensor->rank, sizeof *parts);
    for (size_t d = 0; d < tensor->rank; d++)
        parts[d] = (struct tc_slice){0, TC_OPEN_END};
    int64_t share = (int64_t)(extent / size);
    parts[dimension] = (struct tc_slice){share * split->rank, share * (split->rank + 1)};
    *slices = parts;
    return 0;
}

int tp_rule_parse(const char *text, struct arena *arena, struct tp_rule *rule, struct error *error)
{
    char escaped[TEXT_NAME_CHARS];
    const char *equals = strrchr(text, '=');
    *rule = (struct tp_rule){0};
    if (!equals || equals == text)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RULE", "rule '%s' is not GLOB=DIM",
                    text_escape(text, strlen(text), escaped));
    rule->glob = arena_text(arena, text, (size_t)(equals - text));
    if (strcmp(equals + 1, "replicate") == 0) {
        rule->replicate = true;
        return 0;
    }
    char *end;
    const char *digits = equals[1] == '-' ? equals + 2 : equals + 1;
    long dimension = strtol(equals + 1, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || dimension >= TC_MAX_RANK || dimension < -TC_MAX_RANK)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RULE",
                    "rule '%s': what follows '=' is a dimension from 0 to 63 or 'replicate'",
                    text_escape(text, strlen(text), escaped));
    rule->dimension = dimension;
    return 0;
}
