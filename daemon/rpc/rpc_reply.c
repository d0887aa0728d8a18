/* What is said on a stream: headers, messages, and the status in trailers, or all in one block when there is no message.
 * libnghttp2 asks for messages when the client's windows let them through, and gets them without a copy of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/grpc_wire.h"
#include "base/memory.h"
#include "rpc/rpc_internal.h"

/* Messages that are charged to nobody, so that status, release and health are answered when metadata is full. */
enum { FREE_REPLY_BYTES = 16 << 10, MAX_FIELDS = 8 };

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

/* --- messages -------------------------------------------------------------------------------------------------------- */

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
    out->next = NULL;
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
    struct rpc_out *out = reply->first;
    reply->first = out->next;
    if (!reply->first)
        reply->last = &reply->first;
    reply->n_out--;
    reply->at = 0;
    destroy_out(out);
}

void rpc_reply_drop(struct rpc_call *call)
{
    call->reply.was_dropped = call->reply.was_dropped || call->reply.first;
    while (call->reply.first)
        pop_message(&call->reply);
}

/* --- what libnghttp2 asks for ---------------------------------------------------------------------------------------- */

static void submit_trailers(struct rpc_call *call)
{
    struct fields fields = {.n = 0};
    add_status(&fields, &call->reply);
    nghttp2_submit_trailer(call->connection->session, call->stream, fields.list, fields.n);
    end_status(&fields, &call->reply);
}

ssize_t rpc_reply_read(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t room, uint32_t *flags,
                       nghttp2_data_source *source, void *connection)
{
    struct rpc_call *call = source->ptr;
    struct rpc_reply *reply = &call->reply;
    const struct rpc_out *out = reply->first;
    (void)session, (void)stream, (void)buffer, (void)connection;
    if (!out && (!reply->is_last || reply->is_closed)) {
        reply->is_waiting = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t left = out ? out->count - reply->at : 0, n = left < room ? left : room;
    *flags |= n ? NGHTTP2_DATA_FLAG_NO_COPY : 0;
    if (reply->is_last && n == left && (!out || !out->next)) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(call);
    }
    return (ssize_t)n;
}

/* A DATA frame: its head and `count` bytes of the first message go out. One at a time, for there is room for so many. */
int rpc_reply_send(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t count,
                   nghttp2_data_source *source, void *data)
{
    enum { HEAD_BYTES = 9 };
    struct rpc_http2 *http2 = &((struct rpc_connection *)data)->server->http2;
    struct rpc_reply *reply = &((struct rpc_call *)source->ptr)->reply;
    (void)session, (void)frame;
    memcpy(http2->out + http2->n_out, head, HEAD_BYTES);
    memcpy(http2->out + http2->n_out + HEAD_BYTES, reply->first->bytes + reply->at, count);
    http2->n_out += HEAD_BYTES + count;
    reply->at += count;
    if (reply->at == reply->first->count) {
        pop_message(reply);
        reply->has_drained = !reply->first;
    }
    return NGHTTP2_ERR_PAUSE;
}

/* --- what calls say -------------------------------------------------------------------------------------------------- */

/* libnghttp2 has something new to ask for. */
static void resume_stream(struct rpc_call *call)
{
    struct rpc_reply *reply = &call->reply;
    if (!reply->is_begun) {
        struct fields fields = {.n = 0};
        const nghttp2_data_provider provider = {.source.ptr = call, .read_callback = rpc_reply_read};
        add_head(&fields);
        nghttp2_submit_response(call->connection->session, call->stream, fields.list, fields.n, &provider);
        reply->is_begun = true;
    } else if (reply->is_waiting) {
        nghttp2_session_resume_data(call->connection->session, call->stream);
    }
    reply->is_waiting = false;
    rpc_connection_touch(call->connection);
}

void rpc_reply_add(struct rpc_call *call, struct rpc_out *out)
{
    struct rpc_reply *reply = &call->reply;
    if (!call->stream || reply->is_last) {
        destroy_out(out);
        return;
    }
    *reply->last = out;
    reply->last = &out->next;
    reply->n_out++;
    reply->has_drained = false;
    reply->largest_bytes = reply->largest_bytes < out->count ? out->count : reply->largest_bytes;
    resume_stream(call);
}

void rpc_reply_http(struct rpc_call *call, char *status)
{
    struct fields fields = {.n = 0};
    add_field(&fields, ":status", status, strlen(status), 0);
    call->reply.is_begun = call->reply.is_last = call->reply.is_closed = true;
    nghttp2_submit_response(call->connection->session, call->stream, fields.list, fields.n, NULL);
    rpc_connection_touch(call->connection);
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

void rpc_reply_end(struct rpc_call *call, const struct error *error)
{
    if (!call->stream || call->reply.is_last)
        return;
    set_status(&call->reply, error);
    if (call->reply.is_begun || call->reply.first)
        resume_stream(call);
    else
        submit_all(call);
}

void rpc_reply_abort(struct rpc_call *call, const struct error *error)
{
    rpc_reply_drop(call);
    if (!call->stream || call->reply.is_closed)
        return;
    set_status(&call->reply, error);
    if (!call->reply.is_begun)
        submit_all(call);
    else
        submit_trailers(call);
    rpc_connection_touch(call->connection);
}
