/* Cuts byte runs at the edges of a window; see clip.h. Runs are sorted, disjoint spans, so a binary search finds the first;
 * a strided run becomes at most three clips: the rest of a row, whole rows, the beginning of a row. */
#include "execute/clip.h"

#include "base/memory.h"

size_t clip_find_run(const struct mapping *mapping, uint32_t file, uint64_t at)
{
    size_t lo = mapping->file_first[file], hi = mapping->file_first[file + 1];
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (transfer_end(&mapping->transfers[middle]) <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

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

static uint64_t count_rows(const struct rows *rows, uint64_t lo, uint64_t hi)
{
    uint64_t span_lo = lo > rows->offset ? lo : rows->offset, end = rows_end(rows);
    uint64_t span_hi = hi < end ? hi : end;
    return rows->count == 1 || span_hi <= span_lo ? 1 : (span_hi - span_lo) / rows->stride + 2;
}

uint64_t clip_count_rows(const struct part *part, uint64_t lo, uint64_t hi, uint64_t enough)
{
    const struct mapping *mapping = part->run->options.mapping;
    const struct plan *plan = part->run->options.plan;
    uint64_t n_rows = 0;
    for (size_t i = clip_find_run(mapping, part->file, lo); n_rows < enough && i < mapping->file_first[part->file + 1];
         i++) {
        struct rows rows = rows_of_transfer(&mapping->transfers[i]);
        if (rows.offset >= hi)
            break;
        n_rows += count_rows(&rows, lo, hi);
    }
    for (size_t i = clip_find_step(plan, part->file, lo); n_rows < enough && i < plan->file_first[part->file + 1]; i++) {
        struct rows rows = rows_of_step(&plan->steps[i]);
        if (rows.offset >= hi)
            break;
        n_rows += count_rows(&rows, lo, hi);
    }
    return n_rows;
}

static void add_clip(struct worker *worker, uint32_t part, struct rows src, uint64_t dst_offset)
{
    ARRAY_RESERVE(worker->clips, worker->n_clips, worker->clips_room);
    worker->clips[worker->n_clips++] = (struct clip){src, dst_offset, part};
}

/* The part of one row that lies in [lo, hi). */
static void add_row(struct worker *worker, uint32_t part, const struct transfer *run, uint64_t row, uint64_t lo, uint64_t hi)
{
    uint64_t start = run->src_offset + row * run->src_stride, end = start + run->row_bytes;
    uint64_t from = lo > start ? lo : start, to = hi < end ? hi : end;
    if (from < to)
        add_clip(worker, part, (struct rows){from, to - from, 1, to - from},
                 run->dst_offset + row * run->row_bytes + (from - start));
}

static void add_run(struct worker *worker, uint32_t part, const struct transfer *run, uint64_t lo, uint64_t hi)
{
    if (run->n_rows == 1) {
        add_row(worker, part, run, 0, lo, hi);
        return;
    }
    uint64_t first = lo > run->src_offset ? (lo - run->src_offset) / run->src_stride : 0;
    uint64_t last = (hi - 1 - run->src_offset) / run->src_stride;
    if (last >= run->n_rows)
        last = run->n_rows - 1;
    uint64_t whole =
        lo > run->src_offset + first * run->src_stride ? first + 1 : first; /* first row that is not cut in front */
    uint64_t cut = run->src_offset + last * run->src_stride + run->row_bytes > hi ? last : last + 1; /* first cut behind */
    if (first < whole)
        add_row(worker, part, run, first, lo, hi);
    if (whole < cut)
        add_clip(worker, part,
                 (struct rows){run->src_offset + whole * run->src_stride, run->row_bytes, cut - whole,
                               cut - whole > 1 ? run->src_stride : run->row_bytes},
                 run->dst_offset + whole * run->row_bytes);
    if (cut == last && whole <= last)
        add_row(worker, part, run, last, lo, hi);
}

void clip_collect(struct worker *worker, uint64_t lo, uint64_t hi)
{
    worker->n_clips = 0;
    for (size_t p = 0; p < worker->n_parts; p++) {
        const struct part *part = &worker->parts[p];
        const struct mapping *mapping = part->run->options.mapping;
        size_t end = part->has_failed ? 0 : mapping->file_first[part->file + 1];
        for (size_t i = clip_find_run(mapping, part->file, lo); i < end && mapping->transfers[i].src_offset < hi; i++)
            add_run(worker, part->index, &mapping->transfers[i], lo, hi);
    }
}
