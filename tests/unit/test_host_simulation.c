/* Many hosts that load one model, on a simulated clock: with the product's own choice of owners, and failures. */
#include "tests/support/unit.h"

#include "tests/support/host_simulation.h"

#define GBIT (1e9 / 8)

/* 1.4 TB on 64 hosts, two for a copy: 100 Gbit/s from the store, 400 Gbit/s between hosts. */
static const struct simulation usual = {.n_hosts = 64,
                                        .hosts_per_copy = 2,
                                        .model_bytes = 1.4e12,
                                        .block_bytes = 64 << 20,
                                        .store_bytes_per_s = 100 * GBIT,
                                        .fabric_bytes_per_s = 400 * GBIT,
                                        .workers = 4}; /* as many bytes on their way as 64 blocks of 4 MiB */

static struct simulation_result simulate(struct simulation simulation, struct simulated_fault fault)
{
    simulation.faults = &fault;
    simulation.n_faults = fault.at_s > 0 || fault.factor > 0;
    return simulate_hosts(&simulation);
}

/* The usual one without a fault; simulated once. */
static struct simulation_result undisturbed(void)
{
    static struct simulation_result result;
    if (!result.n_ready)
        result = simulate(usual, (struct simulated_fault){0});
    return result;
}

TEST(each_byte_leaves_the_store_once_and_all_hosts_are_ready_near_the_formula)
{
    struct simulation_result result = undisturbed();
    assert_int_equal(result.n_ready, 64);
    assert_true(result.store_bytes <= usual.model_bytes * 1.005 && result.hedged_bytes == 0);
    assert_true(result.last_ready_s >= simulation_formula_s(&usual) * 0.95);
    assert_true(result.last_ready_s <= simulation_formula_s(&usual) * 1.4);
}

TEST(where_owners_read_ahead_hosts_with_half_a_copy_each_are_ready_near_the_formula)
{
    struct simulation eight = usual;
    eight.n_hosts = 8;
    eight.model_bytes = 3.5e11;
    eight.block_bytes = 16 << 20;
    eight.workers = 16;
    struct simulation_result asked = simulate(eight, (struct simulated_fault){0});
    eight.ahead = eight.workers / 2;
    struct simulation_result ahead = simulate(eight, (struct simulated_fault){0});
    assert_int_equal(ahead.n_ready, 8);
    assert_true(ahead.store_bytes == asked.store_bytes);
    assert_true(asked.last_ready_s >= simulation_formula_s(&eight) * 1.2);
    assert_true(ahead.last_ready_s <= simulation_formula_s(&eight) * 1.1);
}

TEST(a_host_that_dies_costs_seconds_and_the_others_share_what_it_owned)
{
    struct simulation_result whole = undisturbed();
    struct simulation_result result = simulate(usual, (struct simulated_fault){FAULT_DIES, 5, 4, 0});
    assert_int_equal(result.n_ready, 63);
    assert_true(result.store_bytes <= usual.model_bytes * 1.05);
    assert_true(result.last_ready_s <= whole.last_ready_s + 3);
}

TEST(a_host_that_says_nothing_any_more_costs_seconds)
{
    struct simulation_result whole = undisturbed();
    struct simulation_result result = simulate(usual, (struct simulated_fault){FAULT_SILENT, 5, 4, 0});
    assert_true(result.n_ready >= 63);
    assert_true(result.store_bytes <= usual.model_bytes * 1.05);
    assert_true(result.last_ready_s <= whole.last_ready_s + 8);
}

TEST(an_owner_at_a_tenth_of_the_speed_is_overtaken)
{
    struct simulation four = usual;
    four.n_hosts = 4;
    struct simulation_result whole = simulate(four, (struct simulated_fault){0});
    struct simulation_result result = simulate(four, (struct simulated_fault){FAULT_SLOW, 2, 0, 0.1});
    assert_int_equal(result.n_ready, 4);
    assert_true(result.store_bytes <= four.model_bytes * 1.2);
    assert_true(result.last_ready_s <= whole.last_ready_s * 1.5); /* ten times as long if it were waited for */
}

TEST(hosts_that_fill_a_slow_network_are_not_late_for_one_another)
{
    struct simulation slow = usual;
    slow.n_hosts = 16;
    slow.hosts_per_copy = 1;
    slow.model_bytes = 8e9;
    slow.block_bytes = 4 << 20;
    slow.store_bytes_per_s = slow.fabric_bytes_per_s = GBIT;
    slow.store_total_bytes_per_s = 10 * GBIT;
    struct simulation_result result = simulate(slow, (struct simulated_fault){0});
    assert_int_equal(result.n_ready, 16);
    assert_true(result.store_bytes <= slow.model_bytes * 1.01);
}

TEST(a_thousand_hosts_read_a_model_once)
{
    struct simulation many = usual;
    many.n_hosts = 1000;
    many.model_bytes = 1.4e11;
    many.workers = 16;
    struct simulation_result result = simulate(many, (struct simulated_fault){FAULT_DIES, 999, 1, 0});
    assert_int_equal(result.n_ready, 999);
    assert_true(result.store_bytes <= many.model_bytes * 1.02);
    assert_true(result.last_ready_s <= simulation_formula_s(&many) + 6); /* the host that dies costs seconds */
}

TEST(the_same_simulation_ends_the_same_way)
{
    struct simulated_fault fault = {FAULT_SILENT, 1, 2, 0};
    struct simulation eight = usual;
    eight.n_hosts = 8;
    struct simulation_result one = simulate(eight, fault), other = simulate(eight, fault);
    assert_memory_equal(&one, &other, sizeof one);
}
