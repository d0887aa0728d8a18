/* From plan steps to read requests for one window; see extent.h. With one part there is nothing to sort or to subtract. */
#include "execute/extent.h"

#include <stdlib.h>

#include "base/memory.h"
#include "execute/clip.h"

enum { PAGE_BYTES = 4096, WORTH_SKIPPING_BYTES = 64 << 10 };

static void add_extent(struct worker *worker, uint64_t lo, uint64_t hi, uint32_t part)
{
    ARRAY_RESERVE(worker->extents, worker->n_extents, worker->extents_room);
    worker->extents[worker->n_extents++] = (struct extent){lo, hi, part};
}

static void add_steps(struct worker *worker, const struct part *part, uint64_t lo, uint64_t hi)
{
    const struct plan *plan = part->run->options.plan;
    for (size_t i = clip_find_step(plan, part->file, lo); i < plan->file_first[part->file + 1]; i++) {
        struct rows rows = rows_of_step(&plan->steps[i]);
        uint64_t at = rows_next(&rows, lo);
        if (rows.offset >= hi)
            break;
        while (at < hi) {
            uint64_t end = rows.offset + (at - rows.offset) / rows.stride * rows.stride + rows.bytes;
            add_extent(worker, at, end < hi ? end : hi, part->index);
            at = rows_next(&rows, end);
        }
    }
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *left = a, *right = b;
    if (left->lo != right->lo)
        return left->lo < right->lo ? -1 : 1;
    return left->part < right->part ? -1 : left->part > right->part;
}

/* Cuts from every extent what an earlier one has. */
static void make_disjoint(struct worker *worker)
{
    uint64_t covered = 0;
    size_t kept = 0;
    if (worker->n_extents > 1)
        qsort(worker->extents, worker->n_extents, sizeof *worker->extents, compare_extents);
    for (size_t i = 0; i < worker->n_extents; i++) {
        struct extent extent = worker->extents[i];
        if (extent.lo < covered)
            extent.lo = covered;
        if (extent.lo >= extent.hi)
            continue;
        covered = extent.hi;
        worker->extents[kept++] = extent;
    }
    worker->n_extents = kept;
}

static void add_request(struct worker *worker, uint64_t lo, uint64_t hi, uint64_t gap_bytes)
{
    struct extent *last = worker->n_requests ? &worker->requests[worker->n_requests - 1] : NULL;
    if (last && lo <= last->hi + gap_bytes) {
        last->hi = hi > last->hi ? hi : last->hi;
        return;
    }
    ARRAY_RESERVE(worker->requests, worker->n_requests, worker->requests_room);
    worker->requests[worker->n_requests++] = (struct extent){lo, hi, 0};
}

static int compare_clips(const void *a, const void *b)
{
    const struct clip *left = a, *right = b;
    return left->src.offset < right->src.offset ? -1 : left->src.offset > right->src.offset;
}

static void drop_first_extents(struct worker *worker, size_t n)
{
    worker->n_extents -= n;
    for (size_t i = 0; i < worker->n_extents; i++)
        worker->extents[i] = worker->extents[n + i];
}

/* Intersects the extents with the spans of what is still wanted; small holes are not worth a request of their own. */
static void keep_wanted(struct worker *worker)
{
    worker->n_requests = 0;
    if (worker->n_parts > 1 && worker->n_clips > 1)
        qsort(worker->clips, worker->n_clips, sizeof *worker->clips, compare_clips);
    for (size_t i = 0; i < worker->n_clips; i++)
        add_request(worker, worker->clips[i].src.offset, rows_end(&worker->clips[i].src), WORTH_SKIPPING_BYTES);
    size_t n_all = worker->n_extents, wanted = 0;
    for (size_t i = 0; i < n_all; i++) { /* the results are added behind the extents, then moved to the front */
        struct extent extent = worker->extents[i];
        while (wanted < worker->n_requests && worker->requests[wanted].hi <= extent.lo)
            wanted++;
        for (size_t w = wanted; w < worker->n_requests && worker->requests[w].lo < extent.hi; w++) {
            uint64_t lo = worker->requests[w].lo, hi = worker->requests[w].hi;
            add_extent(worker, lo > extent.lo ? lo : extent.lo, hi < extent.hi ? hi : extent.hi, extent.part);
        }
    }
    drop_first_extents(worker, n_all);
}

void extent_collect(struct worker *worker, uint64_t lo, uint64_t hi, bool only_clips)
{
    worker->n_extents = 0;
    for (size_t i = 0; i < worker->n_parts; i++)
        if (!worker->parts[i].has_failed)
            add_steps(worker, &worker->parts[i], lo, hi);
    if (worker->n_parts > 1)
        make_disjoint(worker);
    if (only_clips)
        keep_wanted(worker);
}

void extent_join(struct worker *worker, uint64_t gap_bytes)
{
    size_t kept = 0;
    for (size_t i = 1; i < worker->n_extents; i++) {
        struct extent *last = &worker->extents[kept], next = worker->extents[i];
        if (next.lo == last->hi || next.lo - last->hi < gap_bytes)
            last->hi = next.hi;
        else
            worker->extents[++kept] = next;
    }
    worker->n_extents = worker->n_extents ? kept + 1 : 0;
}

/* What of the part's clips lies in extents that are read on behalf of others. Both are sorted. */
static uint64_t count_shared(const struct worker *worker, uint32_t part)
{
    uint64_t shared = 0;
    size_t first = 0;
    for (size_t c = 0; c < worker->n_clips; c++) {
        const struct clip *clip = &worker->clips[c];
        if (clip->part != part)
            continue;
        while (first < worker->n_extents && worker->extents[first].hi <= clip->src.offset)
            first++;
        uint64_t own = 0;
        for (size_t i = first; i < worker->n_extents && worker->extents[i].lo < rows_end(&clip->src); i++)
            if (worker->extents[i].part == part)
                own += rows_within(&clip->src, worker->extents[i].lo, worker->extents[i].hi);
        shared += clip_bytes(clip) - own;
    }
    return shared;
}

void extent_charge(struct worker *worker, double cached_share)
{
    for (size_t i = 0; i < worker->n_extents; i++) {
        const struct extent *extent = &worker->extents[i];
        struct run_report *report = &worker->parts[extent->part].report;
        report->read_bytes += extent->hi - extent->lo;
        report->requests++;
        report->cached_bytes += (uint64_t)((double)(extent->hi - extent->lo) * cached_share);
    }
    for (uint32_t p = 0; p < worker->n_parts; p++)
        worker->parts[p].report.shared_bytes += count_shared(worker, p);
}

void extent_subtract(struct worker *worker, uint64_t lo, uint64_t hi)
{
    size_t n_all = worker->n_extents;
    for (size_t i = 0; i < n_all; i++) { /* the rests are added behind, then moved to the front */
        struct extent extent = worker->extents[i];
        if (extent.lo < lo)
            add_extent(worker, extent.lo, extent.hi < lo ? extent.hi : lo, extent.part);
        if (extent.hi > hi)
            add_extent(worker, extent.lo > hi ? extent.lo : hi, extent.hi, extent.part);
    }
    drop_first_extents(worker, n_all);
}

void extent_requests(struct worker *worker, uint64_t alignment)
{
    uint64_t gap_bytes = worker->is_remote ? 0 : PAGE_BYTES; /* extent_join() has decided */
    worker->n_requests = 0;
    for (size_t i = 0; i < worker->n_extents; i++) {
        uint64_t lo = worker->extents[i].lo & ~(alignment - 1);
        uint64_t hi = (worker->extents[i].hi + alignment - 1) & ~(alignment - 1);
        add_request(worker, lo, hi, gap_bytes);
    }
}

void extent_add_request(struct worker *worker, uint64_t lo, uint64_t hi)
{
    size_t n_all = worker->n_requests, kept = 0;
    ARRAY_RESERVE(worker->requests, worker->n_requests, worker->requests_room);
    worker->requests[worker->n_requests++] = (struct extent){lo, hi, 0};
    qsort(worker->requests, worker->n_requests, sizeof *worker->requests, compare_extents);
    for (size_t i = 1; i <= n_all; i++) {
        struct extent *last = &worker->requests[kept], next = worker->requests[i];
        if (next.lo > last->hi)
            worker->requests[++kept] = next;
        else if (next.hi > last->hi)
            last->hi = next.hi;
    }
    worker->n_requests = kept + 1;
}
