/* permute_rope and replicate_experts: what checkpoints of transformers are rearranged by. Both are chains of reshapes and
 * transposes, as their definitions say it. */
#include <inttypes.h>
#include <string.h>

#include "variant/mt19937.h"
#include "base/text.h"
#include "variant/steps.h"

/* Rows of a head in pairs (2i, 2i + 1) or in halves (i, i + hd/2): (heads, pairs, 2, ..) and (heads, 2, pairs, ..). */
static int permute_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    const struct recipe_step *step = set->step;
    uint32_t rank = tensor->array.rank, dims[TENSOR_MAX_RANK] = {0, 2, 1};
    uint64_t shape[TENSOR_MAX_RANK], heads = (uint64_t)step->count;
    struct index_array array;
    if (rank == 0 || rank + 2 > TENSOR_MAX_RANK)
        return set_fail(set, tensor, "it has %u dimensions; rotary pairs are rows of a matrix, or a bias", rank);
    uint64_t rows = tensor->array.shape[0];
    if (rows % heads || rows / heads % 2)
        return set_fail(set, tensor, "its %" PRIu64 " rows do not make %" PRIu64 " heads of an even number of rows", rows,
                        heads);
    shape[0] = heads;
    shape[1] = step->to_halves ? rows / heads / 2 : 2;
    shape[2] = step->to_halves ? 2 : rows / heads / 2;
    memcpy(shape + 3, tensor->array.shape + 1, (rank - 1) * sizeof shape[0]);
    for (uint32_t i = 3; i < rank + 2; i++)
        dims[i] = i;
    if (set_maps(set, tensor, &array) < 0 || index_reshape(&set->work, &array, rank + 2, shape, &array) < 0 ||
        index_transpose(&set->work, &array, dims, &array) < 0 ||
        index_reshape(&set->work, &array, rank, tensor->array.shape, &array) < 0)
        return -1;
    return set_add_array(set, tensor, &array);
}

int step_permute_rope(struct tensor_set *set)
{
    return set_each(set, &set->step->tensors, permute_tensor);
}

/* --- experts -------------------------------------------------------------------------------------------------------- */

static bool is_named(const struct set_tensor *tensor, const char *end, const char *longer_end)
{
    return text_ends_with(tensor->name, tensor->name_length, end) ||
           text_ends_with(tensor->name, tensor->name_length, longer_end);
}

/* w1, w2 or w3; 0 = none of them. */
static int which_weight(const struct set_tensor *tensor)
{
    if (is_named(tensor, "w1", "w1.weight"))
        return 1;
    if (is_named(tensor, "w2", "w2.weight"))
        return 2;
    return is_named(tensor, "w3", "w3.weight") ? 3 : 0;
}

struct experts { /* of one tensor: n_groups of them hold all of its inner dimension, replicated */
    uint64_t hidden, inner, n_groups, n_replicas;
    uint32_t dim; /* that is cut: of w2 the columns, else the rows */
};

static int measure_experts(struct tensor_set *set, const struct set_tensor *tensor, struct experts *experts)
{
    int which = which_weight(tensor);
    uint64_t count = (uint64_t)set->step->count;
    char shape[SET_SHAPE_CHARS];
    if (!which)
        return set_fail(set, tensor, "its name does not end in w1, w2 or w3, so it is no weight of an expert");
    if (tensor->array.rank != 2)
        return set_fail(set, tensor, "its shape is %s; a weight to be made into experts is a matrix",
                        set_show_shape(tensor->array.rank, tensor->array.shape, shape));
    *experts = (struct experts){.inner = (uint64_t)set->step->inter_dim, .dim = which == 2};
    experts->hidden = tensor->array.shape[experts->dim];
    if (!experts->hidden || experts->hidden % experts->inner)
        return set_fail(set, tensor, "its inner dimension of %" PRIu64 " is no multiple of inter_dim %" PRIu64,
                        experts->hidden, experts->inner);
    experts->n_groups = experts->hidden / experts->inner;
    if (count % experts->n_groups)
        return set_fail(set, tensor, "%" PRIu64 " experts cannot hold it whole: that needs a multiple of %" PRIu64, count,
                        experts->n_groups);
    experts->n_replicas = count / experts->n_groups;
    return 0;
}

/* (hidden, d) as (groups, inner, d), and (d, hidden) as (groups, d, inner). */
static int cut_into_groups(struct tensor_set *set, const struct experts *experts, const struct index_array *in,
                           struct index_array *out)
{
    uint64_t d = in->shape[1 - experts->dim];
    const uint64_t rows[3] = {experts->n_groups, experts->inner, d}, columns[3] = {d, experts->n_groups, experts->inner};
    const uint32_t dims[3] = {1, 0, 2};
    if (!experts->dim)
        return index_reshape(&set->work, in, 3, rows, out);
    return index_reshape(&set->work, in, 3, columns, out) < 0 ? -1 : index_transpose(&set->work, out, dims, out);
}

static int replicate(struct tensor_set *set, const struct experts *experts, struct index_array *array)
{
    if (cut_into_groups(set, experts, array, array) < 0 ||
        index_replicate(&set->work, array, experts->n_replicas, array) < 0)
        return -1;
    /* (replicas, groups, ..) as (experts, ..). */
    const uint64_t shape[3] = {experts->n_groups * experts->n_replicas, array->shape[2], array->shape[3]};
    return index_reshape(&set->work, array, 3, shape, array);
}

/* The permutations of all replicas but the first, one behind the other. The same for every tensor of that size, since each
 * begins with the seed; the last one is kept. */
static const uint32_t *find_permutations(struct tensor_set *set, const struct experts *experts)
{
    struct permutations *kept = &set->permutations;
    uint32_t n = (uint32_t)experts->hidden, count = (uint32_t)(experts->n_replicas - 1);
    if (kept->list && kept->n == n && kept->count == count && kept->seed == set->step->shuffle_seed)
        return kept->list;
    struct mt19937 twister;
    uint32_t *list = arena_try_array(set->arena, (size_t)n * count, sizeof *list, set->error);
    mt19937_init(&twister, (uint32_t)set->step->shuffle_seed);
    for (uint32_t i = 0; list && i < count; i++)
        mt19937_permute(&twister, list + (size_t)i * n, n);
    *kept = (struct permutations){list, n, count, set->step->shuffle_seed};
    return list;
}

static int shuffle(struct tensor_set *set, const struct experts *experts, struct index_array *array)
{
    struct index_array whole = *array, joined;
    const uint32_t *permutations = find_permutations(set, experts);
    if (!permutations || cut_into_groups(set, experts, &whole, &joined) < 0)
        return -1;
    struct index_array *replicas = arena_try_array(set->arena, experts->n_replicas, sizeof *replicas, set->error);
    if (!replicas)
        return -1;
    replicas[0] = joined;
    for (uint64_t i = 1; i < experts->n_replicas; i++) {
        const uint32_t *permutation = permutations + (i - 1) * experts->hidden;
        if (index_gather(&set->work, &whole, experts->dim, permutation, &joined) < 0 ||
            cut_into_groups(set, experts, &joined, &replicas[i]) < 0)
            return -1;
    }
    return index_concat(&set->work, replicas, experts->n_replicas, 0, array);
}

enum { MAX_PERMUTED = 1 << 28 }; /* numbers of all replicas of a tensor: a GiB, and a second or two */

static int replicate_tensor(struct tensor_set *set, const struct set_tensor *tensor)
{
    struct experts experts;
    struct index_array array;
    uint64_t shape[3], bytes;
    if (measure_experts(set, tensor, &experts) < 0 || set_maps(set, tensor, &array) < 0)
        return -1;
    shape[0] = (uint64_t)set->step->count;
    shape[1] = experts.dim ? array.shape[0] : experts.inner;
    shape[2] = experts.dim ? experts.inner : array.shape[1];
    if (!set_bytes(3, shape, tensor->dtype, &bytes))
        return set_fail(set, tensor, "so many experts would be too large");
    if (set->step->has_shuffle &&
        (experts.hidden > MT19937_MAX_PERMUTATION || experts.n_replicas > MAX_PERMUTED / experts.hidden))
        return set_fail(set, tensor, "so many replicas are too much to be shuffled");
    if ((set->step->has_shuffle ? shuffle : replicate)(set, &experts, &array) < 0)
        return -1;
    return set_add_array(set, tensor, &array);
}

int step_replicate_experts(struct tensor_set *set)
{
    return set_each(set, &set->step->tensors, replicate_tensor);
}
