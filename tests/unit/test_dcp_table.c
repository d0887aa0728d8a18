/* Shards as PyTorch writes them: shapes are hulls, equal boxes are copies, and what does not tile is refused by name. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "tests/support/source_memory.h"
#include "tests/support/layout_scene.h"

static int clear(void **state)
{
    (void)state;
    source_memory_clear();
    return 0;
}

/* Rank r, counted from 1, of one file each. */
static void put(unsigned r, const char *stored, const char *info)
{
    char name[100];
    snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", r);
    layout_put("m", name, stored, info, 0);
}

#define AT(name, offsets) "\"" name "\": {\"saved_offsets\": [" offsets "]}"

TEST_IN(a_shape_is_the_hull_of_its_boxes, clear, clear)
{
    put(1, "w U8 2,2; s U8 3", "{" AT("w", "0, 0") ", " AT("s", "0") "}");
    put(2, "w U8 1,2", "{" AT("w", "2, 0") "}");
    put(3, "w U8 3,1; e U8 0,4", "{" AT("w", "0, 2") ", " AT("e", "0, 0") "}");
    struct artifact *artifact = layout_resolve("m", 0);
    const struct tensor_record *w = layout_tensor(artifact, "w");
    assert_true(artifact->layout.kind == LAYOUT_DCP && artifact->layout.world_size == 3);
    assert_true(w->shape[0] == 3 && w->shape[1] == 3 && w->bytes == 9 && w->n_pieces == 3);
    assert_int_equal(artifact->total_bytes, 9 + 3);
    assert_string_equal(layout_pieces(artifact, "s"), "shard-00001-model-00001-of-00001.safetensors"); /* whole */
    assert_null(artifact->copies);
    artifact_unref(artifact);
}

TEST_IN(equal_boxes_are_copies, clear, clear)
{
    put(1, "w U8 2,2; t U8 2", "{" AT("w", "0, 0") ", " AT("t", "0") "}");
    put(2, "w U8 1,2; t U8 2", "{" AT("w", "2, 0") ", " AT("t", "0") "}");
    put(3, "w U8 2,2", "{" AT("w", "0, 0") "}");
    put(4, "w U8 1,2", "{" AT("w", "2, 0") "}");
    struct artifact *artifact = layout_resolve("m", 0);
    const struct tensor_record *w = layout_tensor(artifact, "w"), *t = layout_tensor(artifact, "t");
    assert_int_equal(w->n_pieces, 2);
    assert_int_equal(artifact_n_copies(artifact, w), 2);
    assert_true(t->n_pieces == 1 && !artifact_piece(artifact, t, 0)->box);
    assert_int_equal(artifact_n_copies(artifact, t), 2);
    assert_int_equal(artifact->total_bytes, 6 + 2);
    uint32_t first = (uint32_t)(artifact_piece(artifact, w, 0) - artifact->pieces), other = artifact->copies[first];
    assert_int_equal(artifact->pieces[first].file, 0);
    assert_int_equal(artifact->pieces[other].file, 2);
    assert_int_equal(artifact->copies[other], first);
    artifact_unref(artifact);
}

TEST_IN(a_tensor_stored_partly_twice_is_stored_once, clear, clear)
{
    put(1, "w U8 2", "{" AT("w", "0") "}");
    put(2, "w U8 1", "{" AT("w", "2") "}");
    put(3, "w U8 2", "{" AT("w", "0") "}");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_int_equal(artifact_n_copies(artifact, layout_tensor(artifact, "w")), 1);
    assert_non_null(artifact->copies);
    artifact_unref(artifact);
}

#define OF(name, offsets, shape) "\"" name "\": {\"saved_offsets\": [" offsets "], \"global_shape\": [" shape "]}"

TEST_IN(a_lost_last_shard_shows_where_the_shape_is_told, clear, clear)
{
    put(1, "w U8 2,2", "{" OF("w", "0, 0", "4, 2") "}");
    put(2, "w U8 1,2", "{" OF("w", "2, 0", "4, 2") "}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor w", "[4, 2]", "gap");
    put(3, "w U8 1,2", "{" OF("w", "3, 0", "4, 2") "}");
    struct artifact *artifact = layout_resolve("m", 0);
    assert_int_equal(layout_tensor(artifact, "w")->shape[0], 4);
    artifact_unref(artifact);
    put(3, "w U8 2,2", "{" OF("w", "3, 0", "4, 2") "}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor w", "shard-00003", "global_shape");
}

TEST_IN(empty_shards_belong_to_their_tensor, clear, clear)
{
    put(1, "w U8 1,5; e U8 0,4", "{" AT("w", "0, 0") ", " AT("e", "0, 0") "}");
    put(2, "w U8 1,5; e U8 0,4", "{" AT("w", "1, 0") ", " AT("e", "0, 0") "}");
    put(3, "w U8 0,5", "{" AT("w", "2, 0") "}");
    struct artifact *artifact = layout_resolve("m", 0);
    const struct tensor_record *w = layout_tensor(artifact, "w"), *e = layout_tensor(artifact, "e");
    assert_true(w->n_pieces == 3 && w->bytes == 10);
    assert_true(e->n_pieces == 1 && e->bytes == 0 && artifact_n_copies(artifact, e) == 2);
    artifact_unref(artifact);
}

TEST_IN(a_file_without_sharding_information_has_whole_tensors, clear, clear)
{
    put(1, "w U8 2", "{" AT("w", "0") "}");
    put(2, "w U8 1", "{" AT("w", "2") "}");
    layout_put("m", "extra.safetensors", "x U8 3", NULL, 0);
    struct artifact *artifact = layout_resolve("m", 0);
    assert_string_equal(layout_pieces(artifact, "x"), "extra.safetensors");
    artifact_unref(artifact);
    layout_put("m", "extra.safetensors", "w U8 3", NULL, 0);
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor w", "extra.safetensors", "in common");
}

TEST_IN(boxes_that_do_not_tile_are_refused_by_name, clear, clear)
{
    static const struct {
        const char *first_at, *second_stored, *second_at, *named;
    } cases[] = {
        {"0", "w U8 2", "3", "gap"},
        {"1", "w U8 2", "3", "gap"},
        {"0", "w U8 2", "1", "in common"},
        {"0", "w U8 3", "0", "in common"},
        {"0", "w I8 2", "2", "shard-00002"},
        {"0", "w U8 2,1", "2, 0", "shard-00002"},
        {"0", "w U8 2", "2, 0", "shard-00002"},
        {"0", "w U8 2", "", "shard-00002"},
        {"0", "w U8 2", "18446744073709551615", "shard-00002"},
        {"0", "w U8 2", "9223372036854775807", "gap"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char info[100];
        snprintf(info, sizeof info, "{" AT("w", "%s") "}", cases[i].first_at);
        put(1, "w U8 2", info);
        snprintf(info, sizeof info, "{" AT("w", "%s") "}", cases[i].second_at);
        put(2, cases[i].second_stored, info);
        LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor w", cases[i].named);
    }
}

TEST_IN(sharding_information_that_names_not_every_tensor_is_refused, clear, clear)
{
    put(1, "w U8 2; v U8 1", "{" AT("w", "0") "}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "shard-00001", "tensor v", "DCP_SHARDING_INFO");
    put(1, "w U8 2", "[]");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "shard-00001", "DCP_SHARDING_INFO");
    put(1, "w U8 2", "{" AT("w", "0") ", " AT("elsewhere", "1, 1") "}");
    artifact_unref(layout_resolve("m", 0));
}

TEST_IN(a_missing_number_is_told_before_the_gap_it_makes, clear, clear)
{
    put(1, "w U8 2; v U8 1", "{" AT("w", "0") ", " AT("v", "0") "}");
    put(3, "w U8 2", "{" AT("w", "4") "}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "shard-00002 is missing", "--allow-missing-shards");
    LAYOUT_REFUSES("m", RESOLVE_ALLOW_MISSING_SHARDS, ERROR_DATA_LOSS, "tensor w", "gap");
    put(3, "w U8 2", "{" AT("w", "2") "}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "shard-00002 is missing");
    struct artifact *artifact = layout_resolve("m", RESOLVE_ALLOW_MISSING_SHARDS);
    assert_true(artifact->layout.world_size == 3 && artifact->layout.n_missing_shards == 1);
    assert_int_equal(artifact->layout.missing_shards[0], 2);
    artifact_unref(artifact);
}

TEST_IN(an_index_tells_what_no_shard_shows, clear, clear)
{
    put(1, "w U8 2; v U8 1", "{" AT("w", "0") ", " AT("v", "0") "}");
    put(2, "w U8 2", "{" AT("w", "2") "}");
#define SHARD(r) "shard-0000" #r "-model-00001-of-00001.safetensors"
    layout_put_text("m", "model.safetensors.index.json", "{\"weight_map\":{\"w\":\"" SHARD(1) "\",\"v\":\"" SHARD(1) "\"}}");
    struct artifact *artifact = layout_resolve("m", 0); /* the index leads to the first shard, the folder to the second */
    assert_int_equal(artifact->source->n_files, 2);
    assert_int_equal(layout_tensor(artifact, "w")->bytes, 4);
    artifact_unref(artifact);
    layout_put_text("m", "model.safetensors.index.json",
                    "{\"weight_map\":{\"w\":\"" SHARD(2) "\",\"v\":\"" SHARD(1) "\",\"u\":\"" SHARD(2) "\"}}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor u is not in");
    layout_put_text("m", "model.safetensors.index.json", "{\"weight_map\":{\"w\":\"" SHARD(1) "\",\"v\":\"" SHARD(2) "\"}}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor v is not in");
    layout_put_text("m", "model.safetensors.index.json", "{\"weight_map\":{\"w\":\"" SHARD(1) "\"}}");
    LAYOUT_REFUSES("m", 0, ERROR_DATA_LOSS, "tensor v is not in the index");
}

TEST_IN(one_file_beside_others_is_no_checkpoint_of_its_own, clear, clear)
{
    layout_put("m", "model.safetensors", "w U8 2", "{" AT("w", "0") "}", 0);
    layout_put("m", "more.safetensors", "w U8 2", "{" AT("w", "2") "}", 9);
    struct artifact *artifact = layout_resolve("m", 0);
    assert_int_equal(layout_tensor(artifact, "w")->bytes, 4);
    artifact_unref(artifact);
}

/* In the order of ranks that every file has. */
TEST_IN(many_tensors_in_many_boxes_make_one_table, clear, clear)
{
    enum { N_TENSORS = 2000, N_RANKS = 8 };
    char *stored = memory_alloc(N_TENSORS * 20), *info = memory_alloc(N_TENSORS * 50);
    for (unsigned r = 1; r <= N_RANKS; r++) {
        char *at = stored, *of = info + sprintf(info, "{");
        for (int i = 0; i < N_TENSORS; i++) {
            at += sprintf(at, "%sw%d U8 1,2", i ? ";" : "", i);
            of += sprintf(of, "%s\"w%d\": {\"saved_offsets\": [%u, %u]}", i ? ", " : "", i, (r - 1) / 2, (r - 1) % 2 * 2);
        }
        strcpy(of, "}");
        put(r, stored, info);
    }
    free(stored);
    free(info);
    struct artifact *artifact = layout_resolve("m", 0);
    assert_int_equal(artifact->n_tensors, N_TENSORS);
    assert_int_equal(artifact->n_pieces, N_TENSORS * N_RANKS);
    assert_int_equal(artifact->total_bytes, N_TENSORS * N_RANKS * 2);
    for (size_t i = 0; i < N_TENSORS; i++)
        for (uint32_t k = 0; k < N_RANKS; k++)
            assert_int_equal(artifact_piece(artifact, &artifact->tensors[i], k)->file, k);
    artifact_unref(artifact);
}
