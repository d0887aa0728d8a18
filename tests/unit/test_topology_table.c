/* Files held against topology.json: what becomes a piece, what a copy, and every way in which they may disagree. */
#include "tests/support/unit.h"

#include "tests/support/source_memory.h"
#include "tests/support/layout_scene.h"

#define CHUNK(offset, n, file) "{\"offsets\":[" #offset ",0],\"shape\":[" #n ",2],\"filename_index\":" #file "}"
#define W                                                                                                                   \
    "\"w\":{\"type\":\"Distributed\",\"shape\":[3,2],\"dtype\":\"F32\",\"chunks\":[" CHUNK(1, 2, 0) "," CHUNK(0, 1, 1) "]}"
#define S(files) "\"s\":{\"type\":\"Shared\",\"shape\":[4],\"dtype\":\"U8\"" files "}"
#define DOCUMENT(tensors) "{\"tensors\":{" tensors "},\"filenames\":[\"r0\",\"r1\",\"r2\"],\"world_size\":2}"

static int clear(void **state)
{
    (void)state;
    source_memory_clear();
    return 0;
}

static void put(const char *document, const char *first, const char *second, const char *third)
{
    layout_put_text("m", "topology.json", document);
    layout_put("m", "r0", first, NULL, 0);
    layout_put("m", "r1", second, NULL, 100);
    layout_put("m", "r2", third, NULL, 200);
}

TEST_IN(chunks_become_pieces_and_shared_tensors_copies, clear, clear)
{
    put(DOCUMENT(W "," S(",\"filename_indices\":[2,0]")), "w F32 2,2; s U8 4", "w F32 1,2", "s U8 4");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_true(artifact->layout.kind == LAYOUT_TOPOLOGY && artifact->layout.world_size == 2);
    assert_int_equal(artifact->n_tensors, 2);
    assert_int_equal(artifact->n_pieces, 4);
    assert_int_equal(artifact->total_bytes, 24 + 4); /* each tensor once */
    assert_string_equal(layout_pieces(artifact, "w"), "r0@1,0+2,2 r1@0,0+1,2");
    assert_string_equal(layout_pieces(artifact, "s"), "r0");
    assert_int_equal(artifact_n_copies(artifact, layout_tensor(artifact, "w")), 1);
    assert_int_equal(artifact_n_copies(artifact, layout_tensor(artifact, "s")), 2);
    assert_int_equal(layout_tensor(artifact, "w")->shape[0], 3);
    artifact_unref(artifact);
}

TEST_IN(a_shared_tensor_without_a_list_is_wherever_it_is, clear, clear)
{
    put(DOCUMENT(W "," S("")), "w F32 2,2", "w F32 1,2; s U8 4", "s U8 4");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_string_equal(layout_pieces(artifact, "s"), "r1");
    assert_int_equal(artifact_n_copies(artifact, layout_tensor(artifact, "s")), 2);
    artifact_unref(artifact);
    put(DOCUMENT(W "," S("")), "w F32 2,2", "w F32 1,2", "");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor s", "topology.json");
}

TEST_IN(nothing_is_stored_twice_costs_nothing, clear, clear)
{
    put(DOCUMENT(W), "w F32 2,2", "w F32 1,2", "");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_null(artifact->copies);
    artifact_unref(artifact);
}

TEST_IN(files_that_disagree_are_named_with_the_tensor, clear, clear)
{
    static const struct {
        const char *first, *second, *third, *file;
    } cases[] = {
        {"w F32 2,2; s U8 4", "w F32 1,2", "", "r2"},                  /* s is not there */
        {"w F32 2,2; s U8 4", "", "s U8 4", "r1"},                     /* nor is w */
        {"s U8 4", "w F32 1,2", "s U8 4", "r0"},                       /* nor its first chunk */
        {"w F32 2,2; s U8 4", "w F32 1,2; s U8 4", "s U8 4", "r1"},    /* s is where the document has none of it */
        {"w F32 2,2; s U8 4", "w F32 1,2", "s U8 4; w F32 1,2", "r2"}, /* so is w */
        {"w F32 2,2; s U8 4", "w F32 1,2", "s U8 4; x U8 4", "r2"},    /* x is nowhere in it */
        {"w I32 2,2; s U8 4", "w F32 1,2", "s U8 4", "r0"},
        {"w F32 2,2; s U8 4", "w F32 2,1", "s U8 4", "r1"},
        {"w F32 2,2; s U8 4", "w F32 2", "s U8 4", "r1"},
        {"w F32 2,2; s U8 4", "w F32 1,2", "s U8 2,2", "r2"},
        {"w F32 2,2; s I8 4", "w F32 1,2", "s U8 4", "r0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(DOCUMENT(W "," S(",\"filename_indices\":[0,2]")), cases[i].first, cases[i].second, cases[i].third);
        LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "topology.json", cases[i].file);
    }
}

TEST_IN(a_file_that_is_not_there_is_named, clear, clear)
{
    layout_put_text("m", "topology.json", DOCUMENT(W));
    layout_put("m", "r0", "w F32 2,2", NULL, 0);
    LAYOUT_REFUSES("m", 0, ERROR_NOT_FOUND, "r1");
}

TEST_IN(a_topology_comes_before_all_else_and_its_errors_name_it, clear, clear)
{
    put(DOCUMENT(W), "w F32 2,2", "w F32 1,2", "");
    layout_put("m", "model.safetensors", "other U8 4", NULL, 0);
    layout_put_text("m", "model.safetensors.index.json", "{}");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_string_equal(artifact->tensors[0].name, "w");
    artifact_unref(artifact);
    layout_put_text("m", "topology.json", "");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "topology.json");
}

TEST_IN(an_empty_topology_is_an_artifact_without_tensors, clear, clear)
{
    layout_put_text("m", "topology.json", "{\"tensors\":{},\"filenames\":[],\"world_size\":4}");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_int_equal(artifact->n_tensors + artifact->source->n_files, 0);
    artifact_unref(artifact);
}

TEST_IN(scalars_are_all_there_may_be, clear, clear)
{
    layout_put_text(
        "m", "topology.json",
        "{\"tensors\":{\"s\":{\"type\":\"Shared\",\"shape\":[],\"dtype\":\"F32\"},\"d\":{\"type\":\"Distributed\","
        "\"shape\":[],\"dtype\":\"U8\",\"chunks\":[{\"offsets\":[],\"shape\":[],\"filename_index\":0}]}},"
        "\"filenames\":[\"r0\"],\"world_size\":1}");
    layout_put("m", "r0", "d U8; s F32", NULL, 0);
    struct artifact *artifact = layout_resolve("m", 0);
    assert_int_equal(artifact->total_bytes, 5);
    assert_string_equal(layout_pieces(artifact, "d"), "r0");
    artifact_unref(artifact);
}

TEST_IN(the_document_is_part_of_the_identity, clear, clear)
{
    char before[DIGEST_HEX_CHARS + 1];
    put(DOCUMENT(W), "w F32 2,2", "w F32 1,2", "");
    struct artifact *artifact = layout_resolve("m", 0);
    memcpy(before, artifact->identity, sizeof before);
    artifact_unref(artifact);
    layout_put_text("m", "topology.json", DOCUMENT(W) " ");
    artifact = layout_resolve("m", 0);
    assert_string_not_equal(artifact->identity, before);
    artifact_unref(artifact);
}
