/* The way of a block from its file to its last destination; see block.h.
 *
 *   prepare   the pages of all destinations at once                                place_prepare_range
 *   for each window: as much as a buffer holds, or less when that spares memory: of clips that begin in it, of rows that are read
 *     collect   what goes where, and what has to be read for it                    clip_collect, extent_collect
 *     subtract  what other replicas hold is copied from there                      provider_take, extent_keep_wanted
 *     plan      through which buffer, or straight into place                       choose_*_buffer
 *     read      into the buffer and from there into place                          gather_read, gather_place
 *               past the page cache, what is aligned goes into place by itself     in_place_find
 *               or straight into place                                             scatter_window
 * A read that fails fails the parts that it was for. */
#include "execute/block.h"

#include "execute/clip.h"
#include "execute/engine_private.h"
#include "execute/flight.h"
#include "execute/extent.h"
#include "execute/gather.h"
#include "execute/place.h"
#include "execute/provider.h"
#include "execute/scan.h"

enum { MIN_WINDOW_BYTES = 4096 };

static const double HOT_SHARE = 0.9; /* below, the device is quicker than a mixture of both */

bool block_is_partly_wanted(const struct clips *clips, const struct extents *extents, uint64_t whole_part)
{
    return clip_sum_bytes(clips) < extent_sum_bytes(extents) / whole_part * (whole_part - 1);
}

bool block_is_mixed(const struct item *item)
{
    for (size_t i = 0; i < item->n_parts && item->n_parts > 1; i++)
        if (item->parts[i].run->destination->is_lent)
            return true;
    return false;
}

static uint64_t find_window_end(const struct item *item, struct range range, uint64_t max_rows)
{
    for (;;) {
        uint64_t n_rows = 0;
        for (size_t i = 0; i < item->n_parts; i++)
            n_rows += clip_count_new(&item->parts[i], range, max_rows + 1);
        if (n_rows <= max_rows || range_bytes(range) <= MIN_WINDOW_BYTES)
            return range.hi;
        range.hi = range.lo + ((range_bytes(range) / 2 + MIN_WINDOW_BYTES - 1) & ~(uint64_t)(MIN_WINDOW_BYTES - 1));
    }
}

/* From the first to the last extent. */
static void look_at_cache(const struct item *item, struct window *window)
{
    const struct part *part = &item->parts[0];
    uint64_t lo = window->extents.list[0].range.lo, bytes = window->extents.list[window->extents.n - 1].range.hi - lo;
    uint64_t cached = part->source->caps.residency ? source_resident_bytes(part->source, part->file, lo, bytes) : 0;
    window->cached_share = (double)cached / (double)bytes;
    window->is_hot = window->cached_share >= HOT_SHARE;
}

/* Returns whether anything has to be read. */
static bool collect_window(struct item *item, struct window *window, const struct block_strategy *strategy)
{
    clip_collect(&window->clips, item, window->range);
    extent_collect(&window->extents, item, window->range);
    if (window->extents.n == 0)
        return false;
    look_at_cache(item, window);
    if (!window->is_hot && provider_take(item, &window->clips))
        extent_keep_wanted(&window->extents, &window->clips, &window->requests);
    window->has_operations = clip_have_operations(&window->clips);
    if (strategy->joins_gaps)
        extent_join(&window->extents, item->parts[0].run->options.plan->merge_gap_bytes);
    return window->extents.n > 0;
}

static bool wants_scratch(const struct item *item, const struct window *window)
{
    bool goes_through = false;
    for (size_t i = 0; i < item->n_parts; i++)
        goes_through = goes_through || !item->parts[i].run->destination->address || item->parts[i].transport;
    return goes_through &&
           (window->has_operations || clip_sum_bytes(&window->clips) < clip_sum_rows(&window->clips) * WINDOW_ELEMENT_BYTES);
}

/* For what is converted or turned on its way to memory without an address. Kept like the worker's buffer. */
static void find_scratch(struct worker *worker)
{
    struct engine *engine = worker->engine;
    struct window *window = &worker->window;
    if (!wants_scratch(&worker->item, window))
        return;
    if (!window->scratch) {
        pthread_mutex_lock(&engine->lock);
        if (staging_left(&engine->staging) > 1) /* the last one is for a device that has none */
            window->scratch = staging_take(&engine->staging);
        pthread_mutex_unlock(&engine->lock);
    }
    for (size_t i = 0; i < worker->item.n_parts && window->scratch; i++) {
        struct device *device = worker->item.parts[i].run->destination->device;
        if (device && device->ops->queue)
            staging_pin(window->scratch, device);
    }
}

/* Reads what the buffer has not got yet, and places everything. */
static int read_through_buffer(struct item *item, struct window *window, struct staging_buffer *buffer, struct error *error)
{
    bool had_some = range_bytes(window->had) > 0;
    window->in_place.n = 0;
    flight_land(&buffer->flight);
    for (size_t i = 0; i < item->n_parts; i++) {
        struct device *device = item->parts[i].run->destination->device;
        if (device && device->ops->queue)
            staging_pin(buffer, device);
    }
    if (had_some)
        extent_subtract(&window->extents, window->had);
    extent_charge(item, &window->extents, &window->clips, had_some ? 0 : window->cached_share);
    if (gather_read(item, window, buffer, error))
        return -1;
    if (had_some)
        extent_add_request(&window->requests, window->had);
    gather_place(item, window, buffer);
    return 0;
}

static bool is_worth_keeping(const struct window *window, const struct block_strategy *strategy)
{
    if (window->in_place.n > 0)
        return false;
    if (window->is_hot || !window->is_whole || range_bytes(window->had) > 0)
        return window->is_whole && !window->is_hot;
    return block_is_partly_wanted(&window->clips, &window->requests, strategy->whole_part);
}

static void run_window(struct worker *worker, const struct block_strategy *strategy)
{
    struct item *item = &worker->item;
    struct window *window = &worker->window;
    struct error error;
    bool keep = range_bytes(window->had) > 0, has_failed = false;
    if (collect_window(item, window, strategy)) {
        has_failed = strategy->choose_buffer(worker, &error) != 0;
        struct staging_buffer *buffer = worker->buffer;
        if (!has_failed && window->way != WAY_STRAIGHT) {
            item_use_temporary(item, buffer->home->buffer_bytes, true);
            find_scratch(worker);
            uint64_t scratch_bytes = window->scratch ? window->scratch->home->buffer_bytes : 0;
            item_use_temporary(item, scratch_bytes, true);
            has_failed = read_through_buffer(item, window, buffer, &error) != 0;
            item_use_temporary(item, buffer->home->buffer_bytes + scratch_bytes, false);
            buffer->range = extent_longest(&window->requests);
            keep = !has_failed && is_worth_keeping(window, strategy);
        } else if (!has_failed) {
            const struct iovec trash = {buffer ? buffer->memory : NULL, buffer ? buffer->home->buffer_bytes : 0};
            extent_charge(item, &window->extents, &window->clips, window->cached_share);
            has_failed = scatter_window(&worker->scatter, item, window, trash, &error) != 0;
            keep = false;
        }
    }
    if (has_failed)
        item_fail_clips(item, &window->clips, &error);
    strategy->put_back(worker, keep);
    window->had = (struct range){0, 0};
}

static void run_windows(struct worker *worker, const struct block_strategy *strategy, struct range block)
{
    struct window *window = &worker->window;
    uint64_t window_bytes = strategy->choose_window_bytes(worker, block);
    for (uint64_t lo = block.lo; lo < block.hi; lo = window->range.hi) {
        uint64_t limit = (lo / window_bytes + 1) * window_bytes;
        limit = limit < block.hi ? limit : block.hi;
        window->range = (struct range){lo, limit};
        window->range.hi = find_window_end(&worker->item, window->range, strategy->max_window_rows);
        window->is_whole = !window->is_crumbled && lo % window_bytes == 0 && window->range.hi == limit;
        run_window(worker, strategy);
    }
}

void block_run(struct worker *worker)
{
    struct item *item = &worker->item;
    const struct part *first = &item->parts[0];
    uint64_t file_bytes = first->source->files[first->file].size_bytes, lo = item->block * item->scan->block_bytes;
    struct range block = {lo, lo + item->scan->block_bytes < file_bytes ? lo + item->scan->block_bytes : file_bytes};
    item->read_ns = item->copy_ns = 0;
    for (size_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].run->destination->address)
            place_prepare_range(&item->parts[i], block);
    run_windows(worker, item->is_remote ? &block_remote : &block_local, block);
    if (item->is_remote)
        source_speed(first->source, &worker->speed);
    item_share_time(item);
}
