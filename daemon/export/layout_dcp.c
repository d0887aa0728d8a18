/* A shard for each rank as PyTorch's distributed checkpoint writes it (torch/distributed/checkpoint/_hf_utils.py): the name
 * carries the rank, and the metadata where in its tensor each array begins. Nothing says how large a tensor is: readers take
 * the hull of its parts. A tensor that is not cut is in one shard, that of the rank that has least so far. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "export/layout_private.h"

static uint32_t least_loaded(const uint64_t *loads, uint32_t n)
{
    uint32_t least = 0;
    for (uint32_t r = 1; r < n; r++)
        if (loads[r] < loads[least])
            least = r;
    return least;
}

/* An empty part says nothing about a tensor that has others; of an empty tensor the first one is kept, which says how large
 * the other dimensions are. */
static void place_cut(struct layout_build *build, size_t t, uint64_t *loads)
{
    const struct export_tensor *tensor = &build->layout->tensors[t];
    bool is_placed = false;
    for (uint32_t r = 0; r < build->options->world_size; r++) {
        const uint64_t *start, *size;
        bool is_empty = layout_cut(build, tensor, r, &start, &size) || tensor->bytes == 0;
        if (is_empty && (is_placed || tensor->bytes))
            continue;
        if (is_empty)
            start = size = NULL;
        layout_add_part(build, t, r, start, size);
        loads[r] += build->layout->parts[build->n_parts - 1].bytes;
        is_placed = true;
    }
}

static int place_shards(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    uint32_t world_size = build->options->world_size;
    uint64_t *loads = memory_alloc_array(world_size, sizeof *loads);
    layout_set_files(build, world_size);
    for (uint32_t r = 0; r < world_size; r++) {
        char name[64];
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", r + 1);
        layout->files[r].name = arena_text(&layout->arena, name, strlen(name));
    }
    for (size_t t = 0; t < layout->n_tensors; t++) {
        if (layout->tensors[t].split != EXPORT_NOT_SPLIT) {
            place_cut(build, t, loads);
            continue;
        }
        uint32_t rank = least_loaded(loads, world_size);
        layout_add_part(build, t, rank, NULL, NULL);
        loads[rank] += layout->tensors[t].bytes;
    }
    free(loads);
    return 0;
}

static void put_offsets(const struct export_layout *layout, size_t t, const struct export_part *part,
                        struct json_writer *json)
{
    const struct tensor_record *record = layout->tensors[t].record;
    json_write_key_bytes(json, record->name, record->name_length);
    json_write_open(json, '{');
    json_put_open(json, "saved_offsets", '[');
    for (uint32_t d = 0; d < record->rank; d++)
        json_write_u64(json, part->start ? part->start[d] : 0);
    json_write_close(json, ']');
    json_write_close(json, '}');
}

static void describe_shard(const struct export_layout *layout, uint32_t file, struct json_writer *json)
{
    struct json_writer info = {0};
    json_write_open(&info, '{');
    for (size_t t = 0; t < layout->n_tensors; t++) {
        const struct export_part *part = layout_find_part(layout, t, file);
        if (part)
            put_offsets(layout, t, part, &info);
    }
    json_write_close(&info, '}');
    json_put_string(json, "DCP_SHARDING_INFO", info.text, info.length);
    json_put_text(json, "DCP_VERSION", "1.0");
    json_put_text(json, "format", "pt");
    free(info.text);
}

const struct layout_format layout_dcp = {.name = "dcp", .place = place_shards, .describe = describe_shard};
