/* The rules of the reference by its words, in its order, and which tensor is told of. */
#include "tests/support/unit.h"

#include "resolve/topology.h"

/* Tensor w of U8 with these chunks, in files a to d. */
static int check(const char *shape, const char *chunks, uint64_t world_size, struct error *error)
{
    char json[2000];
    snprintf(json, sizeof json,
             "{\"tensors\":{\"w\":{\"type\":\"Distributed\",\"shape\":[%s],\"dtype\":\"U8\",\"chunks\":[%s]}},"
             "\"filenames\":[\"a\",\"b\",\"c\",\"d\"],\"world_size\":%llu}",
             shape, chunks, (unsigned long long)world_size);
    struct topology *topology = topology_parse(json, strlen(json), error);
    topology_destroy(topology);
    return topology ? 0 : -1;
}

#define C(offsets, sizes, file) "{\"offsets\":[" offsets "],\"shape\":[" sizes "],\"filename_index\":" #file "}"
#define AND ","

TEST(every_rule_has_its_word)
{
    static const struct {
        const char *shape, *chunks;
        uint64_t world_size;
        const char *word; /* NULL = it adds up */
    } cases[] = {
        {"4,2", C("0,0", "2,2", 0) AND C("2,0", "2,2", 1), 2, NULL},
        {"4,2", C("2,0", "2,2", 3) AND C("0,0", "2,2", 1), 2, NULL},
        {"4,2", C("0,0", "2,2", 0) AND C("2,0", "2,2", 1), 3, "InvalidChunkCount"},
        {"4,2", "", 1, "InvalidChunkCount"},
        {"4,2", C("0,0", "4,2", 0), 0, "InvalidChunkCount"},
        {"4,2", C("0,0", "4,2", 0), 4294967297, "InvalidChunkCount"},
        {"4,2", C("0,0", "4,2", 0), 18446744073709551615u, "InvalidChunkCount"},
        {"4,2", C("0,0", "2,2", 0) AND C("2,0", "2,2", 4), 2, "InvalidFilenameIndex"},
        {"4,2", C("0,0", "2,2", 0) AND C("2,0", "2,2", 18446744073709551615), 2, "InvalidFilenameIndex"},
        {"4,2", C("0,0", "2,2", 1) AND C("2,0", "2,2", 1), 2, "DuplicateIndices"},
        {"4,2", C("0", "2,2", 0) AND C("2,0", "2,2", 1), 2, "InvalidChunkDimensions"},
        {"4,2", C("0,0", "2,2,1", 0) AND C("2,0", "2,2", 1), 2, "InvalidChunkDimensions"},
        {"4,2", C("0,0", "2,2", 0) AND C("2,0", "3,2", 1), 2, "ChunkOutOfBounds"},
        {"4,2", C("0,0", "2,2", 0) AND C("5,0", "0,2", 1), 2, "ChunkOutOfBounds"},
        {"4,2", C("0,0", "2,2", 0) AND C("18446744073709551615,0", "2,2", 1), 2, "ChunkOutOfBounds"},
        {"4,2", C("0,0", "3,2", 0) AND C("2,0", "2,2", 1), 2, "OverlappingChunks"},
        {"4,2", C("0,0", "4,2", 0) AND C("0,0", "4,2", 1), 2, "OverlappingChunks"},
        {"4,2", C("0,0", "1,2", 0) AND C("2,0", "2,2", 1), 2, "NonCoveringChunks"},
        {"4,2", C("0,0", "0,2", 0) AND C("4,2", "0,0", 1), 2, "NonCoveringChunks"},
        /* all four words at once: the first rule speaks, and overlaps before gaps */
        {"4,2", C("0,0", "9,2", 7) AND C("0,0", "9,2", 7), 1, "InvalidChunkCount"},
        {"4,2", C("0,0", "1,2", 0) AND C("0,0", "1,2", 1), 2, "OverlappingChunks"},
        /* quadrants, in three and in five dimensions */
        {"4,4", C("0,0", "2,2", 0) AND C("0,2", "2,2", 1) AND C("2,0", "2,2", 2) AND C("2,2", "2,2", 3), 4, NULL},
        {"4,4", C("0,0", "2,2", 0) AND C("0,2", "2,2", 1) AND C("2,0", "2,2", 2) AND C("2,2", "2,1", 3), 4,
         "NonCoveringChunks"},
        {"2,2,2", C("0,0,0", "2,2,1", 0) AND C("0,0,1", "1,2,1", 1) AND C("1,0,1", "1,1,1", 2) AND C("1,1,1", "1,1,1", 3), 4,
         NULL},
        {"1,2,1,2,1", C("0,0,0,0,0", "1,1,1,2,1", 0) AND C("0,1,0,0,0", "1,1,1,2,1", 1), 2, NULL},
        /* without elements */
        {"4,2", C("0,0", "4,2", 0) AND C("1,1", "0,1", 1) AND C("4,0", "0,2", 2), 3, NULL},
        {"0,2", C("0,0", "0,2", 0) AND C("0,0", "0,2", 1), 2, NULL},
        {"", C("", "", 0), 1, NULL},
        {"", C("", "", 0) AND C("", "", 1), 2, "OverlappingChunks"},
    };
    struct error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int failed = check(cases[i].shape, cases[i].chunks, cases[i].world_size, &error);
        if (!failed != !cases[i].word)
            fail_msg("case %zu: %s", i, failed ? error.message : "accepted");
        if (cases[i].word &&
            (error.code != ERROR_DATA_LOSS || !strstr(error.message, cases[i].word) || !strstr(error.message, "tensor w")))
            fail_msg("case %zu: no %s in: %s", i, cases[i].word, error.message);
    }
}

/* Where the reference takes more than 50 chunks for covering because it sweeps one dimension alone. */
TEST(a_gap_among_64_chunks_is_seen_in_every_dimension)
{
    struct error error;
    for (int n_broken = 0; n_broken < 2; n_broken++) {
        char json[10000] = "{\"tensors\":{\"w\":{\"type\":\"Distributed\",\"shape\":[8,8],\"dtype\":\"U8\",\"chunks\":[",
             *at;
        at = json + strlen(json);
        for (int i = 0; i < 64; i++)
            at += sprintf(at, "%s{\"offsets\":[%d,%d],\"shape\":[1,%d],\"filename_index\":%d}", i ? "," : "", i / 8, i % 8,
                          i == 27 ? 1 - n_broken : 1, i);
        at += sprintf(at, "]}},\"world_size\":64,\"filenames\":[\"f\"");
        for (int i = 1; i < 64; i++)
            at += sprintf(at, ",\"f%d\"", i);
        strcpy(at, "]}");
        struct topology *topology = topology_parse(json, strlen(json), &error);
        assert_int_equal(!topology, n_broken);
        topology_destroy(topology);
    }
    assert_non_null(strstr(error.message, "NonCoveringChunks"));
}

static int check_shared(const char *indices, struct error *error)
{
    char json[500];
    snprintf(json, sizeof json,
             "{\"tensors\":{\"s\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\",\"filename_indices\":%s}},"
             "\"filenames\":[\"a\",\"b\"],\"world_size\":2}",
             indices);
    struct topology *topology = topology_parse(json, strlen(json), error);
    topology_destroy(topology);
    return topology ? 0 : -1;
}

TEST(a_shared_tensor_is_in_files_that_there_are_and_in_each_once)
{
    struct error error;
    assert_int_equal(check_shared("[1,0]", &error), 0);
    assert_int_equal(check_shared("[0,2]", &error), -1);
    assert_non_null(strstr(error.message, "InvalidFilenameIndex"));
    assert_int_equal(check_shared("[1,1]", &error), -1);
    assert_non_null(strstr(error.message, "DuplicateIndices"));
    assert_int_equal(check_shared("[]", &error), -1);
    assert_non_null(strstr(error.message, "filename_indices is empty"));
}

TEST(the_first_wrong_tensor_by_name_is_told_of)
{
    static const char json[] =
        "{\"tensors\":{\"z\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\",\"filename_index\":9},"
        "\"b\":{\"type\":\"Distributed\",\"shape\":[1],\"dtype\":\"U8\",\"chunks\":[]},"
        "\"a\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\"}},\"filenames\":[\"f\"],\"world_size\":1}";
    struct error error;
    assert_null(topology_parse(json, strlen(json), &error));
    assert_non_null(strstr(error.message, "tensor b: InvalidChunkCount"));
}
