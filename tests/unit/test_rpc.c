/* The gRPC server against a genuine gRPC client: calls, errors, limits, cancels, connections, health, reflection, drain.
 * The handlers do what the artifact of a request says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#undef fail /* ours is in base/error.h */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "google/rpc/status.pb-c.h"
#include "grpc_health/v1/health.pb-c.h"
#include "grpc_reflection/v1/reflection.pb-c.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "tests/support/rpc_fixture.h"

#define SERVICE "/tensorcast.daemon.v1.StoreDaemon/"
extern const unsigned char _binary_descriptor_set_binpb_start[], _binary_descriptor_set_binpb_end[];

static struct {
    _Atomic int cancels, disconnects, handled;
    _Atomic uint64_t last_disconnect;
    struct rpc_call *_Atomic held; /* loop thread ends it */
    _Atomic int sent, hung;
} seen;

static void on_resolve(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__ResolveRequest *request = (const void *)message;
    Tensorcast__Daemon__V1__ResolveResponse response = TENSORCAST__DAEMON__V1__RESOLVE_RESPONSE__INIT;
    char identity[64];
    (void)context;
    uint64_t deadline = rpc_call_deadline_ns(call);
    snprintf(identity, sizeof identity, "%llu",
             deadline == UINT64_MAX ? 0 : (unsigned long long)(deadline - clock_now_ns()));
    response.artifact = request->artifact;
    response.identity = identity;
    response.total_bytes = rpc_call_connection(call);
    response.unchanged = rpc_call_uid(call) == getuid();
    seen.handled++;
    rpc_call_reply(call, &response.base);
}

static void on_explain(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__ExplainRequest *request = (const void *)message;
    struct error error;
    (void)context;
    fail(&error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "%s", request->load ? request->load->artifact : "");
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
    seen.cancels++;
    seen.held = NULL;
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
    seen.sent++;
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
    seen.hung++;
    rpc_call_on_cancel(call, end_cancelled, call);
    seen.held = call;
    if (sscanf(what, "flood %d", &count) == 1)
        for (int i = 0; i < count && seen.held; i++)
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
    struct rpc_fixture *fixture = context;
    (void)message;
    response.connections = rpc_server_connections(fixture->server);
    rpc_call_reply(call, &response.base);
}

/* Sends as many messages as `artifact` says, each when the one before was written. */
struct paced {
    struct rpc_call *call;
    uint32_t at, count;
    bool cancelled;
};

static void send_paced(void *data)
{
    static unsigned char content[64 << 10];
    struct paced *paced = data;
    Tensorcast__Daemon__V1__SidecarEvent event = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__INIT;
    Tensorcast__Daemon__V1__SidecarChunk chunk = TENSORCAST__DAEMON__V1__SIDECAR_CHUNK__INIT;
    if (paced->cancelled || paced->at == paced->count) {
        seen.cancels += paced->cancelled;
        rpc_call_end(paced->call);
        free(paced);
        return;
    }
    chunk.file = paced->at++;
    chunk.data = (ProtobufCBinaryData){sizeof content, content};
    event.event_case = TENSORCAST__DAEMON__V1__SIDECAR_EVENT__EVENT_CHUNK;
    event.chunk = &chunk;
    rpc_call_on_idle(paced->call, send_paced, paced);
    rpc_call_send(paced->call, &event.base);
    seen.sent++;
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
    rpc_call_on_cancel(call, pace_cancelled, paced);
    send_paced(paced);
}

#define ROW(name, streams, handle)                                                                                          \
    {                                                                                                                       \
        &tensorcast__daemon__v1__store_daemon__descriptor, name, streams, handle                                            \
    }
static const struct rpc_method methods[] = {
    ROW("Resolve", false, on_resolve), ROW("Explain", false, on_explain), ROW("Materialize", true, on_materialize),
    ROW("Prewarm", false, on_prewarm), ROW("Release", false, on_plain),   ROW("FetchSidecars", true, on_paced),
    ROW("Verify", false, on_plain),    ROW("Status", false, on_status),
};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

static void on_disconnect(void *context, uint64_t connection)
{
    (void)context;
    seen.last_disconnect = connection;
    seen.disconnects++;
}

static struct rpc_fixture fixture;
static grpc_channel *channel;

static void prepare(void)
{
    memset(&seen, 0, sizeof seen);
    rpc_fixture_prepare(&fixture, methods, N_METHODS, &fixture);
    fixture.options.descriptor_set = _binary_descriptor_set_binpb_start;
    fixture.options.descriptor_set_bytes = (size_t)(_binary_descriptor_set_binpb_end - _binary_descriptor_set_binpb_start);
    fixture.options.on_disconnect = on_disconnect;
}

static void launch(void)
{
    struct error error;
    assert_int_equal(rpc_fixture_start(&fixture, &error), 0);
    rpc_fixture_ready(&fixture);
    channel = raw_channel(fixture.socket, NULL, 0);
}

static int start_server(void **state)
{
    (void)state;
    grpc_init();
    prepare();
    launch();
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    grpc_channel_destroy(channel);
    rpc_fixture_stop(&fixture);
    grpc_shutdown_blocking();
    return 0;
}

/* --- messages ---------------------------------------------------------------------------------------------------- */

static struct raw_bytes pack(const ProtobufCMessage *message)
{
    struct raw_bytes bytes = {memory_alloc(protobuf_c_message_get_packed_size(message) + 1),
                              protobuf_c_message_get_packed_size(message)};
    protobuf_c_message_pack(message, bytes.data);
    return bytes;
}

static struct raw_bytes resolve_message(const char *artifact)
{
    Tensorcast__Daemon__V1__ResolveRequest request = TENSORCAST__DAEMON__V1__RESOLVE_REQUEST__INIT;
    request.artifact = (char *)artifact;
    return pack(&request.base);
}

/* Explain, Prewarm and Materialize requests are all the same on the wire. */
static struct raw_bytes load_message(const char *artifact, Tensorcast__Daemon__V1__View *view)
{
    Tensorcast__Daemon__V1__LoadRequest load = TENSORCAST__DAEMON__V1__LOAD_REQUEST__INIT;
    Tensorcast__Daemon__V1__PrewarmRequest request = TENSORCAST__DAEMON__V1__PREWARM_REQUEST__INIT;
    load.artifact = (char *)artifact;
    load.view = view;
    request.load = &load;
    return pack(&request.base);
}

static int resolve_on(grpc_channel *on, const char *artifact, Tensorcast__Daemon__V1__ResolveResponse **response)
{
    struct raw_bytes message = resolve_message(artifact), reply;
    int code = raw_unary(on, SERVICE "Resolve", message.data, message.count, &reply, NULL);
    free(message.data);
    *response = reply.data ? tensorcast__daemon__v1__resolve_response__unpack(NULL, reply.count, reply.data) : NULL;
    free(reply.data);
    return code;
}

static uint64_t connection_of(grpc_channel *on)
{
    Tensorcast__Daemon__V1__ResolveResponse *response;
    assert_int_equal(resolve_on(on, "x", &response), 0);
    uint64_t id = response->total_bytes;
    tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
    return id;
}

static struct raw_call *start_load(const char *artifact, uint64_t timeout_ms)
{
    struct raw_bytes message = load_message(artifact, NULL);
    struct raw_call *call = raw_start(channel, SERVICE "Materialize", message.data, message.count, timeout_ms);
    free(message.data);
    return call;
}

static void receive_one(struct raw_call *call)
{
    struct raw_bytes bytes;
    assert_true(raw_receive(call, &bytes));
    free(bytes.data);
}

static bool one_cancel(void *data)
{
    (void)data;
    return seen.cancels == 1;
}

static void assert_serves(void)
{
    Tensorcast__Daemon__V1__ResolveResponse *response;
    assert_int_equal(resolve_on(channel, "still there?", &response), 0);
    tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
}

/* --- calls ------------------------------------------------------------------------------------------------------- */

static void a_unary_call_gets_its_reply_and_tells_who_called(void **state)
{
    Tensorcast__Daemon__V1__ResolveResponse *response;
    (void)state;
    assert_int_equal(resolve_on(channel, "disk:/modèle", &response), 0);
    assert_string_equal(response->artifact, "disk:/modèle");
    assert_true(response->unchanged); /* the uid is ours */
    assert_true(response->total_bytes > 0);
    tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
}

static void a_stream_delivers_its_messages_in_order_and_then_ok(void **state)
{
    struct raw_bytes bytes;
    (void)state;
    struct raw_call *call = start_load("count 9", 0);
    for (uint64_t i = 0; i < 9; i++) {
        assert_true(raw_receive(call, &bytes));
        Tensorcast__Daemon__V1__MaterializeEvent *event =
            tensorcast__daemon__v1__materialize_event__unpack(NULL, bytes.count, bytes.data);
        assert_int_equal(event->progress->done_bytes, i);
        tensorcast__daemon__v1__materialize_event__free_unpacked(event, NULL);
        free(bytes.data);
    }
    assert_false(raw_receive(call, &bytes));
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
}

static void an_error_arrives_with_code_message_and_error_info(void **state)
{
    struct raw_bytes message = load_message("no tensor \"wäight\"", NULL), details;
    char *text;
    (void)state;
    struct raw_call *call = raw_start(channel, SERVICE "Explain", message.data, message.count, 0);
    assert_int_equal(raw_finish(call, &text, &details), ERROR_NOT_FOUND);
    assert_string_equal(text, "no tensor \"wäight\"");
    Google__Rpc__Status *status = google__rpc__status__unpack(NULL, details.count, details.data);
    assert_int_equal(status->code, ERROR_NOT_FOUND);
    assert_string_equal(status->message, text);
    assert_int_equal(status->n_details, 1);
    assert_string_equal(status->details[0]->type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
    assert_string_equal(info->reason, "TENSOR_NOT_FOUND");
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
    free(text);
    free(details.data);
    free(message.data);
}

static void the_longest_error_keeps_its_code(void **state)
{
    char name[4000];
    char *text;
    (void)state;
    for (size_t i = 0; i + 2 < sizeof name; i += 2)
        memcpy(name + i, "é", 2); /* three bytes each in a trailer */
    name[sizeof name - 2] = '\0';
    struct raw_bytes message = load_message(name, NULL);
    assert_int_equal(raw_unary(channel, SERVICE "Explain", message.data, message.count, NULL, &text), ERROR_NOT_FOUND);
    assert_true(strlen(text) > 900 && strlen(text) < 1024);
    free(text);
    free(message.data);
}

static void unknown_methods_are_unimplemented_every_time(void **state)
{
    static const char *const paths[] = {SERVICE "NoSuchMethod", SERVICE "resolve", "/no.such.Service/Method", "/x", "/"};
    (void)state;
    for (int round = 0; round < 8; round++)
        for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
            assert_int_equal(raw_unary(channel, paths[i], "", 0, NULL, NULL), ERROR_UNIMPLEMENTED);
    assert_serves();
}

static void bytes_that_are_no_message_are_invalid(void **state)
{
    static const struct raw_bytes bad[] = {{(void *)"\xff\xff\xff", 3},
                                           {(void *)"\x0a\xff\xff\xff\xff\x0f", 6},
                                           {(void *)"\x0a\x03\xc3\x28z", 5},
                                           {(void *)"\x0a\x03"
                                                    "a\0b",
                                            5}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(raw_unary(channel, SERVICE "Resolve", bad[i].data, bad[i].count, NULL, NULL),
                         ERROR_INVALID_ARGUMENT);
    assert_int_equal(seen.handled, 0);
}

static void a_request_without_a_message_is_invalid(void **state)
{
    (void)state;
    struct raw_call *call = raw_open(channel, SERVICE "Resolve", 0);
    raw_half_close(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_INVALID_ARGUMENT);
}

static void the_deadline_reaches_the_handler(void **state)
{
    struct raw_bytes message = resolve_message("x"), reply;
    (void)state;
    for (uint64_t timeout_ms = 0; timeout_ms <= 3600000; timeout_ms += 3600000) {
        struct raw_call *call = raw_start(channel, SERVICE "Resolve", message.data, message.count, timeout_ms);
        assert_true(raw_receive(call, &reply));
        assert_int_equal(raw_finish(call, NULL, NULL), 0);
        Tensorcast__Daemon__V1__ResolveResponse *response =
            tensorcast__daemon__v1__resolve_response__unpack(NULL, reply.count, reply.data);
        uint64_t left_ns = strtoull(response->identity, NULL, 10);
        assert_true(timeout_ms ? left_ns > 3000000000000u && left_ns < 3700000000000u /* gRPC rounds up */ : left_ns == 0);
        tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
        free(reply.data);
    }
    free(message.data);
}

/* --- limits ------------------------------------------------------------------------------------------------------ */

static void a_message_above_the_limit_is_exhausted_and_one_below_is_not(void **state)
{
    size_t limit = 4 << 20;
    char *text = memory_alloc(limit + 1);
    (void)state;
    memset(text, 'a', limit);
    text[limit - 8] = '\0'; /* 5 bytes of tag and length */
    struct raw_bytes fits = resolve_message(text);
    assert_int_equal(raw_unary(channel, SERVICE "Resolve", fits.data, fits.count, NULL, NULL), 0);
    text[limit - 8] = 'a';
    struct raw_bytes large = resolve_message(text);
    assert_true(fits.count <= limit && large.count > limit);
    assert_int_equal(raw_unary(channel, SERVICE "Resolve", large.data, large.count, NULL, NULL), ERROR_RESOURCE_EXHAUSTED);
    assert_serves();
    free(fits.data);
    free(large.data);
    free(text);
}

static void compressed_messages_are_refused_before_they_are_inflated(void **state)
{
    grpc_arg gzip = {
        .type = GRPC_ARG_INTEGER, .key = GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM, .value.integer = GRPC_COMPRESS_GZIP};
    char *text = memory_alloc((1 << 20) + 1);
    (void)state;
    memset(text, 'a', 1 << 20);
    struct raw_bytes message = resolve_message(text);
    grpc_channel *squeezing = raw_channel(fixture.socket, &gzip, 1);
    assert_int_equal(raw_unary(squeezing, SERVICE "Resolve", message.data, message.count, NULL, NULL), ERROR_UNIMPLEMENTED);
    assert_int_equal(seen.handled, 0);
    grpc_channel_destroy(squeezing);
    free(message.data);
    free(text);
}

static void a_hundred_thousand_names_arrive_whole(void **state)
{
    enum { N = 100000 };
    char **names = memory_alloc_array(N, sizeof *names), (*texts)[24] = memory_alloc_array(N, sizeof *texts);
    Tensorcast__Daemon__V1__View view = TENSORCAST__DAEMON__V1__VIEW__INIT;
    struct raw_bytes reply;
    uint64_t total = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        total += (uint64_t)snprintf(texts[i], sizeof *texts, "t.%d", i);
        names[i] = texts[i];
    }
    view.names = names;
    view.n_names = N;
    struct raw_bytes message = load_message("x", &view);
    assert_int_equal(raw_unary(channel, SERVICE "Prewarm", message.data, message.count, &reply, NULL), 0);
    Tensorcast__Daemon__V1__PrewarmResponse *response =
        tensorcast__daemon__v1__prewarm_response__unpack(NULL, reply.count, reply.data);
    assert_int_equal(response->report->requests, N);
    assert_int_equal(response->report->view_bytes, total);
    tensorcast__daemon__v1__prewarm_response__free_unpacked(response, NULL);
    free(reply.data);
    free(message.data);
    free(texts);
    free(names);
}

static void a_client_that_does_not_read_is_cut_off_when_its_queue_is_full(void **state)
{
    struct raw_bytes bytes;
    char *text;
    (void)state;
    struct raw_call *call = start_load("flood 64", 0);
    rpc_fixture_await(one_cancel, NULL, "the flooding handler is cancelled");
    assert_true(seen.sent >= 16);
    while (raw_receive(call, &bytes))
        free(bytes.data);
    assert_int_equal(raw_finish(call, &text, NULL), ERROR_RESOURCE_EXHAUSTED);
    free(text);
    assert_serves();
}

static struct raw_call *start_paced(const char *count)
{
    unsigned char bytes[64];
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    request.artifact = (char *)count;
    size_t n_bytes = tensorcast__daemon__v1__fetch_sidecars_request__pack(&request, bytes);
    return raw_start(channel, SERVICE "FetchSidecars", bytes, n_bytes, 0);
}

static void a_stream_that_waits_until_it_is_idle_may_be_of_any_length(void **state)
{
    struct raw_bytes bytes;
    uint32_t n_messages = 0;
    (void)state;
    struct raw_call *call = start_paced("300");
    while (raw_receive(call, &bytes)) {
        n_messages++;
        free(bytes.data);
    }
    assert_int_equal(n_messages, 300);
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
}

static void a_stream_that_waits_until_it_is_idle_hears_of_a_client_that_left(void **state)
{
    (void)state;
    struct raw_call *call = start_paced("4000000000");
    receive_one(call);
    raw_cancel(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_CANCELLED);
    rpc_fixture_await(one_cancel, NULL, "the handler ends");
    assert_serves();
}

/* --- cancels ----------------------------------------------------------------------------------------------------- */

static void a_cancelled_call_tells_its_handler_once(void **state)
{
    (void)state;
    struct raw_call *call = start_load("hang", 0);
    receive_one(call);
    raw_cancel(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_CANCELLED);
    rpc_fixture_await(one_cancel, NULL, "on_cancel runs");
    assert_serves();
    assert_int_equal(seen.cancels, 1);
}

static void a_passed_deadline_tells_the_handler(void **state)
{
    (void)state;
    for (uint64_t timeout_ms = 50; !seen.hung; timeout_ms *= 4) { /* a slow machine may need more to get there */
        struct raw_call *call = start_load("hang", timeout_ms);
        assert_int_equal(raw_finish(call, NULL, NULL), ERROR_DEADLINE_EXCEEDED);
        assert_serves();
    }
    rpc_fixture_await(one_cancel, NULL, "on_cancel runs");
}

static void fail_on_loop(struct rpc_fixture *of, void *data)
{
    struct error error;
    (void)of, (void)data;
    fail(&error, ERROR_DATA_LOSS, "TORN", "half of it");
    rpc_call_fail(seen.held, &error);
}

static void a_handler_may_fail_a_stream_later(void **state)
{
    (void)state;
    struct raw_call *call = start_load("hang", 0);
    receive_one(call);
    rpc_fixture_on_loop(&fixture, fail_on_loop, NULL);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_DATA_LOSS);
    assert_serves();
    assert_int_equal(seen.cancels, 0);
}

static struct rpc_call *late;

static void take_over(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    late = seen.held;
    rpc_call_on_cancel(late, NULL, NULL); /* nobody is told */
}

static void register_late(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    rpc_call_on_cancel(late, end_cancelled, late);
}

static void on_cancel_registered_too_late_still_runs(void **state)
{
    (void)state;
    struct raw_call *call = start_load("hang", 0);
    receive_one(call);
    rpc_fixture_on_loop(&fixture, take_over, NULL);
    raw_cancel(call);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_CANCELLED);
    assert_serves(); /* on the same connection, so the cancel has been read */
    rpc_fixture_on_loop(&fixture, register_late, NULL);
    rpc_fixture_await(one_cancel, NULL, "on_cancel runs");
}

/* --- connections ------------------------------------------------------------------------------------------------- */

static bool disconnected(void *data)
{
    return seen.disconnects == *(int *)data;
}

static void calls_know_their_connection_and_its_end_is_reported(void **state)
{
    int one = 1;
    (void)state;
    grpc_channel *other = raw_channel(fixture.socket, NULL, 0);
    uint64_t mine = connection_of(channel), theirs = connection_of(other);
    assert_true(mine && theirs && mine != theirs);
    assert_int_equal(connection_of(channel), mine);
    assert_int_equal(connection_of(other), theirs);
    grpc_channel_destroy(other);
    rpc_fixture_await(disconnected, &one, "the end of a connection");
    assert_int_equal(seen.last_disconnect, theirs);
    assert_int_equal(connection_of(channel), mine);
}

static void a_lost_connection_cancels_its_calls(void **state)
{
    struct raw_bytes message = load_message("hang", NULL);
    (void)state;
    fflush(NULL);
    grpc_channel *other = raw_channel(fixture.socket, NULL, 0);
    struct raw_call *call = raw_start(other, SERVICE "Materialize", message.data, message.count, 0);
    receive_one(call);
    assert_true(seen.held != NULL);
    raw_cancel(call);
    raw_finish(call, NULL, NULL);
    grpc_channel_destroy(other);
    rpc_fixture_await(one_cancel, NULL, "on_cancel runs");
    free(message.data);
}

static int plain_connect(const char *path)
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

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

struct crowd {
    int fds[40];
    size_t closed;
};

static bool surplus_is_closed(void *data)
{
    struct crowd *crowd = data;
    size_t closed = 0;
    for (size_t i = 0; i < 40; i++)
        closed += is_closed(crowd->fds[i]);
    return closed == crowd->closed;
}

static void no_disconnect(struct rpc_fixture *of, void *count)
{
    (void)of;
    *(uint64_t *)count = rpc_server_connections(fixture.server);
}

static bool nobody_is_connected(void *data)
{
    uint64_t count;
    (void)data;
    rpc_fixture_on_loop(&fixture, no_disconnect, &count);
    return count == 0;
}

static void set_limit(struct rpc_fixture *of, void *limit)
{
    rpc_server_set_limits(of->server, *(uint64_t *)limit);
}

static void one_uid_has_no_more_connections_than_allowed(void **state)
{
    struct crowd crowd = {.closed = 32};
    uint64_t limit = 8;
    (void)state;
    rpc_fixture_on_loop(&fixture, set_limit, &limit);
    for (size_t i = 0; i < 40; i++)
        crowd.fds[i] = plain_connect(fixture.socket);
    rpc_fixture_await(surplus_is_closed, &crowd, "exactly the surplus is closed");
    assert_int_equal(raw_unary(channel, SERVICE "Status", "", 0, NULL, NULL), ERROR_UNAVAILABLE);
    for (size_t i = 0; i < 40; i++)
        close(crowd.fds[i]);
    rpc_fixture_await(nobody_is_connected, NULL, "hang-ups are counted");
    grpc_channel *later = raw_channel(fixture.socket, NULL, 0);
    assert_true(connection_of(later) > 0);
    grpc_channel_destroy(later);
}

static void garbage_and_silence_harm_nobody(void **state)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    char zeros[70000] = {0};
    int silent = plain_connect(fixture.socket), noisy = plain_connect(fixture.socket), torn = plain_connect(fixture.socket);
    (void)state;
    assert_true(send(noisy, zeros, sizeof zeros, MSG_NOSIGNAL) > 0);
    assert_true(send(torn, preface, sizeof preface, MSG_NOSIGNAL) > 0);
    assert_serves();
    close(silent);
    close(noisy);
    close(torn);
    assert_serves();
}

static size_t open_descriptors(void)
{
    size_t n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static bool descriptors_are_back(void *data)
{
    return open_descriptors() <= *(size_t *)data;
}

static void connections_that_come_and_go_leave_no_descriptor_behind(void **state)
{
    (void)state;
    assert_serves();
    size_t before = open_descriptors();
    for (int i = 0; i < 200; i++) {
        int fd = plain_connect(fixture.socket);
        assert_true(fd >= 0);
        close(fd);
    }
    rpc_fixture_await(descriptors_are_back, &before, "descriptors are closed");
    assert_serves();
}

/* Connects from a process of its own, whose descriptors do not count. */
static pid_t crowd_of(int n, const char *path, int ready[2])
{
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child)
        return child;
    char done = 1;
    for (int i = 0; i < n; i++)
        plain_connect(path);
    if (write(ready[1], &done, 1) != 1)
        _exit(1);
    pause();
    _exit(0);
}

static void running_out_of_descriptors_is_survived(void **state)
{
    struct rlimit old, tight;
    int ready[2];
    char done;
    (void)state;
    assert_serves();
    getrlimit(RLIMIT_NOFILE, &old);
    tight = old;
    tight.rlim_cur = open_descriptors() + 24;
    setrlimit(RLIMIT_NOFILE, &tight);
    pid_t child = crowd_of(60, fixture.socket, ready);
    assert_int_equal(read(ready[0], &done, 1), 1);
    assert_serves(); /* on the connection that exists */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_serves();
    grpc_channel *fresh = raw_channel(fixture.socket, NULL, 0);
    uint64_t id = 0;
    for (int i = 0; i < 100 && !id; i++) { /* the accept loop may be resting */
        Tensorcast__Daemon__V1__ResolveResponse *response;
        if (resolve_on(fresh, "x", &response) == 0) {
            id = response->total_bytes;
            tensorcast__daemon__v1__resolve_response__free_unpacked(response, NULL);
        }
    }
    assert_true(id > 0);
    grpc_channel_destroy(fresh);
}

/* --- health and reflection --------------------------------------------------------------------------------------- */

static int check_health(const char *service, int *status)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    struct raw_bytes reply;
    request.service = (char *)service;
    struct raw_bytes message = pack(&request.base);
    int code = raw_unary(channel, "/grpc.health.v1.Health/Check", message.data, message.count, &reply, NULL);
    free(message.data);
    if (code)
        return code;
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, reply.count, reply.data);
    *status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    free(reply.data);
    return 0;
}

static void health_knows_the_daemon_and_its_service(void **state)
{
    int status = 0;
    (void)state;
    assert_int_equal(check_health("", &status), 0);
    assert_int_equal(status, 1);
    assert_int_equal(check_health("tensorcast.daemon.v1.StoreDaemon", &status), 0);
    assert_int_equal(status, 1);
    assert_int_equal(check_health("no.such.Service", &status), ERROR_NOT_FOUND);
}

static int receive_health(struct raw_call *call)
{
    struct raw_bytes bytes;
    if (!raw_receive(call, &bytes))
        return -1;
    Grpc__Health__V1__HealthCheckResponse *response =
        grpc__health__v1__health_check_response__unpack(NULL, bytes.count, bytes.data);
    int status = (int)response->status;
    grpc__health__v1__health_check_response__free_unpacked(response, NULL);
    free(bytes.data);
    return status;
}

static void a_health_watch_sees_the_start_and_the_end(void **state)
{
    struct error error;
    (void)state;
    grpc_init();
    prepare();
    assert_int_equal(rpc_fixture_start(&fixture, &error), 0);
    channel = raw_channel(fixture.socket, NULL, 0);
    struct raw_call *watch = raw_start(channel, "/grpc.health.v1.Health/Watch", "", 0, 0);
    assert_int_equal(receive_health(watch), 2);
    rpc_fixture_ready(&fixture);
    assert_int_equal(receive_health(watch), 1);
    rpc_fixture_drain(&fixture, 60000);
    assert_int_equal(receive_health(watch), 2);
    assert_int_equal(receive_health(watch), -1);
    assert_int_equal(raw_finish(watch, NULL, NULL), ERROR_UNAVAILABLE);
    rpc_fixture_wait_drained(&fixture); /* a watcher does not hold it up for a minute */
    rpc_fixture_finish(&fixture);
    grpc_channel_destroy(channel);
    grpc_shutdown_blocking();
}

static Grpc__Reflection__V1__ServerReflectionResponse *ask(struct raw_call *call, int question, const char *text)
{
    Grpc__Reflection__V1__ServerReflectionRequest request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    struct raw_bytes bytes;
    request.message_request_case = (Grpc__Reflection__V1__ServerReflectionRequest__MessageRequestCase)question;
    request.list_services = (char *)text; /* all questions are strings of one union */
    struct raw_bytes message = pack(&request.base);
    raw_send(call, message.data, message.count);
    free(message.data);
    assert_true(raw_receive(call, &bytes));
    Grpc__Reflection__V1__ServerReflectionResponse *response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, bytes.count, bytes.data);
    free(bytes.data);
    assert_non_null(response);
    return response;
}

static void forget(Grpc__Reflection__V1__ServerReflectionResponse *response)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

static void reflection_lists_services_and_hands_out_their_files(void **state)
{
    static const char *const versions[] = {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
    (void)state;
    for (size_t v = 0; v < 2; v++) {
        struct raw_call *call = raw_open(channel, versions[v], 0);
        Grpc__Reflection__V1__ServerReflectionResponse *response = ask(call, 7, "");
        assert_int_equal(response->message_response_case, 6);
        assert_int_equal(response->list_services_response->n_service, 4);
        assert_string_equal(response->list_services_response->service[0]->name, "tensorcast.daemon.v1.StoreDaemon");
        forget(response);
        response = ask(call, 4, "tensorcast.daemon.v1.StoreDaemon.Materialize");
        assert_int_equal(response->message_response_case, 4);
        assert_int_equal(response->file_descriptor_response->n_file_descriptor_proto, 1);
        assert_string_equal(response->original_request->file_containing_symbol,
                            "tensorcast.daemon.v1.StoreDaemon.Materialize");
        forget(response);
        response = ask(call, 4, "tensorcast.daemon.v1.NoSuch");
        assert_int_equal(response->error_response->error_code, ERROR_NOT_FOUND);
        forget(response);
        raw_half_close(call);
        struct raw_bytes bytes;
        assert_false(raw_receive(call, &bytes));
        assert_int_equal(raw_finish(call, NULL, NULL), 0);
    }
}

/* --- drain ------------------------------------------------------------------------------------------------------- */

static void finish_held(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    rpc_call_end(seen.held);
    seen.held = NULL;
}

static void a_drain_lets_running_calls_finish_and_takes_no_new_ones(void **state)
{
    struct raw_bytes bytes;
    int drained;
    (void)state;
    start_server(NULL);
    struct raw_call *call = start_load("hang", 0);
    receive_one(call);
    int silent = plain_connect(fixture.socket);
    rpc_fixture_drain(&fixture, 600000);
    assert_int_equal(access(fixture.socket, F_OK), -1);
    assert_int_equal(raw_unary(channel, SERVICE "Status", "", 0, NULL, NULL), ERROR_UNAVAILABLE);
    sem_getvalue(&fixture.drained, &drained);
    assert_int_equal(drained, 0);
    rpc_fixture_on_loop(&fixture, finish_held, NULL);
    assert_false(raw_receive(call, &bytes));
    assert_int_equal(raw_finish(call, NULL, NULL), 0);
    rpc_fixture_wait_drained(&fixture); /* long before the grace, although a silent connection is open */
    rpc_fixture_finish(&fixture);
    close(silent);
    grpc_channel_destroy(channel);
    grpc_shutdown_blocking();
}

static void the_grace_ends_calls_that_do_not(void **state)
{
    (void)state;
    start_server(NULL);
    struct raw_call *call = start_load("hang", 0);
    receive_one(call);
    rpc_fixture_drain(&fixture, 1);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_UNAVAILABLE);
    rpc_fixture_wait_drained(&fixture);
    assert_int_equal(seen.cancels, 1);
    rpc_fixture_finish(&fixture);
    grpc_channel_destroy(channel);
    grpc_shutdown_blocking();
}

static void count_cancel(void *data)
{
    (void)data;
    seen.cancels++;
}

static void be_stubborn(struct rpc_fixture *of, void *data)
{
    (void)of, (void)data;
    rpc_call_on_cancel(seen.held, count_cancel, NULL);
}

static void destroy_and_end_late(struct rpc_fixture *of, void *data)
{
    (void)data;
    rpc_server_destroy(of->server);
    rpc_call_end(seen.held);
    loop_stop(of->loop);
}

static void a_handler_that_does_not_end_its_call_cannot_hold_up_the_exit(void **state)
{
    (void)state;
    start_server(NULL);
    struct raw_call *call = start_load("hang", 0);
    receive_one(call);
    rpc_fixture_on_loop(&fixture, be_stubborn, NULL);
    rpc_fixture_drain(&fixture, 1);
    assert_int_equal(raw_finish(call, NULL, NULL), ERROR_UNAVAILABLE);
    rpc_fixture_wait_drained(&fixture);
    assert_int_equal(seen.cancels, 1);
    rpc_fixture_on_loop(&fixture, destroy_and_end_late, NULL);
    pthread_join(fixture.thread, NULL);
    fixture.server = NULL;
    rpc_fixture_finish(&fixture);
    grpc_channel_destroy(channel);
}

static bool is_of_grpc(const char *thread)
{
    static const char *const names[] = {"event_engine", "timer_manager", "default-executo", "resolver-execut",
                                        "grpc_global_tim"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(thread, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* How many of gRPC's threads there are, and how many of them would take a SIGTERM. */
static void count_grpc_threads(int *all, int *exposed)
{
    char path[300], line[256], name[64] = "";
    DIR *tasks = opendir("/proc/self/task");
    *all = *exposed = 0;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status && fgets(line, sizeof line, status)) {
            sscanf(line, "Name: %63s", name);
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (!status)
            continue;
        fclose(status);
        *all += is_of_grpc(name);
        *exposed += is_of_grpc(name) && !(blocked >> (SIGTERM - 1) & 1);
    }
    closedir(tasks);
}

static bool grpc_has_all_its_threads(void *data)
{
    int all, *exposed = data;
    count_grpc_threads(&all, exposed);
    return all >= 6;
}

static void no_thread_of_grpc_takes_signals(void **state)
{
    struct error error;
    int exposed = -1;
    (void)state;
    prepare(); /* and no client in this process, whose threads would be gRPC's too */
    assert_int_equal(rpc_fixture_start(&fixture, &error), 0);
    int peer = plain_connect(fixture.socket);
    rpc_fixture_await(grpc_has_all_its_threads, &exposed, "gRPC makes its threads");
    assert_int_equal(exposed, 0);
    close(peer);
    rpc_fixture_stop(&fixture);
}

static void a_method_without_a_handler_fails_the_start(void **state)
{
    struct error error;
    (void)state;
    prepare();
    fixture.options.n_methods = N_METHODS - 1;
    assert_int_equal(rpc_fixture_start(&fixture, &error), -1);
    assert_non_null(strstr(error.message, "Status"));
    rpc_fixture_finish(&fixture);
}

int main(void)
{
#define SERVED(test) cmocka_unit_test_setup_teardown(test, start_server, stop_server)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_of_grpc_takes_signals), /* first: no client has started gRPC yet */
        SERVED(a_unary_call_gets_its_reply_and_tells_who_called),
        SERVED(a_stream_delivers_its_messages_in_order_and_then_ok),
        SERVED(an_error_arrives_with_code_message_and_error_info),
        SERVED(the_longest_error_keeps_its_code),
        SERVED(unknown_methods_are_unimplemented_every_time),
        SERVED(bytes_that_are_no_message_are_invalid),
        SERVED(a_request_without_a_message_is_invalid),
        SERVED(the_deadline_reaches_the_handler),
        SERVED(a_message_above_the_limit_is_exhausted_and_one_below_is_not),
        SERVED(compressed_messages_are_refused_before_they_are_inflated),
        SERVED(a_hundred_thousand_names_arrive_whole),
        SERVED(a_client_that_does_not_read_is_cut_off_when_its_queue_is_full),
        SERVED(a_stream_that_waits_until_it_is_idle_may_be_of_any_length),
        SERVED(a_stream_that_waits_until_it_is_idle_hears_of_a_client_that_left),
        SERVED(a_cancelled_call_tells_its_handler_once),
        SERVED(a_passed_deadline_tells_the_handler),
        SERVED(a_handler_may_fail_a_stream_later),
        SERVED(on_cancel_registered_too_late_still_runs),
        SERVED(calls_know_their_connection_and_its_end_is_reported),
        SERVED(a_lost_connection_cancels_its_calls),
        SERVED(one_uid_has_no_more_connections_than_allowed),
        SERVED(garbage_and_silence_harm_nobody),
        SERVED(connections_that_come_and_go_leave_no_descriptor_behind),
        SERVED(running_out_of_descriptors_is_survived),
        SERVED(health_knows_the_daemon_and_its_service),
        cmocka_unit_test(a_health_watch_sees_the_start_and_the_end),
        SERVED(reflection_lists_services_and_hands_out_their_files),
        cmocka_unit_test(a_drain_lets_running_calls_finish_and_takes_no_new_ones),
        cmocka_unit_test(the_grace_ends_calls_that_do_not),
        cmocka_unit_test(a_method_without_a_handler_fails_the_start),
        cmocka_unit_test(a_handler_that_does_not_end_its_call_cannot_hold_up_the_exit), /* last: it abandons a server */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
