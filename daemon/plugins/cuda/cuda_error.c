/* Errors of the runtime and the driver as ours. A call may fail because of what was asked (too little memory), or because
 * the context is broken for good; then every further call fails as well, and only a new process can help. One harmless call
 * after each failure tells them apart. */
#include <stdarg.h>
#include <stdio.h>

#include "cuda_private.h"

static int retire_device(struct cuda_device *device, const char *problem, struct error *error)
{
    device->host->retire(&device->base, problem);
    return device_check(&device->base, error);
}

int cuda_retire(struct cuda_device *device, struct error *error, const char *why, ...)
{
    char problem[DEVICE_PROBLEM_CHARS];
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(problem, sizeof problem, why, arguments);
    va_end(arguments);
    return retire_device(device, problem, error);
}

static int fail_with(struct cuda_device *device, bool is_memory, const char *name, const char *what, struct error *error)
{
    char problem[DEVICE_PROBLEM_CHARS];
    size_t free_bytes = 0, all_bytes = 0;
    cudaGetLastError(); /* forgets an error that does not stay */
    if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess) {
        snprintf(problem, sizeof problem, "%s: %s", what, name);
        return retire_device(device, problem, error);
    }
    if (is_memory)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "DEVICE_OUT_OF_MEMORY",
                    "%s: device %s has %zu bytes free of %zu; free memory that other processes hold there, or load less",
                    what, device->base.caps.name, free_bytes, all_bytes);
    return fail(error, ERROR_INTERNAL, "DEVICE_ERROR", "%s: %s on device %s", what, name, device->base.caps.name);
}

int cuda_fail(struct cuda_device *device, cudaError_t code, struct error *error, const char *what, ...)
{
    char doing[DEVICE_PROBLEM_CHARS / 2];
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(doing, sizeof doing, what, arguments);
    va_end(arguments);
    return fail_with(device, code == cudaErrorMemoryAllocation, cudaGetErrorName(code), doing, error);
}

int cuda_fail_driver(struct cuda_device *device, CUresult code, struct error *error, const char *what, ...)
{
    char doing[DEVICE_PROBLEM_CHARS / 2];
    const char *name = NULL;
    va_list arguments;
    va_start(arguments, what);
    vsnprintf(doing, sizeof doing, what, arguments);
    va_end(arguments);
    if (cuda_driver.error_name(code, &name) != CUDA_SUCCESS || !name)
        name = "an unknown error";
    return fail_with(device, code == CUDA_ERROR_OUT_OF_MEMORY, name, doing, error);
}
