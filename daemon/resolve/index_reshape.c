/* Reshaping maps. Old and new dimensions are first grouped so that both sides of a group have as many elements, as (4, 6, 5)
 * and (24, 5) have two groups. Within a group all indexes become one, the linear index, from which the new dimensions are
 * split off one by one: a loop goes to the outer or the inner one, or is cut in two where its size allows it. Where that
 * does not work out (rows of 4 cut into rows of 3), the map falls apart into its rows. */
#include <string.h>

#include "resolve/index_map.h"

struct group {
    uint32_t end_old, first_new, end_new;
};

struct reshape {
    struct index_list list;
    uint64_t weight[TENSOR_MAX_RANK]; /* of each new dimension: linear index per index */
    struct group groups[2 * TENSOR_MAX_RANK];
    uint32_t n_groups;
};

/* Both have the same number of elements, which is not 0. */
static void group_dims(struct reshape *reshape, const struct index_array *in, uint32_t rank, const uint64_t *shape)
{
    uint32_t i = 0, k = 0;
    while (i < in->rank || k < rank) {
        struct group *group = &reshape->groups[reshape->n_groups++];
        uint64_t n_old = 1, n_new = 1;
        group->first_new = k;
        if (i < in->rank)
            n_old = in->shape[i++];
        if (k < rank)
            n_new = shape[k++];
        while (n_old != n_new) {
            if (n_old < n_new)
                n_old *= in->shape[i++];
            else
                n_new *= shape[k++];
        }
        group->end_old = i;
        group->end_new = k;
        uint64_t weight = 1;
        for (uint32_t d = k; d-- > group->first_new; weight *= shape[d])
            reshape->weight[d] = weight;
    }
}

/* All dimensions of a group become its first new one. */
static void linearize(const struct reshape *reshape, const uint64_t *old_shape, struct index_draft *draft)
{
    uint64_t start[TENSOR_MAX_RANK] = {0}, scale[TENSOR_MAX_RANK] = {0};
    uint32_t place[TENSOR_MAX_RANK] = {0}, first_old = 0;
    for (uint32_t g = 0; g < reshape->n_groups; g++) {
        const struct group *group = &reshape->groups[g];
        uint64_t n = 1;
        for (uint32_t d = group->end_old; d-- > first_old; n *= old_shape[d]) {
            place[d] = group->first_new;
            scale[d] = n;
            if (group->first_new < group->end_new)
                start[group->first_new] += draft->dst_start[d] * n;
        }
        first_old = group->end_old;
    }
    for (uint32_t i = 0; i < draft->n_loops; i++) {
        struct index_loop *loop = &draft->loops[i];
        loop->dst_step *= scale[loop->dst_dim];
        loop->dst_dim = place[loop->dst_dim];
    }
    memcpy(draft->dst_start, start, sizeof start);
}

/* Two loops of a dimension that count on where the other one ends, on both sides, are one. */
static bool join_two(struct index_draft *draft, uint32_t dim)
{
    for (uint32_t a = 0; a < draft->n_loops; a++) {
        struct index_loop *outer = &draft->loops[a];
        for (uint32_t b = 0; b < draft->n_loops; b++) {
            struct index_loop *inner = &draft->loops[b];
            if (a == b || outer->dst_dim != dim || inner->dst_dim != dim || outer->table || inner->table ||
                outer->src_dim != inner->src_dim || outer->dst_step != inner->size * inner->dst_step ||
                outer->src_step != inner->size * inner->src_step)
                continue;
            inner->size *= outer->size;
            *outer = draft->loops[--draft->n_loops];
            return true;
        }
    }
    return false;
}

static bool can_be_cut(const struct index_loop *loop, uint64_t weight)
{
    return !loop->table && loop->dst_step < weight && weight % loop->dst_step == 0 && loop->size > weight / loop->dst_step &&
           loop->size % (weight / loop->dst_step) == 0;
}

/* Linear indexes of `dim` become an index of it and a rest for the next one. False: a loop is on both sides of the cut. */
static bool split_dim(struct index_draft *draft, uint32_t dim, uint64_t weight)
{
    uint64_t start = draft->dst_start[dim], inner_last = start % weight;
    uint32_t n = draft->n_loops;
    for (uint32_t i = 0; i < n; i++) {
        const struct index_loop *loop = &draft->loops[i];
        if (loop->dst_dim != dim || loop->dst_step % weight == 0)
            continue;
        if (loop->dst_step > weight)
            return false;
        inner_last += ((can_be_cut(loop, weight) ? weight / loop->dst_step : loop->size) - 1) * loop->dst_step;
    }
    if (inner_last >= weight)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct index_loop *loop = &draft->loops[i];
        if (loop->dst_dim != dim)
            continue;
        if (loop->dst_step % weight == 0) {
            loop->dst_step /= weight;
            continue;
        }
        loop->dst_dim = dim + 1;
        if (!can_be_cut(loop, weight))
            continue;
        uint64_t size = weight / loop->dst_step;
        draft->loops[draft->n_loops++] =
            (struct index_loop){loop->size / size, 1, loop->src_step * size, dim, loop->src_dim, NULL};
        loop->size = size;
    }
    draft->dst_start[dim] = start / weight;
    draft->dst_start[dim + 1] = start % weight;
    return true;
}

struct splitting { /* from one dimension of one group on */
    struct reshape *reshape;
    uint32_t group, dim;
};

static int split_from(void *data, const struct index_draft *from);

/* Into what begins and ends in the middle of a row, and the rows between; or, if it has whole rows only, into single ones,
 * or single values of its outermost loop when these are further apart. */
static int split_apart(const struct splitting *splitting, const struct index_draft *draft)
{
    struct splitting next = *splitting;
    const struct index_taker taker = {split_from, &next};
    uint32_t dim = splitting->dim, loop = draft->n_loops; /* the one of the longest step */
    uint64_t weight = splitting->reshape->weight[dim];
    struct index_range all = index_extent(draft, INDEX_DST, dim);
    for (uint32_t i = 0; i < draft->n_loops; i++)
        if (draft->loops[i].dst_dim == dim &&
            (loop == draft->n_loops || draft->loops[i].dst_step > draft->loops[loop].dst_step))
            loop = i;
    uint64_t first_whole = (all.first + weight - 1) / weight * weight, end_whole = (all.last + 1) / weight * weight;
    if (first_whole < end_whole && (all.first < first_whole || end_whole <= all.last))
        return (first_whole && index_clip_dim(draft, INDEX_DST, dim, 0, first_whole - 1, &taker) < 0) ||
                       index_clip_dim(draft, INDEX_DST, dim, first_whole, end_whole - 1, &taker) < 0 ||
                       index_clip_dim(draft, INDEX_DST, dim, end_whole, all.last, &taker) < 0
                   ? -1
                   : 0;
    bool by_value = draft->loops[loop].dst_step >= weight;
    uint64_t n = by_value ? draft->loops[loop].size : all.last / weight - all.first / weight + 1;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row = (all.first / weight + i) * weight;
        struct index_draft part;
        int failed;
        if (by_value) {
            index_copy(draft, &part);
            index_narrow(&part, loop, i, 1);
            failed = split_from(&next, &part);
        } else {
            failed = index_clip_dim(draft, INDEX_DST, dim, row, row + (weight - 1), &taker);
        }
        if (failed)
            return -1;
    }
    return 0;
}

static int split_from(void *data, const struct index_draft *from)
{
    struct splitting at = *(const struct splitting *)data;
    const struct reshape *reshape = at.reshape;
    struct index_draft draft;
    index_copy(from, &draft);
    while (at.group < reshape->n_groups) {
        if (at.dim + 1 < reshape->groups[at.group].end_new) {
            while (join_two(&draft, at.dim))
                continue;
            if (!split_dim(&draft, at.dim, reshape->weight[at.dim]))
                return split_apart(&at, &draft);
            at.dim++;
        } else {
            at.group++;
            at.dim = at.group < reshape->n_groups ? reshape->groups[at.group].first_new : 0;
        }
    }
    return index_keep(&at.reshape->list, &draft);
}

int index_reshape(struct index_work *work, const struct index_array *in, uint32_t rank, const uint64_t *shape,
                  struct index_array *out)
{
    struct reshape reshape = {.list = {.work = work, .dst_rank = rank}};
    struct splitting splitting = {&reshape, 0, 0};
    if (in->n_maps)
        group_dims(&reshape, in, rank, shape);
    for (size_t m = 0; m < in->n_maps; m++) {
        struct index_draft draft;
        index_draft(&in->maps[m], in->rank, &draft);
        linearize(&reshape, in->shape, &draft);
        if (split_from(&splitting, &draft) < 0)
            return -1;
    }
    return index_finish(&reshape.list, shape, out);
}
