/* The byte-range candidate: exact from a disk, joined over cheap gaps where every read is a request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/candidate.h"
#include "plan/remote.h"
#include "tests/support/plan_scene.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { GAP = 1000 };
#define MIB ((uint64_t)1 << 20)

static struct proposal build(struct plan_scene *scene)
{
    struct planning planning = {
        .mapping = mapping_fake_finish(scene->fake), .spec = &scene->spec, .facts = &scene->facts, .merge_gap_bytes = GAP};
    struct proposal proposal;
    candidate_generic_build(&planning, &proposal);
    return proposal;
}

static void be_remote(struct plan_scene *scene)
{
    scene->facts.source.reads_are_requests = true;
    scene->facts.source.request_bytes = 8 * MIB;
    scene->facts.source.parallel_requests = 8;
}

static void add_two_apart(struct plan_scene *scene, uint64_t gap)
{
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, gap);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
}

static void from_a_disk_it_reads_exactly_what_is_wanted(void **state)
{
    struct plan_scene *scene = *state;
    add_two_apart(scene, 1);
    mapping_fake_add_columns(scene->fake, 1, 7, 100, 10, 99);
    struct proposal proposal = build(scene);
    assert_int_equal(proposal.candidate.executor, EXECUTOR_GENERIC_BYTE_RANGE);
    assert_int_equal(proposal.candidate.requests, 2 + 7);
    assert_int_equal(proposal.candidate.read_bytes, 10000 + 7 * 89);
    assert_int_equal(proposal.candidate.unique_source_bytes, 10000 + 7 * 89);
}

static void from_a_disk_it_is_the_fallback_that_may_always_run(void **state)
{
    struct plan_scene *scene = *state;
    scene->facts.device.direct_segments = false;
    scene->facts.staging_budget_bytes = 0;
    add_two_apart(scene, 1);
    struct proposal proposal = build(scene);
    assert_true(proposal.candidate.eligible);
    assert_int_equal(proposal.candidate.reason.kind, REASON_EXACT_GENERIC_FALLBACK);
}

static void a_gap_that_costs_less_than_a_request_is_read_over(void **state)
{
    struct plan_scene *scene = *state;
    be_remote(scene);
    add_two_apart(scene, GAP - 1);
    struct proposal proposal = build(scene);
    assert_int_equal(proposal.candidate.requests, 1);
    assert_int_equal(proposal.candidate.read_bytes, 10000 + GAP - 1);
    assert_int_equal(proposal.candidate.unique_source_bytes, 10000);
    assert_int_equal(proposal.candidate.reason.kind, REASON_ELIGIBLE);
}

static void a_gap_as_dear_as_a_request_is_not(void **state)
{
    struct plan_scene *scene = *state;
    be_remote(scene);
    add_two_apart(scene, GAP);
    struct proposal proposal = build(scene);
    assert_int_equal(proposal.candidate.requests, 2);
    assert_int_equal(proposal.candidate.read_bytes, 10000);
}

static void requests_are_those_of_the_engines_blocks(void **state)
{
    struct plan_scene *scene = *state;
    be_remote(scene);
    uint64_t block = remote_block_bytes(&scene->facts.source);
    mapping_fake_add_bytes(scene->fake, 0, 3 * block); /* begins 8 bytes into the first one */
    assert_int_equal(build(scene).candidate.requests, 4);
}

static void without_segments_they_are_those_of_its_windows(void **state)
{
    struct plan_scene *scene = *state;
    be_remote(scene);
    scene->facts.device.direct_segments = false;
    uint64_t window = remote_window_bytes(&scene->facts.source, scene->facts.staging_budget_bytes);
    mapping_fake_add_bytes(scene->fake, 0, 3 * window);
    assert_int_equal(build(scene).candidate.requests, 4);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, plan_scene_set_up, plan_scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(from_a_disk_it_reads_exactly_what_is_wanted),       TEST(from_a_disk_it_is_the_fallback_that_may_always_run),
        TEST(a_gap_that_costs_less_than_a_request_is_read_over), TEST(a_gap_as_dear_as_a_request_is_not),
        TEST(requests_are_those_of_the_engines_blocks),          TEST(without_segments_they_are_those_of_its_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
