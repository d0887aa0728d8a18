/* What an index says of the files that are there, and of those that are not. */
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

static void a_missing_part_is_absent_while_another_is_there(void **state)
{
    (void)state;
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

static void an_index_without_any_of_its_files_is_passed_over_for_the_only_file(void **state)
{
    (void)state;
    put("a.safetensors");
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, stale);
    assert_int_equal(look(""), 0);
    assert_files("model.safetensors", NULL);
    assert_true(!found.index_source && !found.absent.n && !found.document_name);
    assert_true(found.notes.n == 1 && strstr(found.notes.texts[0], SHARD_INDEX_NAME " is stale"));
}

static void an_index_without_any_of_its_files_is_passed_over_for_one_complete_set(void **state)
{
    (void)state;
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

static void a_page_in_place_of_a_document_is_called_one(void **state)
{
    (void)state;
    put("model.safetensors");
    put_text(SHARD_INDEX_NAME, "\n <!DOCTYPE html><html></html>");
    assert_int_equal(look(""), -1);
    assert_string_equal(error.reason, "WEB_PAGE");
    assert_non_null(strstr(error.message, SHARD_INDEX_NAME));
}

static void an_index_of_diffusers_is_one(void **state)
{
    (void)state;
    put("other.safetensors");
    put("p.safetensors");
    put_text(SHARD_INDEX_DIFFUSION_NAME, "{\"weight_map\": {\"x\": \"p.safetensors\"}}");
    assert_int_equal(look(""), 0);
    assert_files("p.safetensors", NULL);
    assert_string_equal(found.document_name, SHARD_INDEX_DIFFUSION_NAME);
}

static void an_index_that_leads_nowhere_is_not_taken_for_none(void **state)
{
    (void)state;
    put("model.safetensors");
    model_dir_link(folder, SHARD_INDEX_NAME, "nowhere");
    assert_int_equal(look(""), -1);
    assert_non_null(strstr(error.message, SHARD_INDEX_NAME));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_index_names_the_files),
        TEST(a_missing_part_is_absent_while_another_is_there),
        TEST(an_index_without_any_of_its_files_is_passed_over_for_the_only_file),
        TEST(an_index_without_any_of_its_files_is_passed_over_for_one_complete_set),
        TEST(a_page_in_place_of_a_document_is_called_one),
        TEST(an_index_of_diffusers_is_one),
        TEST(an_index_that_leads_nowhere_is_not_taken_for_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
