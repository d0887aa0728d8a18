/* GPU memory as a device: segments without a host address, filled by queued copies out of the engine's staging buffers.
 *
 * copy: one piece, or rows of an inner slice, which the copy engine picks out of the staging buffer by itself (a 2-D copy).
 * seal: every queue is empty, so what is published is complete. export: a descriptor that clients import. Failure modes: see
 * cuda_error.c; a segment on a device that is out of service is given up, not freed, because no call about it would return
 * with anything but the same error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "cuda_private.h"

enum { MAX_PITCH_BYTES = INT32_MAX, PATIENCE_S = 20 }; /* pitch: of a 2-D copy */

static struct cuda_device *device_of(const struct segment *segment)
{
    return (struct cuda_device *)segment->device;
}

static int cuda_allocate(struct device *device, uint64_t bytes, struct segment *base, struct error *error)
{
    struct cuda_segment *segment = (struct cuda_segment *)base;
    uint64_t granularity_bytes = ((struct cuda_device *)device)->granularity_bytes;
    if (device_check(device, error))
        return -1;
    if (base->region)
        base->allocated_bytes = bytes; /* not a byte more of what is a client's */
    else if (!checked_align(bytes ? bytes : 1, granularity_bytes, &base->allocated_bytes) ||
             base->allocated_bytes > INT64_MAX)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_LARGE", "a replica of %" PRIu64 " bytes is more than any GPU has",
                    bytes);
    pthread_mutex_init(&segment->lock, NULL);
    base->dirty = true; /* it may not be zero */
    return 0;
}

/* The segment can be written to by this thread. */
static int enter_backed(struct segment *segment, struct error *error)
{
    return cuda_enter(device_of(segment), error) || cuda_memory_back((struct cuda_segment *)segment, error) ? -1 : 0;
}

cudaError_t cuda_copy_rows(void *dst, const void *src, const struct device_rows *rows, enum cudaMemcpyKind kind,
                           cudaStream_t stream)
{
    cudaError_t code = cudaSuccess;
    if (rows->count == 1 || (rows->src_stride == rows->bytes && rows->dst_stride == rows->bytes))
        return cudaMemcpyAsync(dst, src, rows->bytes * rows->count, kind, stream);
    if (rows->src_stride <= MAX_PITCH_BYTES && rows->dst_stride <= MAX_PITCH_BYTES)
        return cudaMemcpy2DAsync(dst, rows->dst_stride, src, rows->src_stride, rows->bytes, rows->count, kind, stream);
    for (uint64_t row = 0; row < rows->count && code == cudaSuccess; row++)
        code = cudaMemcpyAsync((char *)dst + row * rows->dst_stride, (const char *)src + row * rows->src_stride, rows->bytes,
                               kind, stream);
    return code;
}

static int cuda_copy(struct segment *base, uint64_t offset, const void *src, const struct device_rows *rows,
                     struct error *error)
{
    struct cuda_device *device = device_of(base);
    if (enter_backed(base, error))
        return -1;
    void *dst = (void *)(uintptr_t)(((struct cuda_segment *)base)->address + offset);
    cudaError_t code = cuda_copy_rows(dst, src, rows, cudaMemcpyHostToDevice, cuda_queue_own(device)->stream);
    return code == cudaSuccess
               ? 0
               : cuda_fail(device, code, error, "copying %" PRIu64 " rows of %" PRIu64 " bytes", rows->count, rows->bytes);
}

static int cuda_zero(struct segment *base, uint64_t offset, uint64_t bytes, struct error *error)
{
    struct cuda_device *device = device_of(base);
    if (enter_backed(base, error))
        return -1;
    void *dst = (void *)(uintptr_t)(((struct cuda_segment *)base)->address + offset);
    cudaError_t code = cudaMemsetAsync(dst, 0, bytes, cuda_queue_own(device)->stream);
    return code == cudaSuccess ? 0 : cuda_fail(device, code, error, "zeroing %" PRIu64 " bytes", bytes);
}

/* A device that was never entered has nothing queued, and no events to mark with. */
static int cuda_mark(struct device *base, uint64_t *mark, struct error *error)
{
    struct cuda_device *device = (struct cuda_device *)base;
    if (!__atomic_load_n(&device->is_open, __ATOMIC_ACQUIRE))
        return 0;
    return cuda_queue_mark(device, cuda_queue_own(device), mark, error);
}

static int cuda_wait(struct device *base, uint64_t mark, struct error *error)
{
    return cuda_queue_wait((struct cuda_device *)base, mark, error);
}

/* Pageable memory works, too: the driver then copies it through memory of its own before the call returns. */
static int cuda_pin(struct device *base, void *memory, uint64_t bytes, struct error *error)
{
    struct cuda_device *device = (struct cuda_device *)base;
    if (cuda_enter(device, error))
        return -1;
    cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    return code == cudaSuccess ? 0 : cuda_fail(device, code, error, "pinning %" PRIu64 " bytes of host memory", bytes);
}

static bool cuda_unpin(struct device *base, void *memory)
{
    struct cuda_device *device = (struct cuda_device *)base;
    struct error error;
    if (cuda_enter(device, &error))
        return false;
    cudaError_t code = cudaHostUnregister(memory);
    if (code != cudaSuccess)
        cuda_fail(device, code, &error, "unpinning host memory");
    return code == cudaSuccess;
}

static int cuda_seal(struct segment *base, struct error *error)
{
    struct cuda_segment *segment = (struct cuda_segment *)base;
    if (enter_backed(base, error) || cuda_queue_land_all(device_of(base), error))
        return -1;
    segment->is_landed = true;
    return 0;
}

static int cuda_export_fd(struct segment *base, struct error *error)
{
    return enter_backed(base, error) ? -1 : cuda_memory_export((struct cuda_segment *)base, error);
}

static enum page_kind cuda_page_kind(struct segment *segment)
{
    (void)segment;
    return PAGE_KIND_DEVICE;
}

/* A load that was broken off may have copies under way into this memory. Where they never end, a client that lent it is not
 * told before this process is gone. */
static void cuda_release(struct segment *base)
{
    struct cuda_segment *segment = (struct cuda_segment *)base;
    struct cuda_device *device = device_of(base);
    struct error error;
    if (segment->is_backed && device_check(&device->base, &error) == 0 &&
        (segment->is_landed || cuda_queue_land_all(device, &error) == 0))
        (base->region ? cuda_region_close : cuda_memory_free)(segment);
    if (base->region && segment->is_backed && __atomic_load_n(&device->is_stuck, __ATOMIC_ACQUIRE))
        base->region->lease_fd = -1;
    pthread_mutex_destroy(&segment->lock);
}

static void cuda_destroy(struct device *base)
{
    struct cuda_device *device = (struct cuda_device *)base;
    struct error error;
    if (device_check(base, &error) == 0 && cudaSetDevice(device->number) == cudaSuccess)
        cuda_queues_close(device);
    for (size_t i = 0; i < N_QUEUES; i++)
        pthread_mutex_destroy(&device->queues[i].lock);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static const struct device_queue_ops cuda_queue_ops = {
    .zero = cuda_zero,
    .mark = cuda_mark,
    .wait = cuda_wait,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
};

static const struct device_ops cuda_ops = {
    .name = "cuda",
    .segment_size = sizeof(struct cuda_segment),
    .allocate = cuda_allocate,
    .copy = cuda_copy,
    .seal = cuda_seal,
    .export_fd = cuda_export_fd,
    .page_kind = cuda_page_kind,
    .release = cuda_release,
    .destroy = cuda_destroy,
    .queue = &cuda_queue_ops,
};

/* --- what a device is ----------------------------------------------------------------------------------------------- */

/* Nothing here makes a context, which would cost time and GPU memory on every device of the host. */
static CUresult describe(struct cuda_device *device)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->number}};
    CUdevice handle;
    CUuuid uuid;
    size_t bytes = 0, granularity_bytes = 0;
    int exports = 0;
    CUresult code = cuda_driver.device_get(&handle, device->number);
    if (code == CUDA_SUCCESS)
        code =
            cuda_driver.device_attribute(&exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, handle);
    if (code == CUDA_SUCCESS && !exports)
        code = CUDA_ERROR_NOT_SUPPORTED;
    if (code == CUDA_SUCCESS)
        code = cuda_driver.device_name(device->base.model, DEVICE_NAME_CHARS, handle);
    if (code == CUDA_SUCCESS)
        code = cuda_driver.device_uuid(&uuid, handle);
    if (code == CUDA_SUCCESS)
        code = cuda_driver.device_memory(&bytes, handle);
    if (code == CUDA_SUCCESS)
        code = cuda_driver.granularity(&granularity_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code != CUDA_SUCCESS)
        return code;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(device->base.caps.name, DEVICE_NAME_CHARS,
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
             b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    device->base.memory_bytes = bytes;
    device->granularity_bytes = granularity_bytes;
    return CUDA_SUCCESS;
}

struct device *cuda_device_create(const struct device_plugin_host *host, int number, struct error *error)
{
    struct cuda_device *device = memory_alloc(sizeof *device);
    const char *name = "an unknown error";
    device->base =
        (struct device){.ops = &cuda_ops, .caps = {.queued_copies = true, .exports_fd = true, .fills_regions = true}};
    device->host = host;
    device->number = number;
    device->base.patience_ns = (uint64_t)PATIENCE_S * 1000 * NS_PER_MS;
    CUresult code = describe(device);
    if (code != CUDA_SUCCESS) {
        cuda_driver.error_name(code, &name);
        fail(error, ERROR_FAILED_PRECONDITION, "DEVICE_UNUSABLE",
             "GPU %d cannot be used: %s (memory that can be exported as a descriptor is needed)", number, name);
        free(device);
        return NULL;
    }
    pthread_mutex_init(&device->lock, NULL);
    for (size_t i = 0; i < N_QUEUES; i++)
        pthread_mutex_init(&device->queues[i].lock, NULL);
    return &device->base;
}
