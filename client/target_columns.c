/* Columns in the order of the message: a target for each tensor of the view, then fills, then covers. */
#include "target_columns.h"

#include <string.h>

#include "base/checked.h"
#include "base/map.h"
#include "dtype_name.h"

typedef Tensorcast__Daemon__V1__Targets message;

static int refuse_target(const struct tc_target *target, struct error *error, const char *why)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "target %.128s %s",
                target->name ? target->name : "without a name", why);
}

/* Its number in the protocol, 0 for none; element_bytes 0 for types below a byte. */
static int dtype_number(const char *name, uint64_t *element_bytes)
{
    uint64_t bits;
    for (int number = 1; dtype_name_of(number, &bits); number++)
        if (name && strcmp(dtype_name_of(number, &bits), name) == 0) {
            *element_bytes = bits / 8;
            return number;
        }
    return 0;
}

/* Which of the message's regions it is; a new one when it comes for the first time. Targets of one region come together. */
static uint32_t find_region(struct target_columns *columns, const struct tc_region *region)
{
    for (size_t i = columns->message->n_regions; i-- > 0;)
        if (columns->regions[i] == region)
            return (uint32_t)i;
    columns->regions[columns->message->n_regions] = region;
    return (uint32_t)columns->message->n_regions++;
}

static int add_strides(const struct tc_target *target, uint64_t element_bytes, message *to, struct error *error)
{
    uint64_t stride = element_bytes;
    if (target->strides) {
        memcpy(to->strides + to->n_strides, target->strides, target->rank * sizeof *target->strides);
    } else {
        for (size_t k = target->rank; k-- > 0;) {
            to->strides[to->n_strides + k] = (int64_t)stride;
            if (!checked_mul(stride, target->shape[k] ? target->shape[k] : 1, &stride) || stride > INT64_MAX)
                return refuse_target(target, error, "has more bytes than there can be");
        }
    }
    to->n_strides += target->rank;
    return 0;
}

static int add_row(const struct tc_target *target, struct target_columns *columns, struct error *error)
{
    message *to = columns->message;
    uint64_t element_bytes = 0;
    int dtype = dtype_number(target->dtype, &element_bytes);
    if (!target->region)
        return refuse_target(target, error, "has no region");
    if (!dtype)
        return refuse_target(target, error, "has a dtype that no tensor has; it is a name of safetensors, such as BF16");
    if (!element_bytes)
        return refuse_target(target, error, "has a dtype below one byte, which has no strides; load it with tc_load_view()");
    if (target->rank > TC_MAX_RANK)
        return refuse_target(target, error, "has too many dimensions");
    if (target->rank && !target->shape)
        return refuse_target(target, error, "has dimensions but no shape");
    if (add_strides(target, element_bytes, to, error))
        return -1;
    if (target->rank)
        memcpy(to->dims + to->n_dims, target->shape, target->rank * sizeof *target->shape);
    to->n_dims += target->rank;
    to->dtypes[to->n_dtypes++] = (Tensorcast__Daemon__V1__DType)dtype;
    to->ranks[to->n_ranks++] = (uint32_t)target->rank;
    to->region_indexes[to->n_region_indexes++] = find_region(columns, target->region);
    to->offsets[to->n_offsets++] = target->offset;
    return 0;
}

/* The message knows no const, so it gets a copy of the value. */
static int add_fill(const struct tc_target *target, struct target_columns *columns, struct arena *arena, struct error *error)
{
    message *to = columns->message;
    uint64_t element_bytes;
    if (add_row(target, columns, error) || !dtype_number(target->dtype, &element_bytes))
        return -1;
    uint8_t *value = arena_alloc(arena, element_bytes);
    memcpy(value, target->value, element_bytes);
    to->fill_names[to->n_fill_names++] = target->name;
    to->fill_values[to->n_fill_values++] = (ProtobufCBinaryData){element_bytes, value};
    return 0;
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static void view_of_targets(const struct tc_targets *targets, struct arena *arena, struct tc_view *view)
{
    struct tc_view_item *items = arena_array(arena, targets->n_targets + 1, sizeof *items);
    *view = (struct tc_view){.items = items};
    for (size_t i = 0; i < targets->n_targets; i++)
        if (!targets->targets[i].value)
            items[view->n_items++].name = targets->targets[i].name;
}

static int index_names(const struct tc_targets *targets, struct map *by_name, struct error *error)
{
    for (size_t i = 0; i < targets->n_targets; i++) {
        const struct tc_target *target = &targets->targets[i];
        if (!target->name)
            return refuse_target(target, error, "is none");
        if (map_find(by_name, target->name, strlen(target->name)) != MAP_NONE)
            return refuse_target(target, error, "comes twice");
        map_add(by_name, target->name, strlen(target->name), (uint32_t)i);
    }
    for (size_t i = 0; i < targets->n_covers; i++)
        if (!targets->covers[i].name)
            return refuse_target(&targets->covers[i], error, "is none");
    return 0;
}

/* Each tensor of the view has one target without a value, and no such target is left over. */
static int match_names(const struct tc_targets *targets, const struct map *by_name, struct target_columns *columns,
                       struct arena *arena, struct error *error)
{
    bool *is_used = arena_array(arena, targets->n_targets + 1, sizeof *is_used);
    for (size_t i = 0; i < columns->view.n_items; i++) {
        const char *name = columns->view.items[i].name;
        uint32_t index = map_find(by_name, name, strlen(name));
        if (index == MAP_NONE || targets->targets[index].value)
            return fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "tensor %.128s of the view has no target", name);
        columns->tensors[i] = &targets->targets[index];
        is_used[index] = true;
    }
    for (size_t i = 0; i < targets->n_targets; i++)
        if (!targets->targets[i].value && !is_used[i])
            return refuse_target(&targets->targets[i], error,
                                 "is no tensor of the view and has no value: nothing would be written to it");
    return 0;
}

/* --- all of it --------------------------------------------------------------------------------------------------- */

static void make_room(const struct tc_targets *targets, struct arena *arena, struct target_columns *columns)
{
    message *to = columns->message = arena_alloc(arena, sizeof *to);
    size_t n = targets->n_targets + targets->n_covers + 1, n_dims = 1;
    for (size_t i = 0; i < targets->n_targets; i++)
        n_dims += targets->targets[i].rank <= TC_MAX_RANK ? targets->targets[i].rank : 0;
    for (size_t i = 0; i < targets->n_covers; i++)
        n_dims += targets->covers[i].rank <= TC_MAX_RANK ? targets->covers[i].rank : 0;
    tensorcast__daemon__v1__targets__init(to);
    columns->regions = arena_array(arena, n, sizeof *columns->regions);
    columns->tensors = arena_array(arena, columns->view.n_items + 1, sizeof *columns->tensors);
    to->fill_names = arena_array(arena, n, sizeof *to->fill_names);
    to->fill_values = arena_array(arena, n, sizeof *to->fill_values);
    to->cover_names = arena_array(arena, n, sizeof *to->cover_names);
    to->dtypes = arena_array(arena, n, sizeof *to->dtypes);
    to->ranks = arena_array(arena, n, sizeof *to->ranks);
    to->region_indexes = arena_array(arena, n, sizeof *to->region_indexes);
    to->offsets = arena_array(arena, n, sizeof *to->offsets);
    to->dims = arena_array(arena, n_dims, sizeof *to->dims);
    to->strides = arena_array(arena, n_dims, sizeof *to->strides);
}

static int add_all(const struct tc_targets *targets, struct target_columns *columns, struct arena *arena,
                   struct error *error)
{
    for (size_t i = 0; i < columns->view.n_items; i++)
        if (add_row(columns->tensors[i], columns, error))
            return -1;
    for (size_t i = 0; i < targets->n_targets; i++)
        if (targets->targets[i].value && add_fill(&targets->targets[i], columns, arena, error))
            return -1;
    for (size_t i = 0; i < targets->n_covers; i++) {
        if (add_row(&targets->covers[i], columns, error))
            return -1;
        columns->message->cover_names[columns->message->n_cover_names++] = targets->covers[i].name;
    }
    return 0;
}

int target_columns_build(const struct tc_view *view, const struct tc_targets *targets, struct arena *arena,
                         struct target_columns *columns, struct error *error)
{
    struct map by_name;
    *columns = (struct target_columns){0};
    if (view)
        columns->view = *view;
    else
        view_of_targets(targets, arena, &columns->view);
    make_room(targets, arena, columns);
    map_init(&by_name, targets->n_targets);
    int failed = index_names(targets, &by_name, error) || match_names(targets, &by_name, columns, arena, error) ? -1 : 0;
    map_fini(&by_name);
    return failed ? failed : add_all(targets, columns, arena, error);
}
