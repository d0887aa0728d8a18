/* The memory of a segment: one physical allocation that may be exported, mapped at one address.
 *
 *   create -> reserve an address -> map -> allow access -> ... -> unmap -> free the address -> release
 *
 * The driver counts who uses the physical memory: a client that imported the descriptor keeps it after our release, and a
 * client that dies gives back only its own use. Made by whichever worker writes first, since making many GiB takes a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cuda_private.h"

static struct cuda_device *device_of(const struct cuda_segment *segment)
{
    return (struct cuda_device *)segment->base.device;
}

int cuda_undo(struct cuda_device *device, int code, const char *what)
{
    struct error error;
    return code == CUDA_SUCCESS ? 0 : cuda_retire(device, &error, "%s failed with error %d", what, code);
}

static void unmap_memory(struct cuda_segment *segment, bool is_mapped)
{
    struct cuda_device *device = device_of(segment);
    size_t bytes = segment->mapped_bytes;
    if (!is_mapped || cuda_undo(device, cuda_driver.unmap(segment->mapped, bytes), "unmapping memory") == 0)
        cuda_undo(device, cuda_driver.free_address(segment->mapped, bytes), "freeing an address");
}

static void release_memory(struct cuda_segment *segment)
{
    cuda_undo(device_of(segment), cuda_driver.release(segment->handle), "freeing memory");
}

int cuda_memory_map(struct cuda_segment *segment, struct error *error)
{
    struct cuda_device *device = device_of(segment);
    size_t bytes = segment->mapped_bytes;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->number},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult code = cuda_driver.reserve(&segment->mapped, bytes, 0, 0, 0);
    if (code != CUDA_SUCCESS)
        return cuda_fail_driver(device, code, error, "reserving an address for %zu bytes", bytes);
    CUresult mapped = code = cuda_driver.map(segment->mapped, bytes, 0, segment->handle, 0);
    if (code == CUDA_SUCCESS)
        code = cuda_driver.set_access(segment->mapped, bytes, &access, 1);
    if (code == CUDA_SUCCESS)
        return 0;
    unmap_memory(segment, mapped == CUDA_SUCCESS);
    return cuda_fail_driver(device, code, error, "mapping %zu bytes", bytes);
}

static int make_memory(struct cuda_segment *segment, struct error *error)
{
    struct cuda_device *device = device_of(segment);
    size_t bytes = segment->mapped_bytes = segment->base.allocated_bytes;
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->number}};
    CUresult code = cuda_driver.create(&segment->handle, bytes, &properties, 0);
    if (code != CUDA_SUCCESS)
        return cuda_fail_driver(device, code, error, "allocating %zu bytes", bytes);
    if (cuda_memory_map(segment, error)) {
        release_memory(segment);
        return -1;
    }
    segment->address = segment->mapped;
    return 0;
}

int cuda_memory_back(struct cuda_segment *segment, struct error *error)
{
    if (__atomic_load_n(&segment->is_backed, __ATOMIC_ACQUIRE))
        return 0;
    pthread_mutex_lock(&segment->lock);
    int result = 0;
    if (!segment->is_backed)
        result = segment->base.region ? cuda_region_open(segment, error) : make_memory(segment, error);
    if (result == 0)
        __atomic_store_n(&segment->is_backed, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&segment->lock);
    return result;
}

int cuda_memory_export(struct cuda_segment *segment, struct error *error)
{
    int fd = -1;
    CUresult code = cuda_driver.export_handle(&fd, segment->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code != CUDA_SUCCESS)
        return cuda_fail_driver(device_of(segment), code, error, "exporting %llu bytes",
                                (unsigned long long)segment->base.allocated_bytes);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC)) {
        int why = errno;
        close(fd);
        return fail_errno(error, why, "cannot keep a device's descriptor from child processes");
    }
    return fd;
}

void cuda_memory_free(struct cuda_segment *segment)
{
    unmap_memory(segment, true);
    release_memory(segment);
}
