/* The facade: survey the mapping, let the three candidates speak, select one, write down its steps.
 *
 * Selection, in this order: a collective that the request insists on; the executor that the request, or else the
 * configuration, prefers; AUTO, which takes the collective when the source is proven to be shared, else local batching
 * unless it is refused or its cost gate says that reading exactly is cheaper; then the collective, then generic. A
 * preference that cannot be met is not an error: the reason says so and names what runs instead. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/candidate.h"
#include "plan/cost.h"

enum { TURNED_AT_ONCE = 16 }; /* single elements, in the time of one row */

static void select_executor(struct plan *plan, enum executor executor, struct reason reason)
{
    plan->executor = executor;
    plan->selection = reason;
}

/* Why AUTO does not batch; REASON_ELIGIBLE = it does. */
static struct reason reject_local(const struct plan *plan, enum cost_gate gate)
{
    const struct candidate *generic = &plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE];
    const struct candidate *local = &plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL];
    if (local->eligible && gate == COST_GATE_SOURCE_BYTES && local->read_bytes > generic->read_bytes)
        return reason_of(REASON_LOCAL_SOURCE_BYTES);
    if (local->eligible && gate == COST_GATE_TIME && local->estimated_ms > generic->estimated_ms)
        return reason_of(REASON_LOCAL_TIME);
    return local->reason;
}

static void choose_auto(struct plan *plan, const struct planning *planning, enum cost_gate gate)
{
    const struct candidate *collective = &plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    struct reason rejection = reject_local(plan, gate);
    if (collective->eligible && candidate_collective_is_proven(planning))
        select_executor(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, reason_of(REASON_AUTO_COLLECTIVE));
    else if (rejection.kind == REASON_ELIGIBLE)
        select_executor(plan, EXECUTOR_TENSOR_BATCHED_LOCAL, reason_of(REASON_AUTO_LOCAL));
    else if (collective->eligible)
        select_executor(plan, EXECUTOR_OWNER_FILE_COLLECTIVE,
                        reason_with(REASON_AUTO_COLLECTIVE_AFTER_LOCAL, "%s", rejection.text));
    else
        select_executor(plan, EXECUTOR_GENERIC_BYTE_RANGE,
                        reason_with(REASON_AUTO_GENERIC, "%s,%s", rejection.text, collective->reason.text));
}

static void choose_collective(struct plan *plan, enum cost_gate gate)
{
    const struct candidate *collective = &plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE];
    if (collective->eligible) {
        select_executor(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, reason_of(REASON_PREFERENCE_COLLECTIVE));
        return;
    }
    bool local = reject_local(plan, gate).kind == REASON_ELIGIBLE;
    select_executor(
        plan, local ? EXECUTOR_TENSOR_BATCHED_LOCAL : EXECUTOR_GENERIC_BYTE_RANGE,
        reason_with(REASON_COLLECTIVE_UNAVAILABLE, "%s;fallback=%s", collective->reason.text, local ? "local" : "generic"));
}

static void choose_executor(struct plan *plan, const struct planning *planning)
{
    enum cost_gate gate = planning->facts->strategy->cost_gate;
    const struct candidate *local = &plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL];
    if (planning->spec->policy.collective == COLLECTIVE_REQUIRED) { /* its eligibility was checked */
        select_executor(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, reason_of(REASON_COLLECTIVE_REQUIRED));
        return;
    }
    switch (planning->spec->policy.executor) {
    case EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE:
        select_executor(plan, EXECUTOR_GENERIC_BYTE_RANGE, reason_of(REASON_PREFERENCE_GENERIC));
        break;
    case EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL:
        if (local->eligible)
            select_executor(plan, EXECUTOR_TENSOR_BATCHED_LOCAL, reason_of(REASON_PREFERENCE_LOCAL));
        else
            select_executor(plan, EXECUTOR_GENERIC_BYTE_RANGE,
                            reason_with(REASON_LOCAL_UNAVAILABLE, "%s", local->reason.text));
        break;
    case EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE:
        choose_collective(plan, gate);
        break;
    case EXECUTOR_PREFERENCE_AUTO:
        choose_auto(plan, planning, gate);
        break;
    }
}

/* Of what a group does that has ranks on other hosts. */
static void tell_elsewhere(struct plan *plan)
{
    uint32_t n = plan->group ? plan->group->world_size - plan->group->n_here : 0;
    size_t used = strlen(plan->selection.text);
    if (n && plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE)
        snprintf(plan->selection.text + used, sizeof plan->selection.text - used, ";on_other_hosts=%" PRIu32, n);
}

static int check_required_collective(const struct planning *planning, const struct candidate *collective,
                                     struct error *error)
{
    if (planning->spec->policy.collective != COLLECTIVE_REQUIRED || collective->eligible)
        return 0;
    enum error_code code = ERROR_FAILED_PRECONDITION;
    if (collective->reason.kind == REASON_GROUP_ASSEMBLE_TIMEOUT)
        code = ERROR_DEADLINE_EXCEEDED;
    else if (collective->reason.kind == REASON_GROUP_HOSTS_AWAY)
        code = ERROR_UNAVAILABLE;
    else if (collective->reason.kind == REASON_JOINT_PLAN_MEMORY)
        code = ERROR_RESOURCE_EXHAUSTED;
    fail(error, code, "COLLECTIVE_UNAVAILABLE",
         "a collective load is required, but owner_file_collective cannot run: %s; ask for --collective auto to let another "
         "executor load the same bytes",
         collective->reason.text);
    return error_note(error, "skip_reason", "%s", collective->reason.text);
}

/* With rates of the source as they are estimated for this load: learned, or assumed. */
static struct hosts_choice choose_hosts(const struct plan *plan, const struct planning *planning)
{
    const struct plan_facts *facts = planning->facts;
    const struct candidate *chosen = &plan->candidates[plan->executor];
    const struct artifact *artifact = planning->mapping->artifact;
    const struct collective_numbers *group = plan->group ? &plan->group->numbers : NULL;
    bool is_joint =
        group && plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE; /* one rank reads a part for all of this host */
    struct hosts_facts hosts = facts->hosts;
    hosts.artifact_bytes = artifact->stored ? artifact->stored->total_bytes : artifact->total_bytes;
    hosts.needed_bytes = is_joint ? group->unique_source_bytes + group->residual_bytes : chosen->unique_source_bytes;
    hosts.read_bytes = is_joint ? hosts.needed_bytes : chosen->read_bytes;
    hosts.requests_ns = (double)chosen->requests * facts->costs->uncached.request_ns * (1 - facts->cached_share);
    hosts.cached_share = facts->cached_share;
    hosts.source = transport_choice_rates(facts).source;
    hosts.is_source_measured = facts->source.tells_speed ? facts->speed.bytes_per_s > 0 : facts->costs->uncached.samples > 0;
    return hosts_choose(&hosts);
}

struct plan *plan_build(const struct mapping *mapping, const struct load_spec *spec, const struct plan_facts *facts,
                        struct error *error)
{
    struct plan *plan = memory_alloc(sizeof *plan);
    arena_init(&plan->arena, 0);
    struct cost_constants costs = *facts->costs;
    struct plan_facts complete = *facts;
    complete.costs = &costs;
    if (facts->source.tells_speed)
        remote_set_costs(&facts->source, &facts->speed, &costs);
    struct planning planning = {.mapping = mapping, .spec = spec, .facts = &complete};
    planning.merge_gap_bytes = !facts->source.reads_are_requests     ? cost_merge_gap_bytes(&costs, facts->cached_share)
                               : facts->strategy->remote_fine_slices ? 0
                                                                     : remote_merge_gap_bytes(&facts->speed);
    plan->merge_gap_bytes = planning.merge_gap_bytes;
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        /* elements that lie side by side in the file are turned many at a time */
        bool is_turned = transfer->n_rows > 1 && transfer->src_stride == transfer->row_bytes && transfer->row_bytes <= 8;
        planning.n_rows += is_turned ? transfer->n_rows / TURNED_AT_ONCE + 1 : transfer->n_rows;
    }
    for (size_t i = 0; i < mapping->n_tensors; i++)
        plan->n_jobs[mapping->tensors[i].job]++;
    if (spec->topology.has_group) {
        plan->group_id = arena_text(&plan->arena, spec->topology.group_id, strlen(spec->topology.group_id));
        plan->rank = spec->topology.rank;
        plan->world_size = spec->topology.world_size;
        plan->group = complete.group ? collective_plan_ref(complete.group) : NULL;
        if (complete.transport)
            plan->transport = *complete.transport;
    }
    struct proposal proposals[EXECUTOR_COUNT];
    struct proposal *generic = &proposals[EXECUTOR_GENERIC_BYTE_RANGE];
    candidate_generic_build(&planning, generic);
    candidate_local_build(&planning, generic, &proposals[EXECUTOR_TENSOR_BATCHED_LOCAL]);
    candidate_collective_build(&planning, generic, &proposals[EXECUTOR_OWNER_FILE_COLLECTIVE]);
    for (size_t i = 0; i < EXECUTOR_COUNT; i++)
        plan->candidates[i] = proposals[i].candidate;
    if (check_required_collective(&planning, &plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE], error)) {
        plan_destroy(plan);
        return NULL;
    }
    choose_executor(plan, &planning);
    plan->hosts = choose_hosts(plan, &planning);
    tell_elsewhere(plan);
    plan->cached_share = facts->cached_share;
    plan->mapped = candidate_mapped(mapping, facts->mapped, &costs, facts->cached_share,
                                    plan->candidates[plan->executor].estimated_ms, &plan->arena);
    int failed = plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE && plan->group
                     ? collective_plan_steps(plan->group, mapping, plan, error)
                     : steps_build(mapping, proposals[plan->executor].rule, plan, error);
    if (!failed)
        return plan;
    plan_destroy(plan);
    return NULL;
}

void plan_destroy(struct plan *plan)
{
    if (!plan)
        return;
    collective_plan_unref(plan->group);
    arena_fini(&plan->arena);
    free(plan);
}
