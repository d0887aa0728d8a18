/* split, unstack: one tensor becomes several. */
#include <inttypes.h>
#include <string.h>

#include "variant/steps.h"

/* Calls `cut` for each tensor that the step's `from` matches. */
static int cut_each(struct tensor_set *set,
                    int (*cut)(struct tensor_set *set, const struct set_tensor *tensor, const struct pattern_match *match))
{
    struct set_patterns found;
    struct pattern_match match;
    int failed = set_patterns_init(set, &set->step->from, &found);
    for (size_t i = 0; i < set->n && !failed; i++) {
        size_t pattern;
        failed = set_find(set, &found, &set->tensors[i], &pattern, &match);
        if (!failed && pattern == 0)
            failed = cut(set, &set->tensors[i], &match);
        else if (!failed)
            failed = set_add(set, &set->tensors[i]) ? 0 : -1;
    }
    failed = failed ? failed : set_check_seen(set, &found);
    set_patterns_fini(&found);
    return failed ? failed : set_next(set);
}

static int fail_dim(struct tensor_set *set, const struct set_tensor *tensor)
{
    return set_fail(set, tensor, "it has %u dimensions, and none is number %" PRId64, tensor->array.rank, set->step->dim);
}

static int check_sizes(struct tensor_set *set, const struct set_tensor *tensor, uint64_t extent)
{
    const struct recipe_step *step = set->step;
    uint64_t sum = 0;
    if (step->even && extent % step->to.n)
        return set_fail(set, tensor, "%" PRIu64 " do not split evenly into %zu parts", extent, step->to.n);
    for (size_t i = 0; i < step->numbers.n; i++) {
        if (__builtin_add_overflow(sum, (uint64_t)step->numbers.list[i], &sum))
            return set_fail(set, tensor, "the sizes are too large");
    }
    if (!step->even && sum != extent)
        return set_fail(set, tensor, "the sizes add up to %" PRIu64 ", not to its %" PRIu64, sum, extent);
    return 0;
}

static int split_tensor(struct tensor_set *set, const struct set_tensor *tensor, const struct pattern_match *match)
{
    const struct recipe_step *step = set->step;
    uint64_t start[TENSOR_MAX_RANK] = {0}, size[TENSOR_MAX_RANK], bytes;
    struct index_array whole, array;
    uint32_t dim, rank = tensor->array.rank;
    if (!recipe_dim(step->dim, rank, &dim))
        return fail_dim(set, tensor);
    if (check_sizes(set, tensor, tensor->array.shape[dim]) < 0 || set_maps(set, tensor, &whole) < 0)
        return -1;
    memcpy(size, tensor->array.shape, rank * sizeof size[0]);
    for (size_t i = 0; i < step->to.n; i++) {
        struct set_tensor part = *tensor;
        part.name = set_fill(set, &step->to.list[i], match, &part.name_length);
        size[dim] = step->even ? tensor->array.shape[dim] / step->to.n : (uint64_t)step->numbers.list[i];
        if (!part.name)
            return -1;
        if (!set_bytes(rank, size, tensor->dtype, &bytes))
            return set_fail(set, tensor, "a part of %s elements has to be whole bytes", dtype_name(tensor->dtype));
        if (index_slice(&set->work, &whole, start, size, &array) < 0 || set_add_array(set, &part, &array) < 0)
            return -1;
        start[dim] += size[dim];
    }
    return 0;
}

int step_split(struct tensor_set *set)
{
    return cut_each(set, split_tensor);
}

static int unstack_tensor(struct tensor_set *set, const struct set_tensor *tensor, const struct pattern_match *match)
{
    const struct pattern *to = &set->step->to.list[0];
    struct index_array whole, array;
    uint64_t bytes;
    uint32_t dim;
    if (!recipe_dim(set->step->dim, tensor->array.rank, &dim))
        return fail_dim(set, tensor);
    if (tensor->array.shape[dim] > SET_MAX_TENSORS)
        return set_fail(set, tensor, "%" PRIu64 " are too many tensors", tensor->array.shape[dim]);
    if (set_maps(set, tensor, &whole) < 0)
        return -1;
    for (uint64_t k = 0; k < tensor->array.shape[dim]; k++) {
        struct set_tensor part = *tensor;
        struct pattern_match counted = *match;
        char number[SET_NUMBER_CHARS];
        counted.n_numbers = to->n_numbers - 1;
        counted.numbers[counted.n_numbers++] = (struct captured){number, set_number(k, number)};
        part.name = set_fill(set, to, &counted, &part.name_length);
        if (!part.name || index_unstack(&set->work, &whole, dim, k, &array) < 0)
            return -1;
        if (!set_bytes(array.rank, array.shape, tensor->dtype, &bytes))
            return set_fail(set, tensor, "a part of %s elements has to be whole bytes", dtype_name(tensor->dtype));
        if (set_add_array(set, &part, &array) < 0)
            return -1;
    }
    return 0;
}

int step_unstack(struct tensor_set *set)
{
    return cut_each(set, unstack_tensor);
}
