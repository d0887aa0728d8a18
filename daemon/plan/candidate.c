/* The candidates of the facade: a step rule turned into requests, bytes, temporary memory and time; then what each one decides
 * for itself. Last the files themselves, which no executor reads. */
#include "plan/candidate.h"

#include <string.h>

#include "base/clock.h"

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

/* Generic byte-range: reads exactly what the view needs, row by row; only what is exactly adjacent in the file becomes one
 * request. It takes any view and any device, so it is the backstop of every plan.
 *
 * From a remote source a row by itself would cost a round trip, so there extents are joined over gaps that cost less than a
 * request, and cut where the engine cuts them: its numbers are the requests that will be made. */
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

void candidate_generic_build(const struct planning *planning, struct proposal *proposal)
{
    *proposal = (struct proposal){.candidate.executor = EXECUTOR_GENERIC_BYTE_RANGE, .rule = choose_rule(planning)};
    /* what is exactly needed, whatever is read */
    if (planning->facts->source.reads_are_requests)
        proposal->candidate.unique_source_bytes = steps_measure(planning->mapping, STEP_RULE_EXACT).read_bytes;
    candidate_measure(planning, proposal);
    candidate_judge(&proposal->candidate,
                    reason_of(planning->facts->source.reads_are_requests ? REASON_ELIGIBLE : REASON_EXACT_GENERIC_FALLBACK));
}

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
/* Hulls are read in row blocks; with less staging than this a block is a handful of pages and batching is pointless. */
enum { LEAST_STAGING_BYTES = 64 << 10, SHORTER_GAPS = 8, LEAST_ROW_BYTES = 4096 };

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
    uint64_t gap = planning->merge_gap_bytes > 1 ? planning->merge_gap_bytes : 1;
    bool counts_bytes = planning->facts->strategy->cost_gate == COST_GATE_SOURCE_BYTES;
    *proposal = (struct proposal){
        .candidate = {.executor = EXECUTOR_TENSOR_BATCHED_LOCAL,
                      .unique_source_bytes = generic->candidate.unique_source_bytes},
        .rule = {.join_below_bytes = counts_bytes ? 1 : gap, .hull_below_bytes = UINT64_MAX},
    };
    bool mixed = planning->facts->strategy->allow_mixed_execution && measure_mixed(planning, generic, proposal);
    if (!mixed)
        candidate_measure(planning, proposal);
    candidate_judge(&proposal->candidate, reason_of(refuse_local(planning, &proposal->candidate)));
}

/* Owner-file collective: every rank of a group owns a share of the files; whatever several ranks need is read once and
 * passed on.
 *
 * It is judged twice. Before the group has assembled only what every rank can see for itself counts: policy, strategy,
 * topology. Those are equal in all ranks of a group, so either all of them wait for each other or none does. The
 * thresholds are judged on the joint plan, which is made of the ranks' real views; then the numbers are its numbers: this
 * rank reads what it owns, in so many batches. */
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
static uint64_t group_temporary_bytes(const struct plan_facts *facts)
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
    else if (group_temporary_bytes(planning->facts) > strategy->owner_file_collective_peak_bytes_budget)
        kind = REASON_COLLECTIVE_PEAK_BUDGET;
    else if (group->owner_skew > strategy->owner_file_collective_max_owner_skew_ratio)
        kind = REASON_OWNER_SKEW;
    else if (group->n_here == group->world_size && /* else it is not known what all ranks want */
             group->numbers.dedup_saving_bytes < strategy->owner_file_collective_min_dedup_saving_bytes)
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

static void take_numbers(const struct planning *planning, struct candidate *candidate)
{
    const struct collective_plan *group = planning->facts->group;
    uint32_t rank = planning->spec->topology.rank;
    if (!group)
        return;
    candidate->read_bytes = group->owners[rank].bytes;
    candidate->requests = group->owners[rank].n_batches;
    candidate->peak_temporary_bytes = group_temporary_bytes(planning->facts);
    /* one process reads the unique bytes once and copies what each further memory needs of them */
    uint64_t bytes = group->numbers.unique_source_bytes + group->numbers.residual_bytes;
    struct cost_work work = {.requests = group->n_pieces,
                             .read_bytes = bytes,
                             .copied_bytes = group->numbers.peer_transfer_bytes,
                             .fresh_bytes = bytes + group->numbers.peer_transfer_bytes,
                             .cached_share = planning->facts->cached_share};
    candidate->estimated_ms = cost_estimate_ms(planning->facts->costs, &work);
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

/* A page of a file costs its fault and, when it is not in the page cache, the device; whole pages, whatever of them is wanted.
 * So rows that are narrow and far apart may be cheaper to copy. */
/* The kernel maps this much around a page that is touched, if it is in the page cache (fault_around_bytes), and reads about as
 * much at once if it is not. */
static const struct step_rule around_a_fault = {.join_below_bytes = 64 << 10, .hull_below_bytes = 64 << 10};

/* Measured with views of cached files on two kinds of machines: 0.8 to 2 us for 64 KiB, and what a fault costs at least. */
static const double FAULT_NS = 500, FAULTED_BYTES_PER_NS = 40;

struct mapped_choice candidate_mapped(const struct mapping *mapping, const struct mapped_facts *facts,
                                      const struct cost_constants *costs, double cached_share, double copied_ms,
                                      struct arena *arena)
{
    struct mapped_choice choice = {.is_known = facts != NULL};
    if (!facts)
        return choice;
    choice.is_possible = facts->is_possible;
    choice.proof = facts->proof;
    choice.reason = facts->reason ? arena_text(arena, facts->reason, strlen(facts->reason)) : NULL;
    if (!choice.is_possible)
        return choice; /* it takes as long as the plan to look at every row */
    struct step_totals touched = steps_measure(mapping, around_a_fault);
    struct cost_work waiting = {.requests = touched.requests, .read_bytes = touched.read_bytes};
    double working_ms =
        ((double)touched.requests * FAULT_NS + (double)touched.read_bytes / FAULTED_BYTES_PER_NS) / NS_PER_MS;
    double waiting_ms = (1 - cached_share) * cost_estimate_ms(costs, &waiting);
    choice.estimated_ms = waiting_ms > working_ms ? waiting_ms : working_ms;
    choice.is_quicker = choice.estimated_ms <= copied_ms;
    return choice;
}
