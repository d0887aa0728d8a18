/* The cost model against what was measured with bare system calls: slices of a 512 MiB hull, rows of R bytes of which k
 * are wanted. What the constants are is another question: those measurements had less overhead per request than ours. */
#include "tests/support/unit.h"

#include "plan/cost.h"
#include "plan/plan.h"
#include "tests/support/mapping_fake.h"

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

TEST(estimates_are_near_the_measured_times)
{
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

TEST(merge_gaps_are_near_the_measured_crossovers)
{
    struct cost_constants large = large_folios(), small = small_folios();
    assert_about((double)cost_merge_gap_bytes(&large, 1), 12000);
    assert_about((double)cost_merge_gap_bytes(&small, 1), 3300);
    assert_about((double)cost_merge_gap_bytes(&large, 0), 40000);
}

TEST(merging_pays_below_the_gap_and_not_above)
{
    const double shares[] = {0, 1};
    for (size_t i = 0; i < 2; i++) {
        uint64_t gap = cost_merge_gap_bytes(&cost_defaults, shares[i]), kept = 4096;
        assert_true(hull_ms(&cost_defaults, shares[i], kept + gap / 2, kept) <
                    exact_ms(&cost_defaults, shares[i], kept + gap / 2, kept));
        assert_true(hull_ms(&cost_defaults, shares[i], kept + gap * 2, kept) >
                    exact_ms(&cost_defaults, shares[i], kept + gap * 2, kept));
    }
}

TEST(a_half_cached_source_lies_between)
{
    uint64_t hot = cost_merge_gap_bytes(&cost_defaults, 1), cold = cost_merge_gap_bytes(&cost_defaults, 0);
    uint64_t half = cost_merge_gap_bytes(&cost_defaults, 0.5);
    assert_true(hot < half && half < cold);
    assert_true(exact_ms(&cost_defaults, 0.5, 8192, 1024) < exact_ms(&cost_defaults, 0, 8192, 1024));
}

TEST(what_the_processor_does_overlaps_with_the_device)
{
    struct cost_work work = {.requests = 1, .read_bytes = HULL_BYTES};
    double device_ms = cost_estimate_ms(&cost_defaults, &work);
    work.copied_bytes = work.fresh_bytes = HULL_BYTES;
    assert_true(cost_estimate_ms(&cost_defaults, &work) == device_ms);
    work.cached_share = 1;
    assert_true(cost_estimate_ms(&cost_defaults, &work) < device_ms);
}

TEST(a_share_outside_0_to_1_counts_as_the_nearest)
{
    assert_true(exact_ms(&cost_defaults, -3, 8192, 1024) == exact_ms(&cost_defaults, 0, 8192, 1024));
    assert_true(exact_ms(&cost_defaults, 7, 8192, 1024) == exact_ms(&cost_defaults, 1, 8192, 1024));
}

TEST(silly_constants_divide_nothing_by_zero)
{
    struct cost_constants zero = {0};
    struct cost_work work = {.requests = 1, .read_bytes = 1, .fresh_bytes = 1};
    assert_true(cost_estimate_ms(&zero, &work) == 0);
    assert_int_equal(cost_merge_gap_bytes(&zero, 0), 0);
    zero.uncached.request_ns = 1;
    assert_int_equal(cost_merge_gap_bytes(&zero, 0), 4 << 20);
    zero.uncached = (struct cost_class){.request_ns = 1e18, .bytes_per_ns = 1};
    assert_int_equal(cost_merge_gap_bytes(&zero, 0), 4 << 20);
}

TEST(a_request_cheaper_than_a_row_is_never_merged)
{
    struct cost_constants costs = cost_defaults;
    costs.cached.request_ns = costs.copy_row_ns;
    assert_int_equal(cost_merge_gap_bytes(&costs, 1), 0);
}

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

TEST(blocks_are_the_power_of_two_that_fits_into_a_request)
{
    static const uint64_t pairs[][2] = {{0, 16 * MIB},          {1, 64 * KIB},        {128 * KIB - 1, 64 * KIB},
                                        {128 * KIB, 128 * KIB}, {16 * MIB, 16 * MIB}, {24 * MIB, 16 * MIB},
                                        {UINT64_MAX, 64 * MIB}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(remote_block_bytes(&(struct source_caps){.request_bytes = pairs[i][0]}), pairs[i][1]);
}

TEST(windows_share_half_the_staging_budget_among_half_the_requests)
{
    struct source_caps caps = {.request_bytes = 16 * MIB, .parallel_requests = 32};
    assert_int_equal(remote_window_bytes(&caps, 64 * MIB), 2 * MIB);
    assert_int_equal(remote_window_bytes(&caps, 1024 * MIB), 16 * MIB);
    assert_int_equal(remote_window_bytes(&caps, 0), 64 * KIB);
    caps.parallel_requests = 1;
    assert_int_equal(remote_window_bytes(&caps, 16 * MIB), 8 * MIB);
}

TEST(the_gap_is_what_a_connection_carries_while_a_request_waits)
{
    struct source_speed speed = {0};
    assert_int_equal(remote_merge_gap_bytes(&speed), 2400000); /* 30 ms, 80 MB/s */
    speed = (struct source_speed){.latency_us = 10000, .connection_bytes_per_s = 100000000};
    assert_int_equal(remote_merge_gap_bytes(&speed), 1000000);
    speed.latency_us = 60 * 1000000;
    assert_int_equal(remote_merge_gap_bytes(&speed), 4 * MIB);
    speed = (struct source_speed){.latency_us = 1, .connection_bytes_per_s = 1}; /* learned from a document of a few bytes */
    assert_int_equal(remote_merge_gap_bytes(&speed), 500);
}

TEST(costs_follow_what_was_learned)
{
    struct source_caps caps = {.parallel_requests = 32};
    struct source_speed speed = {.latency_us = 50000, .connection_bytes_per_s = 100000000};
    struct cost_constants costs = cost_defaults;
    remote_set_costs(&caps, &speed, &costs);
    assert_true(costs.uncached.request_ns > 1562499 && costs.uncached.request_ns < 1562501);
    assert_true(costs.uncached.bytes_per_ns > 3.19 && costs.uncached.bytes_per_ns < 3.21);
    speed.bytes_per_s = 1000000000;
    remote_set_costs(&caps, &speed, &costs);
    assert_true(costs.uncached.bytes_per_ns > 0.99 && costs.uncached.bytes_per_ns < 1.01);
    speed.parallel_requests = 4;
    remote_set_costs(&caps, &speed, &costs);
    assert_true(costs.uncached.bytes_per_ns > 0.39 && costs.uncached.bytes_per_ns < 0.41);
}

/* Llama-3.1-8B in four files, every matrix split eight ways on its last dimension: the case that once took 13 million. */
static struct mapping_fake *llama_columns(uint64_t *total_bytes)
{
    static const uint64_t shapes[][2] = {{4096, 4096},  {1024, 4096},  {1024, 4096}, {4096, 4096},
                                         {14336, 4096}, {14336, 4096}, {4096, 14336}};
    struct mapping_fake *fake = mapping_fake_create("gs://models/llama", 4, 30000);
    *total_bytes = 0;
    for (uint32_t layer = 0; layer < 32; layer++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            uint64_t columns = shapes[i][1];
            mapping_fake_add(fake, layer / 8, 2, 2, shapes[i], (uint64_t[]){0, columns / 8},
                             (uint64_t[]){shapes[i][0], columns / 4});
            *total_bytes += 2 * shapes[i][0] * columns;
        }
    }
    return fake;
}

TEST(a_pathological_split_takes_no_more_requests_than_files_and_extents)
{
    struct materialization_strategy strategy = {.enable_local_batched_disk_load = true, .allow_mixed_execution = true};
    struct load_spec spec = {0};
    struct plan_facts facts = {.strategy = &strategy,
                               .costs = &cost_defaults,
                               .source = {SOURCE_CAPS_OF_REQUESTS, .request_bytes = 16 * MIB, .parallel_requests = 32},
                               .device = {.direct_segments = true},
                               .staging_budget_bytes = 64 * MIB};
    uint64_t total_bytes;
    struct error error;
    struct mapping_fake *fake = llama_columns(&total_bytes);
    const struct mapping *mapping = mapping_fake_finish(fake);
    struct plan *plan = plan_build(mapping, &spec, &facts, &error);
    assert_non_null(plan);
    const struct candidate *generic = &plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE];
    assert_int_equal(plan->executor, EXECUTOR_GENERIC_BYTE_RANGE);
    assert_int_equal(plan->n_steps, 4); /* one extent a file */
    assert_true(generic->requests <= total_bytes / (16 * MIB) + 2 * 4);
    plan_destroy(plan);
    strategy.remote_fine_slices = true;
    plan = plan_build(mapping, &spec, &facts, &error);
    assert_non_null(plan);
    assert_true(plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE].requests >= 32 * 43008); /* one a row */
    assert_int_equal(plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE].read_bytes, mapping->view_bytes);
    plan_destroy(plan);
    mapping_fake_destroy(fake);
}
