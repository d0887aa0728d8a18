/* Owner-file collective: every rank of a group owns a share of the files; whatever several ranks need is read once and
 * passed on.
 *
 * It is judged twice. Before the group has assembled only what every rank can see for itself counts: policy, strategy,
 * topology. Those are equal in all ranks of a group, so either all of them wait for each other or none does. The
 * thresholds are judged on the joint plan, which is made of the ranks' real views; then the numbers are its numbers: this
 * rank reads what it owns, in so many batches. */
#include "plan/candidate.h"

bool candidate_collective_is_proven(const struct planning *planning)
{
    const struct execution_topology *topology = &planning->spec->topology;
    return topology->source_locality == LOCALITY_SHARED_SOURCE || topology->source_sharing_domain;
}

/* Of a request without proof. What the file system is may speak against sharing, never for it. */
static struct reason refuse_unproven(const struct planning *planning)
{
    const struct source_caps *source = &planning->facts->source;
    if (planning->facts->strategy->owner_file_collective_shared_fs_only)
        return reason_of(REASON_SHARED_SOURCE_UNPROVEN);
    if (source->filesystem != SOURCE_LOCAL)
        return reason_of(REASON_ELIGIBLE);
    return reason_with(REASON_FILESYSTEM_HOST_LOCAL, "%s", source->filesystem_type);
}

static struct reason refuse_topology(const struct planning *planning)
{
    const struct execution_topology *topology = &planning->spec->topology;
    const struct plan_facts *facts = planning->facts;
    if (!topology->has_group)
        return reason_of(REASON_GROUP_MISSING);
    if (topology->source_locality == LOCALITY_HOST_LOCAL)
        return reason_of(REASON_LOCALITY_HOST_LOCAL);
    struct reason reason = candidate_collective_is_proven(planning) ? reason_of(REASON_ELIGIBLE) : refuse_unproven(planning);
    if (reason.kind == REASON_ELIGIBLE)
        reason = transport_choice_refuse(&facts->transports, !facts->device.direct_segments);
    if (reason.kind == REASON_ELIGIBLE && facts->group_problem.kind != REASON_ELIGIBLE)
        return facts->group_problem;
    return reason;
}

/* Some transports stage on devices, too. */
static uint64_t peak_temporary_bytes(const struct plan_facts *facts)
{
    const struct transport_choice *transport = facts->transport;
    uint64_t on_devices = transport ? transport->demand.n_devices * transport->staging_bytes : 0;
    return facts->group->numbers.peak_temporary_bytes + on_devices;
}

static struct reason refuse_joint_plan(const struct planning *planning)
{
    const struct materialization_strategy *strategy = planning->facts->strategy;
    const struct collective_plan *group = planning->facts->group;
    enum reason_kind kind = REASON_ELIGIBLE;
    if (!group)
        return reason_of(REASON_ELIGIBLE);
    if (group->numbers.residual_bytes && !strategy->owner_file_collective_allow_mixed_residual)
        kind = REASON_RESIDUAL;
    else if (planning->facts->transport && !planning->facts->transport->ops)
        return planning->facts->transport->problem;
    else if (peak_temporary_bytes(planning->facts) > strategy->owner_file_collective_peak_bytes_budget)
        kind = REASON_COLLECTIVE_PEAK_BUDGET;
    else if (group->owner_skew > strategy->owner_file_collective_max_owner_skew_ratio)
        kind = REASON_OWNER_SKEW;
    else if (group->numbers.dedup_saving_bytes < strategy->owner_file_collective_min_dedup_saving_bytes)
        kind = REASON_DEDUP_SAVING;
    return reason_of(kind);
}

static struct reason refuse_collective(const struct planning *planning)
{
    const struct device_caps *device = &planning->facts->device;
    if (planning->spec->policy.collective == COLLECTIVE_DISABLED)
        return reason_of(REASON_COLLECTIVE_POLICY_DISABLED);
    if (!planning->facts->strategy->enable_owner_file_collective)
        return reason_of(REASON_COLLECTIVE_STRATEGY_DISABLED);
    if (!device->direct_segments && !device->queued_copies)
        return reason_of(REASON_COLLECTIVE_NO_SEGMENTS);
    struct reason reason = refuse_topology(planning);
    return reason.kind == REASON_ELIGIBLE ? refuse_joint_plan(planning) : reason;
}

/* One process reads the unique bytes once and copies what each further memory needs of them. */
static double estimate_ms(const struct planning *planning, const struct collective_plan *group)
{
    uint64_t bytes = group->numbers.unique_source_bytes + group->numbers.residual_bytes;
    struct cost_work work = {.requests = group->n_pieces,
                             .read_bytes = bytes,
                             .copied_bytes = group->numbers.peer_transfer_bytes,
                             .fresh_bytes = bytes + group->numbers.peer_transfer_bytes,
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
    take_numbers(planning, &proposal->candidate);
    candidate_judge(&proposal->candidate, refuse_collective(planning));
}
