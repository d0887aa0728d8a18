/* See device_fault.h. */
#include "tests/support/device_fault.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

struct fault_segment {
    struct segment base;
    struct segment *inner;
};

struct segment *device_fault_inner(struct segment *segment)
{
    return ((struct fault_segment *)segment)->inner;
}

static int count_call(struct device *device, const char *what, struct error *error)
{
    struct device_fault *fault = (struct device_fault *)device;
    uint64_t number = __atomic_add_fetch(&fault->n_calls, 1, __ATOMIC_RELAXED);
    if (fault->delay_ns)
        nanosleep(&(struct timespec){.tv_nsec = (long)fault->delay_ns}, NULL);
    if (number != fault->fail_from)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "INJECTED", "injected failure of device call %llu, %s",
                (unsigned long long)number, what);
}

static int fault_allocate(struct device *device, uint64_t bytes, struct segment *segment, struct error *error)
{
    struct device_fault *fault = (struct device_fault *)device;
    struct segment *inner;
    if (count_call(device, "allocate", error) || device_allocate(fault->inner, bytes, &inner, error))
        return -1;
    segment->host_address = fault->hides_address ? NULL : inner->host_address;
    segment->allocated_bytes = inner->allocated_bytes;
    segment->dirty = inner->dirty || fault->gives_dirty_memory;
    if (fault->gives_dirty_memory && device_prepare(inner, 0, inner->allocated_bytes, error) == 0)
        memset(inner->host_address, 0xE7, inner->allocated_bytes);
    ((struct fault_segment *)segment)->inner = inner;
    __atomic_add_fetch(&fault->n_segments, 1, __ATOMIC_RELAXED);
    return 0;
}

static int fault_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    return count_call(segment->device, "prepare", error) ? -1
                                                         : device_prepare(device_fault_inner(segment), offset, bytes, error);
}

static int fault_copy(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                      struct error *error)
{
    return count_call(segment->device, "copy", error) ? -1
                                                      : device_copy(device_fault_inner(segment), offset, src, rows, error);
}

static int fault_seal(struct segment *segment, struct error *error)
{
    return count_call(segment->device, "seal", error) ? -1 : device_seal(device_fault_inner(segment), error);
}

static int fault_export_fd(struct segment *segment, struct error *error)
{
    return count_call(segment->device, "export", error) ? -1 : device_export_fd(device_fault_inner(segment), error);
}

static enum page_kind fault_page_kind(struct segment *segment)
{
    return device_page_kind(device_fault_inner(segment));
}

static void fault_release(struct segment *segment)
{
    struct device_fault *fault = (struct device_fault *)segment->device;
    segment_unref(device_fault_inner(segment));
    __atomic_sub_fetch(&fault->n_segments, 1, __ATOMIC_RELAXED);
}

static void fault_destroy(struct device *device)
{
    free(device);
}

static const struct device_ops fault_ops = {
    .name = "fault",
    .segment_size = sizeof(struct fault_segment),
    .allocate = fault_allocate,
    .prepare = fault_prepare,
    .copy = fault_copy,
    .seal = fault_seal,
    .export_fd = fault_export_fd,
    .page_kind = fault_page_kind,
    .release = fault_release,
    .destroy = fault_destroy,
};

struct device_fault *device_fault_create(struct device *inner)
{
    struct device_fault *fault = memory_alloc(sizeof *fault);
    fault->base = (struct device){.ops = &fault_ops, .caps = inner->caps};
    fault->inner = inner;
    return fault;
}
