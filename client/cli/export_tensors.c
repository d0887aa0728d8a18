#include "export_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "command_table.h"
#include "reshard_rules.h"
#include "resolve/view.h"

struct building {
    const struct args *args;
    const struct artifact *artifact;
    struct arena *arena;
    struct error *error;
};

static int find_split(const struct building *building, struct export_tensor *tensor)
{
    const struct args *args = building->args;
    const struct tensor_record *record = tensor->record;
    const struct catalog_tensor shown = {
        .name = record->name, .name_length = record->name_length, .shape = tensor->shape, .rank = record->rank};
    int64_t dimension;
    tensor->split = EXPORT_NOT_SPLIT;
    if (args->export.format == EXPORT_HF)
        return 0;
    if (args->command == COMMAND_RESHARD) {
        tensor->split = reshard_rules_dimension(record->name, record->name_length, record->rank);
        return 0;
    }
    if (tp_rules_dimension(&args->view.tp, &shown, args->export.uneven != UNEVEN_ERROR, &dimension, building->error) < 0)
        return -1;
    if (dimension >= 0)
        tensor->split = (int)dimension;
    return 0;
}

/* Elements of a tensor fit into 64 bits as bits, so those of a part do. */
static uint64_t bytes_of(const struct export_tensor *tensor)
{
    uint64_t bits = dtype_bits(tensor->record->dtype);
    for (uint32_t d = 0; d < tensor->record->rank; d++)
        if (tensor->shape[d] == 0)
            return 0;
    for (uint32_t d = 0; d < tensor->record->rank; d++)
        bits *= tensor->shape[d];
    return bits / 8;
}

static int slice_tensor(const struct building *building, const struct tc_view_item *item, struct export_tensor *tensor)
{
    const struct tensor_record *record = tensor->record;
    uint64_t *start = arena_array(building->arena, record->rank + 1, sizeof *start);
    uint64_t *size = arena_array(building->arena, record->rank + 1, sizeof *size);
    struct slice *slices = arena_array(building->arena, item->n_slices, sizeof *slices);
    for (size_t d = 0; d < item->n_slices; d++)
        slices[d] = (struct slice){item->slices[d].start, item->slices[d].stop};
    const struct view_item view = {item->name, strlen(item->name), (uint32_t)item->n_slices, slices};
    if (view_slices(&view, false, record, start, size, building->error) < 0)
        return -1;
    tensor->start = start;
    tensor->shape = size;
    tensor->bytes = bytes_of(tensor);
    char name[TEXT_NAME_CHARS];
    uint64_t bits = dtype_bits(record->dtype);
    for (uint32_t d = 0; d < record->rank; d++)
        bits *= size[d];
    if (bits % 8 == 0)
        return 0;
    fail(building->error, ERROR_UNIMPLEMENTED, "SPLITS_A_BYTE", "tensor '%s' of %s is cut within a byte",
         text_escape(record->name, record->name_length, name), dtype_name(record->dtype));
    return error_note(building->error, "tensor", "%.*s", (int)record->name_length, record->name);
}

static int take_record(const struct building *building, const struct tensor_record *record, const struct tc_view_item *item,
                       struct export_tensor *tensor)
{
    *tensor = (struct export_tensor){.record = record, .shape = record->shape, .bytes = record->bytes};
    if (item && item->n_slices && slice_tensor(building, item, tensor) < 0)
        return -1;
    return find_split(building, tensor);
}

static int take_named(const struct building *building, const struct tc_view_item *item, bool *is_taken,
                      struct export_tensor *tensor)
{
    char name[TEXT_NAME_CHARS];
    uint32_t index = map_find(&building->artifact->by_name, item->name, strlen(item->name));
    text_escape(item->name, strlen(item->name), name);
    if (index == MAP_NONE)
        fail(building->error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "there is no tensor '%s' in %s", name,
             building->artifact->reference);
    else if (is_taken[index])
        fail(building->error, ERROR_INVALID_ARGUMENT, "DUPLICATE_TENSOR", "tensor '%s' occurs twice in the view", name);
    if (index == MAP_NONE || is_taken[index])
        return error_note(building->error, "tensor", "%s", item->name);
    is_taken[index] = true;
    return take_record(building, &building->artifact->tensors[index], item, tensor);
}

struct export_tensor *export_tensors_build(const struct args *args, const struct artifact *artifact,
                                           const struct tc_view *view, struct arena *arena, size_t *n_tensors,
                                           struct error *error)
{
    const struct building building = {args, artifact, arena, error};
    size_t n = view ? view->n_items : artifact->n_tensors;
    struct export_tensor *tensors = memory_alloc_array(n + 1, sizeof *tensors);
    bool *is_taken = memory_alloc_array(artifact->n_tensors + 1, sizeof *is_taken);
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++)
        status = view ? take_named(&building, &view->items[i], is_taken, &tensors[i])
                      : take_record(&building, &artifact->tensors[i], NULL, &tensors[i]);
    free(is_taken);
    *n_tensors = n;
    if (status == 0)
        return tensors;
    free(tensors);
    return NULL;
}
