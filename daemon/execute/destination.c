/* The row for memory, and which pages of a destination are ready; see destination.h.
 *
 * Memory that was used before ("dirty") is finished by zeroing what no tensor covers: nothing of the replica before may be
 * left between tensors and behind the last. One pass over the tensors, by offset, finds every gap. */
#include "execute/destination.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/huge_pages.h"
#include "execute/fills.h"

static int prepare_memory(struct destination *destination, uint64_t offset, uint64_t bytes, struct error *error)
{
    return device_prepare(destination->segment, offset, bytes, error);
}

static int write_memory(struct destination *destination, uint64_t offset, const void *src, const struct device_rows *rows,
                        struct error *error)
{
    return device_copy(destination->segment, offset, src, rows, error);
}

struct span {
    uint64_t offset, bytes;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *left = a, *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static int zero_gaps(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    uint64_t at = 0, end = destination->segment->allocated_bytes;
    struct span *spans = memory_try(mapping->n_tensors * sizeof *spans);
    if (!spans)
        return metadata_fail_memory(mapping->n_tensors * sizeof *spans, error);
    for (size_t i = 0; i < mapping->n_tensors; i++)
        spans[i] = (struct span){mapping->tensors[i].offset, mapping->tensors[i].bytes};
    if (mapping->placement != PLACEMENT_PACKED)
        qsort(spans, mapping->n_tensors, sizeof *spans, compare_spans);
    int failed = 0;
    for (size_t i = 0; i < mapping->n_tensors && !failed; i++) {
        if (spans[i].bytes == 0)
            continue;
        if (spans[i].offset > at)
            failed = device_zero(destination->segment, at, spans[i].offset - at, error);
        at = spans[i].offset + spans[i].bytes;
    }
    free(spans);
    if (failed)
        return -1;
    return end > at ? device_zero(destination->segment, at, end - at, error) : 0;
}

/* Between targets of a client is what it has there. */
static int finish_memory(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    return mapping->has_targets ? fills_write(destination, mapping, error) : zero_gaps(destination, mapping, error);
}

static const struct destination_ops memory_ops = {
    .name = "memory", .prepare = prepare_memory, .write = write_memory, .finish = finish_memory};

struct destination destination_of_segment(struct segment *segment)
{
    return (struct destination){.ops = &memory_ops,
                                .address = segment->host_address,
                                .device = segment->device,
                                .segment = segment,
                                .is_lent = segment_is_lent(segment),
                                .backed_bytes = segment->backed_bytes,
                                .has_ending = segment->dirty && (segment->host_address || segment->device->ops->queue)};
}

void destination_begin(struct destination *destination, uint64_t bytes)
{
    destination->ready = memory_alloc(bytes / HUGE_PAGE_BYTES + 1);
}

void destination_fini(struct destination *destination)
{
    free(destination->ready);
    destination->ready = NULL;
}

bool destination_is_ready(const struct destination *destination, uint64_t offset, uint64_t bytes)
{
    uint64_t last = (offset + bytes - 1) / HUGE_PAGE_BYTES;
    for (uint64_t page = offset / HUGE_PAGE_BYTES; page <= last && destination->ops->prepare; page++)
        if (!__atomic_load_n(&destination->ready[page], __ATOMIC_RELAXED))
            return false;
    return true;
}

int destination_prepare(struct destination *destination, uint64_t offset, uint64_t bytes, struct error *error)
{
    uint64_t last = (offset + bytes - 1) / HUGE_PAGE_BYTES;
    if (destination->ops->prepare(destination, offset, bytes, error))
        return -1;
    for (uint64_t page = offset / HUGE_PAGE_BYTES; page <= last; page++)
        __atomic_store_n(&destination->ready[page], 1, __ATOMIC_RELAXED);
    return 0;
}
