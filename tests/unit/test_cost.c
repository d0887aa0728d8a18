/* The cost model against what was measured with bare system calls: slices of a 512 MiB hull, rows of R bytes of which k
 * are wanted. What the constants are is another question: those measurements had less overhead per request than ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/cost.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define HULL_BYTES ((uint64_t)512 << 20)

/* Page caches with large folios, and with 4 KiB folios, over a disk with 128 requests in flight. */
static struct cost_constants large_folios(void)
{
    struct cost_constants costs = cost_defaults;
    costs.uncached.request_ns = 10300;
    costs.cached.request_ns = 450;
    costs.cached.bytes_per_ns = 13;
    costs.skip_bytes_per_ns = 28;
    return costs;
}

static struct cost_constants small_folios(void)
{
    struct cost_constants costs = large_folios();
    costs.cached.bytes_per_ns = 6.5;
    costs.skip_bytes_per_ns = 7.3;
    return costs;
}

static double exact_ms(const struct cost_constants *costs, double cached_share, uint64_t row, uint64_t kept)
{
    uint64_t rows = HULL_BYTES / row;
    return cost_estimate_ms(costs,
                            &(struct cost_work){.requests = rows, .read_bytes = rows * kept, .cached_share = cached_share});
}

static double hull_ms(const struct cost_constants *costs, double cached_share, uint64_t row, uint64_t kept)
{
    uint64_t rows = HULL_BYTES / row;
    return cost_estimate_ms(costs, &(struct cost_work){.requests = 1,
                                                       .read_bytes = HULL_BYTES,
                                                       .skipped_bytes = rows * (row - kept),
                                                       .copied_bytes = cached_share < 1 ? rows * kept : 0,
                                                       .copied_rows = rows,
                                                       .cached_share = cached_share});
}

static void assert_about(double value, double measured)
{
    assert_true(value > measured * 0.75 && value < measured * 1.25);
}

static void estimates_are_near_the_measured_times(void **state)
{
    (void)state;
    struct cost_constants large = large_folios();
    assert_about(exact_ms(&large, 1, 57344, 7168), 9.6);
    assert_about(hull_ms(&large, 1, 57344, 7168), 22);
    assert_about(exact_ms(&large, 1, 8192, 1024), 34);
    assert_about(hull_ms(&large, 1, 8192, 1024), 26);
    assert_about(exact_ms(&large, 0, 57344, 7168), 108);
    assert_about(hull_ms(&large, 0, 57344, 7168), 145);
    assert_about(exact_ms(&large, 0, 57344, 28672), 157);
    assert_about(hull_ms(&large, 0, 57344, 28672), 147);
    assert_about(exact_ms(&large, 0, 8192, 1024), 656);
    assert_about(hull_ms(&large, 0, 8192, 1024), 143);
}

static void merge_gaps_are_near_the_measured_crossovers(void **state)
{
    (void)state;
    struct cost_constants large = large_folios(), small = small_folios();
    assert_about((double)cost_merge_gap_bytes(&large, 1), 12000);
    assert_about((double)cost_merge_gap_bytes(&small, 1), 3300);
    assert_about((double)cost_merge_gap_bytes(&large, 0), 40000);
}

static void merging_pays_below_the_gap_and_not_above(void **state)
{
    (void)state;
    const double shares[] = {0, 1};
    for (size_t i = 0; i < 2; i++) {
        uint64_t gap = cost_merge_gap_bytes(&cost_defaults, shares[i]), kept = 4096;
        assert_true(hull_ms(&cost_defaults, shares[i], kept + gap / 2, kept) <
                    exact_ms(&cost_defaults, shares[i], kept + gap / 2, kept));
        assert_true(hull_ms(&cost_defaults, shares[i], kept + gap * 2, kept) >
                    exact_ms(&cost_defaults, shares[i], kept + gap * 2, kept));
    }
}

static void a_half_cached_source_lies_between(void **state)
{
    (void)state;
    uint64_t hot = cost_merge_gap_bytes(&cost_defaults, 1), cold = cost_merge_gap_bytes(&cost_defaults, 0);
    uint64_t half = cost_merge_gap_bytes(&cost_defaults, 0.5);
    assert_true(hot < half && half < cold);
    assert_true(exact_ms(&cost_defaults, 0.5, 8192, 1024) < exact_ms(&cost_defaults, 0, 8192, 1024));
}

static void what_the_processor_does_overlaps_with_the_device(void **state)
{
    (void)state;
    struct cost_work work = {.requests = 1, .read_bytes = HULL_BYTES};
    double device_ms = cost_estimate_ms(&cost_defaults, &work);
    work.copied_bytes = work.fresh_bytes = HULL_BYTES;
    assert_true(cost_estimate_ms(&cost_defaults, &work) == device_ms);
    work.cached_share = 1;
    assert_true(cost_estimate_ms(&cost_defaults, &work) < device_ms);
}

static void a_share_outside_0_to_1_counts_as_the_nearest(void **state)
{
    (void)state;
    assert_true(exact_ms(&cost_defaults, -3, 8192, 1024) == exact_ms(&cost_defaults, 0, 8192, 1024));
    assert_true(exact_ms(&cost_defaults, 7, 8192, 1024) == exact_ms(&cost_defaults, 1, 8192, 1024));
}

static void silly_constants_divide_nothing_by_zero(void **state)
{
    (void)state;
    struct cost_constants zero = {0};
    struct cost_work work = {.requests = 1, .read_bytes = 1, .fresh_bytes = 1};
    assert_true(cost_estimate_ms(&zero, &work) == 0);
    assert_int_equal(cost_merge_gap_bytes(&zero, 0), 0);
    zero.uncached.request_ns = 1;
    assert_int_equal(cost_merge_gap_bytes(&zero, 0), 4 << 20);
    zero.uncached = (struct cost_class){.request_ns = 1e18, .bytes_per_ns = 1};
    assert_int_equal(cost_merge_gap_bytes(&zero, 0), 4 << 20);
}

static void a_request_cheaper_than_a_row_is_never_merged(void **state)
{
    (void)state;
    struct cost_constants costs = cost_defaults;
    costs.cached.request_ns = costs.copy_row_ns;
    assert_int_equal(cost_merge_gap_bytes(&costs, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimates_are_near_the_measured_times),
        cmocka_unit_test(merge_gaps_are_near_the_measured_crossovers),
        cmocka_unit_test(merging_pays_below_the_gap_and_not_above),
        cmocka_unit_test(a_half_cached_source_lies_between),
        cmocka_unit_test(what_the_processor_does_overlaps_with_the_device),
        cmocka_unit_test(a_share_outside_0_to_1_counts_as_the_nearest),
        cmocka_unit_test(silly_constants_divide_nothing_by_zero),
        cmocka_unit_test(a_request_cheaper_than_a_row_is_never_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
