/* What the candidates of a plan share: how requests and bytes become temporary memory and time, and which reasons let
 * one run. */
#include "tests/support/unit.h"

#include "plan/candidate.h"
#include "plan/cost.h"
#include "plan/explain.h"
#include "resolve/derivation.h"
#include "tests/support/plan_scene.h"

#define MIB ((uint64_t)1 << 20)

/* 4 MiB of a tensor, 1 MiB that is not wanted, another 4 MiB; read in one piece. */
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

TEST_IN(what_is_read_and_not_wanted_is_counted_once, plan_scene_set_up, plan_scene_tear_down)
{
    struct candidate candidate = measure_with_gap(*state);
    assert_int_equal(candidate.requests, 1);
    assert_int_equal(candidate.read_bytes, 9 * MIB);
    assert_int_equal(candidate.requested_bytes, 8 * MIB);
    assert_int_equal(candidate.unique_source_bytes, 8 * MIB);
}

TEST(what_does_not_come_straight_into_place_is_staged_within_the_budget)
{
    static const struct {
        const char *name;
        double cached_share;
        bool lands_in_place, lacks_segments;
        uint64_t staging_budget_bytes, peak_bytes;
    } rows[] = {{"a cold disk", .peak_bytes = 9 * MIB},
                {"a cold disk, the budget is less", .staging_budget_bytes = 9 * MIB - 1, .peak_bytes = 9 * MIB - 1},
                {"the page cache: the gap alone", .cached_share = 1, .peak_bytes = MIB},
                {"it lands in place: what is skipped, up to the cache", .lands_in_place = true, .peak_bytes = 3 * MIB},
                {"no segments", .cached_share = 1, .lacks_segments = true, .peak_bytes = 9 * MIB}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plan_scene_set_up(state);
        struct plan_scene *scene = *state;
        scene->facts.cached_share = rows[i].cached_share;
        scene->facts.source.lands_in_place = rows[i].lands_in_place;
        scene->facts.extent_cache_bytes = 3 * MIB;
        scene->facts.device.direct_segments = !rows[i].lacks_segments;
        if (rows[i].staging_budget_bytes)
            scene->facts.staging_budget_bytes = rows[i].staging_budget_bytes;
        uint64_t peak_bytes = measure_with_gap(scene).peak_temporary_bytes;
        if (peak_bytes != rows[i].peak_bytes)
            fail_msg("%s: %llu bytes", rows[i].name, (unsigned long long)peak_bytes);
        plan_scene_tear_down(state);
    }
}

TEST_IN(what_is_converted_is_staged_and_copied_wherever_it_comes_from, plan_scene_set_up, plan_scene_tear_down)
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

TEST_IN(an_exact_rule_needs_all_that_it_reads, plan_scene_set_up, plan_scene_tear_down)
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

TEST_IN(the_page_cache_is_estimated_quicker_than_the_disk, plan_scene_set_up, plan_scene_tear_down)
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

TEST(two_reasons_let_a_candidate_run_and_no_other)
{
    for (int kind = 0; kind < REASON_COUNT; kind++) {
        struct candidate candidate = {0};
        candidate_judge(&candidate, reason_of((enum reason_kind)kind));
        assert_int_equal(candidate.eligible, kind == REASON_ELIGIBLE || kind == REASON_EXACT_GENERIC_FALLBACK);
        assert_int_equal(candidate.reason.kind, kind);
    }
}

enum { GAP = 1000 };

static struct proposal build_generic(struct plan_scene *scene)
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

TEST_IN(from_a_disk_it_reads_exactly_what_is_wanted, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    add_two_apart(scene, 1);
    mapping_fake_add_columns(scene->fake, 1, 7, 100, 10, 99);
    struct proposal proposal = build_generic(scene);
    assert_int_equal(proposal.candidate.executor, EXECUTOR_GENERIC_BYTE_RANGE);
    assert_int_equal(proposal.candidate.requests, 2 + 7);
    assert_int_equal(proposal.candidate.read_bytes, 10000 + 7 * 89);
    assert_int_equal(proposal.candidate.unique_source_bytes, 10000 + 7 * 89);
}

TEST_IN(from_a_disk_it_is_the_fallback_that_may_always_run, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    scene->facts.device.direct_segments = false;
    scene->facts.staging_budget_bytes = 0;
    add_two_apart(scene, 1);
    struct proposal proposal = build_generic(scene);
    assert_true(proposal.candidate.eligible);
    assert_int_equal(proposal.candidate.reason.kind, REASON_EXACT_GENERIC_FALLBACK);
}

TEST_IN(a_gap_that_costs_less_than_a_request_is_read_over, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    be_remote(scene);
    add_two_apart(scene, GAP - 1);
    struct proposal proposal = build_generic(scene);
    assert_int_equal(proposal.candidate.requests, 1);
    assert_int_equal(proposal.candidate.read_bytes, 10000 + GAP - 1);
    assert_int_equal(proposal.candidate.unique_source_bytes, 10000);
    assert_int_equal(proposal.candidate.reason.kind, REASON_ELIGIBLE);
}

TEST_IN(a_gap_as_dear_as_a_request_is_not, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    be_remote(scene);
    add_two_apart(scene, GAP);
    struct proposal proposal = build_generic(scene);
    assert_int_equal(proposal.candidate.requests, 2);
    assert_int_equal(proposal.candidate.read_bytes, 10000);
}

TEST(requests_are_those_of_the_engines_blocks_or_without_segments_of_its_windows)
{
    for (int has_segments = 0; has_segments < 2; has_segments++) {
        plan_scene_set_up(state);
        struct plan_scene *scene = *state;
        be_remote(scene);
        scene->facts.device.direct_segments = has_segments;
        uint64_t bytes = has_segments ? remote_block_bytes(&scene->facts.source)
                                      : remote_window_bytes(&scene->facts.source, scene->facts.staging_budget_bytes);
        mapping_fake_add_bytes(scene->fake, 0, 3 * bytes); /* begins 8 bytes into the first one */
        assert_int_equal(build_generic(scene).candidate.requests, 4);
        plan_scene_tear_down(state);
    }
}

enum { ROWS = 10, ROW_BYTES = 5000 };

static struct proposal build_local(struct plan_scene *scene)
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

TEST_IN(the_rows_of_an_inner_slice_are_read_in_one_piece, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    scene->strategy.allow_mixed_execution = false;
    add_columns(scene, 4 * GAP); /* however far apart they lie */
    struct proposal local = build_local(scene);
    assert_int_equal(local.candidate.requests, 1);
    assert_int_equal(local.candidate.read_bytes, hull_bytes(4 * GAP));
    assert_int_equal(local.candidate.reason.kind, REASON_ELIGIBLE);
}

TEST_IN(mixed_execution_leaves_far_rows_exact, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    scene->strategy.allow_mixed_execution = true;
    add_columns(scene, GAP - 1); /* near: one piece */
    mapping_fake_skip(scene->fake, 0, 2 * GAP);
    add_columns(scene, GAP); /* as far as a request costs: row by row */
    struct proposal local = build_local(scene);
    assert_int_equal(local.candidate.requests, 1 + ROWS);
    assert_int_equal(local.candidate.read_bytes, hull_bytes(GAP - 1) + ROWS * (ROW_BYTES - GAP));
}

TEST_IN(mixed_execution_that_would_merge_nothing_stays_what_its_name_says, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    scene->strategy.allow_mixed_execution = true;
    add_columns(scene, GAP);
    assert_int_equal(build_local(scene).candidate.requests, 1);
}

TEST_IN(segments_are_joined_over_gaps_below_the_merge_gap, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, GAP - 1);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, GAP);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    struct proposal local = build_local(scene);
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
    return build_local(scene);
}

/* Cached, that hardly takes longer; on the disk twice as long. */
TEST(a_derived_tensor_is_read_with_a_tenth_more_than_it_needs_cached_or_not)
{
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        plan_scene_set_up(state);
        struct proposal local = build_shuffled(*state, is_cached, ROW_BYTES / 2);
        assert_int_equal(local.candidate.requests, 50);
        assert_int_equal(local.candidate.read_bytes, 50 * ROW_BYTES + 50 * GAP / 10);
        plan_scene_tear_down(state);
    }
}

TEST_IN(a_derived_tensor_of_short_rows_is_read_with_more_where_that_saves_time, plan_scene_set_up, plan_scene_tear_down)
{
    struct proposal local = build_shuffled(*state, 0, 1500);
    assert_int_equal(local.candidate.requests, 1);
}

TEST_IN(who_counts_bytes_gets_no_gap_between_segments, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    scene->strategy.cost_gate = COST_GATE_SOURCE_BYTES;
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    mapping_fake_skip(scene->fake, 0, 1);
    mapping_fake_add_bytes(scene->fake, 0, 5000);
    struct proposal local = build_local(scene);
    assert_int_equal(local.candidate.requests, 2);
    assert_int_equal(local.candidate.read_bytes, 10000);
}

TEST(local_batching_names_the_condition_that_keeps_it_out)
{
    static const struct {
        const char *name;
        bool is_remote, lacks_segments, has_queue, is_off, has_rows;
        double cached_share;
        uint64_t staging_budget_bytes;
        enum reason_kind reason;
    } rows[] = {
        {"every read is a request", .is_remote = true, .staging_budget_bytes = MIB, .reason = REASON_SOURCE_NOT_DISK},
        {"no segments", .lacks_segments = true, .staging_budget_bytes = MIB, .reason = REASON_LOCAL_NO_SEGMENTS},
        {"copies in a queue", .lacks_segments = true, .has_queue = true, .staging_budget_bytes = MIB,
         .reason = REASON_ELIGIBLE},
        {"switched off", .is_off = true, .staging_budget_bytes = MIB, .reason = REASON_LOCAL_STRATEGY_DISABLED},
        {"64 KiB of staging", .has_rows = true, .staging_budget_bytes = 64 << 10, .reason = REASON_ELIGIBLE},
        {"less staging", .has_rows = true, .staging_budget_bytes = (64 << 10) - 1, .reason = REASON_LOCAL_PEAK_BUDGET},
        {"straight into place", .cached_share = 1, .staging_budget_bytes = 0, .reason = REASON_ELIGIBLE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plan_scene_set_up(state);
        struct plan_scene *scene = *state;
        if (rows[i].has_rows)
            add_columns(scene, 100);
        else
            mapping_fake_add_bytes(scene->fake, 0, 5000);
        scene->facts.source.reads_are_requests = rows[i].is_remote;
        scene->facts.source.request_bytes = 1 << 20;
        scene->facts.device.direct_segments = !rows[i].lacks_segments;
        scene->facts.device.queued_copies = rows[i].has_queue;
        scene->facts.cached_share = rows[i].cached_share;
        scene->facts.staging_budget_bytes = rows[i].staging_budget_bytes;
        scene->strategy.enable_local_batched_disk_load = !rows[i].is_off;
        struct candidate local = build_local(scene).candidate;
        if (local.reason.kind != rows[i].reason || local.eligible != (rows[i].reason == REASON_ELIGIBLE))
            fail_msg("%s: %s", rows[i].name, local.reason.text);
        plan_scene_tear_down(state);
    }
}

#define COLLECTIVE EXECUTOR_OWNER_FILE_COLLECTIVE
#define GIB ((uint64_t)1 << 30)

TEST_IN(the_collective_names_the_first_thing_that_is_missing, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 2 * GIB);
    mapping_fake_add_bytes(scene->fake, 0, 100);
    struct materialization_strategy *strategy = &scene->strategy;
    scene->spec.policy.collective = COLLECTIVE_DISABLED;
    assert_string_equal(plan_scene_collective_reason(scene), "collective_policy_disabled");
    scene->spec.policy.collective = COLLECTIVE_AUTO;
    assert_string_equal(plan_scene_collective_reason(scene), "strategy_disabled");
    strategy->enable_owner_file_collective = true;
    assert_string_equal(plan_scene_collective_reason(scene), "collective_group_missing");
    plan_scene_join_group(scene, LOCALITY_HOST_LOCAL);
    assert_string_equal(plan_scene_collective_reason(scene), "source_locality_host_local");
    scene->spec.topology.source_locality = LOCALITY_AUTO;
    assert_string_equal(plan_scene_collective_reason(scene), "shared_source_unproven");
    scene->spec.topology.source_sharing_domain = "d";
    scene->facts.device.direct_segments = false;
    assert_string_equal(plan_scene_collective_reason(scene), "target_not_gpu:no_direct_segments");
    scene->facts.device.direct_segments = true;
    scene->facts.group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=1");
    assert_string_equal(plan_scene_collective_reason(scene), "group_assemble_timeout:missing=1");
    scene->facts.group_problem = reason_of(REASON_ELIGIBLE);
    assert_string_equal(plan_scene_collective_reason(scene), "eligible");
}

/* --- every condition of the collective, by itself --------------------------------------------------------------------- */

/* A group to which nothing stands in the way, with a joint plan whose numbers a test sets by hand. */
static struct collective_plan *open_group(struct plan_scene *scene)
{
    static const uint32_t leaders[] = {0, 0};
    struct error error;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    const struct collective_rank rank = {mapping_fake_finish(scene->fake), 0, 2};
    const struct collective_facts facts = {.strategy = &scene->strategy,
                                           .group_id = "g",
                                           .world_size = 2,
                                           .leaders = leaders,
                                           .staging_budget_bytes = 64 * MIB};
    scene->strategy.enable_owner_file_collective = true;
    plan_scene_join_group(scene, LOCALITY_SHARED_SOURCE);
    scene->facts.group = collective_plan_build(&rank, 1, &facts, &error);
    scene->facts.group->numbers.dedup_saving_bytes = scene->strategy.owner_file_collective_min_dedup_saving_bytes;
    return scene->facts.group;
}

static void assert_reason(struct plan_scene *scene, const char *reason)
{
    assert_string_equal(plan_scene_collective_reason(scene), reason);
    assert_int_equal(scene->plan->candidates[COLLECTIVE].eligible, strcmp(reason, "eligible") == 0);
    assert_int_equal(scene->plan->executor == COLLECTIVE, strcmp(reason, "eligible") == 0);
}

/* Breaks one condition, which is named, and mends it again. */
#define BROKEN(place, value, reason)                                                                                        \
    do {                                                                                                                    \
        __typeof__(place) good = (place);                                                                                   \
        (place) = (value);                                                                                                  \
        assert_reason(scene, reason);                                                                                       \
        (place) = good;                                                                                                     \
        assert_reason(scene, "eligible");                                                                                   \
    } while (0)

TEST_IN(every_condition_of_the_request_and_the_host_keeps_the_collective_out_by_itself, plan_scene_set_up,
        plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    struct execution_topology *topology = &scene->spec.topology;
    struct plan_facts *facts = &scene->facts;
    struct collective_plan *group = open_group(scene);
    BROKEN(scene->spec.policy.collective, COLLECTIVE_DISABLED, "collective_policy_disabled");
    BROKEN(scene->strategy.enable_owner_file_collective, false, "strategy_disabled");
    BROKEN(topology->has_group, false, "collective_group_missing");
    topology->source_sharing_domain = "d"; /* not even with that */
    BROKEN(topology->source_locality, LOCALITY_HOST_LOCAL, "source_locality_host_local");
    topology->source_sharing_domain = NULL;
    BROKEN(facts->device, ((struct device_caps){.name = "odd"}), "target_not_gpu:no_direct_segments");
    BROKEN(facts->group_problem, reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=1"),
           "group_assemble_timeout:missing=1");
    BROKEN(facts->transports.wish, COLLECTIVE_TRANSPORT_NCCL, "transport_unavailable:nccl");
    const struct transport_choice none = {.problem = reason_with(REASON_TRANSPORT_NEEDS_A_GPU_PER_RANK, "nccl")};
    BROKEN(facts->transport, &none, "transport_needs_a_gpu_per_rank:nccl");
    facts->device = (struct device_caps){.name = "odd", .queued_copies = true};
    assert_reason(scene, "eligible");
    collective_plan_unref(group);
}

TEST_IN(every_threshold_of_the_joint_plan_holds_at_its_limit_and_not_beyond, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    struct collective_plan *group = open_group(scene);
    group->numbers.peak_temporary_bytes = 8 * GIB;
    group->owner_skew = 1.5;
    group->numbers.dedup_saving_bytes = 512 * MIB;
    BROKEN(group->numbers.peak_temporary_bytes, 8 * GIB + 1, "peak_budget_exceeded");
    BROKEN(group->owner_skew, 1.51, "owner_skew_threshold_exceeded");
    BROKEN(group->numbers.dedup_saving_bytes, 512 * MIB - 1, "dedup_saving_below_threshold");
    group->n_here--; /* a rank is on another host, and what it wants is not known here */
    BROKEN(group->numbers.dedup_saving_bytes, 0, "eligible");
    assert_string_equal(scene->plan->selection.text, "auto_prefers_owner_file_collective_shared_source;on_other_hosts=1");
    group->n_here++;
    BROKEN(group->numbers.residual_bytes, 1, "residual_fallback_requires_generic_executor");
    scene->strategy.owner_file_collective_allow_mixed_residual = true;
    BROKEN(group->numbers.residual_bytes, 1, "eligible");
    collective_plan_unref(group);
}

/* A network file system is a guess: no type of file system is proof. The configuration can waive the proof, except for a file
 * system of one host. */
TEST_IN(the_collective_needs_proof_that_the_source_is_shared, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    struct source_caps *source = &scene->facts.source;
    struct collective_plan *group = open_group(scene);
    scene->spec.topology.source_locality = LOCALITY_AUTO;
    for (int filesystem = SOURCE_LOCAL; filesystem <= SOURCE_NETWORK; filesystem++) {
        source->filesystem = filesystem;
        assert_reason(scene, "shared_source_unproven");
    }
    scene->spec.topology.source_sharing_domain = "d";
    assert_reason(scene, "eligible");
    scene->spec.topology.source_sharing_domain = NULL;
    scene->strategy.owner_file_collective_shared_fs_only = false;
    source->filesystem = SOURCE_NETWORK;
    assert_string_equal(plan_scene_collective_reason(scene), "eligible");
    *source = (struct source_caps){.filesystem = SOURCE_LOCAL, .filesystem_type = "xfs"};
    assert_reason(scene, "source_locality_host_local:xfs");
    scene->spec.topology.source_locality = LOCALITY_SHARED_SOURCE;
    assert_reason(scene, "eligible");
    collective_plan_unref(group);
}

static const struct mapped_facts proven = {.is_possible = true, .proof = IMMUTABLE_BY_SUPERBLOCK};

static const struct mapped_choice *choose(struct plan_scene *scene, const struct mapped_facts *facts, double cached_share)
{
    scene->facts.mapped = facts;
    scene->facts.cached_share = cached_share;
    assert_non_null(plan_scene_build(scene));
    return &scene->plan->mapped;
}

TEST_IN(nobody_is_told_who_did_not_ask, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 1 << 20);
    assert_false(choose(scene, NULL, 1)->is_known);
}

TEST_IN(whole_tensors_are_mapped_cached_or_on_the_disk, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64 << 20);
    const struct mapped_choice *choice = choose(scene, &proven, 1);
    assert_true(choice->is_known && choice->is_possible && choice->is_quicker);
    assert_int_equal(choice->proof, IMMUTABLE_BY_SUPERBLOCK);
    assert_null(choice->reason);
    plan_destroy(scene->plan);
    assert_true(choose(scene, &proven, 0)->is_quicker);
}

TEST_IN(narrow_columns_of_far_rows_are_copied, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 4096, 48 << 10, 0, 64); /* a page, and what is around it, for 64 bytes */
    assert_false(choose(scene, &proven, 1)->is_quicker);
}

TEST_IN(why_it_is_not_possible_is_kept, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    char reason[] = "model.safetensors can change";
    const struct mapped_facts facts = {.reason = reason};
    mapping_fake_add_bytes(scene->fake, 0, 1 << 20);
    const struct mapped_choice *choice = choose(scene, &facts, 1);
    reason[0] = 'X';
    assert_false(choice->is_possible);
    assert_string_equal(choice->reason, "model.safetensors can change");
}

TEST_IN(explain_shows_the_proof_or_the_reason, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 1 << 20);
    choose(scene, &proven, 1);
    char *text = explain_text(scene->plan, mapping_fake_finish(scene->fake), &scene->facts);
    assert_non_null(strstr(text, "mapped    possible, read_only_superblock; about "));
    free(text);
    scene->plan->mapped = (struct mapped_choice){.is_known = true, .reason = "m can change"};
    text = explain_text(scene->plan, (const struct mapping *)scene->fake, &scene->facts);
    assert_non_null(strstr(text, "mapped    not possible: m can change\n"));
    free(text);
}
