/* Views that go to targets of a client: what is refused, and the transfers and fills of the shapes that models have.
 * tests/property/test_mapping.c checks the bytes. */
#include "tests/support/unit.h"

#include "resolve/mapping.h"
#include "tests/support/source_memory.h"
#include "tests/support/operation_name.h"
#include "tests/support/variant_scene.h"

enum { DATA_BYTES = 264 };

static const char plain[] = "[]";

static unsigned char count_up(uint64_t i)
{
    static const float scales[] = {0.5f, 2, 3, -1};
    return i < 248 ? (unsigned char)(i * 7 % 100) : ((const unsigned char *)scales)[i - 248];
}

static int create(void **state)
{
    variant_scene_begin(state);
    variant_scene_put("{\"q\":{\"dtype\":\"U8\",\"shape\":[8,6],\"data_offsets\":[0,48]},"
                      "\"k\":{\"dtype\":\"U8\",\"shape\":[4,6],\"data_offsets\":[48,72]},"
                      "\"v\":{\"dtype\":\"U8\",\"shape\":[4,6],\"data_offsets\":[72,96]},"
                      "\"e\":{\"dtype\":\"F32\",\"shape\":[5,6],\"data_offsets\":[96,216]},"
                      "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[216,220]},"
                      "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[220,220]},"
                      "\"f4\":{\"dtype\":\"F4\",\"shape\":[3,8],\"data_offsets\":[220,232]},"
                      "\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,4],\"data_offsets\":[232,248]},"
                      "\"w_s\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[248,264]}}",
                      DATA_BYTES, count_up);
    return variant_scene_apply(plain);
}

/* --- a request -------------------------------------------------------------------------------------------------------- */

static struct request {
    struct view_item items[4];
    struct slice slices[4][2];
    struct target tensors[4], covers[1];
    struct target_fill fills[2];
    struct target_region region;
    struct target_list list;
    struct error error;
} request;

#define DIMS(...) ((const uint64_t[]){__VA_ARGS__})
#define STRIDES(...) ((const int64_t[]){__VA_ARGS__})
#define ARRAY(kind, n, at, ...) ((struct target){.dtype = DTYPE_##kind, .rank = n, .offset = at, ARRAY_(__VA_ARGS__)})
#define ARRAY_(sizes, steps) .dims = sizes, .strides = steps

static void begin(uint64_t bytes)
{
    memset(&request, 0, sizeof request);
    request.region.bytes = bytes;
    request.list = (struct target_list){.regions = &request.region,
                                        .n_regions = 1,
                                        .tensors = request.tensors,
                                        .fills = request.fills,
                                        .covers = request.covers};
    assert_int_equal(target_place_regions(&request.list, &request.error), 0);
}

static void into(const char *name, struct target target)
{
    size_t i = request.list.n_tensors++;
    request.items[i] = (struct view_item){.name = name, .name_length = strlen(name)};
    request.tensors[i] = target;
}

/* Of the last tensor. */
static void take(int64_t row, int64_t rows_end, int64_t column, int64_t columns_end)
{
    size_t i = request.list.n_tensors - 1;
    request.slices[i][0] = (struct slice){row, rows_end};
    request.slices[i][1] = (struct slice){column, columns_end};
    request.items[i].slices = request.slices[i];
    request.items[i].n_slices = 2;
}

static void fill(const char *name, struct target target, const void *value, size_t value_bytes)
{
    target.name = name;
    target.name_length = strlen(name);
    request.fills[request.list.n_fills++] = (struct target_fill){target, value, value_bytes};
}

static void cover(const char *name, struct target target)
{
    target.name = name;
    target.name_length = strlen(name);
    request.covers[request.list.n_covers++] = target;
}

static struct mapping *build_items(size_t n_items)
{
    struct view_spec view = {.items = request.items, .n_items = n_items, .align_bytes = 64, .targets = &request.list};
    return mapping_build(&view, variant_scene.artifact, &request.error);
}

static struct mapping *build(void)
{
    struct mapping *mapping = build_items(request.list.n_tensors);
    if (!mapping)
        fail_msg("%s", request.error.message);
    return mapping;
}

static void refuses(const char *reason, const char *named)
{
    assert_null(build_items(request.list.n_tensors));
    if (strcmp(request.error.reason, reason) != 0 || !strstr(request.error.message, named))
        fail_msg("%s: %s", request.error.reason, request.error.message);
}

static void is_transfer(const struct mapping *mapping, size_t i, uint64_t dst, uint64_t row, uint64_t n, int64_t stride)
{
    const struct transfer *transfer = &mapping->transfers[i];
    assert_int_equal(transfer->dst_offset, dst);
    assert_int_equal(transfer->row_bytes, row);
    assert_int_equal(transfer->n_rows, n);
    assert_int_equal(transfer->dst_stride, stride);
}

static void is_fill(const struct mapping *mapping, size_t i, uint64_t dst, uint64_t row, uint64_t n, uint64_t stride)
{
    assert_int_equal(mapping->fills[i].dst_offset, dst);
    assert_int_equal(mapping->fills[i].row_bytes, row);
    assert_int_equal(mapping->fills[i].n_rows, n);
    assert_int_equal(mapping->fills[i].dst_stride, stride);
}

static void compare(const struct target *target, const unsigned char *memory, const unsigned char *packed)
{
    uint64_t element = dtype_bits(target->dtype) / 8, n = 1;
    for (uint32_t d = 0; d < target->rank; d++)
        n *= target->dims[d];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = target->offset, rest = i;
        for (uint32_t d = target->rank; d-- > 0; rest /= target->dims[d])
            at += rest % target->dims[d] * (uint64_t)target->strides[d];
        assert_memory_equal(memory + at, packed + i * element, element);
    }
}

/* Into one region. */
static void writes_what_a_packed_load_has(void)
{
    struct view_spec view = {.items = request.items, .n_items = request.list.n_tensors, .align_bytes = 64};
    uint64_t offsets[4];
    assert_int_equal(variant_scene_load_view(&view), 0);
    uint64_t bytes = variant_scene.mapping->replica_bytes;
    unsigned char *packed = malloc(bytes + 1);
    memcpy(packed, variant_scene.replica, bytes);
    for (size_t i = 0; i < view.n_items; i++)
        offsets[i] = variant_scene.mapping->tensors[i].offset;
    view.targets = &request.list;
    if (variant_scene_load_view(&view))
        fail_msg("%s", variant_scene.error.message);
    for (size_t i = 0; i < view.n_items; i++)
        compare(&request.tensors[i], variant_scene.replica, packed + offsets[i]);
    free(packed);
}

/* --- shapes of models ------------------------------------------------------------------------------------------------- */

TEST(fused_parts_are_one_row_each)
{
    begin(256);
    into("q", ARRAY(U8, 2, 10, DIMS(4, 6), STRIDES(6, 1)));
    take(4, 8, 0, INT64_MAX);
    into("k", ARRAY(U8, 2, 34, DIMS(4, 6), STRIDES(6, 1)));
    into("v", ARRAY(U8, 2, 58, DIMS(4, 6), STRIDES(6, 1)));
    cover("qkv", ARRAY(U8, 2, 10, DIMS(12, 6), STRIDES(6, 1)));
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_transfers, 3);
    for (size_t i = 0; i < 3; i++)
        is_transfer(mapping, i, 10 + 24 * i, 24, 1, 24);
    assert_int_equal(mapping->tensors[0].job, JOB_DIM0);
    assert_int_equal(mapping->tensors[1].job, JOB_REPLICATED);
    assert_null(mapping->order);
    assert_int_equal(mapping->view_bytes, 72);
    assert_int_equal(mapping->replica_bytes, 256);
    mapping_destroy(mapping);
}

TEST(a_padded_embedding_is_rows_and_fills)
{
    static const float minus = -1.5f, zero = 0;
    begin(1024);
    into("e", ARRAY(F32, 2, 256, DIMS(5, 6), STRIDES(32, 4)));
    fill("right", ARRAY(F32, 2, 256 + 24, DIMS(5, 2), STRIDES(32, 4)), &zero, 4);
    fill("rows", ARRAY(F32, 2, 256 + 160, DIMS(3, 8), STRIDES(32, 4)), &minus, 4);
    cover("padded", ARRAY(F32, 2, 256, DIMS(8, 8), STRIDES(32, 4)));
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_transfers, 1);
    is_transfer(mapping, 0, 256, 24, 5, 32);
    assert_int_equal(mapping->n_fills, 2);
    is_fill(mapping, 0, 256 + 24, 8, 5, 32);
    assert_int_equal(mapping->fills[0].value_bytes, 1);
    assert_int_equal(mapping->fills[0].value[0], 0);
    is_fill(mapping, 1, 256 + 160, 96, 1, 96);
    assert_int_equal(mapping->fills[1].value_bytes, 4);
    assert_memory_equal(mapping->fills[1].value, &minus, 4);
    assert_int_equal(mapping->fill_bytes, 40 + 96);
    mapping_destroy(mapping);
}

TEST(a_fill_of_several_strides_is_a_fill_for_each_row_but_the_longest_loop)
{
    begin(4096);
    into("s", ARRAY(F32, 0, 4092, NULL, NULL));
    fill("cube", ARRAY(U8, 3, 2000, DIMS(2, 9, 3), STRIDES(-1000, 100, -10)), "\5", 1);
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_fills, 6);
    for (size_t i = 0; i < 6; i++)
        is_fill(mapping, i, 1000 - 20 + i % 3 * 10 + i / 3 * 1000, 1, 9, 100);
    mapping_destroy(mapping);
}

TEST(rows_and_columns_land_in_rows_and_columns)
{
    for (unsigned base = 0; base < 12; base += 5) {
        begin(4 * 8 + 20);
        into("k", ARRAY(U8, 2, base + 1, DIMS(2, 3), STRIDES(6, 1)));
        take(1, 3, 2, 5);
        struct mapping *mapping = build();
        assert_int_equal(mapping->n_transfers, 1);
        is_transfer(mapping, 0, base + 1, 3, 2, 6);
        assert_int_equal(mapping->tensors[0].job, JOB_RECT2D);
        mapping_destroy(mapping);
        writes_what_a_packed_load_has();
    }
}

TEST(what_is_turned_or_goes_backwards_is_no_transfer_for_each_element)
{
    begin(256);
    into("e", ARRAY(F32, 2, 0, DIMS(5, 6), STRIDES(4, 20))); /* transposed */
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_transfers, 5);
    for (size_t i = 0; i < 5; i++)
        is_transfer(mapping, i, 4 * i, 4, 6, 20);
    mapping_destroy(mapping);
    request.tensors[0] = ARRAY(F32, 2, 20, DIMS(5, 6), STRIDES(24, -4)); /* each row backwards */
    mapping = build();
    assert_int_equal(mapping->n_transfers, 5);
    for (size_t i = 0; i < 5; i++)
        is_transfer(mapping, i, 20 + 24 * i, 4, 6, -4);
    mapping_destroy(mapping);
    request.tensors[0] = ARRAY(F32, 2, 96, DIMS(5, 6), STRIDES(-24, 4)); /* rows upwards */
    mapping = build();
    assert_int_equal(mapping->n_transfers, 1);
    is_transfer(mapping, 0, 96, 24, 5, -24);
    mapping_destroy(mapping);
    request.tensors[0] = ARRAY(F32, 2, 116, DIMS(5, 6), STRIDES(-24, -4)); /* all of it */
    mapping = build();
    assert_int_equal(mapping->n_transfers, 1);
    is_transfer(mapping, 0, 116, 4, 30, -4);
    mapping_destroy(mapping);
}

TEST(scalars_empty_arrays_and_packed_elements_have_targets_too)
{
    begin(64);
    into("s", ARRAY(F32, 0, 3, NULL, NULL));
    into("none", ARRAY(F32, 2, 9000, DIMS(0, 3), STRIDES(0, -1)));
    into("f4", ARRAY(F4, 2, 8, DIMS(3, 8), STRIDES(9, 0)));
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_transfers, 2);
    is_transfer(mapping, 0, 3, 4, 1, 4);
    is_transfer(mapping, 1, 8, 4, 3, 9);
    mapping_destroy(mapping);
}

static void apply(const char *recipe)
{
    if (variant_scene_apply(recipe))
        fail_msg("%s", variant_scene.error.message);
}

TEST(elements_are_converted_on_their_way_to_a_target)
{
    apply("[{\"cast\": {\"tensors\": [\"e\"], \"dtype\": \"BF16\"}}]");
    begin(256);
    into("e", ARRAY(BF16, 2, 110, DIMS(5, 6), STRIDES(16, -2)));
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_transfers, 5);
    for (size_t i = 0; i < 5; i++) {
        is_transfer(mapping, i, 110 + 16 * i, 4, 6, -2);
        assert_string_equal(operation_name(mapping_operation(mapping, &mapping->transfers[i])), "cast");
    }
    mapping_destroy(mapping);
    writes_what_a_packed_load_has();
    request.tensors[0] = ARRAY(BF16, 2, 4, DIMS(5, 6), STRIDES(2, 10)); /* transposed */
    writes_what_a_packed_load_has();
    request.tensors[0] = ARRAY(BF16, 2, 4, DIMS(5, 6), STRIDES(14, 2)); /* rows with gaps */
    writes_what_a_packed_load_has();
    apply("[{\"cast\": {\"tensors\": [\"e\"], \"dtype\": \"F64\"}}, {\"transpose\": {\"tensors\": [\"e\"], \"dims\": "
          "[1, 0]}}]");
    request.tensors[0] = ARRAY(F64, 2, 5, DIMS(6, 5), STRIDES(41, 8));
    writes_what_a_packed_load_has();
    apply(plain);
}

TEST(strides_of_an_array_without_elements_may_be_any_numbers)
{
    apply("[{\"transpose\": {\"tensors\": [\"e\"], \"dims\": [1, 0]}}]");
    begin(64);
    into("e", ARRAY(F32, 2, 9000, DIMS(6, 0), STRIDES(INT64_MAX, INT64_MIN)));
    take(0, 6, 2, 2);
    struct mapping *mapping = build();
    assert_int_equal(mapping->n_transfers, 0);
    mapping_destroy(mapping);
    apply(plain);
}

TEST(quantized_elements_go_to_targets_with_strides)
{
    apply("[{\"dequantize\": {\"tensors\": [\"w\"], \"scale\": \"{tensor}_s\", \"block\": [2, 2], \"dtype\": \"F32\"}}]");
    begin(512);
    into("w", ARRAY(F32, 2, 9, DIMS(4, 4), STRIDES(4, 16)));
    writes_what_a_packed_load_has();
    request.tensors[0] = ARRAY(F32, 2, 400, DIMS(4, 4), STRIDES(-100, 12));
    writes_what_a_packed_load_has();
    take(1, 3, 1, INT64_MAX);
    request.tensors[0] = ARRAY(F32, 2, 400, DIMS(2, 3), STRIDES(-100, 12));
    writes_what_a_packed_load_has();
    apply(plain);
}

TEST(joined_and_shuffled_tensors_go_to_targets_with_strides)
{
    apply("[{\"concat\": {\"from\": [\"k\", \"v\"], \"to\": \"kv\", \"dim\": 0}}, {\"permute_rope\": {\"tensors\": [\"q\"], "
          "\"heads\": 2, \"to\": \"halves\"}}]");
    begin(512);
    into("kv", ARRAY(U8, 2, 9, DIMS(8, 6), STRIDES(7, 1)));
    into("q", ARRAY(U8, 2, 300, DIMS(8, 6), STRIDES(-1, 9)));
    writes_what_a_packed_load_has();
    take(1, 7, 2, 5);
    request.tensors[1] = ARRAY(U8, 2, 300, DIMS(6, 3), STRIDES(-1, 9));
    writes_what_a_packed_load_has();
    apply(plain);
}

/* --- refused ---------------------------------------------------------------------------------------------------------- */

TEST(a_target_that_does_not_fit_is_refused_and_named)
{
    begin(256);
    into("k", ARRAY(I8, 2, 0, DIMS(4, 6), STRIDES(6, 1)));
    refuses("TARGET_DTYPE", "target k ");
    request.tensors[0] = ARRAY(U8, 2, 0, DIMS(6, 4), STRIDES(4, 1));
    refuses("TARGET_SHAPE", "target k has shape [6, 4], the view's tensor has [4, 6]");
    request.tensors[0] = ARRAY(U8, 1, 0, DIMS(24), STRIDES(1));
    refuses("TARGET_SHAPE", "target k ");
    request.tensors[0] = ARRAY(U8, 2, 233, DIMS(4, 6), STRIDES(6, 1));
    refuses("TARGET_OUTSIDE", "target k ");
    request.tensors[0] = ARRAY(U8, 2, 0, DIMS(4, 6), STRIDES(0, 1));
    refuses("TARGET_REPEATS", "target k ");
    request.tensors[0] = ARRAY(U8, 2, 0, DIMS(4, 6), STRIDES(5, 1));
    refuses("TARGET_REPEATS", "target k ");
    request.tensors[0] = ARRAY(U8, 2, 0, DIMS(4, 6), STRIDES(6, 1));
    into("v", ARRAY(U8, 2, 23, DIMS(4, 6), STRIDES(6, 1)));
    refuses("TARGETS_OVERLAP", "targets k and v ");
    request.tensors[1].offset = 24;
    cover("kv", ARRAY(U8, 1, 0, DIMS(49), STRIDES(1)));
    refuses("NOT_COVERED", "kv[48:49] ");
    request.covers[0].offset = 250;
    refuses("TARGET_OUTSIDE", "target kv ");
}

TEST(every_tensor_has_one_target)
{
    begin(256);
    into("k", ARRAY(U8, 2, 0, DIMS(4, 6), STRIDES(6, 1)));
    into("v", ARRAY(U8, 2, 100, DIMS(4, 6), STRIDES(6, 1)));
    request.list.n_tensors = 1;
    assert_null(build_items(2));
    assert_string_equal(request.error.reason, "TARGET_MISSING");
    assert_non_null(strstr(request.error.message, "tensor v "));
    request.list.n_tensors = 2;
    assert_null(build_items(1));
    assert_string_equal(request.error.reason, "TARGET_COUNT");
    struct view_spec view = {.whole = true, .align_bytes = 64, .targets = &request.list};
    assert_null(mapping_build(&view, variant_scene.artifact, &request.error));
    assert_string_equal(request.error.reason, "TARGET_MISSING");
}

TEST(a_fill_has_a_value_of_its_type)
{
    begin(256);
    into("k", ARRAY(U8, 2, 0, DIMS(4, 6), STRIDES(6, 1)));
    fill("pad", ARRAY(F32, 1, 100, DIMS(5), STRIDES(4)), "\0\0", 2);
    refuses("FILL_VALUE", "fill pad");
    request.fills[0].target.dtype = DTYPE_F4;
    request.fills[0].target.dims = DIMS(8);
    refuses("SUB_BYTE_TARGET", "fill pad");
    request.fills[0].target.dtype = DTYPE_F16;
    request.fills[0].target.offset = 20;
    refuses("TARGETS_OVERLAP", "k and pad ");
}

TESTS_IN(create, variant_scene_end)
