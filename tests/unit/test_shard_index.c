/* model.safetensors.index.json: what is taken from it and what is refused. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/shard_index.h"

static struct shard_index *parse(const char *text, struct error *error)
{
    return shard_index_parse(text, strlen(text), error);
}

TEST(malformed_documents_are_refused)
{
    static const char *const malformed[] = {
        "",
        "{",
        "[]",
        "null",
        "7",
        "{}",
        "\xef\xbb\xbf{}",
        "{\"weight_map\": []}",
        "{\"weight_map\": null}",
        "{\"weight_map\": {\"a\": 7}}",
        "{\"weight_map\": {\"a\": null}}",
        "{\"weight_map\": {\"a\": [\"f\"]}}",
        "{\"weight_map\": {\"a\": \"f\"}} trailing",
        "{\"weight_map\": {\"a\": \"f\"}, \"weight_map\": {}}",
        "{\"weight_map\": {}}",
        "{\"weight_map\": {\"a\": \"f\",}}",
        "{\"metadata\": {\"x\": tru}, \"weight_map\": {\"a\": \"f\"}}",
    };
    struct error error;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        if (parse(malformed[i], &error))
            fail_msg("accepted: %s", malformed[i]);
        assert_int_equal(error.code, ERROR_DATA_LOSS);
    }
}

TEST(a_file_must_lie_in_the_folder_or_below)
{
    static const char *const documents[] = {
        "{\"weight_map\": {\"a.w\": \"\"}}",
        "{\"weight_map\": {\"a.w\": \".\"}}",
        "{\"weight_map\": {\"a.w\": \"..\"}}",
        "{\"weight_map\": {\"a.w\": \"../f\"}}",
        "{\"weight_map\": {\"a.w\": \"/etc/passwd\"}}",
        "{\"weight_map\": {\"a.w\": \"sub/../../f\"}}",
        "{\"weight_map\": {\"a.w\": \"sub/./f\"}}",
        "{\"weight_map\": {\"a.w\": \"sub//f\"}}",
        "{\"weight_map\": {\"a.w\": \"sub/\"}}",
        "{\"weight_map\": {\"a.w\": \"sub/.hidden/f\"}}",
        "{\"weight_map\": {\"a.w\": \"f\\u0000g\"}}",
        "{\"weight_map\": {\"a.w\": \"\\u002e\\u002e\\u002ff\"}}",
        "{\"weight_map\": {\"a.w\": \".hidden\"}}",
    };
    struct error error;
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        assert_null(parse(documents[i], &error));
        assert_int_equal(error.code, ERROR_DATA_LOSS);
        assert_non_null(strstr(error.message, "a.w"));
    }
}

TEST(files_are_sorted_and_entries_point_at_them)
{
    static const char text[] =
        "{\"extra\": [1, {\"x\": null}], \"weight_map\": {\"a\": \"m-2\", \"\\u00e9\": \"m-1\", \"c\": \"m-2\"},"
        " \"metadata\": {\"total_size\": 96, \"weight_map\": 3}}";
    struct error error;
    struct shard_index *index = parse(text, &error);
    assert_non_null(index);
    assert_int_equal(index->n_files, 2);
    assert_string_equal(index->files[0], "m-1");
    assert_string_equal(index->files[1], "m-2");
    assert_int_equal(index->n_entries, 3);
    static const uint32_t files[] = {1, 0, 1};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(index->entries[i].file, files[i]);
    assert_int_equal(index->entries[1].name_length, 2);
    assert_memory_equal(index->entries[1].name, "\xc3\xa9", 2);
    shard_index_destroy(index);
    shard_index_destroy(NULL);
}

TEST(of_what_occurs_twice_the_last_one_counts)
{
    static const char text[] = "{\"metadata\": {\"loss\": NaN}, \"weight_map\": {\"z\": \"old\"}, "
                               "\"weight_map\": {\"a\": \"gone\", \"b\": \"deep/er/f\", \"\\u0061\": \"g\"}}";
    struct error error;
    struct shard_index *index = parse(text, &error);
    assert_non_null(index);
    assert_true(index->n_files == 2 && index->n_entries == 2);
    assert_string_equal(index->files[0], "deep/er/f");
    assert_string_equal(index->files[1], "g");
    assert_memory_equal(index->entries[0].name, "a", 1);
    assert_true(index->entries[0].file == 1 && index->entries[1].file == 0);
    shard_index_destroy(index);
}

TEST(there_may_be_10000_files_and_no_more)
{
    for (int n = SHARD_INDEX_MAX_FILES; n <= SHARD_INDEX_MAX_FILES + 1; n++) {
        struct error error;
        size_t count = 0, room = 32 * (size_t)n + 64;
        char *text = memory_alloc(room);
        for (int i = 0; i < n; i++)
            count += (size_t)snprintf(text + count, room - count, "%s\"%d\":\"f%d\"", i ? "," : "{\"weight_map\":{", i, i);
        snprintf(text + count, room - count, "}}");
        struct shard_index *index = parse(text, &error);
        free(text);
        if (n <= SHARD_INDEX_MAX_FILES)
            assert_int_equal(index->n_files, n);
        else
            assert_true(!index && strcmp(error.reason, "TOO_MANY_FILES") == 0);
        shard_index_destroy(index);
    }
}
