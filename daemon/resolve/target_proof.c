/* Targets are sorted by where they begin. Those whose extents meet are a hull, which mostly has one target: then only strides
 * that cross can overlap. In a hull of more, a loop that all of them have alike is dropped, because what holds in one of its
 * iterations holds in all. What is left is written down in a bitmap with a bit for each unit, the largest number of bytes that
 * divides every offset, row and stride of the hull.
 *
 *     fused [4, 8]:  a = [:, :3], b = [:, 3:6]     both repeat 4 times, 8 elements apart: looked at are the ranges
 *                                                  [0, 3) and [3, 6), which do not meet
 *
 * A cover is looked at together with the targets that meet it, in the same way. */
#include "resolve/target_proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/strided.h"

struct span {
    uint64_t lo, hi;
};

enum { BOX_STEPS = 8 /* what it takes to make a box */, LACK_CHARS = 256 };

enum finding { FOUND_NOTHING, FOUND_OVERLAP, FOUND_GAP, FOUND_TOO_COMPLEX };

struct proof {
    const struct target_list *list;
    const struct view_tensor *tensors;
    uint64_t *bases; /* of regions, in a space in which the same memory is at the same place */
    struct strided_box
        *writers; /* of tensors and fills that have elements, by lo. Owners: tensors, then fills, then covers */
    struct strided_loop *loops; /* of theirs */
    uint64_t *reach;            /* of each writer: how far it or one before it goes */
    size_t n_writers;
    struct strided_box *boxes; /* room for all of them, and what is held against them */
    uint64_t steps_left;
    struct error *error;
    enum finding found;
    uint32_t owners[2]; /* of an overlap, or of what takes too long */
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

static const char *name_of(const struct proof *proof, uint32_t owner)
{
    const struct target *target = target_of(proof->list, owner);
    if (owner < proof->list->n_tensors)
        return text_show_bytes(proof->tensors[owner].record->name, proof->tensors[owner].record->name_length);
    return text_show_bytes(target->name, target->name_length);
}

static int fail_overlap(const struct proof *proof)
{
    uint32_t low = proof->owners[0] < proof->owners[1] ? 0 : 1;
    const char *first = name_of(proof, proof->owners[low]);
    if (proof->owners[0] == proof->owners[1])
        return fail(proof->error, ERROR_INVALID_ARGUMENT, "TARGET_REPEATS",
                    "target %s repeats elements: its strides lead to the same memory twice", first);
    return fail(proof->error, ERROR_INVALID_ARGUMENT, "TARGETS_OVERLAP",
                "targets %s and %s overlap: they share elements, or parts of elements, in memory", first,
                name_of(proof, proof->owners[1 - low]));
}

/* --- boxes ---------------------------------------------------------------------------------------------------------- */

static int spend_steps(struct proof *proof, uint64_t steps)
{
    if (steps > proof->steps_left) {
        proof->found = FOUND_TOO_COMPLEX;
        return -1;
    }
    proof->steps_left -= steps;
    return 0;
}

static struct strided_box box_of(const struct proof *proof, uint32_t owner, struct strided_loop *loops)
{
    const struct target *target = target_of(proof->list, owner);
    uint32_t rank;
    uint64_t row = target_row(target, &rank), at = proof->bases[target->region] + target->offset;
    struct strided_box box = strided_make(at, row, rank, target->dims, target->strides, loops);
    box.owner = owner;
    return box;
}

static int compare_boxes(const void *a, const void *b)
{
    const struct strided_box *left = a, *right = b;
    return left->lo < right->lo ? -1 : left->lo > right->lo;
}

/* What n > 0 boxes span. */
static struct span span_of(const struct strided_box *boxes, size_t n)
{
    struct span span = {boxes[0].lo, boxes[0].hi};
    for (size_t i = 1; i < n; i++) {
        span.lo = boxes[i].lo < span.lo ? boxes[i].lo : span.lo;
        span.hi = boxes[i].hi > span.hi ? boxes[i].hi : span.hi;
    }
    return span;
}

/* The box is iterations of this loop. A range as long as all of them is, too. */
static bool has_outer_loop(const struct strided_box *box, struct strided_loop outer)
{
    const struct strided_loop *loop = &box->loops[box->n_loops - 1];
    if (box->n_loops)
        return loop->stride == outer.stride && loop->size == outer.size;
    return box->row % outer.size == 0 && box->row / outer.size == outer.stride;
}

/* Drops an outermost loop that all boxes have alike, where none reaches into the next iteration of another. False: there is none. */
static bool drop_common_loop(struct strided_box *boxes, size_t n)
{
    size_t i = 0;
    while (i < n && boxes[i].n_loops == 0)
        i++;
    if (i == n)
        return false;
    const struct strided_loop outer = boxes[i].loops[boxes[i].n_loops - 1];
    const struct span span = span_of(boxes, n);
    uint64_t repeated = (outer.size - 1) * outer.stride;
    for (i = 0; i < n && has_outer_loop(&boxes[i], outer);)
        i++;
    if (i < n || span.hi - span.lo - repeated > outer.stride)
        return false;
    for (i = 0; i < n; i++) {
        boxes[i].row = boxes[i].n_loops ? boxes[i].row : outer.stride;
        boxes[i].n_loops -= boxes[i].n_loops ? 1 : 0;
        boxes[i].hi -= repeated;
    }
    return true;
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

struct rows { /* of a box, one after the other */
    const struct strided_box *box;
    uint64_t at; /* of the row */
    uint64_t index[TENSOR_MAX_RANK];
};

/* False: that was the last one. */
static bool next_row(struct rows *rows)
{
    for (uint32_t i = 0; i < rows->box->n_loops; i++) {
        const struct strided_loop *loop = &rows->box->loops[i];
        rows->at += loop->stride;
        if (++rows->index[i] < loop->size)
            return true;
        rows->at -= loop->size * loop->stride;
        rows->index[i] = 0;
    }
    return false;
}

static bool has_byte(const struct strided_box *box, uint64_t at)
{
    struct rows rows = {.box = box, .at = box->lo};
    do
        if (at - rows.at < box->row)
            return true;
    while (next_row(&rows));
    return false;
}

/* --- bits ----------------------------------------------------------------------------------------------------------- */

struct bits {
    uint64_t lo, unit; /* in bytes */
    uint64_t *words;
};

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* None set, of what the boxes span. */
static int bits_init(struct proof *proof, const struct strided_box *boxes, size_t n, struct bits *bits)
{
    const struct span span = span_of(boxes, n);
    *bits = (struct bits){.lo = span.lo};
    for (size_t i = 0; i < n; i++) {
        bits->unit = common_divisor(common_divisor(bits->unit, boxes[i].row), boxes[i].lo - span.lo);
        for (uint32_t k = 0; k < boxes[i].n_loops; k++)
            bits->unit = common_divisor(bits->unit, boxes[i].loops[k].stride);
    }
    uint64_t n_bits = (span.hi - span.lo) / bits->unit;
    if (n_bits > TARGET_MAX_BITS) {
        proof->found = FOUND_TOO_COMPLEX;
        return -1;
    }
    if (spend_steps(proof, n_bits / 64))
        return -1;
    bits->words = metadata_array(n_bits / 64 + 1, sizeof *bits->words, proof->error);
    return bits->words ? 0 : -1;
}

/* Where in the row the first unit is that is set, or that is not; its length when there is none. */
static uint64_t bits_find(const struct bits *bits, uint64_t at, uint64_t length, bool set)
{
    uint64_t first = (at - bits->lo) / bits->unit, end = first + length / bits->unit;
    for (uint64_t i = first; i < end;) {
        uint64_t word = (set ? bits->words[i / 64] : ~bits->words[i / 64]) >> (i % 64);
        i = word ? i + (uint64_t)__builtin_ctzll(word) : (i / 64 + 1) * 64;
        if (word)
            return i < end ? (i - first) * bits->unit : length;
    }
    return length;
}

static void bits_set(struct bits *bits, uint64_t at, uint64_t length)
{
    uint64_t first = (at - bits->lo) / bits->unit, end = first + length / bits->unit;
    for (uint64_t i = first; i < end;) {
        uint64_t n = 64 - i % 64 < end - i ? 64 - i % 64 : end - i;
        bits->words[i / 64] |= (n == 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << (i % 64);
        i += n;
    }
}

static uint64_t row_steps(const struct bits *bits, const struct strided_box *box)
{
    return 1 + box->row / bits->unit / 64;
}

/* --- overlap -------------------------------------------------------------------------------------------------------- */

static int find_overlap(struct proof *proof, uint32_t first, uint32_t second)
{
    proof->found = FOUND_OVERLAP;
    proof->owners[0] = first;
    proof->owners[1] = second;
    return -1;
}

static int write_down(struct proof *proof, const struct strided_box *boxes, size_t n, struct bits *bits)
{
    for (size_t i = 0; i < n; i++) {
        struct rows rows = {.box = &boxes[i], .at = boxes[i].lo};
        do {
            if (spend_steps(proof, row_steps(bits, &boxes[i])))
                return -1;
            uint64_t met = bits_find(bits, rows.at, boxes[i].row, true);
            if (met < boxes[i].row) {
                size_t owner = 0; /* the box that had the byte before */
                while (owner < i && !has_byte(&boxes[owner], rows.at + met))
                    owner++;
                return find_overlap(proof, boxes[owner].owner, boxes[i].owner);
            }
            bits_set(bits, rows.at, boxes[i].row);
        } while (next_row(&rows));
    }
    return 0;
}

static int check_disjoint(struct proof *proof, struct strided_box *boxes, size_t n);

static int check_hull(struct proof *proof, struct strided_box *boxes, size_t n)
{
    struct bits bits;
    if (n == 1 && strided_is_nested(&boxes[0]))
        return 0;
    if (drop_common_loop(boxes, n))
        return check_disjoint(proof, boxes, n);
    bool are_plain = true;
    for (size_t i = 0; i < n; i++)
        are_plain = are_plain && boxes[i].n_loops == 0;
    if (are_plain) /* the first two meet */
        return find_overlap(proof, boxes[0].owner, boxes[1].owner);
    if (bits_init(proof, boxes, n, &bits))
        return -1;
    int result = write_down(proof, boxes, n, &bits);
    metadata_free(bits.words);
    return result;
}

/* Whether no byte is twice in the boxes. Changes them. */
static int check_disjoint(struct proof *proof, struct strided_box *boxes, size_t n)
{
    size_t n_sorted = 1;
    while (n_sorted < n && boxes[n_sorted - 1].lo <= boxes[n_sorted].lo)
        n_sorted++;
    if (n_sorted < n)
        qsort(boxes, n, sizeof *boxes, compare_boxes);
    for (size_t first = 0, end; first < n; first = end) {
        uint64_t hi = boxes[first].hi;
        for (end = first + 1; end < n && boxes[end].lo < hi; end++)
            hi = boxes[end].hi > hi ? boxes[end].hi : hi;
        proof->owners[0] = boxes[first].owner;
        proof->owners[1] = boxes[end - first > 1 ? first + 1 : first].owner;
        if (spend_steps(proof, end - first) || check_hull(proof, boxes + first, end - first))
            return -1;
    }
    return 0;
}

/* --- covers --------------------------------------------------------------------------------------------------------- */

static int find_gap(struct proof *proof, uint64_t at)
{
    proof->found = FOUND_GAP;
    proof->gap = at;
    return -1;
}

/* Copies the boxes of the targets that meet [lo, hi), by where they begin; as many. */
static size_t collect_writers(struct proof *proof, uint64_t lo, uint64_t hi)
{
    size_t first = 0, end = proof->n_writers, n = 0;
    while (first < end) { /* the first that reaches beyond lo, or has one before it that does */
        size_t middle = first + (end - first) / 2;
        if (proof->reach[middle] <= lo)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < proof->n_writers && proof->writers[first].lo < hi; first++)
        if (proof->writers[first].hi > lo)
            proof->boxes[n++] = proof->writers[first];
    return n;
}

static int check_bits(struct proof *proof, const struct strided_box *cover, const struct strided_box *writers, size_t n)
{
    struct bits bits;
    struct rows rows = {.box = cover, .at = cover->lo};
    if (bits_init(proof, writers, n + 1, &bits)) /* the cover stands behind them */
        return -1;
    int result = write_down(proof, writers, n, &bits);
    while (!result) {
        result = spend_steps(proof, row_steps(&bits, cover));
        uint64_t gap = result ? 0 : bits_find(&bits, rows.at, cover->row, false);
        if (!result && gap < cover->row)
            result = find_gap(proof, rows.at + gap);
        if (!result && !next_row(&rows))
            break;
    }
    metadata_free(bits.words);
    return result;
}

/* --- what a cover lacks --------------------------------------------------------------------------------------------- */

/* Which elements of a cover are left out, in words: the box of indexes around the gap grows along one dimension after the other,
 * the one with the smallest stride first. */
struct lack {
    struct proof *proof;
    const struct target *cover;
    uint64_t at, row; /* of the element with all indexes 0 */
    uint32_t rank;
    uint32_t order[TENSOR_MAX_RANK]; /* dimensions by the size of their strides, the smallest first */
    uint64_t first[TENSOR_MAX_RANK], size[TENSOR_MAX_RANK];
};

static uint64_t magnitude_of(const struct lack *lack, uint32_t dim)
{
    return checked_magnitude(lack->cover->strides[dim]);
}

/* Stride by stride, the largest first. */
static void find_element(struct lack *lack)
{
    uint64_t rest = lack->proof->gap - lack->at;
    for (uint32_t i = 0; i < lack->rank; i++) {
        uint32_t at = i;
        for (; at > 0 && magnitude_of(lack, lack->order[at - 1]) > magnitude_of(lack, i); at--)
            lack->order[at] = lack->order[at - 1];
        lack->order[at] = i;
        if (lack->cover->strides[i] < 0)
            rest += (lack->cover->dims[i] - 1) * magnitude_of(lack, i);
    }
    for (uint32_t n = lack->rank; n-- > 0;) {
        uint32_t dim = lack->order[n];
        uint64_t last = lack->cover->dims[dim] - 1, index = last ? rest / magnitude_of(lack, dim) : 0;
        index = index < last ? index : last;
        rest -= last ? index * magnitude_of(lack, dim) : 0;
        lack->first[dim] = lack->cover->strides[dim] < 0 ? last - index : index;
        lack->size[dim] = 1;
    }
}

/* Whether the box is still left out with `more` indexes on one side. What would take too long to find out counts as written. */
static bool can_grow(const struct lack *lack, uint32_t dim, bool goes_up, uint64_t more)
{
    struct proof *proof = lack->proof;
    struct strided_loop loops[TENSOR_MAX_RANK];
    uint64_t sizes[TENSOR_MAX_RANK], at = lack->at;
    if (more > (goes_up ? lack->cover->dims[dim] - lack->first[dim] - lack->size[dim] : lack->first[dim]))
        return false;
    for (uint32_t i = 0; i < lack->rank; i++) {
        uint64_t first = lack->first[i] - (i == dim && !goes_up ? more : 0);
        sizes[i] = lack->size[i] + (i == dim ? more : 0);
        at += first * (uint64_t)lack->cover->strides[i];
    }
    const struct strided_box box = strided_make(at, lack->row, lack->rank, sizes, lack->cover->strides, loops);
    size_t n = collect_writers(proof, box.lo, box.hi);
    bool is_free = spend_steps(proof, (n + 1) * BOX_STEPS) == 0;
    for (size_t i = 0; i < n && is_free; i++) {
        struct strided_box pair[] = {proof->boxes[i], box};
        is_free = check_disjoint(proof, pair, 2) == 0;
    }
    return is_free;
}

/* As many more indexes of a dimension as go, on one side: twice as many until that is refused, then half as many. */
static uint64_t grow(const struct lack *lack, uint32_t dim, bool goes_up)
{
    uint64_t more = 0, step = 1;
    for (; can_grow(lack, dim, goes_up, more + step); step *= 2)
        more += step;
    for (; step; step /= 2)
        more += can_grow(lack, dim, goes_up, more + step) ? step : 0;
    return more;
}

static int fail_gap(struct proof *proof, uint32_t owner)
{
    const struct target *cover = target_of(proof->list, owner);
    struct error *error = proof->error, ignored;
    struct lack lack = {.proof = proof, .cover = cover, .at = proof->bases[cover->region] + cover->offset};
    char box[LACK_CHARS] = "";
    proof->error = &ignored;
    proof->steps_left = TARGET_MAX_STEPS;
    lack.row = target_row(cover, &lack.rank);
    find_element(&lack);
    for (uint32_t n = 0; n < lack.rank; n++) {
        uint32_t dim = lack.order[n];
        lack.size[dim] += grow(&lack, dim, true);
        uint64_t lower = grow(&lack, dim, false);
        lack.first[dim] -= lower;
        lack.size[dim] += lower;
    }
    for (uint32_t i = 0, used = 0; i < cover->rank && used < sizeof box; i++) {
        bool is_known = i < lack.rank; /* elements smaller than a byte: a whole row */
        uint64_t first = is_known ? lack.first[i] : 0, size = is_known ? lack.size[i] : cover->dims[i];
        used +=
            (uint32_t)snprintf(box + used, sizeof box - used, "%s%" PRIu64 ":%" PRIu64, i ? ", " : "", first, first + size);
    }
    return fail(error, ERROR_INVALID_ARGUMENT, "NOT_COVERED",
                "%s[%s] is not covered: no target of the request writes it; give a tensor or a fill for it",
                name_of(proof, owner), box);
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

/* What a check found, as an error. */
static int tell_finding(struct proof *proof)
{
    const char *first = name_of(proof, proof->owners[0]);
    if (proof->found == FOUND_OVERLAP)
        return fail_overlap(proof);
    if (proof->found != FOUND_TOO_COMPLEX)
        return -1;
    if (proof->owners[0] == proof->owners[1])
        return fail(proof->error, ERROR_UNIMPLEMENTED, "TARGETS_TOO_COMPLEX",
                    "target %s cannot be checked in time: too many targets or strides that cross meet in it", first);
    return fail(proof->error, ERROR_UNIMPLEMENTED, "TARGETS_TOO_COMPLEX",
                "targets %s and %s lie within each other in too complex a way to prove that they do not overlap", first,
                name_of(proof, proof->owners[1]));
}

/* Every memory is at a place of its own, offers of the same one at the same. */
static int place_memories(struct proof *proof)
{
    const struct target_list *list = proof->list;
    uint32_t *order = metadata_array(list->n_regions, sizeof *order, proof->error);
    uint64_t base = 0, end = 0;
    proof->bases = metadata_array(list->n_regions, sizeof *proof->bases, proof->error);
    if (!order || !proof->bases) {
        metadata_free(order);
        return -1;
    }
    for (uint32_t i = 0; i < list->n_regions; i++) { /* by memory */
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

static int prove_disjoint(struct proof *proof)
{
    const struct target_list *list = proof->list;
    size_t most = list->n_tensors + list->n_fills, n_loops = 0;
    for (size_t i = 0; i < most; i++)
        n_loops += target_of(list, (uint32_t)i)->rank;
    proof->writers = metadata_array(most, sizeof *proof->writers, proof->error);
    proof->reach = metadata_array(most, sizeof *proof->reach, proof->error);
    proof->boxes = metadata_array(most + 1, sizeof *proof->boxes, proof->error);
    proof->loops = metadata_array(n_loops, sizeof *proof->loops, proof->error);
    if (!proof->writers || !proof->reach || !proof->boxes || !proof->loops)
        return -1;
    struct strided_loop *loops = proof->loops, of_cover[TENSOR_MAX_RANK];
    for (size_t i = 0; i < most + list->n_covers; i++) {
        uint32_t owner = (uint32_t)i;
        if (target_is_empty(target_of(list, owner)))
            continue;
        const struct strided_box box = box_of(proof, owner, i < most ? loops : of_cover);
        if (strided_repeats(&box)) {
            find_overlap(proof, owner, owner);
            return fail_overlap(proof);
        }
        if (i < most) {
            proof->writers[proof->n_writers++] = box;
            loops += box.n_loops;
        }
    }
    qsort(proof->writers, proof->n_writers, sizeof *proof->writers, compare_boxes);
    for (size_t i = 0; i < proof->n_writers; i++) {
        proof->boxes[i] = proof->writers[i];
        proof->reach[i] = i && proof->reach[i - 1] > proof->writers[i].hi ? proof->reach[i - 1] : proof->writers[i].hi;
    }
    return check_disjoint(proof, proof->boxes, proof->n_writers) ? tell_finding(proof) : 0;
}

static int prove_cover(struct proof *proof, uint32_t owner)
{
    struct strided_loop loops[TENSOR_MAX_RANK];
    if (target_is_empty(target_of(proof->list, owner)))
        return 0;
    const struct strided_box cover = box_of(proof, owner, loops);
    size_t n = collect_writers(proof, cover.lo, cover.hi);
    struct strided_box *boxes = proof->boxes;
    bool are_plain = true;
    proof->owners[0] = proof->owners[1] = owner;
    boxes[n] = cover;
    while (drop_common_loop(boxes, n + 1))
        ;
    for (size_t i = 0; i <= n; i++)
        are_plain = are_plain && boxes[i].n_loops == 0;
    int result = spend_steps(proof, (n + 1) * BOX_STEPS);
    uint64_t at = boxes[n].lo; /* up to where writers cover it, in the order in which they begin */
    for (size_t i = 0; i < n && are_plain && boxes[i].lo <= at; i++)
        at = boxes[i].hi > at ? boxes[i].hi : at;
    if (!result && are_plain)
        result = at < boxes[n].hi ? find_gap(proof, at) : 0;
    else if (!result)
        result = check_bits(proof, &boxes[n], boxes, n);
    if (result && proof->found == FOUND_GAP)
        return fail_gap(proof, owner);
    return result ? tell_finding(proof) : 0;
}

int target_prove(const struct target_list *list, const struct view_tensor *tensors, struct error *error)
{
    struct proof proof = {.list = list, .tensors = tensors, .steps_left = TARGET_MAX_STEPS, .error = error};
    int result = place_memories(&proof) || prove_disjoint(&proof) ? -1 : 0;
    for (size_t i = 0; i < list->n_covers && !result; i++)
        result = prove_cover(&proof, (uint32_t)(list->n_tensors + list->n_fills + i));
    metadata_free(proof.bases);
    metadata_free(proof.writers);
    metadata_free(proof.reach);
    metadata_free(proof.boxes);
    metadata_free(proof.loops);
    return result;
}
