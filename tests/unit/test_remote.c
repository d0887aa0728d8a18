/* What planning says of remote sources: sizes of requests, the gap rule, and how few requests a pathological view takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "plan/plan.h"
#include "plan/remote.h"
#include "tests/support/mapping_fake.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static void blocks_are_the_power_of_two_that_fits_into_a_request(void **state)
{
    static const uint64_t pairs[][2] = {{0, 16 * MIB},          {1, 64 * KIB},        {128 * KIB - 1, 64 * KIB},
                                        {128 * KIB, 128 * KIB}, {16 * MIB, 16 * MIB}, {24 * MIB, 16 * MIB},
                                        {UINT64_MAX, 64 * MIB}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(remote_block_bytes(&(struct source_caps){.request_bytes = pairs[i][0]}), pairs[i][1]);
}

static void windows_share_half_the_staging_budget_among_half_the_requests(void **state)
{
    struct source_caps caps = {.request_bytes = 16 * MIB, .parallel_requests = 32};
    (void)state;
    assert_int_equal(remote_window_bytes(&caps, 64 * MIB), 2 * MIB);
    assert_int_equal(remote_window_bytes(&caps, 1024 * MIB), 16 * MIB);
    assert_int_equal(remote_window_bytes(&caps, 0), 64 * KIB);
    caps.parallel_requests = 1;
    assert_int_equal(remote_window_bytes(&caps, 16 * MIB), 8 * MIB);
}

static void the_gap_is_what_a_connection_carries_while_a_request_waits(void **state)
{
    struct source_speed speed = {0};
    (void)state;
    assert_int_equal(remote_merge_gap_bytes(&speed), 2400000); /* 30 ms, 80 MB/s */
    speed = (struct source_speed){.latency_us = 10000, .connection_bytes_per_s = 100000000};
    assert_int_equal(remote_merge_gap_bytes(&speed), 1000000);
    speed.latency_us = 60 * 1000000;
    assert_int_equal(remote_merge_gap_bytes(&speed), 4 * MIB);
    speed = (struct source_speed){.latency_us = 1, .connection_bytes_per_s = 1}; /* learned from a document of a few bytes */
    assert_int_equal(remote_merge_gap_bytes(&speed), 500);
}

static void costs_follow_what_was_learned(void **state)
{
    struct source_caps caps = {.parallel_requests = 32};
    struct source_speed speed = {.latency_us = 50000, .connection_bytes_per_s = 100000000};
    struct cost_constants costs = cost_defaults;
    (void)state;
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

static void a_pathological_split_takes_no_more_requests_than_files_and_extents(void **state)
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
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_the_power_of_two_that_fits_into_a_request),
        cmocka_unit_test(windows_share_half_the_staging_budget_among_half_the_requests),
        cmocka_unit_test(the_gap_is_what_a_connection_carries_while_a_request_waits),
        cmocka_unit_test(costs_follow_what_was_learned),
        cmocka_unit_test(a_pathological_split_takes_no_more_requests_than_files_and_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
