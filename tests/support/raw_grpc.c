/* See raw_grpc.h. */
#include "tests/support/raw_grpc.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct raw_call {
    grpc_call *call;
    grpc_completion_queue *queue;
    grpc_metadata_array header, trailer;
    grpc_status_code code;
    grpc_slice message;
    bool header_received;
};

grpc_channel *raw_channel(const char *socket, const grpc_arg *extra, size_t n_extra)
{
    char target[128];
    grpc_arg args[8] = {{.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, .value.integer = 1},
                        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, .value.integer = -1}};
    for (size_t i = 0; i < n_extra; i++)
        args[2 + i] = extra[i];
    const grpc_channel_args channel_args = {2 + n_extra, args};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    snprintf(target, sizeof target, "unix:%s", socket);
    grpc_channel *channel = grpc_channel_create(target, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static bool batch(struct raw_call *call, const grpc_op *ops, size_t n_ops)
{
    static char tag;
    if (grpc_call_start_batch(call->call, ops, n_ops, &tag, NULL) != GRPC_CALL_OK)
        abort();
    grpc_event event = grpc_completion_queue_pluck(call->queue, &tag, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    return event.success;
}

struct raw_call *raw_open(grpc_channel *channel, const char *path, uint64_t timeout_ms)
{
    struct raw_call *call = memory_alloc(sizeof *call);
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis((int64_t)timeout_ms, GPR_TIMESPAN));
    if (!timeout_ms)
        deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_slice method = grpc_slice_from_copied_string(path);
    call->queue = grpc_completion_queue_create_for_pluck(NULL);
    call->call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, call->queue, method, NULL, deadline, NULL);
    grpc_slice_unref(method);
    grpc_metadata_array_init(&call->header);
    grpc_metadata_array_init(&call->trailer);
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    batch(call, &op, 1);
    return call;
}

void raw_send(struct raw_call *call, const void *message, size_t count)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(message, count);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = buffer;
    batch(call, &op, 1);
    grpc_byte_buffer_destroy(buffer);
    grpc_slice_unref(slice);
}

void raw_half_close(struct raw_call *call)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    batch(call, &op, 1);
}

struct raw_call *raw_start(grpc_channel *channel, const char *path, const void *message, size_t count, uint64_t timeout_ms)
{
    struct raw_call *call = raw_open(channel, path, timeout_ms);
    raw_send(call, message, count);
    raw_half_close(call);
    return call;
}

bool raw_receive(struct raw_call *call, struct raw_bytes *bytes)
{
    grpc_byte_buffer *buffer = NULL;
    grpc_byte_buffer_reader reader;
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[0].data.recv_message.recv_message = &buffer;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &call->header;
    batch(call, ops, call->header_received ? 1 : 2);
    call->header_received = true;
    if (!buffer)
        return false;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        abort();
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    bytes->count = GRPC_SLICE_LENGTH(all);
    bytes->data = memory_alloc(bytes->count + 1);
    memcpy(bytes->data, GRPC_SLICE_START_PTR(all), bytes->count);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(buffer);
    return true;
}

void raw_cancel(struct raw_call *call)
{
    grpc_call_cancel(call->call, NULL);
}

int raw_finish(struct raw_call *call, char **message, struct raw_bytes *details)
{
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_STATUS_ON_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[0].data.recv_status_on_client.status = &call->code;
    ops[0].data.recv_status_on_client.status_details = &call->message;
    ops[0].data.recv_status_on_client.trailing_metadata = &call->trailer;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &call->header;
    batch(call, ops, call->header_received ? 1 : 2); /* no status arrives before the header is taken */
    int code = (int)call->code;
    if (message) {
        *message = memory_alloc(GRPC_SLICE_LENGTH(call->message) + 1);
        memcpy(*message, GRPC_SLICE_START_PTR(call->message), GRPC_SLICE_LENGTH(call->message));
    }
    if (details)
        *details = (struct raw_bytes){0};
    for (size_t i = 0; details && i < call->trailer.count; i++) {
        grpc_slice value = call->trailer.metadata[i].value;
        if (grpc_slice_str_cmp(call->trailer.metadata[i].key, "grpc-status-details-bin") == 0)
            *details = (struct raw_bytes){memory_copy(GRPC_SLICE_START_PTR(value), GRPC_SLICE_LENGTH(value)),
                                          GRPC_SLICE_LENGTH(value)};
    }
    grpc_slice_unref(call->message);
    grpc_metadata_array_destroy(&call->header);
    grpc_metadata_array_destroy(&call->trailer);
    grpc_call_unref(call->call);
    grpc_completion_queue_shutdown(call->queue);
    grpc_completion_queue_destroy(call->queue);
    free(call);
    return code;
}

int raw_unary(grpc_channel *channel, const char *path, const void *message, size_t count, struct raw_bytes *reply,
              char **text)
{
    struct raw_bytes got = {0};
    struct raw_call *call = raw_start(channel, path, message, count, 30000);
    raw_receive(call, &got);
    if (reply)
        *reply = got;
    else
        free(got.data);
    return raw_finish(call, text, NULL);
}
