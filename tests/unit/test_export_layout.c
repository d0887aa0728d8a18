/* Which files an export has and what their headers and documents say, for all three formats. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "export/export_layout.h"

static struct error error;
static const uint64_t shape_a[] = {6, 2}, shape_b[] = {5}, shape_none[] = {0, 4};
static const struct tensor_record record_a = {
    .name = "a.w", .name_length = 3, .shape = shape_a, .bytes = 24, .dtype = DTYPE_BF16, .rank = 2};
static const struct tensor_record record_b = {
    .name = "b", .name_length = 1, .shape = shape_b, .bytes = 20, .dtype = DTYPE_F32, .rank = 1};
static const struct tensor_record record_scalar = {.name = "s", .name_length = 1, .bytes = 8, .dtype = DTYPE_F64};
static const struct tensor_record record_none = {
    .name = "none", .name_length = 4, .shape = shape_none, .dtype = DTYPE_BF16, .rank = 2};

static struct export_tensor whole(const struct tensor_record *record, int split)
{
    return (struct export_tensor){.record = record, .shape = record->shape, .bytes = record->bytes, .split = split};
}

static struct export_layout *build(const struct export_layout_options *options)
{
    const struct export_tensor tensors[] = {whole(&record_a, 0), whole(&record_b, 0), whole(&record_none, EXPORT_NOT_SPLIT),
                                            whole(&record_scalar, EXPORT_NOT_SPLIT)};
    return export_layout_build(tensors, 4, options, &error);
}

static void assert_header(const struct export_layout *layout, uint32_t file, const char *json)
{
    size_t padded = (strlen(json) + 7) / 8 * 8;
    char *head = export_layout_head(layout, file);
    assert_int_equal(layout->files[file].head_bytes, 8 + padded);
    assert_int_equal((unsigned char)head[0], padded & 255);
    assert_memory_equal(head + 8, json, strlen(json));
    for (size_t i = strlen(json); i < padded; i++)
        assert_int_equal(head[8 + i], ' ');
    free(head);
}

static int append_text(void *data, const char *text, size_t length, struct error *ignored)
{
    (void)ignored;
    strncat(data, text, length);
    return 0;
}

static const char *document(const struct export_layout *layout)
{
    static char text[10000];
    const struct export_sink sink = {append_text, text};
    text[0] = '\0';
    assert_int_equal(export_layout_write_document(layout, &sink, &error), 0);
    return text;
}

TEST(one_file_is_in_the_official_order)
{
    const struct export_pair pair = {"format", "pt", 6, 2};
    const struct export_layout_options options = {.format = EXPORT_HF, .rank = -1, .metadata = &pair, .n_metadata = 1};
    struct export_layout *layout = build(&options);
    assert_int_equal(layout->n_files, 1);
    assert_string_equal(layout->files[0].name, "model.safetensors");
    assert_null(layout->document_name);
    assert_header(layout, 0,
                  "{\"__metadata__\":{\"format\":\"pt\"},\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[8,28]},"
                  "\"a.w\":{\"dtype\":\"BF16\",\"shape\":[6,2],\"data_offsets\":[28,52]},"
                  "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[52,52]}}");
    assert_int_equal(layout->files[0].file_bytes, layout->files[0].head_bytes + 52);
    export_layout_destroy(layout);
}

TEST(files_are_filled_in_order_up_to_the_limit)
{
    const struct export_layout_options options = {.format = EXPORT_HF, .rank = -1, .max_file_bytes = 28};
    struct export_layout *layout = build(&options);
    assert_int_equal(layout->n_files, 2);
    assert_string_equal(layout->files[1].name, "model-00002-of-00002.safetensors");
    assert_int_equal(layout->parts[1].file, 0); /* 8 + 20 are just 28 */
    assert_int_equal(layout->parts[2].file, 1);
    assert_string_equal(layout->document_name, "model.safetensors.index.json");
    assert_string_equal(document(layout), "{\n  \"metadata\": {\n    \"total_size\": 52\n  },\n  \"weight_map\": {\n"
                                          "    \"a.w\": \"model-00002-of-00002.safetensors\",\n"
                                          "    \"b\": \"model-00001-of-00002.safetensors\",\n"
                                          "    \"none\": \"model-00002-of-00002.safetensors\",\n"
                                          "    \"s\": \"model-00001-of-00002.safetensors\"\n  }\n}");
    export_layout_destroy(layout);
}

TEST(ranks_have_ceil_sized_chunks_and_shared_tensors)
{
    const struct export_layout_options options = {
        .format = EXPORT_TOPOLOGY, .rank = -1, .world_size = 4, .uneven = UNEVEN_CEIL};
    struct export_layout *layout = build(&options);
    assert_int_equal(layout->n_files, 4);
    assert_header(layout, 3,
                  "{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
                  "\"a.w\":{\"dtype\":\"BF16\",\"shape\":[0,2],\"data_offsets\":[8,8]},"
                  "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[8,8]}}");
    const char *text = document(layout);
    assert_string_equal(layout->document_name, "topology.json");
    assert_non_null(strstr(text,
                           "{\n  \"tensors\": {\n    \"a.w\": {\n      \"type\": \"Distributed\",\n      \"shape\": [\n"
                           "        6,\n        2\n      ],\n      \"dtype\": \"BF16\",\n      \"chunks\": [\n"
                           "        {\n          \"offsets\": [\n            0,\n            0\n          ],\n"));
    assert_non_null(strstr(text, "\"type\": \"Shared\",\n      \"shape\": [],\n      \"dtype\": \"F64\",\n"
                                 "      \"filename_indices\": [\n        0,\n        1,\n        2,\n        3\n      ]\n"));
    assert_non_null(strstr(text, "  \"world_size\": 4\n}"));
    export_layout_destroy(layout);
}

TEST(a_dimension_that_does_not_divide_is_refused_or_kept_whole)
{
    struct export_layout_options options = {.format = EXPORT_TOPOLOGY, .rank = -1, .world_size = 4};
    assert_null(build(&options));
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "'b': dimension 0 (5)"));
    options.uneven = UNEVEN_SHARE;
    struct export_layout *layout = build(&options);
    assert_null(strstr(document(layout), "Distributed"));
    export_layout_destroy(layout);
}

TEST(more_ranks_than_elements_leave_the_last_ones_empty)
{
    const struct export_layout_options options = {
        .format = EXPORT_TOPOLOGY, .rank = 4095, .world_size = EXPORT_MAX_WORLD_SIZE, .uneven = UNEVEN_CEIL};
    struct export_layout *layout = build(&options);
    assert_int_equal(layout->n_files, EXPORT_MAX_WORLD_SIZE);
    assert_false(layout->files[0].is_written);
    assert_true(layout->files[4095].is_written);
    assert_int_equal(layout->parts[layout->first_part[2] + 5].bytes, 4); /* row 5 of a.w */
    assert_int_equal(layout->parts[layout->first_part[2] + 6].bytes, 0);
    assert_int_equal(export_layout_bytes(layout), layout->files[4095].head_bytes + 8);
    export_layout_destroy(layout);
}

TEST(shards_say_where_their_arrays_begin)
{
    const struct export_layout_options options = {.format = EXPORT_DCP, .rank = -1, .world_size = 2, .uneven = UNEVEN_CEIL};
    struct export_layout *layout = build(&options);
    assert_string_equal(layout->files[1].name, "shard-00002-model-00001-of-00001.safetensors");
    assert_header(
        layout, 1,
        "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"b\\\":{\\\"saved_offsets\\\":[3]},"
        "\\\"a.w\\\":{\\\"saved_offsets\\\":[3,0]},\\\"none\\\":{\\\"saved_offsets\\\":[0,0]}}\","
        "\"DCP_VERSION\":\"1.0\",\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"a.w\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[8,20]},"
        "\"none\":{\"dtype\":\"BF16\",\"shape\":[0,4],\"data_offsets\":[20,20]}}");
    export_layout_destroy(layout);
}

static int parse_mapping(const char *text, const char **file_of)
{
    const struct export_tensor tensors[] = {whole(&record_a, 0), whole(&record_b, 0)};
    static struct arena arena;
    file_of[0] = file_of[1] = NULL;
    arena_fini(&arena);
    return export_mapping_parse(text, strlen(text), tensors, 2, &arena, file_of, &error);
}

TEST(a_mapping_names_each_tensor_once)
{
    const char *file_of[2];
    assert_int_equal(
        parse_mapping("{\"metadata\":{},\"weight_map\":{\"b\":\"x.safetensors\",\"a.w\":\"y.safetensors\"}}", file_of), 0);
    assert_string_equal(file_of[0], "y.safetensors");
    static const char *const wrong[][2] = {
        {"{\"weight_map\":{\"b\":\"x.safetensors\"}}", "'a.w' is missing"},
        {"{\"weight_map\":{\"b\":\"x.safetensors\",\"b\":\"x.safetensors\"}}", "'b' occurs twice"},
        {"{\"weight_map\":{\"c\":\"x.safetensors\"}}", "'c' is not among"},
        {"{\"weight_map\":{\"b\":\"../x.safetensors\"}}", "../x"},
        {"{\"weight_map\":{\"b\":\"x.json\"}}", "x.json"},
        {"{\"weight_map\":{\"b\":\".safetensors\"}}", "plain names"},
        {"{\"weight_map\":{\"b\":7}}", "'b' is mapped to something"},
        {"{\"weight_map\":{}", "at byte"},
        {"{}", "no weight_map"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(parse_mapping(wrong[i][0], file_of), -1);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, wrong[i][1]));
    }
}

TEST(a_mapping_takes_names_of_255_bytes_and_none_of_256)
{
    for (int over = 0; over < 2; over++) {
        char name[300] = {0}, text[700];
        const char *file_of[2];
        memset(name, 'x', (size_t)(255 + over - 12));
        snprintf(text, sizeof text, "{\"weight_map\":{\"b\":\"%s.safetensors\",\"a.w\":\"%s.safetensors\"}}", name, name);
        assert_int_equal(parse_mapping(text, file_of), over ? -1 : 0);
    }
    (void)state;
}
