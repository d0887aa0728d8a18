/* What the configuration leaves open is a part of the memory limit, within bounds; what it says holds. */
#include "tests/support/unit.h"

#include <sys/resource.h>

#include "replica/replica.h"

#include "budgets.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

static const uint64_t mib = 1 << 20, gib = 1 << 30;

TEST(half_of_the_memory_is_for_replicas_and_parts_of_that_for_the_rest)
{
    struct memory_budgets budgets = memory_budgets_of(config_defaults(), 4 * gib);
    assert_int_equal(budgets.host_bytes, 2 * gib);
    assert_int_equal(budgets.extent_cache_bytes, 256 * mib);
    assert_int_equal(budgets.metadata_bytes, 512 * mib);
    assert_int_equal(budgets.header_cache_bytes, 128 * mib);
}

TEST(a_small_host_has_room_for_metadata_and_a_large_one_not_too_much)
{
    struct memory_budgets little = memory_budgets_of(config_defaults(), 64 * mib),
                          much = memory_budgets_of(config_defaults(), 2048 * gib);
    assert_int_equal(little.metadata_bytes, 256 * mib);
    assert_int_equal(much.metadata_bytes, gib);
    assert_int_equal(much.extent_cache_bytes, gib);
    assert_int_equal(much.header_cache_bytes, 256 * mib);
}

TEST(what_is_configured_holds)
{
    struct config config = *config_defaults();
    config.memory.host_budget_bytes = 3 * gib;
    config.memory.extent_cache_bytes = 5 * mib;
    config.memory.metadata_budget_bytes = 7 * mib;
    struct memory_budgets budgets = memory_budgets_of(&config, 64 * mib);
    assert_int_equal(budgets.host_bytes, 3 * gib);
    assert_int_equal(budgets.extent_cache_bytes, 5 * mib);
    assert_int_equal(budgets.metadata_bytes, 7 * mib);
}

TEST(descriptors_are_shared_out_between_connections_leases_and_files)
{
    struct rlimit limit;
    struct quota *quota = quota_create();
    struct memory_budgets budgets = memory_budgets_of(config_defaults(), 4 * gib);
    budgets_set_quotas(quota, config_defaults(), &budgets);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    uint64_t all = quota_limit(quota, QUOTA_DESCRIPTORS), leases = quota_limit(quota, QUOTA_LEASES);
    assert_true(all > 0 && all < limit.rlim_cur);
    assert_int_equal(leases, all / 3);
    assert_true(leases + quota_limit(quota, QUOTA_CONNECTIONS) < all);
    assert_int_equal(quota_limit(quota, QUOTA_METADATA), 512 * mib);
    quota_destroy(quota);
}

TEST(descriptors_beyond_65536_are_kept_for_what_does_not_close)
{
    const struct config *config = config_defaults();
    assert_int_equal(budgets_shared_descriptors(config, 100), 50);
    assert_true(budgets_shared_descriptors(config, 60000) > 59000);
    assert_int_equal(budgets_shared_descriptors(config, 1 << 20), 65536);
}

TEST(blocks_may_have_what_replicas_leave_and_64_mib_or_an_eighth_at_least)
{
    struct memory_budgets large = memory_budgets_of(config_defaults(), 1025 * mib),
                          small = memory_budgets_of(config_defaults(), 1008 * mib);
    assert_int_equal(large.block_cache_bytes, 64 * mib);
    assert_int_equal(small.block_cache_bytes, 63 * mib);
    struct loop *loop = loop_create();
    struct replica_table *table = replica_table_create(loop, REPLICA_MEMORY_HOST, &(struct replica_limits){gib, 0, 0});
    struct block_room room = {.replicas = table};
    struct error error;
    budgets_set_block_room(&room, &small);
    assert_int_equal(budgets_block_room(&room), 504 * mib);
    assert_int_equal(replica_reserve(table, 1, 400 * mib, &error), 0);
    assert_int_equal(budgets_block_room(&room), 104 * mib);
    replica_reserve_anyway(table, 1, 600 * mib); /* more than there is */
    assert_int_equal(budgets_block_room(&room), 63 * mib);
    replica_unreserve(table, 1, 1000 * mib);
    assert_int_equal(budgets_block_room(&room), 504 * mib);
    replica_table_destroy(table);
    loop_destroy(loop);
}
