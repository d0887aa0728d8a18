/* Requests in flight are shared fairly between users and hosts. A call that may not wait has a deadline in the past; a
 * thread that waits says so by asking whether it is cancelled. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "source/http/http_slots.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { ROOT = 0, ANN = 71001, BOB = 71002, SLOTS = 64, HOSTS = 8 };

static struct http_origins origins;
static struct http_slots slots;
static struct http_slot held[2 * SLOTS];
static struct http_origin *hosts[HOSTS];
static struct error error;

static void start(uint32_t max, uint32_t per_host)
{
    http_origins_init(&origins, per_host);
    http_slots_init(&slots, &origins, max);
    for (unsigned i = 0; i < HOSTS; i++) {
        char name[URL_ORIGIN_CHARS];
        snprintf(name, sizeof name, "http://host-%u:80", i);
        hosts[i] = http_origin_ref(&origins, name, &error);
    }
}

static void leave(struct http_slot *slot)
{
    http_slots_leave(&slots, slot, &(struct http_visit){.started_ns = clock_now_ns()});
}

static void leave_all(void)
{
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        if (held[i].flow)
            leave(&held[i]);
}

static int stop(void **state)
{
    (void)state;
    leave_all();
    assert_null(slots.flows);
    assert_null(slots.users);
    assert_int_equal(slots.in_flight, 0);
    for (unsigned i = 0; i < HOSTS; i++)
        http_origin_unref(&origins, hosts[i]);
    http_origins_fini(&origins);
    return 0;
}

/* Whether there is a slot at once; in the first of `held` that is free. It may be recalled after turn_ns. */
static struct http_slot *try_for(uid_t uid, unsigned host, uint64_t turn_ns)
{
    const struct http_wish wish = {.uid = uid, .deadline_ns = 1, .patience_ns = UINT64_MAX, .turn_ns = turn_ns};
    struct http_slot *slot = held;
    while (slot->flow)
        slot++;
    return http_slots_enter(&slots, hosts[host], &wish, slot, &error) == 0 ? slot : NULL;
}

static unsigned take_all(uid_t uid, unsigned host, uint64_t turn_ns)
{
    unsigned n = 0;
    while (try_for(uid, host, turn_ns))
        n++;
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    return n;
}

/* --- who waits --- */

struct waiting {
    pthread_t thread;
    struct http_slot slot;
    struct cancel cancel;
    struct http_wish wish;
    unsigned host;
    atomic_bool is_queued, is_cancelled, is_over;
    int result;
    struct error error;
};

static bool is_cancelled(void *data)
{
    struct waiting *waiting = data;
    atomic_store(&waiting->is_queued, true);
    return atomic_load(&waiting->is_cancelled);
}

static void *wait_on_thread(void *data)
{
    struct waiting *waiting = data;
    waiting->result = http_slots_enter(&slots, hosts[waiting->host], &waiting->wish, &waiting->slot, &waiting->error);
    atomic_store(&waiting->is_over, true);
    return NULL;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void start_waiting(struct waiting *waiting, uid_t uid, unsigned host)
{
    memset(waiting, 0, sizeof *waiting);
    waiting->host = host;
    waiting->cancel = (struct cancel){is_cancelled, waiting};
    waiting->wish =
        (struct http_wish){.uid = uid, .cancel = &waiting->cancel, .patience_ns = UINT64_MAX, .turn_ns = UINT64_MAX};
    assert_int_equal(pthread_create(&waiting->thread, NULL, wait_on_thread, waiting), 0);
    while (!atomic_load(&waiting->is_queued))
        rest();
}

static void assert_gets_one(struct waiting *waiting)
{
    pthread_join(waiting->thread, NULL);
    assert_int_equal(waiting->result, 0);
}

static void cancel_waiting(struct waiting *waiting)
{
    atomic_store(&waiting->is_cancelled, true);
    pthread_join(waiting->thread, NULL);
    assert_int_equal(waiting->result, -1);
    assert_int_equal(waiting->error.code, ERROR_CANCELLED);
}

/* --- reserve --- */

static void one_user_leaves_an_eighth_to_others(void **state)
{
    (void)state;
    start(SLOTS, SLOTS);
    unsigned n = 0;
    for (unsigned host = 0; host < HOSTS; host++)
        n += take_all(ANN, host, UINT64_MAX);
    assert_int_equal(n, SLOTS - SLOTS / 8);
    assert_non_null(try_for(BOB, 0, UINT64_MAX));
}

static void root_may_take_what_users_leave(void **state)
{
    (void)state;
    start(SLOTS, SLOTS);
    unsigned n = take_all(ANN, 0, UINT64_MAX);
    assert_int_equal(n, SLOTS - SLOTS / 8);
    for (unsigned host = 1; host < HOSTS; host++)
        n += take_all(ROOT, host, UINT64_MAX);
    assert_int_equal(n, SLOTS);
}

static void slow_hosts_leave_slots_to_another_host_of_the_same_user(void **state)
{
    (void)state;
    start(SLOTS, SLOTS / 2);
    assert_int_equal(take_all(ROOT, 0, UINT64_MAX), 32);
    assert_int_equal(take_all(ROOT, 1, UINT64_MAX), 24);
    assert_int_equal(take_all(ROOT, 2, UINT64_MAX), 4);
    assert_int_equal(take_all(ROOT, 3, UINT64_MAX), 2);
    assert_int_equal(take_all(ANN, 4, UINT64_MAX), 1);
    assert_int_equal(take_all(BOB, 4, UINT64_MAX), 1);
}

static void one_host_alone_gets_all_that_it_allows(void **state)
{
    (void)state;
    start(SLOTS, SLOTS / 2);
    assert_int_equal(take_all(ANN, 0, UINT64_MAX), SLOTS / 2);
    assert_non_null(strstr(error.message, "32 requests are in flight to http://host-0:80, which is its limit"));
}

static void a_few_slots_are_all_used(void **state)
{
    (void)state;
    start(2, 32);
    assert_int_equal(take_all(ANN, 0, UINT64_MAX), 2);
    assert_non_null(strstr(error.message, "uid 71001 holds 2"));
}

/* --- next --- */

static void who_holds_fewer_is_next(void **state)
{
    struct waiting ann, bob;
    (void)state;
    start(4, 32);
    for (unsigned i = 0; i < 3; i++)
        assert_non_null(try_for(ANN, 0, UINT64_MAX));
    assert_non_null(try_for(BOB, 1, UINT64_MAX));
    start_waiting(&ann, ANN, 0);
    start_waiting(&bob, BOB, 1);
    leave(&held[0]);
    assert_gets_one(&bob); /* two each now */
    assert_false(atomic_load(&ann.is_over));
    leave(&held[1]);
    assert_gets_one(&ann);
    leave(&ann.slot);
    leave(&bob.slot);
}

static void a_full_host_does_not_hold_up_others(void **state)
{
    struct waiting first;
    (void)state;
    start(8, 2);
    assert_int_equal(take_all(ANN, 0, UINT64_MAX), 2);
    start_waiting(&first, ANN, 0);
    assert_non_null(try_for(ANN, 1, UINT64_MAX));
    cancel_waiting(&first);
}

static void a_host_that_many_wait_for_serves_its_users_in_turn(void **state)
{
    struct waiting ann, bob;
    (void)state;
    start(SLOTS, 2);
    for (unsigned host = 1; host < HOSTS; host++)
        take_all(ANN, host, UINT64_MAX); /* many elsewhere ... */
    unsigned n = 2 * (HOSTS - 1);
    assert_int_equal(take_all(BOB, 0, UINT64_MAX), 2);
    start_waiting(&bob, BOB, 0);
    start_waiting(&ann, ANN, 0);
    leave(&held[n]);
    assert_gets_one(&ann); /* ... and yet next at this host, where the other has one */
    leave(&held[n + 1]);
    assert_gets_one(&bob);
    leave(&ann.slot);
    leave(&bob.slot);
}

/* --- recall --- */

static unsigned count_recalled(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        n += held[i].flow && atomic_load(&held[i].is_recalled);
    return n;
}

static void give_back_recalled(void)
{
    while (count_recalled() == 0)
        rest();
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        if (held[i].flow && atomic_load(&held[i].is_recalled))
            leave(&held[i]);
}

static void a_slot_that_was_held_for_its_turn_is_called_back_for_who_has_fewer(void **state)
{
    struct waiting bob[2];
    (void)state;
    start(3, 32);
    assert_int_equal(take_all(ANN, 0, 0), 3);
    start_waiting(&bob[0], BOB, 1);
    give_back_recalled();
    assert_gets_one(&bob[0]);
    assert_int_equal(slots.n_recalled, 1);
    start_waiting(&bob[1], BOB, 1); /* two and one: nobody is owed anything */
    for (unsigned i = 0; i < 100; i++)
        rest();
    assert_int_equal(count_recalled(), 0);
    cancel_waiting(&bob[1]);
    leave(&bob[0].slot);
}

static void who_has_none_takes_turns_over_the_only_slot(void **state)
{
    struct waiting bob, ann;
    (void)state;
    start(1, 32);
    assert_int_equal(take_all(ANN, 0, 0), 1);
    start_waiting(&bob, BOB, 1);
    give_back_recalled();
    assert_gets_one(&bob);
    start_waiting(&ann, ANN, 0);
    leave(&bob.slot);
    assert_gets_one(&ann);
    leave(&ann.slot);
}

static void another_host_of_the_same_user_calls_back_too(void **state)
{
    struct waiting second;
    (void)state;
    start(2, 32);
    assert_int_equal(take_all(ANN, 0, 0), 2);
    start_waiting(&second, ANN, 1);
    give_back_recalled();
    assert_gets_one(&second);
    leave(&second.slot);
}

static void a_full_host_calls_back_what_is_held_of_itself(void **state)
{
    struct waiting bob;
    (void)state;
    start(SLOTS, 2);
    assert_int_equal(take_all(ANN, 1, 0), 2);
    assert_int_equal(take_all(ANN, 0, 0), 2);
    start_waiting(&bob, BOB, 0);
    give_back_recalled();
    assert_gets_one(&bob);
    assert_true(held[0].flow && held[1].flow); /* those of the other host */
    leave(&bob.slot);
}

static void what_may_not_be_sent_twice_is_not_called_back(void **state)
{
    struct waiting bob;
    (void)state;
    start(2, 32);
    assert_non_null(try_for(ANN, 0, UINT64_MAX));
    assert_non_null(try_for(ANN, 0, 0));
    start_waiting(&bob, BOB, 1);
    while (count_recalled() == 0)
        rest();
    assert_false(atomic_load(&held[0].is_recalled));
    leave(&held[1]);
    assert_gets_one(&bob);
    leave(&bob.slot);
}

/* --- many at once --- */

enum { CROWD = 24, ROUNDS = 200 };

static void *come_and_go(void *data)
{
    struct waiting *waiting = data;
    for (unsigned i = 0; i < ROUNDS && waiting->result == 0; i++) {
        struct http_origin *host = hosts[(waiting->host + i) % 3];
        waiting->result = http_slots_enter(&slots, host, &waiting->wish, &waiting->slot, &waiting->error);
        if (waiting->result)
            break;
        pthread_mutex_lock(&origins.lock);
        bool is_within = slots.in_flight <= slots.max && host->in_flight <= host->limit.allowed;
        pthread_mutex_unlock(&origins.lock);
        waiting->result = is_within ? 0 : -1;
        leave(&waiting->slot);
    }
    return NULL;
}

static void a_crowd_stays_within_the_limits_and_everybody_gets_through(void **state)
{
    static struct waiting crowd[CROWD];
    (void)state;
    start(9, 4);
    memset(crowd, 0, sizeof crowd);
    for (unsigned i = 0; i < CROWD; i++) {
        crowd[i].host = i;
        crowd[i].wish = (struct http_wish){.uid = i % 4 ? ANN + i % 4 : ROOT, .patience_ns = UINT64_MAX};
        assert_int_equal(pthread_create(&crowd[i].thread, NULL, come_and_go, &crowd[i]), 0);
    }
    for (unsigned i = 0; i < CROWD; i++) {
        pthread_join(crowd[i].thread, NULL);
        assert_int_equal(crowd[i].result, 0);
    }
}

/* --- the end of patience --- */

static void waiting_ends_and_says_who_holds_the_slots(void **state)
{
    const struct http_wish wish = {.uid = BOB, .patience_ns = 1, .turn_ns = UINT64_MAX};
    struct http_slot slot;
    (void)state;
    start(2, 32);
    assert_non_null(try_for(ANN, 0, UINT64_MAX));
    assert_non_null(try_for(ROOT, 1, UINT64_MAX));
    assert_int_equal(http_slots_enter(&slots, hosts[2], &wish, &slot, &error), -1);
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_string_equal(error.reason, "NO_PROGRESS");
    assert_non_null(strstr(error.message, "2 of 2 requests are in flight"));
    assert_non_null(strstr(error.message, "uid 71001 holds 1"));
    assert_non_null(strstr(error.message, "uid 0 holds 1"));
}

int main(void)
{
#define SLOT(name) cmocka_unit_test_teardown(name, stop)
    const struct CMUnitTest tests[] = {
        SLOT(one_user_leaves_an_eighth_to_others),
        SLOT(root_may_take_what_users_leave),
        SLOT(slow_hosts_leave_slots_to_another_host_of_the_same_user),
        SLOT(one_host_alone_gets_all_that_it_allows),
        SLOT(a_few_slots_are_all_used),
        SLOT(who_holds_fewer_is_next),
        SLOT(a_full_host_does_not_hold_up_others),
        SLOT(a_host_that_many_wait_for_serves_its_users_in_turn),
        SLOT(a_slot_that_was_held_for_its_turn_is_called_back_for_who_has_fewer),
        SLOT(who_has_none_takes_turns_over_the_only_slot),
        SLOT(another_host_of_the_same_user_calls_back_too),
        SLOT(a_full_host_calls_back_what_is_held_of_itself),
        SLOT(what_may_not_be_sent_twice_is_not_called_back),
        SLOT(a_crowd_stays_within_the_limits_and_everybody_gets_through),
        SLOT(waiting_ends_and_says_who_holds_the_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
