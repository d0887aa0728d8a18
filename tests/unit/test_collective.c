/* Runs of a group in the engine: read once, in batches, delivered by a transport; ranks that fail or leave hurt nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "execute/collective.h"
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
    int64_t lo = (int64_t)(rank * ROWS / N_RANKS), hi = lo + ROWS / N_RANKS;
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

static void open_team(struct team *team)
{
    struct view_item items[SCENE_MAX_TENSORS];
    struct slice slices[SCENE_MAX_TENSORS][2];
    scene_init(&team->scene, 5, 8 * MIB, 4, 0);
    for (int i = 0; i < 6; i++)
        scene_add_tensor(&team->scene, 2, (uint64_t[]){ROWS, COLUMNS});
    scene_write(&team->scene, 2, true);
    for (uint64_t rank = 0; rank < N_RANKS; rank++) {
        view_of(&team->scene, rank, items, slices);
        struct view_spec view = {.items = items, .n_items = team->scene.n_tensors, .align_bytes = 64};
        team->loads[rank] = load_create(&team->scene, &view, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, team->scene.device);
    }
    plan_jointly(team);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_reads_every_byte_once),
        cmocka_unit_test(a_rank_that_is_cancelled_before_the_start_holds_up_nobody),
        cmocka_unit_test(all_ranks_may_be_cancelled),
        cmocka_unit_test(a_delivery_that_fails_fails_its_rank_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
