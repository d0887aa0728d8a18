/* Requests in flight are shared fairly between users and hosts. A call that may not wait has a deadline in the past; a
 * thread that waits says so by asking whether it is cancelled. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "source/http/http_slots.h"

enum { ROOT = 0, ANN = 71001, BOB = 71002, SLOTS = 64, HOSTS = 8 };

static struct http_origins origins;
static struct http_slots slots;
static struct http_slot held[2 * SLOTS];
static struct http_origin *hosts[HOSTS];
static struct error error;

static void start(uint32_t max, uint32_t per_host)
{
    http_origins_init(&origins, per_host, per_host);
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
    assert_true(LIST_EMPTY(&slots.flows) && LIST_EMPTY(&slots.users));
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

TEST(some_slots_are_kept_for_other_users_and_hosts)
{
    enum { ALL = HOSTS };
    static const struct {
        const char *name;
        unsigned max, per_host;
        struct {
            uid_t uid;
            unsigned host, n; /* takes all that it gets: so many */
        } steps[6];
        const char *message; /* of the last refusal */
    } rows[] = {
        {"one user leaves an eighth to others", SLOTS, SLOTS, {{ANN, ALL, SLOTS - SLOTS / 8}, {BOB, 0, 4}}, ""},
        {"root may take what users leave", SLOTS, SLOTS, {{ANN, 0, SLOTS - SLOTS / 8}, {ROOT, ALL, SLOTS / 8}}, ""},
        {"slow hosts leave slots to another host of the same user",
         SLOTS,
         SLOTS / 2,
         {{ROOT, 0, 32}, {ROOT, 1, 24}, {ROOT, 2, 4}, {ROOT, 3, 2}, {ANN, 4, 1}, {BOB, 4, 1}},
         ""},
        {"one host alone gets all that it allows",
         SLOTS,
         SLOTS / 2,
         {{ANN, 0, SLOTS / 2}},
         "32 requests are in flight to http://host-0:80, which is its limit"},
        {"a few slots are all used", 2, 32, {{ANN, 0, 2}}, "uid 71001 holds 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(rows[i].max, rows[i].per_host);
        for (unsigned step = 0; step < 6 && rows[i].steps[step].n; step++) {
            unsigned host = rows[i].steps[step].host, n = 0;
            for (unsigned h = host == ALL ? 0 : host; h < HOSTS && (host == ALL || h == host); h++)
                n += take_all(rows[i].steps[step].uid, h, UINT64_MAX);
            if (n != rows[i].steps[step].n)
                fail_msg("%s: %u in step %u", rows[i].name, n, step);
        }
        if (!strstr(error.message, rows[i].message))
            fail_msg("%s: %s", rows[i].name, error.message);
        stop(state);
    }
}

/* --- next --- */

TEST_IN(who_holds_fewer_is_next, NULL, stop)
{
    struct waiting ann, bob;
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

TEST_IN(a_full_host_does_not_hold_up_others, NULL, stop)
{
    struct waiting first;
    start(8, 2);
    assert_int_equal(take_all(ANN, 0, UINT64_MAX), 2);
    start_waiting(&first, ANN, 0);
    assert_non_null(try_for(ANN, 1, UINT64_MAX));
    cancel_waiting(&first);
}

TEST_IN(a_host_that_many_wait_for_serves_its_users_in_turn, NULL, stop)
{
    struct waiting ann, bob;
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
        n += held[i].flow && __atomic_load_n(&held[i].is_recalled, __ATOMIC_SEQ_CST);
    return n;
}

static void give_back_recalled(void)
{
    while (count_recalled() == 0)
        rest();
    for (unsigned i = 0; i < 2 * SLOTS; i++)
        if (held[i].flow && __atomic_load_n(&held[i].is_recalled, __ATOMIC_SEQ_CST))
            leave(&held[i]);
}

TEST_IN(a_slot_that_was_held_for_its_turn_is_called_back_for_who_has_fewer, NULL, stop)
{
    struct waiting bob[2];
    start(3, 32);
    assert_int_equal(take_all(ANN, 0, 0), 3);
    start_waiting(&bob[0], BOB, 1);
    give_back_recalled();
    assert_gets_one(&bob[0]);
    assert_int_equal(origins.n_recalled, 1);
    start_waiting(&bob[1], BOB, 1); /* two and one: no flow is owed anything */
    for (unsigned i = 0; i < 100; i++)
        rest();
    assert_int_equal(count_recalled(), 0);
    cancel_waiting(&bob[1]);
    leave(&bob[0].slot);
}

TEST_IN(who_has_none_takes_turns_over_the_only_slot, NULL, stop)
{
    struct waiting bob, ann;
    start(1, 32);
    assert_int_equal(take_all(ANN, 0, 0), 1);
    start_waiting(&bob, BOB, 1);
    give_back_recalled();
    assert_gets_one(&bob);
    start_waiting(&ann, ANN, 0);
    leave(&bob.slot);
    assert_gets_one(&ann);
    leave(&ann.slot);
    stop(state);
    start(2, 32); /* as another host of the same user does */
    assert_int_equal(take_all(ANN, 0, 0), 2);
    start_waiting(&ann, ANN, 1);
    give_back_recalled();
    assert_gets_one(&ann);
    leave(&ann.slot);
}

TEST_IN(a_full_host_calls_back_what_is_held_of_itself, NULL, stop)
{
    struct waiting bob;
    start(SLOTS, 2);
    assert_int_equal(take_all(ANN, 1, 0), 2);
    assert_int_equal(take_all(ANN, 0, 0), 2);
    start_waiting(&bob, BOB, 0);
    give_back_recalled();
    assert_gets_one(&bob);
    assert_true(held[0].flow && held[1].flow); /* those of the other host */
    leave(&bob.slot);
}

TEST_IN(what_may_not_be_sent_twice_is_not_called_back, NULL, stop)
{
    struct waiting bob;
    start(2, 32);
    assert_non_null(try_for(ANN, 0, UINT64_MAX));
    assert_non_null(try_for(ANN, 0, 0));
    start_waiting(&bob, BOB, 1);
    while (count_recalled() == 0)
        rest();
    assert_false(__atomic_load_n(&held[0].is_recalled, __ATOMIC_SEQ_CST));
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

TEST_IN(a_crowd_stays_within_the_limits_and_everybody_gets_through, NULL, stop)
{
    static struct waiting crowd[CROWD];
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

TEST_IN(waiting_ends_and_says_who_holds_the_slots, NULL, stop)
{
    const struct http_wish wish = {.uid = BOB, .patience_ns = 1, .turn_ns = UINT64_MAX};
    struct http_slot slot;
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
