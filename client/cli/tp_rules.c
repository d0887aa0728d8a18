#include "tp_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "resolve/usual_split.h"
#include "shape_text.h"

enum { REPLICATED = USUAL_SPLIT_NONE };

static const struct tp_rule *find_rule(const struct tp_split *split, const struct catalog_tensor *tensor)
{
    for (size_t i = 0; i < split->n_rules; i++)
        if (text_glob(split->rules[i].glob, tensor->name, tensor->name_length))
            return &split->rules[i];
    return NULL;
}

/* The dimension that the rules split; REPLICATED = none. */
static int find_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient,
                          int64_t *dimension, struct error *error)
{
    char name[TEXT_NAME_CHARS], glob[TEXT_NAME_CHARS], shape[SHAPE_TEXT_CHARS];
    const struct tp_rule *rule = find_rule(split, tensor);
    int64_t rank = (int64_t)tensor->rank;
    *dimension = REPLICATED;
    if (!rule || rule->replicate)
        return 0;
    if (rule->dimension >= -rank && rule->dimension < rank)
        *dimension = rule->dimension < 0 ? rule->dimension + rank : rule->dimension;
    if (*dimension != REPLICATED || lenient)
        return 0;
    fail(error, ERROR_INVALID_ARGUMENT, "NO_SUCH_DIMENSION",
         "tensor '%s' %s has no dimension %" PRId64 ", which rule '%s' splits; put a rule for it before this one",
         text_escape(tensor->name, tensor->name_length, name), shape_text(tensor->shape, tensor->rank, shape),
         rule->dimension, text_escape(rule->glob, strlen(rule->glob), glob));
    return error_note(error, "tensor", "%.*s", (int)tensor->name_length, tensor->name);
}

int tp_rules_dimension(const struct tp_split *split, const struct catalog_tensor *tensor, bool lenient, int64_t *dimension,
                       struct error *error)
{
    if (split->n_rules)
        return find_dimension(split, tensor, lenient, dimension, error);
    struct usual_split usual = usual_split_find(tensor->name, tensor->name_length, tensor->rank);
    *dimension = usual.unit == USUAL_FUSED ? REPLICATED : usual.dimension;
    return 0;
}

static int find_part(const struct tp_split *split, const struct tp_group *group, const struct catalog_tensor *tensor,
                     struct tp_part *part, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    const struct tp_tensor it = {tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    *part = (struct tp_part){.dimension = REPLICATED};
    if (split->n_rules && find_dimension(split, tensor, false, &part->dimension, error) < 0)
        return -1;
    if (split->n_rules && part->dimension == REPLICATED)
        return 0;
    if ((split->n_rules ? tp_part_of_dimension(group, &it, part->dimension, part, error)
                        : tp_part_find(group, &it, part, error)) == 0)
        return 0;
    text_escape(tensor->name, tensor->name_length, name);
    return error_append(error, "; say how with --tp-rule '%s=DIM' or '%s=replicate', or name its parts with --slice", name,
                        name);
}

int tp_rules_apply(const struct tp_split *split, const struct tp_group *group, const struct catalog_tensor *tensor,
                   struct arena *arena, const struct tc_slice **slices, struct error *error)
{
    struct tp_part part;
    *slices = NULL;
    if (find_part(split, group, tensor, &part, error) < 0)
        return -1;
    if (part.dimension == REPLICATED)
        return 0;
    struct tc_slice *parts = arena_array(arena, tensor->rank, sizeof *parts);
    for (size_t d = 0; d < tensor->rank; d++)
        parts[d] = (struct tc_slice){0, TC_OPEN_END};
    parts[part.dimension] = (struct tc_slice){(int64_t)part.start, (int64_t)part.stop};
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
