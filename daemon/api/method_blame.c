/* Blame: traces of the last loads. They are the loop's, so the answer is packed before it goes on. */
#include <stdlib.h>

#include "api/api.h"
#include "api/trace_fill.h"
#include "base/text.h"

typedef Tensorcast__Daemon__V1__BlameResponse blame_response;

/* A host may have hundreds of ranks, and a picture of so many is of no use. */
enum { BLAME_MAX_RANKS = 64 };

static int compare_totals(const void *a, const void *b)
{
    const Tensorcast__Daemon__V1__LoadTrace *one = *(Tensorcast__Daemon__V1__LoadTrace *const *)a;
    const Tensorcast__Daemon__V1__LoadTrace *other = *(Tensorcast__Daemon__V1__LoadTrace *const *)b;
    return (one->total_ms < other->total_ms) - (one->total_ms > other->total_ms);
}

static void list_all(blame_response *response, const struct traces *traces, struct arena *arena)
{
    response->loads = arena_array(arena, traces->n, sizeof *response->loads);
    for (size_t i = 0; i < traces->n; i++) {
        const struct trace *trace = traces_get(traces, i);
        response->loads[response->n_loads++] = trace_fill(trace, TRACE_PART_HEAD, trace_begin_ns(trace), arena);
    }
    if (response->n_loads > 0)
        qsort(response->loads, response->n_loads, sizeof *response->loads, compare_totals);
}

static bool has_rank(const blame_response *response, uint32_t rank)
{
    for (size_t i = 0; i < response->n_loads; i++)
        if (response->loads[i]->rank == rank)
            return true;
    return false;
}

/* Of the other ranks that were there at the same time the newest request each. */
static void tell_one(blame_response *response, const struct traces *traces, const struct trace *trace, struct arena *arena)
{
    uint64_t since_ns = trace_begin_ns(trace);
    response->loads = arena_array(arena, 1 + BLAME_MAX_RANKS, sizeof *response->loads);
    response->loads[response->n_loads++] = trace_fill(trace, TRACE_PART_LANES, since_ns, arena);
    for (size_t i = 0; i < traces->n && response->n_loads <= BLAME_MAX_RANKS; i++) {
        const struct trace *other = traces_get(traces, i);
        if (trace_is_beside(trace, other) && !has_rank(response, other->facts.rank))
            response->loads[response->n_loads++] = trace_fill(other, TRACE_PART_CHAIN, since_ns, arena);
    }
}

void method_blame(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    const struct api *api = context;
    const struct traces *traces = load_table_traces(api->loads);
    const char *load_id = ((const Tensorcast__Daemon__V1__BlameRequest *)request)->load_id;
    const struct trace *trace = *load_id ? traces_find(traces, load_id) : NULL;
    blame_response response = TENSORCAST__DAEMON__V1__BLAME_RESPONSE__INIT;
    struct arena arena;
    struct error error;
    if (*load_id && !trace) {
        fail(&error, ERROR_NOT_FOUND, "NO_SUCH_LOAD",
             "load %s is not kept: the daemon has the traces of the last %d loads that have ended; 'tensorcast blame' lists "
             "them",
             text_show(load_id), TRACES_KEPT);
        rpc_call_fail(call, &error);
        return;
    }
    arena_init(&arena, 0);
    response.kept = TRACES_KEPT;
    if (trace)
        tell_one(&response, traces, trace, &arena);
    else
        list_all(&response, traces, &arena);
    rpc_call_reply(call, &response.base);
    arena_fini(&arena);
}
