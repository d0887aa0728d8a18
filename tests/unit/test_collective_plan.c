/* Joint plans: what a group reads, who owns it, in which batches, and that it is exactly what its ranks need. */
#include "tests/support/unit.h"

#include "base/metadata.h"
#include "plan/collective_plan.h"
#include "plan/plan.h"
#include "plan/rows.h"
#include "tests/support/mapping_fake.h"

#define MIB ((uint64_t)1 << 20)
enum { MAX_RANKS = 8, DATA_OFFSET = 80 };

struct scene {
    struct materialization_strategy strategy;
    struct collective_facts facts;
    uint32_t leaders[MAX_RANKS];
    struct mapping_fake *fakes[MAX_RANKS];
    struct collective_rank ranks[MAX_RANKS];
    size_t n_ranks;
    struct collective_plan *plan;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene); /* not cmocka's: one test makes many */
    assert_non_null(scene);
    scene->strategy = (struct materialization_strategy){.owner_file_collective_batch_bytes = 8 * MIB,
                                                        .owner_file_collective_dim1_staging_bytes = 4 * MIB,
                                                        .owner_file_collective_max_inflight_batches = 1,
                                                        .owner_file_collective_max_owner_skew_ratio = 1.5};
    scene->facts = (struct collective_facts){
        .strategy = &scene->strategy, .group_id = "g", .leaders = scene->leaders, .staging_budget_bytes = 64 * MIB};
    for (uint32_t i = 0; i < MAX_RANKS; i++)
        scene->leaders[i] = i;
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    collective_plan_unref(scene->plan);
    for (size_t i = 0; i < scene->n_ranks; i++)
        mapping_fake_destroy(scene->fakes[i]);
    free(scene);
    return 0;
}

static struct mapping_fake *add_rank(struct scene *scene, uint32_t n_files)
{
    return scene->fakes[scene->n_ranks++] = mapping_fake_create("disk:/m", n_files, DATA_OFFSET);
}

static const struct collective_plan *build(struct scene *scene)
{
    struct error error;
    for (uint32_t i = 0; i < scene->n_ranks; i++)
        scene->ranks[i] = (struct collective_rank){mapping_fake_finish(scene->fakes[i]), i, 1};
    scene->facts.world_size = (uint32_t)scene->n_ranks;
    scene->plan = collective_plan_build(scene->ranks, scene->n_ranks, &scene->facts, &error);
    assert_non_null(scene->plan);
    return scene->plan;
}

/* A matrix [rows, columns] of bytes, of which the rank wants a box; start == stop means that it does not want it at all. */
static void want(struct mapping_fake *fake, uint64_t rows, uint64_t columns, uint64_t row0, uint64_t row1, uint64_t column0,
                 uint64_t column1)
{
    if (row0 == row1 || column0 == column1)
        mapping_fake_skip(fake, 0, rows * columns);
    else
        mapping_fake_add(fake, 0, 1, 2, (uint64_t[]){rows, columns}, (uint64_t[]){row0, column0},
                         (uint64_t[]){row1, column1});
}

TEST_IN(what_all_ranks_want_is_read_once_and_by_one_owner_each, set_up, tear_down)
{
    struct scene *scene = *state;
    for (int rank = 0; rank < 4; rank++) {
        struct mapping_fake *fake = add_rank(scene, 4);
        for (uint32_t file = 0; file < 4; file++)
            mapping_fake_add_bytes(fake, file, 8 * MIB);
    }
    const struct collective_plan *plan = build(scene);
    assert_int_equal(plan->numbers.unique_source_bytes, 32 * MIB);
    assert_int_equal(plan->numbers.needed_bytes, 128 * MIB);
    assert_int_equal(plan->numbers.dedup_saving_bytes, 96 * MIB);
    assert_int_equal(plan->numbers.peer_transfer_bytes, 96 * MIB);
    assert_false(plan->is_split);
    assert_true(plan->owner_skew == 1);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(plan->owners[rank].bytes, 8 * MIB);
        assert_int_equal(plan->owners[rank].peer_bytes, 24 * MIB);
    }
    assert_int_equal(plan->numbers.n_jobs[JOB_REPLICATED], plan->n_pieces);
}

TEST_IN(an_owner_that_shares_its_memory_has_nobody_to_send_to, set_up, tear_down)
{
    struct scene *scene = *state;
    struct error error;
    mapping_fake_add_bytes(add_rank(scene, 1), 0, 8 * MIB);
    scene->ranks[0] = (struct collective_rank){mapping_fake_finish(scene->fakes[0]), 0, 4};
    scene->facts.world_size = 4;
    memset(scene->leaders, 0, sizeof scene->leaders);
    scene->plan = collective_plan_build(scene->ranks, 1, &scene->facts, &error);
    assert_int_equal(scene->plan->numbers.needed_bytes, 32 * MIB);
    assert_int_equal(scene->plan->numbers.peer_transfer_bytes, 0);
}

TEST_IN(uneven_files_are_split_between_owners, set_up, tear_down)
{
    struct scene *scene = *state;
    for (int rank = 0; rank < 2; rank++) {
        struct mapping_fake *fake = add_rank(scene, 2);
        for (int i = 0; i < 30; i++)
            mapping_fake_add_bytes(fake, 0, MIB);
        mapping_fake_add_bytes(fake, 1, 2 * MIB);
    }
    const struct collective_plan *plan = build(scene);
    assert_true(plan->is_split);
    assert_int_equal(plan->owners[0].bytes, 16 * MIB);
    assert_int_equal(plan->owners[1].bytes, 16 * MIB);
    assert_true(plan->owner_skew == 1);
}

TEST(ranks_on_other_hosts_own_nothing)
{
    const bool elsewhere[MAX_RANKS] = {true, false, true, false};
    for (uint32_t n_files = 1; n_files <= 4; n_files += 3) {
        set_up(state);
        struct scene *scene = *state;
        struct error error;
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct mapping_fake *fake = add_rank(scene, n_files);
            for (uint32_t i = 0; i < 32; i++)
                mapping_fake_add_bytes(fake, i / (32 / n_files), MIB);
            scene->ranks[rank] = (struct collective_rank){mapping_fake_finish(fake), 1 + 2 * rank, 1};
        }
        scene->facts.world_size = 4;
        scene->facts.elsewhere = elsewhere;
        scene->plan = collective_plan_build(scene->ranks, 2, &scene->facts, &error);
        assert_int_equal(scene->plan->n_here, 2);
        assert_int_equal(scene->plan->is_split, n_files == 1);
        assert_true(scene->plan->owner_skew == 1);
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_int_equal(scene->plan->owners[rank].bytes, elsewhere[rank] ? 0 : 16 * MIB);
        assert_int_equal(scene->plan->numbers.peer_transfer_bytes, 32 * MIB);
        tear_down(state);
    }
}

TEST_IN(files_stay_whole_as_long_as_the_skew_is_allowed, set_up, tear_down)
{
    struct scene *scene = *state;
    struct mapping_fake *fakes[2] = {add_rank(scene, 2), add_rank(scene, 2)};
    for (int rank = 0; rank < 2; rank++) {
        mapping_fake_add_bytes(fakes[rank], 0, 24 * MIB);
        mapping_fake_add_bytes(fakes[rank], 1, 8 * MIB);
    }
    const struct collective_plan *plan = build(scene);
    assert_false(plan->is_split);
    assert_true(plan->owner_skew == 1.5);
}

TEST_IN(what_no_batch_can_balance_shows_as_skew, set_up, tear_down)
{
    struct scene *scene = *state;
    for (int rank = 0; rank < 8; rank++)
        mapping_fake_add_bytes(add_rank(scene, 1), 0, 16 * MIB);
    const struct collective_plan *plan = build(scene);
    assert_true(plan->is_split && plan->owner_skew > 3); /* pieces of 8 MiB, 2 MiB each would be fair */
}

TEST_IN(a_single_batch_has_nothing_to_balance, set_up, tear_down)
{
    struct scene *scene = *state;
    for (int rank = 0; rank < 8; rank++)
        mapping_fake_add_bytes(add_rank(scene, 1), 0, 8 * MIB - DATA_OFFSET);
    const struct collective_plan *plan = build(scene);
    assert_true(plan->owner_skew == 1);
    assert_int_equal(plan->n_batches, 1);
}

TEST_IN(batches_keep_their_limits, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint64_t rank = 0; rank < 2; rank++) {
        struct mapping_fake *fake = add_rank(scene, 1);
        mapping_fake_add_bytes(fake, 0, 21 * MIB);
        want(fake, 16384, 1024, 0, 16384, rank * 256, rank * 256 + 256);
    }
    const struct collective_plan *plan = build(scene);
    size_t n_pieces = 0;
    for (size_t i = 0; i < plan->n_batches; i++) {
        const struct collective_batch *batch = &plan->batches[i];
        assert_true(batch->bytes <= 8 * MIB && batch->inner_bytes <= 4 * MIB);
        assert_int_equal(batch->first, n_pieces);
        for (size_t p = batch->first; p < batch->first + batch->n_pieces; p++)
            assert_int_equal(plan->pieces[plan->order[p]].owner, batch->owner);
        n_pieces += batch->n_pieces;
    }
    assert_int_equal(n_pieces, plan->n_pieces);
    assert_int_equal(plan->numbers.unique_source_bytes, 29 * MIB); /* half of the columns */
    assert_int_equal(plan->numbers.peak_temporary_bytes, plan->numbers.largest_batch_bytes);
}

TEST_IN(batches_in_flight_count_as_temporary_when_the_transport_stages_them, set_up, tear_down)
{
    struct scene *scene = *state;
    mapping_fake_add_bytes(add_rank(scene, 1), 0, 32 * MIB);
    scene->strategy.owner_file_collective_max_inflight_batches = 3;
    scene->facts.staging_budget_bytes = 10 * MIB;
    assert_int_equal(build(scene)->numbers.peak_temporary_bytes, 10 * MIB);
    assert_int_equal(scene->plan->numbers.staged_bytes, 3 * scene->plan->numbers.largest_batch_bytes);
}

TEST_IN(columns_that_together_are_whole_rows_are_read_as_one, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint64_t rank = 0; rank < 4; rank++)
        want(add_rank(scene, 1), 64, 1024, 0, 64, rank * 256, rank * 256 + 256);
    const struct collective_plan *plan = build(scene);
    assert_int_equal(plan->n_pieces, 1);
    assert_int_equal(plan->pieces[0].count, 1);
    assert_int_equal(plan->pieces[0].job, JOB_DIM1);
    assert_int_equal(plan->numbers.unique_source_bytes, 64 * 1024);
}

TEST_IN(small_pieces_that_touch_become_one, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint64_t rank = 0; rank < 4; rank++) {
        struct mapping_fake *fake = add_rank(scene, 1);
        for (int tensor = 0; tensor < 64; tensor++)
            want(fake, 64, 1024, rank * 16, rank * 16 + 16, 0, 1024);
    }
    const struct collective_plan *plan = build(scene);
    assert_int_equal(plan->numbers.unique_source_bytes, 4 * MIB);
    assert_int_equal(plan->n_pieces, 2);
    assert_int_equal(plan->pieces[0].bytes, 2 * MIB);
    assert_int_equal(plan->pieces[0].hi, plan->pieces[1].lo);
}

TEST_IN(patterns_that_do_not_line_up_are_residual, set_up, tear_down)
{
    struct scene *scene = *state;
    want(add_rank(scene, 1), 64, 64, 0, 40, 0, 32);
    want(add_rank(scene, 1), 64, 64, 20, 64, 16, 48);
    const struct collective_plan *plan = build(scene);
    assert_int_equal(plan->n_pieces, 0);
    assert_int_equal(plan->numbers.residual_bytes, 40 * 32 + 44 * 32);
    struct plan own = {0};
    struct error error;
    assert_int_equal(collective_plan_steps(plan, scene->ranks[0].mapping, &own, &error), 0);
    assert_int_equal(own.n_steps, 1);
    assert_int_equal(own.steps[0].count, 40);
    arena_fini(&own.arena);
}

/* --- any views: the pieces are the union, and every rank's steps have what it needs ---------------------------------- */

static uint64_t random_below(uint64_t below)
{
    return (uint64_t)rand() % below;
}

enum { N_TENSORS = 6, FILE_BYTES = 1 << 16 };

static void add_random_rank(struct scene *scene, const uint64_t shapes[N_TENSORS][2])
{
    struct mapping_fake *fake = add_rank(scene, 1);
    for (int i = 0; i < N_TENSORS; i++) {
        uint64_t rows = shapes[i][0], columns = shapes[i][1], box[4] = {0, rows, 0, columns};
        uint64_t kind = random_below(6), at = random_below(4);
        if (kind == 0)
            box[1] = 0;
        if (kind == 1 || kind == 5) {
            box[0] = random_below(rows);
            box[1] = box[0] + 1 + random_below(rows - box[0]);
        }
        if (kind == 2 || kind == 5) {
            box[2] = random_below(columns);
            box[3] = box[2] + 1 + random_below(columns - box[2]);
        }
        if (kind == 3) {
            box[2] = at * (columns / 4);
            box[3] = box[2] + columns / 4;
        }
        want(fake, rows, columns, box[0], box[1], box[2], box[3]);
    }
}

static void mark(unsigned char *bytes, struct rows rows, unsigned char with)
{
    for (uint64_t row = 0; row < rows.count; row++)
        for (uint64_t i = 0; i < rows.bytes; i++)
            bytes[rows.offset + row * rows.stride + i] |= with;
}

enum { NEEDED = 1, PIECE = 2, STEP = 4 };

static void mark_pieces(const struct collective_plan *plan, unsigned char *bytes)
{
    for (size_t p = 0; p < plan->n_pieces; p++) {
        const struct collective_piece *piece = &plan->pieces[p];
        assert_true(p == 0 || plan->pieces[p - 1].hi <= piece->lo);
        for (size_t c = 0; c < piece->n_columns; c++) {
            const struct collective_columns *columns = &plan->columns[piece->first_columns + c];
            mark(bytes, (struct rows){columns->offset, columns->bytes, piece->count, piece->stride}, PIECE);
        }
    }
}

static void check_rank(const struct scene *scene, size_t rank, const unsigned char *all)
{
    unsigned char *bytes = test_calloc(1, FILE_BYTES);
    const struct mapping *mapping = scene->ranks[rank].mapping;
    struct plan own = {0};
    struct error error;
    assert_int_equal(collective_plan_steps(scene->plan, mapping, &own, &error), 0);
    for (size_t i = 0; i < mapping->n_transfers; i++)
        mark(bytes, rows_of_transfer(&mapping->transfers[i]), NEEDED);
    for (size_t i = 0; i < own.n_steps; i++) {
        struct rows rows = rows_of_step(&own.steps[i]);
        assert_true(i == 0 || own.steps[i].offset >= own.steps[i - 1].offset + own.steps[i - 1].bytes);
        mark(bytes, rows, STEP);
    }
    for (size_t i = 0; i < FILE_BYTES; i++) {
        assert_true(!(bytes[i] & NEEDED) || (bytes[i] & STEP));
        assert_true(!(bytes[i] & STEP) || (all[i] & NEEDED)); /* nothing that no rank needs */
    }
    arena_fini(&own.arena);
    test_free(bytes);
}

static void check_union(struct scene *scene)
{
    unsigned char *bytes = test_calloc(1, FILE_BYTES);
    uint64_t needed = 0, pieces = 0, views = 0;
    for (size_t rank = 0; rank < scene->n_ranks; rank++) {
        const struct mapping *mapping = scene->ranks[rank].mapping;
        views += mapping->view_bytes;
        for (size_t i = 0; i < mapping->n_transfers; i++)
            mark(bytes, rows_of_transfer(&mapping->transfers[i]), NEEDED);
    }
    mark_pieces(scene->plan, bytes);
    for (size_t i = 0; i < FILE_BYTES; i++) {
        needed += bytes[i] & NEEDED;
        pieces += (bytes[i] & PIECE) != 0;
        assert_true(!(bytes[i] & PIECE) || (bytes[i] & NEEDED));
    }
    assert_int_equal(pieces, scene->plan->numbers.unique_source_bytes);
    assert_true(pieces + scene->plan->numbers.residual_bytes >= needed);
    assert_true(scene->plan->numbers.residual_bytes > 0 || pieces == needed);
    assert_int_equal(scene->plan->numbers.needed_bytes, views);
    for (size_t rank = 0; rank < scene->n_ranks; rank++)
        check_rank(scene, rank, bytes);
    test_free(bytes);
}

TEST_IN(any_views_are_covered_and_nothing_else_is_read, set_up, tear_down)
{
    srand(7);
    for (int round = 0; round < 300; round++) {
        uint64_t shapes[N_TENSORS][2];
        tear_down(state);
        set_up(state);
        for (int i = 0; i < N_TENSORS; i++) {
            shapes[i][0] = 1 + random_below(64);
            shapes[i][1] = 4 * (1 + random_below(32));
        }
        for (uint64_t rank = 0, n = 1 + random_below(5); rank < n; rank++)
            add_random_rank(*state, shapes);
        build(*state);
        check_union(*state);
    }
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

/* Ranks 0 and 1 want the even rows' halves apart, of two files: contiguous pieces, rows, and many batches. */
static void want_pieces_of_all_kinds(struct scene *scene)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct mapping_fake *fake = add_rank(scene, 2);
        for (uint64_t i = 0; i < 64; i++)
            want(fake, 64, 32 << 10, 0, 64, rank * (16 << 10), (rank + 1) * (16 << 10));
        for (uint64_t i = 0; i < 32; i++)
            mapping_fake_add_bytes(fake, 1, MIB);
    }
}

TEST_IN(whatever_allocation_fails_the_plan_fails_and_leaves_nothing, set_up, tear_down)
{
    struct scene *scene = *state;
    struct quota *quota = quota_create();
    size_t n_failed = 0;
    want_pieces_of_all_kinds(scene);
    build(scene); /* not charged */
    collective_plan_unref(scene->plan);
    scene->plan = NULL;
    quota_set_kept(quota, 0);
    struct metadata_account before = metadata_enter((struct metadata_account){.quota = quota});
    for (uint64_t limit = 0; !scene->plan; limit += 64) {
        struct error error;
        quota_set_limits(quota, QUOTA_METADATA, limit, 0);
        scene->plan = collective_plan_build(scene->ranks, scene->n_ranks, &scene->facts, &error);
        if (scene->plan)
            break;
        n_failed++;
        assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
        assert_int_equal(error.kind, ERROR_KIND_METADATA_EXCEEDED);
        assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    }
    assert_true(n_failed > 100);
    const struct collective_plan *plan = scene->plan;
    assert_true(quota_taken(quota, QUOTA_METADATA) > plan->n_pieces * sizeof *plan->pieces);
    collective_plan_unref(scene->plan);
    scene->plan = NULL;
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    metadata_enter(before);
    quota_destroy(quota);
}
