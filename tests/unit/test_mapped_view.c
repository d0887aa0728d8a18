/* Tensors as strided views of the files: every element of a view is where its strides say, or the view is refused. */
#include "tests/support/unit.h"

#include "resolve/mapped_view.h"
#include "tests/support/source_bytes.h"
#include "tests/support/variant_scene.h"

static const char header[] = "{\"m\":{\"dtype\":\"U16\",\"shape\":[6,8],\"data_offsets\":[0,96]},"
                             "\"n\":{\"dtype\":\"U16\",\"shape\":[2,8],\"data_offsets\":[96,128]},"
                             "\"s\":{\"dtype\":\"U64\",\"shape\":[],\"data_offsets\":[128,136]},"
                             "\"none\":{\"dtype\":\"F32\",\"shape\":[3,0,5],\"data_offsets\":[136,136]},"
                             "\"cube\":{\"dtype\":\"U8\",\"shape\":[4,6,5],\"data_offsets\":[136,256]},"
                             "\"f4\":{\"dtype\":\"F4\",\"shape\":[4,8],\"data_offsets\":[256,272]},"
                             "\"f\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[272,304]}}";
enum { DATA_BYTES = 304, FILE_BYTES = 2048 };

static unsigned char any_byte(uint64_t i)
{
    return (unsigned char)(i * 37 + i / 7);
}

static void apply(const char *recipe)
{
    variant_scene_put(header, DATA_BYTES, any_byte);
    if (variant_scene_apply(recipe) != 0)
        fail_msg("%s", variant_scene.error.message);
}

/* Element by element against the replica that the transfers make. */
static void compare_tensor(const struct mapping *mapping, const struct mapped_view *view, size_t i)
{
    static unsigned char file[FILE_BYTES];
    const struct view_tensor *tensor = &mapping->tensors[i];
    const struct mapped_tensor *mapped = &view->tensors[i];
    struct source *source = mapping->artifact->source;
    uint64_t bytes = dtype_bits(tensor->record->dtype) / 8, size = source->files[0].size_bytes;
    struct error error;
    assert_true(size <= sizeof file);
    assert_int_equal(source_read_bytes(source, 0, 0, file, size, &error), 0);
    for (uint64_t at = 0; at < tensor->bytes; at += bytes) {
        uint64_t place = mapped->offset, index = at / bytes;
        for (uint32_t d = tensor->record->rank; d-- > 0; index /= tensor->shape[d])
            place += index % tensor->shape[d] * mapped->strides[d];
        assert_true(place + bytes <= size);
        assert_memory_equal(file + place, variant_scene.replica + tensor->offset + at, bytes);
    }
}

static void is_viewed(void)
{
    const struct mapping *mapping = variant_scene.mapping;
    struct arena arena = {0};
    struct error error;
    const struct mapped_view *view = mapped_view_build(mapping, &arena, &error);
    if (!view)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < mapping->n_tensors; i++)
        if (dtype_bits(mapping->tensors[i].record->dtype) % 8 == 0)
            compare_tensor(mapping, view, i);
    arena_fini(&arena);
}

static void is_refused(const char *reason, const char *named)
{
    struct arena arena = {0};
    struct error error;
    assert_null(mapped_view_build(variant_scene.mapping, &arena, &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.reason, reason);
    assert_non_null(strstr(error.message, named));
    arena_fini(&arena);
}

static void load(const char *recipe)
{
    apply(recipe);
    if (variant_scene_load() != 0)
        fail_msg("%s", variant_scene.error.message);
}

TEST(whole_tensors_are_views)
{
    load("[{\"select\":[\"*\"]}]");
    is_viewed();
}

TEST(every_slice_of_a_cube_is_a_view)
{
    apply("[{\"select\":[\"*\"]}]");
    for (int64_t a = 0; a < 4; a++)
        for (int64_t b = 0; b < 6; b += 2)
            for (int64_t c = 0; c < 5; c++) {
                const struct slice slices[] = {{a / 2, a + 1}, {b, 6 - b / 4}, {c, c + 1 + c % 2}};
                assert_int_equal(variant_scene_slice("cube", slices, 3), 0);
                is_viewed();
            }
}

static const struct mapped_view *view_slice(const char *tensor, const struct slice *slices, struct arena *arena)
{
    struct error error;
    apply("[{\"select\":[\"*\"]}]");
    assert_int_equal(variant_scene_slice(tensor, slices, 2), 0);
    const struct mapped_view *view = mapped_view_build(variant_scene.mapping, arena, &error);
    if (!view)
        fail_msg("%s", error.message);
    return view;
}

TEST(columns_have_the_stride_of_the_stored_row)
{
    const struct slice slices[] = {{1, 5}, {2, 7}};
    struct arena arena = {0};
    const struct mapped_view *view = view_slice("m", slices, &arena);
    assert_int_equal(view->n_files, 1);
    assert_int_equal(view->tensors[0].strides[0], 16);
    assert_int_equal(view->tensors[0].strides[1], 2);
    assert_int_equal(view->tensors[0].offset, variant_scene.mapping->transfers[0].src_offset);
    arena_fini(&arena);
    is_viewed();
}

TEST(a_view_without_bytes_names_no_file)
{
    const struct slice slices[] = {{2, 2}, {0, 8}};
    struct arena arena = {0};
    const struct mapped_view *view = view_slice("m", slices, &arena);
    assert_int_equal(view->n_files, 0);
    arena_fini(&arena);
}

TEST(packed_types_have_no_strides)
{
    const struct slice slices[] = {{1, 3}, {0, 8}};
    struct arena arena = {0};
    const struct mapped_view *view = view_slice("f4", slices, &arena);
    assert_int_equal(view->tensors[0].strides[0] | view->tensors[0].strides[1], 0);
    assert_int_equal(view->tensors[0].offset, variant_scene.mapping->transfers[0].src_offset);
    arena_fini(&arena);
}

TEST(variants_that_only_move_elements_are_views)
{
    static const char *const recipes[] = {
        "[{\"transpose\":{\"tensors\":[\"m\"],\"dims\":[1,0]}}]",
        "[{\"transpose\":{\"tensors\":[\"cube\"],\"dims\":[2,0,1]}}]",
        "[{\"rename\":{\"m\":\"k\"}}]",
        "[{\"reshape\":{\"tensors\":[\"cube\"],\"shape\":[2,2,2,3,5]}}]",
        "[{\"select\":[\"m\",\"n\"]},{\"slice\":{\"tensors\":[\"*\"],\"slices\":[null,[1,5]]}},"
        "{\"concat\":{\"from\":[\"m\",\"n\"],\"to\":\"mn\",\"dim\":0}}]", /* they lie one behind the other */
    };
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        load(recipes[i]);
        is_viewed();
    }
}

TEST(what_is_computed_is_refused_by_name)
{
    load("[{\"cast\":{\"tensors\":[\"f\"],\"dtype\":\"BF16\"}}]");
    is_refused("TENSOR_COMPUTED", "f ");
}

TEST(what_lies_at_no_one_distance_is_refused_by_name)
{
    load("[{\"concat\":{\"from\":[\"n\",\"m\"],\"to\":\"backwards\",\"dim\":0}}]");
    is_refused("TENSOR_NOT_STRIDED", "backwards");
    load("[{\"slice\":{\"tensors\":[\"m\"],\"slices\":[[0,2],null]}},"
         "{\"concat\":{\"from\":[\"m\",\"n\"],\"to\":\"apart\",\"dim\":0}}]");
    is_refused("TENSOR_NOT_STRIDED", "apart");
}

/* Rows of the file are 200 bytes apart; ten pieces of ten bytes go over the edge of one, each beginning where it should. */
TEST(rows_that_leave_their_dimension_together_are_refused)
{
    uint64_t shape[] = {4, 95};
    struct source_file file = {.name = "f", .size_bytes = 1000};
    struct source source = {.files = &file, .n_files = 1};
    struct artifact artifact = {.source = &source, .reference = "memory:m"};
    struct tensor_record record = {
        .name = "w", .name_length = 1, .dtype = DTYPE_U8, .rank = 2, .shape = shape, .bytes = 380};
    struct view_tensor tensor = {.record = &record, .shape = shape, .bytes = 380};
    struct transfer transfers[] = {
        {.src_offset = 0, .dst_offset = 0, .row_bytes = 95, .n_rows = 1},
        {.src_offset = 200, .dst_offset = 95, .row_bytes = 95, .n_rows = 1},
        {.src_offset = 400, .dst_offset = 190, .row_bytes = 10, .n_rows = 10, .src_stride = 10, .dst_stride = 10},
        {.src_offset = 605, .dst_offset = 290, .row_bytes = 90, .n_rows = 1}};
    size_t file_first[] = {0, 4};
    struct mapping mapping = {.artifact = &artifact,
                              .tensors = &tensor,
                              .n_tensors = 1,
                              .transfers = transfers,
                              .n_transfers = 4,
                              .file_first = file_first};
    struct arena arena = {0};
    struct error error;
    assert_null(mapped_view_build(&mapping, &arena, &error));
    assert_string_equal(error.reason, "TENSOR_NOT_STRIDED");
    transfers[2] = (struct transfer){.src_offset = 400, .dst_offset = 190, .row_bytes = 95, .n_rows = 1};
    transfers[3] = (struct transfer){.src_offset = 600, .dst_offset = 285, .row_bytes = 95, .n_rows = 1};
    assert_non_null(mapped_view_build(&mapping, &arena, &error));
    arena_fini(&arena);
}

TESTS_IN(variant_scene_begin, variant_scene_end)
