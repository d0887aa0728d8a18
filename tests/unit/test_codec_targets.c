/* Columns of a request become targets, or are refused when they do not fit together. */
#include "tests/support/unit.h"

#include "api/codec.h"

#undef fail /* ours is in base/error.h */

typedef Tensorcast__Daemon__V1__Targets wire_targets;
typedef Tensorcast__Daemon__V1__DType wire_dtype;

static struct arena arena;
static struct error error;
static struct target_list *list;

static int open_arena(void **state)
{
    (void)state;
    arena_init(&arena, 0);
    return 0;
}

static int close_arena(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

/* Two tensors, a fill and a cover, of ranks 2, 0, 1 and 1. */
static struct columns {
    wire_targets wire;
    ProtobufCBinaryData regions[TARGET_MAX_REGIONS + 1], values[1];
    const char *fills[1], *covers[1];
    wire_dtype dtypes[4];
    uint32_t ranks[4], indexes[4];
    uint64_t dims[4], offsets[4];
    int64_t strides[4];
} columns;

static wire_targets *good(void)
{
    static unsigned char value[4] = {1, 2, 3, 4};
    columns = (struct columns){.values = {{4, value}},
                               .fills = {"pad"},
                               .covers = {"all"},
                               .dtypes = {1, 2, 3, 4},
                               .ranks = {2, 0, 1, 1},
                               .indexes = {0, 1, 0, 1},
                               .dims = {3, 4, 5, 6},
                               .offsets = {10, 20, 30, 40},
                               .strides = {-8, 2, 1, 1}};
    wire_targets *wire = &columns.wire;
    tensorcast__daemon__v1__targets__init(wire);
    wire->regions = columns.regions;
    wire->fill_names = columns.fills;
    wire->fill_values = columns.values;
    wire->cover_names = columns.covers;
    wire->dtypes = columns.dtypes;
    wire->ranks = columns.ranks;
    wire->dims = columns.dims;
    wire->region_indexes = columns.indexes;
    wire->offsets = columns.offsets;
    wire->strides = columns.strides;
    wire->n_regions = 2;
    wire->n_fill_names = wire->n_fill_values = wire->n_cover_names = 1;
    wire->n_dtypes = wire->n_ranks = wire->n_dims = wire->n_region_indexes = wire->n_offsets = wire->n_strides = 4;
    return wire;
}

static void assert_refused(const wire_targets *wire, const char *reason)
{
    assert_int_equal(codec_targets(wire, &arena, &list, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.reason, reason);
}

TEST_IN(columns_become_tensors_then_fills_then_covers, open_arena, close_arena)
{
    assert_int_equal(codec_targets(good(), &arena, &list, &error), 0);
    assert_int_equal(list->n_regions, 2);
    assert_int_equal(list->n_tensors, 2);
    assert_int_equal(list->n_fills, 1);
    assert_int_equal(list->n_covers, 1);
    assert_null(list->tensors[0].name);
    assert_int_equal(list->tensors[0].rank, 2);
    assert_int_equal(list->tensors[0].dims[1], 4);
    assert_int_equal(list->tensors[0].strides[0], -8);
    assert_int_equal(list->tensors[1].rank, 0);
    assert_int_equal(list->tensors[1].region, 1);
    assert_int_equal(list->tensors[1].offset, 20);
    assert_memory_equal(list->fills[0].target.name, "pad", list->fills[0].target.name_length);
    assert_int_equal(list->fills[0].target.dims[0], 5);
    assert_int_equal(list->fills[0].value_bytes, 4);
    assert_int_equal(list->fills[0].value[3], 4);
    assert_memory_equal(list->covers[0].name, "all", list->covers[0].name_length);
    assert_int_equal(list->covers[0].dims[0], 6);
    assert_int_equal(list->covers[0].dtype, 3);
}

TEST_IN(columns_of_different_length_are_refused, open_arena, close_arena)
{
    wire_targets *wire = good();
    size_t *const counts[] = {&wire->n_dtypes,  &wire->n_ranks,   &wire->n_dims,       &wire->n_region_indexes,
                              &wire->n_offsets, &wire->n_strides, &wire->n_fill_names, &wire->n_fill_values};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        good();
        --*counts[i];
        assert_refused(wire, "TARGET_COLUMNS");
    }
    good()->ranks[3] = UINT32_MAX;
    assert_refused(wire, "TARGET_COLUMNS");
    good()->n_cover_names = 4;
    assert_refused(wire, "TARGET_COLUMNS");
}

TEST_IN(an_unknown_dtype_and_a_request_without_memory_are_refused, open_arena, close_arena)
{
    wire_targets *wire = good();
    wire->dtypes[2] = 0;
    assert_refused(wire, "TARGET_DTYPE");
    good()->dtypes[3] = (wire_dtype)(DTYPE_COUNT + 1);
    assert_refused(wire, "TARGET_DTYPE");
    good()->dtypes[3] = (wire_dtype)INT32_MIN;
    assert_refused(wire, "TARGET_DTYPE");
    good()->n_regions = 0;
    assert_refused(wire, "NO_REGIONS");
}

TEST_IN(so_many_regions_are_taken_and_one_more_is_not, open_arena, close_arena)
{
    wire_targets *wire = good();
    wire->n_regions = TARGET_MAX_REGIONS;
    assert_int_equal(codec_targets(wire, &arena, &list, &error), 0);
    good()->n_regions = TARGET_MAX_REGIONS + 1;
    assert_refused(wire, "TOO_MANY_REGIONS");
}
