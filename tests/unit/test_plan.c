/* The facade: which executor, why, and with what numbers. P1 .. L3, V1, V2 are the fixtures of the design notes. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "tests/support/plan_scene.h"

#define GENERIC EXECUTOR_GENERIC_BYTE_RANGE
#define LOCAL EXECUTOR_TENSOR_BATCHED_LOCAL
#define COLLECTIVE EXECUTOR_OWNER_FILE_COLLECTIVE
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static void assert_selected(const struct plan *plan, enum executor executor, const char *reason)
{
    assert_non_null(plan);
    assert_string_equal(executor_names[plan->executor], executor_names[executor]);
    assert_string_equal(plan->selection.text, reason);
    assert_int_equal(plan->residual_bytes, 0);
}

static void assert_step(const struct plan_step *step, uint64_t offset, uint64_t bytes, uint64_t count, uint64_t stride)
{
    assert_int_equal(step->offset, offset);
    assert_int_equal(step->bytes, bytes);
    assert_int_equal(step->count, count);
    assert_int_equal(step->stride, stride);
}

TEST_IN(p1_an_unproven_group_stays_out_and_local_serves, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->strategy.enable_owner_file_collective = true;
    plan_scene_join_group(scene, LOCALITY_AUTO);
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "auto_prefers_local_batched");
    assert_true(plan->candidates[GENERIC].eligible);
    assert_string_equal(plan->candidates[GENERIC].reason.text, "exact_generic_fallback");
    assert_true(plan->candidates[LOCAL].eligible);
    assert_string_equal(plan->candidates[LOCAL].reason.text, "eligible");
    assert_false(plan->candidates[COLLECTIVE].eligible);
    assert_string_equal(plan->candidates[COLLECTIVE].reason.text, "shared_source_unproven");
    for (size_t i = 0; i < EXECUTOR_COUNT; i++) {
        assert_int_equal(plan->candidates[i].executor, i);
        assert_int_equal(plan->candidates[i].requested_bytes, 64);
    }
}

TEST_IN(p2_without_a_group_the_collective_says_so, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->strategy.enable_owner_file_collective = true;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "auto_prefers_local_batched");
    assert_string_equal(plan->candidates[COLLECTIVE].reason.text, "collective_group_missing");
}

TEST_IN(p3_a_proven_group_prefers_the_collective, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->strategy.enable_owner_file_collective = true;
    scene->strategy.owner_file_collective_min_dedup_saving_bytes = 1;
    plan_scene_join_group(scene, LOCALITY_SHARED_SOURCE);
    scene->spec.topology.source_sharing_domain = "rack-7";
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, COLLECTIVE, "auto_prefers_owner_file_collective_shared_source");
    assert_true(plan->candidates[COLLECTIVE].eligible);
    assert_string_equal(plan->candidates[COLLECTIVE].reason.text, "eligible");
}

TEST(what_cannot_be_preferred_names_the_reason_and_what_runs)
{
    static const struct {
        const char *name;
        enum executor_preference preference;
        bool local_is_off, lacks_segments;
        enum executor executor;
        const char *reason;
    } rows[] = {{"p4, the collective", EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE, false, false, LOCAL,
                 "owner_file_collective_unavailable:strategy_disabled;fallback=local"},
                {"the collective, local is off", EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE, true, false, GENERIC,
                 "owner_file_collective_unavailable:strategy_disabled;fallback=generic"},
                {"auto, local is off", EXECUTOR_PREFERENCE_AUTO, true, false, GENERIC,
                 "auto_generic:strategy_disabled,strategy_disabled"},
                {"local, local is off", EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL, true, false, GENERIC,
                 "tensor_aware_local_unavailable:strategy_disabled"},
                {"auto, no segments", EXECUTOR_PREFERENCE_AUTO, false, true, GENERIC,
                 "auto_generic:target_not_gpu:no_direct_segments,strategy_disabled"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        plan_scene_set_up(state);
        struct plan_scene *scene = *state;
        print_message("%s\n", rows[i].name);
        mapping_fake_add_bytes(scene->fake, 0, 64);
        scene->spec.policy.executor = rows[i].preference;
        scene->strategy.enable_local_batched_disk_load = !rows[i].local_is_off;
        scene->facts.device.direct_segments = !rows[i].lacks_segments;
        assert_selected(plan_scene_build(scene), rows[i].executor, rows[i].reason);
        plan_scene_tear_down(state);
    }
}

TEST_IN(p5_the_byte_gate_keeps_an_amplified_column_slice_on_generic, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 4, 16, 0, 4);
    scene->strategy.cost_gate = COST_GATE_SOURCE_BYTES;
    scene->spec.topology.source_locality = LOCALITY_HOST_LOCAL;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, GENERIC, "auto_generic:local_source_amplification_exceeds_generic,strategy_disabled");
    assert_true(plan->candidates[LOCAL].eligible);
    assert_int_equal(plan->candidates[GENERIC].read_bytes, 16);
    assert_int_equal(plan->candidates[GENERIC].unique_source_bytes, 16);
    assert_int_equal(plan->candidates[GENERIC].requests, 4);
    assert_int_equal(plan->candidates[LOCAL].read_bytes, 52);
    assert_int_equal(plan->candidates[LOCAL].unique_source_bytes, 16);
    assert_int_equal(plan->candidates[LOCAL].requests, 1);
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 8, 4, 4, 16);
}

TEST_IN(p6_an_explicit_local_preference_passes_the_gate, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 4, 16, 0, 4);
    scene->strategy.cost_gate = COST_GATE_SOURCE_BYTES;
    scene->spec.policy.executor = EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "executor_preference_tensor_aware_local");
    assert_int_equal(plan->n_steps, 1);
    assert_step(&plan->steps[0], 8, 52, 1, 52);
}

TEST_IN(l1_a_source_slice_that_is_wanted_twice_is_read_once, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 8);
    mapping_fake_add_bytes(scene->fake, 0, 8);
    struct mapping *mapping = (struct mapping *)mapping_fake_finish(scene->fake);
    mapping->transfers[1].src_offset = mapping->transfers[0].src_offset;
    scene->plan = plan_build(mapping, &scene->spec, &scene->facts, &scene->error);
    assert_int_equal(scene->plan->candidates[LOCAL].requested_bytes, 16);
    assert_int_equal(scene->plan->candidates[LOCAL].unique_source_bytes, 8);
    assert_int_equal(scene->plan->candidates[LOCAL].read_bytes, 8);
    assert_int_equal(scene->plan->n_steps, 1);
}

TEST_IN(l2_boxes_of_any_rank_are_local_jobs, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add(scene->fake, 0, 1, 3, (uint64_t[]){4, 6, 5}, (uint64_t[]){1, 2, 1}, (uint64_t[]){3, 4, 4});
    mapping_fake_add(scene->fake, 0, 1, 2, (uint64_t[]){6, 8}, (uint64_t[]){1, 2}, (uint64_t[]){5, 6});
    scene->spec.policy.executor = EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "executor_preference_tensor_aware_local");
    assert_int_equal(plan->n_jobs[JOB_RECT2D], 2);
    assert_int_equal(plan->candidates[GENERIC].read_bytes, 12 + 16);
    assert_int_equal(plan->candidates[GENERIC].requests, 4 + 4);
}

TEST_IN(l3_a_view_without_bytes_is_a_plan_without_steps, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add(scene->fake, 0, 4, 2, (uint64_t[]){0, 7}, NULL, NULL);
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "auto_prefers_local_batched");
    assert_int_equal(plan->n_steps, 0);
    assert_int_equal(plan->n_jobs[JOB_EMPTY], 1);
    assert_int_equal(plan->candidates[LOCAL].peak_temporary_bytes, 0);
    assert_int_equal(plan->file_first[2], 0);
}

TEST_IN(v1_a_row_slice_is_one_range, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add(scene->fake, 0, 4, 1, (uint64_t[]){8}, (uint64_t[]){2}, (uint64_t[]){6});
    const struct plan *plan = plan_scene_build(scene);
    assert_int_equal(plan->candidates[GENERIC].requests, 1);
    assert_step(&plan->steps[0], 8 + 8, 16, 1, 16);
}

TEST_IN(v2_a_column_slice_is_two_ranges, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add(scene->fake, 0, 4, 2, (uint64_t[]){2, 4}, (uint64_t[]){0, 1}, (uint64_t[]){2, 3});
    scene->spec.policy.executor = EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, GENERIC, "executor_preference_generic");
    assert_int_equal(plan->candidates[GENERIC].requests, 2);
    assert_step(&plan->steps[0], 8 + 4, 8, 2, 16);
}

TEST_IN(the_time_gate_batches_many_short_rows_cached_or_not, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 16384, 128, 8, 24);
    const double shares[] = {0, 0.5, 1};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        scene->facts.cached_share = shares[i];
        plan_destroy(scene->plan);
        const struct plan *plan = plan_scene_build(scene);
        assert_selected(plan, LOCAL, "auto_prefers_local_batched");
        assert_true(plan->candidates[LOCAL].estimated_ms < plan->candidates[GENERIC].estimated_ms);
        assert_int_equal(plan->candidates[LOCAL].requests, 1);
    }
}

TEST_IN(the_time_gate_does_not_read_a_gigabyte_for_a_few_bytes, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 4, 256 * MIB, 4096, 8192);
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, GENERIC, "auto_generic:local_estimated_time_exceeds_generic,strategy_disabled");
    assert_true(plan->candidates[LOCAL].eligible);
    assert_true(plan->candidates[GENERIC].estimated_ms < plan->candidates[LOCAL].estimated_ms);
    assert_int_equal(plan->candidates[GENERIC].read_bytes, 4 * 4096);
    assert_true(plan->candidates[LOCAL].read_bytes > 512 * MIB);
}

/* Many small tensors with gaps, one of them a narrow column of huge rows. */
static void add_mixed_view(struct plan_scene *scene)
{
    for (int i = 0; i < 300; i++) {
        mapping_fake_add_bytes(scene->fake, 0, 5000);
        mapping_fake_skip(scene->fake, 0, 24);
    }
    mapping_fake_add_columns(scene->fake, 0, 4, 256 * MIB, 4096, 8192);
}

TEST_IN(one_wide_column_slice_does_not_spoil_a_view_of_many_tensors, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    add_mixed_view(scene);
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "auto_prefers_local_batched");
    assert_true(plan->candidates[LOCAL].read_bytes < 2 * MIB);
    assert_int_equal(plan->candidates[LOCAL].requests, 1 + 4);
    assert_int_equal(plan->candidates[GENERIC].requests, 300 + 4);
}

TEST_IN(without_mixed_execution_it_does_and_the_gate_refuses, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    add_mixed_view(scene);
    scene->strategy.allow_mixed_execution = false;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, GENERIC, "auto_generic:local_estimated_time_exceeds_generic,strategy_disabled");
    assert_true(plan->candidates[LOCAL].read_bytes > 512 * MIB);
}

TEST_IN(neighbours_in_the_file_are_one_request_for_both, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    for (int i = 0; i < 200; i++)
        mapping_fake_add_bytes(scene->fake, 0, 1000);
    const struct plan *plan = plan_scene_build(scene);
    for (int i = GENERIC; i <= LOCAL; i++) {
        assert_int_equal(plan->candidates[i].requests, 1);
        assert_int_equal(plan->candidates[i].read_bytes, 200000);
    }
}

TEST_IN(gaps_below_the_merge_gap_are_read_and_longer_ones_are_not, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    uint64_t gap = cost_merge_gap_bytes(&cost_defaults, 0);
    mapping_fake_add_bytes(scene->fake, 0, 1000);
    mapping_fake_skip(scene->fake, 0, gap - 1);
    mapping_fake_add_bytes(scene->fake, 0, 1000);
    mapping_fake_skip(scene->fake, 0, gap);
    mapping_fake_add_bytes(scene->fake, 0, 1000);
    const struct plan *plan = plan_scene_build(scene);
    assert_int_equal(plan->merge_gap_bytes, gap);
    assert_int_equal(plan->n_steps, 2);
    assert_int_equal(plan->steps[0].bytes, 2000 + gap - 1);
    assert_int_equal(plan->steps[1].bytes, 1000);
    assert_int_equal(plan->candidates[GENERIC].requests, 3);
}

TEST_IN(under_the_byte_gate_whole_tensors_with_gaps_stay_local_and_exact, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 1000);
    mapping_fake_skip(scene->fake, 0, 24);
    mapping_fake_add_bytes(scene->fake, 0, 1000);
    scene->strategy.cost_gate = COST_GATE_SOURCE_BYTES;
    const struct plan *plan = plan_scene_build(scene);
    assert_selected(plan, LOCAL, "auto_prefers_local_batched");
    assert_int_equal(plan->candidates[LOCAL].read_bytes, 2000);
}

TEST_IN(extents_never_cross_files, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 100);
    mapping_fake_add_bytes(scene->fake, 1, 100);
    const struct plan *plan = plan_scene_build(scene);
    assert_int_equal(plan->n_steps, 2);
    assert_int_equal(plan->file_first[0], 0);
    assert_int_equal(plan->file_first[1], 1);
    assert_int_equal(plan->file_first[2], 2);
    assert_int_equal(plan->steps[1].file, 1);
}

TEST_IN(a_device_with_a_copy_queue_is_a_target_for_every_executor, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->facts.device.direct_segments = false;
    scene->facts.device.queued_copies = true;
    scene->strategy.enable_owner_file_collective = true;
    const struct plan *plan = plan_scene_build(scene);
    assert_true(plan->candidates[LOCAL].eligible);
    assert_string_equal(plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text, "collective_group_missing");
}

TEST_IN(temporary_memory_never_exceeds_the_staging_budget, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 16384, 16384, 1024, 2048);
    scene->facts.staging_budget_bytes = 32 * MIB;
    const struct plan *plan = plan_scene_build(scene);
    for (int i = GENERIC; i <= LOCAL; i++)
        assert_true(plan->candidates[i].peak_temporary_bytes <= 32 * MIB);
    assert_int_equal(plan->candidates[LOCAL].peak_temporary_bytes, 32 * MIB);
}

TEST_IN(a_required_collective_that_cannot_be_is_an_error_with_its_reason, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->spec.policy.collective = COLLECTIVE_REQUIRED;
    assert_null(plan_scene_build(scene));
    assert_int_equal(scene->error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(scene->error.reason, "COLLECTIVE_UNAVAILABLE");
    assert_non_null(strstr(scene->error.message, "strategy_disabled"));
    const char *value;
    assert_string_equal(error_next_note(&scene->error, NULL, &value), "skip_reason");
    assert_string_equal(value, "strategy_disabled");
}

TEST_IN(a_refused_group_leaves_every_rank_its_own_plan, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->strategy.enable_owner_file_collective = true;
    plan_scene_join_group(scene, LOCALITY_SHARED_SOURCE);
    scene->facts.group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=1");
    assert_selected(plan_scene_build(scene), LOCAL, "auto_prefers_local_batched");
    plan_destroy(scene->plan);
    scene->spec.policy.collective = COLLECTIVE_REQUIRED;
    assert_null(plan_scene_build(scene));
    assert_int_equal(scene->error.code, ERROR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(scene->error.message, "missing=1"));
    scene->facts.group_problem = reason_with(REASON_GROUP_CLOSED, "group_assemble_timeout:missing=1");
    assert_null(plan_scene_build(scene));
    assert_int_equal(scene->error.code, ERROR_FAILED_PRECONDITION);
}

TEST_IN(an_unproven_group_is_for_what_local_does_not_want, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64);
    scene->strategy.enable_owner_file_collective = true;
    scene->strategy.owner_file_collective_shared_fs_only = false;
    scene->facts.source.filesystem = SOURCE_NETWORK;
    plan_scene_join_group(scene, LOCALITY_AUTO);
    assert_selected(plan_scene_build(scene), LOCAL, "auto_prefers_local_batched");
    plan_destroy(scene->plan);
    scene->strategy.enable_local_batched_disk_load = false;
    assert_selected(plan_scene_build(scene), COLLECTIVE, "auto_collective_after_local_rejection:strategy_disabled");
    plan_destroy(scene->plan);
    scene->spec.policy.executor = EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE;
    assert_selected(plan_scene_build(scene), COLLECTIVE, "executor_preference_owner_file_collective");
    plan_destroy(scene->plan);
    scene->spec.policy = (struct retrieval_policy){.collective = COLLECTIVE_REQUIRED};
    assert_selected(plan_scene_build(scene), COLLECTIVE, "collective_required");
}

TEST_IN(the_same_facts_give_the_same_plan, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    add_mixed_view(scene);
    const struct plan *first = plan_scene_build(scene);
    struct plan *second = plan_build(mapping_fake_finish(scene->fake), &scene->spec, &scene->facts, &scene->error);
    assert_int_equal(first->n_steps, second->n_steps);
    assert_memory_equal(first->steps, second->steps, first->n_steps * sizeof *first->steps);
    assert_memory_equal(first->candidates, second->candidates, sizeof first->candidates);
    plan_destroy(second);
}

TEST_IN(a_hundred_thousand_sliced_tensors_are_planned_in_order, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    for (int i = 0; i < 100000; i++)
        mapping_fake_add(scene->fake, 0, 1, 4, (uint64_t[]){2, 3, 2, 2}, (uint64_t[]){0, 1, 0, 1}, (uint64_t[]){1, 3, 2, 2});
    const struct mapping *mapping = mapping_fake_finish(scene->fake);
    uint64_t start_ns = clock_now_ns();
    scene->plan = plan_build(mapping, &scene->spec, &scene->facts, &scene->error);
    print_message("planned in %.1f ms\n", clock_ms(clock_now_ns() - start_ns));
    assert_int_equal(scene->plan->candidates[GENERIC].requests, 400000);
    assert_int_equal(scene->plan->candidates[LOCAL].requests, 1);
    assert_int_equal(scene->plan->n_jobs[JOB_RECT2D], 100000);
}

/* Half of a file in a store, at 2 GB/s as learned: 512 MiB and one request. */
TEST_IN(the_way_of_hosts_is_chosen_by_what_the_load_needs_and_the_source_has_shown, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    static const uint64_t shape[] = {1024, MIB}, starts[] = {0, 0}, stops[] = {512, MIB};
    mapping_fake_add(scene->fake, 0, 1, 2, shape, starts, stops);
    scene->facts.source = (struct source_caps){SOURCE_CAPS_OF_REQUESTS, .request_bytes = 64 * MIB, .parallel_requests = 32};
    scene->facts.speed =
        (struct source_speed){.latency_us = 32000, .connection_bytes_per_s = 100000000, .bytes_per_s = 2000000000};
    scene->facts.hosts = (struct hosts_facts){.is_on = true, .alive = 2, .peers = 0.001};
    const struct plan *plan = plan_scene_build(scene);
    const struct candidate *generic = &plan->candidates[GENERIC];
    const struct hosts_candidate *ways = plan->hosts.candidates;
    double read_ms = (double)generic->read_bytes / 2e6;
    assert_int_equal(generic->read_bytes, 512 * MIB);
    assert_float_equal(ways[HOSTS_LOCAL_SLICES].estimated_ms, read_ms + (double)generic->requests, 1e-3); /* 32 at once */
    assert_float_equal(ways[HOSTS_READ_ALL].estimated_ms, 2 * read_ms, 1e-3);
    assert_int_equal(plan->hosts.reason.kind, REASON_OWNER_PEERS_SLOWER); /* at 1 MB/s */
    assert_int_equal(plan->hosts.way, HOSTS_LOCAL_SLICES);
    plan_destroy(scene->plan);
    scene->facts.speed.bytes_per_s = 0; /* the rates of connections are not that of the source */
    assert_int_equal(plan_scene_build(scene)->hosts.way, HOSTS_OWNER_PEERS);
}

TEST_IN(what_is_in_the_page_cache_is_asked_of_no_host, plan_scene_set_up, plan_scene_tear_down)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, MIB);
    scene->facts.source.filesystem = SOURCE_NETWORK;
    scene->facts.hosts = (struct hosts_facts){.is_on = true, .alive = 2};
    scene->facts.cached_share = 1;
    const struct plan *plan = plan_scene_build(scene);
    assert_int_equal(plan->hosts.reason.kind, REASON_IN_PAGE_CACHE);
    assert_int_equal(plan->hosts.way, HOSTS_READ_ALL);
}
