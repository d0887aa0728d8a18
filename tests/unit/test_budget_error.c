/* The words of a budget that has no room. */
#include "replica/budget_error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h> /* last: it has a macro called fail */

#define MIB ((uint64_t)1 << 20)

static void what_is_pinned_is_told_where_there_is_some(void **state)
{
    (void)state;
    struct error error;
    struct holders *holders = holders_create();
    struct budget_numbers numbers = {.memory = REPLICA_MEMORY_HOST,
                                     .budget_bytes = 100 * MIB,
                                     .available_bytes = 40 * MIB,
                                     .held_bytes = 60 * MIB,
                                     .holders = holders};
    assert_int_equal(budget_error_fail(&numbers, 1000, 50 * MIB, &error), -1);
    assert_string_equal(error.reason, "HOST_BUDGET_EXCEEDED");
    assert_non_null(strstr(error.message, "60.0 MiB are held by leased replicas, 0 B by loads in flight"));
    assert_null(strstr(error.message, "pin"));
    numbers.pinned_bytes = 20 * MIB;
    assert_int_equal(budget_error_fail(&numbers, 1000, 50 * MIB, &error), -1);
    assert_non_null(strstr(error.message, "60.0 MiB are held by leased replicas or pinned (20.0 MiB pinned), 0 B by loads"));
    assert_non_null(strstr(error.message, "end clients that hold memory, unpin replicas, or raise memory.host_budget"));
    numbers.memory = REPLICA_MEMORY_DEVICE;
    budget_error_fail(&numbers, 1000, 50 * MIB, &error);
    assert_string_equal(error.reason, "DEVICE_BUDGET_EXCEEDED");
    numbers.memory = REPLICA_MEMORY_OF_A_USER;
    budget_error_fail(&numbers, 1000, 50 * MIB, &error);
    assert_string_equal(error.reason, "NOT_ENOUGH_MEMORY");
    holders_destroy(holders);
}

static void what_can_never_fit_is_told_what_would(void **state)
{
    (void)state;
    struct error error;
    struct budget_numbers numbers = {.memory = REPLICA_MEMORY_HOST, .budget_bytes = 300 * MIB, .most_bytes = 300 * MIB};
    assert_int_equal(budget_error_fail(&numbers, 0, 700 * MIB, &error), -1);
    assert_string_equal(error.reason, "HOST_BUDGET_EXCEEDED");
    assert_non_null(strstr(error.message, "can never fit: memory.host_budget is 300 MiB; raise it to at least 701MiB"));
    assert_null(strstr(error.message, "end clients"));
    numbers.most_bytes = 270 * MIB;
    budget_error_fail(&numbers, 1000, 280 * MIB, &error);
    assert_non_null(
        strstr(error.message,
               "is 300 MiB, of which one user may have 270 MiB (limits.kept_for_others); raise it to at least 312MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_pinned_is_told_where_there_is_some),
                                       cmocka_unit_test(what_can_never_fit_is_told_what_would)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
