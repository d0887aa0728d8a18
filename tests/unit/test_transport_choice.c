/* Which transport a group gets: the formula's numbers on both sides of where it turns, and what stands in the way. */
#include "tests/support/unit.h"

#include "plan/plan.h"

#define GB ((uint64_t)1000000000)

/* "nccl" as the planner sees it. */
static const struct transport_ops links = {.name = "nccl", .caps = {.device_links = true, .stages_batches = true}};
static const struct transport_ops *const both[] = {&transport_loopback, &links};

/* 80 GB, each byte for every one of 8 ranks, which have a GPU each. */
static struct transport_demand replicated(void)
{
    return (struct transport_demand){.unique_bytes = 80 * GB,
                                     .landed_bytes = 640 * GB,
                                     .staged_bytes = GB,
                                     .peak_budget_bytes = 8 * GB,
                                     .device_room_bytes = 60 * GB,
                                     .n_memories = 8,
                                     .n_on_devices = 8,
                                     .n_devices = 8};
}

static struct transport_rates rates_from(double source)
{
    return (struct transport_rates){.source = source, .memory = 400, .link = 25, .peer = 150};
}

static struct transport_choice choose(enum collective_transport wish, struct transport_demand demand, double source)
{
    const struct transport_supply supply = {both, 2, wish};
    const struct transport_rates rates = rates_from(source);
    return transport_choice_make(&supply, &demand, &rates);
}

static void assert_ms(const struct transport_choice *choice, size_t option, double ms)
{
    assert_true(choice->options[option].ms > ms * 0.999 && choice->options[option].ms < ms * 1.001);
}

TEST(the_numbers_are_those_of_the_formula)
{
    struct transport_choice choice = choose(COLLECTIVE_TRANSPORT_AUTO, replicated(), 10);
    assert_ms(&choice, 0, 8000); /* the source: 80 / 10; links 640 / (8 x 25), memory 720 / 400 */
    assert_ms(&choice, 1, 8000);
    choice = choose(COLLECTIVE_TRANSPORT_AUTO, replicated(), 1000);
    assert_ms(&choice, 0, 3200); /* the links */
    assert_ms(&choice, 1, 560 / (8 * 150.0) * 1000);
}

TEST(links_between_devices_pay_when_the_source_is_quicker_than_the_links_by_the_copies)
{
    assert_ptr_equal(choose(COLLECTIVE_TRANSPORT_AUTO, replicated(), 24.9).ops, &transport_loopback);
    assert_ptr_equal(choose(COLLECTIVE_TRANSPORT_AUTO, replicated(), 25.1).ops, &links);
}

TEST(slices_that_no_rank_shares_are_never_worth_it)
{
    struct transport_demand demand = replicated();
    demand.landed_bytes = demand.unique_bytes;
    assert_ptr_equal(choose(COLLECTIVE_TRANSPORT_AUTO, demand, 150).ops, &transport_loopback);
}

TEST(host_memory_is_served_by_copies)
{
    struct transport_demand demand = replicated();
    demand.n_on_devices = demand.n_devices = 7;
    struct transport_choice choice = choose(COLLECTIVE_TRANSPORT_AUTO, demand, 1000);
    assert_ptr_equal(choice.ops, &transport_loopback);
    assert_int_equal(choice.options[1].problem, REASON_TRANSPORT_NEEDS_GPUS);
}

TEST(two_ranks_on_one_device_are_served_by_copies)
{
    struct transport_demand demand = replicated();
    demand.n_devices = 7;
    struct transport_choice choice = choose(COLLECTIVE_TRANSPORT_AUTO, demand, 1000);
    assert_ptr_equal(choice.ops, &transport_loopback);
    assert_int_equal(choice.options[1].problem, REASON_TRANSPORT_NEEDS_A_GPU_PER_RANK);
    choice = choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000);
    assert_null(choice.ops);
    assert_string_equal(choice.problem.text, "transport_needs_a_gpu_per_rank:nccl");
}

TEST(batches_that_are_held_whole_must_fit_the_peak_budget)
{
    struct transport_demand demand = replicated();
    demand.staged_bytes = demand.peak_budget_bytes;
    assert_ptr_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).ops, &links);
    demand.staged_bytes++;
    assert_string_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).problem.text, "transport_peak_budget_exceeded:nccl");
    assert_ptr_equal(choose(COLLECTIVE_TRANSPORT_AUTO, demand, 1000).ops, &transport_loopback);
}

TEST(every_device_stages_two_batches_and_a_little_within_both_budgets)
{
    const uint64_t unit = TRANSPORT_STAGING_UNIT;
    struct transport_demand demand = replicated();
    demand.staged_bytes = 8 * unit; /* a sixteenth of two batches is one unit */
    demand.peak_budget_bytes = 1000 * unit;
    assert_int_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).staging_bytes, 17 * unit);
    assert_int_equal(choose(COLLECTIVE_TRANSPORT_LOOPBACK, demand, 1000).staging_bytes, 0);
    demand.device_room_bytes = 5 * unit - 1;
    assert_int_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).staging_bytes, 4 * unit);
    demand.peak_budget_bytes = 8 * 4 * unit; /* for 8 devices, and the host's */
    demand.host_staging_bytes = 1;
    assert_int_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).staging_bytes, 3 * unit);
    demand.host_staging_bytes = 8 * 3 * unit + 1;
    assert_string_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).problem.text, "transport_peak_budget_exceeded:nccl");
}

TEST(without_room_in_a_device_s_budget_nothing_is_staged_there)
{
    struct transport_demand demand = replicated();
    demand.device_room_bytes = TRANSPORT_STAGING_UNIT - 1;
    assert_string_equal(choose(COLLECTIVE_TRANSPORT_NCCL, demand, 1000).problem.text,
                        "transport_device_budget_exceeded:nccl");
    struct transport_choice choice = choose(COLLECTIVE_TRANSPORT_AUTO, demand, 1000);
    assert_ptr_equal(choice.ops, &transport_loopback);
    assert_int_equal(choice.options[1].problem, REASON_TRANSPORT_DEVICE_BUDGET);
}

TEST(the_configuration_can_force_either)
{
    struct transport_choice choice = choose(COLLECTIVE_TRANSPORT_NCCL, replicated(), 1);
    assert_ptr_equal(choice.ops, &links);
    assert_true(choice.is_forced);
    assert_ptr_equal(choose(COLLECTIVE_TRANSPORT_LOOPBACK, replicated(), 1000).ops, &transport_loopback);
}

TEST(what_is_not_there_is_refused_by_name_before_any_rank_waits)
{
    struct transport_supply supply = {both, 1, COLLECTIVE_TRANSPORT_NCCL};
    const struct transport_demand demand = replicated();
    const struct transport_rates rates = rates_from(10);
    assert_string_equal(transport_choice_refuse(&supply, true).text, "transport_unavailable:nccl");
    struct transport_choice choice = transport_choice_make(&supply, &demand, &rates);
    assert_null(choice.ops);
    assert_string_equal(choice.problem.text, "transport_unavailable:nccl");
    supply.n = 2;
    assert_int_equal(transport_choice_refuse(&supply, true).kind, REASON_ELIGIBLE);
    assert_string_equal(transport_choice_refuse(&supply, false).text, "transport_needs_gpus:nccl");
    supply.wish = COLLECTIVE_TRANSPORT_AUTO;
    assert_int_equal(transport_choice_refuse(&supply, false).kind, REASON_ELIGIBLE);
}

TEST(what_the_cache_holds_comes_at_the_speed_of_the_cache)
{
    const struct materialization_strategy strategy = {0};
    struct plan_facts facts = {.strategy = &strategy, .costs = &cost_defaults, .cached_share = 0};
    assert_float_equal(transport_choice_rates(&facts).source, cost_defaults.uncached.bytes_per_ns, 1e-6);
    facts.cached_share = 1;
    assert_float_equal(transport_choice_rates(&facts).source, cost_defaults.cached.bytes_per_ns, 1e-6);
    assert_true(transport_choice_rates(&facts).memory == 2 * cost_defaults.copy_bytes_per_ns);
}

TEST(nothing_to_move_takes_no_time)
{
    const struct transport_supply supply = {both, 2, COLLECTIVE_TRANSPORT_AUTO};
    struct transport_choice choice =
        transport_choice_make(&supply, &(struct transport_demand){0}, &(struct transport_rates){0});
    assert_ptr_equal(choice.ops, &transport_loopback);
    assert_true(choice.options[0].ms == 0);
}
