/* The files of an artifact as an artifact of bytes: which are listed, what they hold, what is refused. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "resolve/artifact_files.h"
#include "tests/support/source_bytes.h"
#include "tests/support/model_dir.h"

static char folder[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8];
static struct source_options options;
static const char *roots[1];
static struct error error;

static void put(const char *name, const void *bytes, size_t count)
{
    char path[MODEL_PATH_CHARS];
    model_dir_write(model_dir_path(folder, "m", path), name, bytes, count);
}

/* One tensor "w" of four bytes. */
static void put_part(const char *name, const char *data)
{
    static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    char file[128] = {(char)(sizeof header - 1)};
    memcpy(file + 8, header, sizeof header - 1);
    memcpy(file + 8 + sizeof header - 1, data, 4);
    put(name, file, 8 + sizeof header - 1 + 4);
}

static int make(void **state)
{
    (void)state;
    model_dir_create(folder);
    snprintf(reference, sizeof reference, "disk:%s/m", folder);
    model_dir_mkdir(folder, "m");
    roots[0] = folder;
    options = (struct source_options){.trusted_roots = roots, .n_trusted_roots = 1};
    memset(&error, 0, sizeof error);
    put_part("model.safetensors", "abcd");
    put("config.json", "{}", 2);
    put("notes", "x", 1);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    model_dir_destroy(folder);
    return 0;
}

static struct artifact *list(enum artifact_file_kind kind)
{
    struct artifact *artifact;
    artifact_files_list(reference, &options, NULL, 0, kind, &artifact, &error);
    return artifact;
}

static struct artifact *open_names(const char *const *names, size_t n, const char *identity)
{
    struct artifact *artifact;
    const struct file_names wanted = {.names = names, .n = n, .identity = identity};
    artifact_files_open(reference, &options, &wanted, &artifact, &error);
    return artifact;
}

static void assert_refused(const char *const *names, size_t n, const char *identity, const char *reason)
{
    assert_null(open_names(names, n, identity));
    assert_string_equal(error.reason, reason);
}

static void assert_lists(enum artifact_file_kind kind, const char *const *names, size_t n)
{
    struct artifact *artifact = list(kind);
    assert_non_null(artifact);
    assert_int_equal(artifact->n_tensors, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(artifact->source->files[i].name, names[i]);
    artifact_unref(artifact);
}

TEST_IN(each_kind_has_its_files_and_no_others, make, drop)
{
    static const char *const all[] = {"model.safetensors", "config.json"};
    assert_lists(ARTIFACT_FILES_ALL, all, 2);
    assert_lists(ARTIFACT_FILES_TENSORS, all, 1);
    assert_lists(ARTIFACT_FILES_SIDECARS, all + 1, 1);
}

TEST_IN(the_document_that_names_the_files_is_one_of_them, make, drop)
{
    static const char index[] = "{\"weight_map\":{\"w\":\"model-00001-of-00001.safetensors\"}}";
    static const char *const all[] = {"model-00001-of-00001.safetensors", "model.safetensors.index.json"};
    char path[MODEL_PATH_CHARS + 32];
    snprintf(path, sizeof path, "%s/m/model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    put_part(all[0], "abcd");
    put(all[1], index, sizeof index - 1);
    assert_lists(ARTIFACT_FILES_TENSORS, all, 2);
}

TEST_IN(a_file_is_a_tensor_of_its_bytes, make, drop)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    char bytes[2];
    struct artifact *artifact = open_names(names, 2, "");
    assert_non_null(artifact);
    const struct tensor_record *tensor = &artifact->tensors[map_find(&artifact->by_name, names[0], strlen(names[0]))];
    assert_int_equal(tensor->dtype, DTYPE_U8);
    assert_int_equal(tensor->rank, 1);
    assert_int_equal(tensor->shape[0], 2);
    const struct tensor_piece *piece = artifact_piece(artifact, tensor, 0);
    assert_int_equal(source_read_bytes(artifact->source, piece->file, piece->offset, bytes, 2, &error), 0);
    assert_memory_equal(bytes, "{}", 2);
    artifact_unref(artifact);
}

TEST_IN(headers_are_checked_before_files_of_tensors_are_listed, make, drop)
{
    put("model.safetensors", "version https://git-lfs", 23);
    assert_null(list(ARTIFACT_FILES_ALL));
    assert_int_equal(error.code, ERROR_DATA_LOSS);
}

TEST_IN(a_file_that_changed_since_it_was_listed_is_refused, make, drop)
{
    static const char *const names[] = {"model.safetensors"};
    char identity[DIGEST_HEX_CHARS + 1];
    struct artifact *listed = list(ARTIFACT_FILES_TENSORS);
    artifact_file_identity(listed, 0, identity);
    assert_string_equal(identity, listed->identity);
    artifact_unref(listed);
    listed = open_names(names, 1, identity);
    assert_non_null(listed);
    artifact_unref(listed);
    char path[MODEL_PATH_CHARS + 32];
    snprintf(path, sizeof path, "%s/m/model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    put_part("model.safetensors", "abce");
    assert_refused(names, 1, identity, "SOURCE_CHANGED");
}

TEST_IN(only_names_of_an_artifact_s_files_are_opened, make, drop)
{
    static const char *const names[] = {"notes",       "../m/config.json", ".hidden.json",           "",
                                        "/etc/passwd", "a/config.json",    "a/../model.safetensors", "/m/model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_refused(&names[i], 1, "", "NO_FILE_NAME");
}

TEST_IN(ten_thousand_files_may_be_asked_for_and_not_one_more, make, drop)
{
    const char **names = calloc(ARTIFACT_MAX_FILES + 1, sizeof *names);
    for (size_t i = 0; i <= ARTIFACT_MAX_FILES; i++)
        names[i] = "gone.json";
    assert_refused(names, ARTIFACT_MAX_FILES + 1, "", "TOO_MANY_FILES");
    assert_null(open_names(names, ARTIFACT_MAX_FILES, ""));
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    free(names);
}

TEST_IN(an_artifact_of_files_is_never_the_one_of_its_tensors, make, drop)
{
    struct artifact *tensors;
    assert_int_equal(artifact_resolve(reference, &options, NULL, 0, &tensors, &error), 0);
    struct artifact *files = list(ARTIFACT_FILES_TENSORS);
    assert_string_not_equal(files->source_key, tensors->source_key);
    assert_string_not_equal(files->identity, tensors->identity);
    artifact_unref(files);
    artifact_unref(tensors);
}
