/* What the candidates of a plan share: how requests and bytes become temporary memory and time, and which reasons let one run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/candidate.h"
#include "tests/support/plan_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

#define MIB ((uint64_t)1 << 20)

/* 4 MiB of a tensor, 1 MiB that nobody wants, another 4 MiB; read in one piece. */
static struct candidate measure_with_gap(struct plan_scene *scene)
{
    mapping_fake_add_bytes(scene->fake, 0, 4 * MIB);
    mapping_fake_skip(scene->fake, 0, MIB);
    mapping_fake_add_bytes(scene->fake, 0, 4 * MIB);
    struct planning planning = {
        .mapping = mapping_fake_finish(scene->fake), .spec = &scene->spec, .facts = &scene->facts, .n_rows = 2};
    struct proposal proposal = {.candidate.unique_source_bytes = 8 * MIB,
                                .rule = {.join_below_bytes = 2 * MIB, .hull_below_bytes = 1}};
    candidate_measure(&planning, &proposal);
    return proposal.candidate;
}

static void what_is_read_and_not_wanted_is_counted_once(void **state)
{
    struct candidate candidate = measure_with_gap(*state);
    assert_int_equal(candidate.requests, 1);
    assert_int_equal(candidate.read_bytes, 9 * MIB);
    assert_int_equal(candidate.requested_bytes, 8 * MIB);
    assert_int_equal(candidate.unique_source_bytes, 8 * MIB);
}

static void a_cold_disk_is_read_through_staging(void **state)
{
    assert_int_equal(measure_with_gap(*state).peak_temporary_bytes, 9 * MIB);
}

static void staging_is_never_more_than_its_budget(void **state)
{
    struct plan_scene *scene = *state;
    scene->facts.staging_budget_bytes = 9 * MIB - 1;
    assert_int_equal(measure_with_gap(scene).peak_temporary_bytes, 9 * MIB - 1);
}

static void from_the_page_cache_only_the_gap_is_staged(void **state)
{
    struct plan_scene *scene = *state;
    scene->facts.cached_share = 1;
    assert_int_equal(measure_with_gap(scene).peak_temporary_bytes, MIB);
}

static void what_is_converted_is_staged_and_copied_wherever_it_comes_from(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 8 * MIB);
    struct mapping mapping = *mapping_fake_finish(scene->fake);
    struct planning planning = {.mapping = &mapping, .spec = &scene->spec, .facts = &scene->facts, .n_rows = 1};
    struct proposal plain = {.rule = STEP_RULE_EXACT}, converted = plain;
    scene->facts.cached_share = 1;
    for (int lands_in_place = 0; lands_in_place < 2; lands_in_place++) {
        scene->facts.source.lands_in_place = lands_in_place;
        mapping.n_operations = 0;
        candidate_measure(&planning, &plain);
        mapping.n_operations = 2;
        candidate_measure(&planning, &converted);
        assert_int_equal(plain.candidate.peak_temporary_bytes, 0);
        assert_int_equal(converted.candidate.peak_temporary_bytes, 8 * MIB);
        assert_true(converted.candidate.estimated_ms > plain.candidate.estimated_ms);
    }
}

static void a_source_that_lands_in_place_keeps_what_it_skips_up_to_the_cache(void **state)
{
    struct plan_scene *scene = *state;
    scene->facts.source.lands_in_place = true;
    scene->facts.extent_cache_bytes = 3 * MIB;
    assert_int_equal(measure_with_gap(scene).peak_temporary_bytes, 3 * MIB);
}

static void without_segments_everything_is_staged_even_from_the_page_cache(void **state)
{
    struct plan_scene *scene = *state;
    scene->facts.cached_share = 1;
    scene->facts.device.direct_segments = false;
    assert_int_equal(measure_with_gap(scene).peak_temporary_bytes, 9 * MIB);
}

static void an_exact_rule_needs_all_that_it_reads(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 10, 1000, 100, 200);
    struct planning planning = {
        .mapping = mapping_fake_finish(scene->fake), .spec = &scene->spec, .facts = &scene->facts, .n_rows = 10};
    struct proposal proposal = {.rule = STEP_RULE_EXACT};
    candidate_measure(&planning, &proposal);
    assert_int_equal(proposal.candidate.requests, 10);
    assert_int_equal(proposal.candidate.unique_source_bytes, 1000);
    assert_int_equal(proposal.candidate.read_bytes, 1000);
}

static void the_page_cache_is_estimated_quicker_than_the_disk(void **state)
{
    struct plan_scene *scene = *state;
    double cold_ms = measure_with_gap(scene).estimated_ms;
    mapping_fake_destroy(scene->fake);
    scene->fake = mapping_fake_create("disk:/models/m", 2, 8);
    scene->facts.cached_share = 1;
    double warm_ms = measure_with_gap(scene).estimated_ms;
    assert_true(warm_ms > 0);
    assert_true(warm_ms < cold_ms);
}

static void two_reasons_let_a_candidate_run_and_no_other(void **state)
{
    (void)state;
    for (int kind = 0; kind < REASON_COUNT; kind++) {
        struct candidate candidate = {0};
        candidate_judge(&candidate, reason_of((enum reason_kind)kind));
        assert_int_equal(candidate.eligible, kind == REASON_ELIGIBLE || kind == REASON_EXACT_GENERIC_FALLBACK);
        assert_int_equal(candidate.reason.kind, kind);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, plan_scene_set_up, plan_scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_read_and_not_wanted_is_counted_once),
        TEST(a_cold_disk_is_read_through_staging),
        TEST(staging_is_never_more_than_its_budget),
        TEST(from_the_page_cache_only_the_gap_is_staged),
        TEST(what_is_converted_is_staged_and_copied_wherever_it_comes_from),
        TEST(a_source_that_lands_in_place_keeps_what_it_skips_up_to_the_cache),
        TEST(without_segments_everything_is_staged_even_from_the_page_cache),
        TEST(an_exact_rule_needs_all_that_it_reads),
        TEST(the_page_cache_is_estimated_quicker_than_the_disk),
        cmocka_unit_test(two_reasons_let_a_candidate_run_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
