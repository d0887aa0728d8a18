/* The ladder's single steps; see huge_pages.h. Everything is asked of the kernel each time, because operators change
 * these settings while daemons run. A step that the kernel refuses falls through to plain pages, never to an error:
 * only missing memory is one. MADV_POPULATE_WRITE is what turns SIGBUS into an error value. */
#include "base/huge_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel_text.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define SHMEM_GLOBAL "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define SHMEM_2M "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled"
#define RESERVED_2M "/sys/kernel/mm/hugepages/hugepages-2048kB/"

enum { PAGE_4K = 4096, COLLAPSE_TRIES = 3 };

static bool read_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(line, size, file) != NULL;
    fclose(file);
    return ok;
}

unsigned char *huge_pages_map(uint64_t bytes)
{
    uint64_t whole_bytes = (bytes + PAGE_4K - 1) / PAGE_4K * PAGE_4K;
    unsigned char *start =
        mmap(NULL, whole_bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    uint64_t skip = -(uintptr_t)start & (HUGE_PAGE_BYTES - 1);
    if (skip)
        munmap(start, skip);
    munmap(start + skip + whole_bytes, HUGE_PAGE_BYTES - skip);
    start += skip;
    madvise(start, whole_bytes, MADV_HUGEPAGE); /* small pages work, too */
    return start;
}

bool huge_pages_reserved(uint64_t bytes)
{
    uint64_t free_pages = kernel_text_number(RESERVED_2M "free_hugepages"),
             promised = kernel_text_number(RESERVED_2M "resv_hugepages");
    return free_pages > promised && (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES <= free_pages - promised;
}

/* The kernel marks the setting in force: "always within_size [advise] never". */
static bool has_setting(const char *line, const char *const *settings)
{
    for (; *settings; settings++)
        if (strstr(line, *settings))
            return true;
    return false;
}

bool huge_pages_on_fault(void)
{
    static const char *const global_yes[] = {"[always]", "[within_size]", "[advise]", "[force]", NULL};
    static const char *const size_yes[] = {"[always]", "[within_size]", "[advise]", NULL};
    char global[128], size[128];
    if (!read_line(SHMEM_GLOBAL, global, sizeof global) || strstr(global, "[deny]"))
        return false;
    if (strstr(global, "[force]"))
        return true;
    if (!read_line(SHMEM_2M, size, sizeof size) || strstr(size, "[inherit]")) /* before Linux 6.11 there is one setting */
        return has_setting(global, global_yes);
    return has_setting(size, size_yes);
}

static int populate(void *address, uint64_t bytes, struct error *error)
{
    while (madvise(address, bytes, MADV_POPULATE_WRITE)) {
        int why = errno;
        if (why == EINVAL) /* an older kernel: the first write makes the pages, as ever */
            return 0;
        if (why == EAGAIN || why == EINTR)
            continue;
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory behind %" PRIu64 " bytes of a replica: %s",
                    bytes, strerror(why == EFAULT ? ENOMEM : why));
    }
    return 0;
}

/* The kernel first empties every processor's list of young pages, which takes as long for one huge page as for ten: all in
 * one call. When it stops half-way it is asked for each page, and what stays small is at least backed. */
static int collapse(unsigned char *address, uint64_t bytes, uint64_t *huge_bytes, struct error *error)
{
    uint64_t whole_bytes = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES; /* a client's memory may end anywhere */
    for (uint64_t at = 0; at < whole_bytes; at += HUGE_PAGE_BYTES)
        if (populate(address + at, PAGE_4K, error)) /* a range that is all hole cannot be collapsed */
            return -1;
    if (whole_bytes < bytes && populate(address + whole_bytes, bytes - whole_bytes, error))
        return -1;
    if (whole_bytes == 0 || madvise(address, whole_bytes, MADV_COLLAPSE) == 0) {
        *huge_bytes = whole_bytes;
        return 0;
    }
    for (uint64_t at = 0; at < whole_bytes; at += HUGE_PAGE_BYTES) {
        int failed, tries = COLLAPSE_TRIES;
        do /* again when another process held a page for a moment */
            failed = madvise(address + at, HUGE_PAGE_BYTES, MADV_COLLAPSE);
        while (failed && errno == EAGAIN && --tries > 0);
        if (!failed)
            *huge_bytes += HUGE_PAGE_BYTES;
        else if (populate(address + at, HUGE_PAGE_BYTES, error))
            return -1;
    }
    return 0;
}

int huge_pages_back(enum huge_rung rung, unsigned char *address, uint64_t bytes, uint64_t *huge_bytes, struct error *error)
{
    *huge_bytes = 0;
    if (rung == HUGE_RUNG_COLLAPSE)
        return collapse(address, bytes, huge_bytes, error);
    if (rung == HUGE_RUNG_RESERVED)
        *huge_bytes = bytes;
    return populate(address, bytes, error);
}

/* --- counting --------------------------------------------------------------------------------------------------------- */

/* ioctl_pagemap_scan(2), Linux 6.7; Debian 12's headers are older. */
struct page_scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

struct page_region {
    uint64_t start, end, categories;
};

#define PAGEMAP_SCAN_REQUEST _IOWR('f', 16, struct page_scan)
#define PAGE_IS_HUGE_BIT (UINT64_C(1) << 6)

enum { REGIONS = 64 };

/* One look at each 2 MiB, where smaps takes one at each 4 KiB: 8 ms per GB. */
static bool scan_pages(int pagemap, const void *address, uint64_t bytes, uint64_t *huge_bytes)
{
    struct page_region regions[REGIONS];
    uint64_t at = (uintptr_t)address, end = at + bytes;
    for (*huge_bytes = 0; at < end;) {
        struct page_scan scan = {.size = sizeof scan,
                                 .start = at,
                                 .end = end,
                                 .vec = (uintptr_t)regions,
                                 .vec_len = REGIONS,
                                 .category_mask = PAGE_IS_HUGE_BIT,
                                 .return_mask = PAGE_IS_HUGE_BIT};
        int n_regions = ioctl(pagemap, PAGEMAP_SCAN_REQUEST, &scan);
        if (n_regions < 0 || scan.walk_end <= at)
            return false;
        for (int i = 0; i < n_regions; i++)
            *huge_bytes += regions[i].end - regions[i].start;
        at = scan.walk_end;
    }
    return true;
}

uint64_t huge_pages_count(const void *address, uint64_t bytes)
{
    uint64_t huge_bytes = 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool is_known = pagemap >= 0 && scan_pages(pagemap, address, bytes, &huge_bytes);
    if (pagemap >= 0)
        close(pagemap);
    return is_known ? huge_bytes : huge_pages_count_slowly(address);
}

uint64_t huge_pages_count_slowly(const void *address)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char *line = NULL;
    size_t room = 0;
    uint64_t kib = 0;
    bool found = false;
    while (file && getline(&line, &room, file) > 0) {
        uint64_t start, end, value;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2) {
            if (found)
                break;
            found = start == (uint64_t)(uintptr_t)address;
        } else if (found && sscanf(line, "ShmemPmdMapped: %" SCNu64, &value) == 1) {
            kib = value;
        }
    }
    free(line);
    if (file)
        fclose(file);
    return kib << 10;
}
