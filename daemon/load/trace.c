#include "load/trace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/redact.h"

const char *const trace_kind_names[TRACE_KINDS] = {
    [TRACE_QUEUE] = "queue",       [TRACE_RESOLVE] = "resolve", [TRACE_PLAN] = "plan",     [TRACE_GROUP] = "group",
    [TRACE_ALLOCATE] = "allocate", [TRACE_EXECUTE] = "execute", [TRACE_COMMIT] = "commit", [TRACE_HANDOFF] = "handoff"};
const char *const trace_origin_names[] = {
    [LOAD_OWN] = "read", [LOAD_JOINED] = "joined", [LOAD_FROM_REPLICA] = "resident", [LOAD_MAPPED] = "mapped"};

struct trace *trace_create(void)
{
    struct trace *trace = memory_alloc(sizeof *trace);
    trace->facts.executor = trace->facts.memory = trace->facts.verified = "";
    return trace;
}

void trace_destroy(struct trace *trace)
{
    if (!trace)
        return;
    lanes_unref(trace->lanes);
    free(trace->facts.artifact);
    free(trace->facts.group_id);
    free(trace);
}

void trace_enter(struct trace *trace, enum trace_kind kind, uint64_t begin_ns)
{
    struct trace_step *last = trace->n_steps ? &trace->steps[trace->n_steps - 1] : NULL;
    if (!last) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        trace->begin_unix_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    if (last && last->kind == kind)
        return;
    if (last && begin_ns <= last->begin_ns) /* nothing of that stage is left */
        last->kind = kind;
    else if (trace->n_steps < TRACE_MAX_STAGES)
        trace->steps[trace->n_steps++] = (struct trace_step){kind, begin_ns};
}

void trace_add_run(struct trace *trace, const struct run_spent *spent, struct lanes *lanes)
{
    for (int i = 0; i < CAUSES; i++)
        trace->spent.ns[i] += spent->ns[i];
    trace->spent.report = spent->report;
    if (lanes)
        lanes_ref(lanes);
    lanes_unref(trace->lanes);
    trace->lanes = lanes;
}

void trace_finish(struct trace *trace, const struct load_result *result, const struct error *error)
{
    const struct execution_topology *topology = &result->spec->topology;
    const struct mapping *mapping = result->mapping;
    struct trace_facts *facts = &trace->facts;
    trace->end_ns = trace->steps[0].begin_ns + result->times.total_ns;
    memcpy(facts->load_id, result->load_id, sizeof facts->load_id);
    facts->artifact = redact_copy(mapping ? mapping->artifact->reference : result->artifact ? result->artifact : "");
    if (topology->has_group) {
        facts->group_id = memory_copy_text(topology->group_id ? topology->group_id : "");
        facts->rank = topology->rank;
        facts->world_size = topology->world_size;
    }
    facts->uid = result->uid;
    facts->pid = result->pid;
    facts->code = error ? error->code : ERROR_OK;
    facts->origin = result->origin;
    if (mapping) {
        const struct source *source = mapping->artifact->source;
        facts->view_bytes = mapping->view_bytes;
        facts->n_tensors = mapping->n_tensors;
        facts->n_files = source->n_files;
        facts->is_remote = source->caps.reads_are_requests;
        facts->reads_direct = source->caps.direct_reads;
    }
    facts->has_plan = mapping && result->plan;
    if (facts->has_plan)
        facts->executor = executor_names[result->plan->executor];
    if (result->replica && !error) {
        facts->memory = replica_memory_name(result->replica);
        facts->verified = verified_name(result->replica->verdict.status);
    }
}

void trace_hand_off(struct trace *trace)
{
    trace_enter(trace, TRACE_HANDOFF, trace->end_ns);
    trace->end_ns = clock_now_ns();
}

uint64_t trace_begin_ns(const struct trace *trace)
{
    return trace->steps[0].begin_ns;
}

uint64_t trace_step_ns(const struct trace *trace, size_t step)
{
    uint64_t end_ns = step + 1 < trace->n_steps ? trace->steps[step + 1].begin_ns : trace->end_ns;
    return end_ns > trace->steps[step].begin_ns ? end_ns - trace->steps[step].begin_ns : 0;
}

uint64_t trace_total_ns(const struct trace *trace)
{
    return trace->end_ns - trace_begin_ns(trace);
}

/* --- the last ones -------------------------------------------------------------------------------------------------- */

void traces_keep(struct traces *traces, struct trace *trace)
{
    trace_destroy(traces->ring[traces->next]);
    traces->ring[traces->next] = trace;
    traces->next = (traces->next + 1) % TRACES_KEPT;
    traces->n += traces->n < TRACES_KEPT;
}

const struct trace *traces_get(const struct traces *traces, size_t i)
{
    return traces->ring[(traces->next + TRACES_KEPT - 1 - i) % TRACES_KEPT];
}

void traces_fini(struct traces *traces)
{
    for (size_t i = 0; i < TRACES_KEPT; i++)
        trace_destroy(traces->ring[i]);
    *traces = (struct traces){.n = 0};
}

const struct trace *traces_find(const struct traces *traces, const char *load_id)
{
    for (size_t i = 0; i < traces->n; i++)
        if (strcmp(traces_get(traces, i)->facts.load_id, load_id) == 0)
            return traces_get(traces, i);
    return NULL;
}

bool trace_is_beside(const struct trace *trace, const struct trace *other)
{
    const struct trace_facts *one = &trace->facts, *two = &other->facts;
    return one->group_id && two->group_id && strcmp(one->group_id, two->group_id) == 0 && one->uid == two->uid &&
           one->world_size == two->world_size && one->rank != two->rank && trace_begin_ns(other) < trace->end_ns &&
           trace_begin_ns(trace) < other->end_ns;
}
