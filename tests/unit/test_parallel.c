/* Work for many items at once. */
#include "tests/support/unit.h"

#include "base/parallel.h"

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

TEST(every_item_is_done_once_whatever_the_number_of_threads)
{
    static const size_t threads[] = {0, 1, 2, 16, 5000};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        struct tally tally = {.bad_from = SIZE_MAX};
        struct error error;
        assert_int_equal(parallel_run(ITEMS, threads[t], work, &tally, &error), 0);
        for (size_t i = 0; i < ITEMS; i++)
            assert_int_equal(tally.done[i], 1);
    }
}

TEST(nothing_to_do_is_done)
{
    assert_int_equal(parallel_run(0, 8, work, NULL, NULL), 0);
}

TEST(after_a_failure_the_lowest_one_is_told_and_the_rest_is_left)
{
    static const size_t threads[] = {1, 8};
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
