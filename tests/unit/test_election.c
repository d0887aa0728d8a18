/* How long a host is late, and how long an owner is waited for. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "hosts/election.h"

static const uint64_t second_ns = 1000 * (uint64_t)NS_PER_MS;

TEST(requests_side_by_side_are_late_together)
{
    struct lateness lateness = {0};
    assert_false(lateness_is_on(&lateness, 0));
    assert_true(lateness_mark(&lateness, 1 * second_ns, 4 * second_ns));
    assert_false(lateness_mark(&lateness, 2 * second_ns, 5 * second_ns));
    assert_true(lateness_is_on(&lateness, 13 * second_ns));
    assert_false(lateness_is_on(&lateness, 14 * second_ns));
}

TEST(a_host_that_is_late_again_is_left_alone_for_twice_as_long)
{
    struct lateness lateness = {0};
    uint64_t now_ns = second_ns, pause_ns = 10 * second_ns;
    for (int i = 0; i < 8; i++) {
        assert_true(lateness_mark(&lateness, now_ns, now_ns + 3 * second_ns));
        assert_int_equal(lateness.until_ns, now_ns + 3 * second_ns + pause_ns);
        now_ns = lateness.until_ns;
        pause_ns = pause_ns < 160 * second_ns ? 2 * pause_ns : pause_ns;
    }
}

TEST(a_host_that_answers_well_again_begins_with_a_short_pause)
{
    struct lateness lateness = {0};
    lateness_mark(&lateness, second_ns, second_ns);
    for (int i = 0; i < 40; i++) /* of requests that were under way: the mark stays */
        lateness_add_answer(&lateness, second_ns / 100, second_ns / 2, 2 * second_ns);
    assert_true(lateness_is_on(&lateness, 2 * second_ns));
    for (int i = 0; i < 40; i++)
        assert_false(lateness_add_answer(&lateness, second_ns / 100, second_ns / 2, 12 * second_ns));
    assert_true(lateness_mark(&lateness, 12 * second_ns, 13 * second_ns));
    assert_int_equal(lateness.until_ns, 23 * second_ns);
}

TEST(three_slow_reads_in_a_row_make_a_host_late)
{
    struct lateness lateness = {0};
    assert_false(lateness_add_slow_read(&lateness, 0, 4 * second_ns));
    assert_false(lateness_add_slow_read(&lateness, 0, 4 * second_ns));
    lateness_add_answer(&lateness, 1, 1, 5 * second_ns);
    assert_false(lateness_add_slow_read(&lateness, 0, 8 * second_ns));
    assert_false(lateness_add_slow_read(&lateness, 0, 8 * second_ns));
    assert_true(lateness_add_slow_read(&lateness, 0, 8 * second_ns));
    assert_true(lateness_is_on(&lateness, 9 * second_ns));
}

/* Half a second is still good. */
static bool is_late_after(struct lateness *lateness, double took_s, int answers, double each_s, uint64_t *now_ns)
{
    bool is_late = false;
    for (int i = 0; i < answers; i++) {
        *now_ns += (uint64_t)(each_s * (double)second_ns);
        is_late = lateness_add_answer(lateness, (uint64_t)(took_s * (double)second_ns), second_ns / 2, *now_ns) || is_late;
    }
    return is_late;
}

TEST(a_host_is_late_when_all_answers_are_too_slow_for_twice_as_long)
{
    struct lateness good = {0}, slow = {0};
    uint64_t now_ns = second_ns;
    assert_false(is_late_after(&good, 0.5, 1000, 0.01, &now_ns));
    assert_false(is_late_after(&slow, 0.51, 100, 0.01, &now_ns));
    assert_true(is_late_after(&slow, 0.51, 1, 0.01, &now_ns));
    assert_true(lateness_is_on(&slow, now_ns) && !lateness_is_on(&good, now_ns));
}

TEST(a_host_is_late_after_a_second_of_slow_answers_even_where_blocks_are_quick)
{
    struct lateness lateness = {0};
    uint64_t now_ns = second_ns;
    for (int i = 0; i < 100; i++, now_ns += second_ns / 100)
        assert_false(lateness_add_answer(&lateness, second_ns / 5, second_ns / 10, now_ns));
    assert_true(lateness_add_answer(&lateness, second_ns / 5, second_ns / 10, now_ns));
}

TEST(slow_answers_long_after_each_other_make_no_host_late)
{
    struct lateness lateness = {0};
    uint64_t now_ns = second_ns;
    for (int i = 0; i < 10; i++) { /* loads that begin slowly */
        assert_false(is_late_after(&lateness, 0.6, 10, 0.01, &now_ns));
        now_ns += 100 * second_ns;
    }
    assert_true(is_late_after(&lateness, 0.6, 200, 0.01, &now_ns));
}

TEST(an_answer_is_slow_by_what_other_hosts_answers_take_and_by_own_reads_alone_without_them)
{
    const uint64_t tenth_ns = second_ns / 10;
    assert_int_equal(election_slow_ns(0, 0), 0); /* nothing is known */
    assert_int_equal(election_slow_ns(tenth_ns, 0), 5 * tenth_ns);
    assert_int_equal(election_slow_ns(0, tenth_ns), 5 * tenth_ns);
    assert_int_equal(election_slow_ns(tenth_ns, tenth_ns), 5 * tenth_ns);
    assert_int_equal(election_slow_ns(2 * second_ns, tenth_ns),
                     31 * tenth_ns); /* the store is slow: others answer from memory */
}

TEST(hosts_that_are_slow_alike_are_not_late)
{
    struct lateness hosts[3] = {0};
    uint64_t now_ns = second_ns;
    for (int i = 0; i < 300; i++, now_ns += second_ns / 100) { /* each takes two seconds, this host a tenth */
        struct lateness *one = &hosts[i % 3];
        uint64_t others_ns = (hosts[(i + 1) % 3].mean_ns + hosts[(i + 2) % 3].mean_ns) / 2;
        assert_false(lateness_add_answer(one, 2 * second_ns, election_slow_ns(second_ns / 10, others_ns), now_ns));
    }
}

TEST(a_host_that_stood_still_for_a_moment_is_not_late)
{
    struct lateness lateness = {0};
    uint64_t now_ns = second_ns;
    for (int i = 0; i < 10; i++) {
        assert_false(is_late_after(&lateness, 3, 64, 0.01, &now_ns)); /* all that waited for it */
        assert_false(is_late_after(&lateness, 0.1, 1, 0.01, &now_ns));
    }
}

TEST(a_host_is_not_judged_by_its_answers_while_nothing_is_known_of_others)
{
    struct lateness lateness = {0};
    for (uint64_t i = 1; i < 100; i++)
        assert_false(lateness_add_answer(&lateness, 10 * second_ns, 0, i * second_ns));
}

TEST(answers_that_come_while_a_host_is_late_do_not_count_afterwards)
{
    struct lateness lateness = {0};
    uint64_t now_ns = second_ns;
    lateness_mark(&lateness, now_ns, now_ns);
    assert_false(is_late_after(&lateness, 5, 100, 0.05, &now_ns));
    now_ns = lateness.until_ns;
    assert_false(is_late_after(&lateness, 5, 100, 0.01, &now_ns));
    assert_true(is_late_after(&lateness, 5, 1, 0.01, &now_ns));
}

TEST(what_is_quick_falls_at_once_and_rises_slowly)
{
    uint64_t quick_ns = election_quick_ns(0, 500);
    assert_int_equal(quick_ns, 500);
    quick_ns = election_quick_ns(quick_ns, 100);
    assert_int_equal(quick_ns, 100);
    for (int i = 0; i < 100; i++)
        quick_ns = election_quick_ns(quick_ns, 100000);
    assert_in_range(quick_ns, 5000, 20000);
}

TEST(patience_grows_with_what_a_block_costs_this_host)
{
    assert_int_equal(election_patience_ns(second_ns / 10), 3 * second_ns);
    assert_int_equal(election_patience_ns(5 * second_ns), 20 * second_ns);
    assert_int_equal(election_patience_ns(0), 15 * second_ns);
    assert_int_equal(election_patience_ns(UINT64_MAX), 60 * second_ns);
}

TEST(a_host_asks_the_next_one_before_it_reads_what_costs_it_much)
{
    assert_false(election_asks_next(0));
    assert_false(election_asks_next(second_ns / 20));
    assert_true(election_asks_next(second_ns));
}

TEST(all_hosts_follow_the_order_of_the_file_and_ask_owners_in_orders_of_their_own)
{
    const uint64_t owners[] = {shared_host_hash("a"), shared_host_hash("b"), shared_host_hash("c"), shared_host_hash("d")};
    size_t first[4] = {0};
    assert_true(election_turn(1, owners[0], 0) > 0);
    for (uint64_t host = 0; host < 400; host++) {
        size_t best = 0;
        for (size_t i = 0; i < 4; i++) {
            assert_true(election_turn(host, owners[i], 7) < election_turn(host, owners[(i + 1) % 4], 8));
            best = election_turn(host, owners[i], 0) < election_turn(host, owners[best], 0) ? i : best;
        }
        first[best]++;
    }
    for (size_t i = 0; i < 4; i++)
        assert_in_range(first[i], 50, 150);
}
