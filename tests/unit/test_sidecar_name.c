/* Which names are sidecars. */
#include "tests/support/unit.h"

#include "base/sidecar_name.h"

TEST(what_models_bring_along_is_a_sidecar)
{
    static const char *const names[] = {"config.json",
                                        "tokenizer.model",
                                        "merges.txt",
                                        "qwen.tiktoken",
                                        "a b.json",
                                        "chat_template.jinja",
                                        "modeling_thing.py",
                                        "README.md",
                                        "größe.json",
                                        "tokenizer_config.json",
                                        "generation_config.json",
                                        "LICENSE",
                                        "NOTICE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!sidecar_name_is_valid(names[i]))
            fail_msg("refused: %s", names[i]);
}

TEST(tensors_hidden_files_and_paths_are_none)
{
    static const char *const names[] = {"",
                                        ".",
                                        "..",
                                        ".json",
                                        ".config.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json",
                                        "pytorch_model.bin.index.json",
                                        "topology.json",
                                        "pytorch_model.bin",
                                        "weights.pt",
                                        "config.json/",
                                        "../config.json",
                                        "a/config.json",
                                        "a\\config.json",
                                        "/etc/x.json",
                                        "a\nb.json",
                                        "a\x7f.json",
                                        "\xff.json",
                                        "configjson",
                                        "config.JSON",
                                        "LICENSE.exe",
                                        "a LICENSE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (sidecar_name_is_valid(names[i]))
            fail_msg("taken: %s", names[i]);
}

TEST(a_name_may_have_255_bytes_and_no_more)
{
    char name[SIDECAR_MAX_NAME_BYTES + 2];
    memset(name, 'x', sizeof name);
    strcpy(name + SIDECAR_MAX_NAME_BYTES - 5, ".json");
    assert_true(sidecar_name_is_valid(name));
    memset(name, 'x', sizeof name);
    strcpy(name + SIDECAR_MAX_NAME_BYTES - 4, ".json");
    assert_false(sidecar_name_is_valid(name));
}

TEST(what_is_tried_unlisted_is_valid_itself)
{
    assert_non_null(sidecar_well_known_names[0]);
    for (const char *const *name = sidecar_well_known_names; *name; name++)
        assert_true(sidecar_name_is_valid(*name));
}

TEST(an_index_of_tensor_files_is_told_by_its_plain_name)
{
    assert_true(sidecar_name_is_index("model.safetensors.index.json"));
    assert_true(sidecar_name_is_index("diffusion_pytorch_model.safetensors.index.json"));
    assert_false(sidecar_name_is_index("config.json"));
    assert_false(sidecar_name_is_index("../model.safetensors.index.json"));
    assert_false(sidecar_name_is_index(".index.json"));
    assert_false(sidecar_name_is_index("model.safetensors"));
}

TEST(tensors_may_be_pickled)
{
    assert_true(sidecar_name_is_tensors("model.fp16.safetensors"));
    assert_true(sidecar_name_is_tensors("pytorch_model.bin"));
    assert_false(sidecar_name_is_tensors("../pytorch_model.bin"));
    assert_false(sidecar_name_is_tensors("training_args.bin"));
}
