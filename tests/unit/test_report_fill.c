/* A report says what was counted, what is estimated, or that nothing moved, and never mixes them. */
#include "tests/support/unit.h"

#include "api/report_fill.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */
#include "execute/run.h"

static struct view_tensor tensors[] = {{.bytes = 100, .job = JOB_REPLICATED}, {.bytes = 40, .job = JOB_DIM1}};
static struct artifact artifact = {.reference = "disk:/m", .identity = "abc"};
static const struct mapping mapping = {.artifact = &artifact, .tensors = tensors, .n_tensors = 2, .view_bytes = 140};
static const struct load_spec spec;
static const struct plan planned = {
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
static struct plan plan;
static struct mapped_files files; /* its name is the replica's memory */
static struct replica replica;
static struct load_result result;
static struct arena arena;

static int set_up(void **state)
{
    (void)state;
    plan = planned;
    replica = (struct replica){.files = &files};
    result = (struct load_result){.load_id = "7", .mapping = &mapping, .plan = &plan, .spec = &spec};
    arena = (struct arena){0};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

TEST_IN(a_plan_reports_the_estimates_of_the_chosen_candidate, set_up, tear_down)
{
    result.times.plan_ns = 250000;
    const Tensorcast__Daemon__V1__LoadReport *report = report_fill(&result, &arena);
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
    assert_null(report->verified);
    assert_int_equal(report->n_candidates, 3); /* in fixed order */
    assert_string_equal(report->candidates[0]->executor, "generic_byte_range");
    assert_string_equal(report->candidates[1]->executor, "tensor_batched_local");
    assert_int_equal(report->candidates[1]->peak_temporary_bytes, 400);
    assert_true(report->candidates[1]->estimated_ms == 1.5);
    assert_string_equal(report->candidates[2]->executor, "owner_file_collective");
    assert_false(report->candidates[2]->eligible);
    assert_string_equal(report->candidates[2]->reason, "no group");
}

TEST_IN(a_plan_has_all_ways_of_hosts_and_a_load_the_chosen_one, set_up, tear_down)
{
    plan.hosts = (struct hosts_choice){.way = HOSTS_OWNER_PEERS, .reason = reason_of(REASON_HOSTS_SHARE), .alive = 4};
    plan.hosts.candidates[HOSTS_LOCAL_SLICES].estimated_ms = 7;
    plan.hosts.candidates[HOSTS_OWNER_PEERS].reason = reason_of(REASON_ELIGIBLE);
    const Tensorcast__Daemon__V1__HostsReport *hosts = report_fill(&result, &arena)->hosts;
    assert_int_equal(hosts->n_candidates, HOSTS_WAYS);
    assert_string_equal(hosts->candidates[1]->name, "local_slices");
    assert_true(hosts->candidates[1]->estimated_ms == 7);
    assert_string_equal(hosts->candidates[2]->reason, "eligible");
    result.replica = &replica;
    hosts = report_fill(&result, &arena)->hosts;
    assert_int_equal(hosts->n_candidates, 0);
    assert_string_equal(hosts->choice, "owner_peers");
    assert_string_equal(hosts->reason, "hosts_share");
    assert_int_equal(hosts->alive, 4);
}

TEST_IN(a_load_reports_what_its_run_counted, set_up, tear_down)
{
    struct from_host from[] = {{"h1", 60}, {"h2", 30}};
    struct run run = {.account.report = {.read_bytes = 480,
                                         .requests = 2,
                                         .copied_bytes = 41,
                                         .shared_bytes = 20,
                                         .cached_bytes = 7,
                                         .peer_bytes = 90,
                                         .hedged_bytes = 8,
                                         .peak_temporary_bytes = 64,
                                         .execute_ns = 2500000},
                      .account.from = {from, 2, 2}};
    replica.run = &run;
    replica.verdict = (struct verdict){.status = VERIFIED_PARTLY, .by = "sha256", .bytes = 30, .reason = "why", .healed = 2};
    result.replica = &replica;
    result.origin = LOAD_JOINED;
    result.times.total_ns = 9000000;
    const Tensorcast__Daemon__V1__LoadReport *report = report_fill(&result, &arena);
    assert_string_equal(report->verified->status, "partial");
    assert_string_equal(report->verified->by, "sha256");
    assert_int_equal(report->verified->bytes, 30);
    assert_string_equal(report->verified->reason, "why");
    assert_int_equal(report->verified->healed, 2);
    assert_string_equal(report->load_id, "7");
    assert_string_equal(report->artifact, "disk:/m");
    assert_string_equal(report->identity, "abc");
    assert_string_equal(report->memory, "mapped");
    assert_int_equal(report->read_bytes, 480);
    assert_int_equal(report->requests, 2);
    assert_int_equal(report->copied_bytes, 41);
    assert_int_equal(report->shared_bytes, 20);
    assert_int_equal(report->cached_bytes, 7);
    assert_int_equal(report->peak_temporary_bytes, 64);
    assert_int_equal(report->peer_bytes, 90);
    assert_int_equal(report->hosts->hedged_bytes, 8);
    assert_int_equal(report->hosts->n_from_hosts, 2);
    assert_string_equal(report->hosts->from_hosts[1]->host, "h2");
    assert_int_equal(report->hosts->from_hosts[0]->bytes, 60);
    assert_true(report->execute_ms == 2.5 && report->total_ms == 9 && report->joined);
}

TEST_IN(a_resident_replica_and_files_that_were_handed_out_report_that_nothing_moved, set_up, tear_down)
{
    static const enum load_origin origins[] = {LOAD_FROM_REPLICA, LOAD_MAPPED};
    struct run run = {.account.report.read_bytes = 480}; /* of the load that made the replica */
    result.replica = &replica;
    for (int i = 0; i < 2; i++) {
        result.origin = origins[i];
        replica.run = origins[i] == LOAD_FROM_REPLICA ? &run : NULL;
        const Tensorcast__Daemon__V1__LoadReport *report = report_fill(&result, &arena);
        assert_int_equal(report->from_replica, i == 0);
        assert_int_equal(report->read_bytes | report->copied_bytes | report->requests | report->peer_bytes, 0);
        assert_int_equal(report->hosts->n_from_hosts, 0);
        assert_true(report->execute_ms == 0);
        assert_int_equal(report->view_bytes, 140);
    }
}

TEST_IN(whether_files_could_be_handed_out_is_told_where_it_is_known, set_up, tear_down)
{
    assert_null(report_fill(&result, &arena)->mapped);
    plan.mapped = (struct mapped_choice){.is_known = true, .is_possible = true, .proof = IMMUTABLE_BY_ATTRIBUTE};
    const Tensorcast__Daemon__V1__MappedFacts *mapped = report_fill(&result, &arena)->mapped;
    assert_true(mapped->possible);
    assert_string_equal(mapped->proof, "immutable_attribute");
    assert_string_equal(mapped->reason, "");
    plan.mapped = (struct mapped_choice){.is_known = true, .reason = "m can change"};
    mapped = report_fill(&result, &arena)->mapped;
    assert_false(mapped->possible);
    assert_string_equal(mapped->proof, "");
    assert_string_equal(mapped->reason, "m can change");
}
