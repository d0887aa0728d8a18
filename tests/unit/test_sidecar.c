/* Sidecars of a folder on disk and of buffers in memory: which are found, what they hold, what is refused. */
#include "tests/support/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/sidecar_name.h"
#include "resolve/sidecar.h"
#include "tests/support/source_memory.h"
#include "tests/support/model_dir.h"

static char folder[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8];
static struct source_options options;
static const char *roots[1];
static struct error error;

static int make(void **state)
{
    (void)state;
    model_dir_create(folder);
    snprintf(reference, sizeof reference, "disk:%s/m", folder);
    model_dir_mkdir(folder, "m");
    roots[0] = folder;
    options = (struct source_options){.trusted_roots = roots, .n_trusted_roots = 1};
    memset(&error, 0, sizeof error);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    model_dir_destroy(folder);
    source_memory_clear();
    return 0;
}

static void put(const char *name, const char *text)
{
    char path[MODEL_PATH_CHARS];
    model_dir_write(model_dir_path(folder, "m", path), name, text, strlen(text));
}

/* A file of so many bytes. */
static void put_long(const char *name, off_t bytes)
{
    char model[MODEL_PATH_CHARS], path[MODEL_PATH_CHARS];
    put(name, "");
    assert_int_equal(truncate(model_dir_path(model_dir_path(folder, "m", model), name, path), bytes), 0);
}

static struct sidecars *find(const char *const *names, size_t n_names)
{
    return sidecars_open(reference, &options, names, n_names, false, NULL, &error);
}

static void assert_fails(const char *const *names, size_t n_names, enum error_code code, const char *reason)
{
    struct sidecars *found = find(names, n_names);
    assert_null(found);
    assert_int_equal(error.code, code);
    assert_string_equal(error.reason, reason);
}

static void assert_found(const struct sidecars *found, const char *const *names, size_t n_names)
{
    assert_non_null(found);
    assert_int_equal(found->n_files, n_names);
    for (size_t i = 0; i < n_names; i++)
        assert_string_equal(found->files[i].name, names[i]);
}

TEST_IN(a_folder_s_small_files_are_found_and_nothing_else, make, drop)
{
    static const char *const expected[] = {"config.json", "tokenizer.model"};
    char path[MODEL_PATH_CHARS], buffer[8] = "";
    put("config.json", "{}");
    put("tokenizer.model", "words");
    put("model.safetensors", "x");
    put(".hidden.json", "x");
    put("notes", "x");
    model_dir_mkdir(model_dir_path(folder, "m", path), "folder.json");
    model_dir_link(path, "dangling.json", "nowhere");
    struct sidecars *found = find(NULL, 0);
    assert_found(found, expected, 2);
    assert_int_equal(found->files[1].size_bytes, 5);
    assert_int_equal(sidecars_read(found, 1, 2, buffer, 3, NULL, &error), 0);
    assert_string_equal(buffer, "rds");
    sidecars_close(found);
}

TEST_IN(files_that_are_asked_for_come_in_that_order, make, drop)
{
    static const char *const names[] = {"tokenizer.json", "config.json"};
    put("config.json", "{}");
    put("more.json", "{}");
    put("tokenizer.json", "[]");
    struct sidecars *found = find(names, 2);
    assert_found(found, names, 2);
    sidecars_close(found);
}

TEST_IN(a_name_that_is_none_or_is_not_there_is_not_found, make, drop)
{
    static const char *const names[] = {"tokenizer.json", "model.safetensors", "../m/config.json", ".hidden.json"};
    put("config.json", "{}");
    put("model.safetensors", "x");
    put(".hidden.json", "x");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_fails(&names[i], 1, ERROR_NOT_FOUND, "NO_SUCH_SIDECAR");
}

TEST_IN(an_index_is_opened_by_its_name_and_listed_nowhere, make, drop)
{
    const char *index[] = {"model.safetensors.index.json"};
    put("config.json", "{}");
    put(index[0], "{}");
    struct sidecars *found = find(index, 1), *all = find(NULL, 0);
    assert_found(found, index, 1);
    assert_found(all, (const char *[]){"config.json"}, 1);
    sidecars_close(found);
    sidecars_close(all);
}

TEST_IN(a_file_of_tensors_is_listed_where_it_is_asked_for_and_never_opened_to_be_read, make, drop)
{
    const char *tensors[] = {"model.safetensors"}, *missing[] = {"other.safetensors"};
    put_long(tensors[0], (off_t)SIDECAR_MAX_BYTES + 1);
    struct sidecars *found = sidecars_open(reference, &options, tensors, 1, true, NULL, &error);
    assert_found(found, tensors, 1);
    sidecars_close(found);
    assert_null(sidecars_open(reference, &options, missing, 1, true, NULL, &error));
    assert_string_equal(error.reason, "NO_SUCH_SIDECAR");
    memset(&error, 0, sizeof error);
    assert_fails(tensors, 1, ERROR_NOT_FOUND, "NO_SUCH_SIDECAR");
}

TEST_IN(a_file_of_the_limit_is_found_and_one_byte_more_is_not, make, drop)
{
    static const char *const expected[] = {"a.json"}, *const too_large[] = {"b.json"};
    put_long("a.json", SIDECAR_MAX_BYTES);
    put_long("b.json", SIDECAR_MAX_BYTES + 1);
    struct sidecars *found = find(NULL, 0);
    assert_found(found, expected, 1);
    sidecars_close(found);
    assert_fails(too_large, 1, ERROR_NOT_FOUND, "NO_SUCH_SIDECAR");
}

/* An activation store's. */
TEST_IN(manifest_json_may_have_a_gib_and_not_a_byte_more, make, drop)
{
    static const char *const name[] = {"manifest.json"};
    put_long("manifest.json", SIDECAR_MAX_MANIFEST_BYTES);
    struct sidecars *found = find(name, 1);
    assert_found(found, name, 1);
    sidecars_close(found);
    put_long("manifest.json", (off_t)SIDECAR_MAX_MANIFEST_BYTES + 1);
    assert_fails(name, 1, ERROR_NOT_FOUND, "NO_SUCH_SIDECAR");
}

TEST_IN(there_may_be_128_of_them_and_no_more, make, drop)
{
    char name[32];
    for (int i = 0; i < SIDECAR_MAX_FILES; i++) {
        snprintf(name, sizeof name, "%03d.json", i);
        put(name, "");
    }
    struct sidecars *found = find(NULL, 0);
    assert_non_null(found);
    assert_int_equal(found->n_files, SIDECAR_MAX_FILES);
    sidecars_close(found);
    put("one_more.json", "");
    assert_fails(NULL, 0, ERROR_UNIMPLEMENTED, "TOO_MANY_SIDECARS");
}

TEST_IN(a_link_out_of_the_trusted_roots_is_refused, make, drop)
{
    char path[MODEL_PATH_CHARS];
    model_dir_link(model_dir_path(folder, "m", path), "config.json", "/etc/hostname");
    assert_fails(NULL, 0, ERROR_PERMISSION_DENIED, "OUTSIDE_TRUSTED_ROOTS");
}

TEST_IN(a_folder_outside_the_trusted_roots_is_refused, make, drop)
{
    snprintf(reference, sizeof reference, "disk:/etc");
    assert_fails(NULL, 0, ERROR_PERMISSION_DENIED, "OUTSIDE_TRUSTED_ROOTS");
}

TEST_IN(an_artifact_that_is_one_file_has_none, make, drop)
{
    static const char *const names[] = {"config.json"};
    put("config.json", "{}");
    put("model.safetensors", "x");
    snprintf(reference, sizeof reference, "disk:%s/m/model.safetensors", folder);
    struct sidecars *found = find(NULL, 0);
    assert_found(found, NULL, 0);
    sidecars_close(found);
    assert_fails(names, 1, ERROR_NOT_FOUND, "NO_SUCH_SIDECAR");
}

TEST_IN(a_file_that_is_replaced_while_it_is_read_is_an_error_with_its_name, make, drop)
{
    char buffer[4];
    source_memory_put("m", "config.json", "abcd", 4);
    snprintf(reference, sizeof reference, "memory:m");
    struct sidecars *found = find(NULL, 0);
    assert_non_null(found);
    assert_int_equal(sidecars_read(found, 0, 0, buffer, 2, NULL, &error), 0);
    source_memory_put("m", "config.json", "efgh", 4);
    assert_int_equal(sidecars_read(found, 0, 2, buffer, 2, NULL, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "config.json"));
    sidecars_close(found);
}

static struct checksum sum_of(const char *text)
{
    struct checksum_stream stream;
    assert_true(checksum_start(&stream, CHECKSUM_SHA256));
    checksum_add(&stream, text, strlen(text));
    return checksum_finish(&stream);
}

TEST_IN(what_the_store_has_a_checksum_of_is_checked, make, drop)
{
    char buffer[4];
    source_memory_put("m", "config.json", "abcd", 4);
    snprintf(reference, sizeof reference, "memory:m");
    struct sidecars *found = find(NULL, 0);
    assert_non_null(found);
    struct checksum *expected = &found->source->files[0].checksums[0];
    *expected = sum_of("abcd");
    assert_int_equal(sidecars_read(found, 0, 0, buffer, 3, NULL, &error), 0);
    assert_int_equal(sidecars_read(found, 0, 3, buffer, 1, NULL, &error), 0);
    *expected = sum_of("abce");
    assert_int_equal(sidecars_read(found, 0, 3, buffer, 1, NULL, &error), 0); /* nothing is known of a part */
    assert_int_equal(sidecars_read(found, 0, 0, buffer, 3, NULL, &error), 0);
    assert_int_equal(sidecars_read(found, 0, 3, buffer, 1, NULL, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "config.json"));
    assert_int_equal(sidecars_read(found, 0, 0, buffer, 2, NULL, &error), 0); /* given up half way */
    sidecars_close(found);
}

static bool is_set(void *data)
{
    (void)data;
    return true;
}

TEST_IN(a_cancel_ends_the_search, make, drop)
{
    const struct cancel cancel = {.is_set = is_set};
    put("config.json", "{}");
    assert_null(sidecars_open(reference, &options, NULL, 0, false, &cancel, &error));
    assert_int_equal(error.code, ERROR_CANCELLED);
}
