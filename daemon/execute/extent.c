/* From plan steps to read requests for one window; see extent.h. With one part there is nothing to sort or to subtract. */
#include "execute/extent.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "execute/clip.h"

enum { WORTH_SKIPPING_BYTES = 64 << 10 };

static void add_extent(struct extents *extents, uint64_t lo, uint64_t hi, uint32_t part)
{
    ARRAY_RESERVE(extents->list, extents->n, extents->room);
    extents->list[extents->n++] = (struct extent){{lo, hi}, part};
}

static void add_steps(struct extents *extents, const struct part *part, uint32_t p, struct range range)
{
    const struct plan *plan = part->run->options.plan;
    for (size_t i = clip_find_step(plan, part->file, range.lo); i < plan->file_first[part->file + 1]; i++) {
        struct rows rows = rows_of_step(&plan->steps[i]);
        uint64_t at = rows_next(&rows, range.lo);
        if (rows.offset >= range.hi)
            break;
        while (at < range.hi) {
            uint64_t end = rows.offset + (at - rows.offset) / rows.stride * rows.stride + rows.bytes;
            add_extent(extents, at, end < range.hi ? end : range.hi, p);
            at = rows_next(&rows, end);
        }
    }
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *left = a, *right = b;
    if (left->range.lo != right->range.lo)
        return left->range.lo < right->range.lo ? -1 : 1;
    return left->part < right->part ? -1 : left->part > right->part;
}

/* Cuts from every extent what an earlier one has. */
static void make_disjoint(struct extents *extents)
{
    uint64_t covered = 0;
    size_t kept = 0;
    window_sort(extents->list, extents->n, sizeof *extents->list, compare_extents);
    for (size_t i = 0; i < extents->n; i++) {
        struct extent extent = extents->list[i];
        if (extent.range.lo < covered)
            extent.range.lo = covered;
        if (extent.range.lo >= extent.range.hi)
            continue;
        covered = extent.range.hi;
        extents->list[kept++] = extent;
    }
    extents->n = kept;
}

void extent_collect(struct extents *extents, const struct item *item, struct range range)
{
    extents->n = 0;
    for (uint32_t p = 0; p < item->n_parts; p++)
        if (!item->parts[p].has_failed)
            add_steps(extents, &item->parts[p], p, range);
    if (item->n_parts > 1)
        make_disjoint(extents);
}

static void add_joined(struct extents *extents, uint64_t lo, uint64_t hi, uint64_t gap_bytes)
{
    struct range *last = extents->n ? &extents->list[extents->n - 1].range : NULL;
    if (last && lo <= last->hi + gap_bytes)
        last->hi = hi > last->hi ? hi : last->hi;
    else
        add_extent(extents, lo, hi, 0);
}

static void drop_first(struct extents *extents, size_t n)
{
    extents->n -= n;
    if (extents->n)
        memmove(extents->list, extents->list + n, extents->n * sizeof *extents->list);
}

/* Intersects the extents with the spans of what is still wanted; small holes are not worth a request of their own. */
void extent_keep_wanted(struct extents *extents, struct clips *clips, struct extents *spans)
{
    size_t n_all = extents->n, first = 0;
    spans->n = 0;
    window_sort(clips->list, clips->n, sizeof *clips->list, clip_compare);
    for (size_t i = 0; i < clips->n; i++)
        add_joined(spans, clips->list[i].src.offset, rows_end(&clips->list[i].src), WORTH_SKIPPING_BYTES);
    for (size_t i = 0; i < n_all; i++) { /* the results are added behind the extents, then moved to the front */
        struct extent extent = extents->list[i];
        while (first < spans->n && spans->list[first].range.hi <= extent.range.lo)
            first++;
        for (size_t w = first; w < spans->n && spans->list[w].range.lo < extent.range.hi; w++) {
            struct range wanted = spans->list[w].range;
            add_extent(extents, wanted.lo > extent.range.lo ? wanted.lo : extent.range.lo,
                       wanted.hi < extent.range.hi ? wanted.hi : extent.range.hi, extent.part);
        }
    }
    drop_first(extents, n_all);
}

void extent_subtract(struct extents *extents, struct range range)
{
    size_t n_all = extents->n;
    for (size_t i = 0; i < n_all; i++) { /* the rests are added behind, then moved to the front */
        struct extent extent = extents->list[i];
        if (extent.range.lo < range.lo)
            add_extent(extents, extent.range.lo, extent.range.hi < range.lo ? extent.range.hi : range.lo, extent.part);
        if (extent.range.hi > range.hi)
            add_extent(extents, extent.range.lo > range.hi ? extent.range.lo : range.hi, extent.range.hi, extent.part);
    }
    drop_first(extents, n_all);
}

void extent_join(struct extents *extents, uint64_t gap_bytes)
{
    size_t kept = 0;
    for (size_t i = 1; i < extents->n; i++) {
        struct extent *last = &extents->list[kept], next = extents->list[i];
        if (next.range.lo == last->range.hi || next.range.lo - last->range.hi < gap_bytes)
            last->range.hi = next.range.hi;
        else
            extents->list[++kept] = next;
    }
    extents->n = extents->n ? kept + 1 : 0;
}

/* What of the part's clips lies in extents that are read on behalf of others. Both are sorted. */
static uint64_t count_shared(const struct extents *extents, const struct clips *clips, uint32_t part)
{
    uint64_t shared = 0;
    size_t first = 0;
    for (size_t c = 0; c < clips->n; c++) {
        const struct clip *clip = &clips->list[c];
        if (clip->part != part)
            continue;
        while (first < extents->n && extents->list[first].range.hi <= clip->src.offset)
            first++;
        uint64_t own = 0;
        for (size_t i = first; i < extents->n && extents->list[i].range.lo < rows_end(&clip->src); i++)
            if (extents->list[i].part == part)
                own += rows_within(&clip->src, extents->list[i].range.lo, extents->list[i].range.hi);
        shared += clip_bytes(clip) - clip->torn_bytes - own;
    }
    return shared;
}

void extent_charge(struct item *item, const struct extents *extents, const struct clips *clips, double cached_share)
{
    for (size_t i = 0; i < extents->n; i++) {
        struct run_report *report = &item->parts[extents->list[i].part].report;
        uint64_t bytes = range_bytes(extents->list[i].range);
        report->read_bytes += bytes;
        report->requests++;
        report->cached_bytes += (uint64_t)((double)bytes * cached_share);
    }
    for (uint32_t p = 0; p < item->n_parts; p++)
        item->parts[p].report.shared_bytes += count_shared(extents, clips, p);
}

void extent_plan_requests(struct extents *requests, const struct extents *extents, uint64_t alignment, uint64_t gap_bytes)
{
    requests->n = 0;
    for (size_t i = 0; i < extents->n; i++) {
        struct range range = extents->list[i].range;
        add_joined(requests, range.lo & ~(alignment - 1), (range.hi + alignment - 1) & ~(alignment - 1), gap_bytes);
    }
}

void extent_add_request(struct extents *requests, struct range range)
{
    size_t n_all = requests->n, kept = 0;
    add_extent(requests, range.lo, range.hi, 0);
    window_sort(requests->list, requests->n, sizeof *requests->list, compare_extents);
    for (size_t i = 1; i <= n_all; i++) {
        struct range *last = &requests->list[kept].range, next = requests->list[i].range;
        if (next.lo > last->hi)
            requests->list[++kept].range = next;
        else if (next.hi > last->hi)
            last->hi = next.hi;
    }
    requests->n = kept + 1;
}

struct range extent_longest(const struct extents *extents)
{
    struct range longest = {0, 0};
    for (size_t i = 0; i < extents->n; i++)
        if (range_bytes(extents->list[i].range) > range_bytes(longest))
            longest = extents->list[i].range;
    return longest;
}

uint64_t extent_sum_bytes(const struct extents *extents)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < extents->n; i++)
        bytes += range_bytes(extents->list[i].range);
    return bytes;
}
