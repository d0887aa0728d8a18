/* Cuts transfers at the edges of a window; see clip.h. In the file they are sorted, disjoint spans, so a binary search finds
 * the first; a strided one becomes at most three clips: the rest of a row, whole rows, the beginning of a row. */
#include "execute/clip.h"

#include "base/memory.h"

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

static uint64_t count_rows(const struct rows *rows, struct range range)
{
    uint64_t end = rows_end(rows), lo = range.lo > rows->offset ? range.lo : rows->offset;
    uint64_t hi = range.hi < end ? range.hi : end;
    return rows->count == 1 || hi <= lo ? 1 : (hi - lo) / rows->stride + 2;
}

uint64_t clip_count_rows(const struct part *part, struct range range, uint64_t enough)
{
    const struct mapping *mapping = part->run->options.mapping;
    const struct plan *plan = part->run->options.plan;
    size_t transfer = mapping_find(mapping, part->file, range.lo), step = clip_find_step(plan, part->file, range.lo);
    uint64_t n_rows = 0;
    for (; n_rows < enough && transfer < mapping->file_first[part->file + 1]; transfer++) {
        struct rows rows = rows_of_transfer(&mapping->transfers[transfer]);
        if (rows.offset >= range.hi)
            break;
        n_rows += count_rows(&rows, range);
    }
    for (; n_rows < enough && step < plan->file_first[part->file + 1]; step++) {
        struct rows rows = rows_of_step(&plan->steps[step]);
        if (rows.offset >= range.hi)
            break;
        n_rows += count_rows(&rows, range);
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

void clip_add(struct clips *clips, struct clip clip)
{
    ARRAY_RESERVE(clips->list, clips->n, clips->room);
    clips->list[clips->n++] = clip;
}

/* What of one row lies in the range. */
static void add_row(struct clips *clips, uint32_t part, const struct transfer *transfer, uint64_t row, struct range range)
{
    uint64_t start = transfer->src_offset + row * transfer->src_stride, end = start + transfer->row_bytes;
    uint64_t lo = range.lo > start ? range.lo : start, hi = range.hi < end ? range.hi : end, bytes = hi - lo;
    if (lo < hi)
        clip_add(clips, (struct clip){.src = {lo, bytes, 1, bytes},
                                      .dst_offset = transfer->dst_offset + row * transfer->dst_stride + (lo - start),
                                      .dst_stride = bytes,
                                      .part = part});
}

static void add_rows(struct clips *clips, uint32_t part, const struct transfer *transfer, struct range range)
{
    uint64_t offset = transfer->src_offset, stride = transfer->src_stride, bytes = transfer->row_bytes;
    uint64_t first = range.lo > offset ? (range.lo - offset) / stride : 0, last = (range.hi - 1 - offset) / stride;
    last = last < transfer->n_rows ? last : transfer->n_rows - 1;
    uint64_t whole = range.lo > offset + first * stride ? first + 1 : first;    /* first row that is not cut in front */
    uint64_t cut = offset + last * stride + bytes > range.hi ? last : last + 1; /* first one that is cut behind */
    if (first < whole)
        add_row(clips, part, transfer, first, range);
    if (whole < cut)
        clip_add(clips, (struct clip){.src = {offset + whole * stride, bytes, cut - whole, cut - whole > 1 ? stride : bytes},
                                      .dst_offset = transfer->dst_offset + whole * transfer->dst_stride,
                                      .dst_stride = transfer->dst_stride,
                                      .part = part});
    if (cut == last && whole <= last)
        add_row(clips, part, transfer, last, range);
}

void clip_collect(struct clips *clips, const struct item *item, struct range range)
{
    clips->n = 0;
    for (uint32_t p = 0; p < item->n_parts; p++) {
        const struct part *part = &item->parts[p];
        const struct mapping *mapping = part->run->options.mapping;
        size_t end = part->has_failed ? 0 : mapping->file_first[part->file + 1];
        for (size_t i = mapping_find(mapping, part->file, range.lo); i < end; i++) {
            const struct transfer *transfer = &mapping->transfers[i];
            if (transfer->src_offset >= range.hi)
                break;
            if (transfer->n_rows == 1)
                add_row(clips, p, transfer, 0, range);
            else
                add_rows(clips, p, transfer, range);
        }
    }
}
