/* The only code that writes into segments, but for reads that land there by themselves (scatter.c); see place.h. */
#include "execute/place.h"

#include "base/clock.h"
#include "device/huge_pages.h"
#include "transport/transport.h"

static bool is_ready(const struct run *run, uint64_t first, uint64_t last)
{
    for (uint64_t chunk = first; chunk <= last; chunk++)
        if (!__atomic_load_n(&run->ready[chunk], __ATOMIC_RELAXED))
            return false;
    return true;
}

bool place_prepare(struct part *part, uint64_t offset, uint64_t bytes)
{
    struct run *run = part->run;
    uint64_t first = offset / HUGE_PAGE_BYTES, last = (offset + bytes - 1) / HUGE_PAGE_BYTES;
    if (part->has_failed)
        return false;
    if (is_ready(run, first, last))
        return true;
    uint64_t started_ns = clock_now_ns();
    part->has_failed = device_prepare(run->options.segment, offset, bytes, &part->error) != 0;
    part->report.prepare_ns += clock_now_ns() - started_ns;
    for (uint64_t chunk = first; chunk <= last && !part->has_failed; chunk++)
        __atomic_store_n(&run->ready[chunk], 1, __ATOMIC_RELAXED);
    return !part->has_failed;
}

static int deliver_rows(struct part *part, uint64_t dst_offset, const unsigned char *src, const struct rows *rows)
{
    const struct transport_delivery delivery = {.owner = part->owner,
                                                .rank = part->run->options.rank,
                                                .segment = part->run->options.segment,
                                                .offset = dst_offset,
                                                .src = src,
                                                .rows = {rows->bytes, rows->count, rows->stride, rows->bytes},
                                                .file = part->file,
                                                .source_offset = rows->offset};
    return transport_deliver(part->transport, &delivery, &part->error);
}

/* Within one rank a copy, by the device's copy engine where memory has no host address; to a peer of a collective, whatever
 * its transport does. */
static bool move_rows(struct part *part, uint64_t dst_offset, const unsigned char *src, const struct rows *rows)
{
    struct segment *segment = part->run->options.segment;
    const struct device_rows packed = {rows->bytes, rows->count, rows->stride, rows->bytes};
    if (part->has_failed)
        return false;
    if (part->transport)
        part->has_failed = deliver_rows(part, dst_offset, src, rows) != 0;
    else if (segment->host_address)
        device_rows_copy((unsigned char *)segment->host_address + dst_offset, src, &packed);
    else
        part->has_failed = device_copy(segment, dst_offset, src, &packed, &part->error) != 0;
    return !part->has_failed;
}

bool place_rows(struct part *part, uint64_t dst_offset, const unsigned char *src, struct rows rows)
{
    uint64_t bytes = rows.count * rows.bytes;
    if (part->run->options.segment->host_address && !place_prepare(part, dst_offset, bytes))
        return false;
    if (!move_rows(part, dst_offset, src, &rows))
        return false;
    part->placed_bytes += bytes;
    part->report.copied_bytes += bytes;
    return true;
}

bool place_copy(struct part *part, unsigned char *dst, const unsigned char *src, uint64_t bytes)
{
    uint64_t dst_offset = (uint64_t)(dst - (unsigned char *)part->run->options.segment->host_address);
    if (!move_rows(part, dst_offset, src, &(struct rows){TRANSPORT_UNKNOWN, bytes, 1, bytes}))
        return false;
    part->placed_bytes += bytes;
    part->report.copied_bytes += bytes;
    return true;
}
