/* Memory with an address is written row by row; to all else rows are copied from a buffer full of the value, which is no
 * larger than its size here, so that wide rows go in pieces. */
#include "execute/fills.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

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

int fills_write(struct destination *destination, const struct mapping *mapping, struct error *error)
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
