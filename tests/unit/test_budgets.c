/* What the configuration leaves open is a part of the memory limit, within bounds; what it says holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "budgets.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static const uint64_t mib = 1 << 20, gib = 1 << 30;

static void half_of_the_memory_is_for_replicas_and_parts_of_that_for_the_rest(void **state)
{
    (void)state;
    struct budgets budgets = budgets_of(config_defaults(), 4 * gib);
    assert_int_equal(budgets.host_bytes, 2 * gib);
    assert_int_equal(budgets.extent_cache_bytes, 256 * mib);
    assert_int_equal(budgets.metadata_bytes, 512 * mib);
    assert_int_equal(budgets.header_cache_bytes, 128 * mib);
}

static void a_small_host_has_room_for_metadata_and_a_large_one_not_too_much(void **state)
{
    (void)state;
    struct budgets little = budgets_of(config_defaults(), 64 * mib), much = budgets_of(config_defaults(), 2048 * gib);
    assert_int_equal(little.metadata_bytes, 256 * mib);
    assert_int_equal(much.metadata_bytes, gib);
    assert_int_equal(much.extent_cache_bytes, gib);
    assert_int_equal(much.header_cache_bytes, 256 * mib);
}

static void what_is_configured_holds(void **state)
{
    struct config config = *config_defaults();
    (void)state;
    config.memory.host_budget_bytes = 3 * gib;
    config.memory.extent_cache_bytes = 5 * mib;
    config.memory.metadata_budget_bytes = 7 * mib;
    struct budgets budgets = budgets_of(&config, 64 * mib);
    assert_int_equal(budgets.host_bytes, 3 * gib);
    assert_int_equal(budgets.extent_cache_bytes, 5 * mib);
    assert_int_equal(budgets.metadata_bytes, 7 * mib);
}

static void descriptors_are_shared_out_between_connections_leases_and_files(void **state)
{
    struct rlimit limit;
    struct quota *quota = quota_create();
    struct budgets budgets = budgets_of(config_defaults(), 4 * gib);
    (void)state;
    budgets_set_quotas(quota, config_defaults(), &budgets);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    uint64_t all = quota_limit(quota, QUOTA_DESCRIPTORS), leases = quota_limit(quota, QUOTA_LEASES);
    assert_true(all > 0 && all < limit.rlim_cur);
    assert_int_equal(leases, all / 3);
    assert_true(leases + quota_limit(quota, QUOTA_CONNECTIONS) < all);
    assert_int_equal(quota_limit(quota, QUOTA_METADATA), 512 * mib);
    quota_destroy(quota);
}

static void descriptors_beyond_65536_are_kept_for_what_does_not_close(void **state)
{
    const struct config *config = config_defaults();
    (void)state;
    assert_int_equal(budgets_shared_descriptors(config, 100), 50);
    assert_true(budgets_shared_descriptors(config, 60000) > 59000);
    assert_int_equal(budgets_shared_descriptors(config, 1 << 20), 65536);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_memory_is_for_replicas_and_parts_of_that_for_the_rest),
        cmocka_unit_test(a_small_host_has_room_for_metadata_and_a_large_one_not_too_much),
        cmocka_unit_test(what_is_configured_holds),
        cmocka_unit_test(descriptors_are_shared_out_between_connections_leases_and_files),
        cmocka_unit_test(descriptors_beyond_65536_are_kept_for_what_does_not_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
