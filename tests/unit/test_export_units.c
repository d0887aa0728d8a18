/* Whatever is cut along whatever dimension, and however small a unit: the units of an export, carried out in memory, make
 * every part what it should be, each byte written once. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "export/export_units.h"

enum { MOST_RANK = 4, N_CASES = 400 };

static struct error error;
static uint64_t seed = 7;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

struct scene {
    struct tensor_record records[5];
    uint64_t shapes[5][MOST_RANK], starts[5][MOST_RANK], sizes[5][MOST_RANK];
    char names[5][8];
    unsigned char *bytes[5]; /* of the stored tensors */
    struct export_tensor tensors[5];
};

static void draw_tensor(struct scene *scene, size_t i, uint32_t world_size)
{
    static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_F64};
    struct tensor_record *record = &scene->records[i];
    struct export_tensor *tensor = &scene->tensors[i];
    bool is_sliced = draw(2);
    snprintf(scene->names[i], sizeof scene->names[i], "t%zu", i);
    *record = (struct tensor_record){.name = scene->names[i],
                                     .name_length = 2,
                                     .dtype = dtypes[draw(4)],
                                     .rank = (uint32_t)draw(MOST_RANK + 1),
                                     .shape = scene->shapes[i]};
    uint64_t size_bytes = dtype_bits(record->dtype) / 8, all_bytes = size_bytes;
    *tensor = (struct export_tensor){.record = record,
                                     .split = EXPORT_NOT_SPLIT,
                                     .start = scene->starts[i],
                                     .shape = scene->sizes[i],
                                     .bytes = size_bytes};
    for (uint32_t d = 0; d < record->rank; d++) {
        uint64_t extent = draw(12) ? 1 + draw(9) : 0;
        scene->shapes[i][d] = extent;
        scene->starts[i][d] = is_sliced && extent ? draw(extent) : 0;
        scene->sizes[i][d] = is_sliced && extent ? 1 + draw(extent - scene->starts[i][d]) : extent;
        all_bytes *= extent;
        tensor->bytes *= scene->sizes[i][d];
    }
    if (!is_sliced)
        tensor->start = NULL;
    if (record->rank && world_size && draw(3))
        tensor->split = (int)draw(record->rank);
    record->bytes = all_bytes;
    scene->bytes[i] = memory_alloc(all_bytes + 1);
    for (uint64_t b = 0; b < all_bytes; b++)
        scene->bytes[i][b] = (unsigned char)(draw(255) + 1);
}

/* Copies the box at start, size of an array into dst, packed. */
static unsigned char *copy_box(const unsigned char *src, const struct tensor_record *record, const uint64_t *start,
                               const uint64_t *size, unsigned char *dst)
{
    uint64_t at[MOST_RANK] = {0}, element = dtype_bits(record->dtype) / 8;
    for (uint32_t d = 0; d < record->rank; d++)
        if (size[d] == 0)
            return dst;
    for (;;) {
        uint64_t index = 0;
        for (uint32_t d = 0; d < record->rank; d++)
            index = index * record->shape[d] + start[d] + at[d];
        memcpy(dst, src + index * element, element);
        dst += element;
        uint32_t d = record->rank;
        while (d > 0 && ++at[d - 1] == size[d - 1])
            at[--d] = 0;
        if (d == 0)
            return dst;
    }
}

static const struct scene *found_scene;

static size_t tensor_of(const char *name)
{
    for (size_t i = 0; i < 5; i++)
        if (strcmp(found_scene->names[i], name) == 0)
            return i;
    abort();
}

static unsigned char *read_items(const struct export_unit *drawn)
{
    unsigned char *window = memory_alloc(drawn->bytes + 1), *end = window;
    for (size_t k = 0; k < drawn->n_items; k++) {
        const struct view_item *item = &drawn->items[k];
        size_t i = tensor_of(item->name);
        uint64_t start[MOST_RANK] = {0}, size[MOST_RANK];
        const struct tensor_record *record = &found_scene->records[i];
        for (uint32_t d = 0; d < record->rank; d++) {
            start[d] = item->n_slices ? (uint64_t)item->slices[d].start : 0;
            size[d] = item->n_slices ? (uint64_t)item->slices[d].stop - start[d] : record->shape[d];
        }
        end = copy_box(found_scene->bytes[i], record, start, size, end);
    }
    assert_int_equal(end - window, drawn->bytes);
    return window;
}

static void carry_out(const struct export_layout *layout, uint64_t unit_bytes, unsigned char **files)
{
    struct export_units units = {.layout = layout, .unit_bytes = unit_bytes};
    struct export_unit made = {0};
    while (export_units_next(&units, &made, &error) > 0) {
        unsigned char *window = read_items(&made);
        assert_true(made.bytes <= unit_bytes);
        for (size_t p = 0; p < made.n_puts; p++)
            for (uint64_t r = 0; r < made.puts[p].n_rows; r++)
                for (uint64_t b = 0; b < made.puts[p].row_bytes; b++) {
                    uint64_t from = made.puts[p].at + r * made.puts[p].stride + b;
                    uint64_t to = made.puts[p].offset + r * made.puts[p].row_bytes + b;
                    assert_true(from < made.bytes && to < layout->files[made.puts[p].file].file_bytes);
                    assert_int_equal(files[made.puts[p].file][to], 0); /* not written yet */
                    files[made.puts[p].file][to] = window[from];
                }
        free(window);
    }
    export_unit_fini(&made);
}

static void check_parts(const struct export_layout *layout, unsigned char **files)
{
    for (size_t t = 0; t < layout->n_tensors; t++)
        for (size_t p = layout->first_part[t]; p < layout->first_part[t + 1]; p++) {
            const struct export_part *part = &layout->parts[p];
            const struct export_tensor *tensor = &layout->tensors[t];
            const struct tensor_record *record = tensor->record;
            uint64_t start[MOST_RANK];
            if (!layout->files[part->file].is_written)
                continue;
            for (uint32_t d = 0; d < record->rank; d++)
                start[d] = (part->start ? part->start[d] : 0) + (tensor->start ? tensor->start[d] : 0);
            unsigned char *wanted = memory_alloc(part->bytes + 1);
            unsigned char *end = copy_box(found_scene->bytes[tensor_of(record->name)], record, start,
                                          part->start ? part->size : tensor->shape, wanted);
            assert_int_equal(end - wanted, part->bytes);
            assert_memory_equal(files[part->file] + layout->files[part->file].head_bytes + part->offset, wanted,
                                part->bytes);
            free(wanted);
        }
}

static void check_case(void)
{
    static const enum export_format kinds[] = {EXPORT_HF, EXPORT_TOPOLOGY, EXPORT_DCP};
    struct scene scene = {0};
    struct export_layout_options options = {
        .format = kinds[draw(3)], .uneven = UNEVEN_CEIL, .rank = EXPORT_ALL_RANKS, .max_file_bytes = draw(2) ? 300 : 0};
    options.world_size = options.format == EXPORT_HF ? 0 : (uint32_t)(1 + draw(5));
    if (options.world_size && draw(3) == 0)
        options.rank = (int64_t)draw(options.world_size);
    found_scene = &scene;
    for (size_t i = 0; i < 5; i++)
        draw_tensor(&scene, i, options.world_size);
    struct export_layout *layout = export_layout_build(scene.tensors, 5, &options, &error);
    assert_non_null(layout);
    unsigned char **files = memory_alloc_array(layout->n_files, sizeof *files);
    for (size_t f = 0; f < layout->n_files; f++)
        files[f] = memory_alloc(layout->files[f].file_bytes + 1);
    carry_out(layout, 8 + draw(draw(2) ? 60 : 2000), files);
    check_parts(layout, files);
    for (size_t f = 0; f < layout->n_files; f++)
        free(files[f]);
    free(files);
    for (size_t i = 0; i < 5; i++)
        free(scene.bytes[i]);
    export_layout_destroy(layout);
}

TEST(units_of_any_size_make_every_part)
{
    for (int i = 0; i < N_CASES; i++)
        check_case();
}

TEST(a_unit_has_4096_tensors_at_most)
{
    const size_t n = 4097;
    const uint64_t shape[] = {1};
    struct tensor_record *records = memory_alloc_array(n, sizeof *records);
    struct export_tensor *tensors = memory_alloc_array(n, sizeof *tensors);
    char(*names)[8] = memory_alloc_array(n, sizeof *names);
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "%05zu", i);
        records[i] = (struct tensor_record){
            .name = names[i], .name_length = 5, .shape = shape, .bytes = 1, .dtype = DTYPE_U8, .rank = 1};
        tensors[i] = (struct export_tensor){.record = &records[i], .shape = shape, .bytes = 1, .split = EXPORT_NOT_SPLIT};
    }
    const struct export_layout_options options = {.format = EXPORT_HF, .rank = EXPORT_ALL_RANKS};
    struct export_layout *layout = export_layout_build(tensors, n, &options, &error);
    struct export_units units = {.layout = layout, .unit_bytes = 1 << 20};
    struct export_unit made = {0};
    assert_int_equal(export_units_next(&units, &made, &error), 1);
    assert_int_equal(made.n_items, 4096);
    assert_int_equal(made.n_puts, 1); /* neighbours */
    assert_int_equal(export_units_next(&units, &made, &error), 1);
    assert_int_equal(made.n_items, 1);
    assert_int_equal(export_units_next(&units, &made, &error), 0);
    export_unit_fini(&made);
    export_layout_destroy(layout);
    free(records);
    free(tensors);
    free(names);
}

TEST(elements_smaller_than_bytes_are_cut_between_bytes)
{
    const uint64_t odd[] = {64, 3}, wide[] = {3, 1001};
    struct tensor_record record = {.name = "f4", .name_length = 2, .shape = odd, .bytes = 96, .dtype = DTYPE_F4, .rank = 2};
    struct export_tensor tensor = {.record = &record, .shape = odd, .bytes = 96, .split = EXPORT_NOT_SPLIT};
    const struct export_layout_options options = {.format = EXPORT_HF, .rank = EXPORT_ALL_RANKS};
    struct export_layout *layout = export_layout_build(&tensor, 1, &options, &error);
    struct export_units units = {.layout = layout, .unit_bytes = 20};
    struct export_unit made = {0};
    uint64_t bytes = 0;
    while (export_units_next(&units, &made, &error) > 0)
        bytes += made.bytes;
    assert_int_equal(bytes, 96);
    export_layout_destroy(layout);
    record.shape = tensor.shape = wide; /* a row is half a byte too long */
    record.bytes = tensor.bytes = 1502;
    layout = export_layout_build(&tensor, 1, &options, &error);
    units = (struct export_units){.layout = layout, .unit_bytes = 700};
    assert_int_equal(export_units_next(&units, &made, &error), -1);
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
    export_unit_fini(&made);
    export_layout_destroy(layout);
}
