/* Which way bytes come to several hosts: the seconds of the model's tables, where the choice turns, and what stands in the way. */
#include "tests/support/unit.h"

#include "plan/hosts_choice.h"

#define GB ((uint64_t)1000000000)
#define GBIT_S (1 / 8.0) /* in bytes per ns */

/* 1.4 TB, half of it for each host, a third more is read for it; 100 Gbit/s from the store to a
 * host, 400 Gbit/s between hosts, all measured. */
static struct hosts_facts model_of(uint32_t hosts)
{
    return (struct hosts_facts){.is_on = true,
                                .alive = hosts,
                                .artifact_bytes = 1400 * GB,
                                .needed_bytes = 700 * GB,
                                .read_bytes = 2800 * GB / 3,
                                .source = 100 * GBIT_S,
                                .is_source_measured = true,
                                .peers = 400 * GBIT_S};
}

/* As the tables are printed. */
static void assert_seconds(const struct hosts_choice *choice, enum hosts_way way, int seconds)
{
    double found = choice->candidates[way].estimated_ms / 1000;
    if (found < seconds - 0.51 || found > seconds + 0.51)
        fail_msg("%s of %u hosts: %.2f s instead of %d", hosts_way_names[way], choice->alive, found, seconds);
}

TEST(estimates_are_the_seconds_of_the_models_table)
{
    static const struct {
        uint32_t hosts;
        int all, slices, owners;
    } rows[] = {{2, 112, 75, 56}, {4, 112, 75, 28}, {8, 112, 75, 14}, {16, 112, 75, 13}, {64, 112, 75, 14}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hosts_facts facts = model_of(rows[i].hosts);
        struct hosts_choice choice = hosts_choose(&facts);
        assert_seconds(&choice, HOSTS_READ_ALL, rows[i].all);
        assert_seconds(&choice, HOSTS_LOCAL_SLICES, rows[i].slices);
        assert_seconds(&choice, HOSTS_OWNER_PEERS, rows[i].owners);
        assert_int_equal(choice.way, HOSTS_OWNER_PEERS);
    }
}

/* It takes more than one copy of the model, and F > Rg * (1 - 1/H) / alpha. */
TEST(owners_win_while_the_hosts_are_quicker_than_the_source_by_what_slices_read_too_much)
{
    struct hosts_facts facts = model_of(8);
    double turn = facts.source * (1 - 1 / 8.0) / (4 / 3.0);
    for (double factor = 0.5; factor < 2; factor += 0.1) {
        facts.peers = turn * factor;
        struct hosts_choice choice = hosts_choose(&facts);
        double ratio =
            choice.candidates[HOSTS_OWNER_PEERS].estimated_ms / choice.candidates[HOSTS_LOCAL_SLICES].estimated_ms;
        assert_true(ratio * factor > 0.99 && ratio * factor < 1.01);
        assert_int_equal(choice.way, ratio > 1.1 ? HOSTS_LOCAL_SLICES : HOSTS_OWNER_PEERS); /* a tenth is a fair price */
    }
    facts.peers = 4;
    struct hosts_choice choice = hosts_choose(&facts);
    assert_int_equal(choice.reason.kind, REASON_OWNER_PEERS_SLOWER);
    assert_string_equal(choice.reason.text, "owner_peers_slower:153126ms,local_slices=74667ms");
}

TEST(rates_that_are_assumed_refuse_nothing)
{
    struct hosts_facts facts = model_of(8);
    facts.peers = 0.1;
    facts.is_source_measured = false;
    assert_int_equal(hosts_choose(&facts).way, HOSTS_OWNER_PEERS);
    facts.is_source_measured = true;
    assert_int_equal(hosts_choose(&facts).way, HOSTS_LOCAL_SLICES);
    facts.peers = 0;
    struct hosts_choice choice = hosts_choose(&facts);
    assert_int_equal(choice.way, HOSTS_OWNER_PEERS);
    assert_seconds(&choice, HOSTS_OWNER_PEERS, (int)(700 * 7 / 8.0 / hosts_peers_rate(&facts)));
    facts.peers = 0.1;
    facts.answers = 600; /* at once: 60 GB/s, more than the source */
    choice = hosts_choose(&facts);
    assert_int_equal(choice.way, HOSTS_OWNER_PEERS);
    assert_seconds(&choice, HOSTS_OWNER_PEERS, 14);
    facts.source = facts.peers = 0; /* nothing is known at all */
    assert_int_equal(hosts_choose(&facts).way, HOSTS_OWNER_PEERS);
}

TEST(what_stands_in_the_way_of_owners_is_the_reason)
{
    static const char away[] = "10.0.0.1:2379: connection refused", local[] = "the file system is this host's alone";
    struct {
        struct hosts_facts facts;
        const char *reason;
    } rows[] = {{model_of(1), "hosts_off"},     {model_of(4), "etcd_away:10.0.0.1:2379: connection refused"},
                {model_of(1), "no_other_host"}, {model_of(4), "source_not_shared:the file system is this host's alone"},
                {model_of(4), "in_page_cache"}, {model_of(4), "hosts_share:alive=4"}};
    rows[0].facts.is_on = false;
    snprintf(rows[1].facts.etcd_problem, sizeof rows[1].facts.etcd_problem, "%s", away);
    rows[3].facts.unshared = local;
    rows[4].facts.cached_share = 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct hosts_choice choice = hosts_choose(&rows[i].facts);
        bool is_chosen = i == sizeof rows / sizeof rows[0] - 1;
        assert_string_equal(choice.reason.text, rows[i].reason);
        assert_string_equal(choice.candidates[HOSTS_OWNER_PEERS].reason.text, is_chosen ? "eligible" : rows[i].reason);
        assert_int_equal(choice.way, is_chosen ? HOSTS_OWNER_PEERS : HOSTS_LOCAL_SLICES);
        assert_int_equal(choice.alive, i ? rows[i].facts.alive : 0);
        assert_true(choice.candidates[HOSTS_READ_ALL].estimated_ms > choice.candidates[HOSTS_LOCAL_SLICES].estimated_ms);
        assert_int_equal(choice.candidates[HOSTS_OWNER_PEERS].estimated_ms > 0, rows[i].facts.alive > 1);
    }
}

TEST(a_load_of_everything_reads_all_and_one_of_a_part_does_not)
{
    struct hosts_facts facts = model_of(1);
    struct hosts_choice choice = hosts_choose(&facts);
    assert_int_equal(choice.way, HOSTS_LOCAL_SLICES);
    assert_int_equal(choice.candidates[HOSTS_READ_ALL].reason.kind, REASON_NOT_ALL_IS_NEEDED);
    assert_int_equal(choice.candidates[HOSTS_LOCAL_SLICES].reason.kind, REASON_ELIGIBLE);
    facts.needed_bytes = facts.read_bytes = facts.artifact_bytes;
    facts.requests_ns = 1e9;
    choice = hosts_choose(&facts);
    assert_int_equal(choice.way, HOSTS_READ_ALL);
    assert_int_equal(choice.candidates[HOSTS_READ_ALL].reason.kind, REASON_ELIGIBLE);
    assert_int_equal(choice.candidates[HOSTS_LOCAL_SLICES].reason.kind, REASON_ALL_IS_NEEDED);
    assert_true(choice.candidates[HOSTS_READ_ALL].estimated_ms == choice.candidates[HOSTS_LOCAL_SLICES].estimated_ms);
    assert_seconds(&choice, HOSTS_READ_ALL, 113); /* the requests, too */
}

TEST(hosts_that_need_little_share_only_that)
{
    struct hosts_facts facts = model_of(8);
    facts.needed_bytes = facts.read_bytes = 80 * GB;
    struct hosts_choice choice = hosts_choose(&facts);
    assert_seconds(&choice, HOSTS_OWNER_PEERS, 6); /* 640 GB are needed by all of them: an eighth each */
    assert_seconds(&choice, HOSTS_LOCAL_SLICES, 6);
}
