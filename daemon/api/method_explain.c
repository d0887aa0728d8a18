/* Explain and Prewarm: unary requests that end with a report. Explain stops at the plan, Prewarm makes a replica that
 * nobody holds. */
#include <stdlib.h>

#include "api/api.h"
#include "api/codec.h"
#include "base/memory.h"
#include "plan/explain.h"

struct unary_load {
    struct rpc_call *call;
    const struct api *api;
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

static void end_load(struct unary_load *load, const struct error *error)
{
    struct arena arena = {0};
    if (error)
        rpc_call_fail_quietly(load->call, error);
    else
        load->answer(load, ticket_result(load->ticket), &arena);
    arena_fini(&arena);
    ticket_destroy(load->ticket);
    free(load);
}

static void on_warm(void *data)
{
    end_load(data, NULL);
}

/* Files that nobody takes: their pages are brought into the page cache, and locked there if the budget has room. False: there
 * is nothing to wait for. */
static bool warm_pages(struct unary_load *load, struct replica *replica)
{
    struct mapped_files *files = replica->files;
    const struct page_reading reading = {.loop = load->api->services.loop,
                                         .artifact = replica->mapping->artifact,
                                         .ranges = files->ranges,
                                         .uid = rpc_call_uid(load->call),
                                         .is_awaited = true,
                                         .lock_budget_bytes = load->api->services.config->memory.locked_pages_budget_bytes,
                                         .done = on_warm,
                                         .data = load};
    mapped_files_sent(files, files->view->n_files);
    if (rpc_call_is_left(load->call) || !files->ranges.n || replica_has_pages(replica->table, &replica->key))
        return false;
    files->ranges = (struct page_ranges){0};
    replica->reader = page_reader_start(&reading);
    return replica->reader != NULL;
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct unary_load *load = data;
    if (error || result->origin != LOAD_MAPPED || !warm_pages(load, result->replica))
        end_load(load, error);
}

/* Of pages that are being read the reader ends with the replica, which ends with the ticket. */
static void on_cancel(void *data)
{
    struct unary_load *load = data;
    struct error error;
    if (ticket_state(load->ticket) != TICKET_DONE) {
        ticket_cancel(load->ticket);
        return;
    }
    fail(&error, ERROR_CANCELLED, "CLIENT_LEFT", "the client cancelled, disconnected or passed its deadline");
    end_load(load, &error);
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
    *load = (struct unary_load){.call = call, .api = api, .ticket = ticket, .answer = answer};
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
