/* Trees of commits are kept whole or not at all, and not for ever. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "source/hf/hf_trees.h"

static struct object_source *make_table(size_t n_objects)
{
    struct object_source *table = memory_alloc(sizeof *table);
    struct error error;
    for (size_t i = 0; i < n_objects; i++) {
        struct object object = {.name = memory_print("part%zu", i),
                                .size_bytes = i,
                                .pin = memory_print("commit %zu", i),
                                .checksums = {{.kind = CHECKSUM_SHA256, .value = {(unsigned char)i}}}};
        assert_int_equal(object_source_add(table, &object, &error), 0);
    }
    return table;
}

static void free_table(struct object_source *table)
{
    for (size_t i = 0; i < table->n_objects; i++) {
        object_clear(table->objects[i]);
        free(table->objects[i]);
    }
    free(table->objects);
    free(table);
}

/* How many objects are known of that tree, which are those of make_table(); SIZE_MAX = it is not known. */
static size_t count_known(struct hf_trees *trees, const char *url)
{
    struct object_source *table = make_table(0);
    struct error error;
    int known = hf_trees_find(trees, url, table, &error);
    size_t n_objects = known == 1 ? table->n_objects : SIZE_MAX;
    for (size_t i = 0; i < table->n_objects; i++) {
        char name[32], pin[32];
        snprintf(name, sizeof name, "part%zu", i);
        snprintf(pin, sizeof pin, "commit %zu", i);
        assert_string_equal(table->objects[i]->name, name);
        assert_string_equal(table->objects[i]->pin, pin);
        assert_int_equal(table->objects[i]->size_bytes, i);
        assert_int_equal(table->objects[i]->checksums[0].value[0], (unsigned char)i);
    }
    free_table(table);
    return n_objects;
}

static void add(struct hf_trees *trees, const char *url, size_t n_objects)
{
    struct object_source *table = make_table(n_objects);
    hf_trees_add(trees, url, table);
    free_table(table);
}

TEST(a_tree_is_found_as_it_was_by_its_url_alone)
{
    struct hf_trees *trees = hf_trees_create(NULL);
    assert_int_equal(count_known(trees, "a"), SIZE_MAX);
    add(trees, "a", 3);
    add(trees, "b", 0);
    add(trees, "a", 5); /* a commit never changes */
    assert_int_equal(count_known(trees, "a"), 3);
    assert_int_equal(count_known(trees, "b"), 0);
    assert_int_equal(count_known(trees, "a/b"), SIZE_MAX);
    hf_trees_destroy(trees);
}

TEST(trees_that_are_too_large_are_not_kept_and_the_one_kept_longest_goes_first)
{
    struct hf_trees *trees = hf_trees_create(NULL);
    char url[32];
    add(trees, "fits", HF_TREES_MAX_OBJECTS);
    add(trees, "does not", HF_TREES_MAX_OBJECTS + 1);
    assert_int_equal(count_known(trees, "does not"), SIZE_MAX);
    for (int i = 1; i <= HF_TREES_MAX; i++) {
        assert_int_equal(count_known(trees, "fits"), HF_TREES_MAX_OBJECTS);
        snprintf(url, sizeof url, "tree%d", i);
        add(trees, url, 1);
    }
    assert_int_equal(count_known(trees, "fits"), SIZE_MAX);
    assert_int_equal(count_known(trees, "tree1"), 1);
    assert_int_equal(count_known(trees, url), 1);
    hf_trees_destroy(trees);
}
