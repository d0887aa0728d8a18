/* Nearly all arrays are cut by a grid, and the arrays of one checkpoint by the same: so the boxes are walked in the order that
 * fitted the array before, then in sorted order, and compared with the next place of a nested loop (tiles_in_order).
 *
 * What is cut otherwise (bricks, a pinwheel) tiles the array if no two boxes overlap and all together have as many elements. A
 * box is compared with those that begin within it along one dimension. */
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

/* Boxes as they come from cutting the first dimension, each part of it along the second, and so on: `at` is where the
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
    uint32_t rank, dim; /* that is compared first */
};

static int compare_boxes(const void *a, const void *b, void *data)
{
    const struct order_context *context = data;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b, rank = context->rank;
    const uint64_t *left = context->boxes[x], *right = context->boxes[y];
    if (rank && left[context->dim] != right[context->dim])
        return left[context->dim] < right[context->dim] ? -1 : 1;
    for (uint32_t i = 0; i < 2 * rank; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return (x > y) - (x < y);
}

void cover_sort(uint32_t *numbers, size_t n, uint32_t rank, const uint64_t *const *boxes)
{
    struct order_context context = {boxes, rank, 0};
    if (n)
        qsort_r(numbers, n, sizeof *numbers, compare_boxes, &context);
}

/* --- pair by pair --- */

static bool overlap(const struct grid *grid, const uint64_t *a, const uint64_t *b)
{
    for (uint32_t d = 0; d < grid->rank; d++)
        if (a[d] >= b[d] + b[grid->rank + d] || b[d] >= a[d] + a[grid->rank + d])
            return false;
    return true;
}

static uint64_t count_elements(const uint64_t *size, uint32_t rank)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < rank; d++)
        n *= size[d];
    return n;
}

/* The dimension along which a box meets the fewest others, about. */
static uint32_t find_sweep_dim(const struct grid *grid)
{
    uint32_t found = 0;
    double least = 0;
    for (uint32_t d = 0; d < grid->rank; d++) {
        double extent = 0;
        for (size_t i = 0; i < grid->n_boxes; i++)
            extent += (double)grid->boxes[i][grid->rank + d] / (double)grid->shape[d];
        found = d == 0 || extent < least ? d : found;
        least = found == d ? extent : least;
    }
    return found;
}

static enum cover_verdict check_pairs(struct cover *cover, const struct grid *grid)
{
    uint32_t *order = cover->order, rank = grid->rank, dim = find_sweep_dim(grid);
    uint64_t n_covered = 0;
    size_t n = 0;
    for (size_t i = 0; i < grid->n_boxes; i++) {
        if (is_empty(grid, grid->boxes[i]))
            continue;
        order[n++] = (uint32_t)i;
        n_covered += count_elements(grid->boxes[i] + rank, rank);
    }
    struct order_context context = {grid->boxes, rank, dim};
    if (n)
        qsort_r(order, n, sizeof *order, compare_boxes, &context);
    for (size_t i = 0; i < n; i++) {
        const uint64_t *box = grid->boxes[order[i]];
        for (size_t k = i + 1; k < n; k++) {
            const uint64_t *other = grid->boxes[order[k]];
            if (--cover->work_left == 0)
                return COVER_TOO_COMPLEX;
            if (rank && other[dim] >= box[dim] + box[rank + dim])
                break;
            if (!overlap(grid, box, other))
                continue;
            cover->pair[0] = order[i] < order[k] ? order[i] : order[k];
            cover->pair[1] = order[i] < order[k] ? order[k] : order[i];
            return COVER_OVERLAPS;
        }
    }
    return n_covered == count_elements(grid->shape, rank) ? COVER_EXACT : COVER_GAP;
}

/* --- the whole --- */

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
    cover->work_left = cover->work_left ? cover->work_left : COVER_MAX_STEPS;
    while (cover->order_capacity < n_boxes)
        if (metadata_reserve((void **)&cover->order, &cover->order_capacity, sizeof *cover->order, cover->error) < 0)
            return COVER_NO_MEMORY;
    for (size_t i = 0; i < n_boxes; i++)
        cover->order[i] = (uint32_t)i;
    cover_sort(cover->order, n_boxes, rank, boxes);
    cover->n_order = n_boxes;
    if (tiles_in_order(&grid, cover->order))
        return COVER_EXACT;
    cover->n_order = 0;
    return check_pairs(cover, &grid);
}

void cover_fini(struct cover *cover)
{
    metadata_free(cover->order);
}
