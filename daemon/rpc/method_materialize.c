/* Materialize: accepted -> progress, coalesced -> result with layout and one hand-off token. Without a token when memory of
 * the client was filled: there is nothing to hand off. */
#include <stdlib.h>

#include "base/memory.h"
#include "daemon.h"
#include "rpc/codec.h"
#include "rpc/methods.h"

struct materialize {
    struct rpc_call *call;
    struct daemon *daemon;
    struct ticket *ticket;
    bool wants_names;   /* the request had no view */
    struct arena arena; /* of the answers */
};

static void send(struct materialize *m, Tensorcast__Daemon__V1__MaterializeEvent *event)
{
    rpc_call_send(m->call, &event->base);
}

static void on_planned(void *data, const struct ticket *ticket)
{
    struct materialize *m = data;
    Tensorcast__Daemon__V1__MaterializeEvent event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__Accepted accepted = TENSORCAST__DAEMON__V1__ACCEPTED__INIT;
    accepted.plan = codec_report(ticket, &m->arena);
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_ACCEPTED;
    event.accepted = &accepted;
    send(m, &event);
}

static void on_progress(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes, double eta_ms)
{
    struct materialize *m = data;
    Tensorcast__Daemon__V1__MaterializeEvent event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
    if (!rpc_call_idle(m->call))
        return; /* a slow reader gets the newest numbers, later */
    progress.stage = (char *)stage;
    progress.done_bytes = done_bytes;
    progress.total_bytes = total_bytes;
    progress.eta_ms = eta_ms;
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_PROGRESS;
    event.progress = &progress;
    send(m, &event);
}

static int send_result(struct materialize *m, struct error *error)
{
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct replica *replica = m->ticket->replica;
    Tensorcast__Daemon__V1__MaterializeEvent event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__LoadResult result = TENSORCAST__DAEMON__V1__LOAD_RESULT__INIT;
    bool is_ours = !replica->segment->region;
    if (rpc_call_is_left(m->call)) /* its tokens were revoked when it went: one more would pin the replica */
        return fail(error, ERROR_CANCELLED, "CLIENT_LEFT", "the client disconnected");
    if (is_ours &&
        handoff_grant(m->daemon->handoff, replica, rpc_call_uid(m->call), rpc_call_connection(m->call), token, error) != 0)
        return -1;
    result.report = codec_report(m->ticket, &m->arena);
    result.layout = codec_layout(replica->mapping, m->wants_names, &m->arena);
    result.handoff_token.data = token;
    result.handoff_token.len = is_ours ? sizeof token : 0;
    result.handoff_socket = (char *)m->daemon->config->server.handoff_socket_path;
    result.device = result.report->device;
    result.memory_bytes = is_ours ? replica->segment->allocated_bytes : 0;
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT;
    event.result = &result;
    send(m, &event);
    return 0;
}

static void on_done(void *data, struct ticket *ticket, const struct error *error)
{
    struct materialize *m = data;
    struct error own;
    if (!error && send_result(m, &own) != 0)
        error = &own;
    if (error)
        rpc_call_fail(m->call, error);
    else
        rpc_call_end(m->call);
    ticket_destroy(ticket);
    arena_fini(&m->arena);
    free(m);
}

static void on_cancel(void *data)
{
    struct materialize *m = data;
    ticket_cancel(m->ticket);
}

void method_materialize(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    static const struct ticket_events events = {.planned = on_planned, .progress = on_progress, .done = on_done};
    const Tensorcast__Daemon__V1__LoadRequest *load = ((const Tensorcast__Daemon__V1__MaterializeRequest *)request)->load;
    struct daemon *daemon = context;
    struct error error;
    struct ticket *ticket = ticket_create(daemon->loads);
    if (codec_load_request(load, &ticket->arena, &ticket->request, &error) != 0 ||
        (load->region.len && handoff_take_region(daemon->handoff, load->region.data, load->region.len, rpc_call_uid(call),
                                                 &ticket->region, &error) != 0)) {
        rpc_call_fail(call, &error);
        ticket_destroy(ticket);
        return;
    }
    struct materialize *m = memory_alloc(sizeof *m);
    *m = (struct materialize){.call = call, .daemon = daemon, .ticket = ticket, .wants_names = load->view == NULL};
    rpc_call_on_cancel(call, on_cancel, m);
    ticket_submit(ticket, GOAL_REPLICA, &events, m);
}
