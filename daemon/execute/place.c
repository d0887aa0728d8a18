/* The only code that writes into segments, but for reads that land there by themselves (scatter.c); see place.h. */
#include "execute/place.h"

#include "base/clock.h"
#include "base/copy.h"
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

/* Memory without a host address: the backend's copy engine fetches the rows, for a peer of a collective, too. */
static bool queue_rows(struct part *part, uint64_t dst_offset, const unsigned char *src, const struct rows *rows)
{
    struct device_rows from = {rows->bytes, rows->count, rows->stride};
    if (!part->has_failed)
        part->has_failed = device_copy(part->run->options.segment, dst_offset, src, &from, &part->error) != 0;
    return !part->has_failed;
}

static void copy_rows(unsigned char *dst, const unsigned char *src, const struct rows *rows)
{
    for (uint64_t row = 0; row < rows->count; row++)
        copy_streaming(dst + row * rows->bytes, src + row * rows->stride, rows->bytes);
}

/* Within one rank a copy; to a peer of a collective, whatever its transport does. */
static bool move_rows(struct part *part, unsigned char *dst, const unsigned char *src, const struct rows *rows)
{
    if (!part->transport) {
        copy_rows(dst, src, rows);
        return true;
    }
    struct transport_delivery delivery = {part->owner, part->run->options.rank, dst,         src,
                                          rows->bytes, rows->count,             rows->stride};
    part->has_failed = transport_deliver(part->transport, &delivery, &part->error) != 0;
    return !part->has_failed;
}

bool place_rows(struct part *part, uint64_t dst_offset, const unsigned char *src, struct rows rows)
{
    struct segment *segment = part->run->options.segment;
    uint64_t bytes = rows.count * rows.bytes;
    if (!segment->host_address) {
        if (!queue_rows(part, dst_offset, src, &rows))
            return false;
    } else {
        if (!place_prepare(part, dst_offset, bytes))
            return false;
        if (!move_rows(part, (unsigned char *)segment->host_address + dst_offset, src, &rows))
            return false;
    }
    part->placed_bytes += bytes;
    part->report.copied_bytes += bytes;
    return true;
}

bool place_copy(struct part *part, unsigned char *dst, const unsigned char *src, uint64_t bytes)
{
    if (part->has_failed || !move_rows(part, dst, src, &(struct rows){0, bytes, 1, bytes}))
        return false;
    part->placed_bytes += bytes;
    part->report.copied_bytes += bytes;
    return true;
}
