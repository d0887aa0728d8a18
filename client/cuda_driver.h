/* What this library needs of the NVIDIA driver, declared here so that it builds and runs on hosts without one. The driver's
 * interface is stable; tests/fake/cuda/abi_check.c compares these declarations with the driver's header where there is one.
 */
#ifndef CLIENT_CUDA_DRIVER_H
#define CLIENT_CUDA_DRIVER_H

#include <stddef.h>

enum { CUDA_DRIVER_SUCCESS = 0, CUDA_DRIVER_HANDLE_FD = 1, CUDA_DRIVER_ON_DEVICE = 1, CUDA_DRIVER_READ_WRITE = 3 };
/* What an address can be asked for. */
enum { CUDA_DRIVER_DEVICE_NUMBER = 9, CUDA_DRIVER_MAPPING_BYTES = 18, CUDA_DRIVER_MAPPING_START = 19 };

typedef unsigned long long cuda_driver_address, cuda_driver_handle;
typedef int cuda_driver_device;
typedef void *cuda_driver_context;

struct cuda_driver_uuid {
    char bytes[16];
};

struct cuda_driver_ipc_handle {
    char bytes[64];
};

struct cuda_driver_access {
    int location_type, location_id;
    int flags;
};

struct cuda_driver {
    void *library;
    int (*init)(unsigned flags);
    int (*device_count)(int *count);
    int (*device_get)(cuda_driver_device *device, int number);
    int (*device_uuid)(struct cuda_driver_uuid *uuid, cuda_driver_device device);
    int (*retain)(cuda_driver_context *context, cuda_driver_device device);
    int (*release_context)(cuda_driver_device device);
    int (*push)(cuda_driver_context context);
    int (*pop)(cuda_driver_context *context);
    int (*synchronize)(void);
    int (*import_handle)(cuda_driver_handle *handle, void *from, int type);
    int (*release)(cuda_driver_handle handle);
    int (*reserve)(cuda_driver_address *address, size_t bytes, size_t alignment, cuda_driver_address wanted,
                   unsigned long long flags);
    int (*free_address)(cuda_driver_address address, size_t bytes);
    int (*map)(cuda_driver_address address, size_t bytes, size_t offset, cuda_driver_handle handle,
               unsigned long long flags);
    int (*unmap)(cuda_driver_address address, size_t bytes);
    int (*set_access)(cuda_driver_address address, size_t bytes, const struct cuda_driver_access *access, size_t count);
    int (*attribute)(void *value, int attribute, cuda_driver_address address);
    int (*range)(cuda_driver_address *start, size_t *bytes, cuda_driver_address address);
    int (*retain_handle)(cuda_driver_handle *handle, void *address);
    int (*export_handle)(void *to, cuda_driver_handle handle, int type, unsigned long long flags);
    int (*ipc_handle)(struct cuda_driver_ipc_handle *handle, cuda_driver_address address);
    int (*copy_to_host)(void *to, cuda_driver_address from, size_t bytes);
    int (*error_name)(int code, const char **name);
};

#endif
