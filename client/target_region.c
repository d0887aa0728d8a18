/* Host regions are memfds that cannot shrink: whatever this process does later, the daemon never touches memory that is gone. */
#include "target_region.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/huge_pages.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "client.h"
#include "cuda_memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { HUGE_BYTES = HUGE_PAGE_BYTES, BATCH_PIECES = 32, BACKING_THREADS = 8 };

static struct tc_region *end_failed(struct tc_region *region, const struct error *cause, struct tc_error *error)
{
    tc_region_destroy(region);
    client_fail(error, cause);
    return NULL;
}

/* The whole memfd at a multiple of 2 MiB, so that huge pages stay huge. */
static int map_region(struct tc_region *region, struct error *error)
{
    uint64_t length;
    if (!checked_align(region->bytes, HUGE_BYTES, &length) || length > SIZE_MAX / 2)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REGION", "%llu bytes cannot be mapped",
                    (unsigned long long)region->bytes);
    char *reserved = mmap(NULL, length + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REGION", "this process has no room for %llu bytes: %s",
                    (unsigned long long)region->bytes, strerror(errno));
    char *start = (char *)(((uintptr_t)reserved + HUGE_BYTES - 1) & ~((uintptr_t)HUGE_BYTES - 1));
    size_t before = (size_t)(start - reserved);
    if (before)
        munmap(reserved, before);
    munmap(start + length, HUGE_BYTES - before);
    if (mmap(start, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region->memfd, 0) == MAP_FAILED) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_REGION", "the region's memory cannot be mapped to be written: %s",
             strerror(errno));
        munmap(start, length);
        return -1;
    }
    if (region->bytes >= HUGE_BYTES)
        madvise(start, length, MADV_HUGEPAGE); /* a kernel without them refuses, and nothing is lost */
    region->memory = start;
    region->mapped_bytes = length;
    return 0;
}

struct tc_region *tc_region_create(uint64_t bytes, struct tc_error *error)
{
    struct error cause;
    struct tc_region *region = memory_alloc(sizeof *region);
    *region = (struct tc_region){.bytes = bytes, .memfd = -1};
    int failed = 0;
    if (!bytes || bytes > INT64_MAX)
        failed = fail(&cause, ERROR_INVALID_ARGUMENT, "BAD_REGION", "a region of %llu bytes", (unsigned long long)bytes);
    if (!failed && (region->memfd = memfd_create("tensorcast-region", MFD_CLOEXEC | MFD_ALLOW_SEALING)) < 0)
        failed = fail_errno(&cause, errno, "cannot make a memfd");
    if (!failed && (ftruncate(region->memfd, (off_t)bytes) ||
                    fcntl(region->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
        failed = fail_errno(&cause, errno, "cannot make a region of %llu bytes", (unsigned long long)bytes);
    if (failed || map_region(region, &cause))
        return end_failed(region, &cause, error);
    return region;
}

/* Why a descriptor's memory cannot be a region; NULL when it can. */
static const char *why_unfit(int memfd, uint64_t *bytes)
{
    struct stat info;
    int seals = fcntl(memfd, F_GET_SEALS);
    if (seals < 0)
        return "it is no memfd that takes seals (MFD_ALLOW_SEALING)";
    if (!(seals & F_SEAL_SHRINK))
        return "it could shrink; add F_SEAL_SHRINK";
    if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return "it is sealed against writing";
    if (fstat(memfd, &info) || info.st_size <= 0)
        return "it is empty";
    *bytes = (uint64_t)info.st_size;
    return NULL;
}

struct tc_region *tc_region_open(int memfd, struct tc_error *error)
{
    struct error cause;
    struct tc_region *region = memory_alloc(sizeof *region);
    *region = (struct tc_region){.memfd = fcntl(memfd, F_DUPFD_CLOEXEC, 0)};
    const char *why = why_unfit(region->memfd, &region->bytes);
    if (why) {
        fail(&cause, ERROR_INVALID_ARGUMENT, "BAD_REGION", "descriptor %d cannot be a region: %s", memfd, why);
        return end_failed(region, &cause, error);
    }
    if (map_region(region, &cause))
        return end_failed(region, &cause, error);
    return region;
}

struct tc_region *tc_region_wrap(const char *device, void *memory, uint64_t bytes, struct tc_error *error)
{
    struct error cause;
    struct tc_region *region = memory_alloc(sizeof *region);
    *region = (struct tc_region){.memory = memory, .bytes = bytes, .memfd = -1};
    if (!cuda_memory_is_meant(device) || !memory || !bytes) {
        fail(&cause, ERROR_INVALID_ARGUMENT, "BAD_REGION", "a region of GPU memory needs a device, an address and a size");
        return end_failed(region, &cause, error);
    }
    region->device = memory_copy_text(device);
    return region;
}

void *tc_region_memory(const struct tc_region *region, uint64_t *bytes)
{
    if (bytes)
        *bytes = region->bytes;
    return region->memory;
}

void tc_region_destroy(struct tc_region *region)
{
    if (!region)
        return;
    if (region->mapped_bytes)
        munmap(region->memory, region->mapped_bytes);
    if (region->memfd >= 0)
        close(region->memfd);
    free(region->device);
    free(region);
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

void target_pieces_create(const struct tc_region *region, struct target_pieces *pieces)
{
    *pieces = (struct target_pieces){0};
    if (region->memfd < 0)
        return;
    pieces->n = (region->bytes + HUGE_BYTES - 1) / HUGE_BYTES;
    pieces->is_wanted = memory_alloc(pieces->n);
}

void target_pieces_add(struct target_pieces *pieces, uint64_t lo, uint64_t hi)
{
    uint64_t end = hi / HUGE_BYTES + (hi % HUGE_BYTES != 0);
    for (uint64_t i = lo / HUGE_BYTES; pieces->is_wanted && i < end && i < pieces->n; i++)
        pieces->is_wanted[i] = 1;
}

void target_pieces_destroy(struct target_pieces *pieces)
{
    free(pieces->is_wanted);
}

struct batches { /* of neighbours */
    const struct tc_region *region;
    enum huge_rung rung;
    struct batch {
        uint64_t first, n;
    } * list;
};

static int back_batch(void *data, size_t i, struct error *error)
{
    const struct batches *batches = data;
    uint64_t offset = batches->list[i].first * HUGE_BYTES, bytes = batches->list[i].n * HUGE_BYTES, huge_bytes;
    uint64_t left = batches->region->bytes - offset;
    return huge_pages_back(batches->rung, (unsigned char *)batches->region->memory + offset, bytes < left ? bytes : left,
                           &huge_bytes, error);
}

int target_pieces_back(const struct target_pieces *pieces, const struct tc_region *region, struct error *error)
{
    struct batches batches = {.region = region,
                              .rung =
                                  region->bytes < HUGE_BYTES || huge_pages_on_fault() ? HUGE_RUNG_NONE : HUGE_RUNG_COLLAPSE,
                              .list = memory_alloc_array(pieces->n + 1, sizeof *batches.list)};
    size_t n = 0;
    for (uint64_t i = 0; i < pieces->n; i++) {
        if (!pieces->is_wanted[i])
            continue;
        struct batch *last = n ? &batches.list[n - 1] : NULL;
        if (last && last->first + last->n == i && last->n < BATCH_PIECES)
            last->n++;
        else
            batches.list[n++] = (struct batch){i, 1};
    }
    int failed = parallel_run(n, BACKING_THREADS, back_batch, &batches, error);
    free(batches.list);
    return failed;
}

/* --- for one load ------------------------------------------------------------------------------------------------ */

static int lend_gpu(const struct tc_region *region, const char *socket, const struct wait *wait, struct target_lease *lease,
                    struct error *error)
{
    struct handoff_region wire;
    int memory_fd;
    if (cuda_memory_open(region->device, &lease->cuda, error) ||
        cuda_memory_lend(lease->cuda, region->memory, region->bytes, &wire, &memory_fd, error))
        return -1;
    int failed = region_offer(socket, &wire, memory_fd, wait, &lease->offer, error);
    if (memory_fd >= 0)
        close(memory_fd);
    return failed;
}

int target_region_lend(const struct tc_region *region, const char *socket, const struct wait *wait,
                       struct target_lease *lease, const char **device, struct error *error)
{
    *lease = (struct target_lease){.offer.lease = -1};
    *device = "";
    if (region->memfd >= 0) {
        struct handoff_region wire = {.version = htole32(HANDOFF_VERSION),
                                      .kind = htole32(HANDOFF_REGION_HOST),
                                      .allocation_bytes = htole64(region->bytes),
                                      .bytes = htole64(region->bytes)};
        memcpy(wire.magic, HANDOFF_REGION_MAGIC, sizeof wire.magic);
        return region_offer(socket, &wire, region->memfd, wait, &lease->offer, error);
    }
    if (lend_gpu(region, socket, wait, lease, error))
        return -1;
    *device = cuda_memory_uuid(lease->cuda);
    return 0;
}

int target_region_end(struct target_lease *lease, struct error *error)
{
    int failed = region_end(&lease->offer, error);
    cuda_memory_close(lease->cuda);
    return failed;
}
