/* One at a time for each host, and nobody waits for ever. */
#include "activations/open_hosts.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include "base/clock.h"

static const uint64_t LONG_NS = (uint64_t)60 * 1000000000, SHORT_NS = 20 * 1000000;

static void whoever_waits_for_a_host_gives_up_in_time_and_others_go_on(void **state)
{
    struct open_hosts *hosts = open_hosts_create();
    (void)state;
    struct open_host *first = open_hosts_enter(hosts, "/acts", 1, 0);
    assert_non_null(first);
    uint64_t until_ns = clock_now_ns() + SHORT_NS;
    assert_null(open_hosts_enter(hosts, "/acts", 1, until_ns));
    assert_true(clock_now_ns() >= until_ns);
    struct open_host *other = open_hosts_enter(hosts, "/acts", 2, until_ns);
    assert_non_null(other);
    open_hosts_leave(hosts, other);
    open_hosts_leave(hosts, first);
    first = open_hosts_enter(hosts, "/acts", 1, until_ns); /* it is late, but nobody is there */
    assert_non_null(first);
    open_hosts_leave(hosts, first);
    open_hosts_destroy(hosts);
}

struct visit {
    struct open_hosts *hosts;
    struct open_host *at;
};

static void *enter(void *argument)
{
    struct visit *visit = argument;
    visit->at = open_hosts_enter(visit->hosts, "/acts", 1, clock_now_ns() + LONG_NS);
    open_hosts_leave(visit->hosts, visit->at);
    return NULL;
}

static void whoever_waits_enters_as_soon_as_the_other_leaves(void **state)
{
    struct visit visit = {.hosts = open_hosts_create()};
    pthread_t thread;
    (void)state;
    struct open_host *first = open_hosts_enter(visit.hosts, "/acts", 1, 0);
    assert_int_equal(pthread_create(&thread, NULL, enter, &visit), 0);
    assert_null(
        open_hosts_enter(visit.hosts, "/acts", 1, clock_now_ns() + SHORT_NS)); /* takes nothing from who still waits */
    open_hosts_leave(visit.hosts, first);
    pthread_join(thread, NULL);
    assert_non_null(visit.at);
    open_hosts_destroy(visit.hosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_waits_for_a_host_gives_up_in_time_and_others_go_on),
        cmocka_unit_test(whoever_waits_enters_as_soon_as_the_other_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
