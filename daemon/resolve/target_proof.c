/* Targets are sorted by where they begin. Those whose extents meet are a hull, which mostly has one target. In a hull of more,
 * memory is cut into periods of the largest stride: each target becomes parts, the same bytes of some periods. Where the same
 * parts lie in one period after the other is a slab; its parts are looked at as a problem of the same kind, one stride
 * smaller, until they are plain ranges.
 *
 *     fused [4, 8]:  a = [:, :3], b = [:, 3:6]           period = 8: a is bytes [0, 3) and b is bytes [3, 6)
 *                                                         of the periods 0 .. 3: one slab, and no two ranges meet
 *
 * A cover is cut at the ends of hulls: what lies before a hull, or behind the last, is left out. What lies in one is cut into
 * the same periods. */
#include "resolve/target_proof.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "resolve/strided.h"
#include "resolve/target_lack.h"

enum { MAX_DEPTH = 128 }; /* different strides that meet: as many as two arrays have dimensions */

struct entry { /* what a target spans */
    uint64_t lo, hi;
    uint32_t owner; /* tensors, then fills, then covers */
};

struct hull { /* items [first, end) of a sorted list */
    uint64_t lo, hi;
    size_t first, end;
};

struct hulls { /* rising, disjoint */
    struct hull *list;
    size_t n, capacity;
};

enum finding { FOUND_NOTHING, FOUND_OVERLAP, FOUND_GAP };

struct proof {
    const struct target_list *list;
    const struct view_tensor *tensors;
    uint64_t *bases; /* of regions, in a space in which the same memory is at the same place */
    struct entry *entries;
    size_t n_entries;
    struct hulls hulls;
    struct strided_work work;
    bool covers; /* what is looked at now */
    enum finding found;
    uint32_t owners[2]; /* of an overlap */
    uint64_t gap;       /* where it begins */
};

/* --- naming --------------------------------------------------------------------------------------------------------- */

static const struct target *target_of(const struct target_list *list, uint32_t owner)
{
    if (owner < list->n_tensors)
        return &list->tensors[owner];
    owner -= (uint32_t)list->n_tensors;
    return owner < list->n_fills ? &list->fills[owner].target : &list->covers[owner - list->n_fills];
}

static const char *name_of(const struct proof *proof, uint32_t owner, char out[TEXT_NAME_CHARS])
{
    const struct target *target = target_of(proof->list, owner);
    if (owner < proof->list->n_tensors)
        return text_escape(proof->tensors[owner].record->name, proof->tensors[owner].record->name_length, out);
    return text_escape(target->name, target->name_length, out);
}

static int fail_overlap(const struct proof *proof)
{
    char first[TEXT_NAME_CHARS], second[TEXT_NAME_CHARS];
    uint32_t low = proof->owners[0] < proof->owners[1] ? 0 : 1;
    name_of(proof, proof->owners[low], first);
    if (proof->owners[0] == proof->owners[1])
        return fail(proof->work.error, ERROR_INVALID_ARGUMENT, "TARGET_REPEATS",
                    "target %s repeats elements: its strides lead to the same memory twice", first);
    return fail(proof->work.error, ERROR_INVALID_ARGUMENT, "TARGETS_OVERLAP",
                "targets %s and %s overlap: they share elements, or parts of elements, in memory", first,
                name_of(proof, proof->owners[1 - low], second));
}

/* --- boxes ---------------------------------------------------------------------------------------------------------- */

static struct strided_box box_of(const struct proof *proof, uint32_t owner, struct strided_loop *loops)
{
    const struct target *target = target_of(proof->list, owner);
    uint32_t rank;
    uint64_t row = target_row(target, &rank), at = proof->bases[target->region] + target->offset;
    struct strided_box box = strided_make(at, row, rank, target->dims, target->strides, loops);
    box.owner = owner;
    return box;
}

/* With loops that stay. */
static int add_boxes(struct proof *proof, uint32_t owner, struct strided_list *list)
{
    struct strided_loop scratch[TENSOR_MAX_RANK];
    struct strided_box box = box_of(proof, owner, scratch);
    if (box.n_loops) {
        struct strided_loop *loops = arena_try_array(&proof->work.arena, box.n_loops, sizeof *loops, proof->work.error);
        if (!loops)
            return -1;
        memcpy(loops, scratch, box.n_loops * sizeof *loops);
        box.loops = loops;
    }
    return strided_unnest(&proof->work, &box, list);
}

static int compare_boxes(const void *a, const void *b)
{
    const struct strided_box *left = a, *right = b;
    return left->lo < right->lo ? -1 : left->lo > right->lo;
}

static void sort_boxes(struct strided_box *boxes, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (boxes[i].lo < boxes[i - 1].lo) {
            qsort(boxes, n, sizeof *boxes, compare_boxes);
            return;
        }
}

static int add_hull(struct hulls *hulls, struct hull hull, struct error *error)
{
    if (METADATA_RESERVE(hulls->list, hulls->n, hulls->capacity, error))
        return -1;
    hulls->list[hulls->n++] = hull;
    return 0;
}

/* Becomes a part of the last hull where it meets it. */
static int join_hull(struct hulls *hulls, size_t i, uint64_t lo, uint64_t hi, struct error *error)
{
    struct hull *last = hulls->n ? &hulls->list[hulls->n - 1] : NULL;
    if (!last || last->hi <= lo)
        return add_hull(hulls, (struct hull){lo, hi, i, i + 1}, error);
    last->hi = hi > last->hi ? hi : last->hi;
    last->end = i + 1;
    return 0;
}

static uint64_t largest_stride(const struct strided_box *boxes, size_t n)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < n; i++)
        if (boxes[i].n_loops && boxes[i].loops[boxes[i].n_loops - 1].stride > largest)
            largest = boxes[i].loops[boxes[i].n_loops - 1].stride;
    return largest;
}

/* --- slabs ---------------------------------------------------------------------------------------------------------- */

static int check_boxes(struct proof *proof, struct strided_box *boxes, size_t n, uint64_t base, int depth);

struct slabs {
    const struct strided_parts *parts; /* by first */
    size_t next;
    uint32_t *active; /* indexes of parts */
    size_t n_active;
    struct strided_box *boxes; /* room for those of the active parts */
};

static int compare_parts(const void *a, const void *b)
{
    const struct strided_part *left = a, *right = b;
    return left->first < right->first ? -1 : left->first > right->first;
}

/* The next periods in which the same parts lie, from `at` on. */
static uint64_t enter_slab(struct slabs *slabs, uint64_t at)
{
    const struct strided_part *list = slabs->parts->list;
    for (; slabs->next < slabs->parts->n && list[slabs->next].first == at; slabs->next++)
        slabs->active[slabs->n_active++] = (uint32_t)slabs->next;
    uint64_t end = slabs->next < slabs->parts->n ? list[slabs->next].first : UINT64_MAX;
    for (size_t i = 0; i < slabs->n_active; i++) {
        const struct strided_part *part = &list[slabs->active[i]];
        slabs->boxes[i] = part->box;
        end = part->first + part->n < end ? part->first + part->n : end;
    }
    return end;
}

static void leave_slab(struct slabs *slabs, uint64_t end)
{
    size_t kept = 0;
    for (size_t i = 0; i < slabs->n_active; i++) {
        const struct strided_part *part = &slabs->parts->list[slabs->active[i]];
        if (part->first + part->n > end)
            slabs->active[kept++] = slabs->active[i];
    }
    slabs->n_active = kept;
}

static int walk_slabs(struct proof *proof, struct slabs *slabs, uint64_t base, uint64_t period, int depth)
{
    for (uint64_t at = 0, end; slabs->n_active || slabs->next < slabs->parts->n; at = end) {
        at = slabs->n_active ? at : slabs->parts->list[slabs->next].first;
        end = enter_slab(slabs, at);
        if (strided_spend(&proof->work, 1 + slabs->n_active) ||
            check_boxes(proof, slabs->boxes, slabs->n_active, base + at * period, depth))
            return -1;
        leave_slab(slabs, end);
    }
    return 0;
}

/* Boxes of a hull, the first of which begins at lo. */
static int check_periods(struct proof *proof, const struct strided_box *boxes, size_t n, uint64_t lo, uint64_t base,
                         int depth)
{
    struct error *error = proof->work.error;
    struct strided_parts parts = {0};
    uint64_t period = largest_stride(boxes, n);
    int result = 0;
    proof->work.is_too_long = proof->work.is_too_long || depth == MAX_DEPTH;
    for (size_t i = 0; i < n && !result; i++)
        result = proof->work.is_too_long ? -1 : strided_divide(&proof->work, boxes[i], lo, period, &parts);
    if (!result) {
        qsort(parts.list, parts.n, sizeof *parts.list, compare_parts);
        struct slabs slabs = {.parts = &parts,
                              .active = metadata_array(parts.n, sizeof *slabs.active, error),
                              .boxes = metadata_array(parts.n, sizeof *slabs.boxes, error)};
        result = slabs.active && slabs.boxes ? walk_slabs(proof, &slabs, base + lo, period, depth + 1) : -1;
        metadata_free(slabs.active);
        metadata_free(slabs.boxes);
    }
    metadata_free(parts.list);
    return result;
}

/* --- overlap -------------------------------------------------------------------------------------------------------- */

static int check_disjoint(struct proof *proof, struct strided_box *boxes, size_t n, uint64_t base, int depth)
{
    sort_boxes(boxes, n);
    for (size_t first = 0, end; first < n; first = end) {
        uint64_t hi = boxes[first].hi;
        for (end = first + 1; end < n && boxes[end].lo < hi; end++)
            hi = boxes[end].hi > hi ? boxes[end].hi : hi;
        if (end == first + 1)
            continue;
        if (!largest_stride(boxes + first, end - first)) { /* plain ranges, of which the first two meet */
            proof->found = FOUND_OVERLAP;
            proof->owners[0] = boxes[first].owner;
            proof->owners[1] = boxes[first + 1].owner;
            return -1;
        }
        if (check_periods(proof, boxes + first, end - first, boxes[first].lo, base, depth))
            return -1;
    }
    return 0;
}

/* --- covers --------------------------------------------------------------------------------------------------------- */

static bool is_cover(const struct proof *proof, uint32_t owner)
{
    return owner >= proof->list->n_tensors + proof->list->n_fills;
}

static int find_gap(struct proof *proof, uint64_t at)
{
    proof->found = FOUND_GAP;
    proof->gap = at;
    return -1;
}

static size_t find_hull(const struct hulls *hulls, uint64_t at)
{
    size_t lo = 0, hi = hulls->n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (hulls->list[middle].hi <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

/* What of a cover lies in which hull: added to `inside`, whose owners are hulls. */
static int cut_cover(struct proof *proof, const struct hulls *hulls, const struct strided_box *cover, uint64_t base,
                     struct strided_list *inside)
{
    struct strided_list rest = {0}, behind = {0};
    int result = strided_add(&rest, *cover, proof->work.error);
    while (rest.n && !result) {
        size_t h = find_hull(hulls, rest.boxes[0].lo);
        if (h == hulls->n || rest.boxes[0].lo < hulls->list[h].lo) {
            result = find_gap(proof, base + rest.boxes[0].lo);
            break;
        }
        size_t n_before = inside->n;
        behind.n = 0;
        result = strided_spend(&proof->work, rest.n);
        for (size_t i = 0; i < rest.n && !result; i++)
            result = strided_split(&proof->work, &rest.boxes[i], hulls->list[h].hi, inside, &behind);
        for (size_t i = n_before; i < inside->n; i++)
            inside->boxes[i].owner = (uint32_t)h;
        struct strided_list spare = rest;
        rest = behind;
        behind = spare;
    }
    metadata_free(rest.boxes);
    metadata_free(behind.boxes);
    return result;
}

static int compare_owners(const void *a, const void *b)
{
    const struct strided_box *left = a, *right = b;
    return left->owner < right->owner ? -1 : left->owner > right->owner;
}

/* The part of a cover in one hull: `both` are its writers, then what of the cover lies there. */
static int check_hull(struct proof *proof, struct strided_list *both, size_t n_writers, const struct hull *hull,
                      uint64_t base, int depth)
{
    uint32_t cover = (uint32_t)(proof->list->n_tensors + proof->list->n_fills);
    for (size_t i = n_writers; i < both->n; i++)
        both->boxes[i].owner = cover;
    if (n_writers == 1 && both->boxes[0].n_loops == 0)
        return 0;
    return check_periods(proof, both->boxes, both->n, hull->lo, base, depth);
}

/* `inside` as cut_cover() makes it; `writers`: what the hulls are of, NULL = of the entries. */
static int check_hulls(struct proof *proof, const struct hulls *hulls, struct strided_list *inside,
                       const struct strided_box *writers, uint64_t base, int depth)
{
    struct strided_list both = {0};
    int result = 0;
    qsort(inside->boxes, inside->n, sizeof *inside->boxes, compare_owners);
    for (size_t first = 0, end; first < inside->n && !result; first = end) {
        const struct hull *hull = &hulls->list[inside->boxes[first].owner];
        both.n = 0;
        for (size_t i = hull->first; i < hull->end && !result; i++)
            result = strided_spend(&proof->work, 1) || (writers ? strided_add(&both, writers[i], proof->work.error)
                                                                : add_boxes(proof, proof->entries[i].owner, &both))
                         ? -1
                         : 0;
        size_t n_writers = both.n;
        for (end = first; end < inside->n && inside->boxes[end].owner == inside->boxes[first].owner; end++)
            result = result || strided_add(&both, inside->boxes[end], proof->work.error) ? -1 : 0;
        result = result || check_hull(proof, &both, n_writers, hull, base, depth) ? -1 : 0;
    }
    metadata_free(both.boxes);
    return result;
}

static int check_covered(struct proof *proof, struct strided_box *boxes, size_t n, uint64_t base, int depth)
{
    struct error *error = proof->work.error;
    struct hulls hulls = {0};
    struct strided_list inside = {0};
    size_t n_writers = 0;
    int result = 0;
    for (size_t i = 0; i < n; i++) { /* writers first */
        struct strided_box box = boxes[i];
        if (is_cover(proof, box.owner))
            continue;
        boxes[i] = boxes[n_writers];
        boxes[n_writers++] = box;
    }
    if (n_writers == n)
        return 0;
    sort_boxes(boxes, n_writers);
    for (size_t i = 0; i < n_writers && !result; i++)
        result = join_hull(&hulls, i, boxes[i].lo, boxes[i].hi, error);
    for (size_t i = n_writers; i < n && !result; i++)
        result = cut_cover(proof, &hulls, &boxes[i], base, &inside);
    result = result || check_hulls(proof, &hulls, &inside, boxes, base, depth) ? -1 : 0;
    metadata_free(hulls.list);
    metadata_free(inside.boxes);
    return result;
}

static int check_boxes(struct proof *proof, struct strided_box *boxes, size_t n, uint64_t base, int depth)
{
    return proof->covers ? check_covered(proof, boxes, n, base, depth) : check_disjoint(proof, boxes, n, base, depth);
}

/* --- what a cover lacks --------------------------------------------------------------------------------------------- */

/* Whether a target writes into the box, or may: what would take too long counts. */
static bool is_written(void *data, const struct strided_box *box)
{
    struct proof *proof = data;
    struct strided_list pair = {0};
    bool is_free = true;
    size_t first = find_hull(&proof->hulls, box->lo);
    size_t i = first < proof->hulls.n ? proof->hulls.list[first].first : proof->n_entries;
    for (; i < proof->n_entries && proof->entries[i].lo < box->hi && is_free; i++) {
        if (strided_spend(&proof->work, 1))
            return true;
        if (proof->entries[i].hi <= box->lo)
            continue;
        pair.n = 0;
        is_free = !add_boxes(proof, proof->entries[i].owner, &pair) && !strided_add(&pair, *box, proof->work.error) &&
                  !check_disjoint(proof, pair.boxes, pair.n, 0, 0);
    }
    metadata_free(pair.boxes);
    return !is_free;
}

static int fail_gap(struct proof *proof, uint32_t owner)
{
    const struct target *cover = target_of(proof->list, owner);
    struct error *error = proof->work.error, ignored;
    char name[TEXT_NAME_CHARS], box[TARGET_LACK_CHARS];
    proof->work.error = &ignored;
    proof->work.steps_left = TARGET_MAX_STEPS;
    proof->covers = false;
    target_find_lack(cover, proof->bases[cover->region] + cover->offset, proof->gap, is_written, proof, box);
    name_of(proof, owner, name);
    return fail(error, ERROR_INVALID_ARGUMENT, "NOT_COVERED",
                "%s[%s] is not covered: no target of the request writes it; give a tensor or a fill for it", name, box);
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

static int fail_too_long(struct proof *proof, uint32_t first, uint32_t second)
{
    char name[TEXT_NAME_CHARS], other[TEXT_NAME_CHARS];
    name_of(proof, first, name);
    if (first == second)
        return fail(proof->work.error, ERROR_UNIMPLEMENTED, "TARGETS_TOO_COMPLEX",
                    "target %s cannot be checked in time: too many targets or strides that cross meet in it", name);
    return fail(proof->work.error, ERROR_UNIMPLEMENTED, "TARGETS_TOO_COMPLEX",
                "targets %s and %s lie within each other in too complex a way to prove that they do not overlap", name,
                name_of(proof, second, other));
}

/* What a check found, as an error. `first`, `second`: what it was about, where it took too long. */
static int tell_finding(struct proof *proof, uint32_t first, uint32_t second)
{
    if (proof->found == FOUND_OVERLAP)
        return fail_overlap(proof);
    return proof->work.is_too_long ? fail_too_long(proof, first, second) : -1;
}

static void order_regions(const struct target_list *list, uint32_t *order)
{
    for (uint32_t i = 0; i < list->n_regions; i++) {
        const struct target_region *next = &list->regions[i];
        uint32_t at = i;
        for (; at > 0; at--) {
            const struct target_region *last = &list->regions[order[at - 1]];
            if (last->inode < next->inode || (last->inode == next->inode && last->device <= next->device))
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

/* Every memory is at a place of its own, offers of the same one at the same. */
static int place_memories(struct proof *proof)
{
    const struct target_list *list = proof->list;
    uint32_t *order = metadata_array(list->n_regions, sizeof *order, proof->work.error);
    uint64_t base = 0, end = 0;
    proof->bases = metadata_array(list->n_regions, sizeof *proof->bases, proof->work.error);
    if (!order || !proof->bases) {
        metadata_free(order);
        return -1;
    }
    order_regions(list, order);
    for (size_t i = 0; i < list->n_regions; i++) {
        const struct target_region *region = &list->regions[order[i]];
        const struct target_region *last = i ? &list->regions[order[i - 1]] : NULL;
        if (!last || !region->inode || region->inode != last->inode || region->device != last->device)
            base = end;
        proof->bases[order[i]] = base + region->memory_offset;
        uint64_t region_end = base + region->memory_offset + region->bytes;
        end = region_end > end ? region_end : end;
    }
    metadata_free(order);
    return 0;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    return left->lo < right->lo ? -1 : left->lo > right->lo;
}

/* Of what has strides that cross: its boxes must not meet. */
static int check_crossing(struct proof *proof, const struct strided_box *box)
{
    struct strided_list list = {0};
    int result = strided_unnest(&proof->work, box, &list) || check_disjoint(proof, list.boxes, list.n, 0, 0) ? -1 : 0;
    metadata_free(list.boxes);
    return result ? tell_finding(proof, box->owner, box->owner) : 0;
}

static int check_one(struct proof *proof, uint32_t owner)
{
    struct strided_loop loops[TENSOR_MAX_RANK];
    if (target_is_empty(target_of(proof->list, owner)))
        return 0;
    const struct strided_box box = box_of(proof, owner, loops);
    bool is_nested = strided_is_nested(&box);
    if (strided_repeats(&box)) {
        proof->owners[0] = proof->owners[1] = owner;
        return fail_overlap(proof);
    }
    if (is_cover(proof, owner) && !is_nested)
        return fail_too_long(proof, owner, owner);
    if (!is_nested && check_crossing(proof, &box))
        return -1;
    if (!is_cover(proof, owner))
        proof->entries[proof->n_entries++] = (struct entry){box.lo, box.hi, owner};
    return 0;
}

static int check_all(struct proof *proof)
{
    const struct target_list *list = proof->list;
    size_t n_writers = list->n_tensors + list->n_fills;
    bool is_sorted = true;
    proof->entries = metadata_array(n_writers, sizeof *proof->entries, proof->work.error);
    if (!proof->entries)
        return -1;
    for (size_t i = 0; i < n_writers + list->n_covers; i++)
        if (check_one(proof, (uint32_t)i))
            return -1;
    for (size_t i = 1; i < proof->n_entries && is_sorted; i++)
        is_sorted = proof->entries[i - 1].lo <= proof->entries[i].lo;
    if (!is_sorted)
        qsort(proof->entries, proof->n_entries, sizeof *proof->entries, compare_entries);
    for (size_t i = 0; i < proof->n_entries; i++)
        if (join_hull(&proof->hulls, i, proof->entries[i].lo, proof->entries[i].hi, proof->work.error))
            return -1;
    return 0;
}

static int prove_disjoint(struct proof *proof)
{
    struct strided_list boxes = {0};
    int result = 0;
    for (size_t h = 0; h < proof->hulls.n && !result; h++) {
        const struct hull *hull = &proof->hulls.list[h];
        if (hull->end == hull->first + 1)
            continue;
        boxes.n = 0;
        for (size_t i = hull->first; i < hull->end && !result; i++)
            result = add_boxes(proof, proof->entries[i].owner, &boxes);
        result = result || check_disjoint(proof, boxes.boxes, boxes.n, 0, 0) ? -1 : 0;
        if (result)
            result = tell_finding(proof, proof->entries[hull->first].owner, proof->entries[hull->first + 1].owner);
    }
    metadata_free(boxes.boxes);
    return result;
}

static int prove_cover(struct proof *proof, uint32_t owner)
{
    struct strided_loop loops[TENSOR_MAX_RANK];
    struct strided_list inside = {0};
    if (target_is_empty(target_of(proof->list, owner)))
        return 0;
    const struct strided_box box = box_of(proof, owner, loops);
    int result =
        cut_cover(proof, &proof->hulls, &box, 0, &inside) || check_hulls(proof, &proof->hulls, &inside, NULL, 0, 0) ? -1 : 0;
    metadata_free(inside.boxes);
    if (result && proof->found == FOUND_GAP)
        return fail_gap(proof, owner);
    return result ? tell_finding(proof, owner, owner) : 0;
}

int target_prove(const struct target_list *list, const struct view_tensor *tensors, struct error *error)
{
    struct proof proof = {.list = list, .tensors = tensors, .work = {.steps_left = TARGET_MAX_STEPS, .error = error}};
    int result = place_memories(&proof) || check_all(&proof) || prove_disjoint(&proof) ? -1 : 0;
    proof.covers = true;
    for (size_t i = 0; i < list->n_covers && !result; i++)
        result = prove_cover(&proof, (uint32_t)(list->n_tensors + list->n_fills + i));
    metadata_free(proof.bases);
    metadata_free(proof.entries);
    metadata_free(proof.hulls.list);
    arena_fini(&proof.work.arena);
    return result;
}
