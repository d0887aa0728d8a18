/* Decides, window by window, where the bytes of a block come from; see block.h. First the pages of all destinations are made
 * ready at once, because the kernel's part of that has a price per call.
 *
 *   in the page cache     buffered reads straight into place (scatter); many short rows through staging (gather)
 *   not there             first from other replicas or a window that was kept, then past the page cache into staging
 *   source cannot do that buffered, as if cached
 *
 * A window is what fits into a staging buffer, or less when it holds so many rows that their book-keeping would cost real
 * memory. */
#include "execute/block.h"

#include "base/clock.h"
#include "execute/clip.h"
#include "execute/collective_private.h"
#include "execute/extent.h"
#include "execute/flight.h"
#include "execute/gather.h"
#include "execute/place.h"
#include "execute/provider.h"
#include "execute/scatter.h"

enum {
    MAX_WINDOW_ROWS = 32 << 10,
    MIN_WINDOW_BYTES = 4096,
    NEAR_BYTES = 64 << 10,
    SHORT_ROW_BYTES = 1024, /* below, a buffer in a preadv costs more than a second copy */
};

static const double HOT_SHARE = 0.9; /* below, the device is quicker than a mixture of both */

struct window {
    uint64_t lo, hi;
    double cached_share;
    bool is_hot, is_whole;
};

static uint64_t find_window_end(const struct worker *worker, uint64_t lo, uint64_t hi)
{
    for (;;) {
        uint64_t n_rows = 0;
        for (size_t i = 0; i < worker->n_parts; i++)
            n_rows += clip_count_rows(&worker->parts[i], lo, hi, MAX_WINDOW_ROWS + 1);
        if (n_rows <= MAX_WINDOW_ROWS || hi - lo <= MIN_WINDOW_BYTES)
            return hi;
        hi = lo + (((hi - lo) / 2 + MIN_WINDOW_BYTES - 1) & ~(uint64_t)(MIN_WINDOW_BYTES - 1));
    }
}

/* From the first to the last extent. */
static void look_at_cache(struct worker *worker, struct window *window)
{
    struct part *part = &worker->parts[0];
    uint64_t lo = worker->extents[0].lo, bytes = worker->extents[worker->n_extents - 1].hi - lo, cached = 0;
    if (part->source->caps.residency)
        cached = source_resident_bytes(part->source, part->file, lo, bytes);
    window->cached_share = (double)cached / (double)bytes;
    window->is_hot = window->cached_share >= HOT_SHARE;
}

static uint64_t sum_clips(const struct worker *worker, uint64_t *n_rows)
{
    uint64_t bytes = 0;
    *n_rows = 0;
    for (size_t i = 0; i < worker->n_clips; i++) {
        bytes += clip_bytes(&worker->clips[i]);
        *n_rows += worker->clips[i].src.count;
    }
    return bytes;
}

static bool wants_staging(const struct worker *worker)
{
    uint64_t n_rows, bytes = sum_clips(worker, &n_rows);
    for (size_t i = 0; i < worker->n_parts; i++)
        if (!worker->parts[i].run->options.segment->host_address)
            return true;
    return bytes < n_rows * SHORT_ROW_BYTES;
}

static bool can_read_direct(const struct worker *worker)
{
    const struct source_caps *caps = &worker->parts[0].source->caps;
    uint64_t alignment = caps->direct_offset_alignment;
    return caps->direct_reads && alignment > 0 && (alignment & (alignment - 1)) == 0 &&
           alignment <= worker->engine->staging.buffer_bytes &&
           caps->direct_memory_alignment <= worker->engine->staging.buffer_bytes;
}

/* Bytes that need not be read: from the replicas of other runs. Leaves what does. */
static void copy_from_providers(struct worker *worker, const struct window *window)
{
    if (provider_take(worker))
        extent_collect(worker, window->lo, window->hi, true);
}

/* Swaps the worker's buffer for one that has been kept of this window. */
static bool find_kept(struct worker *worker)
{
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    struct staging_buffer *kept = staging_find(&engine->staging, worker->scan, worker->buffer->start);
    if (kept) {
        staging_give(&engine->staging, worker->buffer, clock_now_ns());
        worker->buffer = kept;
    }
    pthread_mutex_unlock(&engine->lock);
    flight_land(&worker->buffer->flight);
    return kept != NULL;
}

/* A buffer that may be written to: while devices copy out of one, the next window is read into the other. */
static void take_landed_buffer(struct worker *worker)
{
    struct engine *engine = worker->engine;
    if (worker->buffer->flight.n_marks == 0)
        return;
    if (!worker->spare && engine->has_spares) {
        pthread_mutex_lock(&engine->lock);
        if (staging_left(&engine->staging) > 1) /* the last one is for a device that has none */
            worker->spare = staging_take(&engine->staging);
        pthread_mutex_unlock(&engine->lock);
    }
    if (worker->spare) {
        struct staging_buffer *flying = worker->buffer;
        worker->buffer = worker->spare;
        worker->spare = flying;
    }
    flight_land(&worker->buffer->flight);
}

static void pin_buffer(struct worker *worker)
{
    for (size_t i = 0; i < worker->n_parts; i++) {
        struct device *device = worker->parts[i].run->options.segment->device;
        if (device->ops->queue)
            staging_pin(&worker->engine->staging, worker->buffer, device);
    }
}

static void keep(struct worker *worker, struct staging_range range)
{
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    worker->buffer->range = range;
    staging_keep(&engine->staging, worker->buffer, worker->scan, clock_now_ns());
    worker->buffer = staging_take(&engine->staging); /* at worst the same one */
    pthread_mutex_unlock(&engine->lock);
}

void block_use_temporary(struct worker *worker, uint64_t bytes, bool begins)
{
    if (worker->collective)
        collective_use_temporary(worker->collective, bytes, begins);
    for (size_t i = 0; i < worker->n_parts; i++) {
        struct part *part = &worker->parts[i];
        if (!begins) {
            __atomic_sub_fetch(&part->run->temporary_bytes, bytes, __ATOMIC_RELAXED);
            continue;
        }
        uint64_t now = __atomic_add_fetch(&part->run->temporary_bytes, bytes, __ATOMIC_RELAXED);
        if (now > part->report.peak_temporary_bytes)
            part->report.peak_temporary_bytes = now;
    }
}

/* Reads what is missing around a kept range, if any, and places everything. */
static int complete_kept(struct worker *worker, bool direct, struct error *error)
{
    struct staging_range range = worker->buffer->range;
    extent_subtract(worker, range.lo, range.hi);
    extent_charge(worker, 0);
    if (gather_read(worker, direct, error))
        return -1;
    extent_add_request(worker, range.lo, range.hi);
    gather_place(worker);
    if (worker->n_requests == 1)
        range = (struct staging_range){worker->requests[0].lo, worker->requests[0].hi};
    keep(worker, range);
    return 0;
}

static int read_and_gather(struct worker *worker, const struct window *window, bool direct, struct error *error)
{
    uint64_t n_rows, wanted = sum_clips(worker, &n_rows);
    extent_charge(worker, window->cached_share);
    if (gather_read(worker, direct, error))
        return -1;
    gather_place(worker);
    const struct extent *read = worker->requests;
    bool is_partly_wanted = worker->n_requests == 1 && wanted < (read->hi - read->lo) / 8 * 7;
    if (!window->is_hot && window->is_whole && is_partly_wanted)
        keep(worker, (struct staging_range){read->lo, read->hi});
    return 0;
}

static int gather_window(struct worker *worker, const struct window *window, bool direct, struct error *error)
{
    uint64_t buffer_bytes = worker->engine->staging.buffer_bytes;
    block_use_temporary(worker, buffer_bytes, true);
    worker->buffer->start = window->lo & ~(buffer_bytes - 1);
    bool kept = !window->is_hot && window->is_whole && find_kept(worker);
    pin_buffer(worker);
    int result = kept ? complete_kept(worker, direct, error) : read_and_gather(worker, window, direct, error);
    block_use_temporary(worker, buffer_bytes, false);
    return result;
}

static int read_window(struct worker *worker, const struct window *window, struct error *error)
{
    bool direct = !window->is_hot && can_read_direct(worker);
    take_landed_buffer(worker);
    if (direct || wants_staging(worker))
        return gather_window(worker, window, direct, error);
    extent_charge(worker, window->cached_share);
    return scatter_window(worker, error);
}

void block_fail_parts(struct worker *worker, const struct error *error)
{
    for (size_t i = 0; i < worker->n_clips; i++) {
        struct part *part = &worker->parts[worker->clips[i].part];
        if (!part->has_failed)
            part->error = *error;
        part->has_failed = true;
    }
}

static void run_window(struct worker *worker, struct window *window)
{
    struct error error;
    clip_collect(worker, window->lo, window->hi);
    extent_collect(worker, window->lo, window->hi, false);
    if (worker->n_extents == 0)
        return;
    look_at_cache(worker, window);
    if (!window->is_hot)
        copy_from_providers(worker, window);
    if (worker->n_extents > 0 && read_window(worker, window, &error))
        block_fail_parts(worker, &error);
}

void block_share_time(struct worker *worker)
{
    uint64_t read_bytes = 1, copied_bytes = 1;
    for (size_t i = 0; i < worker->n_parts; i++) {
        read_bytes += worker->parts[i].report.read_bytes;
        copied_bytes += worker->parts[i].report.copied_bytes;
    }
    for (size_t i = 0; i < worker->n_parts; i++) {
        struct run_report *report = &worker->parts[i].report;
        report->read_ns = (uint64_t)((double)worker->read_ns * (double)report->read_bytes / (double)read_bytes);
        report->copy_ns = (uint64_t)((double)worker->copy_ns * (double)report->copied_bytes / (double)copied_bytes);
    }
}

/* Neighbours in the file are mostly neighbours in memory, so the ranges are few and long. */
void block_prepare_part(struct part *part, uint64_t lo, uint64_t hi)
{
    const struct mapping *mapping = part->run->options.mapping;
    size_t i = clip_find_run(mapping, part->file, lo), end = mapping->file_first[part->file + 1];
    uint64_t from = 0, to = 0;
    for (; i < end && mapping->transfers[i].src_offset < hi; i++) {
        struct rows rows = rows_of_transfer(&mapping->transfers[i]);
        uint64_t first = mapping->transfers[i].dst_offset + rows_before(&rows, lo);
        uint64_t last = mapping->transfers[i].dst_offset + rows_before(&rows, hi);
        if (first >= to && first - to < NEAR_BYTES && to > from) {
            to = last;
            continue;
        }
        if (to > from)
            place_prepare(part, from, to - from);
        from = first;
        to = last;
    }
    if (to > from)
        place_prepare(part, from, to - from);
}

static void run_windows(struct worker *worker, uint64_t lo, uint64_t end)
{
    uint64_t buffer_bytes = worker->engine->staging.buffer_bytes;
    for (struct window window = {.lo = lo}; window.lo < end; window.lo = window.hi) {
        uint64_t limit = (window.lo / buffer_bytes + 1) * buffer_bytes;
        limit = limit < end ? limit : end;
        window.hi = find_window_end(worker, window.lo, limit);
        window.is_whole = window.lo % buffer_bytes == 0 && window.hi == limit;
        run_window(worker, &window);
    }
}

void block_run(struct worker *worker)
{
    const struct part *first = &worker->parts[0];
    uint64_t lo = worker->block * worker->engine->block_bytes, hi = lo + worker->engine->block_bytes;
    uint64_t file_bytes = first->source->files[first->file].size_bytes;
    hi = hi < file_bytes ? hi : file_bytes;
    worker->read_ns = worker->copy_ns = 0;
    for (size_t i = 0; i < worker->n_parts; i++)
        if (worker->parts[i].run->options.segment->host_address)
            block_prepare_part(&worker->parts[i], lo, hi);
    run_windows(worker, lo, hi);
    block_share_time(worker);
}
