/* What executors and groups do is told under the executor's name; docs/log-events.md has every field. */
#include "base/redact.h"
#include "load/load_log.h"

#include <stdio.h>
#include <stdlib.h>

#include "load/blame.h"
#include "observe/log.h"

void load_log_plan(const struct load_result *result, double cached_share)
{
    const struct plan *plan = result->plan;
    char text[1200];
    size_t used = 0;
    if (!log_enabled(LOG_DEBUG))
        return;
    for (size_t i = 0; i < EXECUTOR_COUNT && used < sizeof text; i++) {
        const struct candidate *c = &plan->candidates[i];
        used += (size_t)snprintf(
            text + used, sizeof text - used,
            "%s%s:eligible=%d:reason=%s:requested=%llu:unique=%llu:read=%llu:requests=%llu:peak=%llu:ms=%.3f",
            i ? " | " : "", executor_names[c->executor], c->eligible, c->reason.text, (unsigned long long)c->requested_bytes,
            (unsigned long long)c->unique_source_bytes, (unsigned long long)c->read_bytes, (unsigned long long)c->requests,
            (unsigned long long)c->peak_temporary_bytes, c->estimated_ms);
    }
    log_debug("strategy_plan", LOG_TEXT("load_id", result->load_id),
              LOG_TEXT("artifact", result->mapping->artifact->reference),
              LOG_TEXT("executor", executor_names[plan->executor]), LOG_TEXT("selection_reason", plan->selection.text),
              LOG_U64("requested_bytes", result->mapping->view_bytes), LOG_U64("residual_bytes", plan->residual_bytes),
              LOG_REAL("cached_share", cached_share), LOG_TEXT("candidates", text));
    const struct candidate *collective = &plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    if (!collective->eligible)
        log_debug("owner_file_collective", LOG_TEXT("load_id", result->load_id), LOG_TEXT("action", "skipped"),
                  LOG_TEXT("reason", collective->reason.text));
}

void load_log_run(const char *load_id, const struct replica *parts, const struct error *error)
{
    if (error || !parts->run)
        return;
    const struct run_report *report = run_report(parts->run);
    const uint64_t *jobs = parts->plan->n_jobs;
    log_debug(
        executor_names[parts->plan->executor], LOG_TEXT("load_id", load_id), LOG_TEXT("action", "timings"),
        LOG_TEXT("original", executor_originals[parts->plan->executor]), LOG_U64("replicated_jobs", jobs[JOB_REPLICATED]),
        LOG_U64("dim0_jobs", jobs[JOB_DIM0]), LOG_U64("dim1_jobs", jobs[JOB_DIM1]), LOG_U64("rect2d_jobs", jobs[JOB_RECT2D]),
        LOG_U64("requests", report->requests), LOG_U64("read_bytes", report->read_bytes),
        LOG_U64("cached_bytes", report->cached_bytes), LOG_U64("shared_bytes", report->shared_bytes),
        LOG_U64("direct_bytes", report->direct_bytes), LOG_U64("copied_bytes", report->copied_bytes),
        LOG_U64("peak_temporary_bytes", report->peak_temporary_bytes), LOG_MS("total_ms", report->execute_ns),
        LOG_MS("read_ms", report->read_ns), LOG_MS("copy_ms", report->copy_ns), LOG_MS("prepare_ms", report->prepare_ns));
}

void load_log_collective(const char *group_id, uid_t uid, const struct plan *plan,
                         const struct collective_counters *counters)
{
    const struct collective_plan *group = plan->group;
    const struct candidate *candidate = &plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    log_work_of("owner_file_collective", uid, LOG_TEXT("action", "timings"), LOG_TEXT("group_id", group_id),
                LOG_TEXT("original", executor_originals[EXECUTOR_OWNER_FILE_COLLECTIVE]),
                LOG_TEXT("transport", plan->transport.ops->name), LOG_U64("world_size", group->world_size),
                LOG_U64("memories", group->n_memories),
                LOG_U64("collective_unique_source_bytes", counters->unique_source_bytes),
                LOG_U64("collective_peer_transfer_bytes", counters->peer_transfer_bytes),
                LOG_U64("collective_peak_temporary_bytes", counters->peak_temporary_bytes),
                LOG_U64("collective_batch_count", counters->batch_count),
                LOG_U64("collective_dedup_saving_bytes", counters->dedup_saving_bytes),
                LOG_U64("estimated_unique_source_bytes", group->numbers.unique_source_bytes + group->numbers.residual_bytes),
                LOG_U64("estimated_peer_transfer_bytes", group->numbers.peer_transfer_bytes),
                LOG_U64("estimated_peak_temporary_bytes", candidate->peak_temporary_bytes),
                LOG_U64("estimated_batch_count", group->n_batches),
                LOG_U64("estimated_dedup_saving_bytes", group->numbers.dedup_saving_bytes),
                LOG_REAL("owner_skew", group->owner_skew), LOG_U64("replicated_jobs", group->numbers.n_jobs[JOB_REPLICATED]),
                LOG_U64("dim0_jobs", group->numbers.n_jobs[JOB_DIM0]),
                LOG_U64("dim1_jobs", group->numbers.n_jobs[JOB_DIM1] + group->numbers.n_jobs[JOB_RECT2D]),
                LOG_MS("total_ms", counters->total_ns), LOG_REAL("estimated_ms", candidate->estimated_ms));
}

void load_log_result(const struct load_result *result, bool plan_only, const struct error *error)
{
    if (error && error->kind == ERROR_KIND_NOT_RESIDENT)
        return; /* a question, and its answer */
    if (error) {
        char *artifact = redact_copy(result->artifact ? result->artifact : "");
        log_at_of(log_level_of_error(error), "load_failed", result->uid, LOG_TEXT("load_id", result->load_id),
                  LOG_U64("pid", (uint64_t)result->pid), LOG_TEXT("artifact", artifact),
                  LOG_TEXT("code", error_code_name(error->code)), LOG_TEXT("reason", error->reason),
                  LOG_TEXT("message", error->message), LOG_MS("total_ms", result->times.total_ns));
        free(artifact);
        return;
    }
    const struct plan *plan = result->plan;
    if (plan_only) {
        log_debug("explain_done", LOG_TEXT("load_id", result->load_id),
                  LOG_TEXT("artifact", result->mapping->artifact->reference),
                  LOG_TEXT("executor", executor_names[plan->executor]), LOG_TEXT("selection_reason", plan->selection.text));
        return;
    }
    const struct run_report nothing = {0};
    bool has_run = result->replica->run && result->origin != LOAD_FROM_REPLICA;
    const struct run_report *report = has_run ? run_report(result->replica->run) : &nothing;
    log_work_of(
        "load_done", result->uid, LOG_TEXT("load_id", result->load_id), LOG_U64("pid", (uint64_t)result->pid),
        LOG_TEXT("artifact", result->mapping->artifact->reference), LOG_TEXT("executor", executor_names[plan->executor]),
        LOG_TEXT("selection_reason", plan->selection.text), LOG_U64("tensors", result->mapping->n_tensors),
        LOG_U64("needed_bytes", result->mapping->view_bytes), LOG_U64("read_bytes", report->read_bytes),
        LOG_U64("copied_bytes", report->copied_bytes), LOG_U64("shared_bytes", report->shared_bytes),
        LOG_U64("peer_bytes", report->peer_bytes), LOG_U64("cached_bytes", report->cached_bytes),
        LOG_U64("residual_bytes", plan->residual_bytes), LOG_BOOL("from_replica", result->origin == LOAD_FROM_REPLICA),
        LOG_BOOL("joined", result->origin == LOAD_JOINED),
        LOG_TEXT("change_detection", change_detector_name(result->mapping->artifact->changes.by)),
        LOG_TEXT("verified", verified_name(result->replica->verdict.status)),
        LOG_TEXT("verified_by", result->replica->verdict.by), LOG_U64("healed", result->replica->verdict.healed),
        LOG_TEXT("memory", replica_memory_name(result->replica)), LOG_MS("resolve_ms", result->times.resolve_ns),
        LOG_MS("plan_ms", result->times.plan_ns), LOG_MS("execute_ms", report->execute_ns),
        LOG_MS("total_ms", result->times.total_ns), LOG_TEXT("waited_for", cause_names[blame_largest(result->trace)]));
    struct into_report into;
    if (!into_report_make(result, &into))
        return;
    log_work_of("materialize_mapped_into_target", result->uid, LOG_TEXT("action", "execution_commit"),
                LOG_TEXT("load_id", result->load_id), LOG_BOOL("collective_handled", into.collective_handled),
                LOG_BOOL("direct_write_supported", into.direct_write_supported),
                LOG_BOOL("source_ordered", into.source_ordered), LOG_TEXT("dominant_executor", into.dominant_executor),
                LOG_U64("committed_bytes", into.committed_bytes), LOG_U64("fallback_bytes", into.fallback_bytes));
}

bool into_report_make(const struct load_result *result, struct into_report *report)
{
    const struct mapping *mapping = result->mapping;
    const struct plan *plan = result->plan;
    const struct run *run = result->replica ? result->replica->run : NULL;
    if (!mapping->has_targets)
        return false;
    *report = (struct into_report){
        .collective_handled = plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE,
        .direct_write_supported = result->device->caps.direct_segments && mapping->n_operations == 0,
        .source_ordered = plan->executor != EXECUTOR_GENERIC_BYTE_RANGE,
        .dominant_executor = executor_names[plan->executor],
        /* a run that has ended well has placed every byte of the view: see check_account() */
        .committed_bytes = mapping->view_bytes + (run ? run_report(run)->filled_bytes : mapping->fill_bytes),
        .fallback_bytes = plan->residual_bytes};
    return true;
}
