/* The runtime functions of the fake libcudart.so: thin, all state is in the fake libcuda.so.1. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fake_private.h"

static _Thread_local int last_error;

static cudaError_t keep(int code)
{
    if (code && code != cudaErrorNotReady)
        last_error = code;
    return (cudaError_t)code;
}

#define BEGIN_ON(device, function)                                                                                          \
    do {                                                                                                                    \
        int code_ = fake_call_on(device, function);                                                                         \
        if (code_)                                                                                                          \
            return keep(code_);                                                                                             \
    } while (0)
#define BEGIN(function) BEGIN_ON(fake_device, function)

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
    BEGIN("cudaGetDeviceCount");
    *count = fake_n_devices();
    return keep(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t CUDARTAPI cudaSetDevice(int device)
{
    if (device < 0 || device >= fake_n_devices())
        return keep(cudaErrorInvalidDevice);
    fake_device = device;
    BEGIN("cudaSetDevice");
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetLastError(void)
{
    int broken = fake_broken(fake_device), code = broken ? broken : last_error;
    last_error = 0;
    return (cudaError_t)code;
}

const char *CUDARTAPI cudaGetErrorName(cudaError_t code)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text, code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError(%d)", code);
    return text;
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t code)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "error %d of the fake runtime", code);
    return text;
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes)
{
    BEGIN("cudaMemGetInfo");
    *free_bytes = fake_free_bytes(fake_device);
    *all_bytes = fake_device_bytes();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaHostRegister(void *memory, size_t bytes, unsigned int flags)
{
    (void)flags;
    BEGIN("cudaHostRegister");
    return keep(fake_pin(memory, bytes));
}

cudaError_t CUDARTAPI cudaHostUnregister(void *memory)
{
    BEGIN("cudaHostUnregister");
    return keep(fake_unpin(memory));
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    BEGIN("cudaStreamCreateWithFlags");
    *stream = fake_stream_create();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream)
{
    BEGIN("cudaStreamDestroy");
    fake_stream_destroy(stream);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    (void)flags;
    BEGIN("cudaEventCreateWithFlags");
    *event = fake_event_create();
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event)
{
    BEGIN("cudaEventDestroy");
    fake_event_destroy(event);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    BEGIN_ON(fake_event_device(event), "cudaEventRecord");
    return keep(fake_event_record(event, stream));
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event)
{
    BEGIN_ON(fake_event_device(event), "cudaEventQuery");
    return keep(fake_event_query(event));
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                                      cudaStream_t stream)
{
    BEGIN("cudaMemcpyAsync");
    if (kind != cudaMemcpyHostToDevice)
        return keep(cudaErrorInvalidMemcpyDirection);
    return keep(fake_stream_copy(stream, &(struct fake_copy){dst, src, bytes, 1, bytes, bytes}));
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                                        size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    BEGIN("cudaMemcpy2DAsync");
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice)
        return keep(cudaErrorInvalidMemcpyDirection);
    if (width > dpitch || width > spitch)
        return keep(cudaErrorInvalidPitchValue);
    return keep(fake_stream_copy(stream, &(struct fake_copy){dst, src, width, height, dpitch, spitch}));
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    BEGIN("cudaMemsetAsync");
    if (value)
        return keep(cudaErrorInvalidValue); /* no caller needs others */
    return keep(fake_stream_copy(stream, &(struct fake_copy){dst, NULL, bytes, 1, bytes, bytes}));
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *version)
{
    BEGIN("cudaRuntimeGetVersion");
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMalloc(void **memory, size_t bytes)
{
    CUdeviceptr address = 0;
    BEGIN("cudaMalloc");
    int code = fake_malloc(fake_device, bytes, &address);
    *memory = (void *)(uintptr_t)address;
    return keep(code);
}

cudaError_t CUDARTAPI cudaFree(void *memory)
{
    BEGIN("cudaFree");
    return keep(fake_free((uintptr_t)memory));
}

cudaError_t CUDARTAPI cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    uint64_t device_end = (uintptr_t)(kind == cudaMemcpyDeviceToHost ? src : dst);
    BEGIN("cudaMemcpy");
    if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyHostToDevice)
        return keep(cudaErrorInvalidMemcpyDirection);
    pthread_mutex_lock(&fake_lock);
    bool is_right = fake_is_device_memory(device_end, bytes, fake_device);
    pthread_mutex_unlock(&fake_lock);
    if (is_right)
        memcpy(dst, src, bytes);
    return keep(is_right ? cudaSuccess : cudaErrorInvalidValue);
}

/* --- memory of other processes ---------------------------------------------------------------------------------------- */

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "the runtime's handles are the driver's");

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle same;
    CUdeviceptr address = 0;
    BEGIN("cudaIpcOpenMemHandle");
    if (flags != cudaIpcMemLazyEnablePeerAccess)
        return keep(cudaErrorInvalidValue);
    memcpy(&same, &handle, sizeof same);
    int code = fake_ipc_open(&same, &address);
    *memory = (void *)(uintptr_t)address;
    return keep(code);
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void *memory)
{
    BEGIN("cudaIpcCloseMemHandle");
    return keep(fake_free((uintptr_t)memory));
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    struct fake_place place;
    BEGIN("cudaPointerGetAttributes");
    pthread_mutex_lock(&fake_lock);
    bool is_known = fake_find((uintptr_t)memory, &place);
    pthread_mutex_unlock(&fake_lock);
    *attributes = (struct cudaPointerAttributes){.type = is_known ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered,
                                                 .device = is_known ? place.device : 0};
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version,
                                                       unsigned long long flags, enum cudaDriverEntryPointQueryResult *found)
{
    char versioned[64];
    (void)version;
    (void)flags;
    BEGIN("cudaGetDriverEntryPointByVersion");
    snprintf(versioned, sizeof versioned, "%s_v2", symbol);
    *function = dlsym(RTLD_DEFAULT, versioned);
    if (!*function) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        *function = driver ? dlsym(driver, versioned) : NULL;
        if (driver && !*function)
            *function = dlsym(driver, symbol);
        if (driver)
            dlclose(driver);
    }
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
