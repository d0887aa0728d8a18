/* Explain: a load that stops at its plan, and ends with a report. */
#include <stdlib.h>

#include "api/api.h"
#include "api/report_fill.h"
#include "api/api_job.h"
#include "base/memory.h"
#include "plan/explain.h"

struct explaining {
    struct rpc_call *call;
    struct ticket *ticket;
    struct open_call open;
};

static void on_resolved(void *data)
{
    const struct explaining *explaining = data;
    rpc_call_drop_request(explaining->call);
}

static void end_explaining(struct explaining *explaining, const struct error *error)
{
    if (error) {
        rpc_call_fail_quietly(explaining->call, error);
    } else {
        const struct load_result *result = ticket_result(explaining->ticket);
        Tensorcast__Daemon__V1__ExplainResponse response = TENSORCAST__DAEMON__V1__EXPLAIN_RESPONSE__INIT;
        struct plan_facts facts = ticket_facts(explaining->ticket);
        struct arena arena = {0};
        char *text = explain_text(result->plan, result->mapping, &facts);
        response.report = report_fill(result, &arena);
        response.report->load_id = "";
        response.text = text;
        rpc_call_reply(explaining->call, &response.base);
        arena_fini(&arena);
        free(text);
    }
    LIST_REMOVE(&explaining->open, in_list);
    ticket_destroy(explaining->ticket);
    free(explaining);
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    (void)result;
    end_explaining(data, error);
}

static struct load_info describe_explaining(void *data)
{
    return ticket_describe(((struct explaining *)data)->ticket);
}

static void on_cancel(void *data)
{
    ticket_cancel(((struct explaining *)data)->ticket);
}

void method_explain(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    static const struct ticket_events events = {.resolved = on_resolved, .done = on_done};
    struct error error;
    struct ticket *ticket =
        api_ticket(context, call, ((const Tensorcast__Daemon__V1__ExplainRequest *)request)->load, false, &error);
    if (!ticket) {
        rpc_call_fail(call, &error);
        return;
    }
    struct explaining *explaining = memory_alloc(sizeof *explaining);
    *explaining = (struct explaining){.call = call, .ticket = ticket};
    explaining->open = (struct open_call){.call = call, .describe = describe_explaining, .data = explaining};
    LIST_INSERT_HEAD(((const struct api *)context)->open_calls, &explaining->open, in_list);
    rpc_call_on_cancel(call, on_cancel, explaining);
    ticket_submit(ticket, GOAL_PLAN, &events, explaining);
}
