/* The one symbol of tensorcast-cuda.so, and the search for devices behind it, and NCCL when the plugin was built with it. No
 * driver, a driver that is too old and the toolkit's stub of a driver all mean: no device. A host with one unusable GPU
 * among others serves none, so that "cuda:1" is never another one than the operator thinks. */
#include <stdlib.h>

#include "cuda_private.h"
#include "device/transport.h"

/* Address NULL: built without NCCL. */
extern const struct transport_ops transport_nccl __attribute__((weak));
int transport_nccl_check(struct error *error) __attribute__((weak));

static int find(const struct device_plugin_host *host, struct device *devices[DEVICE_PLUGIN_MAX_DEVICES], size_t *n_devices,
                struct error *error)
{
    int count = 0;
    *n_devices = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess)
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_DRIVER",
                    "no usable NVIDIA driver (libcuda.so.1) or no device was found: %s, %s", cudaGetErrorName(code),
                    cudaGetErrorString(code));
    if (count == 0)
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_DEVICE", "the NVIDIA driver shows no device to this process");
    count = count < DEVICE_PLUGIN_MAX_DEVICES ? count : DEVICE_PLUGIN_MAX_DEVICES;
    /* NCCL is told by the environment only; there is one thread yet. All ranks are in this process, so no process outside the
     * host need reach them. Within a process NCCL lets GPUs write into each other's buffers directly, which memory of
     * cuMemCreate does not allow them: it is mapped for its own device alone. */
    setenv("NCCL_SOCKET_IFNAME", "=lo", 0);
    setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0);
    if (cuda_driver_open(error))
        return -1;
    for (int number = 0; number < count; number++) {
        devices[*n_devices] = cuda_device_create(host, number, error);
        if (!devices[*n_devices]) {
            while (*n_devices)
                device_destroy(devices[--*n_devices]);
            return -1;
        }
        ++*n_devices;
    }
    return 0;
}

const struct device_plugin tensorcast_device_plugin = {DEVICE_PLUGIN_HEADER,
                                                       .name = "cuda",
                                                       .find = find,
                                                       .transport = &transport_nccl,
                                                       .transport_layout = TRANSPORT_LAYOUT,
                                                       .check_transport = transport_nccl_check};
