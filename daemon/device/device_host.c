/* Host memory as a device: segments are sealed memfds with the best pages there are, handed out as read-only descriptors.
 *
 * allocate: prepared memory that fits, else a new memfd up the ladder of huge_pages.h. prepare: each 2 MiB chunk is backed
 * once, by the worker that fills it first. seal, export_fd: see host_memory.h. release: destroyed.
 * With regions it is memory of a client instead (host_region.h), which is unmapped by release and never sealed. Failure modes: no memory or no descriptor (RESOURCE_EXHAUSTED); 4K pages instead of huge ones are no failure but one
 * loud log line, since loads become ten times slower. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/device.h"
#include "device/host_memory.h"
#include "device/host_pool.h"
#include "device/host_region.h"
#include "observe/log.h"

enum { PAGE_BYTES = 4096 };

struct device_host {
    struct device base;
    struct host_pool pool;
    bool has_warned; /* atomic */
};

struct host_segment {
    struct segment base;
    struct host_memory *memory;   /* NULL = it is a client's */
    struct host_regions *regions; /* NULL = it is ours */
    bool is_filling;              /* the pool was told so */
};

static struct host_memory *memory_of(struct segment *segment)
{
    return ((struct host_segment *)segment)->memory;
}

static struct host_regions *regions_of(struct segment *segment)
{
    return ((struct host_segment *)segment)->regions;
}

static void set_filling(struct host_segment *segment, bool is_filling)
{
    if (segment->is_filling != is_filling)
        host_pool_filling(&((struct device_host *)segment->base.device)->pool, is_filling);
    segment->is_filling = is_filling;
}

static int host_allocate(struct device *device, uint64_t bytes, struct segment *segment, struct error *error)
{
    struct device_host *host = (struct device_host *)device;
    if (segment->region) {
        struct host_segment *lent = (struct host_segment *)segment;
        if (host_regions_open(segment->region, &lent->regions, error))
            return -1;
        segment->host_address = host_regions_address(lent->regions);
        segment->allocated_bytes = bytes; /* not a byte more of what is a client's */
        segment->backed_bytes = bytes;    /* mostly: a client that has memory filled in place has used it before */
        segment->dirty = true;
        set_filling(lent, true);
        return 0;
    }
    uint64_t unit = bytes < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES; /* most of a huge page would be wasted */
    uint64_t rounded;
    if (!checked_align(bytes ? bytes : 1, unit, &rounded) || rounded > INT64_MAX)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_LARGE", "a replica of %llu bytes is more than any host has",
                    (unsigned long long)bytes);
    struct host_memory *memory = host_pool_take(&host->pool, rounded);
    if (!memory && host_pool_create(&host->pool, rounded, &memory, error))
        return -1;
    segment->host_address = memory->address;
    segment->allocated_bytes = memory->bytes;
    segment->backed_bytes = memory->pool_ready_bytes;
    ((struct host_segment *)segment)->memory = memory;
    set_filling((struct host_segment *)segment, true);
    return 0;
}

static int host_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error)
{
    struct host_regions *regions = regions_of(segment);
    return regions ? host_regions_prepare(regions, offset, bytes, error)
                   : host_memory_prepare(memory_of(segment), offset, bytes, error);
}

static int host_copy(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                     struct error *error)
{
    uint64_t bytes = 0;
    device_rows_extent(rows, &bytes);
    if (host_prepare(segment, offset, bytes, error))
        return -1;
    device_rows_copy((unsigned char *)segment->host_address + offset, src, rows);
    return 0;
}

static int host_seal(struct segment *segment, struct error *error)
{
    struct device_host *host = (struct device_host *)segment->device;
    struct host_memory *memory = memory_of(segment);
    set_filling((struct host_segment *)segment, false);
    if (regions_of(segment))
        return host_regions_finish(regions_of(segment), error);
    if (host_memory_seal(memory, error))
        return -1;
    if (memory->page_kind == PAGE_KIND_4K && memory->bytes >= HUGE_PAGE_BYTES &&
        !__atomic_exchange_n(&host->has_warned, true, __ATOMIC_RELAXED))
        log_warn(
            "no_huge_pages", LOG_TEXT("page_kind", page_kind_name(memory->page_kind)), LOG_U64("bytes", memory->bytes),
            LOG_U64("huge_bytes", memory->huge_bytes), LOG_TEXT("effect", "loads into 4K pages are about ten times slower"),
            LOG_TEXT("remedy", "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or reserve hugetlb pages"));
    return 0;
}

static int host_export_fd(struct segment *segment, struct error *error)
{
    return host_memory_export_fd(memory_of(segment), error);
}

static enum page_kind host_page_kind(struct segment *segment)
{
    return regions_of(segment) ? host_regions_page_kind(regions_of(segment)) : memory_of(segment)->page_kind;
}

static bool host_is_kept(struct segment *segment)
{
    return !regions_of(segment) && host_memory_is_kept(memory_of(segment));
}

static void host_release(struct segment *segment)
{
    set_filling((struct host_segment *)segment, false);
    host_regions_close(regions_of(segment));
    if (memory_of(segment))
        host_pool_give_back(&((struct device_host *)segment->device)->pool, memory_of(segment));
}

static void host_trim(struct device *device)
{
    host_pool_trim(&((struct device_host *)device)->pool);
}

static void host_destroy(struct device *device)
{
    struct device_host *host = (struct device_host *)device;
    host_pool_fini(&host->pool);
    free(host);
}

static const struct device_ops host_ops = {
    .name = "host",
    .segment_size = sizeof(struct host_segment),
    .allocate = host_allocate,
    .prepare = host_prepare,
    .copy = host_copy,
    .seal = host_seal,
    .export_fd = host_export_fd,
    .page_kind = host_page_kind,
    .is_kept = host_is_kept,
    .release = host_release,
    .trim = host_trim,
    .destroy = host_destroy,
};

void device_host_wait_freed(struct device *host)
{
    struct host_freer *freer = &((struct device_host *)host)->pool.freer;
    host_freer_wait(freer, host_freer_now(freer));
}

struct device *device_host_create(uint64_t pool_budget_bytes)
{
    struct device_host *host = memory_alloc(sizeof *host);
    host->base = (struct device){
        .ops = &host_ops,
        .caps = {.direct_segments = true, .exports_fd = true, .fills_regions = true, .joins_regions = true, .name = "host"},
        .pool_budget_bytes = pool_budget_bytes,
    };
    host_pool_init(&host->pool, pool_budget_bytes, &host->base.pool_bytes);
    return &host->base;
}
