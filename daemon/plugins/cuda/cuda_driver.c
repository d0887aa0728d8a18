/* Virtual memory management exists in the driver only. The runtime hands out the driver's functions by name, in the version
 * that we ask for, so the plugin has no symbol that would keep it from loading without a driver. */
#include <string.h>

#include "cuda_private.h"

struct cuda_driver cuda_driver;

enum { DRIVER_VERSION = 12000 }; /* whose prototypes we use */

#define ROW(member, symbol)                                                                                                 \
    {                                                                                                                       \
        symbol, (void **)&cuda_driver.member                                                                                \
    }

int cuda_driver_open(struct error *error)
{
    const struct {
        const char *symbol;
        void **place;
    } rows[] = {
        ROW(init, "cuInit"),
        ROW(device_get, "cuDeviceGet"),
        ROW(device_name, "cuDeviceGetName"),
        ROW(device_uuid, "cuDeviceGetUuid"),
        ROW(device_memory, "cuDeviceTotalMem"),
        ROW(device_attribute, "cuDeviceGetAttribute"),
        ROW(granularity, "cuMemGetAllocationGranularity"),
        ROW(create, "cuMemCreate"),
        ROW(release, "cuMemRelease"),
        ROW(reserve, "cuMemAddressReserve"),
        ROW(free_address, "cuMemAddressFree"),
        ROW(map, "cuMemMap"),
        ROW(unmap, "cuMemUnmap"),
        ROW(import_handle, "cuMemImportFromShareableHandle"),
        ROW(properties, "cuMemGetAllocationPropertiesFromHandle"),
        ROW(range, "cuMemGetAddressRange"),
        ROW(set_access, "cuMemSetAccess"),
        ROW(export_handle, "cuMemExportToShareableHandle"),
        ROW(error_name, "cuGetErrorName"),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        cudaError_t code =
            cudaGetDriverEntryPointByVersion(rows[i].symbol, rows[i].place, DRIVER_VERSION, cudaEnableDefault, &found);
        if (code != cudaSuccess || found != cudaDriverEntryPointSuccess)
            return fail(error, ERROR_FAILED_PRECONDITION, "DRIVER_TOO_OLD", "the NVIDIA driver has no %s of CUDA %d.%d (%s)",
                        rows[i].symbol, DRIVER_VERSION / 1000, DRIVER_VERSION % 1000 / 10, cudaGetErrorName(code));
    }
    if (cuda_driver.init(0) != CUDA_SUCCESS)
        return fail(error, ERROR_FAILED_PRECONDITION, "DRIVER_UNUSABLE", "the NVIDIA driver does not start (cuInit failed)");
    return 0;
}
