/* Work for many items at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/parallel.h"

#include <cmocka.h>

enum { ITEMS = 1000 };

struct tally {
    int done[ITEMS];
    size_t bad_from;
};

static int work(void *data, size_t i, struct error *error)
{
    struct tally *tally = data;
    __atomic_add_fetch(&tally->done[i], 1, __ATOMIC_RELAXED);
    if (i < tally->bad_from)
        return 0;
    snprintf(error->message, sizeof error->message, "item %zu", i); /* not fail(): that is a macro of cmocka here */
    return -1;
}

static void every_item_is_done_once_whatever_the_number_of_threads(void **state)
{
    static const size_t threads[] = {0, 1, 2, 16, 5000};
    (void)state;
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct tally tally = {.bad_from = SIZE_MAX};
        struct error error;
        assert_int_equal(parallel_run(ITEMS, threads[t], work, &tally, &error), 0);
        for (size_t i = 0; i < ITEMS; i++)
            assert_int_equal(tally.done[i], 1);
    }
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    assert_int_equal(parallel_run(0, 8, work, NULL, NULL), 0);
}

static void after_a_failure_the_lowest_one_is_told_and_the_rest_is_left(void **state)
{
    static const size_t threads[] = {1, 8};
    (void)state;
    for (size_t t = 0; t < 2; t++) {
        struct tally tally = {.bad_from = 100};
        struct error error;
        size_t begun = 0;
        assert_int_equal(parallel_run(ITEMS, threads[t], work, &tally, &error), -1);
        assert_string_equal(error.message, "item 100");
        for (size_t i = 0; i < ITEMS; i++)
            begun += (size_t)tally.done[i];
        assert_in_range(begun, 101, 100 + threads[t]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once_whatever_the_number_of_threads),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(after_a_failure_the_lowest_one_is_told_and_the_rest_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
