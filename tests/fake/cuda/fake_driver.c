/* The driver functions of the fake libcuda.so.1, with the prototypes of <cuda.h>. */
#include <stdio.h>
#include <string.h>

#include "fake_private.h"

#define BEGIN(function)                                                                                                     \
    do {                                                                                                                    \
        int code_ = fake_call(function);                                                                                    \
        if (code_)                                                                                                          \
            return (CUresult)code_;                                                                                         \
    } while (0)

CUresult CUDAAPI cuInit(unsigned int flags)
{
    (void)flags;
    BEGIN("cuInit");
    return fake_n_devices() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    BEGIN("cuDriverGetVersion");
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
    BEGIN("cuDeviceGetCount");
    *count = fake_n_devices();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int number)
{
    BEGIN("cuDeviceGet");
    *device = number;
    return number >= 0 && number < fake_n_devices() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int chars, CUdevice device)
{
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)chars, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    BEGIN("cuDeviceGetUuid");
    memset(uuid->bytes, 0, sizeof uuid->bytes);
    memcpy(uuid->bytes, "\xfa\x4e", 2);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    BEGIN("cuDeviceTotalMem");
    *bytes = fake_device_bytes();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    BEGIN("cuDeviceGetAttribute");
    *value = attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED ||
             attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult result, const char **name)
{
    static const char *const known[] = {[1] = "CUDA_ERROR_INVALID_VALUE", [2] = "CUDA_ERROR_OUT_OF_MEMORY"};
    *name = result == 1 || result == 2 ? known[result] : "CUDA_ERROR_FAKED";
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult result, const char **text)
{
    return cuGetErrorName(result, text);
}

/* --- contexts: a device number is all there is to one ---------------------------------------------------------------------
 */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    BEGIN("cuDevicePrimaryCtxRetain");
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)device;
    BEGIN("cuDevicePrimaryCtxRelease");
    return CUDA_SUCCESS;
}

static _Thread_local CUcontext current;

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context)
{
    BEGIN("cuCtxPushCurrent");
    current = context;
    fake_device = (int)(uintptr_t)context - 1;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *context)
{
    BEGIN("cuCtxPopCurrent");
    if (context)
        *context = current;
    current = NULL;
    return CUDA_SUCCESS;
}

/* Only the daemon's processes have streams, and they do not ask. */
CUresult CUDAAPI cuCtxSynchronize(void)
{
    BEGIN("cuCtxSynchronize");
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
    BEGIN("cuMemcpyDtoH");
    pthread_mutex_lock(&fake_lock);
    bool is_right = current && fake_is_device_memory(src, bytes, (int)(uintptr_t)current - 1);
    pthread_mutex_unlock(&fake_lock);
    if (!is_right)
        return current ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    memcpy(dst, (const void *)(uintptr_t)src, bytes);
    return CUDA_SUCCESS;
}

/* --- memory ---------------------------------------------------------------------------------------------------------------
 */

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                               CUmemAllocationGranularity_flags which)
{
    (void)properties;
    (void)which;
    BEGIN("cuMemGetAllocationGranularity");
    *bytes = FAKE_GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                             unsigned long long flags)
{
    (void)flags;
    BEGIN("cuMemCreate");
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || properties->location.id >= fake_n_devices() ||
        properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return (CUresult)fake_create(properties->location.id, bytes, false, handle);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    BEGIN("cuMemRelease");
    return (CUresult)fake_release(handle);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags)
{
    (void)alignment;
    (void)wanted;
    (void)flags;
    BEGIN("cuMemAddressReserve");
    return (CUresult)fake_reserve(bytes, address);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    BEGIN("cuMemAddressFree");
    return (CUresult)fake_free_address(address, bytes);
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
    BEGIN("cuMemMap");
    return offset || flags ? CUDA_ERROR_INVALID_VALUE : (CUresult)fake_map(address, bytes, handle);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    BEGIN("cuMemUnmap");
    return (CUresult)fake_unmap(address, bytes);
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    BEGIN("cuMemSetAccess");
    return count != 1 ? CUDA_ERROR_INVALID_VALUE : (CUresult)fake_allow(address, bytes, access->location.id);
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    (void)flags;
    BEGIN("cuMemExportToShareableHandle");
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = fake_export(handle);
    memcpy(out, &fd, sizeof fd);
    return fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from,
                                                CUmemAllocationHandleType type)
{
    BEGIN("cuMemImportFromShareableHandle");
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return (CUresult)fake_import((int)(intptr_t)from, handle);
}
