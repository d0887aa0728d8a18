/* Memory that a client allocated and lends for one load, opened in this process for as long as copies go there.
 *
 *   a descriptor (virtual memory management)  import -> properties -> map all of it     -> ... -> unmap -> release
 *   a CUDA IPC handle (cudaMalloc)            open   -> address range -> device         -> ... -> close
 *
 * Both name a whole allocation, of which the region is a part. All of it comes from outside: that the allocation is on this
 * device and large enough is the driver's word, not the client's. Freeing memory whose IPC handle is open elsewhere is
 * undefined, so the client is told when ours is closed (device_region_close), and waits for that. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cuda_private.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == DEVICE_REGION_IPC_BYTES, "an IPC handle");

static struct cuda_device *device_of(const struct cuda_segment *segment)
{
    return (struct cuda_device *)segment->base.device;
}

/* A call that failed on a device that works failed because of what the client said. */
static int refuse(struct error *error)
{
    if (error->code == ERROR_INTERNAL) {
        error->code = ERROR_INVALID_ARGUMENT;
        snprintf(error->reason, sizeof error->reason, "REGION_REFUSED");
    }
    return -1;
}

static int is_elsewhere(const struct cuda_segment *segment, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "REGION_ELSEWHERE", "the client's memory is not on device %s",
                segment->base.device->caps.name);
}

/* --- by descriptor -------------------------------------------------------------------------------------------------- */

static int check_properties(const struct cuda_segment *segment, struct error *error)
{
    struct cuda_device *device = device_of(segment);
    CUmemAllocationProp properties = {0};
    CUresult code = cuda_driver.properties(&properties, segment->handle);
    if (code != CUDA_SUCCESS) {
        cuda_fail_driver(device, code, error, "looking at the client's memory");
        return refuse(error);
    }
    bool is_here = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == device->number;
    return is_here ? 0 : is_elsewhere(segment, error);
}

static int open_descriptor(struct cuda_segment *segment, struct error *error)
{
    struct cuda_device *device = device_of(segment);
    const struct device_region *region = segment->base.region;
    if (region->allocation_bytes % device->granularity_bytes)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_REFUSED",
                    "the client's allocation of %" PRIu64 " bytes is no multiple of %" PRIu64, region->allocation_bytes,
                    device->granularity_bytes);
    CUresult code = cuda_driver.import_handle(&segment->handle, (void *)(intptr_t)region->memory_fd,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (code != CUDA_SUCCESS) {
        cuda_fail_driver(device, code, error, "importing the client's memory");
        return refuse(error);
    }
    segment->mapped_bytes = region->allocation_bytes;
    if (check_properties(segment, error) == 0 && (cuda_memory_map(segment, error) == 0 || refuse(error) == 0)) {
        segment->address = segment->mapped + region->offset;
        return 0;
    }
    cuda_undo(device, cuda_driver.release(segment->handle), "giving back a client's memory");
    return -1;
}

/* --- by IPC handle -------------------------------------------------------------------------------------------------- */

static int check_range(struct cuda_segment *segment, struct error *error)
{
    struct cuda_device *device = device_of(segment);
    const struct device_region *region = segment->base.region;
    struct cudaPointerAttributes attributes = {0};
    CUdeviceptr start = 0;
    size_t bytes = 0;
    cudaError_t code = cudaPointerGetAttributes(&attributes, (const void *)(uintptr_t)segment->mapped);
    if (code != cudaSuccess)
        return cuda_fail(device, code, error, "looking at the client's memory");
    if (attributes.type != cudaMemoryTypeDevice || attributes.device != device->number)
        return is_elsewhere(segment, error);
    CUresult ranged = cuda_driver.range(&start, &bytes, segment->mapped);
    if (ranged != CUDA_SUCCESS)
        return cuda_fail_driver(device, ranged, error, "measuring the client's memory");
    if (region->offset > bytes || region->bytes > bytes - region->offset)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_OUTSIDE",
                    "the client's memory of %" PRIu64 " bytes at %" PRIu64 " is not inside its allocation of %zu",
                    region->bytes, region->offset, bytes);
    segment->address = start + region->offset;
    return 0;
}

static void close_handle(struct cuda_segment *segment)
{
    struct cuda_device *device = device_of(segment);
    cuda_undo(device, (int)cudaIpcCloseMemHandle((void *)(uintptr_t)segment->mapped), "closing a client's memory");
}

static int open_handle(struct cuda_segment *segment, struct error *error)
{
    cudaIpcMemHandle_t handle;
    void *start = NULL;
    memcpy(&handle, segment->base.region->ipc, sizeof handle);
    cudaError_t code = cudaIpcOpenMemHandle(&start, handle, cudaIpcMemLazyEnablePeerAccess);
    if (code != cudaSuccess) {
        cuda_fail(device_of(segment), code, error, "opening the client's memory");
        return refuse(error);
    }
    segment->mapped = (CUdeviceptr)(uintptr_t)start;
    if (check_range(segment, error) == 0)
        return 0;
    close_handle(segment);
    return refuse(error);
}

/* --- either --------------------------------------------------------------------------------------------------------- */

int cuda_region_open(struct cuda_segment *segment, struct error *error)
{
    return segment->base.region->kind == DEVICE_REGION_FD ? open_descriptor(segment, error) : open_handle(segment, error);
}

/* An IPC handle belongs to the context that is current, and the last reference may go on any thread. */
void cuda_region_close(struct cuda_segment *segment)
{
    struct cuda_device *device = device_of(segment);
    if (segment->base.region->kind == DEVICE_REGION_FD)
        cuda_memory_free(segment);
    else if (cuda_undo(device, (int)cudaSetDevice(device->number), "returning to it") == 0)
        close_handle(segment);
}
