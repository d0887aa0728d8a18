/* See rpc_scene.h. */
#include "tests/support/rpc_scene.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "rpc/rpc_internal.h"

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

extern const unsigned char _binary_descriptor_set_binpb_start[], _binary_descriptor_set_binpb_end[];

struct rpc_scene rpc_scene;

static void on_resolve(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__ResolveRequest *request = (const void *)message;
    Tensorcast__Daemon__V1__ResolveResponse response = TENSORCAST__DAEMON__V1__RESOLVE_RESPONSE__INIT;
    char identity[64];
    (void)context;
    snprintf(identity, sizeof identity, "%llu",
             call->deadline_ns == UINT64_MAX ? 0 : (unsigned long long)(call->deadline_ns - clock_now_ns()));
    response.artifact = request->artifact;
    response.identity = identity;
    response.total_bytes = rpc_call_connection(call);
    response.unchanged = rpc_call_uid(call) == getuid();
    rpc_scene.handled++;
    rpc_call_reply(call, &response.base);
}

static void on_explain(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__ExplainRequest *request = (const void *)message;
    const char *what = request->load ? request->load->artifact : "";
    struct error error;
    unsigned ms = 0;
    (void)context;
    sscanf(what, "busy %u", &ms);
    for (uint64_t until_ns = clock_now_ns() + ms * UINT64_C(1000000); ms && clock_now_ns() < until_ns;)
        continue;
    rpc_scene.handled++;
    fail(&error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "%s", what);
    rpc_call_fail(call, &error);
}

static void on_prewarm(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__PrewarmRequest *request = (const void *)message;
    Tensorcast__Daemon__V1__PrewarmResponse response = TENSORCAST__DAEMON__V1__PREWARM_RESPONSE__INIT;
    Tensorcast__Daemon__V1__LoadReport report = TENSORCAST__DAEMON__V1__LOAD_REPORT__INIT;
    (void)context;
    size_t n_names = request->load && request->load->view ? request->load->view->n_names : 0;
    for (size_t i = 0; i < n_names; i++)
        report.view_bytes += strlen(request->load->view->names[i]);
    report.requests = n_names;
    response.report = &report;
    rpc_call_reply(call, &response.base);
}

static void end_cancelled(void *data)
{
    rpc_scene.cancels++;
    rpc_scene.held = NULL;
    rpc_call_end(data);
}

static void send_progress(struct rpc_call *call, uint64_t done_bytes, size_t stage_bytes)
{
    Tensorcast__Daemon__V1__MaterializeEvent event = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__INIT;
    Tensorcast__Daemon__V1__Progress progress = TENSORCAST__DAEMON__V1__PROGRESS__INIT;
    char *stage = memory_alloc(stage_bytes + 1);
    memset(stage, 'x', stage_bytes);
    progress.stage = stage;
    progress.done_bytes = done_bytes;
    event.event_case = TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_PROGRESS;
    event.progress = &progress;
    rpc_call_send(call, &event.base);
    rpc_scene.sent++;
    free(stage);
}

static void on_materialize(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__MaterializeRequest *request = (const void *)message;
    const char *what = request->load ? request->load->artifact : "";
    int count = 0;
    (void)context;
    if (sscanf(what, "count %d", &count) == 1) {
        for (int i = 0; i < count; i++)
            send_progress(call, (uint64_t)i, 1);
        rpc_call_end(call);
        return;
    }
    rpc_scene.hung++;
    rpc_call_on_cancel(call, end_cancelled, call);
    rpc_scene.held = call;
    if (sscanf(what, "flood %d", &count) == 1)
        for (int i = 0; i < count && rpc_scene.held; i++)
            send_progress(call, (uint64_t)i, 1 << 20);
    else
        send_progress(call, 0, 1); /* so that the client knows it is running */
}

static void on_plain(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__ReleaseResponse response = TENSORCAST__DAEMON__V1__RELEASE_RESPONSE__INIT;
    (void)message, (void)context;
    rpc_call_reply(call, &response.base);
}

static void on_status(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    Tensorcast__Daemon__V1__StatusResponse response = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    const struct rpc_fixture *served = context;
    (void)message;
    response.connections = rpc_server_connections(served->server);
    rpc_call_reply(call, &response.base);
}

enum { CHUNK_BYTES = 64 << 10 };

/* Sends as many messages as `artifact` says, each when the one before was written. */
struct paced {
    struct rpc_call *call;
    uint32_t at, count;
    size_t bytes; /* of each */
    bool cancelled;
};

static void send_paced(void *data)
{
    static unsigned char content[CHUNK_BYTES];
    struct paced *paced = data;
    Tensorcast__Daemon__V1__SidecarEvent event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarChunk chunk = TENSORCAST__DAEMON__V1__SIDECAR_CHUNK__INIT;
    if (paced->cancelled || paced->at == paced->count) {
        rpc_scene.cancels += paced->cancelled;
        rpc_call_end(paced->call);
        free(paced);
        return;
    }
    chunk.file = paced->at++;
    chunk.data = (ProtobufCBinaryData){paced->bytes, content};
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK;
    event.chunk = &chunk;
    rpc_call_on_idle(paced->call, send_paced, paced);
    rpc_call_send(paced->call, &event.base);
    rpc_scene.sent++;
}

static void pace_cancelled(void *data)
{
    ((struct paced *)data)->cancelled = true;
}

static void on_paced(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__FetchSidecarsRequest *request = (const void *)message;
    struct paced *paced = memory_alloc(sizeof *paced);
    (void)context;
    paced->call = call;
    paced->count = (uint32_t)strtoul(request->artifact, NULL, 10);
    paced->bytes = strstr(request->artifact, "small") ? 1 : CHUNK_BYTES;
    rpc_call_on_cancel(call, pace_cancelled, paced);
    send_paced(paced);
}

#define ROW(name_, streams_, fn)                                                                                            \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__store_daemon__descriptor, .name = (name_), .streams = (streams_),               \
        .handle = (fn)                                                                                                      \
    }
static const struct rpc_method methods[] = {
    ROW("Resolve", false, on_resolve),
    ROW("Explain", false, on_explain),
    ROW("Materialize", true, on_materialize),
    ROW("Prewarm", false, on_prewarm),
    ROW("FetchSidecars", true, on_paced),
    ROW("Verify", false, on_plain),
    ROW("Unpin", false, on_plain),
    ROW("MakeFolder", true, on_plain),
    ROW("Blame", false, on_plain),
    {&tensorcast__daemon__v1__store_daemon__descriptor, "Release", false, on_plain, true, false},
    {&tensorcast__daemon__v1__store_daemon__descriptor, "Status", false, on_status, true, true},
};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

static void on_disconnect(void *context, uint64_t connection)
{
    (void)context;
    rpc_scene.last_disconnect = connection;
    rpc_scene.disconnects++;
}

void rpc_scene_prepare(void)
{
    memset(&rpc_scene, 0, sizeof rpc_scene);
    rpc_fixture_prepare(&rpc_scene.fixture, methods, N_METHODS, &rpc_scene.fixture);
    rpc_scene.fixture.options.descriptor_set = _binary_descriptor_set_binpb_start;
    rpc_scene.fixture.options.descriptor_set_bytes =
        (size_t)(_binary_descriptor_set_binpb_end - _binary_descriptor_set_binpb_start);
    rpc_scene.fixture.options.on_disconnect = on_disconnect;
}

void rpc_scene_launch(void)
{
    struct error error;
    if (rpc_fixture_start(&rpc_scene.fixture, &error))
        abort();
    rpc_fixture_ready(&rpc_scene.fixture);
    rpc_scene.channel = raw_channel(rpc_scene.fixture.socket, NULL, 0);
}

int rpc_scene_start(void **state)
{
    (void)state;
    grpc_init();
    rpc_scene_prepare();
    rpc_scene_launch();
    return 0;
}

int rpc_scene_stop(void **state)
{
    (void)state;
    grpc_channel_destroy(rpc_scene.channel);
    rpc_fixture_stop(&rpc_scene.fixture);
    grpc_shutdown_blocking();
    return 0;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

struct raw_bytes rpc_scene_pack(const ProtobufCMessage *message)
{
    struct raw_bytes bytes = {memory_alloc(protobuf_c_message_get_packed_size(message) + 1),
                              protobuf_c_message_get_packed_size(message)};
    protobuf_c_message_pack(message, bytes.data);
    return bytes;
}

struct raw_bytes rpc_scene_resolve_message(const char *artifact)
{
    Tensorcast__Daemon__V1__ResolveRequest request = TENSORCAST__DAEMON__V1__RESOLVE_REQUEST__INIT;
    request.artifact = (char *)artifact;
    return rpc_scene_pack(&request.base);
}

/* Explain, Prewarm and Materialize requests are all the same on the wire. */
struct raw_bytes rpc_scene_load_message(const char *artifact, Tensorcast__Daemon__V1__View *view)
{
    Tensorcast__Daemon__V1__LoadRequest load = TENSORCAST__DAEMON__V1__LOAD_REQUEST__INIT;
    Tensorcast__Daemon__V1__PrewarmRequest request = TENSORCAST__DAEMON__V1__PREWARM_REQUEST__INIT;
    load.artifact = (char *)artifact;
    load.view = view;
    request.load = &load;
    return rpc_scene_pack(&request.base);
}

int rpc_scene_resolve(grpc_channel *on, const char *artifact, Tensorcast__Daemon__V1__ResolveResponse **response)
{
    struct raw_bytes message = rpc_scene_resolve_message(artifact), reply;
    int code = raw_unary(on, SERVICE "Resolve", message.data, message.count, &reply, NULL);
    free(message.data);
    *response = reply.data ? tensorcast__daemon__v1__resolve_response__unpack(NULL, reply.count, reply.data) : NULL;
    free(reply.data);
    return code;
}

uint64_t rpc_scene_connection(grpc_channel *on)
{
    Tensorcast__Daemon__V1__ResolveResponse *response;
    if (rpc_scene_resolve(on, "x", &response))
        abort();
    uint64_t id = response->total_bytes;
    tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
    return id;
}

struct raw_call *rpc_scene_start_load(const char *artifact, uint64_t timeout_ms)
{
    struct raw_bytes message = rpc_scene_load_message(artifact, NULL);
    struct raw_call *call = raw_start(rpc_scene.channel, SERVICE "Materialize", message.data, message.count, timeout_ms);
    free(message.data);
    return call;
}

void rpc_scene_receive(struct raw_call *call)
{
    struct raw_bytes bytes;
    if (!raw_receive(call, &bytes))
        abort();
    free(bytes.data);
}

bool rpc_scene_has_one_cancel(void *data)
{
    (void)data;
    return rpc_scene.cancels == 1;
}

void rpc_scene_assert_serves(void)
{
    Tensorcast__Daemon__V1__ResolveResponse *response;
    if (rpc_scene_resolve(rpc_scene.channel, "still there?", &response))
        abort();
    tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
}

int rpc_scene_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) {
        close(fd);
        return -1;
    }
    return fd;
}
