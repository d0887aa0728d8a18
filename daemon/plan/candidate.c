/* What the candidates share: a step rule turned into requests, bytes, temporary memory and time. */
#include "plan/candidate.h"

/* Whatever does not come from the page cache straight into place passes through staging, as does all of a view of which
 * something is converted, and so do bytes that are read only to be skipped. An upper bound: the engine takes what it gets within the budget. */
static uint64_t peak_temporary_bytes(const struct planning *planning, uint64_t read_bytes, uint64_t skipped_bytes)
{
    const struct plan_facts *facts = planning->facts;
    bool converts = planning->mapping->n_operations > 0;
    if (facts->source.lands_in_place && facts->device.direct_segments && !converts) /* what is skipped may be kept */
        return skipped_bytes == 0 ? 0 : read_bytes < facts->extent_cache_bytes ? read_bytes : facts->extent_cache_bytes;
    bool in_place = facts->device.direct_segments && facts->cached_share >= 1 && !converts;
    uint64_t wanted = in_place ? skipped_bytes : read_bytes;
    return wanted < facts->staging_budget_bytes ? wanted : facts->staging_budget_bytes;
}

/* Of what is copied, or converted, after it was read. */
static double copied_share(const struct planning *planning)
{
    const struct plan_facts *facts = planning->facts;
    if (planning->mapping->n_operations)
        return 1;
    if (facts->source.lands_in_place && facts->device.direct_segments)
        return 0;
    return facts->cached_share >= 1 ? 0 : facts->cached_share > 0 ? 1 - facts->cached_share : 1;
}

void candidate_measure(const struct planning *planning, struct proposal *proposal)
{
    struct candidate *candidate = &proposal->candidate;
    struct step_totals totals = steps_measure(planning->mapping, proposal->rule);
    candidate->requested_bytes = planning->mapping->view_bytes;
    candidate->requests = totals.requests;
    candidate->read_bytes = totals.read_bytes;
    if (candidate->unique_source_bytes == 0)
        candidate->unique_source_bytes = totals.read_bytes;
    uint64_t skipped = candidate->read_bytes - candidate->unique_source_bytes;
    candidate->peak_temporary_bytes = peak_temporary_bytes(planning, candidate->read_bytes, skipped);
    struct cost_work work = {
        .requests = candidate->requests,
        .read_bytes = candidate->read_bytes,
        .skipped_bytes = skipped,
        .copied_bytes = (uint64_t)((double)candidate->requested_bytes * copied_share(planning)),
        .copied_rows = planning->n_rows > candidate->requests ? planning->n_rows - candidate->requests : 0,
        .fresh_bytes = planning->mapping->has_targets ? planning->mapping->view_bytes : planning->mapping->replica_bytes,
        .cached_share = planning->facts->cached_share,
    };
    candidate->estimated_ms = cost_estimate_ms(planning->facts->costs, &work);
}

void candidate_judge(struct candidate *candidate, struct reason reason)
{
    candidate->eligible = reason.kind == REASON_ELIGIBLE || reason.kind == REASON_EXACT_GENERIC_FALLBACK;
    candidate->reason = reason;
}
