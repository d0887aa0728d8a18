/* Cuts transfers at the edges of a window; see clip.h. A binary search finds the first that may reach into it; a strided one
 * becomes at most three clips: the rest of a row, whole rows, the beginning of a row.
 *
 * What is converted is cut between elements. The last one may be torn: some of its bytes lie behind the window. */
#include "execute/clip.h"

#include <stdlib.h>

#include "base/memory.h"

enum { CLIPS_PER_TRANSFER = 3 };

size_t clip_find_step(const struct plan *plan, uint32_t file, uint64_t at)
{
    size_t lo = plan->file_first[file], hi = plan->file_first[file + 1];
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        struct rows rows = rows_of_step(&plan->steps[middle]);
        if (rows_end(&rows) <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

uint64_t clip_count_new(const struct part *part, struct range range, uint64_t enough)
{
    const struct mapping *mapping = part->run->options.mapping;
    const struct plan *plan = part->run->options.plan;
    size_t transfer = mapping_find(mapping, part->file, range.lo), step = clip_find_step(plan, part->file, range.lo);
    uint64_t n_rows = 0;
    for (; n_rows < enough && transfer < mapping->file_first[part->file + 1]; transfer++) {
        const struct transfer *next = &mapping->transfers[transfer];
        if (next->src_offset >= range.hi)
            break;
        if (next->src_offset >= range.lo)
            n_rows += next->n_rows == 1 ? 1 : CLIPS_PER_TRANSFER;
    }
    for (; n_rows < enough && step < plan->file_first[part->file + 1]; step++) {
        struct rows rows = rows_of_step(&plan->steps[step]);
        if (rows.offset >= range.hi)
            break;
        uint64_t end = rows_end(&rows), lo = range.lo > rows.offset ? range.lo : rows.offset;
        uint64_t hi = range.hi < end ? range.hi : end;
        if (rows.count == 1 || hi <= lo)
            n_rows += 1;
        else
            n_rows += rows.stride == rows.bytes ? CLIPS_PER_TRANSFER : (hi - lo) / rows.stride + 2;
    }
    return n_rows;
}

uint64_t clip_sum_bytes(const struct clips *clips)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < clips->n; i++)
        bytes += clip_bytes(&clips->list[i]);
    return bytes;
}

uint64_t clip_sum_rows(const struct clips *clips)
{
    uint64_t n_rows = 0;
    for (size_t i = 0; i < clips->n; i++)
        n_rows += clips->list[i].src.count;
    return n_rows;
}

bool clip_have_operations(const struct clips *clips)
{
    for (size_t i = 0; i < clips->n; i++)
        if (clips->list[i].operation)
            return true;
    return false;
}

void clip_add(struct clips *clips, struct clip clip)
{
    ARRAY_RESERVE(clips->list, clips->n, clips->room);
    clips->list[clips->n++] = clip;
}

struct cutter { /* of one transfer */
    struct clips *clips;
    const struct transfer *transfer;
    struct range range;
    uint32_t part;
    unsigned src_shift, dst_shift; /* log2 of an element's bytes; of a copy an element is a byte */
};

/* Elements of a row that begin before so many bytes of it. */
static uint64_t elements_before(const struct cutter *cutter, uint64_t bytes)
{
    return (bytes + ((uint64_t)1 << cutter->src_shift) - 1) >> cutter->src_shift;
}

/* What of one row begins in the range. */
static void add_row(const struct cutter *cutter, uint64_t row)
{
    const struct transfer *transfer = cutter->transfer;
    uint64_t start = transfer->src_offset + row * transfer->src_stride, end = start + transfer->row_bytes;
    uint64_t lo = cutter->range.lo > start ? cutter->range.lo - start : 0;
    uint64_t hi = (cutter->range.hi < end ? cutter->range.hi : end) - start;
    uint64_t first = elements_before(cutter, lo), behind = elements_before(cutter, hi);
    if (start >= cutter->range.hi || end <= cutter->range.lo || first >= behind)
        return;
    uint64_t bytes = (behind - first) << cutter->src_shift, begin = start + (first << cutter->src_shift);
    clip_add(cutter->clips, (struct clip){.src = {begin, bytes, 1, bytes},
                                          .dst_offset = transfer->dst_offset + row * (uint64_t)transfer->dst_stride +
                                                        (first << cutter->dst_shift),
                                          .dst_stride = (int64_t)((behind - first) << cutter->dst_shift),
                                          .part = cutter->part,
                                          .operation = transfer->operation,
                                          .torn_bytes = (uint32_t)(behind << cutter->src_shift) - (uint32_t)hi});
}

static void add_rows(const struct cutter *cutter)
{
    const struct transfer *transfer = cutter->transfer;
    struct range range = cutter->range;
    uint64_t offset = transfer->src_offset, stride = transfer->src_stride, bytes = transfer->row_bytes;
    uint64_t first = range.lo > offset ? (range.lo - offset) / stride : 0, last = (range.hi - 1 - offset) / stride;
    last = last < transfer->n_rows ? last : transfer->n_rows - 1;
    uint64_t whole = range.lo > offset + first * stride ? first + 1 : first;    /* first row that is not cut in front */
    uint64_t cut = offset + last * stride + bytes > range.hi ? last : last + 1; /* first one that is cut behind */
    if (first < whole)
        add_row(cutter, first);
    if (whole < cut)
        clip_add(cutter->clips,
                 (struct clip){.src = {offset + whole * stride, bytes, cut - whole, cut - whole > 1 ? stride : bytes},
                               .dst_offset = transfer->dst_offset + whole * (uint64_t)transfer->dst_stride,
                               .dst_stride = transfer->dst_stride,
                               .part = cutter->part,
                               .operation = transfer->operation});
    if (cut == last && whole <= last)
        add_row(cutter, last);
}

int clip_compare(const void *a, const void *b)
{
    const struct clip *left = a, *right = b;
    if (left->src.offset != right->src.offset)
        return left->src.offset < right->src.offset ? -1 : 1;
    return left->dst_offset < right->dst_offset ? -1 : left->dst_offset > right->dst_offset;
}

static void collect_part(struct clips *clips, const struct part *part, uint32_t p, struct range range)
{
    const struct mapping *mapping = part->run->options.mapping;
    size_t end = mapping->file_first[part->file + 1], n_before = clips->n;
    for (size_t i = mapping_find(mapping, part->file, range.lo); i < end; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        if (transfer->src_offset >= range.hi)
            break;
        if (mapping->order && transfer_end(transfer) <= range.lo)
            continue;
        const struct operation *operation = mapping_operation(mapping, transfer);
        const struct cutter cutter = {.clips = clips,
                                      .transfer = transfer,
                                      .range = range,
                                      .part = p,
                                      .src_shift = operation ? (unsigned)__builtin_ctz(operation->from_bytes) : 0,
                                      .dst_shift = operation ? (unsigned)__builtin_ctz(operation->to_bytes) : 0};
        if (transfer->n_rows == 1)
            add_row(&cutter, 0);
        else
            add_rows(&cutter);
    }
    if (mapping->order) /* transfers interleave: those that begin before the range come in the order of their beginnings */
        window_sort(clips->list + n_before, clips->n - n_before, sizeof *clips->list, clip_compare);
}

void clip_collect(struct clips *clips, const struct item *item, struct range range)
{
    clips->n = 0;
    for (uint32_t p = 0; p < item->n_parts; p++)
        if (!item->parts[p].has_failed)
            collect_part(clips, &item->parts[p], p, range);
}
