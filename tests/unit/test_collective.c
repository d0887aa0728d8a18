/* Runs of a group in the engine: read once, in batches, delivered by a transport; ranks that fail or leave hurt nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "execute/collective.h"
#include "execute/engine_private.h"
#include "tests/support/load_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { N_RANKS = 4, MIB = 1 << 20, ROWS = 2048, COLUMNS = 2048 };

struct team {
    struct load_scene scene;
    struct load *loads[N_RANKS];
    struct collective_plan *plan;
    struct materialization_strategy strategy;
};

/* Every rank wants a quarter of the rows of one tensor, of the columns of the next, and all of the third. */
static void view_of(const struct load_scene *scene, uint64_t rank, struct view_item items[], struct slice slices[][2])
{
    int64_t side = (int64_t)scene->tensors[0].shape[0], lo = (int64_t)rank * side / N_RANKS, hi = lo + side / N_RANKS;
    for (size_t i = 0; i < scene->n_tensors; i++) {
        slices[i][0] = i % 3 == 0 ? (struct slice){lo, hi} : (struct slice){0, INT64_MAX};
        slices[i][1] = i % 3 == 1 ? (struct slice){lo, hi} : (struct slice){0, INT64_MAX};
        items[i] = (struct view_item){scene->tensors[i].name, strlen(scene->tensors[i].name), i % 3 == 2 ? 0 : 2, slices[i]};
    }
}

static void plan_jointly(struct team *team)
{
    struct collective_rank ranks[N_RANKS];
    static const uint32_t leaders[N_RANKS] = {0, 1, 2, 3};
    team->strategy = (struct materialization_strategy){.owner_file_collective_batch_bytes = 4 * MIB,
                                                       .owner_file_collective_dim1_staging_bytes = 4 * MIB,
                                                       .owner_file_collective_max_owner_skew_ratio = 1.5};
    for (uint32_t i = 0; i < N_RANKS; i++)
        ranks[i] = (struct collective_rank){team->loads[i]->mapping, i, 1};
    team->plan = collective_plan_build(ranks, N_RANKS,
                                       &(struct collective_facts){.strategy = &team->strategy, .group_id = "g",
                                                                  .world_size = N_RANKS, .leaders = leaders,
                                                                  .staging_budget_bytes = 8 * MIB});
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct plan *plan = team->loads[i]->plan;
        plan->executor = EXECUTOR_OWNER_FILE_COLLECTIVE;
        collective_plan_steps(team->plan, team->loads[i]->mapping, plan);
    }
}

/* So many square tensors. */
static void open_team_of(struct team *team, int n_tensors, uint64_t side)
{
    struct view_item items[SCENE_MAX_TENSORS];
    struct slice slices[SCENE_MAX_TENSORS][2];
    scene_init(&team->scene, 5, 8 * MIB, 4, 0);
    for (int i = 0; i < n_tensors; i++)
        scene_add_tensor(&team->scene, 2, (uint64_t[]){side, side});
    scene_write(&team->scene, 2, true);
    for (uint64_t rank = 0; rank < N_RANKS; rank++) {
        view_of(&team->scene, rank, items, slices);
        struct view_spec view = {.items = items, .n_items = team->scene.n_tensors, .align_bytes = 64};
        team->loads[rank] = load_create(&team->scene, &view, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, team->scene.device);
    }
    plan_jointly(team);
}

static void open_team(struct team *team)
{
    open_team_of(team, 6, ROWS);
}

static void close_team(struct team *team)
{
    for (int i = 0; i < N_RANKS; i++)
        load_destroy(team->loads[i]);
    collective_plan_unref(team->plan);
    scene_fini(&team->scene);
}

static void start(struct team *team, const struct transport_ops *ops)
{
    struct error error;
    struct collective *collective = collective_create(team->scene.engine, team->plan, ops, &error);
    assert_non_null(collective);
    collective_expect(collective, N_RANKS);
    for (uint32_t i = 0; i < N_RANKS; i++)
        load_start_in(team->loads[i], collective, i);
}

static uint64_t total_bytes(const struct team *team)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < team->scene.n_tensors; i++)
        bytes += (uint64_t)ROWS * COLUMNS;
    return bytes;
}

static void a_group_reads_every_byte_once(void **state)
{
    struct team team;
    uint64_t read_bytes = 0;
    (void)state;
    open_team(&team);
    start(&team, &transport_loopback);
    scene_wait(&team.scene);
    for (int i = 0; i < N_RANKS; i++) {
        assert_false(team.loads[i]->has_failed);
        assert_true(load_is_right(team.loads[i]));
        read_bytes += team.loads[i]->report.read_bytes;
    }
    const struct collective_counters *counters = run_collective_counters(team.loads[0]->run);
    assert_int_equal(read_bytes, total_bytes(&team));
    assert_int_equal(counters->unique_source_bytes, total_bytes(&team));
    assert_int_equal(counters->dedup_saving_bytes, (uint64_t)(N_RANKS - 1) * 2 * ROWS * COLUMNS);
    assert_int_equal(counters->batch_count, team.plan->n_batches);
    assert_true(counters->peer_transfer_bytes > 0 && counters->peer_transfer_bytes < 3 * total_bytes(&team));
    assert_true(counters->peak_temporary_bytes <= 8 * MIB);
    close_team(&team);
}

static void a_rank_that_is_cancelled_before_the_start_holds_up_nobody(void **state)
{
    struct team team;
    (void)state;
    open_team(&team);
    start(&team, &transport_loopback);
    run_cancel(team.loads[2]->run);
    scene_wait(&team.scene);
    for (int i = 0; i < N_RANKS; i++)
        assert_true(i == 2 || (!team.loads[i]->has_failed && load_is_right(team.loads[i])));
    close_team(&team);
}

static void all_ranks_may_be_cancelled(void **state)
{
    struct team team;
    (void)state;
    open_team(&team);
    start(&team, &transport_loopback);
    for (int i = 0; i < N_RANKS; i++)
        run_cancel(team.loads[i]->run);
    scene_wait(&team.scene);
    for (int i = 0; i < N_RANKS; i++)
        assert_true(team.loads[i]->is_done);
    close_team(&team);
}

/* --- a transport that counts, and one that fails for a rank ---------------------------------------------------------- */

static uint64_t n_flushed, n_refused; /* atomic */

static int copy_unless_last(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    if (delivery->rank == N_RANKS - 1) {
        __atomic_add_fetch(&n_refused, 1, __ATOMIC_RELAXED);
        return (fail)(error, ERROR_UNAVAILABLE, "PEER_LOST", "rank %u is gone", delivery->rank);
    }
    return transport_loopback.deliver(transport, delivery, error);
}

static int count_flush(struct transport *transport, struct error *error)
{
    (void)transport;
    (void)error;
    __atomic_add_fetch(&n_flushed, 1, __ATOMIC_RELAXED);
    return 0;
}

static void a_delivery_that_fails_fails_its_rank_and_no_other(void **state)
{
    static const struct transport_ops lossy = {.name = "lossy", .caps = {.host_memory = true}, .deliver = copy_unless_last,
                                               .flush = count_flush};
    struct team team;
    (void)state;
    n_flushed = n_refused = 0;
    open_team(&team);
    for (size_t i = 0; i < team.plan->n_batches; i++) /* rank 3 owns nothing, so everything is delivered to it */
        team.plan->batches[i].owner = 0;
    start(&team, &lossy);
    scene_wait(&team.scene);
    for (int i = 0; i + 1 < N_RANKS; i++)
        assert_true(!team.loads[i]->has_failed && load_is_right(team.loads[i]));
    assert_true(n_flushed > 0 && n_flushed <= team.plan->n_batches);
    assert_true(team.loads[N_RANKS - 1]->has_failed == (n_refused > 0));
    close_team(&team);
}

/* What many small sends cost is that each is waited for. */
static void flaw_7_many_small_tensors_are_one_batch_and_waited_for_once(void **state)
{
    struct transport_ops counting = transport_loopback;
    struct team team;
    (void)state;
    n_flushed = 0;
    counting.flush = count_flush;
    open_team_of(&team, SCENE_MAX_TENSORS, 64);
    assert_true(team.plan->n_batches <= 2); /* of two files */
    start(&team, &counting);
    scene_wait(&team.scene);
    for (int i = 0; i < N_RANKS; i++)
        assert_true(!team.loads[i]->has_failed && load_is_right(team.loads[i]));
    assert_true(n_flushed <= team.plan->n_batches);
    close_team(&team);
}

/* --- a transport that may take its time ------------------------------------------------------------------------------ */

static struct engine *watched;
static int n_free, n_held; /* atomic: how often the engine's lock was free, and was not for a long time */

static void look_at_lock(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    bool is_free = pthread_mutex_timedlock(&watched->lock, &until) == 0;
    if (is_free)
        pthread_mutex_unlock(&watched->lock);
    __atomic_add_fetch(is_free ? &n_free : &n_held, 1, __ATOMIC_RELAXED);
}

static int look_and_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    look_at_lock();
    return transport_loopback.deliver(transport, delivery, error);
}

static int look_and_flush(struct transport *transport, struct error *error)
{
    (void)transport;
    (void)error;
    look_at_lock();
    return 0;
}

static void look_and_close(struct transport *transport)
{
    (void)transport;
    look_at_lock();
}

/* Whoever waits for a peer must not make other loads wait: no function of a transport has the engine's lock. */
static void flaw_4_a_transport_that_hangs_holds_up_no_other_load(void **state)
{
    static const struct transport_ops watching = {.name = "watching", .caps = {.host_memory = true},
                                                  .deliver = look_and_deliver, .flush = look_and_flush,
                                                  .close = look_and_close};
    struct team team;
    (void)state;
    open_team(&team);
    watched = team.scene.engine;
    n_free = n_held = 0;
    start(&team, &watching);
    scene_wait(&team.scene);
    for (int i = 0; i < N_RANKS; i++) {
        load_destroy(team.loads[i]);
        team.loads[i] = NULL;
    }
    assert_int_equal(n_held, 0);
    assert_true(n_free >= 2); /* a flush and the close at least */
    close_team(&team);
}

/* --- sources that fail or are slow ----------------------------------------------------------------------------------- */

static void spoil(struct team *team, int rank, uint64_t fail_from)
{
    struct source_fault *source = team->loads[rank]->source;
    source->fail_from = fail_from;
    source->fail_count = UINT64_MAX / 2;
    source->fail_code = ERROR_UNAVAILABLE;
}

/* Every rank ends; those that have failed tell the read's error, the others have their bytes. */
static int count_failed(struct team *team)
{
    int n_failed = 0;
    for (int i = 0; i < N_RANKS; i++) {
        assert_true(team->loads[i]->is_done);
        n_failed += team->loads[i]->has_failed;
        if (team->loads[i]->has_failed)
            assert_string_equal(team->loads[i]->error.reason, "INJECTED");
        else
            assert_true(load_is_right(team->loads[i]));
    }
    return n_failed;
}

static void a_read_error_in_the_middle_fails_who_needed_the_bytes_and_ends_for_all(void **state)
{
    (void)state;
    for (int rank = 0; rank < N_RANKS; rank++) {
        struct team team;
        open_team(&team);
        spoil(&team, rank, 2);
        start(&team, &transport_loopback);
        scene_wait(&team.scene);
        assert_true(count_failed(&team) > 0);
        close_team(&team);
    }
}

static void a_source_that_fails_for_everybody_ends_every_rank_with_its_error(void **state)
{
    struct team team;
    (void)state;
    open_team(&team);
    for (int rank = 0; rank < N_RANKS; rank++)
        spoil(&team, rank, 1);
    start(&team, &transport_loopback);
    scene_wait(&team.scene);
    assert_int_equal(count_failed(&team), N_RANKS);
    close_team(&team);
}

static void a_slow_owner_is_waited_for_and_nobody_fails(void **state)
{
    struct team team;
    (void)state;
    open_team(&team);
    team.loads[1]->source->delay_ns = 5000000;
    start(&team, &transport_loopback);
    scene_wait(&team.scene);
    assert_int_equal(count_failed(&team), 0);
    close_team(&team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_reads_every_byte_once),
        cmocka_unit_test(a_rank_that_is_cancelled_before_the_start_holds_up_nobody),
        cmocka_unit_test(all_ranks_may_be_cancelled),
        cmocka_unit_test(a_delivery_that_fails_fails_its_rank_and_no_other),
        cmocka_unit_test(flaw_7_many_small_tensors_are_one_batch_and_waited_for_once),
        cmocka_unit_test(flaw_4_a_transport_that_hangs_holds_up_no_other_load),
        cmocka_unit_test(a_read_error_in_the_middle_fails_who_needed_the_bytes_and_ends_for_all),
        cmocka_unit_test(a_source_that_fails_for_everybody_ends_every_rank_with_its_error),
        cmocka_unit_test(a_slow_owner_is_waited_for_and_nobody_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
