/* How many requests at once, against stores that are simulated to the nanosecond: no clock, no thread. */
#include "tests/support/unit.h"

#include "execute/remote_pace.h"

#define MS ((uint64_t)1000000)
enum { MOST = 32 };

/* Requests share a link: one takes alone_ns, or longer when so many together would carry more than link_per_s. */
struct store {
    double alone_ns, link_per_s;
    uint64_t now_ns, began_ns[MOST];
    uint32_t n_in_flight;
};

static void start_more(struct store *store, const struct remote_pace *pace)
{
    while (store->n_in_flight < pace->limit)
        store->began_ns[store->n_in_flight++] = store->now_ns;
}

/* The oldest one comes back; in a steady state one does every 1 / rate. */
static void finish_one(struct store *store, struct remote_pace *pace)
{
    double rate = store->n_in_flight / store->alone_ns * 1e9;
    rate = rate < store->link_per_s ? rate : store->link_per_s;
    store->now_ns += (uint64_t)(1e9 / rate);
    remote_pace_add(pace, store->now_ns, store->now_ns - store->began_ns[0], store->n_in_flight);
    for (uint32_t i = 1; i < store->n_in_flight; i++)
        store->began_ns[i - 1] = store->began_ns[i];
    store->n_in_flight--;
}

static void run(struct store *store, struct remote_pace *pace, int n_requests)
{
    for (int i = 0; i < n_requests; i++) {
        start_more(store, pace);
        finish_one(store, pace);
    }
}

TEST(a_short_load_gets_all_that_is_allowed)
{
    struct store store = {.alone_ns = 200 * MS, .link_per_s = 60, .now_ns = 1};
    struct remote_pace pace;
    remote_pace_init(&pace, MOST);
    for (int i = 0; i < MOST + 8; i++) {
        assert_int_equal(pace.limit, MOST);
        run(&store, &pace, 1);
    }
}

TEST(a_link_that_is_full_gets_no_more_than_fill_it)
{
    static const double needed[] = {6, 10, 13, 20, 26};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        struct store store = {.alone_ns = 218 * MS, .link_per_s = needed[i] / 0.218, .now_ns = 1};
        struct remote_pace pace;
        remote_pace_init(&pace, MOST);
        run(&store, &pace, 400);
        assert_int_equal(pace.phase, PACE_HOLD);
        assert_true(pace.limit >= needed[i] && pace.limit <= needed[i] * 1.2 + 0.5);
    }
}

TEST(a_link_that_is_never_full_keeps_all)
{
    struct store store = {.alone_ns = 218 * MS, .link_per_s = 1e9, .now_ns = 1};
    struct remote_pace pace;
    remote_pace_init(&pace, MOST);
    run(&store, &pace, 400);
    assert_int_equal(pace.phase, PACE_HOLD);
    assert_int_equal(pace.limit, MOST);
}

TEST(a_faster_link_is_found_out)
{
    struct store store = {.alone_ns = 218 * MS, .link_per_s = 6 / 0.218, .now_ns = 1};
    struct remote_pace pace;
    remote_pace_init(&pace, MOST);
    run(&store, &pace, 400);
    assert_true(pace.limit < 10);
    store.link_per_s = 24 / 0.218;
    run(&store, &pace, 3000);
    assert_true(pace.limit >= 24);
}

TEST(too_little_to_do_teaches_nothing)
{
    struct remote_pace pace;
    remote_pace_init(&pace, MOST);
    for (uint64_t i = 1; i < 1000; i++)
        remote_pace_add(&pace, i * MS, 200 * MS, 1 + i % (MOST - 1));
    assert_int_equal(pace.phase, PACE_FIRST);
    assert_int_equal(pace.limit, MOST);
}

TEST(there_are_never_fewer_than_four_of_those_allowed)
{
    for (uint32_t most = 1; most < 8; most++) {
        struct store store = {.alone_ns = 200 * MS, .link_per_s = 5, .now_ns = 1};
        struct remote_pace pace;
        remote_pace_init(&pace, most);
        run(&store, &pace, 300);
        assert_true(pace.limit >= (most < 4 ? most : 4));
    }
}
