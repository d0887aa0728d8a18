/* Imports the daemon's physical memory and exports this process's; see cuda_memory.h. The context is the device's primary
 * one, which every CUDA library of the process shares. */
#include "cuda_memory.h"

#include <ctype.h>
#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "cuda_driver.h"

static const char library_name[] = "libcuda.so.1";

struct cuda_memory {
    struct cuda_driver driver;
    cuda_driver_device device;
    cuda_driver_context context; /* NULL = not retained */
    char uuid[CUDA_UUID_CHARS];
    cuda_driver_address address; /* 0 = there is no memory */
    uint64_t bytes;
    bool is_lent; /* the memory is the caller's */
};

bool cuda_memory_is_meant(const char *device)
{
    return device && *device && strcmp(device, "cpu") != 0 && strcmp(device, "cpu:0") != 0;
}

/* --- the driver --- */

static int open_driver(struct cuda_driver *driver, struct error *error)
{
    const struct {
        const char *symbol;
        void *place;
    } rows[] = {
        {"cuInit", &driver->init},
        {"cuDeviceGetCount", &driver->device_count},
        {"cuDeviceGet", &driver->device_get},
        {"cuDeviceGetUuid_v2", &driver->device_uuid},
        {"cuDevicePrimaryCtxRetain", &driver->retain},
        {"cuDevicePrimaryCtxRelease_v2", &driver->release_context},
        {"cuCtxPushCurrent_v2", &driver->push},
        {"cuCtxPopCurrent_v2", &driver->pop},
        {"cuCtxSynchronize", &driver->synchronize},
        {"cuMemImportFromShareableHandle", &driver->import_handle},
        {"cuMemRelease", &driver->release},
        {"cuMemAddressReserve", &driver->reserve},
        {"cuMemAddressFree", &driver->free_address},
        {"cuMemMap", &driver->map},
        {"cuMemUnmap", &driver->unmap},
        {"cuMemSetAccess", &driver->set_access},
        {"cuMemcpyDtoH_v2", &driver->copy_to_host},
        {"cuPointerGetAttribute", &driver->attribute},
        {"cuMemGetAddressRange_v2", &driver->range},
        {"cuMemRetainAllocationHandle", &driver->retain_handle},
        {"cuMemExportToShareableHandle", &driver->export_handle},
        {"cuIpcGetMemHandle", &driver->ipc_handle},
        {"cuGetErrorName", &driver->error_name},
    };
    driver->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!driver->library)
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_CUDA_DRIVER",
                    "this process has no NVIDIA driver: %s; GPU memory can be taken only where one is installed", dlerror());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *symbol = dlsym(driver->library, rows[i].symbol);
        if (!symbol)
            return fail(error, ERROR_FAILED_PRECONDITION, "NO_CUDA_DRIVER",
                        "the NVIDIA driver's %s has no %s: it is too old", library_name, rows[i].symbol);
        memcpy(rows[i].place, &symbol, sizeof symbol);
    }
    return 0;
}

static int fail_driver(const struct cuda_driver *driver, int code, struct error *error, const char *doing)
{
    const char *name = NULL;
    if (driver->error_name(code, &name) != CUDA_DRIVER_SUCCESS || !name)
        name = "an unknown error";
    return fail(error, ERROR_FAILED_PRECONDITION, "CUDA_FAILED", "%s failed: %s (%d)", doing, name, code);
}

/* --- the device --- */

static int read_uuid(struct cuda_memory *memory, int number, struct error *error)
{
    struct cuda_driver_uuid uuid;
    int code = memory->driver.device_get(&memory->device, number);
    if (code == CUDA_DRIVER_SUCCESS)
        code = memory->driver.device_uuid(&uuid, memory->device);
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(&memory->driver, code, error, "looking at a GPU");
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    snprintf(memory->uuid, sizeof memory->uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return 0;
}

/* "cuda" and "cuda:N": N; -1 for a UUID, -2 for anything else. */
static long number_of(const char *device)
{
    char *end;
    if (strncasecmp(device, "GPU-", 4) == 0 || strncasecmp(device, "MIG-", 4) == 0)
        return -1;
    if (strcmp(device, "cuda") == 0)
        return 0;
    if (strncmp(device, "cuda:", 5) != 0 || !isdigit((unsigned char)device[5]) || strlen(device) > 9)
        return -2;
    long number = strtol(device + 5, &end, 10);
    return *end ? -2 : number;
}

static int find_device(struct cuda_memory *memory, const char *device, struct error *error)
{
    int count = 0;
    long wanted = number_of(device);
    int code = memory->driver.init(0);
    if (code == CUDA_DRIVER_SUCCESS)
        code = memory->driver.device_count(&count);
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(&memory->driver, code, error, "starting the NVIDIA driver");
    if (wanted >= 0 && wanted < count)
        return read_uuid(memory, (int)wanted, error);
    for (int i = 0; wanted == -1 && i < count; i++) {
        if (read_uuid(memory, i, error))
            return -1;
        if (strcasecmp(memory->uuid + 4, device + 4) == 0) /* a part of a GPU has another prefix */
            return 0;
    }
    return fail(error, ERROR_FAILED_PRECONDITION, "NO_CUDA_DEVICE", "device %s is none of the %d GPUs this process sees",
                text_show(device), count);
}

int cuda_memory_open(const char *device, struct cuda_memory **opened, struct error *error)
{
    if (number_of(device) == -2)
        return fail(error, ERROR_UNIMPLEMENTED, "DEVICE_UNSUPPORTED",
                    "device %s is not supported; there are cpu, cuda:N and the UUIDs of GPUs", text_show(device));
    struct cuda_memory *memory = memory_alloc(sizeof *memory);
    if (open_driver(&memory->driver, error) || find_device(memory, device, error)) {
        cuda_memory_close(memory);
        return -1;
    }
    *opened = memory;
    return 0;
}

const char *cuda_memory_uuid(const struct cuda_memory *memory)
{
    return memory->uuid;
}

/* --- the memory --- */

static int map_handle(struct cuda_memory *memory, cuda_driver_handle handle, uint64_t bytes)
{
    const struct cuda_driver *driver = &memory->driver;
    const struct cuda_driver_access access = {CUDA_DRIVER_ON_DEVICE, memory->device, CUDA_DRIVER_READ_WRITE};
    cuda_driver_address address;
    int code = driver->reserve(&address, bytes, 0, 0, 0);
    if (code != CUDA_DRIVER_SUCCESS)
        return code;
    code = driver->map(address, bytes, 0, handle, 0);
    if (code == CUDA_DRIVER_SUCCESS) {
        code = driver->set_access(address, bytes, &access, 1);
        if (code == CUDA_DRIVER_SUCCESS) {
            memory->address = address;
            memory->bytes = bytes;
            return code;
        }
        driver->unmap(address, bytes);
    }
    driver->free_address(address, bytes);
    return code;
}

static int retain_context(struct cuda_memory *memory, struct error *error)
{
    int code = memory->driver.retain(&memory->context, memory->device);
    if (code == CUDA_DRIVER_SUCCESS)
        return 0;
    memory->context = NULL;
    return fail_driver(&memory->driver, code, error, "making a context on the GPU");
}

int cuda_memory_map(struct cuda_memory *memory, int fd, uint64_t bytes, const void **data, struct error *error)
{
    const struct cuda_driver *driver = &memory->driver;
    cuda_driver_handle handle;
    if (retain_context(memory, error))
        return -1;
    int code = driver->import_handle(&handle, (void *)(intptr_t)fd, CUDA_DRIVER_HANDLE_FD);
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(driver, code, error, "importing the GPU memory that was handed off");
    code = map_handle(memory, handle, bytes);
    driver->release(handle); /* the mapping keeps the memory */
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(driver, code, error, "mapping the GPU memory that was handed off");
    *data = (const void *)(uintptr_t)memory->address;
    return 0;
}

/* --- lending --- */

static int not_here(const struct cuda_memory *memory, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "NOT_DEVICE_MEMORY",
                "the memory to be filled is not the announced number of bytes in one allocation on GPU %s", memory->uuid);
}

/* [address, +bytes) in the allocation at start. */
static bool is_inside(const struct cuda_memory *memory, cuda_driver_address start, uint64_t allocation_bytes)
{
    return memory->address >= start && memory->bytes <= allocation_bytes &&
           memory->address - start <= allocation_bytes - memory->bytes;
}

/* Memory of virtual memory management. The mapping is the whole physical allocation. */
static int lend_handle(const struct cuda_memory *memory, cuda_driver_handle handle, struct handoff_region *offer, int *fd,
                       struct error *error)
{
    const struct cuda_driver *driver = &memory->driver;
    cuda_driver_address start = 0;
    size_t allocation_bytes = 0;
    int code = driver->attribute(&start, CUDA_DRIVER_MAPPING_START, memory->address);
    if (code == CUDA_DRIVER_SUCCESS)
        code = driver->attribute(&allocation_bytes, CUDA_DRIVER_MAPPING_BYTES, memory->address);
    if (code == CUDA_DRIVER_SUCCESS && !is_inside(memory, start, allocation_bytes))
        return not_here(memory, error);
    if (code == CUDA_DRIVER_SUCCESS)
        code = driver->export_handle(fd, handle, CUDA_DRIVER_HANDLE_FD, 0);
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(driver, code, error, "sharing the memory to be filled (it has to be made for POSIX descriptors)");
    fcntl(*fd, F_SETFD, FD_CLOEXEC);
    offer->kind = htole32(HANDOFF_REGION_FD);
    offer->allocation_bytes = htole64(allocation_bytes);
    offer->offset = htole64(memory->address - start);
    return 0;
}

static int lend_plain(const struct cuda_memory *memory, struct handoff_region *offer, struct error *error)
{
    const struct cuda_driver *driver = &memory->driver;
    struct cuda_driver_ipc_handle handle;
    cuda_driver_address start = 0;
    size_t allocation_bytes = 0;
    int code = driver->range(&start, &allocation_bytes, memory->address);
    if (code == CUDA_DRIVER_SUCCESS && !is_inside(memory, start, allocation_bytes))
        return not_here(memory, error);
    if (code == CUDA_DRIVER_SUCCESS)
        code = driver->ipc_handle(&handle, start);
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(driver, code, error, "sharing the memory to be filled (cudaMalloc makes memory that can be)");
    memcpy(offer->ipc, handle.bytes, sizeof offer->ipc);
    offer->kind = htole32(HANDOFF_REGION_IPC);
    offer->offset = htole64(memory->address - start);
    return 0;
}

static int lend(const struct cuda_memory *memory, struct handoff_region *offer, int *fd, struct error *error)
{
    const struct cuda_driver *driver = &memory->driver;
    cuda_driver_handle handle;
    int number = -1;
    int code = driver->attribute(&number, CUDA_DRIVER_DEVICE_NUMBER, memory->address);
    if (code != CUDA_DRIVER_SUCCESS || number != memory->device)
        return not_here(memory, error);
    if (driver->retain_handle(&handle, (void *)(uintptr_t)memory->address) != CUDA_DRIVER_SUCCESS)
        return lend_plain(memory, offer, error);
    int failed = lend_handle(memory, handle, offer, fd, error);
    driver->release(handle);
    return failed;
}

int cuda_memory_lend(struct cuda_memory *memory, const void *data, uint64_t bytes, struct handoff_region *offer, int *fd,
                     struct error *error)
{
    const struct cuda_driver *driver = &memory->driver;
    *fd = -1;
    *offer = (struct handoff_region){.version = htole32(HANDOFF_VERSION), .bytes = htole64(bytes)};
    memcpy(offer->magic, HANDOFF_REGION_MAGIC, sizeof offer->magic);
    if (retain_context(memory, error))
        return -1;
    memory->address = (uintptr_t)data;
    memory->bytes = bytes;
    memory->is_lent = true;
    int code = driver->push(memory->context);
    if (code != CUDA_DRIVER_SUCCESS)
        return fail_driver(driver, code, error, "entering the context of the GPU");
    code = driver->synchronize(); /* what this process has queued may use the memory */
    int failed = code == CUDA_DRIVER_SUCCESS
                     ? lend(memory, offer, fd, error)
                     : fail_driver(driver, code, error, "waiting for the GPU to be done with the memory");
    driver->pop(NULL);
    return failed;
}

int cuda_memory_read(const struct cuda_memory *memory, uint64_t offset, uint64_t bytes, void *to, struct error *error)
{
    const struct cuda_driver *driver = &memory->driver;
    if (offset > memory->bytes || bytes > memory->bytes - offset)
        return fail(error, ERROR_INVALID_ARGUMENT, "OUTSIDE_MEMORY",
                    "%llu bytes at %llu are outside the load's memory of %llu bytes", (unsigned long long)bytes,
                    (unsigned long long)offset, (unsigned long long)memory->bytes);
    int code = driver->push(memory->context);
    if (code == CUDA_DRIVER_SUCCESS) {
        code = bytes ? driver->copy_to_host(to, memory->address + offset, bytes) : CUDA_DRIVER_SUCCESS;
        driver->pop(NULL);
    }
    return code == CUDA_DRIVER_SUCCESS ? 0 : fail_driver(driver, code, error, "copying from GPU memory");
}

/* The library stays open: other code may use the driver. */
void cuda_memory_close(struct cuda_memory *memory)
{
    if (!memory)
        return;
    const struct cuda_driver *driver = &memory->driver;
    if (memory->address && !memory->is_lent) {
        driver->unmap(memory->address, memory->bytes);
        driver->free_address(memory->address, memory->bytes);
    }
    if (memory->context)
        driver->release_context(memory->device);
    free(memory);
}
