#include "replica/mapped_files.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"

enum {
    JOIN_BELOW_BYTES = 128 << 10, /* a gap that costs less than another request of the device */
    LEAST_BYTES = 64 << 10,       /* a fault reads so much by itself */
    MAX_RANGES = 1 << 16,         /* far apart rows without end: the rest is left to faults */
};

struct collector {
    struct page_ranges *ranges;
    size_t capacity;
    struct page_range open; /* may grow yet; no bytes = there is none */
    struct error *error;
};

static int end_range(struct collector *collector)
{
    struct page_ranges *ranges = collector->ranges;
    const struct page_range done = collector->open;
    collector->open.bytes = 0;
    if (done.bytes < LEAST_BYTES || ranges->n == MAX_RANGES)
        return 0;
    if (METADATA_RESERVE(ranges->list, ranges->n, collector->capacity, collector->error) < 0)
        return -1;
    ranges->list[ranges->n++] = done;
    ranges->bytes += done.bytes;
    return 0;
}

static int add_bytes(struct collector *collector, uint32_t file, uint64_t offset, uint64_t bytes)
{
    struct page_range *open = &collector->open;
    if (open->bytes && open->file == file && offset - (open->offset + open->bytes) < JOIN_BELOW_BYTES) {
        open->bytes = offset + bytes - open->offset;
        return 0;
    }
    if (open->bytes && end_range(collector) < 0)
        return -1;
    *open = (struct page_range){offset, bytes, file};
    return 0;
}

/* Rows that are close are one piece; of rows that are each too small to be worth it, none is. */
static int add_step(struct collector *collector, const struct plan_step *step)
{
    bool is_close = step->count == 1 || step->stride - step->bytes < JOIN_BELOW_BYTES;
    if (is_close)
        return add_bytes(collector, step->file, step->offset, (step->count - 1) * step->stride + step->bytes);
    for (uint64_t i = 0; step->bytes >= LEAST_BYTES && i < step->count && collector->ranges->n < MAX_RANGES; i++)
        if (add_bytes(collector, step->file, step->offset + i * step->stride, step->bytes) < 0)
            return -1;
    return 0;
}

int page_ranges_build(const struct plan *plan, struct page_ranges *ranges, struct error *error)
{
    struct collector collector = {.ranges = ranges, .error = error};
    int failed = 0;
    *ranges = (struct page_ranges){0};
    for (size_t i = 0; i < plan->n_steps && !failed; i++)
        failed = add_step(&collector, &plan->steps[i]);
    if (!failed && collector.open.bytes)
        failed = end_range(&collector);
    if (failed) {
        metadata_free(ranges->list);
        *ranges = (struct page_ranges){0};
    }
    return failed;
}

/* In the order of the view's files, which are those that have transfers. */
static int open_all(struct mapped_files *files, const struct mapping *mapping, struct error *error)
{
    struct source *source = mapping->artifact->source;
    for (size_t f = 0; f < source->n_files; f++) {
        enum immutability proof;
        if (mapping->file_first[f + 1] == mapping->file_first[f])
            continue;
        int fd = quota_charge_add(&files->descriptors, 1, error) == 0 ? source_open_immutable(source, f, &proof, error) : -1;
        if (fd < 0)
            return -1;
        if (proof > files->proof)
            files->proof = proof;
        files->fds[files->n_fds++] = fd;
    }
    return 0;
}

/* The files first: most are not proven, which costs a few system calls, and a view of millions of rows is never looked at. */
int mapped_files_open(const struct mapping *mapping, struct mapped_files **opened, struct error *error)
{
    struct mapped_files *files = memory_alloc(sizeof *files);
    struct metadata_account account = metadata_current();
    arena_init(&files->arena, 0);
    files->descriptors =
        (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid, .is_bulk = true};
    size_t n = 0;
    for (size_t f = 0; f < mapping->artifact->source->n_files; f++)
        n += mapping->file_first[f + 1] > mapping->file_first[f];
    files->fds = arena_try_array(&files->arena, n, sizeof *files->fds, error);
    if (files->fds && open_all(files, mapping, error) == 0 &&
        (files->view = mapped_view_build(mapping, &files->arena, error)) != NULL) {
        assert(files->view->n_files == files->n_fds);
        *opened = files;
        return 0;
    }
    mapped_files_close(files);
    return -1;
}

void mapped_files_sent(struct mapped_files *files, size_t n_sent)
{
    for (; files->n_sent < n_sent; files->n_sent++) {
        close(files->fds[files->n_sent]);
        files->fds[files->n_sent] = -1;
        quota_charge_subtract(&files->descriptors, 1);
    }
}

void mapped_files_close(struct mapped_files *files)
{
    if (!files)
        return;
    mapped_files_sent(files, files->n_fds);
    metadata_free(files->ranges.list);
    quota_charge_end(&files->descriptors);
    arena_fini(&files->arena);
    free(files);
}
