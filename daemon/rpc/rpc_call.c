/* The life of one call.
 *
 *   slot --arrived--> receiving --received--> [decoding on a helper] --> dispatched --> handler ... --> ended --> freed
 *
 * Every arrow but the first runs on the loop. RECV_CLOSE is started at once, so a cancel, a deadline or a lost client is
 * seen in every state: before the dispatch the handler is never called, after it `on_cancel` runs once. One write is in
 * flight per call; what follows waits in a short queue, and the last message and the status share a batch.
 * References: one for the handler until it ends the call, one for each running operation. */
#include "rpc/rpc_internal.h"

#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"
#include "rpc/rpc_decode.h"

enum {
    INLINE_DECODE_BYTES = 64 << 10, /* more would hold up the queue thread for milliseconds */
    /* Messages that are charged to nobody, so that status, release and health are answered when metadata is full. There are
     * as many as there are calls. */
    FREE_REQUEST_BYTES = 4 << 10,
    FREE_REPLY_BYTES = 16 << 10,
    LARGE_MESSAGE_BYTES = 1 << 20, /* worth giving memory back for */
    MAX_QUEUED_MESSAGES = 16,      /* a handler that obeys rpc_call_idle() needs three */
    LONGEST_DEADLINE_S = 1 << 30,
};

static void destroy_out(struct rpc_out *out)
{
    if (!out)
        return;
    grpc_byte_buffer_destroy(out->buffer);
    quota_charge_end(&out->charge);
    free(out);
}

static void drop_payload(struct rpc_call *call)
{
    if (call->payload)
        grpc_byte_buffer_destroy(call->payload);
    call->payload = NULL;
    quota_charge_end(&call->payload_charge);
}

static void drop_output(struct rpc_call *call)
{
    while (call->first_out) {
        struct rpc_out *next = call->first_out->next;
        destroy_out(call->first_out);
        call->first_out = next;
    }
    call->last_out = &call->first_out;
    call->n_out = 0;
}

static void leave_list(struct rpc_call *call)
{
    if (!call->link)
        return;
    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
}

static void unref(struct rpc_call *call)
{
    struct rpc_server *server = call->server;
    if (--call->refs)
        return;
    if (call->largest_bytes >= LARGE_MESSAGE_BYTES)
        rpc_memory_trim_later(server);
    drop_output(call);
    destroy_out(call->being_written);
    arena_fini(&call->arena);
    grpc_slice_unref(call->details_slice);
    drop_payload(call);
    grpc_call_unref(call->grpc);
    leave_list(call);
    free(call->status);
    quota_charge_end(&call->charge);
    rpc_connections_call_ends(server->connections, call->number, call->connection);
    call->peer->n_calls--;
    free(call);
    server->n_calls--;
    rpc_call_gone(server);
}

static void start(struct rpc_call *call, const grpc_op *ops, size_t n_ops, struct rpc_tag *tag)
{
    rpc_hand_over(tag);
    if (grpc_call_start_batch(call->grpc, ops, n_ops, tag, NULL) != GRPC_CALL_OK)
        abort(); /* only for batches that break gRPC's rules */
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static void add_status(struct rpc_call *call, grpc_op *op, grpc_slice *message)
{
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = (grpc_status_code)call->code;
    if (call->status) {
        *message = grpc_slice_from_copied_string(call->status->message);
        op->data.send_status_from_server.status_details = message;
        call->details_slice =
            grpc_slice_from_copied_buffer((const char *)call->status->details, call->status->details_bytes);
        call->trailer.key = grpc_slice_from_static_string("grpc-status-details-bin");
        call->trailer.value = call->details_slice;
        op->data.send_status_from_server.trailing_metadata_count = 1;
        op->data.send_status_from_server.trailing_metadata = &call->trailer;
    }
    call->status_sent = true;
}

static void pop_output(struct rpc_call *call)
{
    struct rpc_out *out = call->first_out;
    call->first_out = out->next;
    if (!call->first_out)
        call->last_out = &call->first_out;
    call->n_out--;
    destroy_out(call->being_written);
    call->being_written = out; /* gRPC has the slices until it has written them */
}

/* Starts the next write if none is running and there is something to write. */
static void pump(struct rpc_call *call)
{
    if (call->writing || call->cancelled || call->status_sent || (!call->first_out && !call->ended))
        return;
    grpc_op ops[3] = {0};
    size_t n_ops = 0;
    const struct rpc_out *out = call->first_out;
    grpc_slice message = grpc_empty_slice();
    if (!call->header_sent)
        ops[n_ops++].op = GRPC_OP_SEND_INITIAL_METADATA;
    call->header_sent = true;
    if (out) {
        ops[n_ops].op = GRPC_OP_SEND_MESSAGE;
        ops[n_ops++].data.send_message.send_message = out->buffer;
    }
    if (call->ended && (!out || !out->next))
        add_status(call, &ops[n_ops++], &message);
    call->writing = true;
    call->refs++;
    start(call, ops, n_ops, &call->written);
    grpc_slice_unref(message);
    if (out)
        pop_output(call);
}

static void tell_idle(struct rpc_call *call)
{
    void (*fn)(void *data) = call->on_idle;
    if (!fn || !rpc_call_idle(call))
        return;
    call->on_idle = NULL;
    fn(call->idle_data);
}

static void on_written(struct loop_task *task)
{
    struct rpc_tag *tag = (struct rpc_tag *)task;
    struct rpc_call *call = tag->owner;
    call->writing = false;
    destroy_out(call->being_written);
    call->being_written = NULL;
    if (!tag->ok)
        drop_output(call); /* the client is gone */
    pump(call);
    if (call->route && call->route->kind == RPC_BIDI && !call->ended && rpc_call_idle(call))
        rpc_call_receive(call); /* the next question once the answer is out */
    tell_idle(call);
    unref(call);
}

struct rpc_out *rpc_pack(const ProtobufCMessage *message, struct error *error)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    struct quota_charge charge = metadata_charge();
    if (bytes > FREE_REPLY_BYTES && quota_charge_add(&charge, bytes, error) != 0)
        return NULL;
    grpc_slice slice = grpc_slice_malloc(bytes);
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    struct rpc_out *out = memory_alloc(sizeof *out);
    out->charge = charge;
    out->buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return out;
}

static void enqueue(struct rpc_call *call, struct rpc_out *out)
{
    size_t bytes = grpc_byte_buffer_length(out->buffer);
    *call->last_out = out;
    call->last_out = &out->next;
    call->n_out++;
    call->largest_bytes = call->largest_bytes < bytes ? bytes : call->largest_bytes;
}

/* --- what handlers call ------------------------------------------------------------------------------------------ */

void rpc_call_drop_request(struct rpc_call *call)
{
    arena_fini(&call->arena);
    call->request = NULL;
}

static void answer(struct rpc_call *call)
{
    call->ended = true;
    call->on_cancel = NULL;
    call->on_idle = NULL;
    call->on_state = NULL;
    pump(call);
}

/* The handler is done with the call. */
static void finish(struct rpc_call *call)
{
    rpc_call_drop_request(call);
    if (!call->ended)
        answer(call);
    unref(call);
}

static void set_status(struct rpc_call *call, const struct error *error)
{
    call->status = memory_alloc(sizeof *call->status);
    call->code = error->code;
    rpc_status_build(error, call->status);
}

/* A handler that was told to stop says that its client has left. */
static const struct error *why(const struct rpc_call *call, const struct error *error)
{
    return call->is_cut_off && error->code == ERROR_CANCELLED ? &call->server->stopping : error;
}

static struct rpc_out *pack_for(const struct rpc_call *call, const ProtobufCMessage *message, struct error *error)
{
    struct metadata_account before = metadata_enter(rpc_call_account(call));
    struct rpc_out *out = rpc_pack(message, error);
    metadata_enter(before);
    return out;
}

static void cut_off(struct rpc_call *call, const char *why)
{
    grpc_call_cancel_with_status(call->grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, why, NULL);
}

void rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message)
{
    struct error error;
    struct rpc_out *out = NULL;
    if (call->cancelled || call->ended)
        return;
    if (call->n_out == MAX_QUEUED_MESSAGES)
        cut_off(call, "the client reads its stream too slowly");
    else if (!(out = pack_for(call, message, &error)))
        cut_off(call, error.message);
    if (!out)
        return;
    enqueue(call, out);
    pump(call);
}

void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *message)
{
    struct error error;
    struct rpc_out *out = pack_for(call, message, &error);
    if (out)
        rpc_call_reply_packed(call, out);
    else
        rpc_call_fail(call, &error);
}

void rpc_call_reply_packed(struct rpc_call *call, struct rpc_out *out)
{
    enqueue(call, out);
    if (call->cancelled || call->ended)
        drop_output(call);
    finish(call);
}

void rpc_call_end(struct rpc_call *call)
{
    if (call->is_cut_off && !call->ended)
        set_status(call, &call->server->stopping);
    finish(call);
}

/* What a client got wrong, or gave up, is nothing for an operator. */
static enum log_level level_of(enum error_code code)
{
    bool is_clients =
        code == ERROR_NOT_FOUND || code == ERROR_INVALID_ARGUMENT || code == ERROR_CANCELLED || code == ERROR_UNIMPLEMENTED;
    return is_clients ? LOG_DEBUG : code == ERROR_INTERNAL ? LOG_ERROR : LOG_WARN;
}

static void log_failure(const struct rpc_call *call, const struct error *error)
{
    const char *method = call->route ? strrchr(call->route->path, '/') + 1 : "unknown";
    log_at_of(level_of(error->code), "request_failed", call->peer->uid, LOG_TEXT("method", method),
              LOG_U64("pid", (uint64_t)call->pid), LOG_TEXT("code", error_code_name(error->code)),
              LOG_TEXT("reason", error->reason), LOG_TEXT("message", error->message));
}

void rpc_call_fail(struct rpc_call *call, const struct error *error)
{
    if (!call->ended)
        log_failure(call, why(call, error));
    rpc_call_fail_quietly(call, error);
}

void rpc_call_fail_quietly(struct rpc_call *call, const struct error *error)
{
    if (!call->ended)
        set_status(call, why(call, error));
    finish(call);
}

void rpc_call_cut_off(struct rpc_call *call)
{
    void (*on_cancel)(void *data) = call->on_cancel;
    call->is_cut_off = true;
    call->on_cancel = NULL;
    call->refs++;
    if (on_cancel)
        on_cancel(call->cancel_data);
    if (!call->ended) {
        log_failure(call, &call->server->stopping);
        set_status(call, &call->server->stopping);
        answer(call);
    }
    unref(call);
}

bool rpc_call_idle(const struct rpc_call *call)
{
    return !call->writing && !call->first_out;
}

static void on_late_cancel(struct loop_task *task)
{
    struct rpc_call *call = ((struct rpc_tag *)task)->owner;
    if (call->on_cancel)
        call->on_cancel(call->cancel_data);
    unref(call);
}

void rpc_call_on_cancel(struct rpc_call *call, void (*fn)(void *data), void *data)
{
    call->on_cancel = fn;
    call->cancel_data = data;
    if (!call->cancelled)
        return;
    call->refs++; /* too late to be told by on_closed() */
    rpc_post(call->server, &call->late_cancel);
}

void rpc_call_on_idle(struct rpc_call *call, void (*fn)(void *data), void *data)
{
    call->on_idle = fn;
    call->idle_data = data;
}

bool rpc_call_is_left(const struct rpc_call *call)
{
    return call->cancelled || call->connection == 0 ||
           rpc_connections_find(call->server->connections, call->number, call->peer) != call->connection;
}

uid_t rpc_call_uid(const struct rpc_call *call)
{
    return call->peer->uid;
}

bool rpc_call_is_of_group(const struct rpc_call *call, gid_t gid)
{
    return rpc_connections_is_of_group(call->server->connections, call->number, call->peer, gid);
}

pid_t rpc_call_pid(const struct rpc_call *call)
{
    return call->pid;
}

struct metadata_account rpc_call_account(const struct rpc_call *call)
{
    return (struct metadata_account){.quota = call->server->options.quota, .uid = call->peer->uid};
}

uint64_t rpc_call_connection(const struct rpc_call *call)
{
    return call->connection;
}

uint64_t rpc_call_deadline_ns(const struct rpc_call *call)
{
    return call->deadline_ns;
}

/* --- receiving --------------------------------------------------------------------------------------------------- */

/* The whole message in one piece. */
static int take_payload(struct rpc_call *call, grpc_slice *bytes)
{
    grpc_byte_buffer_reader reader;
    bool counted = call->payload_charge.amount > 0;
    if (counted && quota_charge_add(&call->payload_charge, grpc_byte_buffer_length(call->payload), &call->decode_error) != 0)
        return -1;
    if (!grpc_byte_buffer_reader_init(&reader, call->payload))
        return fail(&call->decode_error, ERROR_INVALID_ARGUMENT, "MALFORMED_MESSAGE", "the request message cannot be read");
    *bytes = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(call->payload);
    call->payload = NULL;
    return 0;
}

static void decode(struct rpc_call *call)
{
    grpc_slice bytes;
    bool counted = call->payload_charge.amount > 0;
    if (take_payload(call, &bytes) == 0) {
        struct metadata_account before = metadata_enter(counted ? rpc_call_account(call) : (struct metadata_account){0});
        call->request = rpc_decode(call->route->input, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes), &call->arena,
                                   &call->decode_error);
        metadata_enter(before);
        grpc_slice_unref(bytes);
    }
    drop_payload(call);
}

/* The message waits for its decoding. */
static void admit_payload(struct rpc_call *call)
{
    size_t bytes = grpc_byte_buffer_length(call->payload);
    struct metadata_account account = rpc_call_account(call);
    call->largest_bytes = bytes;
    call->payload_charge = (struct quota_charge){.quota = account.quota, .kind = QUOTA_METADATA, .uid = account.uid};
    if (bytes > FREE_REQUEST_BYTES && quota_charge_add(&call->payload_charge, bytes, &call->decode_error) != 0)
        drop_payload(call);
    rpc_connections_taken(call->server->connections, call->number, bytes);
}

static int refuse(struct rpc_call *call, struct error *error)
{
    if (!rpc_peer_admits(call, error))
        return -1;
    if (!call->route)
        return fail(error, ERROR_UNIMPLEMENTED, "UNKNOWN_METHOD", "this daemon has no such method");
    if (!call->has_message)
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_MESSAGE", "the request holds no message");
    if (!call->request) {
        *error = call->decode_error;
        return -1;
    }
    if (call->server->state == RPC_DRAINING)
        return fail(error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    return 0;
}

static void handle(struct rpc_call *call)
{
    log_at_of(LOG_TRACE, "request", call->peer->uid, LOG_TEXT("method", strrchr(call->route->path, '/') + 1),
              LOG_U64("pid", (uint64_t)call->pid));
    call->route->handle(call, call->request, call->route->context);
}

static void dispatch(struct rpc_call *call)
{
    struct error error;
    if (call->ended && !call->is_cut_off)
        return; /* a bidi call whose last receive came back empty */
    if (call->is_cut_off) {
        finish(call);
        return;
    }
    if (rpc_call_is_left(call))
        rpc_call_end(call);
    else if (call->route && call->route->kind == RPC_BIDI && !call->has_message && !call->is_refused)
        rpc_call_end(call);
    else if (refuse(call, &error))
        rpc_call_fail(call, &error);
    else
        handle(call);
}

static void join_list(struct rpc_call *call)
{
    if (call->link)
        return;
    call->link = &call->server->calls;
    call->next = call->server->calls;
    if (call->next)
        call->next->link = &call->next;
    call->server->calls = call;
}

static void decode_work(struct loop_work *work)
{
    decode((struct rpc_call *)((char *)work - offsetof(struct rpc_call, decoding)));
}

static void decode_done(struct loop_work *work)
{
    struct rpc_call *call = (struct rpc_call *)((char *)work - offsetof(struct rpc_call, decoding));
    dispatch(call);
    unref(call);
}

static void on_received(struct loop_task *task)
{
    struct rpc_call *call = ((struct rpc_tag *)task)->owner;
    join_list(call);
    if (call->payload && !call->cancelled && !call->ended) {
        call->decoding =
            (struct loop_work){.do_work = decode_work, .done = decode_done, .pool = LOOP_LOCAL, .uid = rpc_call_uid(call)};
        if (loop_submit(call->server->options.loop, &call->decoding, &call->decode_error) == 0)
            return;
    }
    dispatch(call);
    unref(call);
}

static void on_receive_event(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;
    call->has_message = ok && call->payload;
    if (call->payload)
        admit_payload(call);
    if (call->payload && grpc_byte_buffer_length(call->payload) <= INLINE_DECODE_BYTES)
        decode(call);
    rpc_post(call->server, tag);
}

void rpc_call_receive(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->payload;
    arena_fini(&call->arena);
    call->request = NULL;
    call->refs++;
    start(call, &op, 1, &call->received);
}

/* --- arriving and closing ---------------------------------------------------------------------------------------- */

static void on_closed(struct loop_task *task)
{
    struct rpc_call *call = ((struct rpc_tag *)task)->owner;
    call->cancelled = call->was_cancelled;
    if (call->cancelled) {
        void (*on_cancel)(void *data) = call->on_cancel;
        drop_output(call);
        call->on_cancel = NULL;
        if (on_cancel)
            on_cancel(call->cancel_data);
    }
    unref(call);
}

/* Operations whose end the loop alone is interested in. */
static void on_plain_event(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;
    tag->ok = ok;
    rpc_post(call->server, tag);
}

static uint64_t deadline_ns(gpr_timespec deadline)
{
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
        return UINT64_MAX;
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    if (left.tv_sec < 0)
        return clock_now_ns();
    if (left.tv_sec > LONGEST_DEADLINE_S)
        return UINT64_MAX;
    return clock_now_ns() + (uint64_t)left.tv_sec * 1000000000u + (uint64_t)left.tv_nsec;
}

static void identify(struct rpc_call *call)
{
    char *peer = grpc_call_get_peer(call->grpc);
    if (!peer || sscanf(peer, "fd:%d", &call->number) != 1)
        call->number = -1;
    gpr_free(peer);
    call->connection = rpc_connections_call_begins(call->server->connections, call->number, call->peer);
    call->pid = rpc_connections_pid(call->server->connections, call->number, call->peer);
}

static void on_arrived_event(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = tag->owner;
    if (!ok) { /* the server is shutting down */
        call->peer->n_slots--;
        rpc_call_discard(call);
        return;
    }
    call->server->n_calls++;
    call->peer->n_calls++;
    rpc_peer_arm(call->peer);
    call->peer->n_slots--;
    call->route = rpc_route_find(call->server, (const char *)GRPC_SLICE_START_PTR(call->details.method),
                                 GRPC_SLICE_LENGTH(call->details.method));
    call->deadline_ns = deadline_ns(call->details.deadline);
    identify(call);
    call->charge = (struct quota_charge){.quota = call->server->options.quota, .kind = QUOTA_CALLS, .uid = call->peer->uid};
    call->is_refused = quota_charge_add(&call->charge, 1, &call->decode_error) != 0 && !rpc_peer_owes(call);
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    call->refs = 3; /* handler, close, receive */
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &call->was_cancelled;
    start(call, &close, 1, &call->closed);
    if (!call->route || call->is_refused) { /* without its request */
        rpc_post(call->server, &call->received);
        return;
    }
    grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE};
    receive.data.recv_message.recv_message = &call->payload;
    start(call, &receive, 1, &call->received);
}

struct rpc_call *rpc_call_create(struct rpc_peer *peer)
{
    struct rpc_call *call = memory_alloc(sizeof *call);
    call->server = peer->server;
    call->peer = peer;
    call->last_out = &call->first_out;
    call->details_slice = grpc_empty_slice();
    call->arrived = (struct rpc_tag){.on_event = on_arrived_event, .owner = call};
    call->received = (struct rpc_tag){.task.run = on_received, .on_event = on_receive_event, .owner = call};
    call->closed = (struct rpc_tag){.task.run = on_closed, .on_event = on_plain_event, .owner = call};
    call->written = (struct rpc_tag){.task.run = on_written, .on_event = on_plain_event, .owner = call};
    call->late_cancel = (struct rpc_tag){.task.run = on_late_cancel, .owner = call};
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    return call;
}

void rpc_call_discard(struct rpc_call *call)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    free(call);
}
