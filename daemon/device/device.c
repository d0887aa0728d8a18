/* Checked wrappers around the device backends: contract, reference counts and error context live here once.
 *
 * A segment is born with one reference; the last segment_unref() hands its memory to the backend's release(), which may
 * keep it for the next load. Failure modes are the backend's; the wrappers only add which segment it was. */
#include "device/device.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"

const char *page_kind_name(enum page_kind kind)
{
    static const char *const names[] = {[PAGE_KIND_HUGETLB] = "hugetlb", [PAGE_KIND_THP] = "thp", [PAGE_KIND_4K] = "4k"};
    return names[kind];
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

int device_allocate(struct device *device, uint64_t bytes, struct segment **segment, struct error *error)
{
    struct segment *fresh = memory_alloc(device->ops->segment_size);
    fresh->device = device;
    fresh->size_bytes = bytes;
    fresh->references = 1;
    if (device->ops->allocate(device, bytes, fresh, error)) {
        free(fresh);
        return -1;
    }
    *segment = fresh;
    return 0;
}

int device_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    if (!is_inside(segment, offset, bytes))
        return fail_outside(segment, offset, bytes, error);
    if (!segment->device->ops->prepare || bytes == 0)
        return 0;
    return segment->device->ops->prepare(segment, offset, bytes, error);
}

int device_write(struct segment *segment, uint64_t offset, const void *bytes, uint64_t count, struct error *error)
{
    if (!is_inside(segment, offset, count))
        return fail_outside(segment, offset, count, error);
    return segment->device->ops->write(segment, offset, bytes, count, error);
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
    free(segment);
}
