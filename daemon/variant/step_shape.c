/* slice, transpose, reshape: each tensor by itself. */
#include <inttypes.h>

#include "resolve/view.h"
#include "variant/steps.h"

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
    return set_each(set, slice_tensor);
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
    return set_each(set, transpose_tensor);
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
    return set_each(set, reshape_tensor);
}
