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
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "resolve/strided.h"
#include "resolve/target_lack.h"

struct entry { /* what a target spans */
    uint64_t lo, hi;
    uint32_t owner; /* tensors, then fills, then covers */
};

enum { BOX_STEPS = 8 }; /* what it takes to make a box */

enum finding { FOUND_NOTHING, FOUND_OVERLAP, FOUND_GAP, FOUND_TOO_COMPLEX };

struct proof {
    const struct target_list *list;
    const struct view_tensor *tensors;
    uint64_t *bases;       /* of regions, in a space in which the same memory is at the same place */
    struct entry *entries; /* of tensors and fills, by lo */
    uint64_t *reach;       /* of each: how far it or one before it goes */
    size_t n_entries;
    struct strided_loop *loops; /* TENSOR_MAX_RANK for each entry, and for what is held against them */
    struct strided_box *boxes;
    uint64_t steps_left;
    struct error *error;
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
        return fail(proof->error, ERROR_INVALID_ARGUMENT, "TARGET_REPEATS",
                    "target %s repeats elements: its strides lead to the same memory twice", first);
    return fail(proof->error, ERROR_INVALID_ARGUMENT, "TARGETS_OVERLAP",
                "targets %s and %s overlap: they share elements, or parts of elements, in memory", first,
                name_of(proof, proof->owners[1 - low], second));
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

static void sort_boxes(struct strided_box *boxes, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (boxes[i].lo < boxes[i - 1].lo) {
            qsort(boxes, n, sizeof *boxes, compare_boxes);
            return;
        }
}

/* What n > 0 boxes span. */
static struct entry span_of(const struct strided_box *boxes, size_t n)
{
    struct entry span = {boxes[0].lo, boxes[0].hi, 0};
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
    const struct entry span = span_of(boxes, n);
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
    const struct entry span = span_of(boxes, n);
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

/* Which of boxes [0, last] has the byte before the last one comes to it. */
static int find_owner(struct proof *proof, const struct strided_box *boxes, size_t last, uint64_t at)
{
    size_t i = 0;
    while (i < last && !has_byte(&boxes[i], at))
        i++;
    return find_overlap(proof, boxes[i].owner, boxes[last].owner);
}

static int write_down(struct proof *proof, const struct strided_box *boxes, size_t n, struct bits *bits)
{
    for (size_t i = 0; i < n; i++) {
        struct rows rows = {.box = &boxes[i], .at = boxes[i].lo};
        do {
            if (spend_steps(proof, row_steps(bits, &boxes[i])))
                return -1;
            uint64_t met = bits_find(bits, rows.at, boxes[i].row, true);
            if (met < boxes[i].row)
                return find_owner(proof, boxes, i, rows.at + met);
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

/* Changes the boxes. */
static int check_disjoint(struct proof *proof, struct strided_box *boxes, size_t n)
{
    sort_boxes(boxes, n);
    for (size_t first = 0, end; first < n; first = end) {
        uint64_t hi = boxes[first].hi;
        for (end = first + 1; end < n && boxes[end].lo < hi; end++)
            hi = boxes[end].hi > hi ? boxes[end].hi : hi;
        if (spend_steps(proof, end - first) || check_hull(proof, boxes + first, end - first))
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

/* The boxes of the targets that meet [lo, hi), by where they begin; as many. */
static size_t collect_writers(struct proof *proof, uint64_t lo, uint64_t hi, struct strided_box *boxes)
{
    size_t first = 0, end = proof->n_entries, n = 0;
    while (first < end) { /* the first that reaches beyond lo, or has one before it that does */
        size_t middle = first + (end - first) / 2;
        if (proof->reach[middle] <= lo)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < proof->n_entries && proof->entries[first].lo < hi; first++)
        if (proof->entries[first].hi > lo) {
            boxes[n] = box_of(proof, proof->entries[first].owner, proof->loops + n * TENSOR_MAX_RANK);
            n++;
        }
    return n;
}

/* Of a plain cover and plain writers. */
static int check_ranges(struct proof *proof, const struct strided_box *cover, const struct strided_box *writers, size_t n)
{
    uint64_t at = cover->lo;
    for (size_t i = 0; i < n && at < cover->hi; i++) {
        if (writers[i].lo > at)
            break;
        at = writers[i].hi > at ? writers[i].hi : at;
    }
    return at < cover->hi ? find_gap(proof, at) : 0;
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

/* Whether a target writes into the box, or may: what would take too long counts. */
static bool is_written(void *data, const struct strided_box *box)
{
    struct proof *proof = data;
    size_t n = collect_writers(proof, box->lo, box->hi, proof->boxes);
    bool is_free = spend_steps(proof, (n + 1) * BOX_STEPS) == 0;
    for (size_t i = 0; i < n && is_free; i++) {
        struct strided_box pair[] = {proof->boxes[i], *box};
        is_free = check_disjoint(proof, pair, 2) == 0;
    }
    return !is_free;
}

static int fail_gap(struct proof *proof, uint32_t owner)
{
    const struct target *cover = target_of(proof->list, owner);
    struct error *error = proof->error, ignored;
    char name[TEXT_NAME_CHARS], box[TARGET_LACK_CHARS];
    proof->error = &ignored;
    proof->steps_left = TARGET_MAX_STEPS;
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
        return fail(proof->error, ERROR_UNIMPLEMENTED, "TARGETS_TOO_COMPLEX",
                    "target %s cannot be checked in time: too many targets or strides that cross meet in it", name);
    return fail(proof->error, ERROR_UNIMPLEMENTED, "TARGETS_TOO_COMPLEX",
                "targets %s and %s lie within each other in too complex a way to prove that they do not overlap", name,
                name_of(proof, second, other));
}

/* What a check found, as an error. `first`, `second`: what it was about, where it took too long. */
static int tell_finding(struct proof *proof, uint32_t first, uint32_t second)
{
    if (proof->found == FOUND_OVERLAP)
        return fail_overlap(proof);
    return proof->found == FOUND_TOO_COMPLEX ? fail_too_long(proof, first, second) : -1;
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
    uint32_t *order = metadata_array(list->n_regions, sizeof *order, proof->error);
    uint64_t base = 0, end = 0;
    proof->bases = metadata_array(list->n_regions, sizeof *proof->bases, proof->error);
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

/* By itself. What has elements and writes becomes an entry. */
static int check_one(struct proof *proof, uint32_t owner)
{
    struct strided_loop loops[TENSOR_MAX_RANK];
    if (target_is_empty(target_of(proof->list, owner)))
        return 0;
    struct strided_box box = box_of(proof, owner, loops);
    const struct entry entry = {box.lo, box.hi, owner};
    if (strided_repeats(&box)) {
        proof->owners[0] = proof->owners[1] = owner;
        return fail_overlap(proof);
    }
    if (!is_cover(proof, owner) && check_disjoint(proof, &box, 1))
        return tell_finding(proof, owner, owner);
    if (!is_cover(proof, owner))
        proof->entries[proof->n_entries++] = entry;
    return 0;
}

static int check_each(struct proof *proof)
{
    const struct target_list *list = proof->list;
    size_t n_writers = list->n_tensors + list->n_fills;
    proof->entries = metadata_array(n_writers, sizeof *proof->entries, proof->error);
    proof->reach = metadata_array(n_writers, sizeof *proof->reach, proof->error);
    if (!proof->entries || !proof->reach)
        return -1;
    for (size_t i = 0; i < n_writers + list->n_covers; i++)
        if (check_one(proof, (uint32_t)i))
            return -1;
    qsort(proof->entries, proof->n_entries, sizeof *proof->entries, compare_entries);
    for (size_t i = 0; i < proof->n_entries; i++)
        proof->reach[i] = i && proof->reach[i - 1] > proof->entries[i].hi ? proof->reach[i - 1] : proof->entries[i].hi;
    return 0;
}

/* Where the hull that begins at entry `first` ends. */
static size_t end_of_hull(const struct proof *proof, size_t first)
{
    size_t end = first + 1;
    while (end < proof->n_entries && proof->entries[end].lo < proof->reach[end - 1])
        end++;
    return end;
}

/* Room for the boxes of the largest hull, or for all where covers may meet them, and one more. */
static int make_room(struct proof *proof)
{
    size_t most = proof->list->n_covers ? proof->n_entries : 0;
    for (size_t first = 0, end; first < proof->n_entries && !proof->list->n_covers; first = end) {
        end = end_of_hull(proof, first);
        most = end - first > most ? end - first : most;
    }
    proof->boxes = metadata_array(most + 1, sizeof *proof->boxes, proof->error);
    proof->loops = metadata_array((most + 1) * TENSOR_MAX_RANK, sizeof *proof->loops, proof->error);
    return proof->boxes && proof->loops ? 0 : -1;
}

static int prove_disjoint(struct proof *proof)
{
    for (size_t first = 0, end; first < proof->n_entries; first = end) {
        end = end_of_hull(proof, first);
        if (end == first + 1)
            continue;
        size_t n = collect_writers(proof, proof->entries[first].lo, proof->reach[end - 1], proof->boxes);
        if (check_disjoint(proof, proof->boxes, n))
            return tell_finding(proof, proof->entries[first].owner, proof->entries[first + 1].owner);
    }
    return 0;
}

static int prove_cover(struct proof *proof, uint32_t owner)
{
    struct strided_loop loops[TENSOR_MAX_RANK];
    if (target_is_empty(target_of(proof->list, owner)))
        return 0;
    const struct strided_box cover = box_of(proof, owner, loops);
    size_t n = collect_writers(proof, cover.lo, cover.hi, proof->boxes);
    struct strided_box *boxes = proof->boxes;
    bool are_plain = true;
    boxes[n] = cover;
    while (drop_common_loop(boxes, n + 1))
        ;
    for (size_t i = 0; i <= n; i++)
        are_plain = are_plain && boxes[i].n_loops == 0;
    int result = spend_steps(proof, (n + 1) * BOX_STEPS);
    result = result ? result : are_plain ? check_ranges(proof, &boxes[n], boxes, n) : check_bits(proof, &boxes[n], boxes, n);
    if (result && proof->found == FOUND_GAP)
        return fail_gap(proof, owner);
    return result ? tell_finding(proof, owner, owner) : 0;
}

int target_prove(const struct target_list *list, const struct view_tensor *tensors, struct error *error)
{
    struct proof proof = {.list = list, .tensors = tensors, .steps_left = TARGET_MAX_STEPS, .error = error};
    int result = place_memories(&proof) || check_each(&proof) || make_room(&proof) || prove_disjoint(&proof) ? -1 : 0;
    for (size_t i = 0; i < list->n_covers && !result; i++)
        result = prove_cover(&proof, (uint32_t)(list->n_tensors + list->n_fills + i));
    metadata_free(proof.bases);
    metadata_free(proof.entries);
    metadata_free(proof.reach);
    metadata_free(proof.boxes);
    metadata_free(proof.loops);
    return result;
}
