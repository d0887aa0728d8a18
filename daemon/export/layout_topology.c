/* A file for each rank, with its part of every tensor that is cut and the whole of every other, and topology.json, which says
 * so in the form of its reference: tensors by name, two blanks per level. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/layout_private.h"

static int place_chunks(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    uint32_t world_size = build->options->world_size;
    layout_set_files(build, world_size);
    for (uint32_t r = 0; r < world_size; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank%u.safetensors", r);
        layout->files[r].name = arena_text(&layout->arena, name, strlen(name));
    }
    layout->document_name = "topology.json";
    for (size_t t = 0; t < layout->n_tensors; t++)
        for (uint32_t r = 0; r < world_size; r++) {
            const uint64_t *start = NULL, *size = NULL;
            if (layout->tensors[t].split != EXPORT_NOT_SPLIT)
                layout_cut(build, &layout->tensors[t], r, &start, &size);
            layout_add_part(build, t, r, start, size);
        }
    return 0;
}

static void put_numbers(struct json_writer *json, const char *key, const uint64_t *numbers, size_t n)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_u64(json, numbers[i]);
    json_write_close(json, ']');
}

static void put_chunks(const struct export_layout *layout, size_t t, struct json_writer *json)
{
    uint32_t rank = layout->tensors[t].record->rank;
    json_put_open(json, "chunks", '[');
    for (size_t p = layout->first_part[t]; p < layout->first_part[t + 1]; p++) {
        const struct export_part *part = &layout->parts[p];
        json_write_open(json, '{');
        put_numbers(json, "offsets", part->start, rank);
        put_numbers(json, "shape", part->size, rank);
        json_put_u64(json, "filename_index", part->file);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void put_tensor(const struct export_layout *layout, size_t t, struct json_writer *json)
{
    const struct export_tensor *tensor = &layout->tensors[t];
    bool is_cut = tensor->split != EXPORT_NOT_SPLIT;
    json_write_key_bytes(json, tensor->record->name, tensor->record->name_length);
    json_write_open(json, '{');
    json_put_text(json, "type", is_cut ? "Distributed" : "Shared");
    put_numbers(json, "shape", tensor->shape, tensor->record->rank);
    json_put_text(json, "dtype", dtype_name(tensor->record->dtype));
    if (is_cut) {
        put_chunks(layout, t, json);
    } else {
        json_put_open(json, "filename_indices", '[');
        for (size_t f = 0; f < layout->n_files; f++)
            json_write_u64(json, f);
        json_write_close(json, ']');
    }
    json_write_close(json, '}');
}

static int put_tensors(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    uint32_t *order = layout_by_name(layout);
    int status = export_put_text(sink, "{\n  \"tensors\": {", error);
    for (size_t i = 0; status == 0 && i < layout->n_tensors; i++) {
        struct json_writer json = {0};
        put_tensor(layout, order[i], &json);
        status = layout_put_member(sink, &json, 2, i == 0, error);
    }
    free(order);
    return status < 0 ? -1 : export_put_text(sink, layout->n_tensors ? "\n  }" : "}", error);
}

static int write_topology(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    struct json_writer names = {0}, size = {0};
    json_put_open(&names, "filenames", '[');
    for (size_t f = 0; f < layout->n_files; f++)
        json_write_text(&names, layout->files[f].name);
    json_write_close(&names, ']');
    json_put_u64(&size, "world_size", layout->world_size);
    int status = put_tensors(layout, sink, error);
    if (status == 0)
        status = layout_put_member(sink, &names, 1, false, error);
    if (status == 0)
        status = layout_put_member(sink, &size, 1, false, error);
    free(names.text);
    free(size.text);
    return status < 0 ? -1 : export_put_text(sink, "\n}", error);
}

const struct layout_format layout_topology = {.name = "topology", .place = place_chunks, .write_document = write_topology};
