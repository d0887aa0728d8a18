/* Tensor-batched local: few large requests. Whole tensors and outer slices are direct segments in file order, joined over
 * gaps that cost less than a request; the rows of an inner slice are read as one hull, from the first to the last wanted
 * byte, and gathered from bounded staging.
 *
 * Pure batching reads the hull of every inner slice, however far its rows lie apart; the cost gate of the facade compares
 * that with the exact way. One such tensor must not spoil a view of hundreds, so with allow_mixed_execution each run gets
 * what is quicker for it: the hull when its rows are nearer than the merge gap, else its exact rows. Costs are linear, so
 * the sum of the best choices is the best choice, and a mixed plan is never slower than the better of both ways. When
 * nothing at all would be merged, the mixed plan is the generic plan under another name; then the candidate stays what
 * its name says, and the gate decides.
 *
 * Boxes of any rank arrive as runs of rows, so no shape is refused. With cost_gate source_bytes the operator counts bytes,
 * not requests: direct segments are then joined only where they touch, and only inner slices amplify. */
#include "plan/candidate.h"

/* Hulls are read in row blocks; with less staging than this a block is a handful of pages and batching is pointless. */
enum { LEAST_STAGING_BYTES = 64 << 10, SHORTER_GAPS = 8, LEAST_ROW_BYTES = 4096 };

static struct step_rule batching_rule(const struct planning *planning)
{
    uint64_t gap = planning->merge_gap_bytes > 1 ? planning->merge_gap_bytes : 1;
    bool count_bytes = planning->facts->strategy->cost_gate == COST_GATE_SOURCE_BYTES;
    return (struct step_rule){.join_below_bytes = count_bytes ? 1 : gap, .hull_below_bytes = UINT64_MAX};
}

/* Rows from anywhere, of which a shuffled tensor consists, would be read with a third of other bytes for a few per cent of
 * the time, or with several times their bytes for half of it. Of a derived tensor no more than a tenth of other bytes is
 * read: gaps are left out, the longest first. Time is an estimate, bytes are taken from all who use the disk. But rows that
 * are shorter than a block of the disk cost it a block each: there more than a tenth has to save a fifth of the time. */
static void limit_over_read(const struct planning *planning, struct proposal *proposal)
{
    uint64_t unique_bytes = proposal->candidate.unique_source_bytes, enough = unique_bytes + unique_bytes / 10;
    struct proposal limited = *proposal;
    uint64_t gap = planning->merge_gap_bytes;
    if (!planning->mapping->artifact->derivation || proposal->candidate.read_bytes <= enough)
        return;
    for (int tries = 0; tries < SHORTER_GAPS && limited.candidate.read_bytes > enough; tries++) {
        gap = tries < SHORTER_GAPS - 1 ? gap / 4 * 3 : 1;
        gap = gap > 1 ? gap : 1;
        limited.rule.hull_below_bytes = gap;
        limited.rule.join_below_bytes = gap < proposal->rule.join_below_bytes ? gap : proposal->rule.join_below_bytes;
        candidate_measure(planning, &limited);
    }
    bool has_long_rows = limited.candidate.read_bytes / limited.candidate.requests >= LEAST_ROW_BYTES;
    if (has_long_rows || limited.candidate.estimated_ms <= proposal->candidate.estimated_ms * 1.25)
        *proposal = limited;
}

/* True when leaving far rows exact still saves requests against reading everything exactly. */
static bool measure_mixed(const struct planning *planning, const struct proposal *generic, struct proposal *proposal)
{
    struct proposal mixed = *proposal;
    mixed.rule.hull_below_bytes = planning->merge_gap_bytes > 1 ? planning->merge_gap_bytes : 1;
    candidate_measure(planning, &mixed);
    if (mixed.candidate.requests >= generic->candidate.requests)
        return false;
    *proposal = mixed;
    limit_over_read(planning, proposal);
    return true;
}

static enum reason_kind refuse_local(const struct planning *planning, const struct candidate *candidate)
{
    if (planning->facts->source.reads_are_requests)
        return REASON_SOURCE_NOT_DISK;
    if (!planning->facts->device.direct_segments && !planning->facts->device.queued_copies)
        return REASON_LOCAL_NO_SEGMENTS;
    if (!planning->facts->strategy->enable_local_batched_disk_load)
        return REASON_LOCAL_STRATEGY_DISABLED;
    if (candidate->peak_temporary_bytes && planning->facts->staging_budget_bytes < LEAST_STAGING_BYTES)
        return REASON_LOCAL_PEAK_BUDGET;
    return REASON_ELIGIBLE;
}

void candidate_local_build(const struct planning *planning, const struct proposal *generic, struct proposal *proposal)
{
    *proposal = (struct proposal){
        .candidate = {.executor = EXECUTOR_TENSOR_BATCHED_LOCAL,
                      .unique_source_bytes = generic->candidate.unique_source_bytes},
        .rule = batching_rule(planning),
    };
    bool mixed = planning->facts->strategy->allow_mixed_execution && measure_mixed(planning, generic, proposal);
    if (!mixed)
        candidate_measure(planning, proposal);
    candidate_judge(&proposal->candidate, reason_of(refuse_local(planning, &proposal->candidate)));
}
