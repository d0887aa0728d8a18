/* One report has three sources of numbers: the plan (estimates), the run (counted), or none (a resident replica moves
 * nothing). Which of them fills bytes and times is decided here once, for the daemon and for the standalone command. */
#include "api/report_fill.h"

#include <string.h>

#include "base/clock.h"

typedef Tensorcast__Daemon__V1__LoadReport load_report;
typedef Tensorcast__Daemon__V1__Candidate candidate_report;
typedef Tensorcast__Daemon__V1__CollectiveReport collective_report;

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

static candidate_report *fill_candidate(const struct candidate *candidate, struct arena *arena)
{
    candidate_report *report = arena_alloc(arena, sizeof *report);
    tensorcast__daemon__v1__candidate__init(report);
    report->executor = executor_names[candidate->executor];
    report->eligible = candidate->eligible;
    report->reason = candidate->reason.text;
    report->requested_bytes = candidate->requested_bytes;
    report->unique_source_bytes = candidate->unique_source_bytes;
    report->read_bytes = candidate->read_bytes;
    report->requests = candidate->requests;
    report->peak_temporary_bytes = candidate->peak_temporary_bytes;
    report->estimated_ms = candidate->estimated_ms;
    return report;
}

/* The batched executor gathers rows of inner-dimension slices out of staging; all else is read into place. */
static uint64_t planned_copied_bytes(const struct mapping *mapping, const struct plan *plan)
{
    uint64_t bytes = 0;
    if (plan->executor != EXECUTOR_TENSOR_BATCHED_LOCAL)
        return 0;
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        enum job_kind job = mapping->tensors[i].job;
        if (job == JOB_DIM1 || job == JOB_RECT2D)
            bytes += mapping->tensors[i].bytes;
    }
    return bytes;
}

static void fill_estimates(load_report *report, const struct mapping *mapping, const struct plan *plan)
{
    const struct candidate *chosen = &plan->candidates[plan->executor];
    report->read_bytes = chosen->read_bytes;
    report->requests = chosen->requests;
    report->copied_bytes = planned_copied_bytes(mapping, plan);
    report->peak_temporary_bytes = chosen->peak_temporary_bytes;
    report->execute_ms = chosen->estimated_ms;
}

static void fill_counted(load_report *report, const struct run_report *run)
{
    report->read_bytes = run->read_bytes;
    report->requests = run->requests;
    report->copied_bytes = run->copied_bytes;
    report->shared_bytes = run->shared_bytes;
    report->cached_bytes = run->cached_bytes;
    report->peak_temporary_bytes = run->peak_temporary_bytes;
    report->execute_ms = clock_ms(run->execute_ns);
}

static Tensorcast__Daemon__V1__CollectiveNumbers *new_numbers(struct arena *arena)
{
    Tensorcast__Daemon__V1__CollectiveNumbers *numbers = arena_alloc(arena, sizeof *numbers);
    tensorcast__daemon__v1__collective_numbers__init(numbers);
    return numbers;
}

static void fill_group_estimates(collective_report *report, const struct plan *plan, struct arena *arena)
{
    const struct collective_plan *group = plan->group;
    Tensorcast__Daemon__V1__CollectiveNumbers *numbers = new_numbers(arena);
    numbers->unique_source_bytes = group->numbers.unique_source_bytes + group->numbers.residual_bytes;
    numbers->peer_transfer_bytes = group->numbers.peer_transfer_bytes;
    numbers->peak_temporary_bytes = plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].peak_temporary_bytes;
    numbers->batch_count = group->n_batches;
    numbers->dedup_saving_bytes = group->numbers.dedup_saving_bytes;
    report->estimated = numbers;
    report->transport = plan->transport.ops ? plan->transport.ops->name : "";
}

static void fill_group_counted(collective_report *report, const struct collective_counters *counters, struct arena *arena)
{
    Tensorcast__Daemon__V1__CollectiveNumbers *numbers = new_numbers(arena);
    numbers->unique_source_bytes = counters->unique_source_bytes;
    numbers->peer_transfer_bytes = counters->peer_transfer_bytes;
    numbers->peak_temporary_bytes = counters->peak_temporary_bytes;
    numbers->batch_count = counters->batch_count;
    numbers->dedup_saving_bytes = counters->dedup_saving_bytes;
    report->measured = numbers;
}

static collective_report *fill_collective(const struct report_facts *facts, struct arena *arena)
{
    collective_report *report = arena_alloc(arena, sizeof *report);
    const struct candidate *candidate = &facts->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    bool chosen = facts->plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
    tensorcast__daemon__v1__collective_report__init(report);
    report->group_id = text_or_empty(facts->topology->group_id);
    report->rank = facts->topology->rank;
    report->world_size = facts->topology->world_size;
    report->assemble_ms = facts->assemble_ms;
    report->skip_reason = facts->is_mapped      ? reason_rows[REASON_FILES_HANDED_OUT].name
                          : chosen              ? ""
                          : facts->from_replica ? reason_rows[REASON_FROM_REPLICA].name
                          : candidate->eligible ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name
                                                : candidate->reason.text;
    if (facts->plan->group)
        fill_group_estimates(report, facts->plan, arena);
    if (facts->collective)
        fill_group_counted(report, facts->collective, arena);
    return report;
}

static Tensorcast__Daemon__V1__Verification *fill_verdict(const struct verdict *verdict, struct arena *arena)
{
    Tensorcast__Daemon__V1__Verification *report = arena_alloc(arena, sizeof *report);
    tensorcast__daemon__v1__verification__init(report);
    report->status = verified_name(verdict->status);
    report->by = text_or_empty(verdict->by);
    report->bytes = verdict->bytes;
    report->reason = text_or_empty(verdict->reason);
    report->healed = verdict->healed;
    return report;
}

static Tensorcast__Daemon__V1__ChangeDetection *fill_change_detection(const struct artifact *artifact, struct arena *arena)
{
    Tensorcast__Daemon__V1__ChangeDetection *report = arena_alloc(arena, sizeof *report);
    tensorcast__daemon__v1__change_detection__init(report);
    report->by = change_detector_name(artifact->changes.by);
    report->reason = text_or_empty(artifact->changes.reason);
    return report;
}

static Tensorcast__Daemon__V1__MappedFacts *fill_mapped(const struct mapped_choice *mapped, struct arena *arena)
{
    Tensorcast__Daemon__V1__MappedFacts *report = arena_alloc(arena, sizeof *report);
    tensorcast__daemon__v1__mapped_facts__init(report);
    report->possible = mapped->is_possible;
    report->proof = mapped->is_possible ? immutability_name(mapped->proof) : "";
    report->reason = text_or_empty(mapped->reason);
    return report;
}

static Tensorcast__Daemon__V1__IntoReport *fill_into(const struct into_report *into, struct arena *arena)
{
    Tensorcast__Daemon__V1__IntoReport *report = arena_alloc(arena, sizeof *report);
    tensorcast__daemon__v1__into_report__init(report);
    report->collective_handled = into->collective_handled;
    report->direct_write_supported = into->direct_write_supported;
    report->source_ordered = into->source_ordered;
    report->dominant_executor = text_or_empty(into->dominant_executor);
    report->committed_bytes = into->committed_bytes;
    report->fallback_bytes = into->fallback_bytes;
    return report;
}

load_report *report_fill(const struct report_facts *facts, struct arena *arena)
{
    const struct mapping *mapping = facts->mapping;
    const struct plan *plan = facts->plan;
    load_report *report = arena_alloc(arena, sizeof *report);
    tensorcast__daemon__v1__load_report__init(report);
    report->load_id = text_or_empty(facts->load_id);
    report->artifact = mapping->artifact->reference;
    report->identity = mapping->artifact->identity;
    report->executor = executor_names[plan->executor];
    report->selection_reason = plan->selection.text;
    report->n_candidates = EXECUTOR_COUNT;
    report->candidates = arena_array(arena, EXECUTOR_COUNT, sizeof *report->candidates);
    for (size_t i = 0; i < EXECUTOR_COUNT; i++)
        report->candidates[i] = fill_candidate(&plan->candidates[i], arena);
    report->view_bytes = mapping->view_bytes;
    report->unique_source_bytes = plan->candidates[plan->executor].unique_source_bytes;
    report->residual_bytes = plan->residual_bytes;
    report->from_replica = facts->from_replica;
    report->joined = facts->joined;
    report->change_detection = fill_change_detection(mapping->artifact, arena);
    report->memory = text_or_empty(facts->memory);
    report->device = text_or_empty(facts->device);
    report->resolve_ms = facts->resolve_ms;
    report->plan_ms = facts->plan_ms;
    report->total_ms = facts->total_ms;
    if (facts->topology && facts->topology->has_group)
        report->collective = fill_collective(facts, arena);
    if (plan->mapped.is_known)
        report->mapped = fill_mapped(&plan->mapped, arena);
    if (facts->into) {
        report->into = fill_into(facts->into, arena);
        report->target_bytes = facts->into->committed_bytes;
    }
    if (facts->verdict)
        report->verified = fill_verdict(facts->verdict, arena);
    if (facts->run)
        fill_counted(report, facts->run);
    else if (!facts->from_replica && !facts->is_mapped)
        fill_estimates(report, mapping, plan);
    return report;
}
