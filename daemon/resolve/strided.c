/* See strided.h. A box is cut at an address by its outermost loop: iterations below, those above, and between them at most one
 * that is cut itself. Dividing into periods cuts at every border; where a loop's stride divides the period, iterations are
 * counted instead, so that a matrix takes no more steps than one of its rows. */
#include "resolve/strided.h"

#include <string.h>

#include "base/checked.h"
#include "base/metadata.h"

int strided_spend(struct strided_work *work, uint64_t steps)
{
    if (steps > work->steps_left) {
        work->is_too_long = true;
        return -1;
    }
    work->steps_left -= steps;
    return 0;
}

/* --- making --------------------------------------------------------------------------------------------------------- */

static uint32_t sort_in(struct strided_loop *loops, uint32_t n, struct strided_loop loop)
{
    uint32_t at = n;
    for (; at > 0 && loops[at - 1].stride > loop.stride; at--)
        loops[at] = loops[at - 1];
    loops[at] = loop;
    return n + 1;
}

/* Rows that follow each other are one; so are loops. */
static void join(struct strided_box *box, struct strided_loop *loops)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < box->n_loops; i++) {
        if (kept == 0 && loops[i].stride == box->row)
            box->row *= loops[i].size;
        else if (kept > 0 && loops[i].stride == loops[kept - 1].stride * loops[kept - 1].size)
            loops[kept - 1].size *= loops[i].size;
        else
            loops[kept++] = loops[i];
    }
    box->n_loops = kept;
}

struct strided_box strided_make(uint64_t at, uint64_t row, uint32_t rank, const uint64_t *sizes, const int64_t *strides,
                                struct strided_loop *loops)
{
    struct strided_box box = {.lo = at, .row = row, .loops = loops};
    uint64_t reach = 0;
    for (uint32_t i = rank; i-- > 0;) {
        struct strided_loop loop = {sizes[i], checked_magnitude(strides[i])};
        if (loop.size == 1)
            continue;
        reach += (loop.size - 1) * loop.stride;
        box.lo -= strides[i] < 0 ? (loop.size - 1) * loop.stride : 0;
        box.n_loops = sort_in(loops, box.n_loops, loop);
    }
    box.hi = box.lo + reach + row;
    join(&box, loops);
    return box;
}

/* The first loop whose stride is less than what lies within it; n_loops = it is nested. */
static uint32_t find_crossing(const struct strided_box *box)
{
    uint64_t inner = box->row;
    for (uint32_t i = 0; i < box->n_loops; i++) {
        if (box->loops[i].stride < inner)
            return i;
        inner += (box->loops[i].size - 1) * box->loops[i].stride;
    }
    return box->n_loops;
}

bool strided_is_nested(const struct strided_box *box)
{
    return find_crossing(box) == box->n_loops;
}

bool strided_repeats(const struct strided_box *box)
{
    for (uint32_t i = 0; i < box->n_loops; i++)
        if (box->loops[i].stride < box->row || (i > 0 && box->loops[i].stride == box->loops[i - 1].stride))
            return true;
    return false;
}

/* --- making new of old ---------------------------------------------------------------------------------------------- */

static struct strided_loop *copy_loops(struct strided_work *work, const struct strided_box *box, uint32_t room)
{
    if (strided_spend(work, 1 + room / 4))
        return NULL;
    struct strided_loop *loops = arena_try_array(&work->arena, room, sizeof *loops, work->error);
    if (loops && box->n_loops)
        memcpy(loops, box->loops, (box->n_loops < room ? box->n_loops : room) * sizeof *loops);
    return loops;
}

/* Without its outermost loop. */
static struct strided_box first_inner(const struct strided_box *box)
{
    const struct strided_loop *outer = &box->loops[box->n_loops - 1];
    struct strided_box inner = *box;
    inner.n_loops--;
    inner.hi -= (outer->size - 1) * outer->stride;
    return inner;
}

static struct strided_box shifted(struct strided_box box, uint64_t by)
{
    box.lo += by;
    box.hi += by;
    return box;
}

/* `n` iterations of the outermost loop, from `first` on. */
static int narrow(struct strided_work *work, const struct strided_box *box, uint64_t first, uint64_t n,
                  struct strided_box *out)
{
    const struct strided_loop *outer = &box->loops[box->n_loops - 1];
    *out = shifted(first_inner(box), first * outer->stride);
    if (n == 1)
        return 0;
    struct strided_loop *loops = copy_loops(work, box, box->n_loops);
    if (!loops)
        return -1;
    loops[out->n_loops++].size = n;
    out->loops = loops;
    out->hi += (n - 1) * outer->stride;
    return 0;
}

/* The box repeated. */
static int repeat(struct strided_work *work, struct strided_box *box, struct strided_loop loop)
{
    if (loop.size == 1)
        return 0;
    struct strided_loop *loops = copy_loops(work, box, box->n_loops + 1);
    if (!loops)
        return -1;
    loops[box->n_loops++] = loop;
    box->loops = loops;
    box->hi += (loop.size - 1) * loop.stride;
    join(box, loops);
    return 0;
}

int strided_add(struct strided_list *list, struct strided_box box, struct error *error)
{
    if (METADATA_RESERVE(list->boxes, list->n, list->capacity, error))
        return -1;
    list->boxes[list->n++] = box;
    return 0;
}

/* The shortest loop that takes part in the crossing goes, and each of its iterations becomes a box. */
int strided_unnest(struct strided_work *work, const struct strided_box *box, struct strided_list *list)
{
    uint32_t crossing = find_crossing(box), shortest = 0;
    if (crossing == box->n_loops)
        return strided_add(list, *box, work->error);
    for (uint32_t i = 1; i <= crossing; i++)
        shortest = box->loops[i].size < box->loops[shortest].size ? i : shortest;
    struct strided_loop gone = box->loops[shortest], *loops = copy_loops(work, box, box->n_loops);
    if (!loops || strided_spend(work, gone.size))
        return -1;
    memmove(loops + shortest, loops + shortest + 1, (box->n_loops - shortest - 1) * sizeof *loops);
    struct strided_box rest = *box;
    rest.loops = loops;
    rest.n_loops--;
    rest.hi -= (gone.size - 1) * gone.stride;
    join(&rest, loops);
    for (uint64_t i = 0; i < gone.size; i++) {
        const struct strided_box one = shifted(rest, i * gone.stride);
        if (strided_unnest(work, &one, list))
            return -1;
    }
    return 0;
}

/* --- splitting ------------------------------------------------------------------------------------------------------ */

struct cut {               /* of the outermost loop, at an address */
    uint64_t below, above; /* iterations before the first one lie below it, those from the second one on above */
};

static struct cut cut_loop(const struct strided_box *box, uint64_t at)
{
    const struct strided_loop *outer = &box->loops[box->n_loops - 1];
    uint64_t inner_hi = box->hi - (outer->size - 1) * outer->stride;
    uint64_t below = at >= inner_hi ? (at - inner_hi) / outer->stride + 1 : 0;
    uint64_t above = at > box->lo ? (at - box->lo - 1) / outer->stride + 1 : 0;
    return (struct cut){below < outer->size ? below : outer->size, above < outer->size ? above : outer->size};
}

static int add_narrow(struct strided_work *work, const struct strided_box *box, uint64_t first, uint64_t end,
                      struct strided_list *list)
{
    struct strided_box some;
    if (first == end)
        return 0;
    return narrow(work, box, first, end - first, &some) || strided_add(list, some, work->error) ? -1 : 0;
}

int strided_split(struct strided_work *work, const struct strided_box *box, uint64_t at, struct strided_list *below,
                  struct strided_list *above)
{
    if (box->hi <= at || box->lo >= at)
        return strided_add(box->hi <= at ? below : above, *box, work->error);
    if (strided_spend(work, 1))
        return -1;
    if (box->n_loops == 0) {
        struct strided_box low = *box, high = *box;
        low.hi = high.lo = at;
        low.row = at - box->lo;
        high.row = box->hi - at;
        return strided_add(below, low, work->error) || strided_add(above, high, work->error) ? -1 : 0;
    }
    const struct strided_loop *outer = &box->loops[box->n_loops - 1];
    struct cut cut = cut_loop(box, at);
    if (add_narrow(work, box, 0, cut.below, below))
        return -1;
    for (uint64_t i = cut.below; i < cut.above; i++) {
        const struct strided_box one = shifted(first_inner(box), i * outer->stride);
        if (strided_split(work, &one, at, below, above))
            return -1;
    }
    return add_narrow(work, box, cut.above, outer->size, above);
}

/* --- dividing ------------------------------------------------------------------------------------------------------- */

struct division {
    struct strided_work *work;
    struct strided_parts *parts;
    uint64_t period;
    uint64_t n; /* of the loop whose stride is the period, which is taken off; 1 = none */
};

static int add_part(const struct division *division, uint64_t first, uint64_t n, struct strided_box box)
{
    struct strided_parts *parts = division->parts;
    if (strided_spend(division->work, 1) || METADATA_RESERVE(parts->list, parts->n, parts->capacity, division->work->error))
        return -1;
    parts->list[parts->n++] = (struct strided_part){first, n, box};
    return 0;
}

/* A box that lies in one period. */
static int add_inside(const struct division *division, const struct strided_box *box)
{
    uint64_t first = box->lo / division->period;
    return add_part(division, first, division->n, shifted(*box, 0 - first * division->period));
}

static bool is_inside(const struct division *division, const struct strided_box *box)
{
    return box->lo / division->period == (box->hi - 1) / division->period;
}

/* `n` periods of what is in the first of them. Two loops of one stride are no loop: then one of them is expanded. */
static int add_periods(const struct division *division, uint64_t first, uint64_t n, const struct strided_box *box)
{
    if (division->n == 1)
        return add_part(division, first, n, *box);
    for (uint64_t i = 0; i < n; i++)
        if (add_part(division, first + i, division->n, *box))
            return -1;
    return 0;
}

static int divide_row(const struct division *division, const struct strided_box *box)
{
    uint64_t period = division->period, first = box->lo / period, last = (box->hi - 1) / period;
    struct strided_box piece = *box;
    piece.lo = box->lo % period;
    piece.hi = period;
    piece.row = piece.hi - piece.lo;
    if (add_part(division, first, division->n, piece))
        return -1;
    piece.lo = 0;
    piece.row = period;
    if (last - first > 1 && add_periods(division, first + 1, last - first - 1, &piece))
        return -1;
    piece.row = piece.hi = (box->hi - 1) % period + 1;
    return add_part(division, last, division->n, piece);
}

static int divide(const struct division *division, struct strided_box box);

/* The stride of the outermost loop divides the period, and what it repeats crosses no multiple of the stride. */
static int divide_blocks(const struct division *division, const struct strided_box *box)
{
    const struct strided_loop *outer = &box->loops[box->n_loops - 1];
    uint64_t in_period = division->period / outer->stride, first = box->lo / division->period;
    uint64_t head = (division->period - box->lo % division->period + outer->stride - 1) / outer->stride;
    uint64_t n_whole = (outer->size - head) / in_period, tail = outer->size - head - n_whole * in_period;
    struct strided_box part;
    if (narrow(division->work, box, 0, head, &part) || add_inside(division, &part))
        return -1;
    if (n_whole) {
        if (narrow(division->work, box, head, in_period, &part))
            return -1;
        part = shifted(part, 0 - (first + 1) * division->period);
        if (add_periods(division, first + 1, n_whole, &part))
            return -1;
    }
    if (!tail)
        return 0;
    return narrow(division->work, box, head + n_whole * in_period, tail, &part) || add_inside(division, &part) ? -1 : 0;
}

/* What a loop repeats is cut where multiples of its stride are; each half is repeated by itself. */
static int divide_halves(const struct division *division, const struct strided_box *box)
{
    const struct strided_loop outer = box->loops[box->n_loops - 1];
    const struct strided_box inner = first_inner(box);
    struct strided_list halves = {0};
    int result = strided_split(division->work, &inner, (inner.lo / outer.stride + 1) * outer.stride, &halves, &halves);
    for (size_t i = 0; i < halves.n && !result; i++)
        result = repeat(division->work, &halves.boxes[i], outer) || divide(division, halves.boxes[i]) ? -1 : 0;
    metadata_free(halves.boxes);
    return result;
}

/* Border by border. */
static int divide_loop(const struct division *division, struct strided_box box)
{
    const struct strided_loop outer = box.loops[box.n_loops - 1];
    const struct strided_box inner = first_inner(&box);
    struct strided_box part;
    for (uint64_t first = 0; first < outer.size;) {
        uint64_t border = ((inner.lo + first * outer.stride) / division->period + 1) * division->period;
        struct cut cut = cut_loop(&box, border);
        if (strided_spend(division->work, 1))
            return -1;
        if (cut.below > first &&
            (narrow(division->work, &box, first, cut.below - first, &part) || add_inside(division, &part)))
            return -1;
        for (first = cut.below > first ? cut.below : first; first < cut.above; first++)
            if (divide(division, shifted(inner, first * outer.stride)))
                return -1;
    }
    return 0;
}

static int divide(const struct division *division, struct strided_box box)
{
    if (is_inside(division, &box))
        return add_inside(division, &box);
    if (box.n_loops == 0)
        return divide_row(division, &box);
    const struct strided_loop *outer = &box.loops[box.n_loops - 1];
    uint64_t inner_end = box.hi - (outer->size - 1) * outer->stride;
    if (division->period % outer->stride)
        return divide_loop(division, box);
    if (box.lo / outer->stride == (inner_end - 1) / outer->stride)
        return divide_blocks(division, &box);
    return divide_halves(division, &box);
}

int strided_divide(struct strided_work *work, struct strided_box box, uint64_t origin, uint64_t period,
                   struct strided_parts *parts)
{
    struct division division = {.work = work, .parts = parts, .period = period, .n = 1};
    if (box.n_loops && box.loops[box.n_loops - 1].stride == period) {
        division.n = box.loops[box.n_loops - 1].size;
        box = first_inner(&box);
    }
    return divide(&division, shifted(box, 0 - origin));
}
