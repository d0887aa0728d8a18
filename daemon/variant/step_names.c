/* select, drop, only, rename, alias: nothing moves. */
#include "base/metadata.h"
#include "base/text.h"
#include "variant/steps.h"

int step_select(struct tensor_set *set)
{
    enum recipe_step_kind kind = set->step->kind;
    struct set_patterns found;
    struct pattern_match match;
    int failed = set_patterns_init(set, &set->step->tensors, &found);
    for (size_t i = 0; i < set->n && !failed; i++) {
        const struct set_tensor *tensor = &set->tensors[i];
        size_t pattern;
        failed = set_find(set, &found, tensor, &pattern, &match);
        bool is_named = pattern < found.patterns->n;
        if (!failed && kind == STEP_ONLY && !is_named)
            failed = set_fail(set, tensor, "the recipe does not know it");
        if (!failed && is_named != (kind == STEP_DROP))
            failed = set_add(set, tensor) ? 0 : -1;
    }
    failed = failed ? failed : set_check_seen(set, &found);
    set_patterns_fini(&found);
    return failed ? failed : set_next(set);
}

int step_rename(struct tensor_set *set)
{
    const struct recipe_step *step = set->step;
    struct set_patterns found;
    struct pattern_match match;
    int failed = set_patterns_init(set, &step->from, &found);
    for (size_t i = 0; i < set->n && !failed; i++) {
        struct set_tensor tensor = set->tensors[i];
        size_t pattern;
        failed = set_find(set, &found, &tensor, &pattern, &match);
        if (!failed && pattern < step->from.n)
            tensor.name = set_fill(set, &step->to.list[pattern], &match, &tensor.name_length);
        failed = failed || !tensor.name || !set_add(set, &tensor) ? -1 : 0;
    }
    failed = failed ? failed : set_check_seen(set, &found);
    set_patterns_fini(&found);
    return failed ? failed : set_next(set);
}

/* Every name that is made of one tensor's. */
static int add_aliases(struct tensor_set *set, const struct set_tensor *tensor, bool *seen)
{
    const struct recipe_step *step = set->step;
    for (size_t i = 0; i < step->from.n; i++) {
        struct set_tensor alias = *tensor;
        struct pattern_match match;
        int matches = set_match(set, &step->from.list[i], tensor, &match);
        if (matches < 0)
            return -1;
        if (!matches)
            continue;
        seen[i] = true;
        alias.name = set_fill(set, &step->to.list[i], &match, &alias.name_length);
        if (!alias.name || !set_add(set, &alias))
            return -1;
    }
    return 0;
}

int step_alias(struct tensor_set *set)
{
    struct set_patterns found;
    int failed = set_patterns_init(set, &set->step->from, &found);
    if (!failed && set->step->from.n > SET_MAX_MATCHES / (set->n + 1))
        failed = fail(set->error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_PATTERNS", "too many aliases of too many tensors");
    for (size_t i = 0; i < set->n && !failed; i++) {
        failed = set_add(set, &set->tensors[i]) ? 0 : -1;
        failed = failed ? failed : add_aliases(set, &set->tensors[i], found.seen);
    }
    failed = failed ? failed : set_check_seen(set, &found);
    set_patterns_fini(&found);
    return failed ? failed : set_next(set);
}
