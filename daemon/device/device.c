/* Checked wrappers around the device backends: contract, reference counts and error context live here once.
 *
 * A segment is born with one reference; the last segment_unref() hands its memory to the backend's release(), which may
 * keep it for the next load. Failure modes are the backend's; the wrappers only add which segment it was.
 *
 * Where a backend takes one region at a time, several become a segment with parts: only the backend
 * knows the parts.
 *
 *     segment   |part 0|......|part 1   |....|part 2|      each from its base on; between them is nothing */
#include "device/device.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/copy.h"
#include "base/foreign_fd.h"
#include "base/memory.h"
#include "base/transpose.h"

const char *page_kind_name(enum page_kind kind)
{
    static const char *const names[] = {
        [PAGE_KIND_HUGETLB] = "hugetlb", [PAGE_KIND_THP] = "thp", [PAGE_KIND_4K] = "4k", [PAGE_KIND_DEVICE] = "device"};
    return names[kind];
}

bool device_rows_are_packed(uint64_t stride, const struct device_rows *rows)
{
    return rows->count == 1 || stride == rows->bytes;
}

bool device_rows_extent(const struct device_rows *rows, uint64_t *bytes)
{
    if (rows->bytes == 0 || rows->count == 0)
        return (*bytes = 0, true);
    return (rows->count == 1 || rows->dst_stride >= rows->bytes) && checked_mul(rows->count - 1, rows->dst_stride, bytes) &&
           checked_add(*bytes, rows->bytes, bytes);
}

void device_rows_copy(void *dst, const void *src, const struct device_rows *rows)
{
    if (device_rows_are_packed(rows->src_stride, rows) && device_rows_are_packed(rows->dst_stride, rows)) {
        copy_streaming(dst, src, rows->bytes * rows->count);
        return;
    }
    int64_t dst_stride = (int64_t)rows->dst_stride;
    if (transpose_takes(rows->bytes)) { /* single elements: a call for each is what takes the time */
        const struct transpose elements = {
            .n_rows = rows->count, .n_columns = 1, .src_row_stride = rows->src_stride, .dst_row_stride = dst_stride};
        transpose_copy(&elements, rows->bytes, dst, src);
        return;
    }
    for (uint64_t row = 0; row < rows->count; row++)
        copy_streaming_row((unsigned char *)dst + (int64_t)row * dst_stride,
                           (const unsigned char *)src + row * rows->src_stride, rows->bytes);
    copy_streaming_end();
}

struct segment_parts {
    size_t n;
    struct segment_part {
        uint64_t base;
        struct segment *segment; /* a reference of ours */
    } list[];
};

static bool is_inside(const struct segment *segment, uint64_t offset, uint64_t bytes)
{
    return offset <= segment->allocated_bytes && bytes <= segment->allocated_bytes - offset;
}

struct segment *segment_find(struct segment *segment, uint64_t *offset, uint64_t bytes)
{
    const struct segment_parts *parts = segment->parts;
    size_t lo = 0, hi = parts ? parts->n : 0;
    while (hi - lo > 1) { /* the last one that begins at or before it */
        size_t middle = lo + (hi - lo) / 2;
        if (parts->list[middle].base <= *offset)
            lo = middle;
        else
            hi = middle;
    }
    if (parts) {
        if (*offset < parts->list[lo].base)
            return NULL;
        *offset -= parts->list[lo].base;
        segment = parts->list[lo].segment;
    }
    return is_inside(segment, *offset, bytes) ? segment : NULL;
}

bool segment_is_lent(const struct segment *segment)
{
    return segment->region || segment->parts;
}

static int fail_outside(const struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    return fail(error, ERROR_INTERNAL, "SEGMENT_BOUNDS",
                "%" PRIu64 " bytes at %" PRIu64 " are outside a segment of %" PRIu64, bytes, offset,
                segment->allocated_bytes);
}

static int make_segment(struct device *device, uint64_t bytes, struct device_region *region, struct segment **segment,
                        struct error *error)
{
    struct segment *fresh = memory_alloc(device->ops->segment_size);
    fresh->device = device;
    fresh->size_bytes = bytes;
    fresh->references = 1;
    fresh->region = region;
    if (device->ops->allocate(device, bytes, fresh, error)) {
        free(fresh);
        return -1;
    }
    *segment = fresh;
    return 0;
}

int device_allocate(struct device *device, uint64_t bytes, struct segment **segment, struct error *error)
{
    return make_segment(device, bytes, NULL, segment, error);
}

void device_region_close(struct device_region *region)
{
    while (region) {
        struct device_region *next = region->next;
        /* shutdown() reaches the client also where the descriptor was inherited */
        if (region->memory_fd >= 0)
            foreign_fd_close(region->memory_fd, region->owner);
        if (region->lease_fd >= 0) {
            shutdown(region->lease_fd, SHUT_RDWR);
            foreign_fd_close(region->lease_fd, region->owner);
        }
        quota_charge_end(&region->descriptors);
        free(region);
        region = next;
    }
}

static int check_region(const struct device *device, const struct device_region *region, struct error *error)
{
    bool is_of_host = region->kind == DEVICE_REGION_HOST;
    if (is_of_host != device->caps.direct_segments)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_ELSEWHERE",
                    "the client's memory is %s, the load goes to device %s; all memory of one load is on its device",
                    is_of_host ? "a memfd" : "on a GPU", device->caps.name);
    bool is_inside = region->kind != DEVICE_REGION_FD || (region->offset <= region->allocation_bytes &&
                                                          region->bytes <= region->allocation_bytes - region->offset);
    if (is_inside && region->bytes <= INT64_MAX && region->offset <= INT64_MAX)
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "REGION_OUTSIDE",
                "the client's memory of %" PRIu64 " bytes at %" PRIu64 " is not inside its allocation of %" PRIu64,
                region->bytes, region->offset, region->allocation_bytes);
}

static int check_regions(const struct device *device, uint64_t bytes, const struct device_region *regions,
                         struct error *error)
{
    uint64_t end = 0;
    if (!device->caps.fills_regions)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_REGIONS", "memory of a client cannot be filled on device %s",
                    device->caps.name);
    for (const struct device_region *region = regions; region; region = region->next) {
        if (check_region(device, region, error))
            return -1;
        if (!checked_add(region->base, region->bytes, &end))
            end = UINT64_MAX;
    }
    if (end >= bytes)
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "REGION_TOO_SMALL",
                "the view needs %" PRIu64 " bytes, the client's memory for it has %" PRIu64, bytes, end);
}

static void free_parts(struct segment_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        segment_unref(parts->list[i].segment);
    free(parts);
}

/* Takes the regions that it makes parts of; the rest stays the caller's. */
static int make_parts(struct device *device, struct device_region **regions, struct segment_parts **made,
                      struct error *error)
{
    size_t n = 0;
    for (const struct device_region *region = *regions; region; region = region->next)
        n++;
    struct segment_parts *parts = memory_alloc(sizeof *parts + n * sizeof *parts->list);
    while (*regions) {
        struct device_region *region = *regions, *rest = region->next;
        struct segment_part *part = &parts->list[parts->n];
        part->base = region->base;
        region->next = NULL;
        if (make_segment(device, region->bytes, region, &part->segment, error)) {
            region->next = rest;
            free_parts(parts);
            return -1;
        }
        *regions = rest;
        parts->n++;
    }
    *made = parts;
    return 0;
}

int device_adopt(struct device *device, uint64_t bytes, struct device_region *regions, struct segment **segment,
                 struct error *error)
{
    struct segment_parts *parts = NULL;
    bool is_one = device->caps.joins_regions || !regions->next;
    if (check_regions(device, bytes, regions, error) != 0 ||
        (is_one ? make_segment(device, bytes, regions, segment, error) : make_parts(device, &regions, &parts, error)) != 0) {
        device_region_close(regions);
        return -1;
    }
    if (is_one)
        return 0;
    *segment = memory_alloc(sizeof **segment);
    **segment = (struct segment){
        .device = device, .size_bytes = bytes, .allocated_bytes = bytes, .dirty = true, .references = 1, .parts = parts};
    return 0;
}

int device_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    uint64_t within = offset;
    struct segment *part = segment_find(segment, &within, bytes);
    if (!part)
        return fail_outside(segment, offset, bytes, error);
    if (!part->device->ops->prepare || bytes == 0)
        return 0;
    return part->device->ops->prepare(part, within, bytes, error);
}

int device_copy(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                struct error *error)
{
    uint64_t bytes = UINT64_MAX, within = offset;
    struct segment *part = device_rows_extent(rows, &bytes) ? segment_find(segment, &within, bytes) : NULL;
    if (!part)
        return fail_outside(segment, offset, bytes, error);
    if (bytes == 0)
        return 0;
    return part->device->ops->copy(part, within, src, rows, error);
}

int device_zero(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    const struct device_queue_ops *queue = segment->device->ops->queue;
    uint64_t within = offset;
    struct segment *part = segment_find(segment, &within, bytes);
    if (!part)
        return fail_outside(segment, offset, bytes, error);
    if (bytes == 0)
        return 0;
    if (queue)
        return queue->zero(part, within, bytes, error);
    if (device_prepare(part, within, bytes, error))
        return -1;
    memset((unsigned char *)part->host_address + within, 0, bytes);
    return 0;
}

int device_mark(struct device *device, uint64_t *mark, struct error *error)
{
    *mark = 0;
    return device->ops->queue ? device->ops->queue->mark(device, mark, error) : 0;
}

int device_wait(struct device *device, uint64_t mark, struct error *error)
{
    return device->ops->queue && mark ? device->ops->queue->wait(device, mark, error) : 0;
}

int device_pin(struct device *device, void *memory, uint64_t bytes, struct error *error)
{
    return device->ops->queue ? device->ops->queue->pin(device, memory, bytes, error) : 0;
}

bool device_unpin(struct device *device, void *memory)
{
    return !device->ops->queue || device->ops->queue->unpin(device, memory);
}

int device_check(const struct device *device, struct error *error)
{
    if (!__atomic_load_n(&device->is_out_of_service, __ATOMIC_ACQUIRE))
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "DEVICE_OUT_OF_SERVICE",
                "device %s is out of service until the daemon is restarted: %s", device->caps.name, device->problem);
}

int device_seal(struct segment *segment, struct error *error)
{
    const struct segment_parts *parts = segment->parts;
    for (size_t i = 0; parts && i < parts->n; i++)
        if (device_seal(parts->list[i].segment, error))
            return -1;
    return parts ? 0 : segment->device->ops->seal(segment, error);
}

int device_export_fd(struct segment *segment, struct error *error)
{
    if (!segment->device->caps.exports_fd || segment_is_lent(segment))
        return fail(error, ERROR_UNIMPLEMENTED, "NO_EXPORT", "device %s cannot hand out a file descriptor of this memory",
                    segment->device->caps.name);
    return segment->device->ops->export_fd(segment, error);
}

enum page_kind device_page_kind(struct segment *segment)
{
    struct segment *one = segment->parts ? segment->parts->list[0].segment : segment;
    return one->device->ops->page_kind(one);
}

bool device_is_kept(struct segment *segment)
{
    return !segment->parts && segment->device->ops->is_kept && segment->device->ops->is_kept(segment);
}

void device_trim(struct device *device)
{
    if (device->ops->trim)
        device->ops->trim(device);
}

void device_destroy(struct device *device)
{
    if (!device)
        return;
    device_trim(device);
    device->ops->destroy(device);
}

struct segment *segment_ref(struct segment *segment)
{
    __atomic_add_fetch(&segment->references, 1, __ATOMIC_RELAXED);
    return segment;
}

/* Of a GPU that hangs a region cannot be had back: it keeps the connection, see cuda_release(). */
struct device_region *segment_disown(struct segment *segment)
{
    struct device_region *regions = NULL, **last = &regions;
    bool is_complete = true;
    if (__atomic_load_n(&segment->references, __ATOMIC_ACQUIRE) > 1 || (!segment->region && !segment->parts)) {
        segment_unref(segment);
        return NULL;
    }
    if (!segment->parts) {
        segment->device->ops->release(segment);
        regions = segment->region;
        is_complete = regions->lease_fd >= 0;
    }
    for (size_t i = 0; segment->parts && i < segment->parts->n; i++) {
        *last = segment_disown(segment->parts->list[i].segment);
        is_complete = is_complete && *last;
        last = *last ? &(*last)->next : last;
    }
    free(segment->parts);
    free(segment);
    if (is_complete)
        return regions;
    device_region_close(regions);
    return NULL;
}

void segment_unref(struct segment *segment)
{
    if (!segment || __atomic_sub_fetch(&segment->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    if (segment->parts)
        free_parts(segment->parts);
    else
        segment->device->ops->release(segment);
    device_region_close(segment->region);
    free(segment);
}
