/* Device memory: an allocation is a memfd, so that its descriptor can be passed on and mapped by another process; an address
 * is a reserved range, mapping is mmap() over it. Strict where the driver is: sizes are multiples of the granularity, access
 * has to be allowed, and what a stream still uses may not go away (that aborts, since a real one would corrupt memory). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_private.h"

enum { MAX_RANGES = 4096 };

struct allocation {
    struct allocation *next;
    int fd, device;
    uint64_t bytes;
    unsigned n_uses; /* the handle, and each mapping */
    bool is_plain;   /* of cudaMalloc: it can be shared by IPC handle only */
    bool is_imported;
};

struct range {
    uint64_t address, bytes;
    struct allocation *mapped;
    bool is_allowed;
};

static struct allocation *allocations; /* a real driver knows them, too: what is given up is not lost */
static struct table {
    size_t n; /* what is behind them was never used */
    struct range list[MAX_RANGES];
} ranges, pins;
static struct fake_cuda_live live_memory;
static uint64_t used_bytes[FAKE_MAX_DEVICES];

static void give_up_use(struct allocation *allocation)
{
    if (--allocation->n_uses)
        return;
    live_memory.bytes -= allocation->bytes;
    used_bytes[allocation->device] -= allocation->is_imported ? 0 : allocation->bytes;
    struct allocation **at = &allocations;
    while (*at != allocation)
        at = &(*at)->next;
    *at = allocation->next;
    close(allocation->fd);
    free(allocation);
}

/* What is imported fills the device once, for its maker. */
static struct allocation *add(struct allocation what)
{
    struct allocation *allocation = calloc(1, sizeof *allocation);
    *allocation = what;
    allocation->n_uses = 1;
    allocation->next = allocations;
    allocations = allocation;
    live_memory.handles++;
    live_memory.bytes += what.bytes;
    used_bytes[what.device] += what.is_imported ? 0 : what.bytes;
    return allocation;
}

uint64_t fake_free_bytes(int device)
{
    pthread_mutex_lock(&fake_lock);
    uint64_t used = used_bytes[device];
    pthread_mutex_unlock(&fake_lock);
    return used < fake_device_bytes() ? fake_device_bytes() - used : 0;
}

static const char *const kinds[] = {"fake-cuda-device", "fake-cuda-plain"};

int fake_create(int device, uint64_t bytes, bool is_plain, CUmemGenericAllocationHandle *handle)
{
    char name[64];
    if (bytes == 0 || bytes % FAKE_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > fake_free_bytes(device))
        return CUDA_ERROR_OUT_OF_MEMORY;
    snprintf(name, sizeof name, "%s-%d", kinds[is_plain], device);
    int fd = memfd_create(name, 0);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake_lock);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)add(
        (struct allocation){.fd = fd, .device = device, .bytes = bytes, .is_plain = is_plain});
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

int fake_release(CUmemGenericAllocationHandle handle)
{
    pthread_mutex_lock(&fake_lock);
    live_memory.handles--;
    give_up_use((struct allocation *)(uintptr_t)handle);
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

int fake_export(CUmemGenericAllocationHandle handle)
{
    return dup(((struct allocation *)(uintptr_t)handle)->fd);
}

int fake_import(int fd, CUmemGenericAllocationHandle *handle)
{
    return fake_import_kind(fd, false, handle);
}

int fake_import_kind(int fd, bool is_plain, CUmemGenericAllocationHandle *handle)
{
    char link[64], name[128] = "", expected[64];
    struct stat info;
    int device = -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(expected, sizeof expected, "/memfd:%s-%%d", kinds[is_plain]);
    if (readlink(link, name, sizeof name - 1) < 0 || sscanf(name, expected, &device) != 1 || device < 0 ||
        device >= fake_n_devices() || fstat(fd, &info))
        return CUDA_ERROR_INVALID_VALUE;
    int own = dup(fd);
    if (own < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake_lock);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)add((struct allocation){
        .fd = own, .device = device, .bytes = (uint64_t)info.st_size, .is_plain = is_plain, .is_imported = true});
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

/* --- addresses; under the lock from here on --------------------------------------------------------------------------- */

static struct range *find(struct table *table, uint64_t address)
{
    for (size_t i = 0; i < table->n; i++)
        if (table->list[i].bytes && table->list[i].address == address)
            return &table->list[i];
    return NULL;
}

static struct range *find_room(struct table *table)
{
    for (size_t i = 0; i < table->n; i++)
        if (!table->list[i].bytes)
            return &table->list[i];
    if (table->n == MAX_RANGES)
        abort();
    return &table->list[table->n++];
}

static struct range *find_exact(uint64_t address, uint64_t bytes)
{
    struct range *range = find(&ranges, address);
    return range && range->bytes == bytes ? range : NULL;
}

int fake_reserve(uint64_t bytes, CUdeviceptr *address)
{
    if (bytes == 0 || bytes % FAKE_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake_lock);
    *find_room(&ranges) = (struct range){.address = (uintptr_t)start, .bytes = bytes};
    live_memory.addresses++;
    pthread_mutex_unlock(&fake_lock);
    *address = (uintptr_t)start;
    return 0;
}

int fake_free_address(CUdeviceptr address, uint64_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = find_exact(address, bytes);
    bool is_right = range && !range->mapped;
    if (is_right) {
        munmap((void *)(uintptr_t)address, bytes);
        *range = (struct range){0};
        live_memory.addresses--;
    }
    pthread_mutex_unlock(&fake_lock);
    return is_right ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int fake_map(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    struct allocation *allocation = (struct allocation *)(uintptr_t)handle;
    pthread_mutex_lock(&fake_lock);
    struct range *range = find_exact(address, bytes);
    bool is_right = range && !range->mapped && allocation->bytes == bytes;
    if (is_right) {
        range->mapped = allocation;
        allocation->n_uses++;
        live_memory.mappings++;
    }
    pthread_mutex_unlock(&fake_lock);
    return is_right ? 0 : CUDA_ERROR_INVALID_VALUE;
}

int fake_allow(CUdeviceptr address, uint64_t bytes, int device)
{
    int code = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&fake_lock);
    struct range *range = find_exact(address, bytes);
    if (range && range->mapped && range->mapped->device == device) {
        void *got =
            mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, range->mapped->fd, 0);
        range->is_allowed = got != MAP_FAILED;
        code = range->is_allowed ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&fake_lock);
    return code;
}

static void insist_unused(uint64_t address, uint64_t bytes, const char *doing)
{
    if (!fake_is_in_use(address, bytes))
        return;
    fprintf(stderr, "FAKE CUDA: %s of memory that a stream still uses\n", doing);
    abort();
}

int fake_unmap(CUdeviceptr address, uint64_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    struct range *range = find_exact(address, bytes);
    bool is_right = range && range->mapped;
    if (is_right) {
        insist_unused(address, bytes, "unmapping");
        mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        give_up_use(range->mapped);
        range->mapped = NULL;
        range->is_allowed = false;
        live_memory.mappings--;
    }
    pthread_mutex_unlock(&fake_lock);
    return is_right ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static struct range *find_around(struct table *table, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < table->n; i++) {
        struct range *range = &table->list[i];
        if (range->bytes && range->address <= address && address + bytes <= range->address + range->bytes)
            return range;
    }
    return NULL;
}

bool fake_is_device_memory(uint64_t address, uint64_t bytes, int device)
{
    const struct range *range = find_around(&ranges, address, bytes);
    return range && range->is_allowed && range->mapped->device == device;
}

bool fake_find(uint64_t address, struct fake_place *place)
{
    const struct range *range = find_around(&ranges, address, 1);
    const struct allocation *mapped = range ? range->mapped : NULL;
    if (mapped)
        *place = (struct fake_place){.start = range->address,
                                     .bytes = range->bytes,
                                     .handle = (CUmemGenericAllocationHandle)(uintptr_t)mapped,
                                     .device = mapped->device,
                                     .fd = mapped->fd,
                                     .is_plain = mapped->is_plain};
    return mapped != NULL;
}

int fake_device_of(CUmemGenericAllocationHandle handle)
{
    int device = -1;
    pthread_mutex_lock(&fake_lock);
    for (const struct allocation *allocation = allocations; allocation; allocation = allocation->next)
        if (allocation == (const struct allocation *)(uintptr_t)handle)
            device = allocation->device;
    pthread_mutex_unlock(&fake_lock);
    return device;
}

void fake_retain(CUmemGenericAllocationHandle handle)
{
    ((struct allocation *)(uintptr_t)handle)->n_uses++;
    live_memory.handles++;
}

/* --- pinned host memory ------------------------------------------------------------------------------------------------ */

int fake_pin(void *memory, uint64_t bytes)
{
    pthread_mutex_lock(&fake_lock);
    bool is_new = !find(&pins, (uintptr_t)memory);
    if (is_new) {
        *find_room(&pins) = (struct range){.address = (uintptr_t)memory, .bytes = bytes};
        live_memory.pins++;
    }
    pthread_mutex_unlock(&fake_lock);
    return is_new ? 0 : cudaErrorHostMemoryAlreadyRegistered;
}

int fake_unpin(void *memory)
{
    pthread_mutex_lock(&fake_lock);
    struct range *pin = find(&pins, (uintptr_t)memory);
    bool is_known = pin != NULL;
    if (pin) {
        insist_unused(pin->address, pin->bytes, "unpinning");
        *pin = (struct range){0};
        live_memory.pins--;
    }
    pthread_mutex_unlock(&fake_lock);
    return is_known ? 0 : cudaErrorHostMemoryNotRegistered;
}

bool fake_is_pinned(const void *memory, uint64_t bytes)
{
    return find_around(&pins, (uintptr_t)memory, bytes) != NULL;
}

void fake_count_memory(struct fake_cuda_live *live)
{
    *live = live_memory;
}
