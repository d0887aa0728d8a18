/* The facade: survey the mapping, let the three candidates speak, select one, write down its steps.
 *
 * Selection, in this order: a collective that the request insists on; the executor that the request, or else the
 * configuration, prefers; AUTO, which takes the collective when the source is proven to be shared, else local batching
 * unless it is refused or its cost gate says that reading exactly is cheaper; then the collective, then generic. A
 * preference that cannot be met is not an error: the reason says so and names what runs instead. */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plan/candidate.h"
#include "plan/remote.h"

const char *executor_name(enum executor executor)
{
    static const char *const names[EXECUTOR_COUNT] = {
        [EXECUTOR_GENERIC_BYTE_RANGE] = "generic_byte_range",
        [EXECUTOR_TENSOR_BATCHED_LOCAL] = "tensor_batched_local",
        [EXECUTOR_OWNER_FILE_COLLECTIVE] = "owner_file_collective",
    };
    return names[executor];
}

static void choose(struct plan *plan, enum executor executor, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void choose(struct plan *plan, enum executor executor, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(plan->selection_reason, sizeof plan->selection_reason, format, values);
    va_end(values);
    plan->executor = executor;
}

/* Why AUTO does not batch, or NULL. */
static const char *local_rejection(const struct plan *plan, enum cost_gate gate)
{
    const struct candidate *generic = &plan->candidates[EXECUTOR_GENERIC_BYTE_RANGE];
    const struct candidate *local = &plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL];
    if (!local->eligible)
        return local->reason;
    if (gate == COST_GATE_SOURCE_BYTES)
        return local->read_bytes > generic->read_bytes ? "local_source_amplification_exceeds_generic" : NULL;
    return local->estimated_ms > generic->estimated_ms ? "local_estimated_time_exceeds_generic" : NULL;
}

static void choose_auto(struct plan *plan, const struct planning *planning, enum cost_gate gate)
{
    const char *rejection = local_rejection(plan, gate);
    bool collective = plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible;
    if (collective && candidate_collective_is_proven(planning))
        choose(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, "auto_prefers_owner_file_collective_shared_source");
    else if (collective && rejection)
        choose(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, "auto_collective_after_local_rejection:%s", rejection);
    else if (rejection)
        choose(plan, EXECUTOR_GENERIC_BYTE_RANGE, "auto_generic:%s,%s", rejection,
               plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason);
    else
        choose(plan, EXECUTOR_TENSOR_BATCHED_LOCAL, "auto_prefers_local_batched");
}

static void choose_local(struct plan *plan)
{
    const struct candidate *local = &plan->candidates[EXECUTOR_TENSOR_BATCHED_LOCAL];
    if (local->eligible)
        choose(plan, EXECUTOR_TENSOR_BATCHED_LOCAL, "executor_preference_tensor_aware_local");
    else
        choose(plan, EXECUTOR_GENERIC_BYTE_RANGE, "tensor_aware_local_unavailable:%s", local->reason);
}

static void choose_collective(struct plan *plan, enum cost_gate gate)
{
    if (plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible) {
        choose(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, "executor_preference_owner_file_collective");
        return;
    }
    bool local = local_rejection(plan, gate) == NULL;
    choose(plan, local ? EXECUTOR_TENSOR_BATCHED_LOCAL : EXECUTOR_GENERIC_BYTE_RANGE,
           "owner_file_collective_unavailable:%s;fallback=%s", plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason,
           local ? "local" : "generic");
}

static void choose_executor(struct plan *plan, const struct planning *planning)
{
    enum cost_gate gate = planning->facts->strategy->cost_gate;
    if (planning->spec->policy.collective == COLLECTIVE_REQUIRED) { /* its eligibility was checked */
        choose(plan, EXECUTOR_OWNER_FILE_COLLECTIVE, "collective_required");
        return;
    }
    switch (planning->spec->policy.executor) {
    case EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE:
        choose(plan, EXECUTOR_GENERIC_BYTE_RANGE, "executor_preference_generic");
        break;
    case EXECUTOR_PREFERENCE_TENSOR_AWARE_LOCAL:
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
    bool late = strncmp(collective->reason, PLAN_GROUP_TIMEOUT, strlen(PLAN_GROUP_TIMEOUT)) == 0;
    fail(error, late ? ERROR_DEADLINE_EXCEEDED : ERROR_FAILED_PRECONDITION, "COLLECTIVE_UNAVAILABLE",
         "a collective load is required, but owner_file_collective cannot run: %s; ask for --collective auto to let another "
         "executor load the same bytes",
         collective->reason);
    return error_note(error, "skip_reason", "%s", collective->reason);
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
    if (!facts->source.remote)
        return cost_merge_gap_bytes(facts->costs, facts->cached_share);
    return facts->strategy->remote_fine_slices ? 0 : remote_merge_gap_bytes(&facts->speed);
}

static struct planning survey(const struct mapping *mapping, const struct load_spec *spec, const struct plan_facts *facts,
                              struct plan *plan)
{
    struct planning planning = {.mapping = mapping, .spec = spec, .facts = facts};
    plan->merge_gap_bytes = planning.merge_gap_bytes = choose_merge_gap(facts);
    for (size_t i = 0; i < mapping->n_transfers; i++)
        planning.n_rows += mapping->transfers[i].n_rows;
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
    if (facts->source.remote)
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
