/* Whether boxes tile an array: disjoint, and together all of it. Any number of boxes in any order, of any dimensions.
 *
 * A box is rank offsets, then rank sizes, and lies inside the shape (offset + size <= extent, which the caller has checked).
 * Unless the array is empty, its elements can be counted in 64 bits. Boxes without elements may lie anywhere. Pure; one thread per scratch. */
#ifndef RESOLVE_COVER_H
#define RESOLVE_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum cover_verdict {
    COVER_EXACT,
    COVER_OVERLAPS,    /* two boxes share elements */
    COVER_GAP,         /* no two do, but not every element is in one */
    COVER_TOO_COMPLEX, /* cannot be found out within cover.work_left steps */
    COVER_NO_MEMORY,   /* cover.error tells */
};

struct cover { /* of many arrays, one after the other: zeroed, then cover_fini() */
    struct error *error;
    uint64_t work_left; /* steps; 0 in the beginning = as many as COVER_MAX_STEPS */
    size_t pair[2];     /* of COVER_OVERLAPS: which two */
    /* The order in which the boxes of the array before followed each other, which mostly is that of the next one. */
    uint32_t *order;
    size_t n_order, order_capacity;
};

/* Pairs of boxes: some seconds. Grids take none; 100,000 arrays of 64 bricks each take a tenth of them. */
enum { COVER_MAX_STEPS = 1 << 30 };

enum cover_verdict cover_check(struct cover *cover, uint32_t rank, const uint64_t *shape, const uint64_t *const *boxes,
                               size_t n_boxes);
/* The quick half of it, which sorts nothing: true only for a grid, in its order or in that of the last one. */
bool cover_is_grid(const struct cover *cover, uint32_t rank, const uint64_t *shape, const uint64_t *const *boxes,
                   size_t n_boxes);
/* Sorts box numbers so that equal boxes lie beside each other, lower numbers first. */
void cover_sort(uint32_t *numbers, size_t n, uint32_t rank, const uint64_t *const *boxes);
void cover_fini(struct cover *cover);

#endif
