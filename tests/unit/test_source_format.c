/* What sources are told of safetensors: names of parts, and whether a folder holds all of a checkpoint. */
#include "tests/support/unit.h"

#include "resolve/format.h"
#include "resolve/shard_index.h"
#include "source/source.h"
#include "tests/support/model_dir.h"

#define SHARD "shard-00001-model-00001-of-00001.safetensors"

static char folder[MODEL_PATH_CHARS];

static int set_up(void **state)
{
    (void)state;
    model_dir_create(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    model_dir_destroy(folder);
    return 0;
}

/* Whether the folder is whole with one more file, or another text of it. */
static bool is_whole_with(const char *name, const char *text)
{
    model_dir_write(folder, name, text, strlen(text));
    return source_format_safetensors.is_whole(folder);
}

TEST(parts_are_told_by_their_names)
{
    assert_true(source_format_safetensors.is_part("m/x.safetensors"));
    assert_false(source_format_safetensors.is_part("m/x.safetensors.index.json"));
    assert_false(source_format_safetensors.is_part(""));
}

TEST_IN(a_folder_is_whole_with_the_index_and_every_part_or_the_one_file, set_up, tear_down)
{
    assert_false(source_format_safetensors.is_whole(folder));
    assert_true(is_whole_with("model.safetensors", ""));
    assert_false(is_whole_with(SHARD_INDEX_NAME, "{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}"));
    assert_false(is_whole_with("1.safetensors", "")); /* the index counts when it is there */
    assert_true(is_whole_with("2.safetensors", ""));
    assert_false(is_whole_with(SHARD_INDEX_NAME, "{\"weight_map\": {\"a\": \"../1.safetensors\"}}"));
    assert_false(is_whole_with(SHARD_INDEX_NAME, "{"));
}

TEST_IN(a_folder_of_diffusers_is_whole_like_any_other, set_up, tear_down)
{
    assert_true(is_whole_with("diffusion_pytorch_model.safetensors", ""));
    assert_false(is_whole_with(SHARD_INDEX_DIFFUSION_NAME, "{\"weight_map\": {\"a\": \"1.safetensors\"}}"));
    assert_true(is_whole_with("1.safetensors", ""));
}

TEST_IN(a_folder_with_a_topology_is_whole_with_the_files_of_all_ranks, set_up, tear_down)
{
    is_whole_with("model.safetensors", "");
    assert_false(is_whole_with("topology.json", "{\"tensors\":{},\"filenames\":[\"r0\",\"r1\"],\"world_size\":2}"));
    assert_false(is_whole_with("r0", ""));
    assert_true(is_whole_with("r1", ""));
    assert_false(is_whole_with("topology.json", "{}"));
}

/* A cache may hold some of them, and an index that names those proves nothing about the others. */
TEST_IN(shards_of_ranks_are_not_believed_to_be_all_there, set_up, tear_down)
{
    assert_false(is_whole_with(SHARD, ""));
    assert_false(is_whole_with(SHARD_INDEX_NAME, "{\"weight_map\": {\"a\": \"" SHARD "\"}}"));
}
