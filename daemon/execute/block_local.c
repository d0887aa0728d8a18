/* Blocks of devices and mounts: windows as large as a staging buffer.
 *
 *   in the page cache     buffered reads straight into place; many short rows, and what is converted, through the buffer
 *   not there             past the page cache into the buffer, or into one that was kept of this window
 *   source cannot do that as if cached
 *
 * A worker keeps its buffer from block to block; it is trash for gaps where reads go straight into place. */
#include "base/clock.h"
#include "execute/block.h"
#include "execute/clip.h"
#include "execute/engine_private.h"

enum {
    MAX_WINDOW_ROWS = 32 << 10,
    SHORT_ROW_BYTES = 1024, /* below, a buffer in a preadv costs more than a second copy */
};

static uint64_t choose_local_window_bytes(struct worker *worker, struct range block)
{
    (void)block;
    worker->window.is_crumbled = false;
    return worker->engine->staging.buffer_bytes;
}

static bool wants_staging(const struct item *item, const struct window *window)
{
    const struct clips *clips = &window->clips;
    if (window->has_operations || block_is_mixed(item))
        return true;
    for (size_t i = 0; i < item->n_parts; i++)
        if (!item->parts[i].run->destination->address)
            return true;
    return clip_sum_bytes(clips) < clip_sum_rows(clips) * SHORT_ROW_BYTES;
}

static bool can_read_direct(const struct source_caps *caps, uint64_t buffer_bytes)
{
    uint64_t alignment = caps->direct_offset_alignment;
    return caps->direct_reads && alignment > 0 && (alignment & (alignment - 1)) == 0 && alignment <= buffer_bytes &&
           caps->direct_memory_alignment <= buffer_bytes;
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

/* Swaps the worker's buffer for one that has been kept of this window. */
static void find_kept_window(struct worker *worker)
{
    struct engine *engine = worker->engine;
    pthread_mutex_lock(&engine->lock);
    struct staging_buffer *kept = staging_find(&engine->staging, worker->item.scan, worker->buffer->start);
    if (kept) {
        staging_give(worker->buffer, clock_now_ns());
        worker->buffer = kept;
        worker->window.had = kept->range;
    }
    pthread_mutex_unlock(&engine->lock);
}

static int choose_local_buffer(struct worker *worker, struct error *error)
{
    struct window *window = &worker->window;
    uint64_t buffer_bytes = worker->engine->staging.buffer_bytes;
    (void)error;
    bool is_direct = !window->is_hot && can_read_direct(&worker->item.parts[0].source->caps, buffer_bytes);
    bool is_buffered = is_direct || wants_staging(&worker->item, window);
    take_landed_buffer(worker);
    worker->buffer->start = window->range.lo & ~(buffer_bytes - 1);
    if (is_buffered && !window->is_hot && window->is_whole)
        find_kept_window(worker);
    if (!is_direct)
        window->way = is_buffered ? WAY_BUFFER : WAY_STRAIGHT;
    else if (range_bytes(window->had) > 0 ||
             block_is_partly_wanted(&window->clips, &window->extents, block_local.whole_part))
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
    worker->buffer = staging_take(&engine->staging); /* at worst the same one */
    pthread_mutex_unlock(&engine->lock);
}

const struct block_strategy block_local = {.max_window_rows = MAX_WINDOW_ROWS,
                                           .whole_part = 8,
                                           .choose_window_bytes = choose_local_window_bytes,
                                           .choose_buffer = choose_local_buffer,
                                           .put_back = put_back_local};
