/* The life of one call; the drawing is in rpc_internal.h. The verbs of handlers are in rpc.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/grpc_wire.h"
#include "base/memory.h"
#include "base/state.h"
#include "base/user_group.h"
#include "base/version.h"
#include "observe/log.h"
#include "rpc/rpc_decode.h"
#include "rpc/rpc_internal.h"

enum {
    INLINE_DECODE_BYTES = 64 << 10, /* more would hold up the loop for milliseconds */
    LARGE_MESSAGE_BYTES = 1 << 20,  /* worth giving memory back for */
    MAX_QUEUED_MESSAGES = 16,       /* a handler that obeys rpc_call_idle() needs three */
    FREE_REPLY_BYTES = 16 << 10,    /* not charged, so that status, release and health are answered when metadata is full */
    MAX_FIELDS = 8,
};

static void set_state(struct rpc_call *call, enum rpc_call_state state)
{
    static const struct state_row states[] = {
        [RPC_CALL_RECEIVING] = {"receiving", STATE_BIT(RPC_CALL_DECODING) | STATE_BIT(RPC_CALL_WAITING) |
                                                 STATE_BIT(RPC_CALL_RUNNING) | STATE_BIT(RPC_CALL_ENDED)},
        [RPC_CALL_DECODING] = {"decoding",
                               STATE_BIT(RPC_CALL_WAITING) | STATE_BIT(RPC_CALL_RUNNING) | STATE_BIT(RPC_CALL_ENDED)},
        [RPC_CALL_WAITING] = {"waiting", STATE_BIT(RPC_CALL_RUNNING) | STATE_BIT(RPC_CALL_ENDED)},
        [RPC_CALL_RUNNING] = {"running", STATE_BIT(RPC_CALL_RECEIVING) | STATE_BIT(RPC_CALL_ENDED)},
        [RPC_CALL_ENDED] = {"ended", 0},
    };
    static const struct state_machine machine = {"call", states, 5};
    state_check(&machine, call->state, state);
    call->state = state;
}

static bool is_bidi(const struct rpc_call *call)
{
    return call->head.route && call->head.route->kind == RPC_BIDI;
}

/* --- the reply ------------------------------------------------------------------------------------------------------- */

/* What is said on a stream: headers, messages, and the status in trailers, or all in one block when there is no message.
 * libnghttp2 asks for messages when the client's windows let them through, and gets them without a copy of its own. */

#define TEXT(text) text, sizeof text - 1

struct fields {
    nghttp2_nv list[MAX_FIELDS];
    size_t n;
    char code[12], *message, *details;
};

/* name: a literal; value: stays until the fields are submitted. nghttp2 knows no const and writes to neither. */
static void add_field(struct fields *fields, char *name, char *value, size_t length, uint8_t flags)
{
    fields->list[fields->n++] = (nghttp2_nv){.name = (uint8_t *)name,
                                             .value = (uint8_t *)value,
                                             .namelen = strlen(name),
                                             .valuelen = length,
                                             .flags = flags | NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

static void add_head(struct fields *fields)
{
    add_field(fields, ":status", TEXT("200"), 0);
    add_field(fields, "content-type", TEXT("application/grpc"), 0);
    add_field(fields, "grpc-accept-encoding", TEXT("identity"), 0);
}

static void add_status(struct fields *fields, const struct rpc_reply *reply)
{
    int length = snprintf(fields->code, sizeof fields->code, "%d", (int)reply->code);
    add_field(fields, "grpc-status", fields->code, (size_t)length, 0);
    if (!reply->status)
        return;
    fields->message = memory_alloc(3 * sizeof reply->status->message + 1);
    fields->details = memory_alloc(4 * (reply->status->details_bytes / 3) + 5);
    size_t n = grpc_wire_encode_message(reply->status->message, fields->message);
    add_field(fields, "grpc-message", fields->message, n, NGHTTP2_NV_FLAG_NO_INDEX);
    n = base64_encode(reply->status->details, reply->status->details_bytes, fields->details);
    add_field(fields, "grpc-status-details-bin", fields->details, n, NGHTTP2_NV_FLAG_NO_INDEX);
}

/* The status was submitted: libnghttp2 has a copy. */
static void end_status(struct fields *fields, struct rpc_reply *reply)
{
    free(fields->message);
    free(fields->details);
    free(reply->status);
    reply->status = NULL;
    reply->is_closed = true;
}

struct rpc_out *rpc_pack(const ProtobufCMessage *message, struct error *error)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    struct quota_charge charge = metadata_charge();
    if (bytes > FREE_REPLY_BYTES && quota_charge_add(&charge, bytes, error) != 0)
        return NULL;
    struct rpc_out *out = bytes < UINT32_MAX ? malloc(sizeof *out + GRPC_WIRE_PREFIX_BYTES + bytes) : NULL;
    if (!out) {
        quota_charge_end(&charge);
        metadata_fail_memory(bytes, error);
        return NULL;
    }
    out->charge = charge;
    out->count = GRPC_WIRE_PREFIX_BYTES + bytes;
    grpc_wire_write_prefix(out->bytes, bytes);
    protobuf_c_message_pack(message, out->bytes + GRPC_WIRE_PREFIX_BYTES);
    return out;
}

static void destroy_out(struct rpc_out *out)
{
    quota_charge_end(&out->charge);
    free(out);
}

static void pop_message(struct rpc_reply *reply)
{
    struct rpc_out *out = STAILQ_FIRST(&reply->outs);
    STAILQ_REMOVE_HEAD(&reply->outs, link);
    reply->n_out--;
    reply->at = 0;
    destroy_out(out);
}

static void drop_messages(struct rpc_call *call)
{
    call->reply.was_dropped = call->reply.was_dropped || call->reply.n_out;
    while (call->reply.n_out)
        pop_message(&call->reply);
}

static void submit_trailers(struct rpc_call *call)
{
    struct fields fields = {.n = 0};
    add_status(&fields, &call->reply);
    nghttp2_submit_trailer(call->connection->session, call->stream, fields.list, fields.n);
    end_status(&fields, &call->reply);
}

static ssize_t read_reply(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t room, uint32_t *flags,
                          nghttp2_data_source *source, void *connection)
{
    struct rpc_call *call = source->ptr;
    struct rpc_reply *reply = &call->reply;
    const struct rpc_out *out = STAILQ_FIRST(&reply->outs);
    (void)session, (void)stream, (void)buffer, (void)connection;
    if (!out && (!reply->is_last || reply->is_closed)) {
        reply->is_waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t left = out ? out->count - reply->at : 0, n = left < room ? left : room;
    *flags |= n ? NGHTTP2_DATA_FLAG_NO_COPY : 0;
    if (reply->is_last && n == left && (!out || !STAILQ_NEXT(out, link))) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(call);
    }
    return (ssize_t)n;
}

/* A DATA frame: its head and `count` bytes of the first message go out. One at a time, for there is room for so many. */
int rpc_call_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t count,
                       nghttp2_data_source *source, void *data)
{
    enum { HEAD_BYTES = 9 };
    struct rpc_http2 *http2 = &((struct rpc_connection *)data)->server->http2;
    struct rpc_reply *reply = &((struct rpc_call *)source->ptr)->reply;
    (void)session, (void)frame;
    memcpy(http2->out + http2->n_out, head, HEAD_BYTES);
    memcpy(http2->out + http2->n_out + HEAD_BYTES, STAILQ_FIRST(&reply->outs)->bytes + reply->at, count);
    http2->n_out += HEAD_BYTES + count;
    reply->at += count;
    if (reply->at == STAILQ_FIRST(&reply->outs)->count) {
        pop_message(reply);
        reply->has_drained = reply->n_out == 0;
    }
    return NGHTTP2_ERR_PAUSE;
}

/* libnghttp2 has something new to ask for. */
static void resume_stream(struct rpc_call *call)
{
    struct rpc_reply *reply = &call->reply;
    if (!reply->is_begun) {
        struct fields fields = {.n = 0};
        const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_reply};
        add_head(&fields);
        nghttp2_submit_response(call->connection->session, call->stream, fields.list, fields.n, &provider);
        reply->is_begun = true;
    } else if (reply->is_waiting) {
        nghttp2_session_resume_data(call->connection->session, call->stream);
    }
    reply->is_waiting = false;
    rpc_connection_touch(call->connection);
}

static void queue_message(struct rpc_call *call, struct rpc_out *out)
{
    struct rpc_reply *reply = &call->reply;
    if (!call->stream || reply->is_last) {
        destroy_out(out);
        return;
    }
    STAILQ_INSERT_TAIL(&reply->outs, out, link);
    reply->n_out++;
    reply->has_drained = false;
    reply->largest_bytes = reply->largest_bytes < out->count ? out->count : reply->largest_bytes;
    resume_stream(call);
}

static void submit_all(struct rpc_call *call)
{
    struct fields fields = {.n = 0};
    add_head(&fields);
    add_status(&fields, &call->reply);
    nghttp2_submit_response(call->connection->session, call->stream, fields.list, fields.n, NULL);
    end_status(&fields, &call->reply);
    call->reply.is_begun = true;
    rpc_connection_touch(call->connection);
}

static void set_status(struct rpc_reply *reply, const struct error *error)
{
    reply->is_last = true;
    if (!error)
        return;
    reply->code = error->code;
    reply->status = reply->status ? reply->status : memory_alloc(sizeof *reply->status);
    rpc_status_build(error, reply->status);
}

static void end_reply(struct rpc_call *call, const struct error *error)
{
    if (!call->stream || call->reply.is_last)
        return;
    set_status(&call->reply, error);
    if (call->reply.is_begun || call->reply.n_out)
        resume_stream(call);
    else
        submit_all(call);
}

static void abort_reply(struct rpc_call *call, const struct error *error)
{
    drop_messages(call);
    if (!call->stream || call->reply.is_closed)
        return;
    set_status(&call->reply, error);
    if (!call->reply.is_begun)
        submit_all(call);
    else
        submit_trailers(call);
    rpc_connection_touch(call->connection);
}

/* --- the end --------------------------------------------------------------------------------------------------------- */

static void leave_connection(struct rpc_call *call)
{
    if (!call->connection)
        return;
    LIST_REMOVE(call, in_connection);
    call->connection->n_calls--;
    call->connection->n_refused -= call->is_refused;
    call->connection->used_ns = clock_now_ns();
    call->connection = NULL;
}

/* It came in the drain, which does not wait for it. */
static bool is_late(const struct rpc_call *call)
{
    return call->server->state == RPC_DRAINING && call->made_ns > call->server->drain.leaving_ns;
}

/* Frees it with its last reference. */
static void free_if_over(struct rpc_call *call)
{
    struct rpc_server *server = call->server;
    if (call->state != RPC_CALL_ENDED || call->stream || call->holds)
        return;
    if (call->reply.largest_bytes >= LARGE_MESSAGE_BYTES)
        rpc_server_trim_later(server);
    leave_connection(call);
    loop_timer_destroy(call->deadline);
    drop_messages(call);
    free(call->reply.status);
    free(call->request.error);
    quota_charge_end(&call->charge);
    server->n_calls--;
    server->n_late_calls -= is_late(call);
    free(call);
    rpc_server_call_gone(server);
}

/* No handler has had it yet, and no helper has it now. */
static bool is_unhandled(const struct rpc_call *call)
{
    return call->state == RPC_CALL_RECEIVING || call->state == RPC_CALL_WAITING;
}

/* The handler is done with it, or it will have none. */
static void end_call(struct rpc_call *call)
{
    rpc_admission_remove(call);
    rpc_call_drop_request(call);
    rpc_message_fini(&call->request.message);
    call->hooks = (struct rpc_hooks){0};
    set_state(call, RPC_CALL_ENDED);
    free_if_over(call);
}

static void finish_call(struct rpc_call *call, const struct error *error)
{
    if (!call->is_left)
        end_reply(call, error);
    end_call(call);
}

/* Tells the handler, which may end the call, that no client waits for it. */
static void tell_handler(struct rpc_call *call)
{
    struct rpc_hooks *hooks = &call->hooks;
    void (*on_cancel)(void *data) = hooks->on_cancel;
    call->holds++;
    hooks->on_cancel = NULL;
    if (on_cancel)
        on_cancel(hooks->cancel_data);
    else if (is_unhandled(call))
        end_call(call);
    bool is_owed_idle = call->reply.was_dropped || call->reply.has_drained; /* drained by the write that found out */
    void (*on_idle)(void *data) = is_owed_idle ? hooks->on_idle : NULL;
    if (on_idle) {
        hooks->on_idle = NULL;
        on_idle(hooks->idle_data);
    }
    call->holds--;
    free_if_over(call);
}

static void on_telling(struct loop_task *task)
{
    struct rpc_call *call = (struct rpc_call *)((char *)task - offsetof(struct rpc_call, telling));
    call->is_telling_posted = false;
    call->holds--;
    tell_handler(call);
}

static void tell_handler_later(struct rpc_call *call)
{
    if (call->is_telling_posted)
        return;
    call->is_telling_posted = true;
    call->holds++;
    call->telling.run = on_telling;
    loop_post(call->server->options.loop, &call->telling);
}

static void lose_client(struct rpc_call *call)
{
    bool was_left = call->is_left;
    call->is_left = true;
    drop_messages(call);
    if (was_left)
        free_if_over(call);
    else
        tell_handler(call);
}

void rpc_call_closed(struct rpc_call *call)
{
    call->stream = 0;
    if (call->state == RPC_CALL_ENDED)
        free_if_over(call);
    else
        lose_client(call);
}

void rpc_call_disconnected(struct rpc_call *call)
{
    leave_connection(call);
    rpc_call_closed(call);
}

static void on_deadline(void *data)
{
    struct rpc_call *call = data;
    struct error error;
    fail(&error, ERROR_DEADLINE_EXCEEDED, REASON(DEADLINE_EXCEEDED), "the request's deadline has passed");
    abort_reply(call, &error);
    if (call->state != RPC_CALL_ENDED)
        lose_client(call);
}

static void log_failure(const struct rpc_call *call, const struct error *error)
{
    const char *method = call->head.route ? strrchr(call->head.route->path, '/') + 1 : "unknown";
    enum log_level level = log_level_of_error(error);
    if (level == LOG_INFO && error->code != ERROR_PERMISSION_DENIED)
        level = LOG_DEBUG; /* a question with a wrong name is nothing for an operator */
    log_at_of(level, "request_failed", call->uid, LOG_TEXT("method", method), LOG_U64("pid", (uint64_t)call->pid),
              LOG_TEXT("code", error_code_name(error->code)), LOG_TEXT("reason", error->reason),
              LOG_TEXT("message", error->message));
}

void rpc_call_cut_off(struct rpc_call *call)
{
    void (*on_cancel)(void *data) = call->hooks.on_cancel;
    const struct error *stopping = &call->server->drain.stopping;
    call->is_cut_off = true;
    call->hooks.on_cancel = NULL;
    call->holds++;
    if (on_cancel)
        on_cancel(call->hooks.cancel_data);
    if (call->state != RPC_CALL_ENDED) {
        log_failure(call, stopping);
        end_reply(call, stopping);
        call->hooks = (struct rpc_hooks){0};
    }
    if (is_unhandled(call))
        end_call(call);
    call->holds--;
    free_if_over(call);
}

/* --- what handlers call ---------------------------------------------------------------------------------------------- */

void rpc_call_drop_request(struct rpc_call *call)
{
    arena_fini(&call->request.arena);
    call->request.decoded = NULL;
}

static struct rpc_out *pack_for(const struct rpc_call *call, const ProtobufCMessage *message, struct error *error)
{
    struct metadata_account before = metadata_enter(rpc_call_account(call));
    struct rpc_out *out = rpc_pack(message, error);
    metadata_enter(before);
    return out;
}

void rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message)
{
    struct error error;
    struct rpc_out *out = NULL;
    if (call->is_left || call->reply.is_last)
        return;
    if (call->reply.n_out == MAX_QUEUED_MESSAGES)
        fail(&error, ERROR_RESOURCE_EXHAUSTED, "CLIENT_TOO_SLOW", "the client reads its stream too slowly");
    else
        out = pack_for(call, message, &error);
    if (out) {
        queue_message(call, out);
        return;
    }
    abort_reply(call, &error);
    call->is_left = true;
    tell_handler_later(call);
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
    queue_message(call, out);
    finish_call(call, NULL);
}

void rpc_call_end(struct rpc_call *call)
{
    finish_call(call, call->is_cut_off ? &call->server->drain.stopping : NULL);
}

/* A handler that was told to stop says that its client has left. */
static const struct error *why(const struct rpc_call *call, const struct error *error)
{
    return call->is_cut_off && error->code == ERROR_CANCELLED ? &call->server->drain.stopping : error;
}

void rpc_call_fail(struct rpc_call *call, const struct error *error)
{
    if (!call->reply.is_last)
        log_failure(call, why(call, error));
    rpc_call_fail_quietly(call, error);
}

void rpc_call_fail_quietly(struct rpc_call *call, const struct error *error)
{
    finish_call(call, why(call, error));
}

bool rpc_call_idle(const struct rpc_call *call)
{
    return call->reply.n_out == 0;
}

void rpc_call_on_idle(struct rpc_call *call, void (*fn)(void *data), void *data)
{
    call->hooks.on_idle = fn;
    call->hooks.idle_data = data;
}

void rpc_call_on_cancel(struct rpc_call *call, void (*fn)(void *data), void *data)
{
    call->hooks.on_cancel = fn;
    call->hooks.cancel_data = data;
    if (fn && call->is_left)
        tell_handler_later(call);
}

bool rpc_call_is_left(const struct rpc_call *call)
{
    return call->is_left;
}

uid_t rpc_call_uid(const struct rpc_call *call)
{
    return call->uid;
}

bool rpc_call_is_of_group(const struct rpc_call *call, gid_t gid)
{
    return call->connection && user_group_has_peer(gid, call->connection->fd);
}

pid_t rpc_call_pid(const struct rpc_call *call)
{
    return call->pid;
}

struct metadata_account rpc_call_account(const struct rpc_call *call)
{
    return (struct metadata_account){.quota = call->server->options.quota, .uid = call->uid};
}

uint64_t rpc_call_connection(const struct rpc_call *call)
{
    return call->connection_id;
}

const char *rpc_call_method(const struct rpc_call *call)
{
    return strrchr(call->head.route->path, '/') + 1;
}

struct traceparent rpc_call_traceparent(const struct rpc_call *call)
{
    return call->head.parent;
}

/* --- headers --------------------------------------------------------------------------------------------------------- */

struct rpc_call *rpc_call_create(struct rpc_connection *connection, int32_t stream)
{
    struct rpc_server *server = connection->server;
    struct rpc_call *call = memory_alloc(sizeof *call);
    *call = (struct rpc_call){.server = server,
                              .connection = connection,
                              .stream = stream,
                              .uid = connection->user->uid,
                              .pid = connection->pid,
                              .connection_id = connection->id,
                              .made_ns = clock_now_ns(),
                              .deadline_ns = UINT64_MAX,
                              .head.timeout_ns = UINT64_MAX};
    STAILQ_INIT(&call->reply.outs);
    call->charge = (struct quota_charge){.quota = server->options.quota, .kind = QUOTA_CALLS, .uid = call->uid};
    rpc_message_init(&call->request.message, rpc_call_account(call));
    LIST_INSERT_HEAD(&connection->calls, call, in_connection);
    connection->n_calls++;
    connection->was_used = true;
    server->n_calls++;
    server->n_late_calls += is_late(call);
    return call;
}

static bool is_text(nghttp2_vec bytes, const char *text)
{
    return bytes.len == strlen(text) && memcmp(bytes.base, text, bytes.len) == 0;
}

void rpc_call_header(struct rpc_call *call, nghttp2_vec name, nghttp2_vec value)
{
    enum { FIELD_OVERHEAD_BYTES = 32 }; /* RFC 9113, 6.5.2 */
    struct rpc_head *head = &call->head;
    const char *text = (const char *)value.base;
    head->bytes += name.len + value.len + FIELD_OVERHEAD_BYTES;
    if (is_text(name, ":path"))
        head->route = rpc_services_find(call->server, text, value.len);
    else if (is_text(name, ":method"))
        head->is_post = is_text(value, "POST");
    else if (is_text(name, "content-type"))
        head->is_grpc = grpc_wire_is_grpc(text, value.len);
    else if (is_text(name, "grpc-timeout"))
        head->timeout_ns = grpc_wire_timeout_ns(text, value.len);
    else if (is_text(name, "grpc-encoding"))
        head->is_encoded = !is_text(value, "identity");
    else if (is_text(name, "traceparent"))
        head->parent = traceparent_parse(text, value.len);
}

/* It is in no quota, so the connection counts it. */
static void note_refusal(struct rpc_call *call)
{
    call->is_refused = true;
    call->connection->n_refused++;
}

static int check_head(struct rpc_call *call, struct error *error)
{
    if (call->head.bytes > RPC_MAX_METADATA_BYTES)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "METADATA_TOO_LARGE",
                    "the request's headers have %zu bytes; %d are allowed", call->head.bytes, RPC_MAX_METADATA_BYTES);
    if (rpc_admission_admit(call, error) != 0)
        return -1;
    if (!call->head.route)
        return fail(error, ERROR_UNIMPLEMENTED, "UNKNOWN_METHOD",
                    "this daemon, tensorcastd %s, has no such method: install the client's version and restart it",
                    version_text());
    if (call->head.is_encoded)
        return fail(error, ERROR_UNIMPLEMENTED, "COMPRESSED_MESSAGE",
                    "the request is compressed; this daemon takes grpc-encoding identity only");
    if (is_late(call) && !call->head.route->answers_in_drain)
        return fail(error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    return 0;
}

void rpc_call_begin(struct rpc_call *call)
{
    struct error error;
    if (!call->head.is_post || !call->head.is_grpc) {
        struct fields fields = {.n = 0};
        note_refusal(call);
        add_field(&fields, ":status", call->head.is_post ? "415" : "405", 3, 0);
        call->reply.is_begun = call->reply.is_last = call->reply.is_closed = true;
        nghttp2_submit_response(call->connection->session, call->stream, fields.list, fields.n, NULL);
        rpc_connection_touch(call->connection);
        end_call(call);
        return;
    }
    if (check_head(call, &error) != 0) {
        if (!call->charge.amount)
            note_refusal(call);
        rpc_call_fail(call, &error);
        return;
    }
    if (call->head.timeout_ns == UINT64_MAX)
        return;
    call->deadline_ns = call->made_ns + call->head.timeout_ns;
    call->deadline = loop_timer_create(call->server->options.loop, on_deadline, call);
    loop_timer_start(call->deadline, call->head.timeout_ns / NS_PER_MS + 1, 0);
}

/* --- the message ----------------------------------------------------------------------------------------------------- */

/* Loop or helper. */
static void decode_request(struct rpc_call *call)
{
    struct rpc_request *request = &call->request;
    struct error error;
    size_t length = rpc_message_length(&request->message);
    bool counted = length > RPC_FREE_REQUEST_BYTES;
    struct metadata_account before = metadata_enter(counted ? rpc_call_account(call) : (struct metadata_account){0});
    request->decoded = rpc_decode(call->head.route->input, request->message.bytes + GRPC_WIRE_PREFIX_BYTES, length,
                                  &request->arena, &error);
    metadata_enter(before);
    if (!request->decoded)
        request->error = memory_copy(&error, sizeof error);
    rpc_message_next(&request->message);
}

void rpc_call_wait(struct rpc_call *call)
{
    set_state(call, RPC_CALL_WAITING);
}

void rpc_call_handle(struct rpc_call *call)
{
    struct rpc_request *request = &call->request;
    const struct rpc_route *route = call->head.route;
    if (!request->decoded && !request->error)
        decode_request(call);
    if (request->error) {
        rpc_call_fail(call, request->error);
        return;
    }
    set_state(call, RPC_CALL_RUNNING);
    log_at_of(LOG_TRACE, "request", call->uid, LOG_TEXT("method", strrchr(route->path, '/') + 1),
              LOG_U64("pid", (uint64_t)call->pid));
    route->handle(call, request->decoded, route->context);
}

static void decode_work(struct loop_work *work)
{
    decode_request((struct rpc_call *)((char *)work - offsetof(struct rpc_call, request.decoding)));
}

static void decode_done(struct loop_work *work)
{
    struct rpc_call *call = (struct rpc_call *)((char *)work - offsetof(struct rpc_call, request.decoding));
    if (call->is_left || call->reply.is_last)
        end_call(call);
    else
        rpc_admission_run(call);
}

/* The message is whole. */
static void take_message(struct rpc_call *call)
{
    struct rpc_request *request = &call->request;
    struct error error;
    size_t length = rpc_message_length(&request->message);
    call->reply.largest_bytes = call->reply.largest_bytes < length ? length : call->reply.largest_bytes;
    if (length <= INLINE_DECODE_BYTES) {
        rpc_admission_run(call);
        return;
    }
    request->decoding =
        (struct loop_work){.do_work = decode_work, .done = decode_done, .pool = LOOP_LOCAL, .uid = call->uid};
    if (loop_submit(call->server->options.loop, &request->decoding, &error) == 0)
        set_state(call, RPC_CALL_DECODING);
    else
        rpc_call_fail(call, &error);
}

void rpc_call_data(struct rpc_call *call, const uint8_t *bytes, size_t count)
{
    nghttp2_session *session = call->connection->session;
    struct error error;
    uint64_t most = call->server->options.max_message_bytes;
    bool is_early = call->state == RPC_CALL_RUNNING && is_bidi(call);
    most = is_bidi(call) && most > INLINE_DECODE_BYTES ? INLINE_DECODE_BYTES : most;
    nghttp2_session_consume_connection(session, count);
    if (is_early)
        call->request.unconsumed += count;
    else
        nghttp2_session_consume_stream(session, call->stream, count);
    if (call->state != RPC_CALL_RECEIVING && !is_early)
        return; /* it has been answered, or has its message */
    if (rpc_message_add(&call->request.message, bytes, count, most, &error) != 0)
        rpc_call_fail(call, &error);
    else if (!is_early && rpc_message_is_whole(&call->request.message))
        take_message(call);
}

static void receive_on(struct rpc_call *call)
{
    struct error error;
    if (rpc_message_is_whole(&call->request.message)) {
        take_message(call);
    } else if (call->request.is_complete && is_bidi(call) && !call->request.message.count) {
        rpc_call_end(call);
    } else if (call->request.is_complete) {
        fail(&error, ERROR_INVALID_ARGUMENT, "NO_MESSAGE", "the request holds no message");
        rpc_call_fail(call, &error);
    }
}

void rpc_call_half_closed(struct rpc_call *call)
{
    call->request.is_complete = true;
    if (call->state == RPC_CALL_RECEIVING)
        receive_on(call);
}

/* Bidi: the next question once the answer is out. */
void rpc_call_drained(struct rpc_call *call)
{
    struct rpc_hooks *hooks = &call->hooks;
    void (*on_idle)(void *data) = hooks->on_idle;
    if (call->state != RPC_CALL_RUNNING || call->reply.is_last)
        return;
    hooks->on_idle = NULL;
    if (on_idle)
        on_idle(hooks->idle_data);
    if (!is_bidi(call) || call->state != RPC_CALL_RUNNING || !rpc_call_idle(call))
        return;
    rpc_call_drop_request(call);
    set_state(call, RPC_CALL_RECEIVING);
    nghttp2_session_consume_stream(call->connection->session, call->stream, call->request.unconsumed);
    call->request.unconsumed = 0;
    rpc_connection_touch(call->connection);
    receive_on(call);
}
