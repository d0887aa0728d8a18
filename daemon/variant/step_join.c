/* concat, stack: several tensors become one. Those that belong together have the same captures, except for what counts them. */
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "variant/steps.h"

struct member {
    size_t tensor;
    uint64_t place; /* among those that are joined */
};

struct group {
    size_t first; /* the tensor that it was found by */
    const char *key;
    size_t key_length;
    struct pattern_match match; /* of that one */
    struct member *members;
    size_t n, capacity;
};

struct groups {
    struct group *list;
    size_t n, capacity;
    struct map by_key; /* what the wildcards stand for, except the counting wildcard */
    struct arena keys;
    size_t *group_of; /* of each tensor; n = none */
};

static void groups_fini(struct groups *groups)
{
    for (size_t i = 0; i < groups->n; i++)
        metadata_free(groups->list[i].members);
    metadata_free(groups->list);
    metadata_free(groups->group_of);
    map_fini(&groups->by_key);
    arena_fini(&groups->keys);
}

static int groups_init(struct tensor_set *set, struct groups *groups)
{
    *groups = (struct groups){0};
    arena_init(&groups->keys, 0);
    groups->group_of = metadata_array(set->n, sizeof *groups->group_of, set->error);
    if (!groups->group_of || map_init_charged(&groups->by_key, set->n, set->error) < 0)
        return -1;
    memset(groups->group_of, 0xFF, set->n * sizeof *groups->group_of);
    return 0;
}

/* Captures with their lengths, so that ("a", "bc") is not ("ab", "c"). */
static char *make_key(struct tensor_set *set, struct groups *groups, const struct pattern_match *match, size_t *length)
{
    size_t n = 0;
    for (uint32_t i = 0; i < match->n_numbers; i++)
        n += sizeof(size_t) + match->numbers[i].length;
    for (uint32_t i = 0; i < match->n_runs; i++)
        n += sizeof(size_t) + match->runs[i].length;
    char *key = arena_try_bytes(&groups->keys, n + 1, set->error), *at = key;
    *length = n;
    for (uint32_t i = 0; key && i < match->n_numbers + match->n_runs; i++) {
        const struct captured *part = i < match->n_numbers ? &match->numbers[i] : &match->runs[i - match->n_numbers];
        memcpy(at, &part->length, sizeof part->length);
        memcpy(at + sizeof part->length, part->text, part->length);
        at += sizeof part->length + part->length;
    }
    return key;
}

static int add_member(struct tensor_set *set, struct groups *groups, size_t tensor, const struct pattern_match *match,
                      uint64_t place)
{
    size_t length;
    char *key = make_key(set, groups, match, &length);
    if (!key)
        return -1;
    uint32_t found = map_add(&groups->by_key, key, length, (uint32_t)groups->n);
    if (found == MAP_NONE) {
        if (METADATA_RESERVE(groups->list, groups->n, groups->capacity, set->error) < 0)
            return -1;
        found = (uint32_t)groups->n;
        groups->list[groups->n++] = (struct group){.first = tensor, .key = key, .key_length = length, .match = *match};
    }
    struct group *group = &groups->list[found];
    if (METADATA_RESERVE(group->members, group->n, group->capacity, set->error) < 0)
        return -1;
    group->members[group->n++] = (struct member){tensor, place};
    groups->group_of[tensor] = found;
    return 0;
}

static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Fills in the parts of a group in order. All are of one type. */
static int take_parts(struct tensor_set *set, const struct group *group, struct index_array *parts)
{
    const struct set_tensor *first = &set->tensors[group->members[0].tensor];
    for (size_t i = 0; i < group->n; i++) {
        const struct set_tensor *tensor = &set->tensors[group->members[i].tensor];
        if (tensor->dtype != first->dtype)
            return set_fail(set, tensor, "it has elements of %s, %s of %s; cast them first", dtype_name(tensor->dtype),
                            text_show_bytes(first->name, first->name_length), dtype_name(first->dtype));
        if (set_maps(set, tensor, &parts[i]) < 0)
            return -1;
    }
    return 0;
}

/* The first stands for all of them; dim: the one that may differ, rank = none. */
static int check_shapes(struct tensor_set *set, const struct group *group, uint32_t dim)
{
    const struct set_tensor *first = &set->tensors[group->members[0].tensor];
    char one[SET_SHAPE_CHARS], two[SET_SHAPE_CHARS];
    for (size_t i = 1; i < group->n; i++) {
        const struct set_tensor *tensor = &set->tensors[group->members[i].tensor];
        bool fits = tensor->array.rank == first->array.rank;
        for (uint32_t d = 0; fits && d < first->array.rank; d++)
            fits = d == dim || tensor->array.shape[d] == first->array.shape[d];
        if (!fits)
            return set_fail(set, tensor, "its shape %s does not fit %s of %s",
                            set_show_shape(tensor->array.rank, tensor->array.shape, one),
                            set_show_shape(first->array.rank, first->array.shape, two),
                            text_show_bytes(first->name, first->name_length));
    }
    return 0;
}

typedef int join_function(struct tensor_set *set, const struct group *group, struct index_array *parts,
                          struct index_array *out);

static int concat_group(struct tensor_set *set, const struct group *group, struct index_array *parts,
                        struct index_array *out)
{
    const struct set_tensor *first = &set->tensors[group->members[0].tensor];
    uint32_t dim, rank = first->array.rank;
    uint64_t extent = 0;
    if (!recipe_dim(set->step->dim, rank, &dim))
        return set_fail(set, first, "it has %u dimensions, and none is number %lld", rank, (long long)set->step->dim);
    if (check_shapes(set, group, dim) < 0 || take_parts(set, group, parts) < 0)
        return -1;
    for (size_t i = 0; i < group->n; i++) {
        if (__builtin_add_overflow(extent, parts[i].shape[dim], &extent))
            return set_fail(set, first, "what it is joined with is too large");
    }
    return index_concat(&set->work, parts, group->n, dim, out);
}

static int stack_group(struct tensor_set *set, const struct group *group, struct index_array *parts, struct index_array *out)
{
    const struct set_tensor *first = &set->tensors[group->members[0].tensor];
    uint32_t dim, rank = first->array.rank;
    if (!recipe_dim(set->step->dim, rank + 1, &dim) || rank == TENSOR_MAX_RANK)
        return set_fail(set, first, "it has %u dimensions; there can be no new one at %lld", rank,
                        (long long)set->step->dim);
    if (check_shapes(set, group, rank) < 0 || take_parts(set, group, parts) < 0)
        return -1;
    return index_stack(&set->work, parts, group->n, dim, out);
}

static int join_group(struct tensor_set *set, const struct group *group, join_function *join)
{
    struct set_tensor joined = set->tensors[group->members[0].tensor];
    struct index_array *parts = metadata_array(group->n, sizeof *parts, set->error), array;
    int failed = parts ? join(set, group, parts, &array) : -1;
    uint64_t bytes;
    metadata_free(parts);
    if (failed)
        return failed;
    joined.name = set_fill(set, &set->step->to.list[0], &group->match, &joined.name_length);
    if (!joined.name)
        return -1;
    if (!set_bytes(array.rank, array.shape, joined.dtype, &bytes))
        return set_fail(set, &joined, "it would be too large, or its elements no whole bytes");
    return set_add_array(set, &joined, &array);
}

/* Each group where its first member was; nothing is left of the members. */
static int join_all(struct tensor_set *set, const struct groups *groups, join_function *join)
{
    for (size_t i = 0; i < set->n; i++) {
        size_t found = groups->group_of[i];
        if (found == SIZE_MAX) {
            if (!set_add(set, &set->tensors[i]))
                return -1;
            continue;
        }
        if (groups->list[found].first == i && join_group(set, &groups->list[found], join) < 0)
            return -1;
    }
    return set_next(set);
}

/* --- concat --------------------------------------------------------------------------------------------------------- */

static int find_concat_members(struct tensor_set *set, struct groups *groups, bool *seen)
{
    const struct recipe_patterns *from = &set->step->from;
    for (size_t t = 0; t < set->n; t++) {
        const struct set_tensor *tensor = &set->tensors[t];
        set->n_matches += from->n;
        if (set->n_matches > SET_MAX_MATCHES)
            return fail(set->error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_PATTERNS", "too many patterns for so many tensors");
        for (size_t i = 0; i < from->n; i++) {
            struct pattern_match match;
            int matches = set_match(set, &from->list[i], tensor, &match);
            if (matches < 0)
                return -1;
            if (!matches)
                continue;
            if (groups->group_of[t] != SIZE_MAX)
                return set_fail(set, tensor, "it would be joined twice");
            seen[i] = true;
            if (add_member(set, groups, t, &match, i) < 0)
                return -1;
        }
    }
    return 0;
}

/* --- stack ---------------------------------------------------------------------------------------------------------- */

static int find_stack_members(struct tensor_set *set, struct groups *groups, bool *seen)
{
    const struct pattern *from = &set->step->from.list[0];
    for (size_t t = 0; t < set->n; t++) {
        const struct set_tensor *tensor = &set->tensors[t];
        struct pattern_match match;
        int64_t index;
        int matches = set_match(set, from, tensor, &match);
        if (matches < 0)
            return -1;
        if (!matches)
            continue;
        const struct captured *counted = &match.numbers[--match.n_numbers];
        if (!recipe_text_is_number(counted->text, counted->length, &index))
            return set_fail(set, tensor, "its number is too large");
        seen[0] = true;
        if (add_member(set, groups, t, &match, (uint64_t)index) < 0)
            return -1;
    }
    return 0;
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

/* Every pattern of `from` has to have found its tensor; those that one pattern counts go from 0 to n - 1, each once. */
static int check_places(struct tensor_set *set, struct groups *groups, bool is_counted)
{
    const struct recipe_patterns *from = &set->step->from;
    for (size_t g = 0; g < groups->n; g++) {
        struct group *group = &groups->list[g];
        qsort(group->members, group->n, sizeof *group->members, compare_members);
        for (size_t i = 0; i < (is_counted ? group->n : from->n); i++) {
            uint64_t place = i < group->n ? group->members[i].place : UINT64_MAX;
            if (place == i)
                continue;
            if (place < i)
                return set_fail(set, &set->tensors[group->members[i].tensor], "another one has the same number");
            char number[SET_NUMBER_CHARS];
            struct pattern_match match = group->match;
            size_t length;
            if (is_counted)
                match.numbers[match.n_numbers++] = (struct captured){number, set_number(i, number)};
            const char *name = set_fill(set, &from->list[is_counted ? 0 : i], &match, &length);
            if (!name)
                return -1;
            return set_fail_name(set, name, length,
                                 is_counted ? "is missing: those to be stacked count from 0 without a gap"
                                            : "is missing: it is to be joined with others");
        }
    }
    return 0;
}

static int join_members(struct tensor_set *set, bool is_counted,
                        int (*find)(struct tensor_set *set, struct groups *groups, bool *seen), join_function *join)
{
    struct groups groups;
    struct set_patterns found;
    int failed = groups_init(set, &groups);
    failed = set_patterns_init(set, &set->step->from, &found) || failed ? -1 : 0;
    failed = failed ? failed : find(set, &groups, found.seen);
    failed = failed ? failed : set_check_seen(set, &found);
    failed = failed ? failed : check_places(set, &groups, is_counted);
    failed = failed ? failed : join_all(set, &groups, join);
    set_patterns_fini(&found);
    groups_fini(&groups);
    return failed;
}

int step_concat(struct tensor_set *set)
{
    return join_members(set, false, find_concat_members, concat_group);
}

int step_stack(struct tensor_set *set)
{
    return join_members(set, true, find_stack_members, stack_group);
}
