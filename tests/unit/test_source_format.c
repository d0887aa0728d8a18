/* What sources are told of safetensors: names of parts, and whether a folder holds all of a checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resolve/source_format.h"

#include <cmocka.h>

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *folder, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void parts_are_told_by_their_names(void **state)
{
    (void)state;
    assert_true(source_format_safetensors.is_part("m/x.safetensors"));
    assert_false(source_format_safetensors.is_part("m/x.safetensors.index.json"));
    assert_false(source_format_safetensors.is_part(""));
}

static void a_folder_is_whole_with_the_index_and_every_part_or_the_one_file(void **state)
{
    static const char index_name[] = "model.safetensors.index.json";
    char folder[] = "/tmp/test_source_format.XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_false(source_format_safetensors.is_whole(folder));
    write_text(folder, "model.safetensors", "");
    assert_true(source_format_safetensors.is_whole(folder));
    write_text(folder, index_name, "{\"weight_map\": {\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}}");
    assert_false(source_format_safetensors.is_whole(folder)); /* the index counts when it is there */
    write_text(folder, "1.safetensors", "");
    assert_false(source_format_safetensors.is_whole(folder));
    write_text(folder, "2.safetensors", "");
    assert_true(source_format_safetensors.is_whole(folder));
    write_text(folder, index_name, "{\"weight_map\": {\"a\": \"../1.safetensors\"}}");
    assert_false(source_format_safetensors.is_whole(folder));
    write_text(folder, index_name, "{");
    assert_false(source_format_safetensors.is_whole(folder));
    static const char *const names[] = {index_name, "model.safetensors", "1.safetensors", "2.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        remove_file(folder, names[i]);
    rmdir(folder);
}

static void a_folder_of_diffusers_is_whole_like_any_other(void **state)
{
    char folder[] = "/tmp/test_source_format.XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_text(folder, "diffusion_pytorch_model.safetensors", "");
    assert_true(source_format_safetensors.is_whole(folder));
    write_text(folder, "diffusion_pytorch_model.safetensors.index.json", "{\"weight_map\": {\"a\": \"1.safetensors\"}}");
    assert_false(source_format_safetensors.is_whole(folder));
    write_text(folder, "1.safetensors", "");
    assert_true(source_format_safetensors.is_whole(folder));
    static const char *const names[] = {"diffusion_pytorch_model.safetensors", "1.safetensors",
                                        "diffusion_pytorch_model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        remove_file(folder, names[i]);
    rmdir(folder);
}

static void a_folder_with_a_topology_is_whole_with_the_files_of_all_ranks(void **state)
{
    char folder[] = "/tmp/test_source_format.XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_text(folder, "model.safetensors", "");
    write_text(folder, "topology.json", "{\"tensors\":{},\"filenames\":[\"r0\",\"r1\"],\"world_size\":2}");
    write_text(folder, "r0", "");
    assert_false(source_format_safetensors.is_whole(folder));
    write_text(folder, "r1", "");
    assert_true(source_format_safetensors.is_whole(folder));
    write_text(folder, "topology.json", "{}");
    assert_false(source_format_safetensors.is_whole(folder));
    static const char *const names[] = {"topology.json", "model.safetensors", "r0", "r1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        remove_file(folder, names[i]);
    rmdir(folder);
}

/* A cache may hold some of them, and an index that names those proves nothing about the others. */
static void shards_of_ranks_are_not_believed_to_be_all_there(void **state)
{
    static const char index_name[] = "model.safetensors.index.json",
                      shard[] = "shard-00001-model-00001-of-00001.safetensors";
    char folder[] = "/tmp/test_source_format.XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_text(folder, shard, "");
    assert_false(source_format_safetensors.is_whole(folder));
    write_text(folder, index_name, "{\"weight_map\": {\"a\": \"shard-00001-model-00001-of-00001.safetensors\"}}");
    assert_false(source_format_safetensors.is_whole(folder));
    remove_file(folder, shard);
    remove_file(folder, index_name);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_told_by_their_names),
        cmocka_unit_test(a_folder_is_whole_with_the_index_and_every_part_or_the_one_file),
        cmocka_unit_test(a_folder_of_diffusers_is_whole_like_any_other),
        cmocka_unit_test(a_folder_with_a_topology_is_whole_with_the_files_of_all_ranks),
        cmocka_unit_test(shards_of_ranks_are_not_believed_to_be_all_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
