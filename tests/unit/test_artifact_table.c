/* The headers of all part files as one table, held against the index. */
#include "tests/support/unit.h"

#include "resolve/artifact_table.h"
#include "resolve/safetensors.h"

#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define TWO(a, b)                                                                                                           \
    "{\"" a "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"" b                                               \
    "\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[4,10]}}"

static const char *const files[] = {"a.safetensors", "b.safetensors"};

static struct part_header *parse(const char *json, uint64_t data_bytes)
{
    struct error error;
    struct part_header *header = safetensors_parse(json, strlen(json), 8 + strlen(json) + data_bytes, &error);
    if (!header)
        fail_msg("%s", error.message);
    return header;
}

/* Two files; index NULL = none. The headers' own references are given up, so the table has to have some. */
static struct artifact_table *build(const char *first, uint64_t first_bytes, const char *second, uint64_t second_bytes,
                                    const char *index_json, struct error *error)
{
    struct part_header *headers[2] = {parse(first, first_bytes), parse(second, second_bytes)};
    struct shard_index *index = index_json ? shard_index_parse(index_json, strlen(index_json), error) : NULL;
    struct artifact_table *table = artifact_table_build(headers, files, 2, index, error);
    shard_index_destroy(index);
    part_header_unref(headers[0]);
    part_header_unref(headers[1]);
    return table;
}

TEST(tensors_come_by_file_and_offset_and_are_found_by_name)
{
    struct error error;
    struct artifact_table *table = build(TWO("z", "y"), 10, ONE("x"), 4, NULL, &error);
    assert_non_null(table);
    assert_int_equal(table->n_tensors, 3);
    assert_int_equal(table->total_bytes, 4 + 6 + 4);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(table->tensors[i].name, ((const char *[]){"z", "y", "x"})[i]);
        assert_int_equal(map_find(&table->by_name, table->tensors[i].name, 1), i);
    }
    assert_int_equal(table->pieces[table->tensors[1].first_piece].file, 0);
    assert_int_equal(table->pieces[table->tensors[2].first_piece].file, 1);
    assert_int_equal(map_find(&table->by_name, "w", 1), MAP_NONE);
    artifact_table_unref(table);
}

TEST(a_table_lives_as_long_as_its_last_reference)
{
    struct error error;
    struct artifact_table *table = build(ONE("x"), 4, ONE("y"), 4, NULL, &error);
    struct artifact_table *other = artifact_table_ref(table);
    artifact_table_unref(table);
    assert_string_equal(other->tensors[1].name, "y");
    artifact_table_unref(other);
    artifact_table_unref(NULL);
}

TEST(a_name_in_two_files_is_an_error_that_names_both)
{
    struct error error;
    assert_null(build(ONE("x"), 4, TWO("y", "x"), 10, NULL, &error));
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "tensor x is in a.safetensors and in b.safetensors"));
}

TEST(an_index_that_agrees_changes_nothing_and_another_is_refused)
{
    static const struct {
        const char *x_in, *other, *other_in, *complaint; /* NULL = it agrees */
    } cases[] = {{"a", "y", "b", NULL},
                 {"a", "z", "b", "tensor z is not in b.safetensors"},
                 {"b", "y", "a", "tensor x is not in b.safetensors"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char index[128];
        struct error error;
        snprintf(index, sizeof index, "{\"weight_map\": {\"x\": \"%s.safetensors\", \"%s\": \"%s.safetensors\"}}",
                 cases[i].x_in, cases[i].other, cases[i].other_in);
        struct artifact_table *table = build(ONE("x"), 4, ONE("y"), 4, index, &error);
        if (!table != !!cases[i].complaint)
            fail_msg("%s", index);
        if (table)
            assert_string_equal(table->tensors[0].name, "x");
        else if (error.code != ERROR_DATA_LOSS || !strstr(error.message, cases[i].complaint))
            fail_msg("no \"%s\" in: %s", cases[i].complaint, error.message);
        artifact_table_unref(table);
    }
}

TEST(a_tensor_that_no_index_lists_is_left_out)
{
    struct error error;
    struct artifact_table *table = build(TWO("x", "more"), 10, ONE("y"), 4,
                                         "{\"weight_map\": {\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}}", &error);
    assert_non_null(table);
    assert_true(table->n_tensors == 2 && table->n_pieces == 2 && table->total_bytes == 8);
    assert_int_equal(table->pieces[1].tensor, 1);
    assert_int_equal(map_find(&table->by_name, "more", 4), MAP_NONE);
    assert_int_equal(table->notes.n, 1);
    artifact_table_unref(table);
}

TEST(an_index_decides_which_of_two_files_has_a_tensor)
{
    struct error error;
    struct artifact_table *table =
        build(TWO("x", "w"), 10, TWO("y", "x"), 10,
              "{\"weight_map\": {\"x\": \"b.safetensors\", \"w\": \"a.safetensors\", \"z\": \"c\"}}", &error);
    assert_non_null(table);
    assert_int_equal(table->n_tensors, 2);
    const struct tensor_record *x = &table->tensors[map_find(&table->by_name, "x", 1)];
    assert_true(x->dtype == DTYPE_F16 && table->pieces[x->first_piece].file == 1);
    assert_true(table->absent.files.n == 1 && table->absent.n_tensors == 1);
    assert_string_equal(table->absent.tensors[0].name, "z");
    artifact_table_unref(table);
}

TEST(a_hostile_name_does_not_reach_the_terminal)
{
    struct error error;
    assert_null(build(ONE("\\u001b[2J"), 4, ONE("\\u001b[2J"), 4, NULL, &error));
    assert_null(strchr(error.message, '\033'));
}
