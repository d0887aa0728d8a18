/* Generic byte-range: reads exactly what the view needs, row by row; only what is exactly adjacent in the file becomes one
 * request. It takes any view and any device, so it is the backstop of every plan.
 *
 * From a remote source a row by itself would cost a round trip, so there extents are joined over gaps that cost less than a
 * request, and cut where the engine cuts them: its numbers are the requests that will be made. */
#include "plan/candidate.h"
#include "plan/remote.h"

static struct step_rule choose_rule(const struct planning *planning)
{
    const struct plan_facts *facts = planning->facts;
    if (!facts->source.reads_are_requests)
        return STEP_RULE_EXACT;
    uint64_t gap = planning->merge_gap_bytes > 1 ? planning->merge_gap_bytes : 1;
    uint64_t grid = facts->device.direct_segments ? remote_block_bytes(&facts->source)
                                                  : remote_window_bytes(&facts->source, facts->staging_budget_bytes);
    return (struct step_rule){.join_below_bytes = gap, .hull_below_bytes = gap, .grid_bytes = grid};
}

/* What is exactly needed, whatever is read. */
static uint64_t count_unique(const struct planning *planning)
{
    return steps_measure(planning->mapping, STEP_RULE_EXACT).read_bytes;
}

void candidate_generic_build(const struct planning *planning, struct proposal *proposal)
{
    *proposal = (struct proposal){.candidate.executor = EXECUTOR_GENERIC_BYTE_RANGE, .rule = choose_rule(planning)};
    if (planning->facts->source.reads_are_requests)
        proposal->candidate.unique_source_bytes = count_unique(planning);
    candidate_measure(planning, proposal);
    candidate_judge(&proposal->candidate,
                    reason_of(planning->facts->source.reads_are_requests ? REASON_ELIGIBLE : REASON_EXACT_GENERIC_FALLBACK));
}
