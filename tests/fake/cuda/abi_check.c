/* Compiled, never called: what client/cuda_driver.h declares is what <cuda.h> says. */
#include <cuda.h>

#include "client/cuda_driver.h"

_Static_assert(sizeof(cuda_driver_address) == sizeof(CUdeviceptr), "device addresses");
_Static_assert(sizeof(cuda_driver_handle) == sizeof(CUmemGenericAllocationHandle), "handles");
_Static_assert(sizeof(cuda_driver_device) == sizeof(CUdevice), "devices");
_Static_assert(sizeof(struct cuda_driver_uuid) == sizeof(CUuuid), "UUIDs");
_Static_assert(sizeof(struct cuda_driver_access) == sizeof(CUmemAccessDesc), "access descriptions");
_Static_assert(offsetof(struct cuda_driver_access, location_id) == offsetof(CUmemAccessDesc, location.id),
               "access location");
_Static_assert(offsetof(struct cuda_driver_access, flags) == offsetof(CUmemAccessDesc, flags), "access flags");
_Static_assert((int)CUDA_DRIVER_SUCCESS == (int)CUDA_SUCCESS, "success");
_Static_assert((int)CUDA_DRIVER_HANDLE_FD == (int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "handle type");
_Static_assert((int)CUDA_DRIVER_ON_DEVICE == (int)CU_MEM_LOCATION_TYPE_DEVICE, "location type");
_Static_assert(sizeof(struct cuda_driver_ipc_handle) == sizeof(CUipcMemHandle), "IPC handles");
_Static_assert((int)CUDA_DRIVER_DEVICE_NUMBER == (int)CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device of an address");
_Static_assert((int)CUDA_DRIVER_MAPPING_BYTES == (int)CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "size of a mapping");
_Static_assert((int)CUDA_DRIVER_MAPPING_START == (int)CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "start of a mapping");
_Static_assert((int)CUDA_DRIVER_READ_WRITE == (int)CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access");
