/* topology.json as bytes: what is read, and what is malformed. Whether parts add up: test_topology_check.c. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/topology.h"

#define CHUNK(offset, n, file) "{\"offsets\":[" offset ",0],\"shape\":[" n ",3],\"filename_index\":" file "}"
#define W                                                                                                                   \
    "\"w\":{\"type\":\"Distributed\",\"shape\":[4,3],\"dtype\":\"F32\",\"chunks\":[" CHUNK("0", "1", "0") "," CHUNK(        \
        "1", "3", "1") "]}"
#define DOCUMENT(tensors) "{\"tensors\":{" tensors "},\"filenames\":[\"a\",\"b\"],\"world_size\":2}"
#define SHARED(more) "\"s\":{\"type\":\"Shared\",\"shape\":[2],\"dtype\":\"I64\"" more "}"

static struct topology *parse(const char *json, struct error *error)
{
    return topology_parse(json, strlen(json), error);
}

static struct topology *accept(const char *json)
{
    struct error error;
    struct topology *topology = parse(json, &error);
    if (!topology)
        fail_msg("%s: %s", json, error.message);
    return topology;
}

static void refuse(const char *json, enum error_code code, const char *named)
{
    struct error error;
    struct topology *topology = parse(json, &error);
    if (topology)
        fail_msg("accepted: %s", json);
    if (error.code != code || !strstr(error.message, named))
        fail_msg("%s: %s: %s", json, error_code_name(error.code), error.message);
}

TEST(boxes_shapes_and_files_are_read)
{
    struct topology *topology = accept(DOCUMENT(W "," SHARED(",\"filename_indices\":[1,0]")));
    assert_int_equal(topology->world_size, 2);
    assert_int_equal(topology->n_files, 2);
    assert_string_equal(topology->files[1], "b");
    assert_int_equal(topology->n_tensors, 2);
    const struct topology_tensor *s = &topology->tensors[0], *w = &topology->tensors[1];
    assert_memory_equal(s->name, "s", 1);
    assert_true(s->is_shared && s->lists_files && s->rank == 1 && s->bytes == 16 && s->n_chunks == 2);
    assert_int_equal(topology->chunks[s->first_chunk].file, 0); /* by file */
    assert_true(!w->is_shared && w->rank == 2 && w->bytes == 48 && w->dtype == DTYPE_F32 && w->n_chunks == 2);
    const struct topology_chunk *second = &topology->chunks[w->first_chunk + 1];
    assert_int_equal(second->file, 1);
    assert_memory_equal(&topology->numbers[second->box_at], ((uint64_t[]){1, 0, 3, 3}), 4 * sizeof(uint64_t));
    topology_destroy(topology);
}

TEST(fields_come_in_any_order_and_unknown_ones_are_skipped)
{
    struct topology *topology = accept(
        "{\"world_size\":1,\"x\":[{}],\"filenames\":[\"a\"],\"tensors\":{\"w\":{\"chunks\":[{\"filename_index\":0,\"shape\":"
        "[2],"
        "\"checksum\":null,\"offsets\":[0]}],\"comment\":{},\"dtype\":\"U8\",\"shape\":[2],\"type\":\"Distributed\"}}}");
    assert_memory_equal(&topology->numbers[topology->chunks[0].box_at], ((uint64_t[]){0, 2}), 2 * sizeof(uint64_t));
    topology_destroy(topology);
}

/* What is written as the chunk before is not parsed, and must come to the same. */
TEST(each_chunk_may_be_written_otherwise)
{
    static const char *const forms[] = {
        "{\"offsets\":[%d],\"shape\":[1],\"filename_index\":%d}",
        "{\"shape\":[1],\"offsets\":[%d],\"filename_index\":%d}",
        " {\"offsets\": [%d], \"shape\": [1], \"filename_index\": %d}",
        "{\"n\":7,\"offsets\":[%d],\"shape\":[1],\"filename_index\":%d}",
        "{\"offsets\":[%d],\"n\":{\"shape\":[9]},\"shape\":[1],\"filename_index\":%d}",
        "{\"offsets\":[%d],\"shape\":[1],\"filename_index\":%d,\"v\":\"2\"}",
    };
    enum { N_FORMS = sizeof forms / sizeof *forms, N_CHUNKS = 60 };
    char text[8192];
    srand(3);
    for (int round = 0; round < 200; round++) {
        int used = sprintf(
            text, "{\"tensors\":{\"w\":{\"type\":\"Distributed\",\"shape\":[%d],\"dtype\":\"U8\",\"chunks\":[", N_CHUNKS);
        for (int i = 0, form = 0; i < N_CHUNKS; i++) {
            form = rand() % 3 ? form : rand() % N_FORMS;
            used += sprintf(text + used, "%s", i ? "," : "");
            used += sprintf(text + used, forms[form], i, N_CHUNKS - 1 - i);
        }
        used += sprintf(text + used, "]}},\"world_size\":%d,\"filenames\":[", N_CHUNKS);
        for (int i = 0; i < N_CHUNKS; i++)
            used += sprintf(text + used, "%s\"f%d\"", i ? "," : "", i);
        strcpy(text + used, "]}");
        struct topology *topology = accept(text);
        for (uint32_t i = 0; i < N_CHUNKS; i++) { /* by file */
            const struct topology_chunk *chunk = &topology->chunks[topology->tensors[0].first_chunk + i];
            const uint64_t box[] = {N_CHUNKS - 1 - i, 1};
            assert_true(chunk->file == i && chunk->n_offsets == 1 && chunk->n_sizes == 1);
            assert_memory_equal(&topology->numbers[chunk->box_at], box, sizeof box);
        }
        topology_destroy(topology);
    }
}

TEST(a_shared_tensor_says_its_files_in_three_ways)
{
    struct topology *topology = accept(DOCUMENT(SHARED(",\"filename_index\":1")));
    assert_true(topology->tensors[0].lists_files && topology->tensors[0].n_chunks == 1);
    assert_int_equal(topology->chunks[0].file, 1);
    topology_destroy(topology);
    topology = accept(DOCUMENT(SHARED("")));
    assert_false(topology->tensors[0].lists_files);
    topology_destroy(topology);
    refuse(DOCUMENT(SHARED(",\"filename_index\":1,\"filename_indices\":[1]")), ERROR_DATA_LOSS, "tensor s");
}

TEST(an_empty_topology_is_one)
{
    struct topology *topology = accept("{\"tensors\":{},\"filenames\":[],\"world_size\":4}");
    assert_int_equal(topology->n_tensors + topology->n_files, 0);
    topology_destroy(topology);
}

TEST(what_is_malformed_is_refused)
{
    static const char *const broken[] = {
        "",
        "null",
        "[]",
        "{",
        "{}",
        "{\"tensors\":{},\"filenames\":[]}",
        "{\"tensors\":{},\"tensors\":{},\"filenames\":[],\"world_size\":1}",
        "{\"tensors\":{},\"filenames\":[],\"world_size\":0}",
        "{\"tensors\":{},\"filenames\":[],\"world_size\":-1}",
        "{\"tensors\":{},\"filenames\":[],\"world_size\":4294967296}",
        "{\"tensors\":{},\"filenames\":[],\"world_size\":\"1\"}",
        "{\"tensors\":[],\"filenames\":[],\"world_size\":1}",
        "{\"tensors\":{},\"filenames\":{},\"world_size\":1}",
        "{\"tensors\":{},\"filenames\":[1],\"world_size\":1}",
        "{\"tensors\":{},\"filenames\":[],\"world_size\":1} x",
        DOCUMENT(W "," W),
        DOCUMENT("\"w\":7"),
        DOCUMENT("\"w\":{}"),
        DOCUMENT("\"w\":{\"type\":\"Sharded\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"type\":\"Shared\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[1]}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"dtype\":\"U8\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"F31\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[-1],\"dtype\":\"U8\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[1.5],\"dtype\":\"U8\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[18446744073709551616],\"dtype\":\"U8\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[1099511627776,1099511627776],\"dtype\":\"U8\"}"),
        DOCUMENT("\"w\":{\"type\":\"Shared\",\"shape\":[3],\"dtype\":\"F4\"}"),
        DOCUMENT("\"w\":{\"type\":\"Distributed\",\"shape\":[1],\"dtype\":\"U8\"}"),
        DOCUMENT("\"w\":{\"type\":\"Distributed\",\"shape\":[1],\"dtype\":\"U8\",\"chunks\":{}}"),
        DOCUMENT("\"w\":{\"type\":\"Distributed\",\"shape\":[1],\"dtype\":\"U8\",\"chunks\":[7]}"),
        DOCUMENT(
            "\"w\":{\"type\":\"Distributed\",\"shape\":[1],\"dtype\":\"U8\",\"chunks\":[{\"offsets\":[0],\"shape\":[1]}]}"),
        DOCUMENT("\"w\":{\"type\":\"Distributed\",\"shape\":[1],\"dtype\":\"U8\",\"chunks\":[{\"offsets\":[0],\"shape\":[1],"
                 "\"shape\":[1],"
                 "\"filename_index\":0}]}"),
        DOCUMENT(SHARED(",\"filename_index\":-1")),
        DOCUMENT(SHARED(",\"filename_indices\":3")),
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        refuse(broken[i], ERROR_DATA_LOSS, "");
}

TEST(a_file_is_a_plain_name_and_stands_once)
{
    static const char *const names[] = {"", ".", "..", ".hidden", "../a", "/etc/passwd", "b/a", "a\\u0000b"};
    char json[200];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(json, sizeof json, "{\"tensors\":{},\"filenames\":[\"%s\"],\"world_size\":1}", names[i]);
        refuse(json, ERROR_DATA_LOSS, "plain name");
    }
    refuse("{\"tensors\":{},\"filenames\":[\"a\",\"b\",\"a\"],\"world_size\":1}", ERROR_DATA_LOSS, "filenames has a twice");
}

TEST(hostile_names_do_not_reach_the_terminal)
{
    struct error error;
    assert_null(parse(DOCUMENT("\"\\u001b[2J\":{\"type\":\"\"}"), &error));
    assert_null(strchr(error.message, '\033'));
}

TEST(there_may_be_64_dimensions_and_no_more)
{
    char json[1000], ones[200] = "1";
    for (int i = 1; i < 64; i++)
        strcat(ones, ",1");
    const char *format =
        "{\"tensors\":{\"w\":{\"type\":\"Shared\",\"shape\":[%s%s],\"dtype\":\"U8\"}},\"filenames\":[],\"world_size\":1}";
    snprintf(json, sizeof json, format, ones, "");
    topology_destroy(accept(json));
    snprintf(json, sizeof json, format, ones, ",1");
    refuse(json, ERROR_DATA_LOSS, "64 dimensions");
}

TEST(there_may_be_10000_files_and_no_more)
{
    char *json = memory_alloc(20 * TOPOLOGY_MAX_FILES), *at = json;
    at += sprintf(at, "{\"tensors\":{},\"world_size\":1,\"filenames\":[\"f\"");
    for (int i = 1; i < TOPOLOGY_MAX_FILES; i++)
        at += sprintf(at, ",\"f%d\"", i);
    strcpy(at, "]}");
    topology_destroy(accept(json));
    strcpy(at, ",\"one more\"]}");
    refuse(json, ERROR_UNIMPLEMENTED, "10000");
    free(json);
}

/* In one list, which is refused afterwards for what it says. */
TEST(there_may_be_16_million_chunks_and_no_more)
{
    static const char head[] = "{\"tensors\":{\"w\":{\"filename_indices\":[0";
    static const char tail[] =
        "],\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\"}},\"filenames\":[\"f\"],\"world_size\":1}";
    for (size_t more = 0; more < 2; more++) {
        size_t n = TOPOLOGY_MAX_CHUNKS - 1 + more;
        char *json = memory_alloc(sizeof head + 2 * n + sizeof tail), *at = json + strlen(head);
        strcpy(json, head);
        for (size_t i = 0; i < n; i++, at += 2)
            memcpy(at, ",0", 2);
        strcpy(at, tail);
        refuse(json, more ? ERROR_UNIMPLEMENTED : ERROR_DATA_LOSS, more ? "16777216 chunks" : "DuplicateIndices");
        free(json);
    }
}
