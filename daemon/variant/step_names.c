/* select, drop, only, rename, alias: nothing moves. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "variant/steps.h"

/* --- step expect: ---
 * expect: everything that is not as it should be, in one error. */

struct complaints {
    char text[ERROR_MESSAGE_CHARS - 100]; /* room for where it is */
    size_t used, n_left_out;
};

__attribute__((format(printf, 2, 3))) static void complain(struct complaints *complaints, const char *format, ...)
{
    size_t room = sizeof complaints->text - complaints->used;
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(complaints->text + complaints->used, room, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n + 40 >= room) { /* 40: how many more there are */
        complaints->text[complaints->used] = 0;
        complaints->n_left_out++;
    } else {
        complaints->used += (size_t)n;
    }
}

static void compare(struct complaints *complaints, const struct recipe_expected *expected, const struct set_tensor *tensor)
{
    char wanted[SET_SHAPE_CHARS], found[SET_SHAPE_CHARS];
    uint64_t shape[TENSOR_MAX_RANK];
    uint32_t rank = expected->shape.n <= TENSOR_MAX_RANK ? (uint32_t)expected->shape.n : 0;
    for (uint32_t i = 0; i < rank; i++)
        shape[i] = (uint64_t)expected->shape.list[i];
    bool fits = expected->shape.n == tensor->array.rank &&
                (rank == 0 || memcmp(shape, tensor->array.shape, rank * sizeof shape[0]) == 0);
    const char *name = text_show_bytes(expected->name, expected->name_length);
    const char *separator = complaints->used ? "; " : "";
    if (!fits)
        complain(complaints, "%s%s has shape %s, not %s", separator, name,
                 set_show_shape(tensor->array.rank, tensor->array.shape, found), set_show_shape(rank, shape, wanted));
    else if (tensor->dtype != expected->dtype)
        complain(complaints, "%s%s is %s, not %s", separator, name, dtype_name(tensor->dtype), dtype_name(expected->dtype));
}

static void compare_all(struct tensor_set *set, const struct map *by_name, bool *seen, struct complaints *complaints)
{
    const struct recipe_step *step = set->step;
    for (size_t i = 0; i < step->expected.n; i++) {
        const struct recipe_expected *expected = &step->expected.list[i];
        uint32_t found = map_find(by_name, expected->name, expected->name_length);
        if (found != MAP_NONE) {
            seen[found] = true;
            compare(complaints, expected, &set->tensors[found]);
        } else if (!step->allow_missing) {
            complain(complaints, "%s%s is missing", complaints->used ? "; " : "",
                     text_show_bytes(expected->name, expected->name_length));
        }
    }
    for (size_t i = 0; i < set->n && !step->allow_extra; i++) {
        if (!seen[i])
            complain(complaints, "%s%s is not expected", complaints->used ? "; " : "",
                     text_show_bytes(set->tensors[i].name, set->tensors[i].name_length));
    }
}

int step_expect(struct tensor_set *set)
{
    struct complaints complaints = {.used = 0};
    struct map by_name;
    bool *seen = metadata_array(set->n, sizeof *seen, set->error);
    if (!seen || map_init_charged(&by_name, set->n, set->error) < 0) {
        metadata_free(seen);
        return -1;
    }
    for (size_t i = 0; i < set->n; i++)
        map_add(&by_name, set->tensors[i].name, set->tensors[i].name_length, (uint32_t)i);
    compare_all(set, &by_name, seen, &complaints);
    map_fini(&by_name);
    metadata_free(seen);
    if (!complaints.used && !complaints.n_left_out)
        return 0;
    if (complaints.n_left_out)
        snprintf(complaints.text + complaints.used, sizeof complaints.text - complaints.used, "; and %zu more",
                 complaints.n_left_out);
    return fail(set->error, ERROR_INVALID_ARGUMENT, "NOT_AS_EXPECTED", "%s", complaints.text);
}

/* --- step names --- */

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

static int rename_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    struct set_tensor renamed = *tensor;
    renamed.name = set_fill(set, &set->step->to.list[set->pattern], &set->match, &renamed.name_length);
    return renamed.name && set_add(set, &renamed) ? 0 : -1;
}

int step_rename(struct tensor_set *set)
{
    return set_each(set, &set->step->from, rename_tensor);
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
