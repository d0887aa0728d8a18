/* Trees of commits are kept whole or not at all, and not for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/hf/hf_trees.h"

#include <cmocka.h>

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

static void a_tree_is_found_as_it_was_by_its_url_alone(void **state)
{
    struct hf_trees *trees = hf_trees_create();
    (void)state;
    assert_int_equal(count_known(trees, "a"), SIZE_MAX);
    add(trees, "a", 3);
    add(trees, "b", 0);
    add(trees, "a", 5); /* a commit never changes */
    assert_int_equal(count_known(trees, "a"), 3);
    assert_int_equal(count_known(trees, "b"), 0);
    assert_int_equal(count_known(trees, "a/b"), SIZE_MAX);
    hf_trees_destroy(trees);
}

static void trees_that_are_too_large_are_not_kept(void **state)
{
    struct hf_trees *trees = hf_trees_create();
    (void)state;
    add(trees, "fits", HF_TREES_MAX_OBJECTS);
    add(trees, "does not", HF_TREES_MAX_OBJECTS + 1);
    assert_int_equal(count_known(trees, "fits"), HF_TREES_MAX_OBJECTS);
    assert_int_equal(count_known(trees, "does not"), SIZE_MAX);
    hf_trees_destroy(trees);
}

static void the_one_kept_longest_goes_first(void **state)
{
    struct hf_trees *trees = hf_trees_create();
    char url[32];
    (void)state;
    for (int i = 0; i <= HF_TREES_MAX; i++) {
        snprintf(url, sizeof url, "tree%d", i);
        add(trees, url, 1);
        if (i == HF_TREES_MAX - 1)
            assert_int_equal(count_known(trees, "tree0"), 1);
    }
    assert_int_equal(count_known(trees, "tree0"), SIZE_MAX);
    assert_int_equal(count_known(trees, "tree1"), 1);
    assert_int_equal(count_known(trees, url), 1);
    hf_trees_destroy(trees);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_is_found_as_it_was_by_its_url_alone),
        cmocka_unit_test(trees_that_are_too_large_are_not_kept),
        cmocka_unit_test(the_one_kept_longest_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
