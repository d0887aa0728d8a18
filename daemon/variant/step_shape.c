/* split, unstack, slice, transpose, reshape: each tensor by itself. */
#include <inttypes.h>
#include <string.h>

#include "resolve/view.h"
#include "variant/steps.h"

/* --- split, unstack: one tensor becomes several --- */

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

static int split_tensor(struct tensor_set *set, const struct set_tensor *tensor)
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
        part.name = set_fill(set, &step->to.list[i], &set->match, &part.name_length);
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
    return set_each(set, &set->step->from, split_tensor);
}

static int unstack_tensor(struct tensor_set *set, const struct set_tensor *tensor)
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
        struct pattern_match counted = set->match;
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
    return set_each(set, &set->step->from, unstack_tensor);
}

/* --- slice, transpose, reshape --- */

static int slice_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    const struct recipe_slices *slices = &set->step->slices;
    uint64_t start[TENSOR_MAX_RANK], size[TENSOR_MAX_RANK], bytes;
    struct index_array array;
    if (slices->n != tensor->array.rank)
        return set_fail(set, tensor, "it has %u dimensions and the step %zu slices; give one per dimension",
                        tensor->array.rank, slices->n);
    for (uint32_t i = 0; i < tensor->array.rank; i++) {
        const struct slice slice = {slices->list[i].start, slices->list[i].stop};
        view_slice(&slice, tensor->array.shape[i], &start[i], &size[i]);
    }
    if (!set_bytes(tensor->array.rank, size, tensor->dtype, &bytes))
        return set_fail(set, tensor, "a part of %s elements has to be whole bytes", dtype_name(tensor->dtype));
    if (set_maps(set, tensor, &array) < 0 || index_slice(&set->work, &array, start, size, &array) < 0)
        return -1;
    return set_add_array(set, tensor, &array);
}

int step_slice(struct tensor_set *set)
{
    return set_each(set, &set->step->tensors, slice_tensor);
}

static int transpose_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    const struct recipe_numbers *dims = &set->step->numbers;
    uint32_t rank = tensor->array.rank, order[TENSOR_MAX_RANK];
    bool seen[TENSOR_MAX_RANK] = {0};
    struct index_array array;
    if (dims->n != rank)
        return set_fail(set, tensor, "it has %u dimensions and `dims` names %zu; name each once", rank, dims->n);
    for (uint32_t i = 0; i < rank; i++) {
        if (!recipe_dim(dims->list[i], rank, &order[i]))
            return set_fail(set, tensor, "it has %u dimensions, and none is number %" PRId64, rank, dims->list[i]);
        if (seen[order[i]])
            return set_fail(set, tensor, "`dims` names dimension %u twice", order[i]);
        seen[order[i]] = true;
    }
    if (set_maps(set, tensor, &array) < 0 || index_transpose(&set->work, &array, order, &array) < 0)
        return -1;
    return set_add_array(set, tensor, &array);
}

int step_transpose(struct tensor_set *set)
{
    return set_each(set, &set->step->tensors, transpose_tensor);
}

static int fail_shape(struct tensor_set *set, const struct set_tensor *tensor)
{
    char old[SET_SHAPE_CHARS];
    return set_fail(set, tensor, "its %" PRIu64 " elements of shape %s do not fill the new shape",
                    set_elements(&tensor->array), set_show_shape(tensor->array.rank, tensor->array.shape, old));
}

static int reshape_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    const struct recipe_numbers *wanted = &set->step->numbers;
    uint64_t shape[TENSOR_MAX_RANK], known = 1, n = set_elements(&tensor->array);
    size_t open = wanted->n;
    struct index_array array;
    if (wanted->n > TENSOR_MAX_RANK)
        return set_fail(set, tensor, "a tensor has at most %d dimensions", TENSOR_MAX_RANK);
    for (size_t i = 0; i < wanted->n; i++) {
        shape[i] = (uint64_t)wanted->list[i];
        if (wanted->list[i] == -1)
            open = i;
        else if (__builtin_mul_overflow(known, shape[i], &known))
            return fail_shape(set, tensor);
    }
    if (open < wanted->n) {
        if (!known || n % known)
            return fail_shape(set, tensor);
        shape[open] = n / known;
    } else if (n != known) {
        return fail_shape(set, tensor);
    }
    if (set_maps(set, tensor, &array) < 0 || index_reshape(&set->work, &array, (uint32_t)wanted->n, shape, &array) < 0)
        return -1;
    return set_add_array(set, tensor, &array);
}

int step_reshape(struct tensor_set *set)
{
    return set_each(set, &set->step->tensors, reshape_tensor);
}
