/* The facade: survey the mapping, let the three candidates speak, select one, write down its steps.
 *
 * Selection, in this order: a collective that the request insists on; the executor that the request, or else the
 * configuration, prefers; AUTO, which takes the collective when the source is proven to be shared, else local batching
 * unless it is refused or its cost gate says that reading exactly is cheaper; then the collective, then generic. A
 * preference that cannot be met is not an error: the reason says so and names what runs instead. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/candidate.h"
#include "plan/remote.h"

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

static void choose_local(struct plan *plan)
{
    const struct candidate *local = &plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL];
    if (local->eligible)
        select_executor(plan, EXECUTOR_TENSOR_BATCHED_LOCAL, reason_of(REASON_PREFERENCE_LOCAL));
    else
        select_executor(plan, EXECUTOR_GENERIC_BYTE_RANGE, reason_with(REASON_LOCAL_UNAVAILABLE, "%s", local->reason.text));
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
    if (planning->spec->policy.collective == COLLECTIVE_REQUIRED) { /* its eligibility was checked */
        select_executor(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, reason_of(REASON_COLLECTIVE_REQUIRED));
        return;
    }
    switch (planning->spec->policy.executor) {
    case EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE:
        select_executor(plan, EXECUTOR_GENERIC_BYTE_RANGE, reason_of(REASON_PREFERENCE_GENERIC));
        break;
    case EXECUTOR_PREFERENCE_TENSOR_BATCHED_LOCAL:
        choose_local(plan);
        break;
    case EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE:
        choose_collective(plan, gate);
        break;
    case EXECUTOR_PREFERENCE_AUTO:
        choose_auto(plan, planning, gate);
        break;
    }
}

static int check_required_collective(const struct planning *planning, const struct candidate *collective,
                                     struct error *error)
{
    if (planning->spec->policy.collective != COLLECTIVE_REQUIRED || collective->eligible)
        return 0;
    enum error_code code = ERROR_FAILED_PRECONDITION;
    if (collective->reason.kind == REASON_GROUP_ASSEMBLE_TIMEOUT)
        code = ERROR_DEADLINE_EXCEEDED;
    else if (collective->reason.kind == REASON_JOINT_PLAN_MEMORY)
        code = ERROR_RESOURCE_EXHAUSTED;
    fail(error, code, "COLLECTIVE_UNAVAILABLE",
         "a collective load is required, but owner_file_collective cannot run: %s; ask for --collective auto to let another "
         "executor load the same bytes",
         collective->reason.text);
    return error_note(error, "skip_reason", "%s", collective->reason.text);
}

static void note_group(const struct execution_topology *topology, const struct plan_facts *facts, struct plan *plan)
{
    if (!topology->has_group)
        return;
    plan->group_id = arena_text(&plan->arena, topology->group_id, strlen(topology->group_id));
    plan->rank = topology->rank;
    plan->world_size = topology->world_size;
    plan->group = facts->group ? collective_plan_ref(facts->group) : NULL;
    if (facts->transport)
        plan->transport = *facts->transport;
}

static uint64_t choose_merge_gap(const struct plan_facts *facts)
{
    if (!facts->source.reads_are_requests)
        return cost_merge_gap_bytes(facts->costs, facts->cached_share);
    return facts->strategy->remote_fine_slices ? 0 : remote_merge_gap_bytes(&facts->speed);
}

/* Elements that lie side by side in the file are turned many at a time. */
static uint64_t count_rows(const struct transfer *transfer)
{
    bool is_turned = transfer->n_rows > 1 && transfer->src_stride == transfer->row_bytes && transfer->row_bytes <= 8;
    return is_turned ? transfer->n_rows / TURNED_AT_ONCE + 1 : transfer->n_rows;
}

static struct planning survey(const struct mapping *mapping, const struct load_spec *spec, const struct plan_facts *facts,
                              struct plan *plan)
{
    struct planning planning = {.mapping = mapping, .spec = spec, .facts = facts};
    plan->merge_gap_bytes = planning.merge_gap_bytes = choose_merge_gap(facts);
    for (size_t i = 0; i < mapping->n_transfers; i++)
        planning.n_rows += count_rows(&mapping->transfers[i]);
    for (size_t i = 0; i < mapping->n_tensors; i++)
        plan->n_jobs[mapping->tensors[i].job]++;
    note_group(&spec->topology, facts, plan);
    return planning;
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
    struct planning planning = survey(mapping, spec, &complete, plan);
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
    plan->cached_share = facts->cached_share;
    plan->mapped = mapped_choose(mapping, facts->mapped, &costs, facts->cached_share,
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
