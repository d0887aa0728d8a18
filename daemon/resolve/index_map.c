/* See index_map.h. Steps work on drafts, which are maps on the stack, and keep what comes out by index_keep(). */
#include "resolve/index_map.h"

#include <string.h>

/* --- drafts --- */

void index_draft(const struct index_map *map, uint32_t dst_rank, struct index_draft *draft)
{
    draft->source = map->source;
    draft->operation = map->operation;
    draft->src_rank = map->src_rank;
    draft->n_loops = map->n_loops;
    memcpy(draft->loops, map->loops, map->n_loops * sizeof *map->loops);
    memcpy(draft->dst_start, map->dst_start, dst_rank * sizeof *map->dst_start);
    memcpy(draft->src_start, map->src_start, map->src_rank * sizeof *map->src_start);
}

void index_copy(const struct index_draft *from, struct index_draft *to)
{
    size_t unused = (INDEX_MAX_LOOPS - from->n_loops) * sizeof from->loops[0];
    memcpy(to, from, offsetof(struct index_draft, dst_start) - unused);
    memcpy(to->dst_start, from->dst_start, sizeof *to - offsetof(struct index_draft, dst_start));
}

/* Only n values of a loop, from `first` on. */
void index_narrow(struct index_draft *draft, uint32_t at, uint64_t first, uint64_t n)
{
    struct index_loop *loop = &draft->loops[at];
    draft->dst_start[loop->dst_dim] += first * loop->dst_step;
    if (loop->table)
        loop->table += first;
    else
        draft->src_start[loop->src_dim] += first * loop->src_step;
    loop->size = n;
    if (n > 1)
        return;
    if (loop->table)
        draft->src_start[loop->src_dim] += loop->table[0] * loop->src_step;
    draft->n_loops--;
    memmove(&draft->loops[at], &draft->loops[at + 1], (draft->n_loops - at) * sizeof draft->loops[0]);
}

static int fail_too_many(const struct index_work *work)
{
    return fail(work->error, ERROR_UNIMPLEMENTED, "TOO_MANY_INDEX_MAPS",
                "the steps of the variant cut its tensors into more than %d parts", INDEX_MAX_MAPS);
}

int index_keep(struct index_list *list, const struct index_draft *draft)
{
    struct arena *arena = list->work->arena;
    struct error *error = list->work->error;
    if (list->work->n_maps++ >= INDEX_MAX_MAPS)
        return fail_too_many(list->work);
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 1;
        struct index_map *maps = arena_try_array(arena, capacity, sizeof *maps, error);
        if (!maps)
            return -1;
        if (list->n)
            memcpy(maps, list->maps, list->n * sizeof *maps);
        if (list->maps)
            arena_give_back(arena, list->maps);
        list->maps = maps;
        list->capacity = capacity;
    }
    size_t n_starts = list->dst_rank + draft->src_rank;
    struct index_loop *loops = arena_try_array(arena, draft->n_loops, sizeof *loops, error);
    uint64_t *starts = arena_try_array(arena, n_starts, sizeof *starts, error);
    if (!loops || !starts)
        return -1;
    memcpy(loops, draft->loops, draft->n_loops * sizeof *loops);
    memcpy(starts, draft->dst_start, list->dst_rank * sizeof *starts);
    memcpy(starts + list->dst_rank, draft->src_start, draft->src_rank * sizeof *starts);
    list->maps[list->n++] = (struct index_map){draft->source, draft->operation, draft->src_rank,        draft->n_loops,
                                               loops,         starts,           starts + list->dst_rank};
    return 0;
}

/* Of a shape that the caller has on its stack. */
int index_finish(struct index_list *list, const uint64_t *shape, struct index_array *out)
{
    uint64_t *copy = arena_try_array(list->work->arena, list->dst_rank, sizeof *copy, list->work->error);
    if (!copy)
        return -1;
    if (list->dst_rank > 0) /* a scalar may have no shape at all */
        memcpy(copy, shape, list->dst_rank * sizeof *copy);
    *out = (struct index_array){list->dst_rank, copy, list->maps, list->n};
    return 0;
}

/* --- clipping --- */

static uint64_t step_on(const struct index_loop *loop, enum index_side side, uint32_t dim)
{
    if (side == INDEX_DST)
        return loop->dst_dim == dim ? loop->dst_step : 0;
    return loop->src_dim == dim ? loop->src_step : 0;
}

struct index_range index_extent(const struct index_draft *draft, enum index_side side, uint32_t dim)
{
    uint64_t first = side == INDEX_DST ? draft->dst_start[dim] : draft->src_start[dim], last = first;
    for (uint32_t i = 0; i < draft->n_loops; i++)
        last += (draft->loops[i].size - 1) * step_on(&draft->loops[i], side, dim);
    return (struct index_range){first, last};
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b > 0);
}

/* The parts whose index in one dimension is one of `wanted`. The largest digit has some values that are in it whatever the
 * smaller digits are, and next to these others (one on each side) for which the smaller digits decide. */
int index_clip_dim(const struct index_draft *draft, enum index_side side, uint32_t dim, uint64_t first, uint64_t last,
                   const struct index_taker *taker)
{
    const struct index_range wanted = {first, last}, all = index_extent(draft, side, dim);
    if (all.first >= wanted.first && all.last <= wanted.last)
        return taker->take(taker->data, draft);
    if (all.last < wanted.first || all.first > wanted.last)
        return 0;
    uint32_t at = 0; /* the largest */
    for (uint32_t i = 1; i < draft->n_loops; i++)
        at = step_on(&draft->loops[i], side, dim) > step_on(&draft->loops[at], side, dim) ? i : at;
    uint64_t step = step_on(&draft->loops[at], side, dim), size = draft->loops[at].size;
    uint64_t rest = all.last - all.first - (size - 1) * step; /* of the smaller digits */
    uint64_t touch = wanted.first > all.first + rest ? divide_up(wanted.first - all.first - rest, step) : 0;
    uint64_t last_touch = (wanted.last - all.first) / step;
    uint64_t full = wanted.first > all.first ? divide_up(wanted.first - all.first, step) : 0;
    uint64_t end_full = wanted.last >= all.first + rest ? (wanted.last - all.first - rest) / step + 1 : 0;
    last_touch = last_touch < size ? last_touch : size - 1;
    end_full = end_full < size ? end_full : size;
    for (uint64_t v = touch; v <= last_touch;) {
        struct index_draft part;
        bool is_full = v == full && full < end_full;
        uint64_t n = is_full ? end_full - full : 1;
        index_copy(draft, &part);
        index_narrow(&part, at, v, n);
        if ((is_full ? taker->take(taker->data, &part) : index_clip_dim(&part, side, dim, first, last, taker)) < 0)
            return -1;
        v += n;
    }
    return 0;
}

struct clip { /* of dimension `dim` and those behind it */
    enum index_side side;
    uint32_t rank, dim;
    const uint64_t *start, *size;
    const struct index_taker *taker;
};

static int clip_from(void *data, const struct index_draft *draft)
{
    struct clip clip = *(const struct clip *)data;
    for (; clip.dim < clip.rank; clip.dim++) {
        struct index_range all = index_extent(draft, clip.side, clip.dim);
        struct index_range wanted = {clip.start[clip.dim], clip.start[clip.dim] + clip.size[clip.dim] - 1};
        if (all.first >= wanted.first && all.last <= wanted.last)
            continue;
        struct clip next = clip;
        next.dim++;
        return index_clip_dim(draft, clip.side, clip.dim, wanted.first, wanted.last,
                              &(struct index_taker){clip_from, &next});
    }
    return clip.taker->take(clip.taker->data, draft);
}

int index_clip(const struct index_draft *draft, enum index_side side, uint32_t rank, const uint64_t *start,
               const uint64_t *size, const struct index_taker *taker)
{
    struct clip clip = {side, rank, 0, start, size, taker};
    for (uint32_t i = 0; i < rank; i++) { /* most maps of a long list are beside the box */
        struct index_range all = index_extent(draft, side, i);
        if (size[i] == 0 || all.first >= start[i] + size[i] || all.last < start[i])
            return 0;
    }
    return clip_from(&clip, draft);
}

int index_expand_tables(const struct index_draft *draft, const struct index_taker *taker)
{
    uint32_t at = 0;
    while (at < draft->n_loops && !draft->loops[at].table)
        at++;
    if (at == draft->n_loops)
        return taker->take(taker->data, draft);
    const uint32_t *table = draft->loops[at].table;
    for (uint64_t first = 0, n; first < draft->loops[at].size; first += n) {
        struct index_draft part;
        for (n = 1; first + n < draft->loops[at].size && table[first + n] == table[first] + n;)
            n++;
        index_copy(draft, &part);
        index_narrow(&part, at, first, n);
        if (n > 1) { /* the same as counting on from the first */
            part.src_start[part.loops[at].src_dim] += table[first] * part.loops[at].src_step;
            part.loops[at].table = NULL;
        }
        if (index_expand_tables(&part, taker) < 0)
            return -1;
    }
    return 0;
}

/* --- steps --- */

int index_identity(struct index_work *work, uint32_t source, uint32_t rank, const uint64_t *shape, bool is_flat,
                   struct index_array *out)
{
    struct index_list list = {.work = work, .dst_rank = rank};
    struct index_draft draft = {.source = source, .src_rank = is_flat ? 1 : rank};
    uint64_t n_elements = 1;
    for (uint32_t i = rank; i-- > 0;) {
        if (shape[i] > 1)
            draft.loops[draft.n_loops++] =
                (struct index_loop){shape[i], 1, is_flat ? n_elements : 1, i, is_flat ? 0 : i, NULL};
        n_elements *= shape[i];
        if (!n_elements)
            return index_finish(&list, shape, out);
    }
    return index_keep(&list, &draft) < 0 ? -1 : index_finish(&list, shape, out);
}

struct moved_list { /* keeps parts of a slice, counted from its beginning */
    struct index_list list;
    const uint64_t *start;
    uint64_t extent; /* of a shuffled dimension */
};

static int take_moved(void *data, const struct index_draft *part)
{
    struct moved_list *moved = data;
    struct index_draft draft;
    index_copy(part, &draft);
    for (uint32_t i = 0; i < moved->list.dst_rank; i++)
        draft.dst_start[i] -= moved->start[i];
    return index_keep(&moved->list, &draft);
}

int index_slice(struct index_work *work, const struct index_array *in, const uint64_t *start, const uint64_t *size,
                struct index_array *out)
{
    struct moved_list moved = {{.work = work, .dst_rank = in->rank}, start, 0};
    const struct index_taker taker = {take_moved, &moved};
    for (size_t i = 0; i < in->n_maps; i++) {
        struct index_draft draft;
        index_draft(&in->maps[i], in->rank, &draft);
        if (index_clip(&draft, INDEX_DST, in->rank, start, size, &taker) < 0)
            return -1;
    }
    return index_finish(&moved.list, size, out);
}

int index_transpose(struct index_work *work, const struct index_array *in, const uint32_t *dims, struct index_array *out)
{
    struct index_list list = {.work = work, .dst_rank = in->rank};
    uint64_t shape[TENSOR_MAX_RANK];
    uint32_t place[TENSOR_MAX_RANK] = {0};
    for (uint32_t i = 0; i < in->rank; i++) {
        shape[i] = in->shape[dims[i]];
        place[dims[i]] = i;
    }
    for (size_t m = 0; m < in->n_maps; m++) {
        const struct index_map *map = &in->maps[m];
        struct index_draft draft;
        index_draft(map, in->rank, &draft);
        for (uint32_t i = 0; i < in->rank; i++)
            draft.dst_start[i] = map->dst_start[dims[i]];
        for (uint32_t i = 0; i < draft.n_loops; i++)
            draft.loops[i].dst_dim = place[draft.loops[i].dst_dim];
        if (index_keep(&list, &draft) < 0)
            return -1;
    }
    return index_finish(&list, shape, out);
}

int index_concat(struct index_work *work, const struct index_array *parts, size_t n_parts, uint32_t dim,
                 struct index_array *out)
{
    struct index_list list = {.work = work, .dst_rank = parts[0].rank};
    uint64_t shape[TENSOR_MAX_RANK], offset = 0;
    memcpy(shape, parts[0].shape, parts[0].rank * sizeof shape[0]);
    for (size_t p = 0; p < n_parts; p++) {
        for (size_t m = 0; m < parts[p].n_maps; m++) {
            struct index_draft draft;
            index_draft(&parts[p].maps[m], parts[p].rank, &draft);
            draft.dst_start[dim] += offset;
            if (index_keep(&list, &draft) < 0)
                return -1;
        }
        offset += parts[p].shape[dim];
    }
    shape[dim] = offset;
    return index_finish(&list, shape, out);
}

/* The shape without dimension `dim`, or with one of a single index in front of it: no element moves. */
static int set_dim(struct index_work *work, const struct index_array *in, uint32_t dim, bool is_there,
                   struct index_array *out)
{
    uint64_t shape[TENSOR_MAX_RANK];
    uint32_t rank = is_there ? in->rank + 1 : in->rank - 1;
    for (uint32_t i = 0; i < rank; i++)
        shape[i] = i < dim ? in->shape[i] : !is_there ? in->shape[i + 1] : i == dim ? 1 : in->shape[i - 1];
    return index_reshape(work, in, rank, shape, out);
}

int index_stack(struct index_work *work, const struct index_array *parts, size_t n_parts, uint32_t dim,
                struct index_array *out)
{
    struct index_array *rows = arena_try_array(work->arena, n_parts, sizeof *rows, work->error);
    if (!rows)
        return -1;
    for (size_t p = 0; p < n_parts; p++)
        if (set_dim(work, &parts[p], dim, true, &rows[p]) < 0)
            return -1;
    return index_concat(work, rows, n_parts, dim, out);
}

int index_unstack(struct index_work *work, const struct index_array *in, uint32_t dim, uint64_t k, struct index_array *out)
{
    uint64_t start[TENSOR_MAX_RANK] = {0}, size[TENSOR_MAX_RANK];
    struct index_array row;
    memcpy(size, in->shape, in->rank * sizeof size[0]);
    start[dim] = k;
    size[dim] = 1;
    return index_slice(work, in, start, size, &row) < 0 ? -1 : set_dim(work, &row, dim, false, out);
}

int index_replicate(struct index_work *work, const struct index_array *in, uint64_t n, struct index_array *out)
{
    struct index_list list = {.work = work, .dst_rank = in->rank + 1};
    struct index_array one;
    uint64_t shape[TENSOR_MAX_RANK];
    shape[0] = n;
    if (in->rank)
        memcpy(shape + 1, in->shape, in->rank * sizeof shape[0]);
    if (set_dim(work, in, 0, true, &one) < 0)
        return -1;
    for (size_t m = 0; m < one.n_maps && n; m++) {
        struct index_draft draft;
        index_draft(&one.maps[m], one.rank, &draft);
        if (n > 1)
            draft.loops[draft.n_loops++] = (struct index_loop){n, 1, 0, 0, 0, NULL};
        if (index_keep(&list, &draft) < 0)
            return -1;
    }
    return index_finish(&list, shape, out);
}

/* --- shuffling --- */

enum { MAX_GATHER_WORK = 1 << 26 }; /* clips; beyond it a shuffle of a tensor of many parts would take minutes */

/* The loop that counts all of a dimension's indexes; n_loops when several loops do, or a table. */
static uint32_t only_loop(const struct index_map *map, uint32_t dim, uint64_t extent)
{
    uint32_t found = map->n_loops;
    for (uint32_t i = 0; i < map->n_loops; i++) {
        const struct index_loop *loop = &map->loops[i];
        if (loop->dst_dim != dim)
            continue;
        if (found != map->n_loops || loop->table || loop->dst_step != 1 || loop->size != extent)
            return map->n_loops;
        found = i;
    }
    return found;
}

int index_gather(struct index_work *work, const struct index_array *in, uint32_t dim, const uint32_t *table,
                 struct index_array *out)
{
    uint64_t start[TENSOR_MAX_RANK] = {0};
    struct moved_list rows = {{.work = work, .dst_rank = in->rank}, start, in->shape[dim]};
    const struct index_taker taker = {take_moved, &rows};
    for (size_t m = 0; m < in->n_maps; m++) {
        struct index_draft draft;
        index_draft(&in->maps[m], in->rank, &draft);
        uint32_t loop = only_loop(&in->maps[m], dim, rows.extent);
        if (loop < draft.n_loops) {
            draft.loops[loop].table = table;
            if (index_keep(&rows.list, &draft) < 0)
                return -1;
        } else if (rows.extent > MAX_GATHER_WORK / in->n_maps) {
            return fail_too_many(work);
        } else { /* row by row */
            for (uint64_t v = 0; v < rows.extent; v++) {
                start[dim] = table[v] - v; /* may wrap around, and back where it is subtracted */
                if (index_clip_dim(&draft, INDEX_DST, dim, table[v], table[v], &taker) < 0)
                    return -1;
            }
        }
    }
    return index_finish(&rows.list, in->shape, out);
}
