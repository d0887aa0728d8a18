/* Which files a checkpoint is made of, by an index or without one, and the manifest beside it. */
#include "tests/support/unit.h"

#include <sys/stat.h>

#include "resolve/discover.h"
#include "tests/support/model_dir.h"

static char folder[MODEL_PATH_CHARS];
static struct discovery found;
static struct error error;

static int set_up(void **state)
{
    (void)state;
    model_dir_create(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    discovery_fini(&found);
    model_dir_destroy(folder);
    return 0;
}

static int look(const char *name)
{
    char reference[MODEL_PATH_CHARS + 64];
    const char *roots[] = {folder};
    const struct source_options options = {.trusted_roots = roots, .n_trusted_roots = 1};
    struct lookup lookup = {.fresh = true};
    snprintf(reference, sizeof reference, "disk:%s%s", folder, name);
    return discover(reference, &options, &lookup, &found, &error);
}

static void put(const char *name)
{
    model_dir_safetensors(folder, name, "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
}

static void put_text(const char *name, const char *text)
{
    model_dir_write(folder, name, text, strlen(text));
}

static void assert_files(const char *first, const char *second)
{
    assert_int_equal(found.source->n_files, second ? 2 : 1);
    assert_string_equal(found.source->files[0].name, first);
    if (second)
        assert_string_equal(found.source->files[1].name, second);
}

TEST_IN(without_an_index_the_one_file_is_taken_alone, set_up, tear_down)
{
    put("a.safetensors");
    put("model.safetensors");
    assert_int_equal(look(""), 0);
    assert_files("model.safetensors", NULL);
    assert_null(found.index_source);
}

TEST_IN(else_all_files_count_in_the_order_of_their_names, set_up, tear_down)
{
    put("b.safetensors");
    put("a.safetensors");
    put_text("notes.txt", "x");
    put_text("._a.safetensors", "left behind by macOS");
    put_text(".safetensors", "x");
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", "b.safetensors");
}

TEST_IN(a_reference_to_a_file_is_that_file, set_up, tear_down)
{
    put("a.safetensors");
    put("b.safetensors");
    assert_int_equal(look("/b.safetensors"), 0);
    assert_files("b.safetensors", NULL);
}

TEST_IN(the_only_file_of_diffusers_is_taken_alone, set_up, tear_down)
{
    put("diffusion_pytorch_model.safetensors");
    put("diffusion_pytorch_model.fp16.safetensors");
    assert_int_equal(look(""), 0);
    assert_files("diffusion_pytorch_model.safetensors", NULL);
}

TEST_IN(a_folder_with_the_name_of_a_part_is_none, set_up, tear_down)
{
    char path[MODEL_PATH_CHARS + 32];
    put("a.safetensors");
    snprintf(path, sizeof path, "%s/b.safetensors", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", NULL);
    assert_int_equal(found.notes.n, 0);
}

TEST_IN(a_link_to_nowhere_is_an_obstacle_only_where_it_may_be_missing, set_up, tear_down)
{
    put("a-1-of-2.safetensors");
    model_dir_link(folder, "extra.safetensors", "nowhere");
    assert_int_equal(look(""), -1);
    assert_non_null(strstr(error.message, "extra.safetensors"));
    discovery_fini(&found);
    put("a-2-of-2.safetensors");
    assert_int_equal(look(""), 0);
    assert_files("a-1-of-2.safetensors", "a-2-of-2.safetensors");
    assert_true(found.notes.n == 1 && strstr(found.notes.texts[0], "extra.safetensors leads to no file"));
}

TEST_IN(files_of_several_ranks_are_refused_by_what_they_are, set_up, tear_down)
{
    put("model-rank-0-part-0.safetensors");
    put("model-rank-0-part-1.safetensors");
    assert_int_equal(look(""), 0);
    assert_null(found.gap);
    discovery_fini(&found);
    put("model-rank-1-part-0.safetensors");
    assert_int_equal(look(""), -1);
    assert_string_equal(error.reason, "SHARDED_STATE");
    assert_non_null(strstr(error.message, "/model-rank-0-part-0.safetensors"));
}

TEST_IN(an_empty_folder_is_no_checkpoint, set_up, tear_down)
{
    assert_int_equal(look(""), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_string_equal(error.reason, "NO_CHECKPOINT");
}

TEST_IN(a_manifest_that_cannot_be_read_is_a_problem_and_none_is_not, set_up, tear_down)
{
    const char *roots[] = {folder};
    const struct source_options options = {.trusted_roots = roots, .n_trusted_roots = 1};
    const struct lookup lookup = {.fresh = true};
    struct error problem;
    put("model.safetensors");
    assert_int_equal(look(""), 0);
    assert_null(discover_manifest(&found, &options, &lookup, &problem));
    assert_int_equal(problem.code, ERROR_OK);
    put_text("model.manifest.json", "no JSON");
    assert_null(discover_manifest(&found, &options, &lookup, &problem));
    assert_int_equal(problem.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(problem.message, "model.manifest.json"));
}

/* --- an index --- */

TEST_IN(the_index_names_the_files, set_up, tear_down)
{
    put("a.safetensors");
    put("b.safetensors");
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, "{\"weight_map\": {\"x\": \"b.safetensors\", \"y\": \"a.safetensors\"}}");
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", "b.safetensors");
    assert_non_null(found.index_source);
}

TEST_IN(a_missing_part_is_absent_while_another_is_there, set_up, tear_down)
{
    put("a.safetensors");
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, "{\"weight_map\": {\"x\": \"a.safetensors\", \"y\": \"gone.safetensors\"}}");
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", NULL);
    assert_int_equal(found.absent.n, 1);
    assert_string_equal(found.absent.texts[0], "gone.safetensors");
    assert_true(found.notes.n == 1 && strstr(found.notes.texts[0], "model.safetensors beside it"));
}

static const char stale[] = "{\"weight_map\": {\"x\": \"old-1.safetensors\", \"y\": \"old-2.safetensors\"}}";

TEST_IN(an_index_without_any_of_its_files_is_passed_over_for_the_only_file, set_up, tear_down)
{
    put("a.safetensors");
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, stale);
    assert_int_equal(look(""), 0);
    assert_files("model.safetensors", NULL);
    assert_true(!found.index_source && !found.absent.n && !found.document_name);
    assert_true(found.notes.n == 1 && strstr(found.notes.texts[0], SHARD_INDEX_NAME " is stale"));
}

TEST_IN(an_index_without_any_of_its_files_is_passed_over_for_one_complete_set, set_up, tear_down)
{
    put("stray.safetensors");
    put("y-00000-of-00002.safetensors");
    put_text(SHARD_INDEX_NAME, stale);
    assert_int_equal(look(""), -1);
    assert_non_null(strstr(error.message, "old-1.safetensors"));
    assert_non_null(strstr(error.message, "y-00001-of-00002.safetensors is missing"));
    discovery_fini(&found);
    put("y-00001-of-00002.safetensors");
    assert_int_equal(look(""), 0);
    assert_files("y-00000-of-00002.safetensors", "y-00001-of-00002.safetensors");
    assert_int_equal(found.notes.n, 1);
}

TEST_IN(a_page_in_place_of_a_document_is_called_one, set_up, tear_down)
{
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, "\n <!DOCTYPE html><html></html>");
    assert_int_equal(look(""), -1);
    assert_string_equal(error.reason, "WEB_PAGE");
    assert_non_null(strstr(error.message, SHARD_INDEX_NAME));
}

TEST_IN(an_index_of_diffusers_is_one, set_up, tear_down)
{
    put("other.safetensors");
    put("p.safetensors");
    put_text(SHARD_INDEX_DIFFUSION_NAME, "{\"weight_map\": {\"x\": \"p.safetensors\"}}");
    assert_int_equal(look(""), 0);
    assert_files("p.safetensors", NULL);
    assert_string_equal(found.document_name, SHARD_INDEX_DIFFUSION_NAME);
}

TEST_IN(an_index_that_leads_nowhere_is_not_taken_for_none, set_up, tear_down)
{
    put("model.safetensors");
    model_dir_link(folder, SHARD_INDEX_NAME, "nowhere");
    assert_int_equal(look(""), -1);
    assert_non_null(strstr(error.message, SHARD_INDEX_NAME));
}
