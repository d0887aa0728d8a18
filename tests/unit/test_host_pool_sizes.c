/* Which sizes are prepared, and what does for a load of another size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "device/host_pool_sizes.h"
#include "base/huge_pages.h"

#include <cmocka.h>

#define MIB(n) ((uint64_t)(n) << 20)

static void nothing_is_known_at_first_so_the_budget_is_halved_and_halved(void **state)
{
    const struct pool_recent none = {.n = 0};
    const uint64_t expected[] = {MIB(512), MIB(256), MIB(128), MIB(64), MIB(64)};
    uint64_t sizes[POOL_SIZES];
    (void)state;
    assert_int_equal(pool_sizes_choose(&none, MIB(1024) + 4097, sizes), 5);
    assert_memory_equal(sizes, expected, sizeof expected);
    assert_int_equal(pool_sizes_choose(&none, HUGE_PAGE_BYTES - 1, sizes), 0);
    assert_int_equal(pool_sizes_choose(&none, MIB(100), sizes), 1);
    assert_int_equal(sizes[0], MIB(100));
}

static void what_loads_asked_for_comes_first_as_often_as_they_did(void **state)
{
    struct pool_recent recent = {.n = 0};
    const uint64_t expected[] = {MIB(100), MIB(300), MIB(300), MIB(150), MIB(74), MIB(76)};
    uint64_t sizes[POOL_SIZES];
    (void)state;
    pool_recent_add(&recent, MIB(300));
    pool_recent_add(&recent, MIB(5000)); /* larger than the budget */
    pool_recent_add(&recent, MIB(300));
    pool_recent_add(&recent, MIB(100));
    size_t n = pool_sizes_choose(&recent, MIB(1000), sizes);
    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(sizes[i] / MIB(2), expected[i] / MIB(2));
}

static void the_last_thirty_two_count_and_no_budget_is_exceeded(void **state)
{
    struct pool_recent recent = {.n = 0};
    uint64_t sizes[POOL_SIZES];
    (void)state;
    for (uint64_t i = 1; i <= 100; i++)
        pool_recent_add(&recent, i * HUGE_PAGE_BYTES);
    assert_int_equal(recent.n, POOL_RECENT);
    assert_int_equal(recent.sizes[0], 100 * (uint64_t)HUGE_PAGE_BYTES);
    assert_int_equal(recent.sizes[POOL_RECENT - 1], 69 * (uint64_t)HUGE_PAGE_BYTES);
    for (uint64_t budget = 0; budget < 64; budget++) {
        uint64_t limit = ((uint64_t)1 << budget) + budget * 4096, sum = 0;
        size_t n = pool_sizes_choose(&recent, limit, sizes);
        assert_true(n <= POOL_SIZES);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(sizes[i] % HUGE_PAGE_BYTES, 0);
            sum += sizes[i];
        }
        assert_int_equal(sum, limit / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    }
}

static void what_is_a_little_larger_is_kept_instead(void **state)
{
    (void)state;
    assert_true(pool_size_is_met(MIB(100), MIB(100)));
    assert_true(pool_size_is_met(MIB(100), MIB(125)));
    assert_false(pool_size_is_met(MIB(100), MIB(126)));
    assert_false(pool_size_is_met(MIB(100), MIB(98)));
}

static void memory_is_cut_by_half_at_most_and_grown_eightfold_at_most(void **state)
{
    (void)state;
    assert_int_equal(pool_size_gain(MIB(10), MIB(20), MIB(20), false), MIB(10));
    assert_int_equal(pool_size_gain(MIB(10), MIB(20), MIB(4), false), MIB(4));
    assert_int_equal(pool_size_gain(MIB(10), MIB(22), MIB(22), true), 0);
    assert_int_equal(pool_size_gain(MIB(80), MIB(20), MIB(10), true), MIB(10));
    assert_int_equal(pool_size_gain(MIB(80), MIB(20), MIB(8), true), 0);
    assert_int_equal(pool_size_gain(MIB(80), MIB(20), MIB(20), false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first_so_the_budget_is_halved_and_halved),
        cmocka_unit_test(what_loads_asked_for_comes_first_as_often_as_they_did),
        cmocka_unit_test(the_last_thirty_two_count_and_no_budget_is_exceeded),
        cmocka_unit_test(what_is_a_little_larger_is_kept_instead),
        cmocka_unit_test(memory_is_cut_by_half_at_most_and_grown_eightfold_at_most),
    };
    return cmocka_run_group_tests_name("host_pool_sizes", tests, NULL, NULL);
}
