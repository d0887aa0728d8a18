/* Columns become rows; see codec_targets.h. */
#include "api/codec_targets.h"

#include <string.h>

#include "device/device.h"

static int columns_do_not_fit(const char *what, size_t count, size_t expected, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "TARGET_COLUMNS", "targets.%s has %zu entries, expected %zu", what, count,
                expected);
}

static int check_columns(const Tensorcast__Daemon__V1__Targets *wire, struct error *error)
{
    size_t n = wire->n_dtypes;
    uint64_t n_dims = 0; /* cannot overflow: ranks are 32 bits wide */
    const struct {
        const char *name;
        size_t count;
    } columns[] = {{"ranks", wire->n_ranks}, {"region_indexes", wire->n_region_indexes}, {"offsets", wire->n_offsets}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (columns[i].count != n)
            return columns_do_not_fit(columns[i].name, columns[i].count, n, error);
    if (wire->n_fill_values != wire->n_fill_names)
        return columns_do_not_fit("fill_values", wire->n_fill_values, wire->n_fill_names, error);
    if (n < wire->n_fill_names + wire->n_cover_names)
        return columns_do_not_fit("dtypes", n, wire->n_fill_names + wire->n_cover_names, error);
    for (size_t i = 0; i < n; i++)
        n_dims += wire->ranks[i];
    if (wire->n_dims != n_dims)
        return columns_do_not_fit("dims", wire->n_dims, n_dims, error);
    if (wire->n_strides != n_dims)
        return columns_do_not_fit("strides", wire->n_strides, n_dims, error);
    if (wire->n_regions == 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_REGIONS", "the request has targets, but names no memory for them");
    return 0;
}

struct row_reader { /* of the columns, in order */
    const Tensorcast__Daemon__V1__Targets *wire;
    size_t next, next_dim;
};

static int read_row(struct row_reader *reader, const char *name, struct target *target, struct error *error)
{
    const Tensorcast__Daemon__V1__Targets *wire = reader->wire;
    size_t i = reader->next++, dim = reader->next_dim;
    int number = (int)wire->dtypes[i]; /* any; 0 is none */
    if (number < 1 || number > DTYPE_COUNT)
        return fail(error, ERROR_INVALID_ARGUMENT, "TARGET_DTYPE", "target %zu has the unknown dtype %d", i, number);
    reader->next_dim += wire->ranks[i];
    *target = (struct target){.name = name,
                              .name_length = name ? strlen(name) : 0,
                              .dtype = (enum dtype)(number - 1),
                              .rank = wire->ranks[i],
                              .dims = wire->dims + dim,
                              .strides = wire->strides + dim,
                              .offset = wire->offsets[i],
                              .region = wire->region_indexes[i]};
    return 0;
}

int codec_targets(const Tensorcast__Daemon__V1__Targets *wire, struct arena *arena, struct target_list **decoded,
                  struct error *error)
{
    if (check_columns(wire, error))
        return -1;
    size_t n_fills = wire->n_fill_names, n_covers = wire->n_cover_names, n_tensors = wire->n_dtypes - n_fills - n_covers;
    struct target_list *list = arena_alloc(arena, sizeof *list);
    *list =
        (struct target_list){.n_regions = wire->n_regions, .n_tensors = n_tensors, .n_fills = n_fills, .n_covers = n_covers};
    if (target_check_counts(list, error))
        return -1;
    struct target_region *regions = arena_try_array(arena, wire->n_regions, sizeof *regions, error);
    struct target *tensors = regions ? arena_try_array(arena, n_tensors, sizeof *tensors, error) : NULL;
    struct target_fill *fills = tensors ? arena_try_array(arena, n_fills, sizeof *fills, error) : NULL;
    struct target *covers = fills ? arena_try_array(arena, n_covers, sizeof *covers, error) : NULL;
    struct row_reader reader = {.wire = wire};
    int failed = covers ? 0 : -1;
    for (size_t i = 0; i < n_tensors && !failed; i++)
        failed = read_row(&reader, NULL, &tensors[i], error);
    for (size_t i = 0; i < n_fills && !failed; i++) {
        failed = read_row(&reader, wire->fill_names[i], &fills[i].target, error);
        fills[i].value = wire->fill_values[i].data;
        fills[i].value_bytes = wire->fill_values[i].len;
    }
    for (size_t i = 0; i < n_covers && !failed; i++)
        failed = read_row(&reader, wire->cover_names[i], &covers[i], error);
    if (failed)
        return -1;
    list->regions = regions;
    list->tensors = tensors;
    list->fills = fills;
    list->covers = covers;
    *decoded = list;
    return 0;
}

/* --- regions -------------------------------------------------------------------------------------------------------- */

/* Numbers that are the same for the same memory, as far as that can be told: of two exports of one cuMemCreate() it cannot. */
static void identify_region(const struct device_region *regions, const struct device_region *region,
                            struct target_region *place)
{
    uint64_t number = 1;
    if (region->kind == DEVICE_REGION_HOST) {
        place->device = region->memory_device;
        place->inode = region->memory_inode;
    } else if (region->kind == DEVICE_REGION_IPC) {
        for (; regions != region && memcmp(regions->ipc, region->ipc, sizeof region->ipc) != 0; regions = regions->next)
            number++;
        place->device = UINT64_MAX; /* no file system's */
        place->inode = number;
        place->memory_offset = region->offset;
    }
}

int codec_take_regions(const Tensorcast__Daemon__V1__Targets *wire, struct handoff *handoff, uid_t uid,
                       struct target_list *list, struct device_region **regions, struct error *error)
{
    struct device_region *first = NULL, **last = &first;
    int failed = 0;
    for (size_t i = 0; i < wire->n_regions && !failed; i++) {
        failed = handoff_take_region(handoff, wire->regions[i].data, wire->regions[i].len, uid, last, error);
        if (failed)
            break;
        list->regions[i] = (struct target_region){.bytes = (*last)->bytes};
        identify_region(first, *last, &list->regions[i]);
        last = &(*last)->next;
    }
    if (failed || target_place_regions(list, error)) {
        device_region_close(first);
        return -1;
    }
    size_t i = 0;
    for (struct device_region *region = first; region; region = region->next)
        region->base = list->regions[i++].base;
    *regions = first;
    return 0;
}
