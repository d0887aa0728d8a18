/* Owner-file collective: every rank of a group owns a share of the files; whatever several ranks need is read once and
 * passed on.
 *
 * It is judged twice. Before the group has assembled only what every rank can see for itself counts: policy, strategy,
 * topology. Those are equal in all ranks of a group, so either all of them wait for each other or none does. The
 * thresholds are judged on the joint plan, which is made of the ranks' real views; then the numbers are its numbers: this
 * rank reads what it owns, in so many batches. */
#include "plan/candidate.h"

#include <stdio.h>

bool candidate_collective_is_proven(const struct planning *planning)
{
    const struct execution_topology *topology = &planning->spec->topology;
    return topology->source_locality == LOCALITY_SHARED_SOURCE || topology->source_sharing_domain;
}

/* Of a request without proof. What the file system is may speak against sharing, never for it. */
static const char *unproven_refusal(const struct planning *planning, char problem[TRANSPORT_PROBLEM_CHARS])
{
    const struct source_caps *source = &planning->facts->source;
    if (planning->facts->strategy->owner_file_collective_shared_fs_only)
        return "shared_source_unproven";
    if (source->filesystem != SOURCE_LOCAL)
        return NULL;
    snprintf(problem, TRANSPORT_PROBLEM_CHARS, "source_locality_host_local:%s", source->filesystem_type);
    return problem;
}

static const char *topology_refusal(const struct planning *planning, char problem[TRANSPORT_PROBLEM_CHARS])
{
    const struct execution_topology *topology = &planning->spec->topology;
    if (!topology->has_group)
        return "collective_group_missing";
    if (topology->source_locality == LOCALITY_HOST_LOCAL)
        return "source_locality_host_local";
    const char *unproven = candidate_collective_is_proven(planning) ? NULL : unproven_refusal(planning, problem);
    if (unproven)
        return unproven;
    bool on_device = !planning->facts->device.direct_segments;
    const char *reason = transport_choice_refusal(&planning->facts->transports, on_device, problem);
    return reason ? reason : planning->facts->group_problem;
}

/* Some transports stage on devices, too. */
static uint64_t peak_temporary_bytes(const struct plan_facts *facts)
{
    const struct transport_choice *transport = facts->transport;
    uint64_t on_devices = transport ? transport->demand.n_devices * transport->staging_bytes : 0;
    return facts->group->peak_temporary_bytes + on_devices;
}

static const char *threshold_refusal(const struct planning *planning)
{
    const struct materialization_strategy *strategy = planning->facts->strategy;
    const struct collective_plan *group = planning->facts->group;
    if (!group)
        return NULL;
    if (group->residual_bytes && !strategy->owner_file_collective_allow_mixed_residual)
        return "residual_fallback_requires_generic_executor";
    if (planning->facts->transport && !planning->facts->transport->ops)
        return planning->facts->transport->problem;
    if (peak_temporary_bytes(planning->facts) > strategy->owner_file_collective_peak_bytes_budget)
        return "peak_budget_exceeded";
    if (group->owner_skew > strategy->owner_file_collective_max_owner_skew_ratio)
        return "owner_skew_threshold_exceeded";
    if (group->dedup_saving_bytes < strategy->owner_file_collective_min_dedup_saving_bytes)
        return "dedup_saving_below_threshold";
    return NULL;
}

static const char *refusal(const struct planning *planning, char problem[TRANSPORT_PROBLEM_CHARS])
{
    if (planning->spec->policy.collective == COLLECTIVE_DISABLED)
        return "collective_policy_disabled";
    if (!planning->facts->strategy->enable_owner_file_collective)
        return "strategy_disabled";
    if (!planning->facts->device.direct_segments && !planning->facts->device.queued_copies)
        return "target_not_gpu:no_direct_segments";
    const char *reason = topology_refusal(planning, problem);
    return reason ? reason : threshold_refusal(planning);
}

/* One process reads the unique bytes once and copies what each further memory needs of them. */
static double estimate_ms(const struct planning *planning, const struct collective_plan *group)
{
    uint64_t bytes = group->unique_source_bytes + group->residual_bytes;
    struct cost_work work = {.requests = group->n_pieces,
                             .read_bytes = bytes,
                             .copied_bytes = group->peer_transfer_bytes,
                             .fresh_bytes = bytes + group->peer_transfer_bytes,
                             .cached_share = planning->facts->cached_share};
    return cost_estimate_ms(planning->facts->costs, &work);
}

static void take_numbers(const struct planning *planning, struct candidate *candidate)
{
    const struct collective_plan *group = planning->facts->group;
    uint32_t rank = planning->spec->topology.rank;
    if (!group)
        return;
    candidate->read_bytes = group->owners[rank].bytes;
    candidate->requests = group->owners[rank].n_batches;
    candidate->peak_temporary_bytes = peak_temporary_bytes(planning->facts);
    candidate->estimated_ms = estimate_ms(planning, group);
}

void candidate_collective_build(const struct planning *planning, const struct proposal *generic, struct proposal *proposal)
{
    *proposal = (struct proposal){.candidate = {.executor = EXECUTOR_OWNER_FILE_COLLECTIVE,
                                                .requested_bytes = planning->mapping->view_bytes,
                                                .unique_source_bytes = generic->candidate.unique_source_bytes},
                                  .rule = STEP_RULE_EXACT};
    char problem[TRANSPORT_PROBLEM_CHARS];
    take_numbers(planning, &proposal->candidate);
    const char *reason = refusal(planning, problem);
    candidate_judge(&proposal->candidate, reason == NULL, reason ? reason : "eligible");
}
