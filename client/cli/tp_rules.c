/* A rule picks a dimension; the arithmetic of the split is the same for all of them. */
#include "tp_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "resolve/usual_split.h"
#include "shape_text.h"

enum { REPLICATED = USUAL_SPLIT_NONE };

int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error)
{
    char name[TEXT_NAME_CHARS], glob[TEXT_NAME_CHARS], shape[SHAPE_TEXT_CHARS];
    int64_t rank = (int64_t)tensor->rank;
    *dimension = REPLICATED;
    if (!split->n_rules) {
        *dimension = usual_split_dimension(tensor->name, tensor->name_length, tensor->rank);
        return 0;
    }
    for (size_t i = 0; i < split->n_rules; i++) {
        const struct tp_rule *rule = &split->rules[i];
        if (!text_glob(rule->glob, tensor->name, tensor->name_length))
            continue;
        bool is_missing = rule->dimension < -rank || rule->dimension >= rank;
        if (rule->replicate || (is_missing && lenient))
            return 0;
        if (is_missing) {
            fail(error, ERROR_INVALID_ARGUMENT, "NO_SUCH_DIMENSION",
                 "tensor '%s' %s has no dimension %" PRId64 ", which rule '%s' splits; put a rule for it before this one",
                 text_escape(tensor->name, tensor->name_length, name), shape_text(tensor->shape, tensor->rank, shape),
                 rule->dimension, text_escape(rule->glob, strlen(rule->glob), glob));
            return error_note(error, "tensor", "%.*s", (int)tensor->name_length, tensor->name);
        }
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
        fail(error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
             "tensor '%s' %s: dimension %" PRId64 " (%" PRIu64 ") does not divide by %" PRIu64
             " ranks; choose another with --tp-rule '%s=DIM' or '%s=replicate'",
             text_escape(tensor->name, tensor->name_length, name), shape_text(tensor->shape, tensor->rank, shape), dimension,
             extent, size, name, name);
        return error_note(error, "tensor", "%.*s", (int)tensor->name_length, tensor->name);
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
