/* One reserved range, a struct host_memory for each memfd in it; see host_region.h. */
#include "device/host_region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/checked.h"
#include "base/huge_pages.h"
#include "base/memory.h"
#include "base/bus_guard.h"
#include "device/host_memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { HUGETLBFS_TYPE = 0x958458f6, UNMAP_BYTES = 512 << 20 };

/* A memfd without pages may have any size, and addresses are 128 TiB for all loads together. */
#define MAX_LOAD_BYTES ((uint64_t)4 << 40)
/* A load counts as many addresses at least, so that no user has all guards without all addresses. */
#define LEAST_COUNTED_BYTES (HOST_REGIONS_MAX_BYTES / BUS_GUARD_MAX)

/* --- what a client offers ------------------------------------------------------------------------------------------- */

/* Only memfds can have F_SEAL_SHRINK, and F_GET_SEALS asks only this kernel. Everything after it may look closer. */
static int check_seals(int fd, struct error *error)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_NOT_MEMFD",
                    "the client's memory is no memfd; make it by memfd_create() with MFD_ALLOW_SEALING");
    if (!(seals & F_SEAL_SHRINK))
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_CAN_SHRINK",
                    "the client's memory could shrink; seal its memfd with F_SEAL_SHRINK (fcntl, F_ADD_SEALS)");
    if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_IS_SEALED", "the client's memory is sealed against writing (%s)",
                    seals & F_SEAL_WRITE ? "F_SEAL_WRITE" : "F_SEAL_FUTURE_WRITE");
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDWR)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_READ_ONLY",
                    "the client's memory was opened for reading only; offer a descriptor that can be written through");
    return 0;
}

int host_region_check(struct device_region *region, struct error *error)
{
    struct stat status;
    struct statfs pages;
    if (check_seals(region->memory_fd, error))
        return -1;
    if (fstat(region->memory_fd, &status) || fstatfs(region->memory_fd, &pages))
        return fail_errno(error, errno, "looking at a client's memory");
    if (status.st_size <= 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_EMPTY", "the client's memory has no bytes");
    if (pages.f_bsize > HUGE_PAGE_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_PAGES_TOO_LARGE",
                    "the client's memory has pages of %" PRIu64 " bytes; at most %d are supported", (uint64_t)pages.f_bsize,
                    HUGE_PAGE_BYTES);
    region->offset = 0;
    region->bytes = (uint64_t)status.st_size;
    region->memory_device = status.st_dev;
    region->memory_inode = status.st_ino;
    return 0;
}

/* --- the mapping ---------------------------------------------------------------------------------------------------- */

struct host_regions {
    unsigned char *range; /* with room to spare: `address` is the first multiple of HUGE_PAGE_BYTES in it */
    uint64_t range_bytes;
    struct quota_charge addresses; /* of the range */
    unsigned char *address;
    struct bus_guard *guard;
    size_t n;
    struct window {
        uint64_t base;
        struct host_memory *memory;
    } list[]; /* by base */
};

/* Ends at the end of a huge page, where the last memfd may not: see on_bus_error(). */
static int reserve_range(struct host_regions *regions, uint64_t end, struct error *error)
{
    uint64_t bytes;
    if (!checked_align(end, HUGE_PAGE_BYTES, &bytes) || bytes > MAX_LOAD_BYTES)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_TOO_LARGE",
                    "the client's memory takes %" PRIu64 " bytes, one load may have at most %" PRIu64, end, MAX_LOAD_BYTES);
    regions->range_bytes = bytes + HUGE_PAGE_BYTES;
    uint64_t counted = regions->range_bytes > LEAST_COUNTED_BYTES ? regions->range_bytes : LEAST_COUNTED_BYTES;
    if (quota_charge_add(&regions->addresses, counted, error) < 0)
        return -1;
    void *range = mmap(NULL, regions->range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return fail_errno(error, errno, "reserving addresses for %" PRIu64 " bytes of a client's memory", end);
    regions->range = range;
    regions->address = regions->range + (-(uintptr_t)range & (HUGE_PAGE_BYTES - 1));
    return bus_guard_begin(regions->address, bytes, &regions->guard, error);
}

static int map_region(struct host_regions *regions, const struct device_region *region, struct error *error)
{
    struct window *window = &regions->list[regions->n];
    struct statfs pages;
    if (fstatfs(region->memory_fd, &pages))
        return fail_errno(error, errno, "looking at a client's memory");
    if (host_memory_lend(region->memory_fd, regions->address + region->base, region->bytes, pages.f_type == HUGETLBFS_TYPE,
                         &window->memory, error))
        return -1;
    window->base = region->base;
    regions->n++;
    return 0;
}

int host_regions_open(const struct device_region *list, struct host_regions **opened, struct error *error)
{
    size_t n = 0;
    uint64_t end = 0;
    for (const struct device_region *region = list; region; region = region->next, n++)
        if (!checked_add(region->base, region->bytes, &end))
            end = UINT64_MAX;
    struct host_regions *regions = memory_alloc(sizeof *regions + n * sizeof *regions->list);
    regions->addresses = (struct quota_charge){.quota = list->descriptors.quota, .kind = QUOTA_LENT, .uid = list->owner};
    int failed = reserve_range(regions, end, error);
    for (const struct device_region *region = list; region && !failed; region = region->next)
        failed = map_region(regions, region, error);
    if (failed) {
        host_regions_close(regions);
        return -1;
    }
    *opened = regions;
    return 0;
}

void *host_regions_address(const struct host_regions *regions)
{
    return regions->address;
}

static int fail_taken(struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, "REGION_TAKEN_AWAY",
                "pages of the client's memory were taken away while it was filled");
}

int host_regions_prepare(struct host_regions *regions, uint64_t offset, uint64_t bytes, struct error *error)
{
    size_t lo = 0, hi = regions->n;
    while (hi - lo > 1) { /* the last one that begins at or before it */
        size_t middle = lo + (hi - lo) / 2;
        if (regions->list[middle].base <= offset)
            lo = middle;
        else
            hi = middle;
    }
    struct window *window = &regions->list[lo];
    uint64_t within = offset - window->base;
    if (bus_guard_is_broken(regions->guard))
        return fail_taken(error);
    if (offset < window->base || within > window->memory->bytes || bytes > window->memory->bytes - within)
        return fail(error, ERROR_INTERNAL, "SEGMENT_BOUNDS", "%" PRIu64 " bytes at %" PRIu64 " are in no region", bytes,
                    offset);
    return host_memory_prepare(window->memory, within, bytes, error);
}

int host_regions_finish(struct host_regions *regions, struct error *error)
{
    return bus_guard_is_broken(regions->guard) ? fail_taken(error) : 0;
}

enum page_kind host_regions_page_kind(const struct host_regions *regions)
{
    enum page_kind smallest = PAGE_KIND_HUGETLB;
    for (size_t i = 0; i < regions->n; i++) {
        enum page_kind kind = host_memory_page_kind(regions->list[i].memory);
        smallest = kind > smallest ? kind : smallest;
    }
    return smallest;
}

void host_regions_close(struct host_regions *regions)
{
    if (!regions)
        return;
    for (size_t i = 0; i < regions->n; i++)
        host_memory_destroy(regions->list[i].memory);
    bus_guard_end(regions->guard);
    /* piece by piece: other threads that map something wait for each */
    for (uint64_t offset = 0; regions->range && offset < regions->range_bytes; offset += UNMAP_BYTES) {
        uint64_t left = regions->range_bytes - offset;
        munmap(regions->range + offset, left < UNMAP_BYTES ? left : UNMAP_BYTES);
    }
    quota_charge_end(&regions->addresses);
    free(regions);
}
