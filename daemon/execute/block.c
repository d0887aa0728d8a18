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

#include <inttypes.h>

#include "base/clock.h"
#include "execute/clip.h"
#include "execute/collective_private.h"
#include "execute/engine_private.h"
#include "execute/flight.h"
#include "execute/extent.h"
#include "execute/gather.h"
#include "execute/place.h"
#include "execute/provider.h"
#include "execute/scan.h"

enum {
    MIN_WINDOW_BYTES = 4096,
    MAX_WINDOW_ROWS = 32 << 10,
    MAX_REMOTE_WINDOW_ROWS = 64 << 10, /* each worker keeps lists of them: what clients ask for must not make those large */
    MAX_PIECES = 8 << 10,   /* that a socket may write into; their lists are memory, too, times all requests in flight */
    SHORT_ROW_BYTES = 1024, /* below, a buffer in a preadv costs more than a second copy */
    LEAST_ROW_BYTES = 512,  /* below, holders give what lies between rows, too (hosts/block_runs.c) */
    LOCAL_WHOLE_PART = 8,
    REMOTE_WHOLE_PART = 64,
};

static const double HOT_SHARE = 0.9; /* below, the device is quicker than a mixture of both */

bool block_is_partly_wanted(const struct clips *clips, const struct extents *extents, uint64_t whole_part)
{
    return clip_sum_bytes(clips) < extent_sum_bytes(extents) / whole_part * (whole_part - 1);
}

/* Other hosts are asked for what is wanted alone, where rows are long enough for that. */
static bool leaves_gaps(const struct item *item, const struct window *window)
{
    return item_has_holders(item) && block_is_partly_wanted(&window->clips, &window->extents, REMOTE_WHOLE_PART) &&
           clip_sum_bytes(&window->clips) >= clip_sum_rows(&window->clips) * LEAST_ROW_BYTES;
}

/* Several runs, one of them into memory of a client: each gets its bytes from a buffer, none from another one's memory. */
static bool is_mixed(const struct item *item)
{
    for (size_t i = 0; i < item->n_parts && item->n_parts > 1; i++)
        if (item->parts[i].run->destination->is_lent)
            return true;
    return false;
}

/* Runs with and without one meet where windows of a store are as large as blocks. */
static bool has_address(const struct item *item)
{
    for (size_t i = 0; i < item->n_parts; i++)
        if (!item->parts[i].run->destination->address)
            return false;
    return true;
}

/* A buffer that was kept of this window, instead of the worker's. */
static bool find_kept(struct worker *worker, struct staging *home, uint64_t start)
{
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    struct staging_buffer *kept = staging_find(home, worker->item.scan, start);
    if (kept && worker->buffer)
        staging_give(worker->buffer, clock_now_ns());
    pthread_mutex_unlock(&engine->lock);
    if (!kept)
        return false;
    worker->buffer = kept;
    worker->window.had = kept->range;
    return true;
}

/* --- devices and mounts: windows as large as a staging buffer ---
 *
 *   in the page cache     buffered reads straight into place; many short rows, and what is converted, through the buffer
 *   not there             past the page cache into the buffer, or into one that was kept of this window
 *   source cannot do that as if cached
 *   other hosts are asked, and only a part is wanted: without the rest, straight into place or into the buffer
 *
 * A worker keeps its buffer from block to block; it is trash for gaps where reads go straight into place. */

static uint64_t choose_local_window_bytes(struct worker *worker, struct range block)
{
    (void)block;
    worker->window.is_crumbled = false;
    return worker->engine->staging.buffer_bytes;
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
            worker->spare = staging_take(&engine->staging, NULL);
        pthread_mutex_unlock(&engine->lock);
    }
    if (worker->spare) {
        struct staging_buffer *flying = worker->buffer;
        worker->buffer = worker->spare;
        worker->spare = flying;
    }
    flight_land(&worker->buffer->flight);
}

static int choose_local_buffer(struct worker *worker, struct error *error)
{
    struct window *window = &worker->window;
    const struct item *item = &worker->item;
    const struct source_caps *caps = &item->parts[0].source->caps;
    uint64_t buffer_bytes = worker->engine->staging.buffer_bytes, alignment = caps->direct_offset_alignment;
    (void)error;
    bool has_gaps = leaves_gaps(item, window);
    bool is_direct = !has_gaps && !window->is_hot && caps->direct_reads && alignment > 0 &&
                     (alignment & (alignment - 1)) == 0 && alignment <= buffer_bytes &&
                     caps->direct_memory_alignment <= buffer_bytes;
    bool is_buffered = is_direct || window->has_operations || is_mixed(item) || !has_address(item) ||
                       clip_sum_bytes(&window->clips) < clip_sum_rows(&window->clips) * SHORT_ROW_BYTES;
    take_landed_buffer(worker);
    worker->buffer->start = window->range.lo & ~(buffer_bytes - 1);
    if (is_buffered && !window->is_hot && window->is_whole)
        find_kept(worker, &worker->engine->staging, worker->buffer->start);
    if (!is_direct)
        window->way = !is_buffered ? WAY_STRAIGHT : has_gaps ? WAY_WANTED : WAY_BUFFER;
    else if (range_bytes(window->had) > 0 || block_is_partly_wanted(&window->clips, &window->extents, LOCAL_WHOLE_PART))
        window->way = WAY_DIRECT;
    else
        window->way = WAY_IN_PLACE;
    return 0;
}

static void put_back_local(struct worker *worker, bool keep)
{
    struct engine *engine = worker->engine;
    if (!keep)
        return;
    pthread_mutex_lock(&engine->lock);
    staging_keep(worker->buffer, worker->item.scan, clock_now_ns());
    worker->buffer = staging_take(&engine->staging, NULL); /* at worst the same one */
    pthread_mutex_unlock(&engine->lock);
}

const struct block_strategy block_local = {.max_window_rows = MAX_WINDOW_ROWS,
                                           .whole_part = LOCAL_WHOLE_PART,
                                           .choose_window_bytes = choose_local_window_bytes,
                                           .choose_buffer = choose_local_buffer,
                                           .put_back = put_back_local};

/* --- stores: as few requests as the gap rule allows, so a window is a whole block ---
 *
 *   an image of it was kept     copied from that, and what it lacks is asked for
 *   only a part is wanted       read into an image, which is kept for ranks that come later
 *   else                        from the socket straight into place, gaps thrown away
 *   too many pieces for that,
 *   elements to convert,        read in windows within the staging budget and copied into place
 *   memory without address, or
 *   a client's beside others' */

static bool find_kept_image(struct worker *worker, uint64_t start)
{
    struct remote_pool *pool = &worker->engine->remote;
    return find_kept(worker, has_address(&worker->item) ? &pool->images : &pool->windows, start);
}

static bool is_needed(const struct staging_buffer *image)
{
    return scan_is_wanted(image->scan, image->start / image->scan->block_bytes);
}

/* Never at the expense of another one that a rank which is here will want: rather is this one thrown away. */
static bool take_image(struct worker *worker, struct range range)
{
    struct engine *engine = worker->engine;
    struct staging *images = &engine->remote.images;
    if (range_bytes(range) > images->buffer_bytes)
        return false;
    pthread_mutex_lock(&engine->lock);
    images->budget_buffers = remote_pool_image_budget(&engine->remote);
    if (images->budget_buffers > 0)
        worker->buffer = staging_take(images, is_needed);
    pthread_mutex_unlock(&engine->lock);
    if (worker->buffer)
        worker->buffer->start = range.lo;
    return worker->buffer != NULL;
}

static uint64_t choose_remote_window_bytes(struct worker *worker, struct range block)
{
    struct window *window = &worker->window;
    uint64_t n_rows = 0;
    window->is_crumbled = false;
    if (!has_address(&worker->item))
        return worker->item.scan->block_bytes;
    for (size_t i = 0; i < worker->item.n_parts && n_rows <= MAX_REMOTE_WINDOW_ROWS; i++)
        n_rows += clip_count_new(&worker->item.parts[i], block, MAX_REMOTE_WINDOW_ROWS + 1);
    if (n_rows > MAX_REMOTE_WINDOW_ROWS) {
        window->is_crumbled = true; /* and its windows are cut where they have too many, too */
        return worker->engine->remote.windows.buffer_bytes;
    }
    clip_collect(&window->clips, &worker->item, block);
    bool goes_through =
        clip_sum_rows(&window->clips) > MAX_PIECES || clip_have_operations(&window->clips) || is_mixed(&worker->item);
    window->is_crumbled = goes_through && !find_kept_image(worker, block.lo) && !take_image(worker, block);
    return window->is_crumbled ? worker->engine->remote.windows.buffer_bytes : worker->item.scan->block_bytes;
}

static int choose_remote_buffer(struct worker *worker, struct error *error)
{
    struct window *window = &worker->window;
    bool is_image = has_address(&worker->item) && window->is_whole;
    bool has_gaps = leaves_gaps(&worker->item, window);
    window->way = has_gaps ? WAY_WANTED : WAY_BUFFER;
    if (worker->buffer || (window->is_whole && find_kept_image(worker, window->range.lo)))
        return 0;
    if (is_image) {
        if (has_gaps || !block_is_partly_wanted(&window->clips, &window->extents, REMOTE_WHOLE_PART) ||
            !take_image(worker, window->range))
            window->way = WAY_STRAIGHT;
        return 0;
    }
    worker->buffer = remote_pool_take_window(&worker->engine->remote, &worker->item);
    if (!worker->buffer)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a staging window of %" PRIu64 " bytes",
                    worker->engine->remote.windows.buffer_bytes);
    worker->buffer->start = window->range.lo;
    return 0;
}

static void put_back_remote(struct worker *worker, bool keep)
{
    struct engine *engine = worker->engine;
    if (!worker->buffer)
        return;
    pthread_mutex_lock(&engine->lock);
    if (keep)
        staging_keep(worker->buffer, worker->item.scan, clock_now_ns());
    else
        staging_give(worker->buffer, clock_now_ns());
    worker->buffer = NULL;
    pthread_cond_signal(&engine->remote.window_free);
    pthread_mutex_unlock(&engine->lock);
}

const struct block_strategy block_remote = {.max_window_rows = MAX_REMOTE_WINDOW_ROWS,
                                            .joins_gaps = true,
                                            .whole_part = REMOTE_WHOLE_PART,
                                            .choose_window_bytes = choose_remote_window_bytes,
                                            .choose_buffer = choose_remote_buffer,
                                            .put_back = put_back_remote};

/* --- windows --- */

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

/* Returns whether anything has to be read. */
static bool collect_window(struct item *item, struct window *window, const struct block_strategy *strategy)
{
    clip_collect(&window->clips, item, window->range);
    extent_collect(&window->extents, item, window->range);
    if (window->extents.n == 0)
        return false;
    const struct part *part = &item->parts[0];
    uint64_t lo = window->extents.list[0].range.lo, bytes = window->extents.list[window->extents.n - 1].range.hi - lo;
    uint64_t cached = part->source->caps.residency ? source_resident_bytes(part->source, part->file, lo, bytes) : 0;
    window->cached_share = (double)cached / (double)bytes;
    window->is_hot = window->cached_share >= HOT_SHARE;
    if (!window->is_hot && provider_take(item, &window->clips))
        extent_keep_wanted(&window->extents, &window->clips, &window->requests);
    window->has_operations = clip_have_operations(&window->clips);
    if (strategy->joins_gaps || item_has_holders(item))
        extent_join(&window->extents, item_has_holders(item) ? UINT64_MAX : part->run->options.plan->merge_gap_bytes);
    return window->extents.n > 0;
}

static void pin_for_devices(const struct item *item, struct staging_buffer *buffer)
{
    for (size_t i = 0; i < item->n_parts; i++) {
        struct device *device = item->parts[i].run->destination->device;
        if (device && device->ops->queue)
            staging_pin(buffer, device);
    }
}

/* For what is converted or turned on its way to memory without an address. Kept like the worker's buffer. */
static void find_scratch(struct worker *worker)
{
    struct engine *engine = worker->engine;
    struct window *window = &worker->window;
    bool goes_through = false;
    for (size_t i = 0; i < worker->item.n_parts; i++)
        goes_through = goes_through || !worker->item.parts[i].run->destination->address || worker->item.parts[i].transport;
    if (!goes_through ||
        (!window->has_operations && clip_sum_bytes(&window->clips) >= clip_sum_rows(&window->clips) * WINDOW_ELEMENT_BYTES))
        return;
    if (!window->scratch) {
        pthread_mutex_lock(&engine->lock);
        if (staging_left(&engine->staging) > 1) /* the last one is for a device that has none */
            window->scratch = staging_take(&engine->staging, NULL);
        pthread_mutex_unlock(&engine->lock);
    }
    if (window->scratch)
        pin_for_devices(&worker->item, window->scratch);
}

/* Reads what the buffer has not got yet, and places everything. */
static int read_through_buffer(struct item *item, struct window *window, struct staging_buffer *buffer, struct error *error)
{
    bool had_some = range_bytes(window->had) > 0;
    window->in_place.n = 0;
    flight_land(&buffer->flight);
    pin_for_devices(item, buffer);
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
    if (window->in_place.n > 0 || window->way == WAY_WANTED)
        return false;
    if (window->is_hot || !window->is_whole || range_bytes(window->had) > 0)
        return window->is_whole && !window->is_hot;
    return block_is_partly_wanted(&window->clips, &window->requests, strategy->whole_part);
}

static void use_temporary(struct item *item, uint64_t bytes, bool begins)
{
    item_use_temporary(item, bytes, begins);
    if (item->collective)
        collective_use_temporary(item->collective, bytes, begins);
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
            use_temporary(item, buffer->home->buffer_bytes, true);
            find_scratch(worker);
            uint64_t scratch_bytes = window->scratch ? window->scratch->home->buffer_bytes : 0;
            use_temporary(item, scratch_bytes, true);
            has_failed = read_through_buffer(item, window, buffer, &error) != 0;
            use_temporary(item, buffer->home->buffer_bytes + scratch_bytes, false);
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

void block_run(struct worker *worker)
{
    struct item *item = &worker->item;
    struct window *window = &worker->window;
    const struct part *first = &item->parts[0];
    const struct block_strategy *strategy = item->is_remote ? &block_remote : &block_local;
    uint64_t file_bytes = first->source->files[first->file].size_bytes, lo = item->block * item->scan->block_bytes;
    struct range block = {lo, lo + item->scan->block_bytes < file_bytes ? lo + item->scan->block_bytes : file_bytes};
    for (size_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].run->destination->address)
            place_prepare_range(&item->parts[i], block);
    uint64_t window_bytes = strategy->choose_window_bytes(worker, block);
    for (; lo < block.hi; lo = window->range.hi) {
        uint64_t limit = (lo / window_bytes + 1) * window_bytes;
        limit = limit < block.hi ? limit : block.hi;
        window->range = (struct range){lo, limit};
        window->range.hi = find_window_end(item, window->range, strategy->max_window_rows);
        window->is_whole = !window->is_crumbled && lo % window_bytes == 0 && window->range.hi == limit;
        run_window(worker, strategy);
    }
    if (item->is_remote)
        source_speed(first->source, &worker->speed);
    item_share_time(item);
    item_share_ways(item);
}
