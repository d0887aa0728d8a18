/* The only code that writes into destinations, except for reads that land there by themselves (scatter.c); see place.h. */
#include "execute/place.h"

#include "base/clock.h"
#include "execute/clip.h"
#include "device/transport.h"

enum { NEAR_BYTES = 64 << 10 };

bool place_prepare(struct part *part, uint64_t offset, uint64_t bytes)
{
    struct destination *destination = part->run->destination;
    if (part->has_failed || destination_is_ready(destination, offset, bytes))
        return !part->has_failed;
    uint64_t started_ns = clock_now_ns();
    part->has_failed = destination_prepare(destination, offset, bytes, &part->error) != 0;
    part->report.prepare_ns += clock_now_ns() - started_ns;
    return !part->has_failed;
}

/* From where to where, at the destination, the elements of a transfer go that lie in the range of the file at least in part;
 * false when there are none. */
static bool find_place(const struct transfer *transfer, const struct operation *operation, struct range range,
                       struct range *place)
{
    struct rows rows = rows_of_transfer(transfer);
    uint64_t src_bytes = operation ? operation->from_bytes : 1, dst_bytes = operation ? operation->to_bytes : 1;
    uint64_t first = rows_next(&rows, range.lo);
    if (first >= range.hi)
        return false;
    first -= rows.offset;
    uint64_t row_bytes = transfer->row_bytes / src_bytes * dst_bytes, dst_stride = (uint64_t)transfer->dst_stride;
    if (transfer->n_rows > 1 && transfer->dst_stride < 0) { /* whole rows will do */
        uint64_t end = range.hi < rows_end(&rows) ? range.hi : rows_end(&rows);
        place->lo = transfer->dst_offset + (end - 1 - rows.offset) / rows.stride * dst_stride;
        place->hi = transfer->dst_offset + first / rows.stride * dst_stride + row_bytes;
        return true;
    }
    place->lo = transfer->dst_offset + first / rows.stride * dst_stride + first % rows.stride / src_bytes * dst_bytes;
    place->hi = transfer_dst_end(transfer, row_bytes);
    if (range.hi < rows_end(&rows)) {
        uint64_t last = range.hi - 1 - rows.offset, inside = last % rows.stride;
        inside = inside < rows.bytes ? inside : rows.bytes - 1;
        place->hi = transfer->dst_offset + last / rows.stride * dst_stride + (inside / src_bytes + 1) * dst_bytes;
    }
    return true;
}

/* Neighbours in the file are mostly neighbours at the destination, so the ranges are few and long. */
void place_prepare_range(struct part *part, struct range range)
{
    const struct mapping *mapping = part->run->options.mapping;
    size_t i = mapping_find(mapping, part->file, range.lo), end = mapping->file_first[part->file + 1];
    struct range all = {0, 0}, next;
    for (; i < end && mapping->transfers[i].src_offset < range.hi; i++) {
        if (!find_place(&mapping->transfers[i], mapping_operation(mapping, &mapping->transfers[i]), range, &next))
            continue;
        if (all.hi > 0 && next.lo >= all.lo && next.lo < all.hi + NEAR_BYTES) { /* behind it, or beside it */
            all.hi = next.hi > all.hi ? next.hi : all.hi;
            continue;
        }
        if (all.hi > 0)
            place_prepare(part, all.lo, range_bytes(all));
        all = next;
    }
    if (all.hi > 0)
        place_prepare(part, all.lo, range_bytes(all));
}

/* Where there is no address, in the only order that devices and transports know. */
static bool place_one_by_one(struct part *part, uint64_t dst_offset, const unsigned char *src,
                             const struct device_rows *rows, uint64_t source_offset)
{
    const struct device_rows row = {rows->bytes, 1, rows->bytes, rows->bytes};
    for (uint64_t i = 0; i < rows->count; i++) {
        uint64_t at = source_offset == TRANSPORT_UNKNOWN ? TRANSPORT_UNKNOWN : source_offset + i * rows->src_stride;
        if (!place_rows(part, dst_offset + i * rows->dst_stride, src + i * rows->src_stride, &row, at))
            return false;
    }
    return true;
}

bool place_rows(struct part *part, uint64_t dst_offset, const void *src, const struct device_rows *rows,
                uint64_t source_offset)
{
    struct destination *destination = part->run->destination;
    uint64_t bytes = rows->count * rows->bytes;
    struct transfer_extent extent = transfer_extent(dst_offset, rows->count, (int64_t)rows->dst_stride, rows->bytes);
    if (extent.lo < dst_offset && (!destination->address || part->transport))
        return place_one_by_one(part, dst_offset, src, rows, source_offset);
    if (part->has_failed || (destination->address && !place_prepare(part, extent.lo, extent.hi - extent.lo)))
        return false;
    const struct transport_delivery delivery = {.owner = part->owner,
                                                .rank = part->run->options.rank,
                                                .segment = part->run->options.segment,
                                                .offset = dst_offset,
                                                .src = src,
                                                .rows = *rows,
                                                .file = part->file,
                                                .source_offset = source_offset};
    int result = part->transport ? transport_deliver(part->transport, &delivery, &part->error)
                                 : destination_write(destination, dst_offset, src, rows, &part->error);
    part->has_failed = result != 0;
    part->placed_bytes += part->has_failed ? 0 : bytes;
    part->report.copied_bytes += part->has_failed ? 0 : bytes;
    return !part->has_failed;
}

unsigned char *place_find(struct part *part, uint64_t offset, uint64_t bytes)
{
    struct destination *destination = part->run->destination;
    if (!destination->address || part->transport || !place_prepare(part, offset, bytes))
        return NULL;
    return (unsigned char *)destination->address + offset;
}

void place_count(struct part *part, uint64_t bytes)
{
    part->placed_bytes += bytes;
    part->report.copied_bytes += bytes;
}
