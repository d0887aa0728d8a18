/* See remote_block.h. A read that fails, or is interrupted since nobody waits for it, fails the parts that it was for. */
#include "execute/remote_block.h"

#include <inttypes.h>

#include "base/clock.h"
#include "execute/block.h"
#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/flight.h"
#include "execute/gather.h"
#include "execute/provider.h"
#include "execute/remote_pool.h"
#include "execute/scan.h"
#include "execute/scatter.h"

/* Pieces of a block that a socket may write into; their lists are memory, too, times all requests in flight. */
enum { MAX_PIECES = 8 << 10 };

struct range { /* of the file */
    uint64_t lo, hi;
};

static struct range block_range(const struct worker *worker)
{
    const struct part *first = &worker->parts[0];
    uint64_t block_bytes = first->run->block_bytes, file_bytes = first->source->files[first->file].size_bytes;
    struct range range = {worker->block * block_bytes, (worker->block + 1) * block_bytes};
    range.hi = range.hi < file_bytes ? range.hi : file_bytes;
    return range;
}

static void collect_extents(struct worker *worker, struct range range, bool only_clips)
{
    extent_collect(worker, range.lo, range.hi, only_clips);
    extent_join(worker, worker->parts[0].run->options.plan->merge_gap_bytes);
}

/* What has to be read of the range, after other replicas have given what they hold. */
static bool collect(struct worker *worker, struct range range)
{
    clip_collect(worker, range.lo, range.hi);
    collect_extents(worker, range, false);
    if (worker->n_extents > 0 && provider_take(worker))
        collect_extents(worker, range, true);
    return worker->n_extents > 0;
}

static uint64_t count_pieces(const struct worker *worker)
{
    uint64_t n_pieces = 0;
    for (size_t i = 0; i < worker->n_clips; i++)
        n_pieces += worker->clips[i].src.count;
    return n_pieces;
}

/* The rest is other ranks' share, more likely than not: of the last of many, when it comes late. */
static bool is_partly_wanted(const struct worker *worker)
{
    uint64_t wanted_bytes = 0, read_bytes = 0;
    for (size_t i = 0; i < worker->n_clips; i++)
        wanted_bytes += clip_bytes(&worker->clips[i]);
    for (size_t i = 0; i < worker->n_extents; i++)
        read_bytes += worker->extents[i].hi - worker->extents[i].lo;
    return wanted_bytes < read_bytes / 64 * 63;
}

static bool has_address(const struct worker *worker)
{
    return worker->parts[0].run->options.segment->host_address != NULL;
}

/* Where the worker's buffer comes from and goes back to. */
static struct staging *staging_of(const struct worker *worker)
{
    struct remote_pool *pool = &worker->engine->remote;
    return has_address(worker) ? &pool->images : &pool->windows;
}

/* --- the buffer is an image of a range ------------------------------------------------------------------------------ */

static struct range longest_request(const struct worker *worker)
{
    struct range longest = {0, 0};
    for (size_t i = 0; i < worker->n_requests; i++)
        if (worker->requests[i].hi - worker->requests[i].lo > longest.hi - longest.lo)
            longest = (struct range){worker->requests[i].lo, worker->requests[i].hi};
    return longest;
}

static void put_back(struct worker *worker, bool keep)
{
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    if (keep)
        staging_keep(staging_of(worker), worker->buffer, worker->scan, clock_now_ns());
    else
        staging_give(staging_of(worker), worker->buffer, clock_now_ns());
    worker->buffer = NULL;
    pthread_cond_signal(&engine->remote.window_free);
    pthread_mutex_unlock(&engine->lock);
}

/* Devices that copy out of it by themselves are done with it, and may do so again. */
static void ready_buffer(struct worker *worker)
{
    flight_land(&worker->buffer->flight);
    for (size_t i = 0; i < worker->n_parts; i++) {
        struct device *device = worker->parts[i].run->options.segment->device;
        if (device->ops->queue)
            staging_pin(staging_of(worker), worker->buffer, device);
    }
}

/* Reads the extents into the buffer and places all clips; `had` is valid in it already. */
static int read_into_buffer(struct worker *worker, struct range had, struct error *error)
{
    ready_buffer(worker);
    extent_charge(worker, 0);
    if (gather_read(worker, false, error))
        return -1;
    if (had.hi > had.lo)
        extent_add_request(worker, had.lo, had.hi);
    gather_place(worker);
    return 0;
}

static void use_buffer(struct worker *worker, struct range had)
{
    struct error error;
    uint64_t bytes = staging_of(worker)->buffer_bytes;
    bool keep = had.hi > had.lo || is_partly_wanted(worker);
    block_use_temporary(worker, bytes, true);
    bool failed = read_into_buffer(worker, had, &error) != 0;
    block_use_temporary(worker, bytes, false);
    struct range valid = longest_request(worker);
    worker->buffer->range = (struct staging_range){valid.lo, valid.hi};
    if (failed)
        block_fail_parts(worker, &error);
    put_back(worker, keep && !failed);
}

static bool find_kept(struct worker *worker, uint64_t start)
{
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    worker->buffer = staging_find(staging_of(worker), worker->scan, start);
    pthread_mutex_unlock(&engine->lock);
    return worker->buffer != NULL;
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
    if (range.hi - range.lo > images->buffer_bytes)
        return false;
    pthread_mutex_lock(&engine->lock);
    images->budget_buffers = remote_pool_image_budget(engine);
    if (images->budget_buffers > 0)
        worker->buffer = staging_take_sparing(images, is_needed);
    pthread_mutex_unlock(&engine->lock);
    if (worker->buffer)
        worker->buffer->start = range.lo;
    return worker->buffer != NULL;
}

static void complete_kept(struct worker *worker)
{
    struct range had = {worker->buffer->range.lo, worker->buffer->range.hi};
    extent_subtract(worker, had.lo, had.hi);
    use_buffer(worker, had);
}

/* --- windows -------------------------------------------------------------------------------------------------------- */

static void take_window(struct worker *worker, uint64_t start)
{
    struct error error;
    worker->buffer = remote_pool_take_window(worker);
    if (worker->buffer) {
        worker->buffer->start = start;
        return;
    }
    fail(&error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a staging window of %" PRIu64 " bytes",
         worker->engine->remote.windows.buffer_bytes);
    block_fail_parts(worker, &error);
}

/* The range is a block, of memory without an address. */
static void run_window_block(struct worker *worker, struct range range)
{
    if (!collect(worker, range))
        return;
    if (find_kept(worker, range.lo)) {
        complete_kept(worker);
        return;
    }
    take_window(worker, range.lo);
    if (worker->buffer)
        use_buffer(worker, (struct range){0, 0});
}

/* A block that is too crumbled to be read in place. */
static void run_windows(struct worker *worker, struct range range)
{
    struct error error;
    uint64_t window_bytes = worker->engine->remote.windows.buffer_bytes;
    for (struct range window = {range.lo, 0}; window.lo < range.hi; window.lo = window.hi) {
        window.hi = (window.lo / window_bytes + 1) * window_bytes;
        window.hi = window.hi < range.hi ? window.hi : range.hi;
        if (!collect(worker, window))
            continue;
        take_window(worker, window.lo);
        if (!worker->buffer)
            return;
        block_use_temporary(worker, window_bytes, true);
        if (read_into_buffer(worker, (struct range){0, 0}, &error))
            block_fail_parts(worker, &error);
        block_use_temporary(worker, window_bytes, false);
        remote_pool_give_window(worker);
    }
}

/* --- the block ------------------------------------------------------------------------------------------------------ */

static void run_direct(struct worker *worker)
{
    struct error error;
    extent_charge(worker, 0);
    if (scatter_window(worker, &error))
        block_fail_parts(worker, &error);
}

static void run_block(struct worker *worker, struct range range)
{
    clip_collect(worker, range.lo, range.hi);
    bool is_crumbled = count_pieces(worker) > MAX_PIECES, was_kept = find_kept(worker, range.lo);
    if (is_crumbled && !was_kept && !take_image(worker, range)) {
        run_windows(worker, range);
        return;
    }
    bool has_work = collect(worker, range);
    if (has_work && !worker->buffer && is_partly_wanted(worker))
        take_image(worker, range);
    if (!has_work && worker->buffer)
        put_back(worker, was_kept);
    else if (has_work && was_kept)
        complete_kept(worker);
    else if (has_work && worker->buffer)
        use_buffer(worker, (struct range){0, 0});
    else if (has_work)
        run_direct(worker);
}

void remote_block_run(struct worker *worker)
{
    struct range range = block_range(worker);
    worker->read_ns = worker->copy_ns = 0;
    if (has_address(worker)) {
        for (size_t i = 0; i < worker->n_parts; i++)
            block_prepare_part(&worker->parts[i], range.lo, range.hi);
        run_block(worker, range);
    } else {
        run_window_block(worker, range);
    }
    source_speed(worker->parts[0].source, &worker->speed);
    block_share_time(worker);
}
