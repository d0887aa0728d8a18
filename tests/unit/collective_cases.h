/* What has to be true of a group of runs over any transport, on any memory: test_collective.c and test_collective_nccl.c run
 * these cases. Included last except for cmocka.h. */
#ifndef UNIT_COLLECTIVE_CASES_H
#define UNIT_COLLECTIVE_CASES_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "execute/collective.h"
#include "tests/support/load_scene.h"
#include "tests/support/random_transfers.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { MAX_RANKS = 4, MIB = 1 << 20, SIDE = 1024, BATCH_BYTES = 3 * SIDE * SIDE / 2 };

/* Where a case runs. A device that is NULL is host memory. */
struct place {
    const struct transport_ops *transport;
    struct device *devices[MAX_RANKS];
};

struct setting {
    size_t n_tensors;
    uint64_t side; /* of the tensors, which are square */
    uint64_t batch_bytes, n_threads;
};

typedef void view_fn(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2]);

struct team {
    struct load_scene scene;
    struct load *loads[MAX_RANKS];
    struct device *devices[MAX_RANKS];
    uint32_t n_ranks;
    struct collective_plan *plan;
    struct materialization_strategy strategy;
};

/* Every rank wants a part of the rows of one tensor, of the columns of the next, and all of the third. */
static void share(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2])
{
    int64_t part = (int64_t)side / n_ranks, lo = rank * part;
    slices[0] = tensor % 3 == 0 ? (struct slice){lo, lo + part} : (struct slice){0, INT64_MAX};
    slices[1] = tensor % 3 == 1 ? (struct slice){lo, lo + part} : (struct slice){0, INT64_MAX};
}

/* No two ranks want the same. */
static void share_nothing(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2])
{
    int64_t part = (int64_t)side / n_ranks, lo = rank * part;
    slices[0] = tensor % n_ranks == rank ? (struct slice){0, INT64_MAX} : (struct slice){lo, lo};
    slices[1] = (struct slice){0, INT64_MAX};
}

/* What only the last rank wants lies at the end of the files. */
static void share_all_but_the_end(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2])
{
    bool is_wanted = (rank + 1 == n_ranks) == (tensor >= 4);
    slices[0] = is_wanted ? (struct slice){0, (int64_t)side} : (struct slice){0, 0};
    slices[1] = (struct slice){0, INT64_MAX};
}

/* The last rank wants pieces of no bytes only, the others these and whole tensors. */
static void share_empty_pieces(uint32_t rank, uint32_t n_ranks, uint64_t side, size_t tensor, struct slice slices[2])
{
    (void)side;
    bool is_empty = rank + 1 == n_ranks || tensor % 2 == 0;
    slices[0] = is_empty ? (struct slice){7, 7} : (struct slice){0, INT64_MAX};
    slices[1] = (struct slice){0, INT64_MAX};
}

static void make_loads(struct team *team, view_fn *view_of)
{
    struct view_item items[SCENE_MAX_TENSORS];
    struct slice slices[SCENE_MAX_TENSORS][2];
    for (uint32_t rank = 0; rank < team->n_ranks; rank++) {
        for (size_t i = 0; i < team->scene.n_tensors; i++) {
            const char *name = team->scene.tensors[i].name;
            view_of(rank, team->n_ranks, team->scene.tensors[i].shape[0], i, slices[i]);
            items[i] = (struct view_item){name, strlen(name), 2, slices[i]};
        }
        struct view_spec view = {.items = items, .n_items = team->scene.n_tensors, .align_bytes = 64};
        team->loads[rank] =
            scene_load_create(&team->scene, &view, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, team->devices[rank]);
    }
}

static void plan_jointly(struct team *team, uint64_t batch_bytes)
{
    struct collective_rank ranks[MAX_RANKS];
    static const uint32_t leaders[MAX_RANKS] = {0, 1, 2, 3};
    team->strategy = (struct materialization_strategy){.owner_file_collective_batch_bytes = batch_bytes,
                                                       .owner_file_collective_dim1_staging_bytes = batch_bytes,
                                                       .owner_file_collective_max_inflight_batches = 2,
                                                       .owner_file_collective_max_owner_skew_ratio = 1.5};
    for (uint32_t i = 0; i < team->n_ranks; i++)
        ranks[i] = (struct collective_rank){team->loads[i]->mapping, i, 1};
    const struct collective_facts facts = {.strategy = &team->strategy,
                                           .group_id = "g",
                                           .world_size = team->n_ranks,
                                           .leaders = leaders,
                                           .staging_budget_bytes = 8 * MIB};
    struct error error;
    team->plan = collective_plan_build(ranks, team->n_ranks, &facts, &error);
    assert_non_null(team->plan);
    for (uint32_t i = 0; i < team->n_ranks; i++) {
        struct plan *plan = team->loads[i]->plan;
        plan->executor = EXECUTOR_OWNER_FILE_COLLECTIVE;
        assert_int_equal(collective_plan_steps(team->plan, team->loads[i]->mapping, plan, &error), 0);
    }
}

static void open_team_of(struct team *team, const struct place *place, uint32_t n_ranks, view_fn *view_of,
                         struct setting setting)
{
    *team = (struct team){.n_ranks = n_ranks};
    scene_init(&team->scene, 5, 8 * MIB, setting.n_threads, 0);
    for (size_t i = 0; i < setting.n_tensors; i++)
        scene_add_tensor(&team->scene, 2, (uint64_t[]){setting.side, setting.side});
    scene_write(&team->scene, 2, true);
    for (uint32_t i = 0; i < n_ranks; i++)
        team->devices[i] = place->devices[i] ? place->devices[i] : team->scene.device;
    make_loads(team, view_of);
    plan_jointly(team, setting.batch_bytes);
}

static void open_team(struct team *team, const struct place *place, uint32_t n_ranks, view_fn *view_of)
{
    open_team_of(team, place, n_ranks, view_of, (struct setting){6, SIDE, BATCH_BYTES, 4});
}

static void close_team(struct team *team)
{
    for (uint32_t i = 0; i < team->n_ranks; i++)
        load_destroy(team->loads[i]);
    collective_plan_unref(team->plan);
    scene_fini(&team->scene);
}

static struct collective *connect_team(struct team *team, const struct transport_ops *transport)
{
    struct error error;
    const struct transport_choice choice = {.ops = transport, .staging_bytes = TRANSPORT_STAGING_UNIT};
    struct collective *collective = collective_create(team->scene.engine, team->plan, &error);
    assert_non_null(collective);
    int failed = collective_connect(collective, &choice, team->devices, &error);
    if (failed)
        print_error("%s\n", error.message);
    assert_int_equal(failed, 0);
    collective_expect(collective, team->n_ranks);
    return collective;
}

static void start_ranks(struct team *team, struct collective *collective)
{
    for (uint32_t i = 0; i < team->n_ranks; i++)
        scene_load_start_in(team->loads[i], collective, i);
}

static void start(struct team *team, const struct transport_ops *transport)
{
    start_ranks(team, connect_team(team, transport));
}

/* Through a client's eyes where there is no host address. */
static bool is_right(struct load *load)
{
    struct error error;
    if (load->segment->host_address)
        return load_is_right(load);
    if (device_seal(load->segment, &error) != 0)
        return false;
    int fd = device_export_fd(load->segment, &error);
    assert_true(fd >= 0);
    void *memory = mmap(NULL, load->segment->allocated_bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(memory, MAP_FAILED);
    bool right = load_is_right_in(load, memory);
    munmap(memory, load->segment->allocated_bytes);
    return right;
}

/* Of all ranks but one, as soon as they may be published: when nothing of the transport is left. */
static void assert_in_place(struct team *team, uint32_t but)
{
    for (uint32_t i = 0; i < team->n_ranks; i++)
        if (team->loads[i]->run)
            run_release_transport(team->loads[i]->run);
    for (uint32_t i = 0; i < team->n_ranks; i++) {
        if (i == but)
            continue;
        if (team->loads[i]->has_failed)
            print_error("rank %u: %s\n", i, team->loads[i]->error.message);
        assert_false(team->loads[i]->has_failed);
        assert_true(is_right(team->loads[i]));
    }
}

static void load_team(struct team *team, const struct place *place, uint32_t n_ranks, view_fn *view_of)
{
    open_team(team, place, n_ranks, view_of);
    start(team, place->transport);
    scene_wait(&team->scene);
    assert_in_place(team, UINT32_MAX);
}

static const uint64_t all_bytes = 6 * (uint64_t)SIDE * SIDE;

static uint64_t sum_read(const struct team *team)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < team->n_ranks; i++)
        bytes += team->loads[i]->report.read_bytes;
    return bytes;
}

/* --- the cases ------------------------------------------------------------------------------------------------------ */

static void a_group_reads_every_byte_once(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 4, share);
    const struct collective_counters *counters = run_collective_counters(team.loads[0]->run);
    assert_int_equal(sum_read(&team), all_bytes);
    assert_int_equal(counters->unique_source_bytes, all_bytes);
    assert_int_equal(counters->dedup_saving_bytes, (uint64_t)3 * 2 * SIDE * SIDE);
    assert_int_equal(counters->batch_count, team.plan->n_batches);
    assert_true(counters->peer_transfer_bytes > 0 && counters->peer_transfer_bytes < 3 * all_bytes);
    uint64_t staged =
        place->transport->caps.stages_batches ? (uint64_t)32 * MIB : 0; /* at least, and on how many devices? */
    assert_in_range(counters->peak_temporary_bytes, staged + 1, staged * 2 * MAX_RANKS + 8 * MIB);
    close_team(&team);
}

static void two_ranks_are_a_group(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 2, share);
    assert_int_equal(sum_read(&team), all_bytes);
    close_team(&team);
}

static void one_rank_is_a_group(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 1, share);
    assert_int_equal(run_collective_counters(team.loads[0]->run)->peer_transfer_bytes, 0);
    close_team(&team);
}

static void an_owner_that_needs_what_it_reads_transfers_nothing(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 3, share_nothing);
    for (size_t i = 0; i < team.plan->n_batches; i++) { /* what a rank needs it owns */
        struct collective_batch *batch = &team.plan->batches[i];
        const struct collective_piece *piece = &team.plan->pieces[team.plan->order[batch->first]];
        for (uint32_t rank = 0; rank < 3; rank++) {
            const struct mapping *mapping = team.loads[rank]->mapping;
            for (size_t run = mapping->file_first[piece->file]; run < mapping->file_first[piece->file + 1]; run++)
                if (mapping->transfers[run].src_offset <= piece->lo && piece->lo < transfer_end(&mapping->transfers[run]))
                    batch->owner = rank;
        }
    }
    start(&team, place->transport);
    scene_wait(&team.scene);
    assert_in_place(&team, UINT32_MAX);
    assert_int_equal(sum_read(&team), all_bytes);
    close_team(&team);
}

static void pieces_of_no_bytes_are_in_place(void **state)
{
    const struct place *place = *state;
    struct team team;
    load_team(&team, place, 3, share_empty_pieces);
    assert_int_equal(sum_read(&team), all_bytes / 2);
    close_team(&team);
}

static void a_rank_that_is_cancelled_before_the_start_holds_up_nobody(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    start(&team, place->transport);
    run_cancel(team.loads[2]->run);
    scene_wait(&team.scene);
    assert_in_place(&team, 2);
    close_team(&team);
}

static void all_ranks_may_be_cancelled(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    start(&team, place->transport);
    for (uint32_t i = 0; i < 4; i++)
        run_cancel(team.loads[i]->run);
    scene_wait(&team.scene);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(team.loads[i]->is_done);
    close_team(&team);
}

/* Half of its blocks are read by a run that is not in the group; their deliveries need no batch to end. */
static void another_load_may_read_what_the_group_wants(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team(&team, place, 4, share);
    struct view_item item = {"t.2", 3, 0, NULL}, items[] = {item, {"t.5", 3, 0, NULL}};
    struct view_spec view = {.items = items, .n_items = 2, .align_bytes = 64};
    struct load *other = scene_load_create(&team.scene, &view, EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE, team.devices[0]);
    start(&team, place->transport);
    scene_load_start(other);
    scene_wait(&team.scene);
    assert_in_place(&team, UINT32_MAX);
    assert_true(!other->has_failed && is_right(other));
    load_destroy(other);
    close_team(&team);
}

/* Rows that alternate, matrices that are turned, bytes that are wanted several times, elements that are converted: something
 * else for each rank. */
static void ranks_that_turn_repeat_and_convert_get_what_they_want(void **state)
{
    static struct random_transfers transfers[MAX_RANKS];
    const struct place *place = *state;
    const uint64_t side = 700;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct team team = {.n_ranks = 2 + (uint32_t)(seed % 3)};
        scene_init(&team.scene, 5, 8 * MIB, 1 + seed % 4, 0);
        for (size_t i = 0; i < 6; i++)
            scene_add_tensor(&team.scene, 2, (uint64_t[]){side, side});
        scene_write(&team.scene, 2, true);
        for (uint32_t i = 0; i < team.n_ranks; i++) {
            team.devices[i] = place->devices[i] ? place->devices[i] : team.scene.device;
            random_transfers_fill(&transfers[i], seed * MAX_RANKS + (seed % 2 ? i : 0), 2, 3 * side * side, true);
            team.loads[i] = scene_load_create_transfers(&team.scene, &transfers[i], EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE,
                                                        team.devices[i]);
        }
        plan_jointly(&team, 2 * MIB);
        start(&team, place->transport);
        scene_wait(&team.scene);
        assert_in_place(&team, UINT32_MAX);
        close_team(&team);
    }
}

/* The last blocks of the batches are for a rank that has gone; a worker alone never comes to them. */
static void what_was_delivered_is_in_place_though_its_batch_never_ends(void **state)
{
    const struct place *place = *state;
    struct team team;
    open_team_of(&team, place, 3, share_all_but_the_end, (struct setting){6, 2048, 64 * MIB, 1} /* tensors of two blocks */);
    start(&team, place->transport);
    run_cancel(team.loads[2]->run);
    scene_wait(&team.scene);
    assert_in_place(&team, 2);
    close_team(&team);
}

#define COLLECTIVE_CASES(setup, teardown)                                                                                   \
    cmocka_unit_test_setup_teardown(a_group_reads_every_byte_once, setup, teardown),                                        \
        cmocka_unit_test_setup_teardown(two_ranks_are_a_group, setup, teardown),                                            \
        cmocka_unit_test_setup_teardown(one_rank_is_a_group, setup, teardown),                                              \
        cmocka_unit_test_setup_teardown(an_owner_that_needs_what_it_reads_transfers_nothing, setup, teardown),              \
        cmocka_unit_test_setup_teardown(pieces_of_no_bytes_are_in_place, setup, teardown),                                  \
        cmocka_unit_test_setup_teardown(a_rank_that_is_cancelled_before_the_start_holds_up_nobody, setup, teardown),        \
        cmocka_unit_test_setup_teardown(all_ranks_may_be_cancelled, setup, teardown),                                       \
        cmocka_unit_test_setup_teardown(another_load_may_read_what_the_group_wants, setup, teardown),                       \
        cmocka_unit_test_setup_teardown(ranks_that_turn_repeat_and_convert_get_what_they_want, setup, teardown),            \
        cmocka_unit_test_setup_teardown(what_was_delivered_is_in_place_though_its_batch_never_ends, setup, teardown)

#endif
