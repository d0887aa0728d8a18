/* Explain and Prewarm: unary requests that end with a report. Explain stops at the plan, Prewarm makes a replica that
 * nobody holds. */
#include <stdlib.h>

#include "api/api.h"
#include "api/codec.h"
#include "base/memory.h"
#include "plan/explain.h"

struct unary_load {
    struct rpc_call *call;
    struct ticket *ticket;
    void (*answer)(struct unary_load *load, const struct load_result *result, struct arena *arena);
};

static void answer_explain(struct unary_load *load, const struct load_result *result, struct arena *arena)
{
    Tensorcast__Daemon__V1__ExplainResponse response = TENSORCAST__DAEMON__V1__EXPLAIN_RESPONSE__INIT;
    struct plan_facts facts = ticket_facts(load->ticket);
    char *text = explain_text(result->plan, result->mapping, &facts);
    response.report = codec_report(result, arena);
    response.text = text;
    rpc_call_reply(load->call, &response.base);
    free(text);
}

static void answer_prewarm(struct unary_load *load, const struct load_result *result, struct arena *arena)
{
    Tensorcast__Daemon__V1__PrewarmResponse response = TENSORCAST__DAEMON__V1__PREWARM_RESPONSE__INIT;
    response.report = codec_report(result, arena);
    rpc_call_reply(load->call, &response.base);
}

static void on_resolved(void *data)
{
    struct unary_load *load = data;
    rpc_call_drop_request(load->call);
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct unary_load *load = data;
    struct arena arena = {0};
    if (error)
        rpc_call_fail_quietly(load->call, error);
    else
        load->answer(load, result, &arena);
    arena_fini(&arena);
    ticket_destroy(load->ticket);
    free(load);
}

static void on_cancel(void *data)
{
    struct unary_load *load = data;
    ticket_cancel(load->ticket);
}

static void submit_unary(struct rpc_call *call, const struct api *api, const Tensorcast__Daemon__V1__LoadRequest *wire,
                         enum load_goal goal,
                         void (*answer)(struct unary_load *load, const struct load_result *result, struct arena *arena))
{
    static const struct ticket_events events = {.resolved = on_resolved, .done = on_done};
    struct error error;
    struct ticket *ticket = api_ticket(api, call, wire, false, &error);
    if (!ticket) {
        rpc_call_fail(call, &error);
        return;
    }
    struct unary_load *load = memory_alloc(sizeof *load);
    *load = (struct unary_load){.call = call, .ticket = ticket, .answer = answer};
    rpc_call_on_cancel(call, on_cancel, load);
    ticket_submit(ticket, goal, &events, load);
}

void method_explain(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    submit_unary(call, context, ((const Tensorcast__Daemon__V1__ExplainRequest *)request)->load, GOAL_PLAN, answer_explain);
}

void method_prewarm(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    submit_unary(call, context, ((const Tensorcast__Daemon__V1__PrewarmRequest *)request)->load, GOAL_REPLICA,
                 answer_prewarm);
}
