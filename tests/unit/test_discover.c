/* Which files a checkpoint is made of, and the manifest beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

static void the_index_names_the_files(void **state)
{
    (void)state;
    put("a.safetensors");
    put("b.safetensors");
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, "{\"weight_map\": {\"x\": \"b.safetensors\", \"y\": \"a.safetensors\"}}");
    assert_int_equal(look(""), 0);
    assert_files("a.safetensors", "b.safetensors");
    assert_non_null(found.index_source);
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

static void a_missing_part_is_named(void **state)
{
    (void)state;
    put("a.safetensors");
    put_text(SHARD_INDEX_NAME, "{\"weight_map\": {\"x\": \"a.safetensors\", \"y\": \"gone.safetensors\"}}");
    assert_int_equal(look(""), -1);
    assert_non_null(strstr(error.message, "gone.safetensors"));
}

static void an_empty_folder_is_no_checkpoint(void **state)
{
    (void)state;
    assert_int_equal(look(""), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_string_equal(error.reason, "NO_CHECKPOINT");
}

static void an_index_that_leads_nowhere_is_not_taken_for_none(void **state)
{
    (void)state;
    put("model.safetensors");
    model_dir_link(folder, SHARD_INDEX_NAME, "nowhere");
    assert_int_equal(look(""), -1);
    assert_non_null(strstr(error.message, SHARD_INDEX_NAME));
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
        TEST(the_index_names_the_files),
        TEST(without_an_index_the_one_file_is_taken_alone),
        TEST(else_all_files_count_in_the_order_of_their_names),
        TEST(a_reference_to_a_file_is_that_file),
        TEST(a_missing_part_is_named),
        TEST(an_empty_folder_is_no_checkpoint),
        TEST(an_index_that_leads_nowhere_is_not_taken_for_none),
        TEST(a_manifest_that_cannot_be_read_is_a_problem_and_none_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
