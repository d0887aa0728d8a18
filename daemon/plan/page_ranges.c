#include "plan/page_ranges.h"

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

static int close_range(struct collector *collector)
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
    if (open->bytes && close_range(collector) < 0)
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
        failed = close_range(&collector);
    if (failed) {
        metadata_free(ranges->list);
        *ranges = (struct page_ranges){0};
    }
    return failed;
}
