/* A run is what lies together in the file and in memory, of as many clips as it takes, cut down to whole blocks. Bytes that
 * two clips want are in none: they are copied out of the buffer, once for each. */
#include "execute/in_place.h"

#include <stdlib.h>

#include "base/memory.h"
#include "execute/clip.h"
#include "execute/place.h"

enum {
    PAGE_BYTES = 4096, /* where both sides match that well, buffers are whole pages: devices take them in one request */
    MIN_RUN_BYTES = 32 << 10, /* a buffer more costs a device about as much as a CPU the copy of less */
    NEAR_ROWS_BYTES = 512,    /* rows that are no further apart are one piece for holders */
};

void in_place_fini(struct in_place *in_place)
{
    free(in_place->spans);
    free(in_place->list);
    free(in_place->buffers);
    *in_place = (struct in_place){0};
}

/* --- spans: what each clip wants --------------------------------------------------------------------------------------- */

static void add_span(struct in_place *in_place, struct in_place_run span)
{
    ARRAY_RESERVE(in_place->spans, in_place->n_spans, in_place->spans_room);
    in_place->spans[in_place->n_spans++] = span;
}

/* One that cannot land keeps others from its bytes. */
static void add_clip(struct in_place *in_place, const struct item *item, const struct clip *clip)
{
    const struct part *part = &item->parts[clip->part];
    /* a page that a client takes away fails the read: its own, not one that others wait for */
    bool is_others = item->n_parts > 1 && part->run->destination->is_lent;
    unsigned char *memory = clip->operation || part->transport || is_others ? NULL : part->run->destination->address;
    bool is_contiguous =
        clip->src.count == 1 || (clip->src.stride == clip->src.bytes && clip->dst_stride == (int64_t)clip->src.bytes);
    if (!memory || is_contiguous || clip->src.bytes < MIN_RUN_BYTES) {
        add_span(in_place, (struct in_place_run){.range = {clip->src.offset, rows_end(&clip->src)},
                                                 .address = memory && is_contiguous ? memory + clip->dst_offset : NULL,
                                                 .part = clip->part});
        return;
    }
    for (uint64_t row = 0; row < clip->src.count; row++) {
        uint64_t offset = clip->src.offset + row * clip->src.stride;
        add_span(in_place, (struct in_place_run){.range = {offset, offset + clip->src.bytes},
                                                 .address = memory + (clip->dst_offset + row * (uint64_t)clip->dst_stride),
                                                 .part = clip->part});
    }
}

static int compare_spans(const void *a, const void *b)
{
    const struct in_place_run *left = a, *right = b;
    if (left->range.lo != right->range.lo)
        return left->range.lo < right->range.lo ? -1 : 1;
    return left->range.hi < right->range.hi ? -1 : left->range.hi > right->range.hi;
}

/* Leaves those that can land and share no byte with another, neighbours joined. */
static void join_spans(struct in_place *in_place)
{
    uint64_t covered = 0;
    size_t n = in_place->n_spans, kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct in_place_run span = in_place->spans[i], *last = kept ? &in_place->spans[kept - 1] : NULL;
        bool is_alone = span.range.lo >= covered && (i + 1 == n || in_place->spans[i + 1].range.lo >= span.range.hi);
        covered = span.range.hi > covered ? span.range.hi : covered;
        if (!span.address || !is_alone)
            continue;
        if (last && last->range.hi == span.range.lo && last->part == span.part &&
            last->address + range_bytes(last->range) == span.address)
            last->range.hi = span.range.hi;
        else
            in_place->spans[kept++] = span;
    }
    in_place->n_spans = kept;
}

/* --- runs: whole blocks of them ---------------------------------------------------------------------------------------- */

static void add_run(struct in_place *in_place, struct item *item, struct in_place_run run)
{
    const struct source_caps *caps = &item->parts[0].source->caps;
    struct part *part = &item->parts[run.part];
    uint64_t block = caps->direct_offset_alignment, lo = run.range.lo;
    if (((uintptr_t)run.address - lo) % PAGE_BYTES == 0 && block < PAGE_BYTES)
        block = PAGE_BYTES;
    run.range.lo = (lo + block - 1) & ~(block - 1);
    run.range.hi &= ~(block - 1);
    run.address += run.range.lo - lo;
    if (run.range.hi < run.range.lo + MIN_RUN_BYTES ||
        (caps->direct_memory_alignment && (uintptr_t)run.address % caps->direct_memory_alignment))
        return;
    uint64_t dst_offset = (uint64_t)(run.address - (unsigned char *)part->run->destination->address);
    if (!place_prepare(part, dst_offset, range_bytes(run.range)))
        return;
    ARRAY_RESERVE(in_place->list, in_place->n, in_place->room);
    in_place->list[in_place->n++] = run;
}

void in_place_find(struct item *item, struct window *window)
{
    struct in_place *in_place = &window->in_place;
    const struct extents *requests = &window->requests;
    size_t first = 0;
    in_place->n = in_place->n_spans = 0;
    for (size_t i = 0; i < window->clips.n; i++)
        add_clip(in_place, item, &window->clips.list[i]);
    window_sort(in_place->spans, in_place->n_spans, sizeof *in_place->spans, compare_spans);
    join_spans(in_place);
    for (size_t i = 0; i < in_place->n_spans; i++) {
        const struct in_place_run *span = &in_place->spans[i];
        while (first < requests->n && requests->list[first].range.hi <= span->range.lo)
            first++;
        for (size_t r = first; r < requests->n && requests->list[r].range.lo < span->range.hi; r++) {
            struct in_place_run run = *span;
            const struct range *request = &requests->list[r].range;
            run.range.lo = request->lo > span->range.lo ? request->lo : span->range.lo;
            run.range.hi = request->hi < span->range.hi ? request->hi : span->range.hi;
            run.address += run.range.lo - span->range.lo;
            add_run(in_place, item, run);
        }
    }
}

/* --- reading and counting ---------------------------------------------------------------------------------------------- */

static void add_buffer(struct in_place *in_place, void *base, uint64_t bytes)
{
    size_t n = (size_t)in_place->n_buffers;
    if (bytes == 0)
        return;
    ARRAY_RESERVE(in_place->buffers, n, in_place->buffers_room);
    in_place->buffers[in_place->n_buffers++] = (struct iovec){base, bytes};
}

int in_place_buffers(struct window *window, const struct staging_buffer *buffer, struct range range)
{
    struct in_place *in_place = &window->in_place;
    uint64_t at = range.lo;
    in_place->n_buffers = 0;
    for (size_t i = 0; i < in_place->n && in_place->list[i].range.lo < range.hi; i++) {
        const struct in_place_run *run = &in_place->list[i];
        if (run->range.lo < at)
            continue;
        add_buffer(in_place, buffer->memory + (at - buffer->start), run->range.lo - at);
        add_buffer(in_place, run->address, range_bytes(run->range));
        at = run->range.hi;
    }
    add_buffer(in_place, buffer->memory + (at - buffer->start), range.hi - at);
    return in_place->n_buffers;
}

int in_place_wanted_buffers(struct window *window, const struct staging_buffer *buffer, struct range range)
{
    struct in_place *in_place = &window->in_place;
    uint64_t at = range.lo;
    in_place->n_buffers = 0;
    in_place->n_spans = 0;
    for (size_t i = 0; i < window->clips.n; i++) {
        const struct rows *rows = &window->clips.list[i].src;
        bool is_piece = rows->stride <= NEAR_ROWS_BYTES || rows->stride == rows->bytes;
        for (uint64_t row = 0; row < (is_piece ? 1 : rows->count); row++) {
            uint64_t lo = rows->offset + row * rows->stride;
            add_span(in_place, (struct in_place_run){.range = {lo, is_piece ? rows_end(rows) : lo + rows->bytes}});
        }
    }
    window_sort(in_place->spans, in_place->n_spans, sizeof *in_place->spans, compare_spans);
    for (size_t i = 0; i < in_place->n_spans && at < range.hi; i++) {
        struct range span = in_place->spans[i].range;
        uint64_t lo = span.lo > at ? span.lo : at, hi = span.hi < range.hi ? span.hi : range.hi;
        if (lo >= hi)
            continue;
        struct iovec *last = in_place->n_buffers ? &in_place->buffers[in_place->n_buffers - 1] : NULL;
        add_buffer(in_place, NULL, lo - at);
        if (last && lo == at)
            last->iov_len += hi - lo;
        else
            add_buffer(in_place, buffer->memory + (lo - buffer->start), hi - lo);
        at = hi;
    }
    add_buffer(in_place, NULL, range.hi - at);
    return in_place->n_buffers;
}

void in_place_count(struct item *item, const struct window *window)
{
    for (size_t i = 0; i < window->in_place.n; i++) {
        struct part *part = &item->parts[window->in_place.list[i].part];
        part->placed_bytes += range_bytes(window->in_place.list[i].range);
        part->report.direct_bytes += range_bytes(window->in_place.list[i].range);
    }
}

struct range in_place_rest(const struct window *window, struct range range, size_t *next)
{
    const struct in_place *in_place = &window->in_place;
    for (; *next < in_place->n && range.lo < range.hi; (*next)++) {
        const struct range *run = &in_place->list[*next].range;
        if (run->hi <= range.lo)
            continue;
        if (run->lo > range.lo)
            return (struct range){range.lo, run->lo < range.hi ? run->lo : range.hi};
        range.lo = run->hi < range.hi ? run->hi : range.hi;
        if (run->hi > range.hi)
            break;
    }
    return range;
}
