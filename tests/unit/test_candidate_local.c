/* The batching candidate: what it reads in one piece, and every condition under which it stays out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/candidate.h"
#include "resolve/derivation.h"
#include "tests/support/plan_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { GAP = 1000, ROWS = 10, ROW_BYTES = 5000 };

static struct proposal build(struct plan_scene *scene)
{
    struct planning planning = {
        .mapping = mapping_fake_finish(scene->fake), .spec = &scene->spec, .facts = &scene->facts, .merge_gap_bytes = GAP};
    struct proposal generic, local;
    candidate_generic_build(&planning, &generic);
    candidate_local_build(&planning, &generic, &local);
    assert_int_equal(local.candidate.executor, EXECUTOR_TENSOR_BATCHED_LOCAL);
    assert_int_equal(local.candidate.unique_source_bytes, generic.candidate.unique_source_bytes);
    return local;
}

/* Columns whose rows lie `gap` bytes apart. */
static void add_columns(struct plan_scene *scene, uint64_t gap)
{
    mapping_fake_add_columns(scene->fake, 0, ROWS, ROW_BYTES, 0, ROW_BYTES - gap);
}

static uint64_t hull_bytes(uint64_t gap)
{
    return ROWS * ROW_BYTES - gap;
}

static void the_rows_of_an_inner_slice_are_read_in_one_piece(void **state)
{
    struct plan_scene *scene = *state;
    scene->strategy.allow_mixed_execution = false;
    add_columns(scene, 4 * GAP); /* however far apart they lie */
    struct proposal local = build(scene);
    assert_int_equal(local.candidate.requests, 1);
    assert_int_equal(local.candidate.read_bytes, hull_bytes(4 * GAP));
    assert_int_equal(local.candidate.reason.kind, REASON_ELIGIBLE);
}

static void mixed_execution_leaves_far_rows_exact(void **state)
{
    struct plan_scene *scene = *state;
    scene->strategy.allow_mixed_execution = true;
    add_columns(scene, GAP - 1); /* near: one piece */
    mapping_fake_skip(scene->fake, 0, 2 * GAP);
    add_columns(scene, GAP); /* as far as a request costs: row by row */
    struct proposal local = build(scene);
    assert_int_equal(local.candidate.requests, 1 + ROWS);
    assert_int_equal(local.candidate.read_bytes, hull_bytes(GAP - 1) + ROWS * (ROW_BYTES - GAP));
}

static void mixed_execution_that_would_merge_nothing_stays_what_its_name_says(void **state)
{
    struct plan_scene *scene = *state;
    scene->strategy.allow_mixed_execution = true;
    add_columns(scene, GAP);
    assert_int_equal(build(scene).candidate.requests, 1);
}

static void segments_are_joined_over_gaps_below_the_merge_gap(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, GAP - 1);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, GAP);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    struct proposal local = build(scene);
    assert_int_equal(local.candidate.requests, 2);
    assert_int_equal(local.candidate.read_bytes, 15000 + GAP - 1);
}

/* A hundred segments, every second gap short and every other one nearly as long as a request is worth. */
static struct proposal build_shuffled(struct plan_scene *scene, double cached_share, uint64_t row_bytes)
{
    static struct derivation derivation;
    scene->strategy.allow_mixed_execution = true;
    scene->facts.cached_share = cached_share;
    scene->costs.cached.request_ns = GAP / scene->costs.skip_bytes_per_ns + scene->costs.copy_row_ns; /* then GAP is right */
    for (int i = 0; i < 100; i++) {
        mapping_fake_add_bytes(scene->fake, 0, row_bytes);
        mapping_fake_skip(scene->fake, 0, i % 2 ? GAP * 9 / 10 : GAP / 10);
    }
    mapping_fake_finish(scene->fake)->artifact->derivation = &derivation;
    return build(scene);
}

static void a_derived_tensor_is_read_with_a_tenth_more_than_it_needs_where_that_hardly_takes_longer(void **state)
{
    struct proposal local = build_shuffled(*state, 1, ROW_BYTES / 2);
    assert_int_equal(local.candidate.requests, 50);
    assert_int_equal(local.candidate.read_bytes, 50 * ROW_BYTES + 50 * GAP / 10);
}

static void so_it_is_where_that_takes_twice_as_long(void **state)
{
    struct proposal local = build_shuffled(*state, 0, ROW_BYTES / 2);
    assert_int_equal(local.candidate.requests, 50);
    assert_int_equal(local.candidate.read_bytes, 50 * ROW_BYTES + 50 * GAP / 10);
}

static void a_derived_tensor_of_short_rows_is_read_with_more_where_that_saves_time(void **state)
{
    struct proposal local = build_shuffled(*state, 0, 1500);
    assert_int_equal(local.candidate.requests, 1);
}

static void who_counts_bytes_gets_no_gap_between_segments(void **state)
{
    struct plan_scene *scene = *state;
    scene->strategy.cost_gate = COST_GATE_SOURCE_BYTES;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, 1);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    struct proposal local = build(scene);
    assert_int_equal(local.candidate.requests, 2);
    assert_int_equal(local.candidate.read_bytes, 10000);
}

static enum reason_kind reason_of_build(struct plan_scene *scene)
{
    struct proposal local = build(scene);
    assert_int_equal(local.candidate.eligible, local.candidate.reason.kind == REASON_ELIGIBLE);
    return local.candidate.reason.kind;
}

static void it_stays_out_where_every_read_is_a_request(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    scene->facts.source.reads_are_requests = true;
    scene->facts.source.request_bytes = 1 << 20;
    assert_int_equal(reason_of_build(scene), REASON_SOURCE_NOT_DISK);
}

static void it_needs_segments_or_copies_in_a_queue(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    scene->facts.device.direct_segments = false;
    assert_int_equal(reason_of_build(scene), REASON_LOCAL_NO_SEGMENTS);
    scene->facts.device.queued_copies = true;
    assert_int_equal(reason_of_build(scene), REASON_ELIGIBLE);
}

static void it_needs_the_consent_of_the_configuration(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    scene->strategy.enable_local_batched_disk_load = false;
    assert_int_equal(reason_of_build(scene), REASON_LOCAL_STRATEGY_DISABLED);
}

static void below_64_kib_of_staging_batching_is_pointless(void **state)
{
    struct plan_scene *scene = *state;
    add_columns(scene, 100);
    scene->facts.staging_budget_bytes = 64 << 10;
    assert_int_equal(reason_of_build(scene), REASON_ELIGIBLE);
    scene->facts.staging_budget_bytes--;
    assert_int_equal(reason_of_build(scene), REASON_LOCAL_PEAK_BUDGET);
}

static void who_stages_nothing_needs_no_budget(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    scene->facts.cached_share = 1; /* straight into place */
    scene->facts.staging_budget_bytes = 0;
    assert_int_equal(reason_of_build(scene), REASON_ELIGIBLE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, plan_scene_set_up, plan_scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_rows_of_an_inner_slice_are_read_in_one_piece),
        TEST(mixed_execution_leaves_far_rows_exact),
        TEST(mixed_execution_that_would_merge_nothing_stays_what_its_name_says),
        TEST(segments_are_joined_over_gaps_below_the_merge_gap),
        TEST(a_derived_tensor_is_read_with_a_tenth_more_than_it_needs_where_that_hardly_takes_longer),
        TEST(so_it_is_where_that_takes_twice_as_long),
        TEST(a_derived_tensor_of_short_rows_is_read_with_more_where_that_saves_time),
        TEST(who_counts_bytes_gets_no_gap_between_segments),
        TEST(it_stays_out_where_every_read_is_a_request),
        TEST(it_needs_segments_or_copies_in_a_queue),
        TEST(it_needs_the_consent_of_the_configuration),
        TEST(below_64_kib_of_staging_batching_is_pointless),
        TEST(who_stages_nothing_needs_no_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
