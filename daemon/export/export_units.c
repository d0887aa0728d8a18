/* region (what of a tensor any written file wants) -> slabs -> for each an item of the view and a put for every part that it
 * meets. */
#include "export/export_units.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "resolve/box.h"

enum { MOST_TENSORS = 4096 }; /* of a unit */

static const uint64_t zeros[TENSOR_MAX_RANK];

struct region { /* of one tensor; in its coordinates */
    const struct export_tensor *tensor;
    const struct export_part *parts;
    size_t n_parts;
    uint64_t start[TENSOR_MAX_RANK], size[TENSOR_MAX_RANK];
    uint64_t bytes;
    uint32_t dimension;       /* slabs are ranges of it, with one index of each before it */
    uint64_t step, n_per_row; /* so long a range; so many of them make the dimension */
    uint64_t n_slabs;
};

static uint64_t bits_to_bytes(uint64_t elements, enum dtype dtype)
{
    return elements / 8 * dtype_bits(dtype) + (elements % 8 * dtype_bits(dtype) + 7) / 8;
}

static uint64_t product(const uint64_t *numbers, uint32_t from, uint32_t to)
{
    uint64_t result = 1;
    for (uint32_t i = from; i < to; i++)
        result *= numbers[i];
    return result;
}

/* The hull of the parts that are written. False when there is nothing to write. */
static bool find_region(const struct export_layout *layout, size_t t, struct region *region)
{
    const struct export_tensor *tensor = &layout->tensors[t];
    uint32_t rank = tensor->record->rank;
    uint64_t end[TENSOR_MAX_RANK] = {0};
    bool any = false;
    *region = (struct region){.tensor = tensor,
                              .parts = &layout->parts[layout->first_part[t]],
                              .n_parts = layout->first_part[t + 1] - layout->first_part[t]};
    for (size_t p = 0; p < region->n_parts; p++) {
        const struct export_part *part = &region->parts[p];
        if (!layout->files[part->file].is_written || part->bytes == 0)
            continue;
        const uint64_t *start = part->start ? part->start : zeros, *size = part->start ? part->size : tensor->shape;
        for (uint32_t d = 0; d < rank; d++) {
            if (!any || start[d] < region->start[d])
                region->start[d] = start[d];
            if (!any || start[d] + size[d] > end[d])
                end[d] = start[d] + size[d];
        }
        any = true;
    }
    for (uint32_t d = 0; d < rank; d++)
        region->size[d] = end[d] - region->start[d];
    region->bytes = any ? bits_to_bytes(product(region->size, 0, rank), tensor->record->dtype) : 0;
    return any;
}

/* The outermost dimension of which at least one index fits. A range of elements smaller than bytes begins and ends at whole
 * ones: where an index of the dimension is no whole number of bytes, the range is a multiple of eight. */
static void choose_slabs(struct region *region, uint64_t unit_bytes)
{
    const struct tensor_record *record = region->tensor->record;
    uint32_t rank = record->rank, d = 0;
    uint64_t inner = product(region->size, 1, rank);
    while (d + 1 < rank && bits_to_bytes(inner, record->dtype) > unit_bytes)
        inner /= region->size[++d];
    uint64_t index_bytes = bits_to_bytes(inner, record->dtype), extent = rank ? region->size[d] : 1;
    uint64_t step = index_bytes ? unit_bytes / index_bytes : 1;
    bool is_whole = inner * dtype_bits(record->dtype) % 8 == 0;
    if (!is_whole)
        step = step / 8 * 8;
    if (step == 0)
        step = is_whole ? 1 : 8;
    region->dimension = d;
    region->step = step < extent ? step : extent;
    region->n_per_row = extent / region->step + (extent % region->step != 0);
    region->n_slabs = product(region->size, 0, d) * region->n_per_row;
}

/* Slab `index` as a box of the tensor. */
static void find_slab(const struct region *region, uint64_t index, uint64_t *start, uint64_t *size)
{
    uint32_t rank = region->tensor->record->rank, d = region->dimension;
    uint64_t within = index % region->n_per_row, outer = index / region->n_per_row;
    for (uint32_t i = 0; i < rank; i++) {
        start[i] = region->start[i];
        size[i] = region->size[i];
    }
    if (rank == 0)
        return;
    start[d] += within * region->step;
    size[d] -= within * region->step;
    if (size[d] > region->step)
        size[d] = region->step;
    for (uint32_t i = d; i-- > 0;) {
        start[i] += outer % region->size[i];
        size[i] = 1;
        outer /= region->size[i];
    }
}

static void add_item(struct export_unit *unit, const struct export_tensor *tensor, const uint64_t *start,
                     const uint64_t *size)
{
    const struct tensor_record *record = tensor->record;
    bool is_whole = true;
    for (uint32_t d = 0; d < record->rank; d++)
        is_whole = is_whole && size[d] == record->shape[d];
    struct slice *slices = is_whole ? NULL : arena_array(&unit->arena, record->rank, sizeof *slices);
    for (uint32_t d = 0; slices && d < record->rank; d++) {
        uint64_t from = start[d] + (tensor->start ? tensor->start[d] : 0);
        slices[d] = (struct slice){(int64_t)from, (int64_t)(from + size[d])};
    }
    ARRAY_RESERVE(unit->items, unit->n_items, unit->item_room);
    unit->items[unit->n_items++] =
        (struct view_item){record->name, record->name_length, is_whole ? 0 : record->rank, slices};
}

/* A put right behind the last one, in the window and in its file, makes that longer. */
static void add_put(struct export_unit *unit, const struct file_put *put)
{
    struct file_put *last = unit->n_puts ? &unit->puts[unit->n_puts - 1] : NULL;
    if (last && last->file == put->file && last->n_rows == 1 && put->n_rows == 1 && last->at + last->row_bytes == put->at &&
        last->offset + last->row_bytes == put->offset) {
        last->row_bytes += put->row_bytes;
        return;
    }
    ARRAY_RESERVE(unit->puts, unit->n_puts, unit->put_room);
    unit->puts[unit->n_puts++] = *put;
}

static int fail_sub_byte_slab(const struct tensor_record *record, struct error *error)
{
    fail(error, ERROR_UNIMPLEMENTED, "SPLITS_A_BYTE",
         "tensor '%s' of %s cannot be cut into parts of whole bytes that fit into memory; allow more with --memory",
         text_show_bytes(record->name, record->name_length), dtype_name(record->dtype));
    return error_note_tensor(error, record->name, record->name_length);
}

/* What of the slab, `at` bytes into the window, goes into a part. */
static int put_part(struct export_unit *unit, const struct region *region, const struct export_part *part,
                    uint64_t head_bytes, const uint64_t *start, const uint64_t *size, struct error *error)
{
    const struct tensor_record *record = region->tensor->record;
    const uint64_t *part_start = part->start ? part->start : zeros;
    const uint64_t *part_size = part->start ? part->size : region->tensor->shape;
    uint64_t common[TENSOR_MAX_RANK], in_slab[TENSOR_MAX_RANK], in_part[TENSOR_MAX_RANK];
    struct box_runs runs;
    for (uint32_t d = 0; d < record->rank; d++) {
        uint64_t from = start[d] > part_start[d] ? start[d] : part_start[d];
        uint64_t slab_end = start[d] + size[d], part_end = part_start[d] + part_size[d];
        uint64_t to = slab_end < part_end ? slab_end : part_end;
        if (from >= to)
            return 0;
        common[d] = to - from;
        in_slab[d] = from - start[d];
        in_part[d] = from - part_start[d];
    }
    const struct box box = {record->rank, common, size, in_slab, part_size, in_part};
    if (!box_lower(&box, dtype_bits(record->dtype), &runs))
        return fail_sub_byte_slab(record, error);
    for (uint64_t i = 0; i < runs.n_runs; i++) {
        struct file_put put = {
            .file = part->file, .row_bytes = runs.row_bytes, .n_rows = runs.n_rows, .stride = runs.src_stride};
        box_run_offsets(&runs, i, &put.at, &put.offset);
        put.at += unit->bytes;
        put.offset += head_bytes + part->offset;
        bool is_packed = runs.n_rows == 1 || runs.dst_stride == runs.row_bytes;
        uint64_t n_puts = is_packed ? 1 : runs.n_rows;
        if (!is_packed)
            put.n_rows = 1;
        for (uint64_t k = 0; k < n_puts; k++) {
            add_put(unit, &put);
            put.at += runs.src_stride;
            put.offset += runs.dst_stride;
        }
    }
    return 0;
}

static int add_slab(struct export_unit *unit, const struct export_layout *layout, const struct region *region,
                    uint64_t index, uint64_t unit_bytes, struct error *error)
{
    uint64_t start[TENSOR_MAX_RANK], size[TENSOR_MAX_RANK];
    const struct tensor_record *record = region->tensor->record;
    find_slab(region, index, start, size);
    uint64_t elements = product(size, 0, record->rank), bytes = bits_to_bytes(elements, record->dtype);
    if (elements * dtype_bits(record->dtype) % 8 || bytes > unit_bytes)
        return fail_sub_byte_slab(record, error);
    add_item(unit, region->tensor, start, size);
    for (size_t p = 0; p < region->n_parts; p++)
        if (layout->files[region->parts[p].file].is_written &&
            put_part(unit, region, &region->parts[p], layout->files[region->parts[p].file].head_bytes, start, size, error) <
                0)
            return -1;
    unit->bytes += bytes;
    return 0;
}

static int compare_puts(const void *left, const void *right)
{
    const struct file_put *a = left, *b = right;
    return a->file != b->file ? (a->file > b->file) - (a->file < b->file)
                              : (a->offset > b->offset) - (a->offset < b->offset);
}

static int take_unit(struct export_units *units, struct export_unit *unit, struct error *error)
{
    const struct export_layout *layout = units->layout;
    struct region region;
    unit->n_items = unit->n_puts = 0;
    unit->bytes = 0;
    arena_fini(&unit->arena);
    for (; units->tensor < layout->n_tensors && unit->n_items < MOST_TENSORS; units->tensor++) {
        if (!find_region(layout, units->tensor, &region))
            continue;
        bool is_small = region.bytes <= units->unit_bytes;
        if (unit->n_items && (!is_small || unit->bytes + region.bytes > units->unit_bytes))
            return 1;
        choose_slabs(&region, units->unit_bytes);
        if (add_slab(unit, layout, &region, units->slab, units->unit_bytes, error) < 0)
            return -1;
        if (is_small)
            continue;
        if (++units->slab == region.n_slabs) {
            units->slab = 0;
            units->tensor++;
        }
        return 1;
    }
    return unit->n_items > 0;
}

/* Neighbours in a file become one write when they follow each other. */
int export_units_next(struct export_units *units, struct export_unit *unit, struct error *error)
{
    int taken = take_unit(units, unit, error);
    if (taken > 0 && unit->n_puts > 1)
        qsort(unit->puts, unit->n_puts, sizeof *unit->puts, compare_puts);
    return taken;
}

void export_unit_fini(struct export_unit *unit)
{
    free(unit->items);
    free(unit->puts);
    arena_fini(&unit->arena);
}
