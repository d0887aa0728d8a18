/* Of several copies the one is read whose file is read anyway. */
#include "tests/support/unit.h"

#include "resolve/copy_choice.h"
#include "resolve/mapping.h"
#include "tests/support/source_memory.h"
#include "tests/support/layout_scene.h"

static struct artifact *artifact;

/* Shared s in all files, t in the last two; a, b and c each in one. */
static int create(void **state)
{
    (void)state;
    source_memory_clear();
    layout_put_text("m", "topology.json",
                    "{\"tensors\":{\"s\":{\"type\":\"Shared\",\"shape\":[4],\"dtype\":\"U8\"},"
                    "\"t\":{\"type\":\"Shared\",\"shape\":[2],\"dtype\":\"U8\",\"filename_indices\":[1,2]},"
                    "\"a\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\",\"filename_index\":0},"
                    "\"b\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\",\"filename_index\":1},"
                    "\"c\":{\"type\":\"Shared\",\"shape\":[1],\"dtype\":\"U8\",\"filename_index\":2}},"
                    "\"filenames\":[\"f0\",\"f1\",\"f2\"],\"world_size\":3}");
    layout_put("m", "f0", "s U8 4; a U8 1", NULL, 0);
    layout_put("m", "f1", "s U8 4; t U8 2; b U8 1", NULL, 0);
    layout_put("m", "f2", "c U8 1; t U8 2; s U8 4", NULL, 0);
    artifact = layout_resolve("m", 0);
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    artifact_unref(artifact);
    source_memory_clear();
    return 0;
}

/* Files that a view of these tensors, one letter each, reads: a bit each. */
static unsigned files_read(const char *letters)
{
    struct view_item items[8] = {{0}};
    struct view_spec view = {.items = items, .n_items = strlen(letters), .align_bytes = 1};
    struct error error;
    unsigned files = 0;
    for (size_t i = 0; i < view.n_items; i++)
        items[i] = (struct view_item){.name = &letters[i], .name_length = 1};
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    if (!mapping)
        fail_msg("%s", error.message);
    assert_int_equal(mapping->n_transfers, view.n_items); /* each tensor once */
    for (uint32_t file = 0; file < 3; file++)
        files |= mapping->file_first[file + 1] > mapping->file_first[file] ? 1u << file : 0;
    mapping_destroy(mapping);
    return files;
}

TEST_IN(a_copy_comes_from_a_file_that_is_read_anyway, create, destroy)
{
    assert_int_equal(files_read("s"), 1); /* any will do */
    assert_int_equal(files_read("sa"), 1);
    assert_int_equal(files_read("sb"), 2);
    assert_int_equal(files_read("cs"), 4);
    assert_int_equal(files_read("sct"), 4);
    assert_int_equal(files_read("stb"), 2);
    assert_int_equal(files_read("sac"), 5);
    assert_int_equal(files_read("ta"), 3); /* t is in neither */
}

TEST_IN(what_is_not_wanted_touches_no_file, create, destroy)
{
    struct copy_choice choice;
    struct error error;
    assert_int_equal(copy_choice_init(&choice, artifact, &error), 0);
    copy_choice_settle(&choice);
    for (size_t i = 0; i < artifact->n_pieces; i++)
        assert_false(copy_choice_takes(&choice, i));
    copy_choice_fini(&choice);
}

TEST_IN(the_copy_that_is_taken_is_found_from_the_first, create, destroy)
{
    struct copy_choice choice;
    struct error error;
    const struct tensor_piece *s = artifact_piece(artifact, layout_tensor(artifact, "s"), 0);
    const struct tensor_piece *c = artifact_piece(artifact, layout_tensor(artifact, "c"), 0);
    assert_int_equal(copy_choice_init(&choice, artifact, &error), 0);
    copy_choice_want(&choice, s);
    copy_choice_want(&choice, c);
    copy_choice_settle(&choice);
    assert_ptr_equal(copy_choice_find(&choice, c), c);
    const struct tensor_piece *taken = copy_choice_find(&choice, s);
    assert_true(taken->file == 2 && taken->tensor == s->tensor);
    copy_choice_fini(&choice);
    copy_choice_fini(&choice);
}
