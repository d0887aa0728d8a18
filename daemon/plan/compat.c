/* Sorts, then packs greedily; see compat.h. Ties (tensors without bytes) keep the order they came in, so the result depends
 * on nothing but the artifact. */
#include "plan/compat.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct key {
    const char *file;
    uint64_t start;
    size_t index;
};

static int compare_keys(const void *a, const void *b)
{
    const struct key *left = a, *right = b;
    int order = strcmp(left->file, right->file);
    if (order != 0)
        return order;
    if (left->start != right->start)
        return left->start < right->start ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

struct compat_plan compat_plan_build(const char *const *files, const struct compat_tensor *tensors, size_t n_tensors,
                                     uint64_t chunk_bytes)
{
    struct key *keys = memory_alloc_array(n_tensors + 1, sizeof *keys);
    size_t *order = memory_alloc_array(n_tensors + 1, sizeof *order);
    for (size_t i = 0; i < n_tensors; i++)
        keys[i] = (struct key){files[tensors[i].file], tensors[i].start, i};
    qsort(keys, n_tensors, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n_tensors; i++)
        order[i] = keys[i].index;
    free(keys);
    struct compat_plan plan = {.order = order};
    plan.extents = memory_alloc_array(n_tensors + 1, sizeof *plan.extents);
    for (size_t i = 0; i < n_tensors; i++) {
        const struct compat_tensor *tensor = &tensors[plan.order[i]];
        struct compat_extent *last = plan.n_extents ? &plan.extents[plan.n_extents - 1] : NULL;
        uint64_t used = last ? last->end - last->start : 0; /* nothing is added to sizes: both ends lie in one file */
        bool fits = last && last->file == tensor->file && used <= chunk_bytes && tensor->bytes <= chunk_bytes - used;
        if (!fits) {
            last = &plan.extents[plan.n_extents++];
            *last = (struct compat_extent){.file = tensor->file, .start = tensor->start, .end = tensor->start, .first = i};
        }
        last->end = tensor->start + tensor->bytes;
        last->n_tensors++;
    }
    return plan;
}

void compat_plan_fini(struct compat_plan *plan)
{
    free(plan->order);
    free(plan->extents);
    *plan = (struct compat_plan){0};
}
