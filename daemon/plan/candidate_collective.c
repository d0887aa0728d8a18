/* Owner-file collective: every rank of a group reads its share of the files once and passes the bytes on to its peers.
 *
 * The checks are those of the executor to come, in the order in which an operator would fix them; the last one is that
 * the executor itself does not exist in this build, so the candidate is always listed and never eligible. Its numbers are
 * those of one rank: tensors are read whole, each by one owner, in batches. No time is estimated without an executor to
 * measure. */
#include "plan/candidate.h"

#include "base/checked.h"

struct owner_work {
    uint64_t source_bytes;  /* whole tensors, all ranks together */
    uint64_t largest_bytes; /* one tensor */
    uint64_t peak_bytes;    /* batches in flight of one rank */
    uint64_t saved_bytes;   /* not read again by the other ranks */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return checked_mul(a, b, &product) ? product : UINT64_MAX;
}

static bool is_inner(enum job_kind job)
{
    return job == JOB_DIM1 || job == JOB_RECT2D;
}

static struct owner_work survey(const struct planning *planning)
{
    const struct materialization_strategy *strategy = planning->facts->strategy;
    struct owner_work work = {0};
    uint64_t repeated = 0;
    for (size_t i = 0; i < planning->mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &planning->mapping->tensors[i];
        if (tensor->job == JOB_EMPTY)
            continue;
        uint64_t bytes = tensor->record->bytes;
        uint64_t batch = is_inner(tensor->job) ? strategy->owner_file_collective_dim1_staging_bytes
                                               : strategy->owner_file_collective_batch_bytes;
        work.source_bytes += bytes;
        work.largest_bytes = bytes > work.largest_bytes ? bytes : work.largest_bytes;
        work.peak_bytes = least(bytes, batch) > work.peak_bytes ? least(bytes, batch) : work.peak_bytes;
        repeated += tensor->job == JOB_DIM0 ? 0 : bytes; /* outer slices of the ranks are disjoint anyway */
    }
    uint32_t world_size = planning->spec->topology.has_group ? planning->spec->topology.world_size : 1;
    work.peak_bytes = times(work.peak_bytes, strategy->owner_file_collective_max_inflight_batches);
    work.saved_bytes = times(repeated, world_size - 1);
    return work;
}

/* Largest share of an owner over the average one, when work is dealt out in tensors or batches, whichever is smaller.
 * What fits into one batch has nothing to balance. */
static double owner_skew(const struct planning *planning, const struct owner_work *work)
{
    uint64_t batch = planning->facts->strategy->owner_file_collective_batch_bytes;
    if (work->source_bytes <= batch)
        return 1;
    double average = (double)work->source_bytes / planning->spec->topology.world_size;
    double skew = (double)least(work->largest_bytes, batch) / average;
    return skew > 1 ? skew : 1;
}

static const char *topology_refusal(const struct planning *planning)
{
    const struct execution_topology *topology = &planning->spec->topology;
    bool proven = topology->source_locality == LOCALITY_SHARED_SOURCE || topology->source_sharing_domain;
    if (!topology->has_group)
        return "collective_group_missing";
    if (topology->source_locality == LOCALITY_HOST_LOCAL)
        return "source_locality_host_local";
    if (planning->facts->strategy->owner_file_collective_shared_fs_only && !proven)
        return "shared_source_unproven";
    return NULL;
}

static const char *threshold_refusal(const struct planning *planning, const struct owner_work *work)
{
    const struct materialization_strategy *strategy = planning->facts->strategy;
    if (work->peak_bytes > strategy->owner_file_collective_peak_bytes_budget)
        return "peak_budget_exceeded";
    if (owner_skew(planning, work) > strategy->owner_file_collective_max_owner_skew_ratio)
        return "owner_skew_threshold_exceeded";
    if (work->saved_bytes < strategy->owner_file_collective_min_dedup_saving_bytes)
        return "dedup_saving_below_threshold";
    return NULL;
}

static const char *refusal(const struct planning *planning, const struct owner_work *work)
{
    if (planning->spec->policy.collective == COLLECTIVE_DISABLED)
        return "collective_policy_disabled";
    if (!planning->facts->strategy->enable_owner_file_collective)
        return "strategy_disabled";
    const char *reason = topology_refusal(planning);
    if (!reason)
        reason = threshold_refusal(planning, work);
    return reason ? reason : "executor_not_available";
}

static uint64_t ceil_divide(uint64_t value, uint64_t by)
{
    return by ? value / by + (value % by != 0) : 0;
}

void candidate_collective_build(const struct planning *planning, const struct proposal *generic, struct proposal *proposal)
{
    struct owner_work work = survey(planning);
    *proposal = (struct proposal){.candidate = {.executor = EXECUTOR_OWNER_FILE_COLLECTIVE,
                                                .requested_bytes = planning->mapping->view_bytes,
                                                .unique_source_bytes = generic->candidate.unique_source_bytes}};
    struct candidate *candidate = &proposal->candidate;
    if (planning->spec->topology.has_group) {
        candidate->read_bytes = ceil_divide(work.source_bytes, planning->spec->topology.world_size);
        candidate->requests =
            ceil_divide(candidate->read_bytes, planning->facts->strategy->owner_file_collective_batch_bytes);
        candidate->peak_temporary_bytes = work.peak_bytes;
    }
    candidate_judge(candidate, false, refusal(planning, &work));
}
