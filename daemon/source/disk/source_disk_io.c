/* Reading the files of a disk artifact: exact reads, buffered or past the page cache, and what is cached already.
 *
 * A read comes back whole or not at all: short reads and interrupts are retried, the end of the file is DATA_LOSS (the file
 * shrank after its header was checked), a failing device is named with file and offset. A direct read that ends early or
 * that the filesystem refuses after all goes on through the page cache, which has no alignment to keep.
 *
 * What is in the page cache already is copied from a mapping of the file while its lease keeps it from shrinking: by stores
 * around the caches, and without what is not wanted, two things that preadv() cannot do. Where a page cannot be had after all
 * the same bytes are read, which says why. Residency:
 * cachestat(2), else mincore(2) where that one tells the truth. preadv2(RWF_NOWAIT) would start readahead. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/file_io.h"
#include "base/bus_guard.h"
#include "base/memory.h"
#include "base/text.h"
#include "source/disk/source_disk.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5 */
#endif

enum {
    PAGE_BYTES = 4096,
    PROBE_PAGES = 4096,
    WORTH_MAPPING_BYTES = 128 << 10, /* below, mapping and unmapping cost what it saves */
};

struct cachestat_range {
    uint64_t offset, bytes;
};

struct cachestat_counts {
    uint64_t cached, dirty, writeback, evicted, recently_evicted; /* pages */
};

/* What is left of a list of buffers; the first one may be used in part. */
struct rest {
    const struct iovec *iov;
    int n_iov;
    size_t skip; /* bytes of iov[0] that are done */
};

static void rest_advance(struct rest *rest, size_t bytes)
{
    bytes += rest->skip;
    while (rest->n_iov > 0 && bytes >= rest->iov->iov_len) {
        bytes -= rest->iov->iov_len;
        rest->iov++;
        rest->n_iov--;
    }
    rest->skip = bytes;
}

static int fail_read(const struct source *source, size_t file, uint64_t offset, int why, struct error *error)
{
    const struct source_file *named = &source->files[file];
    const char *name = text_show(named->name);
    if (why == 0)
        return fail(error, ERROR_DATA_LOSS, "FILE_TRUNCATED",
                    "file %s ends at byte %" PRIu64 ", before its %" PRIu64 " bytes: it was cut off while it was read", name,
                    offset, named->size_bytes);
    return fail_errno(error, why, "reading file %s at byte %" PRIu64, name, offset);
}

/* --- from a mapping -------------------------------------------------------------------------------------------------- */

static bool is_unwanted(const struct source_read *read, int i)
{
    return !read->iov[i].iov_base || read->iov[i].iov_base == read->trash;
}

/* False: some of it, or nothing, was copied. */
static bool read_from_mapping(const struct source *source, const struct source_disk_file *handle,
                              const struct source_read *read)
{
    uint64_t skip = read->offset % PAGE_BYTES, bytes = skip, n_wanted = 0;
    bool may_shrink = !handle->changes.lease || source->files[read->file].changes_by != CHANGES_BY_LEASE ||
                      source->caps.filesystem != SOURCE_LOCAL;
    for (int i = 0; i < read->n_iov; i++) {
        bytes += read->iov[i].iov_len;
        n_wanted += is_unwanted(read, i) ? 0 : read->iov[i].iov_len;
    }
    if (!read->is_cached || may_shrink || n_wanted < WORTH_MAPPING_BYTES || !file_lease_enter(handle->changes.lease))
        return false;
    unsigned char *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, handle->fd, (off_t)(read->offset - skip));
    bool is_complete = mapped != MAP_FAILED;
    const unsigned char *from = mapped + (is_complete ? skip : 0);
    for (int i = 0; i < read->n_iov && is_complete; from += read->iov[i++].iov_len)
        is_complete = is_unwanted(read, i) || bus_guard_copy(read->iov[i].iov_base, from, read->iov[i].iov_len) == 0;
    copy_streaming_end();
    if (mapped != MAP_FAILED)
        munmap(mapped, bytes);
    file_lease_leave(handle->changes.lease);
    return is_complete;
}

int source_disk_read(struct source *source, struct source_read *read, struct error *error)
{
    struct source_disk_file *handle = source->handles[read->file];
    struct rest rest = {read->iov, read->n_iov, 0};
    uint64_t offset = read->offset;
    int n_interruptions = 0;
    if (read_from_mapping(source, handle, read))
        return 0;
    int direct_fd = read->direct ? source_disk_direct_fd(handle) : -1;
    bool direct = direct_fd >= 0;
    rest_advance(&rest, 0); /* leading empty buffers */
    while (rest.n_iov > 0) {
        int fd = direct ? direct_fd : handle->fd;
        ssize_t got; /* a buffer that is used in part goes alone */
        int n = 0;
        while (n < rest.n_iov && n < IOV_MAX && rest.iov[n].iov_base)
            n++;
        if (n == 0) {
            offset += rest.iov->iov_len;
            rest_advance(&rest, rest.iov->iov_len);
            continue;
        }
        if (rest.skip == 0)
            got = preadv(fd, rest.iov, n, (off_t)offset);
        else
            got = pread(fd, (char *)rest.iov->iov_base + rest.skip, rest.iov->iov_len - rest.skip, (off_t)offset);
        if (got < 0 && file_io_is_interrupted(&n_interruptions))
            continue;
        if (got > 0) {
            offset += (uint64_t)got;
            rest_advance(&rest, (size_t)got);
        } else if (!direct || (got < 0 && errno != EINVAL)) {
            return fail_read(source, read->file, offset, got < 0 ? errno : 0, error);
        }
        direct = direct && got > 0 && got % PAGE_BYTES == 0 && rest.skip == 0;
    }
    return 0;
}

static uint64_t mincore_pages(int fd, uint64_t first_page, uint64_t n_pages)
{
    unsigned char pages[PROBE_PAGES];
    uint64_t n_resident = 0;
    struct stat status;
    /* it claims that everything is cached when the caller could not have written the file */
    if (fstat(fd, &status) < 0 || (status.st_uid != geteuid() && faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS) < 0))
        return 0;
    while (n_pages > 0) {
        uint64_t n = n_pages < PROBE_PAGES ? n_pages : PROBE_PAGES;
        void *address = mmap(NULL, n * PAGE_BYTES, PROT_READ, MAP_SHARED, fd, (off_t)(first_page * PAGE_BYTES));
        if (address == MAP_FAILED)
            return n_resident;
        bool is_known = mincore(address, n * PAGE_BYTES, pages) == 0;
        for (uint64_t i = 0; is_known && i < n; i++)
            n_resident += pages[i] & 1;
        munmap(address, n * PAGE_BYTES);
        first_page += n;
        n_pages -= n;
    }
    return n_resident;
}

static uint64_t count_resident(int fd, const struct source_extent *extent)
{
    struct cachestat_range range = {extent->offset, extent->bytes};
    struct cachestat_counts counts = {0};
    uint64_t first_page = extent->offset / PAGE_BYTES,
             n_pages = (extent->offset + extent->bytes + PAGE_BYTES - 1) / PAGE_BYTES - first_page;
    if (extent->bytes == 0)
        return 0;
    if (syscall(SYS_cachestat, fd, &range, &counts, 0) != 0)
        counts.cached = mincore_pages(fd, first_page, n_pages);
    uint64_t resident = counts.cached * PAGE_BYTES;
    return resident < extent->bytes ? resident : extent->bytes;
}

uint64_t source_disk_resident_bytes(struct source *source, size_t file, const struct source_extent *extents,
                                    size_t n_extents)
{
    const struct source_disk_file *handle = source->handles[file];
    uint64_t resident = 0;
    for (size_t i = 0; i < n_extents; i++)
        resident += count_resident(handle->fd, &extents[i]);
    return resident;
}
