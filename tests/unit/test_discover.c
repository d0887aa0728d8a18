/* Which files a checkpoint is made of, and the manifest beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "resolve/discover.h"
#include "tests/support/model_dir.h"

#include <cmocka.h> /* last: it makes a macro of fail */

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

static void without_an_index_the_one_file_is_taken_alone(void **state)
{
    (void)state;
    put("a.safetensors");
    put("model.safetensors");
    assert_int_equal(look(""), 0);
    assert_files("model.safetensors", NULL);
    assert_null(found.index_source);
}

static void else_all_files_count_in_the_order_of_their_names(void **state)
{
    (void)state;
    put("b.safetensors");
    put("a.safetensors");
    put_text("notes.txt", "x");
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", "b.safetensors");
}

static void a_reference_to_a_file_is_that_file(void **state)
{
    (void)state;
    put("a.safetensors");
    put("b.safetensors");
    assert_int_equal(look("/b.safetensors"), 0);
    assert_files("b.safetensors", NULL);
}

static void the_only_file_of_diffusers_is_taken_alone(void **state)
{
    (void)state;
    put("diffusion_pytorch_model.safetensors");
    put("diffusion_pytorch_model.fp16.safetensors");
    assert_int_equal(look(""), 0);
    assert_files("diffusion_pytorch_model.safetensors", NULL);
}

static void a_folder_with_the_name_of_a_part_is_none(void **state)
{
    char path[MODEL_PATH_CHARS + 32];
    (void)state;
    put("a.safetensors");
    snprintf(path, sizeof path, "%s/b.safetensors", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", NULL);
    assert_int_equal(found.notes.n, 0);
}

static void a_link_to_nowhere_is_an_obstacle_only_where_it_may_be_missing(void **state)
{
    (void)state;
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

static void files_of_several_ranks_are_refused_by_what_they_are(void **state)
{
    (void)state;
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

static void an_empty_folder_is_no_checkpoint(void **state)
{
    (void)state;
    assert_int_equal(look(""), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_string_equal(error.reason, "NO_CHECKPOINT");
}

static void a_manifest_that_cannot_be_read_is_a_problem_and_none_is_not(void **state)
{
    const char *roots[] = {folder};
    const struct source_options options = {.trusted_roots = roots, .n_trusted_roots = 1};
    const struct lookup lookup = {.fresh = true};
    struct error problem;
    (void)state;
    put("model.safetensors");
    assert_int_equal(look(""), 0);
    assert_null(discover_manifest(&found, &options, &lookup, &problem));
    assert_int_equal(problem.code, ERROR_OK);
    put_text("model.manifest.json", "no JSON");
    assert_null(discover_manifest(&found, &options, &lookup, &problem));
    assert_int_equal(problem.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(problem.message, "model.manifest.json"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_an_index_the_one_file_is_taken_alone),
        TEST(else_all_files_count_in_the_order_of_their_names),
        TEST(a_reference_to_a_file_is_that_file),
        TEST(the_only_file_of_diffusers_is_taken_alone),
        TEST(a_folder_with_the_name_of_a_part_is_none),
        TEST(a_link_to_nowhere_is_an_obstacle_only_where_it_may_be_missing),
        TEST(files_of_several_ranks_are_refused_by_what_they_are),
        TEST(an_empty_folder_is_no_checkpoint),
        TEST(a_manifest_that_cannot_be_read_is_a_problem_and_none_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
