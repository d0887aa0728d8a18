/* For random mappings and both executors: steps are sorted and disjoint, cover every wanted byte, and add up to the
 * numbers of their candidate. Sizes are small enough to keep a map of every byte of every file. */
#include "tests/support/unit.h"

#include <time.h>

#include "base/memory.h"
#include "plan/plan.h"
#include "plan/steps.h"
#include "tests/support/mapping_fake.h"
#include "tests/support/random_cases.h"

enum { CASES = RANDOM_CASES(3000), N_FILES = 3, FILE_BYTES = 1 << 16 };

static uint64_t random_below(uint64_t *seed, uint64_t bound)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % bound;
}

static void add_random_tensor(struct mapping_fake *fake, uint64_t *seed)
{
    uint64_t shape[4], starts[4], stops[4];
    uint32_t rank = (uint32_t)random_below(seed, 5);
    for (uint32_t i = 0; i < rank; i++) {
        shape[i] = random_below(seed, 6); /* 12 tensors of 5^4 * 8 bytes fit into FILE_BYTES */
        starts[i] = random_below(seed, 3) ? 0 : random_below(seed, shape[i] + 1);
        stops[i] = random_below(seed, 3) ? shape[i] : starts[i] + random_below(seed, shape[i] - starts[i] + 1);
    }
    uint32_t file = (uint32_t)random_below(seed, N_FILES);
    mapping_fake_add(fake, file, (uint64_t)1 << random_below(seed, 4), rank, shape, starts, stops);
    if (random_below(seed, 2))
        mapping_fake_skip(fake, file, random_below(seed, 40));
}

static struct mapping_fake *random_mapping(uint64_t *seed)
{
    struct mapping_fake *fake = mapping_fake_create("disk:/m", N_FILES, random_below(seed, 100));
    for (uint64_t n = random_below(seed, 12); n > 0; n--)
        add_random_tensor(fake, seed);
    mapping_fake_finish(fake);
    return fake;
}

/* A merge gap of a few bytes, so that small tensors see both sides of it. */
static struct cost_constants random_costs(uint64_t *seed)
{
    struct cost_constants costs = cost_defaults;
    costs.uncached = (struct cost_class){.request_ns = (double)random_below(seed, 64), .bytes_per_ns = 1};
    return costs;
}

static uint64_t mark_steps(const struct plan *plan, size_t file, unsigned char *bytes)
{
    uint64_t end = 0, read = 0;
    memset(bytes, 0, FILE_BYTES);
    for (size_t i = plan->file_first[file]; i < plan->file_first[file + 1]; i++) {
        const struct plan_step *step = &plan->steps[i];
        assert_int_equal(step->file, file);
        assert_true(step->count > 0 && step->bytes > 0 && step->stride >= step->bytes && step->offset >= end);
        for (uint64_t k = 0; k < step->count; k++)
            memset(bytes + step->offset + k * step->stride, 1, step->bytes);
        end = step->offset + (step->count - 1) * step->stride + step->bytes;
        read += step->count * step->bytes;
    }
    return read;
}

static uint64_t count_wanted(const struct mapping *mapping, size_t file, const unsigned char *covered)
{
    uint64_t wanted = 0;
    for (size_t i = mapping->file_first[file]; i < mapping->file_first[file + 1]; i++) {
        const struct transfer *run = &mapping->transfers[i];
        for (uint64_t k = 0; k < run->n_rows * run->row_bytes; k++)
            assert_true(covered[run->src_offset + k / run->row_bytes * run->src_stride + k % run->row_bytes]);
        wanted += run->n_rows * run->row_bytes;
    }
    return wanted;
}

static void check_plan(const struct mapping *mapping, const struct plan *plan, unsigned char *bytes)
{
    uint64_t read = 0, wanted = 0, requests = 0;
    for (size_t file = 0; file < N_FILES; file++) {
        read += mark_steps(plan, file, bytes);
        wanted += count_wanted(mapping, file, bytes);
    }
    for (size_t i = 0; i < plan->n_steps; i++)
        requests += plan->steps[i].count;
    const struct candidate *chosen = &plan->candidates[plan->executor];
    assert_int_equal(chosen->read_bytes, read);
    assert_int_equal(chosen->requests, requests);
    assert_int_equal(chosen->unique_source_bytes, wanted);
    assert_int_equal(chosen->requested_bytes, mapping->view_bytes);
    assert_int_equal(plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE].read_bytes, wanted);
    assert_true(read >= wanted);
}

TEST(steps_cover_every_run_and_add_up)
{
    const char *given = getenv("TENSORCAST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    print_message("TENSORCAST_SEED=%llu\n", (unsigned long long)seed);
    unsigned char *bytes = memory_alloc(FILE_BYTES);
    const enum executor_preference preferences[] = {EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE,
                                                    EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, EXECUTOR_PREFERENCE_AUTO};
    for (int i = 0; i < CASES; i++) {
        struct mapping_fake *fake = random_mapping(&seed);
        const struct mapping *mapping = mapping_fake_finish(fake);
        struct cost_constants costs = random_costs(&seed);
        struct materialization_strategy strategy = {.enable_local_batched_disk_load = true,
                                                    .allow_mixed_execution = random_below(&seed, 2),
                                                    .cost_gate =
                                                        random_below(&seed, 2) ? COST_GATE_TIME : COST_GATE_SOURCE_BYTES};
        struct plan_facts facts = {
            .strategy = &strategy, .costs = &costs, .device.direct_segments = true, .staging_budget_bytes = 1 << 20};
        for (size_t p = 0; p < 3; p++) {
            struct load_spec spec = {.policy.executor = preferences[p]};
            struct error error;
            struct plan *plan = plan_build(mapping, &spec, &facts, &error);
            assert_non_null(plan);
            check_plan(mapping, plan, bytes);
            plan_destroy(plan);
        }
        mapping_fake_destroy(fake);
    }
    free(bytes);
}

/* Wanted bytes of a file that touch are one request, except for every border of the grid between them. */
static uint64_t count_requests(const unsigned char *wanted, uint64_t grid)
{
    uint64_t requests = 0;
    for (uint64_t i = 0; i < FILE_BYTES; i++)
        requests += wanted[i] && (i == 0 || !wanted[i - 1] || i % grid == 0);
    return requests;
}

static void mark_wanted(const struct mapping *mapping, size_t file, unsigned char *wanted)
{
    memset(wanted, 0, FILE_BYTES);
    for (size_t i = mapping->file_first[file]; i < mapping->file_first[file + 1]; i++)
        for (uint64_t row = 0; row < mapping->transfers[i].n_rows; row++)
            memset(wanted + mapping->transfers[i].src_offset + row * mapping->transfers[i].src_stride, 1,
                   mapping->transfers[i].row_bytes);
}

TEST(exact_requests_end_where_bytes_end_and_at_the_grid)
{
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    unsigned char *wanted = memory_alloc(FILE_BYTES);
    for (int i = 0; i < CASES; i++) {
        struct mapping_fake *fake = random_mapping(&seed);
        const struct mapping *mapping = mapping_fake_finish(fake);
        struct step_rule rule = STEP_RULE_EXACT;
        uint64_t requests = 0;
        rule.grid_bytes = (uint64_t)1 << random_below(&seed, 14);
        for (size_t file = 0; file < N_FILES; file++) {
            mark_wanted(mapping, file, wanted);
            requests += count_requests(wanted, rule.grid_bytes);
        }
        struct step_totals totals = steps_measure(mapping, rule);
        assert_int_equal(totals.requests, requests);
        assert_int_equal(totals.read_bytes, mapping->view_bytes);
        mapping_fake_destroy(fake);
    }
    free(wanted);
}
