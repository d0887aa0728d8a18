/* Checked wrappers around the device backends: contract, reference counts and error context live here once.
 *
 * A segment is born with one reference; the last segment_unref() hands its memory to the backend's release(), which may
 * keep it for the next load. Failure modes are the backend's; the wrappers only add which segment it was. */
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
    for (uint64_t row = 0; row < rows->count; row++)
        copy_streaming((unsigned char *)dst + row * rows->dst_stride, (const unsigned char *)src + row * rows->src_stride,
                       rows->bytes);
}

static bool is_inside(const struct segment *segment, uint64_t offset, uint64_t bytes)
{
    return offset <= segment->allocated_bytes && bytes <= segment->allocated_bytes - offset;
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

/* shutdown() reaches the client also where the descriptor was inherited. */
void device_region_close(struct device_region *region)
{
    if (!region)
        return;
    if (region->memory_fd >= 0)
        foreign_fd_close(region->memory_fd, region->owner);
    if (region->lease_fd >= 0) {
        shutdown(region->lease_fd, SHUT_RDWR);
        foreign_fd_close(region->lease_fd, region->owner);
    }
    quota_charge_end(&region->descriptors);
    free(region);
}

static int check_region(const struct device *device, uint64_t bytes, const struct device_region *region, struct error *error)
{
    if (!device->caps.fills_regions)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_REGIONS", "memory of a client cannot be filled on device %s",
                    device->caps.name);
    if (region->bytes < bytes)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_TOO_SMALL",
                    "the view needs %" PRIu64 " bytes, the client's memory for it has %" PRIu64, bytes, region->bytes);
    bool is_inside = region->kind != DEVICE_REGION_FD || (region->offset <= region->allocation_bytes &&
                                                          region->bytes <= region->allocation_bytes - region->offset);
    if (is_inside && region->bytes <= INT64_MAX && region->offset <= INT64_MAX)
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "REGION_OUTSIDE",
                "the client's memory of %" PRIu64 " bytes at %" PRIu64 " is not inside its allocation of %" PRIu64,
                region->bytes, region->offset, region->allocation_bytes);
}

int device_adopt(struct device *device, uint64_t bytes, struct device_region *region, struct segment **segment,
                 struct error *error)
{
    if (check_region(device, bytes, region, error) == 0 && make_segment(device, bytes, region, segment, error) == 0)
        return 0;
    device_region_close(region);
    return -1;
}

int device_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    if (!is_inside(segment, offset, bytes))
        return fail_outside(segment, offset, bytes, error);
    if (!segment->device->ops->prepare || bytes == 0)
        return 0;
    return segment->device->ops->prepare(segment, offset, bytes, error);
}

int device_copy(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                struct error *error)
{
    uint64_t bytes = UINT64_MAX;
    if (!device_rows_extent(rows, &bytes) || !is_inside(segment, offset, bytes))
        return fail_outside(segment, offset, bytes, error);
    if (bytes == 0)
        return 0;
    return segment->device->ops->copy(segment, offset, src, rows, error);
}

int device_zero(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    const struct device_queue_ops *queue = segment->device->ops->queue;
    if (!is_inside(segment, offset, bytes))
        return fail_outside(segment, offset, bytes, error);
    if (bytes == 0)
        return 0;
    if (queue)
        return queue->zero(segment, offset, bytes, error);
    if (device_prepare(segment, offset, bytes, error))
        return -1;
    memset((unsigned char *)segment->host_address + offset, 0, bytes);
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
    return segment->device->ops->seal(segment, error);
}

int device_export_fd(struct segment *segment, struct error *error)
{
    if (!segment->device->caps.exports_fd)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_EXPORT", "device %s cannot hand out a file descriptor",
                    segment->device->caps.name);
    return segment->device->ops->export_fd(segment, error);
}

enum page_kind device_page_kind(struct segment *segment)
{
    return segment->device->ops->page_kind(segment);
}

bool device_is_kept(struct segment *segment)
{
    return segment->device->ops->is_kept && segment->device->ops->is_kept(segment);
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

void segment_unref(struct segment *segment)
{
    if (!segment || __atomic_sub_fetch(&segment->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    segment->device->ops->release(segment);
    device_region_close(segment->region);
    free(segment);
}
