/* Blocks of stores, asked for in as few requests as the gap rule allows: a window is a whole block.
 *
 *   an image of it was kept     copied from that, and what it lacks is asked for
 *   only a part is wanted       read into an image, which is kept for ranks that come later
 *   else                        from the socket straight into place, gaps thrown away
 *   too many pieces for that,
 *   elements to convert,        read in windows within the staging budget and copied into place
 *   memory without address, or
 *   a client's beside others' */
#include <inttypes.h>

#include "base/clock.h"
#include "execute/block.h"
#include "execute/clip.h"
#include "execute/engine_private.h"

enum {
    MAX_WINDOW_ROWS = 64 << 10, /* each worker keeps lists of them: what clients ask for must not make those large */
    MAX_PIECES = 8 << 10,       /* that a socket may write into; their lists are memory, too, times all requests in flight */
    WHOLE_PART = 64,
};

/* Runs with and without one meet where windows are as large as blocks. */
static bool has_address(const struct item *item)
{
    for (size_t i = 0; i < item->n_parts; i++)
        if (!item->parts[i].run->destination->address)
            return false;
    return true;
}

static bool find_kept_image(struct worker *worker, uint64_t start)
{
    struct engine *engine = worker->engine;
    struct staging *home = has_address(&worker->item) ? &engine->remote.images : &engine->remote.windows;
    pthread_mutex_lock(&engine->lock);
    worker->buffer = staging_find(home, worker->item.scan, start);
    pthread_mutex_unlock(&engine->lock);
    if (worker->buffer)
        worker->window.had = worker->buffer->range;
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
    if (range_bytes(range) > images->buffer_bytes)
        return false;
    pthread_mutex_lock(&engine->lock);
    images->budget_buffers = remote_pool_image_budget(&engine->remote);
    if (images->budget_buffers > 0)
        worker->buffer = staging_take_sparing(images, is_needed);
    pthread_mutex_unlock(&engine->lock);
    if (worker->buffer)
        worker->buffer->start = range.lo;
    return worker->buffer != NULL;
}

static bool has_too_many_rows(const struct item *item, struct range block)
{
    uint64_t n_rows = 0;
    for (size_t i = 0; i < item->n_parts && n_rows <= MAX_WINDOW_ROWS; i++)
        n_rows += clip_count_new(&item->parts[i], block, MAX_WINDOW_ROWS + 1);
    return n_rows > MAX_WINDOW_ROWS;
}

static uint64_t choose_remote_window_bytes(struct worker *worker, struct range block)
{
    struct window *window = &worker->window;
    window->is_crumbled = false;
    if (!has_address(&worker->item))
        return worker->item.scan->block_bytes;
    if (has_too_many_rows(&worker->item, block)) {
        window->is_crumbled = true; /* and its windows are cut where they have too many, too */
        return worker->engine->remote.windows.buffer_bytes;
    }
    clip_collect(&window->clips, &worker->item, block);
    bool goes_through =
        clip_sum_rows(&window->clips) > MAX_PIECES || clip_have_operations(&window->clips) || block_is_mixed(&worker->item);
    window->is_crumbled = goes_through && !find_kept_image(worker, block.lo) && !take_image(worker, block);
    return window->is_crumbled ? worker->engine->remote.windows.buffer_bytes : worker->item.scan->block_bytes;
}

static int choose_remote_buffer(struct worker *worker, struct error *error)
{
    struct window *window = &worker->window;
    bool is_image = has_address(&worker->item) && window->is_whole;
    window->way = WAY_BUFFER;
    if (worker->buffer || (window->is_whole && find_kept_image(worker, window->range.lo)))
        return 0;
    if (is_image) {
        if (!block_is_partly_wanted(&window->clips, &window->extents, WHOLE_PART) || !take_image(worker, window->range))
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

const struct block_strategy block_remote = {.max_window_rows = MAX_WINDOW_ROWS,
                                            .joins_gaps = true,
                                            .whole_part = WHOLE_PART,
                                            .choose_window_bytes = choose_remote_window_bytes,
                                            .choose_buffer = choose_remote_buffer,
                                            .put_back = put_back_remote};
