/* Groups whose ranks load into GPUs: the same cases as over loopback in host memory (test_collective.c), over loopback and
 * over NCCL, and what only NCCL can do wrong while they load. The real plugin on the fakes of tests/fake: an id, communicators
 * and bytes behave as documented; how fast anything is and what real links do is not tested here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/support/nccl_stage.h"
#include "tests/unit/collective_cases.h"

static struct place gpus;

static int open_gpus(void **state, bool with_nccl)
{
    const struct device_plugins *plugins = &nccl_stage.plugins;
    nccl_stage_open();
    gpus.transport = with_nccl ? plugins->transport : &transport_loopback;
    for (size_t i = 0; i < MAX_RANKS; i++)
        gpus.devices[i] = plugins->devices[i];
    *state = &gpus;
    return 0;
}

static int use_nccl(void **state)
{
    return open_gpus(state, true);
}

static int use_loopback(void **state)
{
    return open_gpus(state, false);
}

static int open_impatiently(struct transport *transport, struct error *error)
{
    transport->deadline_ns = SOON_MS * (uint64_t)NS_PER_MS;
    return nccl_stage.plugins.transport->open(transport, error);
}

static const struct transport_ops *impatient(void)
{
    static struct transport_ops ops;
    ops = *nccl_stage.plugins.transport;
    ops.open = open_impatiently;
    return &ops;
}

/* --- what NCCL is asked to do ----------------------------------------------------------------------------------------- */

static void share_all(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2])
{
    (void)rank, (void)n_ranks, (void)side, (void)tensor;
    slices[0] = slices[1] = (struct slice){0, INT64_MAX};
}

/* Except for the pieces that another worker's flush cut in two: the rest of their deliveries is sent. */
static void what_all_ranks_need_is_staged_once_and_broadcast(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 4, share_all);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.broadcasts > counts.sends && counts.broadcasts % 4 == 0);
    assert_int_equal(counts.bytes, 3 * all_bytes);
    close_team(&team);
}

static void columns_of_several_ranks_are_sent(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 4, share);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.sends > 0 && counts.broadcasts > 0);
    assert_int_equal(counts.bytes, run_collective_counters(team.loads[0]->run)->peer_transfer_bytes);
    close_team(&team);
}

/* Fakes are slow here, so that whatever is read or published too early shows. */
static void nothing_is_published_before_it_has_arrived(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 3, share);
    fake_cuda_delay(2000);
    start(&team, place->transport);
    scene_wait(&team.scene);
    fake_cuda_delay(0);
    assert_in_place(&team, UINT32_MAX);
    close_team(&team);
}

/* The buffers it read into are still copied from when the ranks that get the bytes have long queued everything. */
static void what_an_owner_reads_for_others_is_not_overwritten_before_it_is_staged(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 3, share_empty_pieces);
    for (size_t i = 0; i < team.plan->n_batches; i++)
        team.plan->batches[i].owner = 2;
    fake_cuda_delay_on(2, 5000);
    start(&team, place->transport);
    scene_wait(&team.scene);
    fake_cuda_delay(0);
    assert_in_place(&team, UINT32_MAX);
    assert_int_equal(fake_nccl_counts().bytes, all_bytes);
    close_team(&team);
}

static void communicators_are_gone_before_a_rank_is_published(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    start(&team, place->transport);
    assert_int_equal(fake_nccl_counts().live, 4);
    scene_wait(&team.scene);
    assert_int_equal(fake_nccl_counts().live, 4);
    for (uint32_t i = 0; i < 4; i++)
        run_release_transport(team.loads[i]->run);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.live == 0 && counts.destroyed == 4 && counts.aborted == 0);
    assert_in_place(&team, UINT32_MAX);
    close_team(&team);
}

static void a_transport_is_not_closed_under_a_rank_that_still_loads(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 2, share);
    fake_cuda_pause(true);
    start(&team, place->transport);
    run_cancel(team.loads[1]->run);
    run_release_transport(team.loads[1]->run);
    assert_int_equal(fake_nccl_counts().live, 2);
    fake_cuda_pause(false);
    scene_wait(&team.scene);
    assert_in_place(&team, 1);
    close_team(&team);
}

/* --- errors: in the engine -------------------------------------------------------------------------------------------- */

static void assert_all_failed(const struct team *team, const char *reason)
{
    for (uint32_t i = 0; i < team->n_ranks; i++) {
        assert_true(team->loads[i]->is_done && team->loads[i]->has_failed);
        assert_string_equal(team->loads[i]->error.reason, reason);
    }
}

/* The next load has communicators of its own, and is not disturbed by what became of the last ones. */
static void assert_next_load_is_right(const struct place *place)
{
    struct team team;
    size_t made = fake_nccl_counts().made;
    load_team(&team, place, 4, share);
    assert_int_equal(fake_nccl_counts().made, made + 4);
    close_team(&team);
}

static void load_and_fail(const struct place *place, const char *function, uint64_t nth, int code, const char *reason)
{
    struct team team;
    open_team(&team, place, 4, share_all);
    struct collective *collective = connect_team(&team, code == NEVER_ENDS ? impatient() : place->transport);
    fake_nccl_fail(function, nth, code); /* connected before, and nothing is under way yet */
    start_ranks(&team, collective);
    scene_wait(&team.scene);
    assert_all_failed(&team, reason);
    struct fake_nccl_counts counts = fake_nccl_counts();
    assert_true(counts.live == 0 && counts.aborted == 4); /* on all ranks, and at once: no rank has closed it yet */
    close_team(&team);
    assert_next_load_is_right(place);
}

static void a_transfer_that_hangs_is_aborted_when_the_deadline_is_over(void **state)
{
    load_and_fail(*state, "kernel", 3, NEVER_ENDS, "NCCL_TIMEOUT");
}

static void an_error_that_comes_up_later_aborts_all_ranks(void **state)
{
    load_and_fail(*state, "async", 9, REMOTE_ERROR, "NCCL_ERROR");
}

static void a_call_that_fails_aborts_all_ranks(void **state)
{
    load_and_fail(*state, "ncclBroadcast", 2, SYSTEM_ERROR, "NCCL_ERROR");
}

static void a_launch_that_fails_aborts_all_ranks(void **state)
{
    load_and_fail(*state, "ncclGroupEnd", 1, SYSTEM_ERROR, "NCCL_ERROR");
}

static void a_rank_that_is_gone_before_its_bytes_arrive_harms_no_other(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    fake_cuda_delay(3000);
    start(&team, place->transport);
    while (run_done_bytes(team.loads[3]->run) == 0 && !team.loads[3]->is_done)
        usleep(100);
    run_cancel(team.loads[3]->run);
    scene_wait(&team.scene);
    fake_cuda_delay(0);
    assert_in_place(&team, 3);
    close_team(&team);
}

#define NCCL_TEST(test) cmocka_unit_test_setup_teardown(test, use_nccl, nccl_stage_close)

static int run_all(void)
{
    const struct CMUnitTest loopback[] = {COLLECTIVE_CASES(use_loopback, nccl_stage_close)},
                            nccl[] = {
                                COLLECTIVE_CASES(use_nccl, nccl_stage_close),
                                NCCL_TEST(what_all_ranks_need_is_staged_once_and_broadcast),
                                NCCL_TEST(columns_of_several_ranks_are_sent),
                                NCCL_TEST(nothing_is_published_before_it_has_arrived),
                                NCCL_TEST(what_an_owner_reads_for_others_is_not_overwritten_before_it_is_staged),
                                NCCL_TEST(communicators_are_gone_before_a_rank_is_published),
                                NCCL_TEST(a_transport_is_not_closed_under_a_rank_that_still_loads),
                                NCCL_TEST(a_transfer_that_hangs_is_aborted_when_the_deadline_is_over),
                                NCCL_TEST(an_error_that_comes_up_later_aborts_all_ranks),
                                NCCL_TEST(a_call_that_fails_aborts_all_ranks),
                                NCCL_TEST(a_launch_that_fails_aborts_all_ranks),
                                NCCL_TEST(a_rank_that_is_gone_before_its_bytes_arrive_harms_no_other),
                            };
    int failed = cmocka_run_group_tests_name("loopback on GPUs", loopback, NULL, NULL);
    return failed + cmocka_run_group_tests_name("NCCL", nccl, NULL, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    return nccl_stage_init(argv[0]) ? run_all() : 1;
}
