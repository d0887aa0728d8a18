/* Scratch memory is a staging buffer, or a small piece of the stack when none was left. Devices may copy out of it while it is
 * filled on: it is begun anew when they have finished.
 *
 * A matrix: clip i of the group is its row i, the rows of a clip are its columns, one element each.
 *
 *     file          row 0: 0 1 2 3 ...            destination   0 0 0 0 ...      in tiles: a part of some columns
 *                   row 1: 0 1 2 3 ...                          1 1 1 1 ... */
#include "execute/elements.h"

#include <stdlib.h>
#include <string.h>

#include "base/transpose.h"
#include "execute/clip.h"
#include "execute/flight.h"
#include "execute/place.h"
#include "device/transport.h"

enum {
    SMALL_SCRATCH_BYTES = 16 << 10,
    TILE_ROWS = 32, /* that are converted, then turned */
    TILE_COLUMNS = 64,
    ELEMENT_BYTES = 8, /* the largest */
    LONG_ROW_ELEMENTS = 16,
    SCRATCH_ROWS = 1024, /* of a matrix in scratch memory: what lies together at the destination */
};

struct scratch {
    unsigned char *memory;
    uint64_t bytes, used;
    struct flight flight;
};

static struct scratch begin_scratch(const struct elements *elements, unsigned char *small)
{
    struct staging_buffer *large = elements->window->scratch;
    if (large)
        flight_land(&large->flight); /* it came back while a device read it */
    return (struct scratch){.memory = large ? large->memory : small,
                            .bytes = large ? large->home->buffer_bytes : (uint64_t)SMALL_SCRATCH_BYTES};
}

/* Room for as many units as there is, at most `n`. */
static unsigned char *take_scratch(const struct elements *elements, struct scratch *scratch, uint64_t unit_bytes,
                                   uint64_t *n)
{
    if (scratch->bytes - scratch->used < unit_bytes) {
        flight_begin(&scratch->flight, elements->item);
        flight_land(&scratch->flight);
        scratch->used = 0;
    }
    uint64_t room = (scratch->bytes - scratch->used) / unit_bytes;
    *n = *n < room ? *n : room;
    unsigned char *memory = scratch->memory + scratch->used;
    scratch->used += *n * unit_bytes;
    return memory;
}

static void end_scratch(const struct elements *elements, struct scratch *scratch)
{
    flight_begin(&scratch->flight, elements->item);
    flight_land(&scratch->flight);
}

static struct part *part_of(const struct elements *elements, const struct clip *clip)
{
    return &elements->item->parts[clip->part];
}

static const unsigned char *source_of(const struct elements *elements, uint64_t offset)
{
    return elements->buffer->memory + (offset - elements->buffer->start);
}

/* --- torn elements -------------------------------------------------------------------------------------------------- */

int elements_read_torn(struct item *item, struct window *window, struct error *error)
{
    uint32_t torn_bytes = 0, part = 0;
    for (size_t i = 0; i < window->clips.n && window->has_operations; i++)
        if (window->clips.list[i].torn_bytes > torn_bytes) {
            torn_bytes = window->clips.list[i].torn_bytes;
            part = window->clips.list[i].part;
        }
    if (torn_bytes == 0)
        return 0;
    struct iovec iov = {window->torn, torn_bytes};
    struct source_read read = {.offset = window->range.hi, .iov = &iov, .n_iov = 1};
    item->parts[part].report.read_bytes += torn_bytes;
    item->parts[part].report.requests++;
    return item_read_apart(item, &read, error);
}

/* --- conversion ----------------------------------------------------------------------------------------------------- */

/* Elements that follow each other in the file; the last of the clip may be torn. */
static void convert_run(const struct elements *elements, const struct clip *clip, uint64_t offset, uint64_t n,
                        unsigned char *dst)
{
    const struct operation *operation = clip_operation(clip, elements->item);
    uint64_t end = elements->window->range.hi, last = offset + (n - 1) * operation->from_bytes;
    bool is_torn = clip->torn_bytes && last + operation->from_bytes > end;
    unsigned char whole[ELEMENT_BYTES];
    operation_apply(operation, dst, source_of(elements, offset), offset, n - is_torn);
    if (!is_torn)
        return;
    memcpy(whole, source_of(elements, last), end - last);
    memcpy(whole + (end - last), elements->window->torn, operation->from_bytes - (end - last));
    operation_apply(operation, dst + (n - 1) * operation->to_bytes, whole, last, 1);
}

/* A part of the elements of one row, as much as scratch memory holds. */
static void convert_long_row(const struct elements *elements, const struct clip *clip, struct scratch *scratch, uint64_t row)
{
    const struct operation *operation = clip_operation(clip, elements->item);
    uint64_t n_all = clip->src.bytes / operation->from_bytes;
    for (uint64_t first = 0, n; first < n_all; first += n) {
        n = n_all - first;
        unsigned char *memory = take_scratch(elements, scratch, operation->to_bytes, &n);
        uint64_t bytes = n * operation->to_bytes;
        convert_run(elements, clip, clip->src.offset + row * clip->src.stride + first * operation->from_bytes, n, memory);
        place_rows(part_of(elements, clip),
                   clip->dst_offset + row * (uint64_t)clip->dst_stride + first * operation->to_bytes, memory,
                   &(struct device_rows){bytes, 1, bytes, bytes}, TRANSPORT_UNKNOWN);
    }
}

static void swap_rows(unsigned char *a, unsigned char *b, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        unsigned char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

/* Rows of scratch memory, from `row` of the clip on; turned round where they go backwards. */
static void place_scratch(const struct elements *elements, const struct clip *clip, uint64_t row, uint64_t n,
                          uint64_t row_bytes, unsigned char *memory)
{
    struct device_rows rows = {row_bytes, n, row_bytes, (uint64_t)clip->dst_stride};
    bool is_backwards = n > 1 && clip->dst_stride < 0;
    if (is_backwards)
        rows.dst_stride = 0 - rows.dst_stride;
    for (uint64_t i = 0; is_backwards && i < n / 2; i++)
        swap_rows(memory + i * row_bytes, memory + (n - 1 - i) * row_bytes, row_bytes);
    uint64_t lowest = is_backwards ? row + n - 1 : row;
    place_rows(part_of(elements, clip), clip->dst_offset + lowest * (uint64_t)clip->dst_stride, memory, &rows,
               TRANSPORT_UNKNOWN);
}

static void convert_rows(const struct elements *elements, const struct clip *clip, struct scratch *scratch)
{
    const struct operation *operation = clip_operation(clip, elements->item);
    uint64_t row_bytes = clip_row_bytes(clip, elements->item), n_elements = clip->src.bytes / operation->from_bytes;
    bool is_contiguous = clip->src.stride == clip->src.bytes;
    for (uint64_t row = 0, n; row < clip->src.count; row += n) {
        n = clip->src.count - row;
        unsigned char *memory = take_scratch(elements, scratch, row_bytes, &n);
        uint64_t offset = clip->src.offset + row * clip->src.stride;
        if (is_contiguous)
            convert_run(elements, clip, offset, n * n_elements, memory);
        for (uint64_t i = 0; i < n && !is_contiguous; i++)
            convert_run(elements, clip, offset + i * clip->src.stride, n_elements, memory + i * row_bytes);
        place_scratch(elements, clip, row, n, row_bytes, memory);
    }
}

void elements_convert(const struct elements *elements, const struct clip *clip)
{
    unsigned char small[SMALL_SCRATCH_BYTES];
    struct scratch scratch = begin_scratch(elements, small);
    uint64_t row_bytes = clip_row_bytes(clip, elements->item);
    const struct transfer_extent extent = clip_extent(clip, row_bytes);
    bool has_long_rows =
        clip->src.count == 1 || clip->src.bytes / clip_operation(clip, elements->item)->from_bytes >= LONG_ROW_ELEMENTS;
    struct clip all = *clip;
    if (clip->src.count > 1 && clip->src.stride == clip->src.bytes &&
        clip->dst_stride == (int64_t)row_bytes) { /* one long row */
        all.src = (struct rows){clip->src.offset, clip_bytes(clip), 1, clip_bytes(clip)};
        row_bytes = extent.hi - extent.lo;
        all.dst_stride = (int64_t)row_bytes;
        has_long_rows = true;
    }
    unsigned char *dst = has_long_rows ? place_find(part_of(elements, clip), extent.lo, extent.hi - extent.lo) : NULL;
    if (dst) {
        uint64_t n = all.src.bytes / clip_operation(clip, elements->item)->from_bytes;
        dst += clip->dst_offset - extent.lo;
        for (uint64_t row = 0; row < all.src.count; row++)
            convert_run(elements, &all, all.src.offset + row * all.src.stride, n, dst + (int64_t)row * all.dst_stride);
        place_count(part_of(elements, clip), all.src.count * row_bytes);
        return;
    }
    if (part_of(elements, clip)->has_failed)
        return;
    if (row_bytes > scratch.bytes)
        for (uint64_t row = 0; row < all.src.count; row++)
            convert_long_row(elements, &all, &scratch, row);
    else
        convert_rows(elements, &all, &scratch);
    end_scratch(elements, &scratch);
}

/* --- backwards ------------------------------------------------------------------------------------------------------ */

bool elements_goes_backwards(const struct elements *elements, const struct clip *clip)
{
    const struct part *part = part_of(elements, clip);
    return clip->dst_stride < 0 && clip->src.count > 1 && (!part->run->destination->address || part->transport);
}

void elements_turn_rows(const struct elements *elements, const struct clip *clip)
{
    unsigned char small[SMALL_SCRATCH_BYTES];
    struct scratch scratch = begin_scratch(elements, small);
    uint64_t bytes = clip->src.bytes;
    const struct device_rows rows = {bytes, clip->src.count, clip->src.stride, (uint64_t)clip->dst_stride};
    if (bytes > scratch.bytes) {
        place_rows(part_of(elements, clip), clip->dst_offset, source_of(elements, clip->src.offset), &rows,
                   clip->src.offset);
        return;
    }
    for (uint64_t row = 0, n; row < clip->src.count && !part_of(elements, clip)->has_failed; row += n) {
        n = clip->src.count - row;
        unsigned char *memory = take_scratch(elements, &scratch, bytes, &n);
        const struct device_rows some = {bytes, n, clip->src.stride, bytes};
        device_rows_copy(memory, source_of(elements, clip->src.offset + row * clip->src.stride), &some);
        place_scratch(elements, clip, row, n, bytes, memory);
    }
    end_scratch(elements, &scratch);
}

/* --- matrices ------------------------------------------------------------------------------------------------------- */

static bool has_single_elements(const struct elements *elements, const struct clip *clip)
{
    const struct operation *operation = clip_operation(clip, elements->item);
    return clip->src.count > 1 && transpose_takes(clip->src.bytes) &&
           (!operation || operation->from_bytes == clip->src.bytes);
}

/* Clips whose elements lie closer together than they do themselves, on both sides, are better placed one by one. What is
 * turned in scratch memory is written in columns without gaps. */
static bool takes_steps(const struct elements *elements, const struct clip *clip, uint64_t src_step, uint64_t dst_step)
{
    const struct part *part = part_of(elements, clip);
    bool is_in_order = clip->src.stride < src_step && llabs(clip->dst_stride) < llabs((int64_t)dst_step);
    return !is_in_order &&
           (dst_step == clip_row_bytes(clip, elements->item) || (part->run->destination->address && !part->transport));
}

size_t elements_find_matrix(const struct elements *elements, const struct clip *clips, size_t n)
{
    const struct clip *first = clips;
    if (n < 2 || !has_single_elements(elements, first) || clips[1].src.offset <= first->src.offset ||
        clips[1].dst_offset == first->dst_offset)
        return 1;
    uint64_t src_step = clips[1].src.offset - first->src.offset, dst_step = clips[1].dst_offset - first->dst_offset;
    size_t i = 1;
    if (!takes_steps(elements, first, src_step, dst_step))
        return 1;
    for (; i < n; i++) {
        const struct clip *next = &clips[i], *last = next - 1;
        if (next->part != first->part || next->operation != first->operation || next->src.bytes != first->src.bytes ||
            next->src.count != first->src.count || next->src.stride != first->src.stride ||
            next->dst_stride != first->dst_stride || next->src.offset - last->src.offset != src_step ||
            next->dst_offset - last->dst_offset != dst_step)
            break;
    }
    return i;
}

struct matrix { /* rows and columns as in the file */
    const struct elements *elements;
    const struct clip *clips;
    uint64_t n_rows, n_columns, src_row_stride, src_column_stride;
    const struct operation *operation; /* of one element each; NULL = none */
    uint64_t element_bytes;            /* at the destination */
};

/* Rows and columns from these on to `dst`, with its strides. */
static void turn(const struct matrix *matrix, uint64_t row, uint64_t column, struct transpose shape, unsigned char *dst)
{
    unsigned char tile[TILE_ROWS * TILE_COLUMNS * ELEMENT_BYTES];
    const struct operation *operation = matrix->operation;
    uint64_t offset = matrix->clips->src.offset + row * matrix->src_row_stride + column * matrix->src_column_stride;
    uint64_t bytes = matrix->element_bytes;
    shape.src_row_stride = matrix->src_row_stride;
    shape.src_column_stride = matrix->src_column_stride;
    if (!operation) {
        transpose_copy(&shape, bytes, dst, source_of(matrix->elements, offset));
        return;
    }
    struct transpose part = shape;
    part.src_row_stride = TILE_COLUMNS * bytes;
    part.src_column_stride = bytes;
    for (uint64_t r = 0; r < shape.n_rows; r += TILE_ROWS)
        for (uint64_t c = 0; c < shape.n_columns; c += TILE_COLUMNS) {
            part.n_rows = shape.n_rows - r < TILE_ROWS ? shape.n_rows - r : TILE_ROWS;
            part.n_columns = shape.n_columns - c < TILE_COLUMNS ? shape.n_columns - c : TILE_COLUMNS;
            for (uint64_t i = 0; i < part.n_rows; i++) {
                uint64_t at = offset + (r + i) * shape.src_row_stride + c * shape.src_column_stride;
                const unsigned char *src = source_of(matrix->elements, at);
                unsigned char *to = tile + i * part.src_row_stride;
                bool is_contiguous = shape.src_column_stride == operation->from_bytes;
                if (is_contiguous)
                    operation_apply(operation, to, src, at, part.n_columns);
                for (uint64_t k = 0; k < part.n_columns && !is_contiguous; k++)
                    operation_apply(operation, to + k * bytes, src + k * shape.src_column_stride,
                                    at + k * shape.src_column_stride, 1);
            }
            transpose_copy(&part, bytes, dst + (int64_t)r * shape.dst_row_stride + (int64_t)c * shape.dst_column_stride,
                           tile);
        }
}

/* Through scratch memory, in which a part of each column lies together, as it does at the destination. */
static void turn_in_scratch(const struct matrix *matrix)
{
    unsigned char small[SMALL_SCRATCH_BYTES];
    const struct clip *first = matrix->clips;
    struct scratch scratch = begin_scratch(matrix->elements, small);
    for (uint64_t row = 0, n_rows; row < matrix->n_rows; row += n_rows) {
        n_rows = matrix->n_rows - row < SCRATCH_ROWS ? matrix->n_rows - row : SCRATCH_ROWS;
        uint64_t column_bytes = n_rows * matrix->element_bytes;
        for (uint64_t column = 0, n; column < matrix->n_columns; column += n) {
            n = matrix->n_columns - column;
            unsigned char *memory = take_scratch(matrix->elements, &scratch, column_bytes, &n);
            const struct transpose shape = {.n_rows = n_rows,
                                            .n_columns = n,
                                            .dst_row_stride = (int64_t)matrix->element_bytes,
                                            .dst_column_stride = (int64_t)column_bytes};
            turn(matrix, row, column, shape, memory);
            place_rows(part_of(matrix->elements, first),
                       first->dst_offset + row * matrix->element_bytes + column * (uint64_t)first->dst_stride, memory,
                       &(struct device_rows){column_bytes, n, column_bytes, (uint64_t)first->dst_stride}, TRANSPORT_UNKNOWN);
        }
    }
    end_scratch(matrix->elements, &scratch);
}

/* Where a row of the file, which is a column there, goes; NULL when it cannot be written to directly. Those next to it may be
 * of another tensor, in another region of the client's memory: no target prepares what lies between. */
static unsigned char *find_destination(struct part *part, struct transfer_extent first, uint64_t n, uint64_t stride)
{
    uint64_t width = first.hi - first.lo;
    const struct transfer_extent all = transfer_extent(first.lo, n, (int64_t)stride, width);
    unsigned char *found = NULL;
    if ((uint64_t)llabs((int64_t)stride) <= width) {
        found = place_find(part, all.lo, all.hi - all.lo);
        return found ? found + (first.lo - all.lo) : NULL;
    }
    for (uint64_t i = n; i-- > 0;) {
        found = place_find(part, first.lo + i * stride, width);
        if (!found)
            return NULL;
    }
    return found;
}

void elements_place_matrix(const struct elements *elements, const struct clip *clips, size_t n)
{
    const struct clip *first = clips;
    struct part *part = part_of(elements, first);
    struct matrix matrix = {.elements = elements,
                            .clips = clips,
                            .n_rows = n,
                            .n_columns = first->src.count,
                            .src_row_stride = clips[1].src.offset - first->src.offset,
                            .src_column_stride = first->src.stride,
                            .operation = clip_operation(first, elements->item),
                            .element_bytes = clip_row_bytes(first, elements->item)};
    uint64_t dst_row_stride = clips[1].dst_offset - first->dst_offset;
    const struct transfer_extent columns = clip_extent(first, matrix.element_bytes);
    unsigned char *dst = find_destination(part, columns, n, dst_row_stride);
    if (dst) {
        const struct transpose shape = {.n_rows = n,
                                        .n_columns = first->src.count,
                                        .dst_row_stride = (int64_t)dst_row_stride,
                                        .dst_column_stride = first->dst_stride};
        turn(&matrix, 0, 0, shape, dst + (first->dst_offset - columns.lo));
        place_count(part, n * first->src.count * matrix.element_bytes);
    } else if (!part->has_failed) {
        turn_in_scratch(&matrix);
    }
}
