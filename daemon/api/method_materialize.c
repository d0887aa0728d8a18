/* Materialize: accepted -> progress, coalesced -> result with layout and one hand-off token. Without a token when memory of
 * the client was filled: there is nothing to hand off.
 *
 * The result of a large view is put together and packed on a helper: for 100,000 tensors that takes tens of milliseconds,
 * and the ranks of a group all ask for theirs at the same moment. */
#include <stdlib.h>

#include "api/api_job.h"
#include "api/codec.h"
#include "api/report_fill.h"
#include "base/clock.h"
#include "base/memory.h"
#include "load/load_count.h"

typedef Tensorcast__Daemon__V1__MaterializeEvent materialize_event;
typedef Tensorcast__Daemon__V1__LoadResult load_result;

enum { MANY_TENSORS = 1000 };

struct materialize {
    struct loop_work work; /* first: packing the result */
    struct rpc_call *call;
    const struct api *api;
    struct ticket *ticket;
    struct open_call open; /* until the ticket is done */
    bool wants_names;      /* the request had no view */
    struct arena arena;    /* of the answers */
    materialize_event *result;
    struct rpc_out *packed; /* the result; NULL = there is no memory for it */
    struct error error;
    unsigned char token[HANDOFF_TOKEN_BYTES];
};

static void on_resolved(void *data)
{
    struct materialize *m = data;
    rpc_call_drop_request(m->call);
}

static void on_planned(void *data, const struct load_result *result)
{
    struct materialize *m = data;
    materialize_event event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__Accepted accepted = TENSORCAST__DAEMON__V1__ACCEPTED__INIT;
    accepted.plan = report_fill(result, &m->arena);
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_ACCEPTED;
    event.accepted = &accepted;
    rpc_call_send(m->call, &event.base);
}

static void on_progress(void *data, const struct load_info *info)
{
    struct materialize *m = data;
    materialize_event event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
    if (!rpc_call_idle(m->call))
        return; /* a slow reader gets the newest numbers, later */
    progress.stage = info->stage;
    progress.waiting_for = info->waiting_for;
    progress.done_bytes = info->done_bytes;
    progress.total_bytes = info->total_bytes;
    progress.eta_ms =
        info->done_bytes ? clock_ms(info->age_ns) * (double)(info->total_bytes - info->done_bytes) / (double)info->done_bytes
                         : 0;
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_PROGRESS;
    event.progress = &progress;
    rpc_call_send(m->call, &event.base);
}

/* What is not cached is brought in while the client gets ready to touch it. */
static void read_ahead(const struct materialize *m, struct replica *replica)
{
    struct mapped_files *files = replica->files;
    struct error none;
    const struct page_reading reading = {.loop = m->api->services.loop,
                                         .quota = m->api->services.quota,
                                         .artifact = replica->mapping->artifact,
                                         .ranges = files->ranges,
                                         .uid = rpc_call_uid(m->call)};
    if (files->cached_share >= 1 || !files->ranges.n)
        return;
    files->ranges = (struct page_ranges){0};
    replica->reader = page_reader_start(&reading, &none); /* or faults read them */
}

/* The token for the memory, and all of the result but its layout. */
static int begin_result(struct materialize *m, struct error *error)
{
    struct replica *replica = ticket_result(m->ticket)->replica;
    bool is_ours = replica->segment && !segment_is_lent(replica->segment);
    bool has_token = is_ours || (replica->files && replica->files->view->n_files);
    materialize_event *event = CODEC_NEW(materialize_event, &m->arena);
    load_result *result = CODEC_NEW(load_result, &m->arena);
    if (rpc_call_is_left(m->call)) /* its tokens were revoked when it went: one more would pin the replica */
        return fail(error, ERROR_CANCELLED, "CLIENT_LEFT", "the client disconnected");
    if (has_token &&
        handoff_grant(m->api->handoff, replica, rpc_call_uid(m->call), rpc_call_connection(m->call), m->token, error) != 0)
        return -1;
    result->report = report_fill(ticket_result(m->ticket), &m->arena);
    result->handoff_token.data = m->token;
    result->handoff_token.len = has_token ? sizeof m->token : 0;
    result->handoff_socket = m->api->handoff_path;
    result->device = result->report->device;
    result->memory_bytes = is_ours ? replica->segment->allocated_bytes : 0;
    if (replica->files) {
        const struct mapped_view *view = replica->files->view;
        const struct source *source = replica->mapping->artifact->source;
        result->n_files = view->n_files;
        result->files = arena_array(&m->arena, view->n_files, sizeof *result->files);
        for (size_t i = 0; i < view->n_files; i++) {
            Tensorcast__Daemon__V1__MappedFile *file = CODEC_NEW(mapped_file, &m->arena);
            result->files[i] = file;
            file->name = codec_file_name(source->files[view->files[i]].name, &m->arena);
            file->bytes = source->files[view->files[i]].size_bytes;
        }
        read_ahead(m, replica);
    }
    event->event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT;
    event->result = result;
    m->result = event;
    return 0;
}

static void end_materialize(struct materialize *m)
{
    ticket_destroy(m->ticket);
    arena_fini(&m->arena);
    free(m);
}

static void pack_result(struct loop_work *work)
{
    struct materialize *m = (struct materialize *)work;
    struct metadata_account before = metadata_enter(rpc_call_account(m->call));
    const struct replica *replica = ticket_result(m->ticket)->replica;
    m->result->result->layout =
        codec_layout(replica->mapping, replica->files ? replica->files->view : NULL, m->wants_names, &m->arena, &m->error);
    m->packed = m->result->result->layout ? rpc_pack(&m->result->base, &m->error) : NULL;
    metadata_enter(before);
}

static void send_result(struct loop_work *work)
{
    struct materialize *m = (struct materialize *)work;
    if (m->packed) {
        ticket_hand_off(m->ticket);
        rpc_call_reply_packed(m->call, m->packed);
    } else {
        rpc_call_fail(m->call, &m->error);
    }
    end_materialize(m);
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct materialize *m = data;
    struct error own;
    LIST_REMOVE(&m->open, in_list);
    if (!error && begin_result(m, &own) != 0)
        error = &own;
    if (error) {
        rpc_call_fail_quietly(m->call, error);
        end_materialize(m);
        return;
    }
    m->work =
        (struct loop_work){.do_work = pack_result, .done = send_result, .pool = LOOP_LOCAL, .uid = rpc_call_uid(m->call)};
    if (result->replica->mapping->n_tensors >= MANY_TENSORS) {
        loop_continue(m->api->services.loop, &m->work);
        return;
    }
    pack_result(&m->work);
    send_result(&m->work);
}

static struct load_info describe_materialize(void *data)
{
    return ticket_describe(((struct materialize *)data)->ticket);
}

static void on_cancel(void *data)
{
    struct materialize *m = data;
    ticket_cancel(m->ticket);
}

void method_materialize(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    static const struct ticket_events events = {
        .resolved = on_resolved, .planned = on_planned, .progress = on_progress, .done = on_done};
    const Tensorcast__Daemon__V1__LoadRequest *load = ((const Tensorcast__Daemon__V1__MaterializeRequest *)request)->load;
    const struct api *api = context;
    struct error error;
    struct ticket *ticket = api_ticket(api, call, load, true, &error);
    if (!ticket) {
        load_count_refused(load ? load->artifact : "", &error);
        rpc_call_fail(call, &error);
        return;
    }
    struct materialize *m = memory_alloc(sizeof *m);
    *m = (struct materialize){.call = call, .api = api, .ticket = ticket, .wants_names = !load->view || load->view->whole};
    m->open = (struct open_call){.call = call, .is_listed_as_load = true, .describe = describe_materialize, .data = m};
    LIST_INSERT_HEAD(api->open_calls, &m->open, in_list);
    rpc_call_on_cancel(call, on_cancel, m);
    ticket_submit(ticket, GOAL_REPLICA, &events, m);
}
