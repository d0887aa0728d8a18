/* Copies a window's clips out of other runs' segments; see provider.h.
 *
 * A provider has placed everything it needed of the block, and its bytes cannot change: its segment is either published
 * and sealed, or written elsewhere only. Its runs are found by binary search. A contiguous clip is put together from as
 * many providers as it takes; rows are taken when one provider has all of them. */
#include "execute/provider.h"

#include "base/clock.h"
#include "base/memory.h"
#include "execute/clip.h"
#include "execute/flight.h"
#include "execute/place.h"
#include "execute/scan.h"
#include "transport/transport.h"

enum {
    MAX_PROVIDERS = 16,      /* newest first; the same tensors in more replicas than this are read again */
    WORTH_COPYING = 4 << 10, /* shorter rows are cheaper to read again than to look up one by one */
};

/* Under the lock: runs that have finished this block. */
static bool pin(struct worker *worker)
{
    worker->n_providers = 0;
    for (struct member *member = worker->scan->members; member && worker->n_providers < MAX_PROVIDERS;
         member = member->next) {
        struct run *run = member->run;
        if (run->is_leaving || !run->options.segment->host_address || !scan_is_done(member, worker->block))
            continue;
        ARRAY_RESERVE(worker->providers, worker->n_providers, worker->providers_room);
        worker->providers[worker->n_providers++] = (struct provider){run, run->needs[member->first_need].file};
        run->pins++;
    }
    return worker->n_providers > 0;
}

/* Under the lock. */
static void unpin(struct worker *worker)
{
    for (size_t i = 0; i < worker->n_providers; i++)
        worker->providers[i].run->pins--;
    if (worker->n_providers)
        pthread_cond_broadcast(&worker->engine->unpinned);
    worker->n_providers = 0;
}

/* The byte run of a provider that may hold `at`, NULL when it has none. */
static const struct transfer *find_run(const struct provider *provider, uint64_t at)
{
    const struct mapping *mapping = provider->run->options.mapping;
    size_t i = clip_find_run(mapping, provider->file, at);
    return i < mapping->file_first[provider->file + 1] ? &mapping->transfers[i] : NULL;
}

/* Where the provider holds byte `at`, and how many bytes follow it there; NULL when it does not, and then `next` moves down
 * to where it may hold something again. */
static const unsigned char *find_bytes(const struct provider *provider, uint64_t at, uint64_t *bytes, uint64_t *next)
{
    const struct transfer *run = find_run(provider, at);
    if (!run)
        return NULL;
    struct rows rows = rows_of_transfer(run);
    uint64_t start = rows_next(&rows, at);
    if (start > at || run->row_bytes < WORTH_COPYING) {
        uint64_t resume = start > at ? start : rows_end(&rows);
        *next = resume < *next ? resume : *next;
        return NULL;
    }
    uint64_t row = (at - rows.offset) / rows.stride, skip = (at - rows.offset) % rows.stride;
    *bytes = rows.bytes - skip;
    return (const unsigned char *)provider->run->options.segment->host_address + run->dst_offset + row * rows.bytes + skip;
}

static void add_rest(struct worker *worker, const struct clip *clip, uint64_t lo, uint64_t hi)
{
    struct clip rest = *clip;
    if (lo >= hi)
        return;
    if (clip->src.count == 1)
        rest = (struct clip){{lo, hi - lo, 1, hi - lo}, clip->dst_offset + (lo - clip->src.offset), clip->part};
    ARRAY_RESERVE(worker->rest, worker->n_rest, worker->rest_room);
    worker->rest[worker->n_rest++] = rest;
}

static void copy_span(struct worker *worker, const struct clip *clip)
{
    uint64_t at = clip->src.offset, end = at + clip->src.bytes, unread = at;
    struct part *part = &worker->parts[clip->part];
    while (at < end && !part->has_failed) {
        uint64_t bytes = 0, next = end;
        const unsigned char *src = NULL;
        for (size_t i = 0; !src && i < worker->n_providers; i++)
            src = find_bytes(&worker->providers[i], at, &bytes, &next);
        if (!src) {
            at = next;
            continue;
        }
        bytes = bytes < end - at ? bytes : end - at;
        add_rest(worker, clip, unread, at);
        if (place_rows(part, clip->dst_offset + (at - clip->src.offset), src, (struct rows){at, bytes, 1, bytes}))
            part->report.shared_bytes += bytes;
        at += bytes;
        unread = at;
    }
    add_rest(worker, clip, unread, end);
}

/* Whether the provider's run holds all of these rows; then where the first is and how far apart they are there. */
static const unsigned char *find_rows(const struct provider *provider, const struct rows *rows, uint64_t *stride)
{
    const struct transfer *run = find_run(provider, rows->offset);
    if (!run || run->src_offset > rows->offset || transfer_end(run) < rows_end(rows))
        return NULL;
    struct rows theirs = rows_of_transfer(run);
    uint64_t row = (rows->offset - theirs.offset) / theirs.stride, skip = (rows->offset - theirs.offset) % theirs.stride;
    bool is_contiguous = theirs.count == 1;
    if (!is_contiguous && (theirs.stride != rows->stride || skip + rows->bytes > theirs.bytes))
        return NULL;
    *stride = is_contiguous ? rows->stride : theirs.bytes;
    return (const unsigned char *)provider->run->options.segment->host_address + run->dst_offset + row * theirs.bytes + skip;
}

static void copy_rows(struct worker *worker, const struct clip *clip)
{
    struct part *part = &worker->parts[clip->part];
    for (size_t i = 0; i < worker->n_providers; i++) {
        uint64_t stride;
        const unsigned char *src = find_rows(&worker->providers[i], &clip->src, &stride);
        if (!src)
            continue;
        if (place_rows(part, clip->dst_offset, src,
                       (struct rows){TRANSPORT_UNKNOWN, clip->src.bytes, clip->src.count, stride}))
            part->report.shared_bytes += clip_bytes(clip);
        return;
    }
    add_rest(worker, clip, clip->src.offset, rows_end(&clip->src));
}

static uint64_t sum_shared(const struct worker *worker)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < worker->n_parts; i++)
        sum += worker->parts[i].report.shared_bytes;
    return sum;
}

/* False when they had nothing. */
static bool copy_from_pinned(struct worker *worker)
{
    uint64_t shared_before = sum_shared(worker);
    worker->n_rest = 0;
    for (size_t i = 0; i < worker->n_clips; i++) {
        const struct clip *clip = &worker->clips[i];
        if (clip->src.count == 1)
            copy_span(worker, clip);
        else
            copy_rows(worker, clip);
    }
    struct clip *clips = worker->clips;
    size_t room = worker->clips_room;
    worker->clips = worker->rest;
    worker->clips_room = worker->rest_room;
    worker->n_clips = worker->n_rest;
    worker->rest = clips;
    worker->rest_room = room;
    return sum_shared(worker) > shared_before;
}

bool provider_take(struct worker *worker)
{
    pthread_mutex_t *lock = &worker->engine->lock;
    struct flight copies = {0};
    pthread_mutex_lock(lock);
    bool found = pin(worker);
    pthread_mutex_unlock(lock);
    if (!found)
        return false;
    uint64_t started_ns = clock_now_ns();
    found = copy_from_pinned(worker);
    flight_begin(&copies, worker); /* out of memory that is only ours while it is pinned */
    flight_land(&copies);
    worker->copy_ns += clock_now_ns() - started_ns;
    pthread_mutex_lock(lock);
    unpin(worker);
    pthread_mutex_unlock(lock);
    return found;
}
