/* The two index documents of an artifact: positions in the data sections joined, and in an aligned repack. */
#include "tests/support/unit.h"

#include "resolve/artifact.h"
#include "tests/support/model_dir.h"

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

static void assert_documents(const char *source_index, const char *canonical_index)
{
    char reference[MODEL_PATH_CHARS + 8] = "disk:";
    const char *roots[] = {folder};
    const struct source_options options = {.trusted_roots = roots, .n_trusted_roots = 1};
    struct artifact *artifact;
    struct error error;
    strcat(reference, folder);
    if (artifact_resolve(reference, &options, NULL, true, &artifact, &error) != 0)
        fail_msg("%s", error.message);
    char *source = artifact_source_index_json(artifact), *canonical = artifact_canonical_index_json(artifact);
    assert_string_equal(source, source_index);
    assert_string_equal(canonical, canonical_index);
    free(source);
    free(canonical);
    artifact_unref(artifact);
}

TEST_IN(names_are_sorted_and_the_repack_is_aligned_to_eight, set_up, tear_down)
{
    model_dir_safetensors(folder, "model.safetensors",
                          "{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                          "\"a\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[3,15]},"
                          "\"ab\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[15,16]}}",
                          16);
    assert_documents("{\"a\":[3,12,[2,3],[3,1],\"torch.float16\",0],\"ab\":[15,1,[],[],\"torch.uint8\",0],"
                     "\"b\":[0,3,[3],[1],\"torch.uint8\",0]}",
                     "{\"a\":[0,12,[2,3],[3,1],\"torch.float16\",0],\"ab\":[16,1,[],[],\"torch.uint8\",0],"
                     "\"b\":[24,3,[3],[1],\"torch.uint8\",0]}");
}

TEST_IN(data_sections_of_several_files_follow_each_other, set_up, tear_down)
{
    model_dir_safetensors(folder, "model-00001-of-00002.safetensors",
                          "{\"x\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}", 5);
    model_dir_safetensors(folder, "model-00002-of-00002.safetensors",
                          "{\"a.longer.name\":{\"dtype\":\"U8\",\"shape\":[7],\"data_offsets\":[0,7]}}", 7);
    assert_documents("{\"a.longer.name\":[5,7,[7],[1],\"torch.uint8\",0],\"x\":[0,5,[5],[1],\"torch.uint8\",0]}",
                     "{\"a.longer.name\":[0,7,[7],[1],\"torch.uint8\",0],\"x\":[8,5,[5],[1],\"torch.uint8\",0]}");
}

TEST_IN(strides_step_over_an_extent_of_zero_and_types_that_torch_lacks_keep_their_names, set_up, tear_down)
{
    model_dir_safetensors(folder, "model.safetensors",
                          "{\"e\\\"\":{\"dtype\":\"F4\",\"shape\":[4,0,5],\"data_offsets\":[0,0]}}", 0);
    assert_documents("{\"e\\\"\":[0,0,[4,0,5],[5,5,1],\"F4\",0]}", "{\"e\\\"\":[0,0,[4,0,5],[5,5,1],\"F4\",0]}");
}
