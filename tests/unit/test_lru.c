/* The bounded map forgets what was used longest ago and never loses count of a reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "resolve/lru.h"

static int counts[200];

static void ref(void *value)
{
    counts[(const int *)value - counts]++;
}

static void unref(void *value)
{
    counts[(const int *)value - counts]--;
}

static const struct lru_ops ops = {.ref = ref, .unref = unref};

static bool has(struct lru *lru, const char *key)
{
    void *value = lru_find(lru, key, 1);
    if (value)
        unref(value);
    return value != NULL;
}

static void the_oldest_use_goes_first(void **state)
{
    struct lru *lru = lru_create(30, &ops);
    (void)state;
    lru_add(lru, "a", 1, &counts[0], 10);
    lru_add(lru, "b", 1, &counts[1], 10);
    lru_add(lru, "c", 1, &counts[2], 10);
    assert_true(has(lru, "a"));
    lru_add(lru, "d", 1, &counts[3], 11); /* one byte too many for one victim */
    assert_true(has(lru, "a") && !has(lru, "b") && !has(lru, "c") && has(lru, "d"));
    assert_int_equal(lru_bytes(lru), 21);
    assert_true(counts[0] == 1 && counts[1] == 0 && counts[2] == 0 && counts[3] == 1);
    lru_destroy(lru);
    lru_destroy(NULL);
    assert_true(counts[0] == 0 && counts[3] == 0);
}

static void a_value_as_large_as_the_cap_is_kept_and_a_larger_one_is_not(void **state)
{
    struct lru *lru = lru_create(30, &ops);
    (void)state;
    lru_add(lru, "a", 1, &counts[0], 31);
    assert_false(has(lru, "a"));
    lru_add(lru, "a", 1, &counts[0], 30);
    assert_true(has(lru, "a"));
    lru_add(lru, "a", 1, &counts[1], 31); /* the old value is out of date either way */
    assert_false(has(lru, "a"));
    assert_int_equal(lru_bytes(lru), 0);
    lru_destroy(lru);
    assert_true(counts[0] == 0 && counts[1] == 0);
}

static void a_key_has_its_newest_value(void **state)
{
    struct lru *lru = lru_create(30, &ops);
    (void)state;
    lru_add(lru, "a", 1, &counts[0], 10);
    lru_add(lru, "a", 1, &counts[1], 20);
    assert_int_equal(lru_bytes(lru), 20);
    void *value = lru_find(lru, "a", 1);
    assert_ptr_equal(value, &counts[1]);
    lru_destroy(lru);
    assert_int_equal(counts[1], 1); /* ours */
    unref(value);
}

static void many_entries_come_and_go(void **state)
{
    struct lru *lru = lru_create(50, &ops);
    char key[8];
    (void)state;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 200; i++) {
            int n = snprintf(key, sizeof key, "%d", i * 37 % 200);
            lru_add(lru, key, (size_t)n, &counts[i], 1);
        }
    }
    assert_int_equal(lru_bytes(lru), 50);
    for (int i = 0; i < 200; i++) {
        int n = snprintf(key, sizeof key, "%d", i * 37 % 200);
        void *value = lru_find(lru, key, (size_t)n);
        assert_int_equal(value != NULL, i >= 150);
        if (value)
            unref(value);
    }
    lru_destroy(lru);
    for (int i = 0; i < 200; i++)
        assert_int_equal(counts[i], 0);
}

static void shrinking_halves_what_is_held_until_nothing_is_left(void **state)
{
    struct lru *lru = lru_create(1000, &ops);
    (void)state;
    assert_false(lru_shrink(lru));
    for (int i = 0; i < 8; i++)
        lru_add(lru, &i, sizeof i, &counts[i], 10);
    assert_true(lru_shrink(lru));
    assert_int_equal(lru_bytes(lru), 40);
    assert_int_equal(counts[3], 0);
    assert_int_equal(counts[4], 1);
    assert_true(lru_shrink(lru) && lru_shrink(lru) && lru_shrink(lru));
    assert_int_equal(lru_bytes(lru), 0);
    assert_false(lru_shrink(lru));
    lru_destroy(lru);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_use_goes_first),
        cmocka_unit_test(a_value_as_large_as_the_cap_is_kept_and_a_larger_one_is_not),
        cmocka_unit_test(a_key_has_its_newest_value),
        cmocka_unit_test(many_entries_come_and_go),
        cmocka_unit_test(shrinking_halves_what_is_held_until_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
