/* One report has three sources of numbers: the plan (estimates), the run (counted), or none (a resident replica moves
 * nothing). Which of them fills bytes and times is decided here once, for the daemon and for the standalone command. */
#include "api/report_fill.h"

#include "api/codec.h"
#include "base/clock.h"
#include "execute/collective.h"
#include "load/load_log.h"

typedef Tensorcast__Daemon__V1__LoadReport load_report;

static void fill_candidates(load_report *report, const struct plan *plan, struct arena *arena)
{
    report->n_candidates = EXECUTOR_COUNT;
    report->candidates = arena_array(arena, EXECUTOR_COUNT, sizeof *report->candidates);
    for (size_t i = 0; i < EXECUTOR_COUNT; i++) {
        const struct candidate *from = &plan->candidates[i];
        Tensorcast__Daemon__V1__Candidate *to = report->candidates[i] = CODEC_NEW(candidate, arena);
        to->executor = executor_names[from->executor];
        to->eligible = from->eligible;
        to->reason = from->reason.text;
        to->requested_bytes = from->requested_bytes;
        to->unique_source_bytes = from->unique_source_bytes;
        to->read_bytes = from->read_bytes;
        to->requests = from->requests;
        to->peak_temporary_bytes = from->peak_temporary_bytes;
        to->estimated_ms = from->estimated_ms;
    }
}

static void fill_estimates(load_report *report, const struct mapping *mapping, const struct plan *plan)
{
    const struct candidate *chosen = &plan->candidates[plan->executor];
    report->read_bytes = chosen->read_bytes;
    report->requests = chosen->requests;
    report->peak_temporary_bytes = chosen->peak_temporary_bytes;
    report->execute_ms = chosen->estimated_ms;
    /* the batched executor gathers rows of inner-dimension slices out of staging; all else is read into place */
    for (size_t i = 0; plan->executor == EXECUTOR_TENSOR_BATCHED_LOCAL && i < mapping->n_tensors; i++) {
        enum job_kind job = mapping->tensors[i].job;
        report->copied_bytes += job == JOB_DIM1 || job == JOB_RECT2D ? mapping->tensors[i].bytes : 0;
    }
}

/* counters: NULL unless the load was part of a collective that ran. */
static void fill_collective(load_report *report, const struct load_result *result,
                            const struct collective_counters *counters, struct arena *arena)
{
    const struct execution_topology *topology = &result->spec->topology;
    const struct plan *plan = result->plan;
    const struct collective_plan *group = plan->group;
    const struct candidate *candidate = &plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    Tensorcast__Daemon__V1__CollectiveReport *to = report->collective = CODEC_NEW(collective_report, arena);
    to->group_id = topology->group_id ? topology->group_id : "";
    to->rank = topology->rank;
    to->world_size = topology->world_size;
    to->assemble_ms = clock_ms(result->times.assemble_ns);
    to->skip_reason = result->origin == LOAD_MAPPED                      ? reason_rows[REASON_FILES_HANDED_OUT].name
                      : plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE ? ""
                      : result->origin == LOAD_FROM_REPLICA              ? reason_rows[REASON_FROM_REPLICA].name
                      : candidate->eligible                              ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name
                                                                         : candidate->reason.text;
    if (group) {
        Tensorcast__Daemon__V1__CollectiveNumbers *estimated = to->estimated = CODEC_NEW(collective_numbers, arena);
        estimated->unique_source_bytes = group->numbers.unique_source_bytes + group->numbers.residual_bytes;
        estimated->peer_transfer_bytes = group->numbers.peer_transfer_bytes;
        estimated->peak_temporary_bytes = candidate->peak_temporary_bytes;
        estimated->batch_count = group->n_batches;
        estimated->dedup_saving_bytes = group->numbers.dedup_saving_bytes;
        to->transport = plan->transport.ops ? plan->transport.ops->name : "";
    }
    if (counters) {
        Tensorcast__Daemon__V1__CollectiveNumbers *measured = to->measured = CODEC_NEW(collective_numbers, arena);
        measured->unique_source_bytes = counters->unique_source_bytes;
        measured->peer_transfer_bytes = counters->peer_transfer_bytes;
        measured->peak_temporary_bytes = counters->peak_temporary_bytes;
        measured->batch_count = counters->batch_count;
        measured->dedup_saving_bytes = counters->dedup_saving_bytes;
    }
}

/* Candidates of a plan only: what was loaded came in one way. */
static void fill_hosts(load_report *report, const struct hosts_choice *choice, bool is_plan, struct arena *arena)
{
    Tensorcast__Daemon__V1__HostsReport *to = report->hosts = CODEC_NEW(hosts_report, arena);
    to->choice = hosts_way_names[choice->way];
    to->reason = choice->reason.text;
    to->alive = choice->alive;
    if (!is_plan)
        return;
    to->n_candidates = HOSTS_WAYS;
    to->candidates = arena_array(arena, HOSTS_WAYS, sizeof *to->candidates);
    for (size_t i = 0; i < HOSTS_WAYS; i++) {
        Tensorcast__Daemon__V1__HostsCandidate *candidate = to->candidates[i] = CODEC_NEW(hosts_candidate, arena);
        candidate->name = hosts_way_names[i];
        candidate->estimated_ms = choice->candidates[i].estimated_ms;
        candidate->reason = choice->candidates[i].reason.text;
    }
}

/* The names are the run's. */
static void fill_from_hosts(Tensorcast__Daemon__V1__HostsReport *to, const struct run *run, struct arena *arena)
{
    const struct from_hosts *from = run_from_hosts(run);
    to->hedged_bytes = run_report(run)->hedged_bytes;
    to->n_from_hosts = from->n;
    to->from_hosts = arena_array(arena, from->n, sizeof *to->from_hosts);
    for (size_t i = 0; i < from->n; i++) {
        Tensorcast__Daemon__V1__HostBytes *host = to->from_hosts[i] = CODEC_NEW(host_bytes, arena);
        host->host = from->list[i].name;
        host->bytes = from->list[i].bytes;
    }
}

load_report *report_fill(const struct load_result *result, struct arena *arena)
{
    const struct mapping *mapping = result->mapping;
    const struct plan *plan = result->plan;
    const struct replica *replica = result->replica; /* NULL: nothing was run */
    const struct run *run = replica && result->origin != LOAD_FROM_REPLICA ? replica->run : NULL;
    struct into_report into;
    load_report *report = CODEC_NEW(load_report, arena);
    report->load_id = result->load_id;
    report->artifact = mapping->artifact->reference;
    report->identity = mapping->artifact->identity;
    report->executor = executor_names[plan->executor];
    report->selection_reason = plan->selection.text;
    fill_candidates(report, plan, arena);
    report->view_bytes = mapping->view_bytes;
    report->unique_source_bytes = plan->candidates[plan->executor].unique_source_bytes;
    report->residual_bytes = plan->residual_bytes;
    report->from_replica = result->origin == LOAD_FROM_REPLICA;
    report->joined = result->origin == LOAD_JOINED;
    report->change_detection = CODEC_NEW(change_detection, arena);
    report->change_detection->by = change_detector_name(mapping->artifact->changes.by);
    report->change_detection->reason = mapping->artifact->changes.reason ? mapping->artifact->changes.reason : "";
    report->memory = replica ? replica_memory_name(replica) : "";
    report->device = result->spec->device ? result->device->caps.name : "";
    report->resolve_ms = clock_ms(result->times.resolve_ns);
    report->plan_ms = clock_ms(result->times.plan_ns);
    report->total_ms = clock_ms(result->times.total_ns);
    fill_hosts(report, &plan->hosts, !replica, arena);
    if (result->spec->topology.has_group)
        fill_collective(report, result, run ? run_collective_counters(run) : NULL, arena);
    if (plan->mapped.is_known) {
        report->mapped = CODEC_NEW(mapped_facts, arena);
        report->mapped->possible = plan->mapped.is_possible;
        report->mapped->proof = plan->mapped.is_possible ? immutability_name(plan->mapped.proof) : "";
        report->mapped->reason = plan->mapped.reason ? plan->mapped.reason : "";
    }
    if (into_report_make(result, &into)) {
        Tensorcast__Daemon__V1__IntoReport *filled = report->into = CODEC_NEW(into_report, arena);
        filled->collective_handled = into.collective_handled;
        filled->direct_write_supported = into.direct_write_supported;
        filled->source_ordered = into.source_ordered;
        filled->dominant_executor = into.dominant_executor;
        filled->committed_bytes = into.committed_bytes;
        filled->fallback_bytes = into.fallback_bytes;
        report->target_bytes = into.committed_bytes;
    }
    if (replica) {
        Tensorcast__Daemon__V1__Verification *to = report->verified = CODEC_NEW(verification, arena);
        to->status = verified_name(replica->verdict.status);
        to->by = replica->verdict.by;
        to->bytes = replica->verdict.bytes;
        to->reason = replica->verdict.reason;
        to->healed = replica->verdict.healed;
    }
    if (run) {
        const struct run_report *counted = run_report(run);
        report->read_bytes = counted->read_bytes;
        report->peer_bytes = counted->peer_bytes;
        report->requests = counted->requests;
        report->copied_bytes = counted->copied_bytes;
        report->shared_bytes = counted->shared_bytes;
        report->cached_bytes = counted->cached_bytes;
        report->peak_temporary_bytes = counted->peak_temporary_bytes;
        report->execute_ms = clock_ms(counted->execute_ns);
        fill_from_hosts(report->hosts, run, arena);
    } else if (result->origin != LOAD_FROM_REPLICA && result->origin != LOAD_MAPPED) {
        fill_estimates(report, mapping, plan);
    }
    return report;
}
