/* Nearly all arrays are cut by a grid, and the arrays of one checkpoint by the same: so the boxes are walked in the order that
 * fitted the array before, then in sorted order, and compared with the next place of a nested loop (tiles_in_order).
 *
 * What is cut otherwise (bricks, a pinwheel) is decided by its faces. A sum of boxes, each counted with a weight, is zero
 * everywhere if and only if it does not change anywhere along the first dimension: so at each coordinate the boxes that begin
 * there, less those that end there, must sum to zero in the remaining dimensions, which is the same question with one
 * dimension less. Boxes that meet face to face cancel at once; the array itself takes part with weight -1. */
#include "resolve/cover.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "resolve/format.h"

struct grid { /* what is to be tiled */
    uint32_t rank;
    const uint64_t *shape;
    const uint64_t *const *boxes;
    size_t n_boxes;
};

static bool is_empty(const struct grid *grid, const uint64_t *box)
{
    for (uint32_t d = 0; d < grid->rank; d++)
        if (!box[grid->rank + d])
            return true;
    return false;
}

/* --- in the order of a nested loop --- */

/* Boxes as somebody makes them who cuts the first dimension, each part of it along the second, and so on: `at` is where the
 * next one begins, `thick` how thick the parts are that it lies in. */
static bool tiles_in_order(const struct grid *grid, const uint32_t *order)
{
    uint64_t at[TENSOR_MAX_RANK] = {0}, thick[TENSOR_MAX_RANK];
    uint32_t rank = grid->rank, inner = 0; /* dimensions before `inner` are in the middle of a part */
    bool is_done = false;
    for (size_t i = 0; i < grid->n_boxes; i++) {
        const uint64_t *start = grid->boxes[order ? order[i] : i], *size = start + rank;
        if (is_empty(grid, start))
            continue;
        for (uint32_t d = 0; d < rank; d++) {
            if (start[d] != at[d] || (d < inner && size[d] != thick[d]))
                return false;
        }
        if (is_done)
            return false;
        for (uint32_t d = inner; d < rank; d++)
            thick[d] = size[d];
        for (inner = rank; inner > 0;) {
            inner--;
            at[inner] += size[inner];
            if (at[inner] < grid->shape[inner])
                break;
            at[inner] = 0; /* the last one in this dimension: on to the next part of the one before */
            is_done = inner == 0;
        }
        is_done = is_done || rank == 0;
    }
    return is_done;
}

/* --- sorted --- */

struct order_context {
    const uint64_t *const *boxes;
    uint32_t rank;
};

static int compare_numbers(const uint64_t *a, const uint64_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_boxes(const void *a, const void *b, void *data)
{
    const struct order_context *context = data;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int order = compare_numbers(context->boxes[x], context->boxes[y], 2 * (size_t)context->rank);
    return order ? order : (x > y) - (x < y);
}

void cover_sort(uint32_t *numbers, size_t n, uint32_t rank, const uint64_t *const *boxes)
{
    struct order_context context = {boxes, rank};
    if (n)
        qsort_r(numbers, n, sizeof *numbers, compare_boxes, &context);
}

static bool tiles_when_sorted(struct cover *cover, const struct grid *grid)
{
    for (size_t i = 0; i < grid->n_boxes; i++)
        cover->order[i] = (uint32_t)i;
    cover_sort(cover->order, grid->n_boxes, grid->rank, grid->boxes);
    return tiles_in_order(grid, cover->order);
}

/* --- by faces --- */

struct face {
    uint64_t at;
    uint32_t box;
    int32_t weight;
};

struct sweep {
    const uint64_t *const *boxes;
    uint32_t rank, n_dims;
    uint32_t dims[TENSOR_MAX_RANK]; /* those in which not every box is as long as the array */
    uint64_t *work_left;
    enum cover_verdict problem;
    struct error *error;
};

struct face_context {
    const struct sweep *sweep;
    uint32_t level; /* index into dims: those behind it are compared */
};

static int compare_rest(const struct sweep *sweep, uint32_t level, uint32_t a, uint32_t b)
{
    const uint64_t *x = sweep->boxes[a], *y = sweep->boxes[b];
    for (uint32_t i = level + 1; i < sweep->n_dims; i++) {
        uint32_t d = sweep->dims[i];
        if (x[d] != y[d])
            return x[d] < y[d] ? -1 : 1;
        if (x[sweep->rank + d] != y[sweep->rank + d])
            return x[sweep->rank + d] < y[sweep->rank + d] ? -1 : 1;
    }
    return 0;
}

static int compare_faces(const void *a, const void *b, void *data)
{
    const struct face_context *context = data;
    const struct face *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return compare_rest(context->sweep, context->level, x->box, y->box);
}

static struct face *make_faces(struct sweep *sweep, const struct face *boxes, size_t n, uint32_t level)
{
    uint32_t d = sweep->dims[level];
    if (*sweep->work_left <= 2 * n) {
        sweep->problem = COVER_TOO_COMPLEX;
        return NULL;
    }
    *sweep->work_left -= 2 * n;
    struct face *faces = metadata_array(2 * n, sizeof *faces, sweep->error);
    if (!faces)
        sweep->problem = COVER_NO_MEMORY;
    for (size_t i = 0; faces && i < n; i++) {
        const uint64_t *box = sweep->boxes[boxes[i].box];
        faces[2 * i] = (struct face){box[d], boxes[i].box, boxes[i].weight};
        faces[2 * i + 1] = (struct face){box[d] + box[sweep->rank + d], boxes[i].box, -boxes[i].weight};
    }
    if (faces)
        qsort_r(faces, 2 * n, sizeof *faces, compare_faces, &(struct face_context){sweep, level});
    return faces;
}

/* Leaves one of those faces that are the same, with the sum of their weights, and none where that is zero. */
static size_t cancel_faces(const struct sweep *sweep, uint32_t level, struct face *faces, size_t n)
{
    size_t n_left = 0;
    for (size_t i = 0, next; i < n; i = next) {
        struct face sum = faces[i];
        for (next = i + 1; next < n && compare_rest(sweep, level, sum.box, faces[next].box) == 0; next++)
            sum.weight += faces[next].weight;
        if (sum.weight)
            faces[n_left++] = sum;
    }
    return n_left;
}

/* Recursion is bounded by the number of dimensions. */
static bool sums_to_zero(struct sweep *sweep, const struct face *boxes, size_t n, uint32_t level)
{
    struct face *faces = make_faces(sweep, boxes, n, level);
    bool is_zero = faces;
    for (size_t i = 0, end; is_zero && i < 2 * n; i = end) {
        for (end = i + 1; end < 2 * n && faces[end].at == faces[i].at;)
            end++;
        size_t n_left = cancel_faces(sweep, level, faces + i, end - i);
        is_zero = !n_left || (level + 1 < sweep->n_dims && sums_to_zero(sweep, faces + i, n_left, level + 1));
    }
    metadata_free(faces);
    return is_zero;
}

static void find_cut_dims(struct sweep *sweep, const struct grid *grid)
{
    for (uint32_t d = 0; d < grid->rank; d++) {
        bool is_cut = false;
        for (size_t i = 0; i < grid->n_boxes && !is_cut; i++)
            is_cut = grid->boxes[i][grid->rank + d] != grid->shape[d] && !is_empty(grid, grid->boxes[i]);
        if (is_cut)
            sweep->dims[sweep->n_dims++] = d;
    }
}

/* COVER_GAP for all that is not exact. */
static enum cover_verdict tiles_by_faces(struct cover *cover, const struct grid *grid)
{
    uint64_t whole[2 * TENSOR_MAX_RANK] = {0};
    struct sweep sweep = {.boxes = cover->boxes,
                          .rank = grid->rank,
                          .work_left = &cover->work_left,
                          .problem = COVER_GAP,
                          .error = cover->error};
    struct face *weighted = metadata_array(grid->n_boxes + 1, sizeof *weighted, cover->error);
    size_t n = 0;
    if (!weighted)
        return COVER_NO_MEMORY;
    find_cut_dims(&sweep, grid);
    for (uint32_t d = 0; d < grid->rank; d++)
        whole[grid->rank + d] = grid->shape[d];
    for (size_t i = 0; i < grid->n_boxes; i++)
        cover->boxes[i] = grid->boxes[i];
    cover->boxes[grid->n_boxes] = whole;
    for (size_t i = 0; i < grid->n_boxes; i++)
        if (!is_empty(grid, grid->boxes[i]))
            weighted[n++] = (struct face){.box = (uint32_t)i, .weight = 1};
    /* without a cut each box is all of the array, so there has to be one */
    bool is_zero = n == 1;
    if (sweep.n_dims) {
        weighted[n++] = (struct face){.box = (uint32_t)grid->n_boxes, .weight = -1};
        is_zero = sums_to_zero(&sweep, weighted, n, 0);
    }
    metadata_free(weighted);
    return is_zero ? COVER_EXACT : sweep.problem;
}

/* --- what is wrong --- */

static bool overlap(const struct grid *grid, const uint64_t *a, const uint64_t *b)
{
    for (uint32_t d = 0; d < grid->rank; d++) {
        uint64_t a_size = a[grid->rank + d], b_size = b[grid->rank + d];
        if (!a_size || !b_size || a[d] >= b[d] + b_size || b[d] >= a[d] + a_size)
            return false;
    }
    return true;
}

/* Every pair; only of the one array that is to be refused. */
static bool find_overlap(struct cover *cover, const struct grid *grid)
{
    for (size_t i = 1; i < grid->n_boxes; i++) {
        for (size_t k = 0; k < i; k++) {
            if (overlap(grid, grid->boxes[i], grid->boxes[k])) {
                cover->pair[0] = k;
                cover->pair[1] = i;
                return true;
            }
        }
    }
    return false;
}

static int make_room(struct cover *cover, size_t n_boxes)
{
    if (!cover->work_left)
        cover->work_left = COVER_MAX_STEPS;
    while (cover->order_capacity < n_boxes)
        if (metadata_reserve((void **)&cover->order, &cover->order_capacity, sizeof *cover->order, cover->error) < 0)
            return -1;
    while (cover->boxes_capacity < n_boxes + 1)
        if (metadata_reserve((void **)&cover->boxes, &cover->boxes_capacity, sizeof *cover->boxes, cover->error) < 0)
            return -1;
    return 0;
}

static bool is_grid(const struct cover *cover, const struct grid *grid)
{
    return tiles_in_order(grid, NULL) || (cover->n_order == grid->n_boxes && tiles_in_order(grid, cover->order));
}

bool cover_is_grid(const struct cover *cover, uint32_t rank, const uint64_t *shape, const uint64_t *const *boxes,
                   size_t n_boxes)
{
    return is_grid(cover, &(struct grid){rank, shape, boxes, n_boxes});
}

enum cover_verdict cover_check(struct cover *cover, uint32_t rank, const uint64_t *shape, const uint64_t *const *boxes,
                               size_t n_boxes)
{
    struct grid grid = {rank, shape, boxes, n_boxes};
    bool is_hollow = false;
    for (uint32_t d = 0; d < rank; d++)
        is_hollow = is_hollow || !shape[d];
    if (is_hollow || is_grid(cover, &grid))
        return COVER_EXACT;
    if (make_room(cover, n_boxes) < 0)
        return COVER_NO_MEMORY;
    cover->n_order = n_boxes;
    if (tiles_when_sorted(cover, &grid))
        return COVER_EXACT;
    cover->n_order = 0;
    enum cover_verdict verdict = tiles_by_faces(cover, &grid);
    return verdict == COVER_GAP && find_overlap(cover, &grid) ? COVER_OVERLAPS : verdict;
}

void cover_fini(struct cover *cover)
{
    metadata_free(cover->order);
    metadata_free(cover->boxes);
}
