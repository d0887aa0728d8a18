/* The row for memory, and which pages of a destination are ready; see destination.h.
 *
 * Memory that was used before ("dirty") is finished by zeroing what no tensor covers: nothing of the replica before may be
 * left between tensors and behind the last. One pass over the tensors, by offset, finds every gap. */
#include "execute/destination.h"

#include <stdlib.h>
#include <string.h>

#include "base/huge_pages.h"
#include "base/memory.h"
#include "base/metadata.h"

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
    return mapping->has_targets ? destination_write_fills(destination, mapping, error)
                                : zero_gaps(destination, mapping, error);
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

enum { BUFFER_BYTES = 256 << 10 };

/* Larger and larger copies of itself. */
static void repeat_value(unsigned char *to, uint64_t bytes, const struct mapping_fill *fill)
{
    uint64_t done = fill->value_bytes < bytes ? fill->value_bytes : bytes;
    if (fill->value_bytes == 1) {
        memset(to, fill->value[0], bytes);
        return;
    }
    memcpy(to, fill->value, done);
    for (uint64_t some; done < bytes; done += some) {
        some = done < bytes - done ? done : bytes - done;
        some = some < BUFFER_BYTES ? some : BUFFER_BYTES; /* out of the cache */
        memcpy(to + done, to, some);
    }
}

static int write_row(struct destination *destination, const struct mapping_fill *fill, uint64_t offset, struct error *error)
{
    if (!destination_is_ready(destination, offset, fill->row_bytes) &&
        destination_prepare(destination, offset, fill->row_bytes, error))
        return -1;
    repeat_value((unsigned char *)destination->address + offset, fill->row_bytes, fill);
    return 0;
}

static int write_rows(struct destination *destination, const struct mapping_fill *fill, struct error *error)
{
    for (uint64_t row = 0; row < fill->n_rows; row++)
        if (write_row(destination, fill, fill->dst_offset + row * fill->dst_stride, error))
            return -1;
    return 0;
}

/* Waits before the buffer gets another content. */
static int wait_for_queue(struct destination *destination, struct error *error)
{
    uint64_t mark;
    if (!destination->device)
        return 0;
    return device_mark(destination->device, &mark, error) || device_wait(destination->device, mark, error) ? -1 : 0;
}

/* Pieces of one row, or as many rows as the buffer holds. */
static int queue_rows(struct destination *destination, const struct mapping_fill *fill, const unsigned char *buffer,
                      struct error *error)
{
    uint64_t piece_bytes = fill->row_bytes < BUFFER_BYTES ? fill->row_bytes : BUFFER_BYTES;
    uint64_t n_at_once = fill->row_bytes < BUFFER_BYTES ? BUFFER_BYTES / fill->row_bytes : 1;
    for (uint64_t row = 0, n; row < fill->n_rows; row += n) {
        n = n_at_once < fill->n_rows - row ? n_at_once : fill->n_rows - row;
        for (uint64_t at = 0, bytes; at < fill->row_bytes; at += bytes) {
            bytes = piece_bytes < fill->row_bytes - at ? piece_bytes : fill->row_bytes - at;
            const struct device_rows rows = {bytes, n, bytes, n > 1 ? fill->dst_stride : bytes};
            if (destination_write(destination, fill->dst_offset + row * fill->dst_stride + at, buffer, &rows, error))
                return -1;
        }
    }
    return 0;
}

static int queue_fills(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    unsigned char *buffer = memory_alloc(BUFFER_BYTES);
    int failed = 0;
    for (size_t i = 0; i < mapping->n_fills && !failed; i++) {
        const struct mapping_fill *fill = &mapping->fills[i];
        repeat_value(buffer, BUFFER_BYTES, fill);
        failed = queue_rows(destination, fill, buffer, error);
        failed = wait_for_queue(destination, error) || failed; /* also of what was queued before it failed */
    }
    free(buffer);
    return failed ? -1 : 0;
}

int destination_write_fills(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    destination->filled_bytes = 0;
    for (size_t i = 0; i < mapping->n_fills && destination->address; i++)
        if (write_rows(destination, &mapping->fills[i], error))
            return -1;
    if (!destination->address && mapping->n_fills && queue_fills(destination, mapping, error))
        return -1;
    for (size_t i = 0; i < mapping->n_fills; i++)
        destination->filled_bytes += mapping->fills[i].n_rows * mapping->fills[i].row_bytes;
    return 0;
}
