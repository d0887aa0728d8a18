/* What shards of a distributed checkpoint say of themselves, and what their names say of each other. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/dcp.h"

static const struct dcp_entry *find(struct dcp_info *info, const char *name)
{
    const struct dcp_entry *entry;
    struct error error;
    assert_int_equal(dcp_info_find(info, name, strlen(name), &entry, &error), 0);
    return entry;
}

static struct dcp_info *parse(const char *json)
{
    struct error error;
    struct dcp_info *info = dcp_info_parse(json, strlen(json), &error);
    if (!info)
        fail_msg("%s", error.message);
    return info;
}

TEST(offsets_are_found_by_name)
{
    static const char json[] = "{\"w\": {\"saved_offsets\": [2, 0], \"more\": {}}, \"\\u0062\": {\"saved_offsets\": []}}";
    struct dcp_info *info = parse(json);
    const struct dcp_entry *w = find(info, "w"), *b = find(info, "b");
    assert_true(w && w->rank == 2 && info->numbers[w->offsets_at] == 2 && info->numbers[w->offsets_at + 1] == 0);
    assert_true(b && b->rank == 0);
    assert_null(find(info, "x"));
    assert_ptr_equal(find(info, "b"), b);
    assert_ptr_equal(find(info, "w"), w);
    dcp_info_destroy(info);
}

/* What is written as the entry before is not parsed, and must come to the same. */
TEST(each_entry_may_be_written_otherwise)
{
    static const char json[] = "{\"a\": {\"saved_offsets\": [2, 0]}, \"b\": {\"saved_offsets\": [3, 1]}, "
                               "\"c\": {\"saved_offsets\": [4, 1, 5]}, \"d\": {\"saved_offsets\": [5, 1], \"n\": 6}, "
                               "\"e\": {\"saved_offsets\": [6, 1], \"n\": 7}, \"f\":{\"saved_offsets\":[7,1]}, "
                               "\"g\":{\"saved_offsets\":[]},\"h\":{\"saved_offsets\":[]},\"i\":{\"saved_offsets\":[8,1]}}";
    static const uint32_t ranks[] = {2, 2, 3, 2, 2, 2, 0, 0, 2};
    uint64_t next = 2;
    struct dcp_info *info = parse(json);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const struct dcp_entry *entry = find(info, (char[]){(char)('a' + i), '\0'});
        assert_true(entry && entry->rank == ranks[i]);
        if (entry->rank)
            assert_int_equal(info->numbers[entry->offsets_at], next++);
    }
    dcp_info_destroy(info);
}

TEST(entries_may_tell_the_shape_of_the_whole)
{
    static const char json[] = "{\"a\": {\"saved_offsets\": [1, 0], \"global_shape\": [9, 4]}, "
                               "\"b\": {\"saved_offsets\": [2, 0], \"global_shape\": [9, 4]}, "
                               "\"c\": {\"global_shape\": [9, 4], \"saved_offsets\": [3, 0]}, "
                               "\"d\": {\"global_shape\": [9, 4], \"saved_offsets\": [4, 0]}, "
                               "\"e\": {\"saved_offsets\": [5, 0], \"global_shape\": null}, "
                               "\"f\": {\"saved_offsets\": [6, 0]}}";
    struct dcp_info *info = parse(json);
    for (size_t i = 0; i < 6; i++) {
        const struct dcp_entry *entry = find(info, (char[]){(char)('a' + i), '\0'});
        assert_true(entry->rank == 2 && info->numbers[entry->offsets_at] == i + 1 && entry->has_shape == (i < 4));
        assert_true(i >= 4 || (info->numbers[entry->shape_at] == 9 && info->numbers[entry->shape_at + 1] == 4));
    }
    dcp_info_destroy(info);
}

TEST(what_dcp_does_not_write_is_refused)
{
    static const char *const broken[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"w\": {}}",
        "{\"w\": [0]}",
        "{\"w\": {\"saved_offsets\": 0}}",
        "{\"w\": {\"saved_offsets\": [-1]}}",
        "{\"w\": {\"saved_offsets\": [1.5]}}",
        "{\"w\": {\"saved_offsets\": [18446744073709551616]}}",
        "{\"w\": {\"saved_offsets\": [0], \"global_shape\": [2, 2]}}",
        "{\"w\": {\"saved_offsets\": [0], \"global_shape\": [2.5]}}",
        "{\"w\": {\"global_shape\": [2]}}",
        "{\"w\": {\"saved_offsets\": [0]}} x",
        "{\"w\": {\"saved_offsets\": "
        "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
        "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}",
    };
    struct error error;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (dcp_info_parse(broken[i], strlen(broken[i]), &error))
            fail_msg("accepted: %s", broken[i]);
        assert_int_equal(error.code, ERROR_DATA_LOSS);
    }
}

TEST(a_name_that_occurs_twice_is_found_out)
{
    static const char json[] =
        "{\"v\": {\"saved_offsets\": [0]}, \"w\": {\"saved_offsets\": [0]}, \"w\": {\"saved_offsets\": [1]}}";
    const struct dcp_entry *entry;
    struct error error;
    struct dcp_info *info = parse(json);
    assert_int_equal(dcp_info_find(info, "w", 1, &entry, &error), -1); /* out of turn */
    assert_int_equal(dcp_info_find(info, "w", 1, &entry, &error), -1); /* and again */
    assert_non_null(strstr(error.message, "names tensor w twice"));
    dcp_info_destroy(info);
    info = parse(json);
    assert_ptr_equal(find(info, "v"), &info->entries[0]);
    assert_ptr_equal(find(info, "w"), &info->entries[1]);
    assert_int_equal(dcp_info_end(info, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    dcp_info_destroy(info);
}

static struct artifact_layout read_names(const char *const *names, size_t n)
{
    struct artifact_layout layout;
    struct error error;
    if (dcp_read_numbers(names, n, &layout, &error) < 0)
        fail_msg("%s", error.message);
    return layout;
}

static void drop(struct artifact_layout *layout)
{
    memory_free(layout->missing_shards);
    memory_free(layout->missing_files);
}

#define SHARD(r, k, n) "shard-" r "-model-" k "-of-" n ".safetensors"

TEST(numbers_without_a_gap_are_complete)
{
    static const char *const names[] = {SHARD("00002", "00001", "00002"), SHARD("00001", "00002", "00002"),
                                        "other.safetensors"};
    struct error error;
    struct artifact_layout layout = read_names(names, 3);
    assert_true(layout.kind == LAYOUT_DCP && layout.world_size == 2);
    assert_int_equal(dcp_check_numbers(&layout, &error), 0);
    drop(&layout);
}

TEST(a_missing_shard_is_named_with_what_may_be_done)
{
    static const char *const names[] = {SHARD("00001", "00001", "00001"), SHARD("00004", "00001", "00001")};
    struct error error;
    struct artifact_layout layout = read_names(names, 2);
    assert_int_equal(layout.world_size, 4);
    assert_int_equal(layout.n_missing_shards, 2);
    assert_memory_equal(layout.missing_shards, ((uint32_t[]){2, 3}), 8);
    assert_int_equal(dcp_check_numbers(&layout, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "shard-00002 is missing, and so is another; if rank 2 saved nothing, pass "
                                          "--allow-missing-shards"));
    drop(&layout);
}

TEST(a_missing_file_of_the_set_is_named)
{
    static const char *const one_process[] = {"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"};
    static const char *const ranks[] = {SHARD("00001", "00001", "00002"), SHARD("00002", "00001", "00002")};
    struct error error;
    struct artifact_layout layout = read_names(one_process, 2);
    assert_true(layout.world_size == 1 && layout.n_missing_shards == 0 && layout.n_missing_files == 1);
    assert_int_equal(dcp_check_numbers(&layout, &error), -1);
    assert_non_null(strstr(error.message, "model-00002"));
    drop(&layout);
    layout = read_names(ranks, 2);
    assert_true(layout.n_missing_files == 1 && layout.missing_files[0] == 2);
    drop(&layout);
}

TEST(names_that_disagree_about_the_number_of_files_are_refused)
{
    static const char *const names[] = {SHARD("00001", "00001", "00001"), SHARD("00002", "00001", "00002")};
    struct artifact_layout layout;
    struct error error;
    assert_int_equal(dcp_read_numbers(names, 2, &layout, &error), -1);
    assert_non_null(strstr(error.message, "shard-00002"));
}

TEST(a_number_beyond_100000_is_no_shards)
{
    static const char *const names[] = {SHARD("100000", "00001", "00001"),
                                        SHARD("100001", "00001", "00001"),
                                        SHARD("99999999999999999999", "00001", "00001"),
                                        SHARD("1", "00001", "00001"),
                                        SHARD("00000", "00001", "00001"),
                                        SHARD("00007", "00002", "00001"),
                                        "shard-00008-model-00001-of-00001.safetensors.tmp",
                                        "shard-00009"};
    struct artifact_layout layout = read_names(names, sizeof names / sizeof *names);
    assert_int_equal(layout.world_size, DCP_MAX_NUMBER);
    assert_int_equal(layout.n_missing_shards, DCP_MAX_NUMBER - 1);
    drop(&layout);
}

TEST(names_between_are_those_that_may_be_there)
{
    static const char *const names[] = {SHARD("00002", "00002", "00002"), SHARD("00001", "00001", "00002")};
    size_t n;
    char **between = dcp_names_between(names, 2, 4, &n);
    assert_int_equal(n, 2);
    assert_string_equal(between[0], SHARD("00001", "00002", "00002"));
    assert_string_equal(between[1], SHARD("00002", "00001", "00002"));
    free(between[0]);
    free(between[1]);
    free(between);
    free(dcp_names_between(names, 2, 3, &n)); /* more than wanted */
    assert_int_equal(n, 0);
}
