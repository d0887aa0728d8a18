/* A report says what was counted, what is estimated, or that nothing moved, and never mixes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/report_fill.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static struct view_tensor tensors[] = {{.bytes = 100, .job = JOB_REPLICATED}, {.bytes = 40, .job = JOB_DIM1}};
static struct artifact artifact = {.reference = "disk:/m", .identity = "abc"};
static const struct mapping mapping = {.artifact = &artifact, .tensors = tensors, .n_tensors = 2, .view_bytes = 140};
static const struct plan plan = {
    .candidates = {{.executor = EXECUTOR_GENERIC_BYTE_RANGE,
                    .eligible = true,
                    .reason = {REASON_ELIGIBLE, "eligible"},
                    .read_bytes = 140},
                   {.executor = EXECUTOR_TENSOR_BATCHED_LOCAL,
                    .eligible = true,
                    .reason = {REASON_ELIGIBLE, "eligible"},
                    .requested_bytes = 140,
                    .unique_source_bytes = 140,
                    .read_bytes = 500,
                    .requests = 3,
                    .peak_temporary_bytes = 400,
                    .estimated_ms = 1.5},
                   {.executor = EXECUTOR_OWNER_FILE_COLLECTIVE, .reason = {REASON_GROUP_MISSING, "no group"}}},
    .executor = EXECUTOR_TENSOR_BATCHED_LOCAL,
    .selection = {REASON_AUTO_LOCAL, "auto_prefers_local_batched"},
};

static void a_plan_reports_the_estimates_of_the_chosen_candidate(void **state)
{
    struct arena arena = {0};
    const struct report_facts facts = {.mapping = &mapping, .plan = &plan, .plan_ms = 0.25};
    Tensorcast__Daemon__V1__LoadReport *report = report_fill(&facts, &arena);
    (void)state;
    assert_string_equal(report->load_id, "");
    assert_string_equal(report->memory, "");
    assert_string_equal(report->executor, "tensor_batched_local");
    assert_string_equal(report->selection_reason, "auto_prefers_local_batched");
    assert_int_equal(report->read_bytes, 500);
    assert_int_equal(report->requests, 3);
    assert_int_equal(report->copied_bytes, 40);
    assert_int_equal(report->view_bytes, 140);
    assert_int_equal(report->unique_source_bytes, 140);
    assert_true(report->execute_ms == 1.5 && report->plan_ms == 0.25);
    assert_false(report->from_replica);
    arena_fini(&arena);
}

static void a_load_reports_what_its_run_counted(void **state)
{
    struct arena arena = {0};
    const struct run_report run = {.read_bytes = 480,
                                   .requests = 2,
                                   .copied_bytes = 41,
                                   .shared_bytes = 20,
                                   .cached_bytes = 7,
                                   .peak_temporary_bytes = 64,
                                   .execute_ns = 2500000};
    const struct verdict verdict = {.status = VERIFIED_PARTLY, .by = "sha256", .bytes = 30, .reason = "why", .healed = 2};
    const struct report_facts facts = {.load_id = "7",
                                       .mapping = &mapping,
                                       .plan = &plan,
                                       .run = &run,
                                       .verdict = &verdict,
                                       .memory = "thp",
                                       .joined = true,
                                       .total_ms = 9};
    Tensorcast__Daemon__V1__LoadReport *report = report_fill(&facts, &arena);
    (void)state;
    assert_string_equal(report->verified->status, "partial");
    assert_string_equal(report->verified->by, "sha256");
    assert_int_equal(report->verified->bytes, 30);
    assert_string_equal(report->verified->reason, "why");
    assert_int_equal(report->verified->healed, 2);
    assert_string_equal(report->load_id, "7");
    assert_string_equal(report->artifact, "disk:/m");
    assert_string_equal(report->identity, "abc");
    assert_string_equal(report->memory, "thp");
    assert_int_equal(report->read_bytes, 480);
    assert_int_equal(report->requests, 2);
    assert_int_equal(report->copied_bytes, 41);
    assert_int_equal(report->shared_bytes, 20);
    assert_int_equal(report->cached_bytes, 7);
    assert_int_equal(report->peak_temporary_bytes, 64);
    assert_true(report->execute_ms == 2.5 && report->total_ms == 9 && report->joined);
    arena_fini(&arena);
}

static void a_resident_replica_reports_that_nothing_moved(void **state)
{
    struct arena arena = {0};
    const struct report_facts facts = {.mapping = &mapping, .plan = &plan, .from_replica = true, .memory = "4k"};
    Tensorcast__Daemon__V1__LoadReport *report = report_fill(&facts, &arena);
    (void)state;
    assert_true(report->from_replica);
    assert_int_equal(report->read_bytes, 0);
    assert_int_equal(report->copied_bytes, 0);
    assert_int_equal(report->requests, 0);
    assert_true(report->execute_ms == 0);
    assert_int_equal(report->view_bytes, 140);
    arena_fini(&arena);
}

static void files_that_were_handed_out_report_their_proof_and_that_nothing_moved(void **state)
{
    struct arena arena = {0};
    struct plan mapped = plan;
    mapped.mapped = (struct mapped_choice){.is_known = true, .is_possible = true, .proof = IMMUTABLE_BY_ATTRIBUTE};
    const struct report_facts facts = {.mapping = &mapping, .plan = &mapped, .is_mapped = true, .memory = "mapped"};
    Tensorcast__Daemon__V1__LoadReport *report = report_fill(&facts, &arena);
    (void)state;
    assert_int_equal(report->read_bytes | report->copied_bytes | report->requests, 0);
    assert_true(report->mapped->possible);
    assert_string_equal(report->mapped->proof, "immutable_attribute");
    assert_string_equal(report->mapped->reason, "");
    mapped.mapped = (struct mapped_choice){.is_known = true, .reason = "m can change"};
    report = report_fill(&facts, &arena);
    assert_false(report->mapped->possible);
    assert_string_equal(report->mapped->proof, "");
    assert_string_equal(report->mapped->reason, "m can change");
    mapped.mapped.is_known = false;
    assert_null(report_fill(&facts, &arena)->mapped);
    arena_fini(&arena);
}

static void all_candidates_are_there_in_fixed_order(void **state)
{
    struct arena arena = {0};
    const struct report_facts facts = {.mapping = &mapping, .plan = &plan};
    Tensorcast__Daemon__V1__LoadReport *report = report_fill(&facts, &arena);
    (void)state;
    assert_int_equal(report->n_candidates, 3);
    assert_string_equal(report->candidates[0]->executor, "generic_byte_range");
    assert_string_equal(report->candidates[1]->executor, "tensor_batched_local");
    assert_string_equal(report->candidates[2]->executor, "owner_file_collective");
    assert_false(report->candidates[2]->eligible);
    assert_string_equal(report->candidates[2]->reason, "no group");
    assert_int_equal(report->candidates[1]->peak_temporary_bytes, 400);
    assert_true(report->candidates[1]->estimated_ms == 1.5);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_reports_the_estimates_of_the_chosen_candidate),
        cmocka_unit_test(a_load_reports_what_its_run_counted),
        cmocka_unit_test(a_resident_replica_reports_that_nothing_moved),
        cmocka_unit_test(files_that_were_handed_out_report_their_proof_and_that_nothing_moved),
        cmocka_unit_test(all_candidates_are_there_in_fixed_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
