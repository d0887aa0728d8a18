/* Copies a window's clips out of other runs' memory; see provider.h.
 *
 * A provider has placed everything it needed of the block, and its bytes cannot change: its segment is either published and
 * sealed, or written elsewhere only. Memory of a client is none: its owner may write anything there. Its transfers are found
 * by binary search; only copies count. A contiguous clip is put together from as many providers as it takes; rows are taken
 * when one provider has all of them. */
#include "execute/provider.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "execute/clip.h"
#include "execute/engine_private.h"
#include "execute/flight.h"
#include "execute/place.h"
#include "device/transport.h"

enum {
    MAX_PROVIDERS = 16,      /* newest first; the same tensors in more replicas than this are read again */
    MAX_CANDIDATES = 64,     /* of a provider's transfers, where they interleave */
    WORTH_COPYING = 4 << 10, /* shorter rows are cheaper to read again than to look up one by one */
};

struct providers {
    struct provider {
        struct run *run;
        uint32_t file;
    } list[MAX_PROVIDERS];
    size_t n;
};

/* Runs that have finished this block. */
static void pin_providers(struct providers *providers, const struct item *item)
{
    pthread_mutex_lock(&item->engine->lock);
    for (const struct member *member = item->scan->members; member && providers->n < MAX_PROVIDERS; member = member->next) {
        struct run *run = member->run;
        if (run->is_leaving || !run->destination->address || run->destination->is_lent || !scan_is_done(member, item->block))
            continue;
        providers->list[providers->n++] = (struct provider){run, run->needs.list[member->first_need].file};
        run->pins++;
    }
    pthread_mutex_unlock(&item->engine->lock);
}

static void unpin_providers(struct providers *providers, struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < providers->n; i++)
        providers->list[i].run->pins--;
    pthread_cond_broadcast(&engine->unpinned);
    pthread_mutex_unlock(&engine->lock);
}

/* The transfers of a provider that may hold `at`, as it is: from `i` on, the first that ends behind it. Where they interleave
 * a few are looked at: one that has the byte, if there is any, else the next. */
static const struct transfer *find_transfer(const struct provider *provider, uint64_t at)
{
    const struct mapping *mapping = provider->run->options.mapping;
    size_t first = mapping_find(mapping, provider->file, at), end = mapping->file_first[provider->file + 1];
    const struct transfer *found = NULL;
    for (size_t i = first; i < end && i - first < MAX_CANDIDATES; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        struct rows rows = rows_of_transfer(transfer);
        if (transfer->operation || rows_end(&rows) <= at)
            continue;
        if (rows_next(&rows, at) == at)
            return transfer;
        found = found && found->src_offset <= transfer->src_offset ? found : transfer;
        if (transfer->src_offset > at)
            break;
    }
    return found;
}

/* Where the provider has byte `at`, which is in a row of this transfer. */
static const unsigned char *address_of(const struct provider *provider, const struct transfer *transfer, uint64_t at)
{
    struct rows rows = rows_of_transfer(transfer);
    uint64_t row = (at - rows.offset) / rows.stride, skip = (at - rows.offset) % rows.stride;
    return (const unsigned char *)provider->run->destination->address + transfer->dst_offset + row * transfer->dst_stride +
           skip;
}

/* Where the provider holds byte `at`, and how many bytes follow it there; NULL when it does not, and then `next` moves down
 * to where it may hold something again. */
static const unsigned char *find_bytes(const struct provider *provider, uint64_t at, uint64_t *bytes, uint64_t *next)
{
    const struct transfer *transfer = find_transfer(provider, at);
    if (!transfer)
        return NULL;
    struct rows rows = rows_of_transfer(transfer);
    uint64_t start = rows_next(&rows, at);
    if (start > at || transfer->row_bytes < WORTH_COPYING) {
        uint64_t resume = start > at ? start : rows_end(&rows);
        *next = resume < *next ? resume : *next;
        return NULL;
    }
    *bytes = rows.bytes - (at - rows.offset) % rows.stride;
    return address_of(provider, transfer, at);
}

/* What of a contiguous clip was nowhere in memory. */
static void add_rest(struct clips *clips, const struct clip *clip, uint64_t lo, uint64_t hi)
{
    if (lo < hi)
        clip_add(clips, (struct clip){.src = {lo, hi - lo, 1, hi - lo},
                                      .dst_offset = clip->dst_offset + (lo - clip->src.offset),
                                      .dst_stride = (int64_t)(hi - lo),
                                      .part = clip->part});
}

static void copy_span(const struct providers *providers, struct part *part, struct clips *clips, const struct clip *clip)
{
    uint64_t at = clip->src.offset, end = at + clip->src.bytes, unread = at;
    while (at < end && !part->has_failed) {
        uint64_t bytes = 0, next = end;
        const unsigned char *src = NULL;
        for (size_t i = 0; !src && i < providers->n; i++)
            src = find_bytes(&providers->list[i], at, &bytes, &next);
        if (!src) {
            at = next;
            continue;
        }
        bytes = bytes < end - at ? bytes : end - at;
        add_rest(clips, clip, unread, at);
        if (place_rows(part, clip->dst_offset + (at - clip->src.offset), src, &(struct device_rows){bytes, 1, bytes, bytes},
                       at))
            part->report.shared_bytes += bytes;
        at += bytes;
        unread = at;
    }
    add_rest(clips, clip, unread, end);
}

/* Whether a transfer of the provider holds all of these rows; then where the first is and how far apart they are there. */
static const unsigned char *find_rows(const struct provider *provider, const struct rows *rows, uint64_t *stride)
{
    const struct transfer *transfer = find_transfer(provider, rows->offset);
    if (!transfer || transfer->src_offset > rows->offset || transfer_end(transfer) < rows_end(rows))
        return NULL;
    struct rows theirs = rows_of_transfer(transfer);
    uint64_t skip = (rows->offset - theirs.offset) % theirs.stride;
    bool is_contiguous = theirs.count == 1;
    if (!is_contiguous && (theirs.stride != rows->stride || skip + rows->bytes > theirs.bytes))
        return NULL;
    *stride = is_contiguous ? rows->stride : (uint64_t)transfer->dst_stride;
    return address_of(provider, transfer, rows->offset);
}

static void copy_rows(const struct providers *providers, struct part *part, struct clips *clips, const struct clip *clip)
{
    for (size_t i = 0; i < providers->n; i++) {
        uint64_t stride;
        const unsigned char *src = find_rows(&providers->list[i], &clip->src, &stride);
        if (!src)
            continue;
        const struct device_rows rows = {clip->src.bytes, clip->src.count, stride, (uint64_t)clip->dst_stride};
        if (place_rows(part, clip->dst_offset, src, &rows, TRANSPORT_UNKNOWN))
            part->report.shared_bytes += clip_bytes(clip);
        return;
    }
    clip_add(clips, *clip);
}

/* The rests are added behind all clips, which are dropped at the end. */
static void copy_clips(const struct providers *providers, struct item *item, struct clips *clips)
{
    size_t n_all = clips->n;
    for (size_t i = 0; i < n_all; i++) {
        const struct clip clip = clips->list[i];
        struct part *part = &item->parts[clip.part];
        if (clip.operation) /* what others have is not converted, or otherwise */
            clip_add(clips, clip);
        else if (clip.src.count == 1)
            copy_span(providers, part, clips, &clip);
        else
            copy_rows(providers, part, clips, &clip);
    }
    clips->n -= n_all;
    if (clips->n)
        memmove(clips->list, clips->list + n_all, clips->n * sizeof *clips->list);
}

bool provider_take(struct item *item, struct clips *clips)
{
    const size_t shared_bytes = offsetof(struct run_report, shared_bytes);
    struct providers providers = {.n = 0};
    struct flight copies = {0};
    pin_providers(&providers, item);
    if (providers.n == 0)
        return false;
    uint64_t started_ns = clock_now_ns(), shared_before = item_sum_reports(item, shared_bytes);
    copy_clips(&providers, item, clips);
    flight_begin(&copies, item); /* out of memory that is only ours while it is pinned */
    flight_land(&copies);
    item->copy_ns += clock_now_ns() - started_ns;
    unpin_providers(&providers, item->engine);
    return item_sum_reports(item, shared_bytes) > shared_before;
}
