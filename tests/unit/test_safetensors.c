/* Every rule of the header, broken one at a time, and every liberty the format allows. */
#include "tests/support/unit.h"

#include "resolve/safetensors.h"

struct broken {
    const char *header;
    uint64_t data_bytes;
    const char *reason, *named; /* named NULL = no tensor to name */
};

#define X(dtype, shape, offsets) "{\"x\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define U8(offsets) "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" offsets "}"
#define GOOD X("U8", "[4]", "[0,4]")
#define RANK_65                                                                                                             \
    "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1," \
    "1,1,1,1,1,1,4]"
#define BAD_JSON "INVALID_HEADER_DESERIALIZATION"

static const struct broken broken[] = {
    {"", 0, BAD_JSON, NULL},
    {"this is not JSON", 0, BAD_JSON, NULL},
    {"[]", 0, BAD_JSON, NULL},
    {"\"x\"", 0, BAD_JSON, NULL},
    {"\xef\xbb\xbf{}", 0, BAD_JSON, NULL},
    {GOOD "}", 4, BAD_JSON, NULL},
    {"{\"\xff\xfe\":" U8("[0,4]") "}", 4, "INVALID_HEADER", NULL},
    {"{\"x\":[1]}", 4, BAD_JSON, "x"},
    {"{\"x\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, BAD_JSON, "x"},
    {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, BAD_JSON, "x"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, BAD_JSON, "x"},
    {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, BAD_JSON, "x"},
    {X("U9", "[4]", "[0,4]"), 4, "UNKNOWN_DTYPE", "x"},
    {X("u8", "[4]", "[0,4]"), 4, "UNKNOWN_DTYPE", "x"},
    {X("U8", "[-4]", "[0,4]"), 4, BAD_JSON, "x"},
    {X("U8", "[4.0]", "[0,4]"), 4, BAD_JSON, "x"},
    {X("U8", "4", "[0,4]"), 4, BAD_JSON, "x"},
    {X("U8", RANK_65, "[0,4]"), 4, "RANK_TOO_LARGE", "x"},
    {X("U8", "[4]", "[0,2,4]"), 4, BAD_JSON, "x"},
    {X("U8", "[4]", "[0]"), 4, BAD_JSON, "x"},
    {X("U8", "[4]", "[-4,0]"), 4, BAD_JSON, "x"},
    {X("U8", "[4]", "[4,0]"), 4, "INVALID_OFFSET", "x"},
    {X("U8", "[4]", "[1,5]"), 5, "INVALID_OFFSET", "x"},
    {"{\"a\":" U8("[0,4]") ",\"b\":" U8("[5,9]") "}", 9, "INVALID_OFFSET", "b"},
    {"{\"a\":" U8("[0,4]") ",\"b\":" U8("[3,7]") "}", 7, "INVALID_OFFSET", "b"},
    {"{\"a\":" U8("[0,4]") ",\"b\":" U8("[0,4]") "}", 4, "INVALID_OFFSET", "b"},
    {X("F32", "[2]", "[0,4]"), 4, "TENSOR_INVALID_INFO", "x"},
    {X("F32", "[1]", "[0,8]"), 8, "TENSOR_INVALID_INFO", "x"},
    {X("U8", "[4294967296,4294967296]", "[0,0]"), 0, "VALIDATION_OVERFLOW", "x"},
    {X("U8", "[4294967296,4294967296,0]", "[0,0]"), 0, "VALIDATION_OVERFLOW", "x"},
    {X("F64", "[4611686018427387904]", "[0,0]"), 0, "VALIDATION_OVERFLOW", "x"},
    {X("F4", "[3]", "[0,1]"), 1, "MISALIGNED_SLICE", "x"},
    {X("F6_E2M3", "[3]", "[0,2]"), 2, "MISALIGNED_SLICE", "x"},
    {GOOD, 5, "METADATA_INCOMPLETE_BUFFER", NULL},
    {GOOD, 3, "METADATA_INCOMPLETE_BUFFER", NULL},
    {GOOD, 0, "METADATA_INCOMPLETE_BUFFER", NULL},
    {"{}", 1, "METADATA_INCOMPLETE_BUFFER", NULL},
    {"{\"__metadata__\":{\"k\":1}}", 0, BAD_JSON, NULL},
    {"{\"__metadata__\":{\"k\":{\"a\":\"b\"}}}", 0, BAD_JSON, NULL},
    {"{\"__metadata__\":[\"k\"]}", 0, BAD_JSON, NULL},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, BAD_JSON, NULL},
    {"{\"__metadata__\":null,\"__metadata__\":{}}", 0, BAD_JSON, NULL},
    {"{\"x\":" U8("[0,4]") ",\"x\":" U8("[4,8]") "}", 8, "DUPLICATE_TENSOR", "x"},
    {"{\"x\":" U8("[0,4]") ",\"\\u0078\":" U8("[4,8]") "}", 8, "DUPLICATE_TENSOR", "x"},
    {"{\"a\\u0000b\":" U8("[0,4]") "}", 4, "NUL_IN_NAME", "a\\x00b"},
};

static struct part_header *parse(const char *header, uint64_t data_bytes, struct error *error)
{
    uint64_t length = strlen(header);
    return safetensors_parse(header, length, 8 + length + data_bytes, error);
}

TEST(every_broken_rule_is_refused_with_its_reason)
{
    struct error error;
    char named[64];
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (parse(broken[i].header, broken[i].data_bytes, &error))
            fail_msg("accepted: %s", broken[i].header);
        if (strcmp(error.reason, broken[i].reason) != 0)
            fail_msg("%s: reason %s (%s)", broken[i].header, error.reason, error.message);
        bool unimplemented = strcmp(error.reason, "UNKNOWN_DTYPE") == 0 || strcmp(error.reason, "RANK_TOO_LARGE") == 0 ||
                             strcmp(error.reason, "NUL_IN_NAME") == 0;
        assert_int_equal(error.code, unimplemented ? ERROR_UNIMPLEMENTED : ERROR_DATA_LOSS);
        snprintf(named, sizeof named, "tensor %s:", broken[i].named ? broken[i].named : "");
        if (broken[i].named && !strstr(error.message, named))
            fail_msg("%s: the message names no tensor %s: %s", broken[i].header, broken[i].named, error.message);
    }
}

TEST(unusual_but_legal_headers_are_read)
{
    static const struct {
        const char *header;
        uint64_t data_bytes;
        size_t n_tensors;
    } legal[] = {
        {"{}", 0, 0},
        {" \n{} \t\r\n ", 0, 0},
        {"   " GOOD "  \n", 4, 1},
        {"{\"__metadata__\":{\"format\":\"pt\",\"\xc3\xa9\":\"\\u0000\\n\"}}", 0, 0},
        {"{\"__metadata__\":null}", 0, 0},
        {"{\"x\":{\"data_offsets\":[0,4],\"extra\":[{}],\"shape\":[4],\"dtype\":\"U8\"}}", 4, 1},
        {X("U8", "[]", "[0,1]"), 1, 1},
        {X("F32", "[3,0]", "[0,0]"), 0, 1},
        {X("F32", "[1099511627776,0]", "[0,0]"), 0, 1},
        {X("F4", "[3,2]", "[0,3]"), 3, 1},
        {X("F6_E3M2", "[4]", "[0,3]"), 3, 1},
        {"{\"\":" U8("[0,4]") "}", 4, 1},
    };
    struct error error;
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        struct part_header *header = parse(legal[i].header, legal[i].data_bytes, &error);
        if (!header)
            fail_msg("refused: %s: %s", legal[i].header, error.message);
        assert_int_equal(header->n_tensors, legal[i].n_tensors);
        part_header_unref(header);
    }
}

TEST(what_a_file_says_of_itself_is_kept)
{
    struct error error;
    struct part_header *header =
        parse("{\"__metadata__\":{\"format\":\"pt\",\"a\":\"1\",\"a\":\"\\u0000\\n\"},\"x\":" U8("[0,4]") "}", 4, &error);
    assert_non_null(header);
    assert_int_equal(header->n_metadata, 3);
    assert_string_equal(header->metadata[0].key, "format");
    assert_string_equal(header->metadata[0].value, "pt");
    const struct part_metadata *last = part_header_find_metadata(header, "a");
    assert_ptr_equal(last, &header->metadata[2]);
    assert_int_equal(last->value_length, 2);
    assert_memory_equal(last->value, "\0\n", 3);
    assert_null(part_header_find_metadata(header, "b"));
    part_header_unref(header);
    header = parse("{\"__metadata__\":null,\"x\":" U8("[0,4]") "}", 4, &error);
    assert_int_equal(header->n_metadata, 0);
    assert_false(header->has_metadata);
    part_header_unref(header);
    header = parse("{\"__metadata__\":{},\"x\":" U8("[0,4]") "}", 4, &error);
    assert_true(header->has_metadata);
    part_header_unref(header);
}

TEST(tensors_come_in_the_order_of_their_bytes)
{
    static const char text[] =
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"e2\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[4,4]},"
        "\"e1\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[4,4]},\"a\\u0001z\":" U8("[0,4]") "}";
    struct error error;
    struct part_header *header = parse(text, 16, &error);
    assert_non_null(header);
    assert_int_equal(header->data_offset, 8 + strlen(text));
    assert_int_equal(header->file_bytes, header->data_offset + 16);
    static const char *const names[] = {"a\1z", "e2", "e1", "b"}; /* those without bytes as the header lists them */
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(header->tensors[i].name, names[i]);
    assert_int_equal(header->tensors[0].name_length, 3);
    const struct stored_tensor *b = &header->tensors[3];
    assert_true(b->dtype == DTYPE_BF16 && b->rank == 2 && b->shape[0] == 2 && b->shape[1] == 3);
    assert_int_equal(b->offset, header->data_offset + 4);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(header->tensors[2].shape[1], 7);
    part_header_ref(header);
    part_header_unref(header);
    assert_string_equal(header->tensors[3].name, "b"); /* the first reference still holds it */
    part_header_unref(header);
    part_header_unref(NULL);
}

/* What is written as an entry before is not parsed, and must come to the same. */
TEST(each_entry_may_be_written_otherwise)
{
    static const struct {
        const char *form; /* of begin, end */
        enum dtype dtype;
        uint32_t rank;
    } forms[] = {
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%d,%d]}", DTYPE_U8, 1},
        {"{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[%d,%d]}", DTYPE_I8, 1},
        {"{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%d,%d]}", DTYPE_F32, 0},
        {"{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[%d,%d]}", DTYPE_U8, 2},
        {"{\"shape\":[2,1],\"dtype\":\"BF16\",\"data_offsets\":[%d,%d]}", DTYPE_BF16, 2},
        {"{\"data_offsets\":[%d,%d],\"dtype\":\"F16\",\"shape\":[1,2]}", DTYPE_F16, 2},
        {" {\"dtype\": \"F16\", \"x\": 3, \"shape\": [1, 2], \"data_offsets\": [%d, %d]}", DTYPE_F16, 2},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%d,%d],\"note\":\"12\"}", DTYPE_U8, 1},
    };
    enum { N_FORMS = sizeof forms / sizeof *forms, N_TENSORS = 40 };
    char text[8192];
    int chosen[N_TENSORS];
    struct error error;
    srand(3);
    for (int round = 0; round < 300; round++) {
        int used = sprintf(text, "{");
        for (int i = 0, form = 0; i < N_TENSORS; i++) {
            form = chosen[i] = rand() % 2 ? form : rand() % N_FORMS;
            used += sprintf(text + used, "%s\"t%d\":", i ? "," : "", i);
            used += sprintf(text + used, forms[form].form, 4 * i, 4 * i + 4);
        }
        used += sprintf(text + used, "}");
        struct part_header *header = safetensors_parse(text, (uint64_t)used, 8 + (uint64_t)used + 4 * N_TENSORS, &error);
        if (!header)
            fail_msg("%s: %s", error.message, text);
        for (int i = 0; i < N_TENSORS; i++) {
            const struct stored_tensor *tensor = &header->tensors[i];
            uint64_t elements = 1;
            for (uint32_t d = 0; d < tensor->rank; d++)
                elements *= tensor->shape[d];
            assert_true(tensor->dtype == forms[chosen[i]].dtype && tensor->rank == forms[chosen[i]].rank);
            assert_true(tensor->bytes == 4 && elements * dtype_bits(tensor->dtype) == 32);
            assert_true(tensor->offset == header->data_offset + 4 * (uint64_t)i);
        }
        part_header_unref(header);
    }
}

TEST(the_length_field_is_held_against_limit_and_file)
{
    const uint64_t limit = SAFETENSORS_MAX_HEADER_BYTES;
    const struct {
        uint64_t length, file_bytes;
        const char *reason;
    } cases[] = {
        {2, 10, NULL},
        {0, 8, NULL},
        {3, 10, "INVALID_HEADER_LENGTH"},
        {limit, limit + 8, NULL},
        {limit, limit + 7, "INVALID_HEADER_LENGTH"},
        {limit + 1, limit + 9, "HEADER_TOO_LARGE"},
        {(uint64_t)1 << 63, 100, "HEADER_TOO_LARGE"},
        {UINT64_MAX, 100, "HEADER_TOO_LARGE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char first[8];
        uint64_t json_bytes;
        struct error error;
        for (int b = 0; b < 8; b++)
            first[b] = (unsigned char)(cases[i].length >> 8 * b);
        int failed = safetensors_header_length(first, cases[i].file_bytes, &json_bytes, &error);
        assert_int_equal(failed, cases[i].reason ? -1 : 0);
        if (failed)
            assert_string_equal(error.reason, cases[i].reason);
        else
            assert_int_equal(json_bytes, cases[i].length);
    }
}

TEST(the_largest_rank_is_allowed)
{
    char header[512] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1";
    struct error error;
    for (int i = 1; i < TENSOR_MAX_RANK; i++)
        strcat(header, ",1");
    strcat(header, "],\"data_offsets\":[0,1]}}");
    struct part_header *parsed = parse(header, 1, &error);
    assert_non_null(parsed);
    assert_int_equal(parsed->tensors[0].rank, TENSOR_MAX_RANK);
    part_header_unref(parsed);
}

TEST(what_is_no_safetensors_file_is_called_by_its_name)
{
    static const char *const strangers[][2] = {{"version https://git-lfs", "git lfs pull"},
                                               {"PK\3\4\24\0\0\1", "torch.save"},
                                               {"GGUF\3\0\0\1", "GGUF"},
                                               {"\x80\x02\x8a\nl\xfc\x9cl", "pickle"},
                                               {"\x1f\x8b\b\bABCD", "gzip"},
                                               {"{\n  \"metadata\": {", "JSON document"},
                                               {"{\"weight_map\": {", "JSON document"},
                                               {"<html><head>", "web page"},
                                               {"<!doctype html>", "web page"},
                                               {"<!DOCTYPE html>", "web page"}};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        struct error error;
        uint64_t length;
        assert_int_equal(safetensors_header_length((const unsigned char *)strangers[i][0], 1000, &length, &error), -1);
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        assert_string_equal(error.reason, "NOT_SAFETENSORS");
        assert_non_null(strstr(error.message, strangers[i][1]));
    }
    struct error error;
    uint64_t length;
    assert_int_equal(safetensors_header_length((const unsigned char *)"\x80\x02\0\0\0\0\0\0", 100, &length, &error), -1);
    assert_string_equal(error.reason, "INVALID_HEADER_LENGTH"); /* 640 bytes, of which the rest is missing */
}
