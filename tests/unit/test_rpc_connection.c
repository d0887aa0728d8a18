/* What a client may send over HTTP/2, frame by frame, and what comes back: connections of the gRPC server whose client is
 * this file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <errno.h>
#include <fcntl.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/foreign_fd.h"
#include "base/memory.h"
#include "rpc/rpc_internal.h"
#include "tests/support/hanging_close.h"
#include "tests/support/lingering.h"
#include "tests/support/rpc_scene.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

enum { PATIENCE_MS = 20000, MAX_STREAMS = 128, ANSWER_ROOM = 4 << 20 };

/* --- a client that speaks in frames ---------------------------------------------------------------------------------- */

struct answer { /* of one stream */
    char status[8], grpc_status[8], message[512];
    size_t n_bytes;
    uint32_t reset; /* its code + 1; 0 = none */
    bool is_over;   /* END_STREAM came */
};

static struct client {
    int fd;
    nghttp2_session *session;
    struct answer answers[8192]; /* by stream / 2 */
    uint8_t *bytes;              /* of the last stream that was asked for */
    size_t n_bytes;
    int32_t last_stream;
    bool is_closed;
} client;

static bool is_drained; /* by the test */

static struct answer *answer_of(int32_t stream)
{
    return &client.answers[stream / 2];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *data)
{
    struct answer *answer = answer_of(frame->hd.stream_id);
    (void)session, (void)flags, (void)data, (void)n_name;
    if (strcmp((const char *)name, ":status") == 0)
        snprintf(answer->status, sizeof answer->status, "%.*s", (int)n_value, (const char *)value);
    if (strcmp((const char *)name, "grpc-status") == 0)
        snprintf(answer->grpc_status, sizeof answer->grpc_status, "%.*s", (int)n_value, (const char *)value);
    if (strcmp((const char *)name, "grpc-message") == 0)
        snprintf(answer->message, sizeof answer->message, "%.*s", (int)n_value, (const char *)value);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t count, void *data)
{
    (void)session, (void)flags, (void)data;
    answer_of(stream)->n_bytes += count;
    if (stream == client.last_stream && client.n_bytes + count <= ANSWER_ROOM) {
        memcpy(client.bytes + client.n_bytes, bytes, count);
        client.n_bytes += count;
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct answer *answer = answer_of(frame->hd.stream_id);
    (void)session, (void)data;
    if (frame->hd.stream_id && frame->hd.type == NGHTTP2_RST_STREAM)
        answer->reset = frame->rst_stream.error_code + 1;
    if (frame->hd.stream_id && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        answer->is_over = true;
    return 0;
}

static void send_bytes(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count) {
        ssize_t n = send(client.fd, at, count, MSG_NOSIGNAL);
        if (n < 0) {
            client.is_closed = true;
            return;
        }
        at += n;
        count -= (size_t)n;
    }
}

static void flush(void)
{
    const uint8_t *bytes;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(client.session, &bytes)) > 0)
        send_bytes(bytes, (size_t)n);
}

static void begin_client(void)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    memset(&client, 0, sizeof client);
    client.fd = rpc_scene_connect(rpc_scene.fixture.socket);
    client.bytes = memory_alloc(ANSWER_ROOM);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_option_new(&option);
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000); /* until the server says how many */
    nghttp2_session_client_new2(&client.session, callbacks, NULL, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(client.session, 0, NULL, 0);
    flush();
}

static void end_client(void)
{
    nghttp2_session_del(client.session);
    free(client.bytes);
    close(client.fd);
}

static int connect_client(void **state)
{
    rpc_scene_start(state);
    begin_client();
    return 0;
}

static int disconnect_client(void **state)
{
    end_client();
    if (!is_drained)
        return rpc_scene_stop(state);
    is_drained = false;
    grpc_channel_destroy(rpc_scene.channel);
    rpc_fixture_finish(&rpc_scene.fixture);
    grpc_shutdown_blocking();
    return 0;
}

/* Reads until the condition holds. Our windows are wide enough for everything here. */
static void await(bool (*condition)(void))
{
    static uint8_t bytes[64 << 10];
    while (!condition()) {
        struct pollfd ready = {.fd = client.fd, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        ssize_t n = recv(client.fd, bytes, sizeof bytes, 0);
        client.is_closed = client.is_closed || n <= 0;
        if (n <= 0 && !condition())
            fail_msg("%s", "the connection was ended");
        if (n > 0)
            assert_int_equal(nghttp2_session_mem_recv(client.session, bytes, (size_t)n), n);
        flush();
    }
}

static bool is_closed(void)
{
    return client.is_closed;
}

static bool last_is_over(void)
{
    return answer_of(client.last_stream)->is_over || answer_of(client.last_stream)->reset;
}

/* --- requests -------------------------------------------------------------------------------------------------------- */

static struct source {
    const uint8_t *bytes;
    size_t at, count;
    bool is_last; /* else the stream stays open */
} sources[8192];

static ssize_t read_source(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t room, uint32_t *flags,
                           nghttp2_data_source *from, void *data)
{
    struct source *source = from->ptr;
    size_t n = source->count - source->at < room ? source->count - source->at : room;
    (void)session, (void)stream, (void)data;
    if (!n && !source->is_last)
        return NGHTTP2_ERR_DEFERRED;
    memcpy(buffer, source->bytes + source->at, n);
    source->at += n;
    *flags |= source->at == source->count && source->is_last ? NGHTTP2_DATA_FLAG_EOF : 0;
    return (ssize_t)n;
}

struct request {
    const char *path, *method, *type, *extra_name, *extra_value;
    const void *bytes;
    size_t count;
    bool stays_open;
};

static int32_t ask(struct request request)
{
    nghttp2_nv list[8];
    size_t n = 0;
    const char *fields[][2] = {{":method", request.method ? request.method : "POST"},
                               {":scheme", "http"},
                               {":path", request.path ? request.path : SERVICE "Status"},
                               {":authority", "x"},
                               {"content-type", request.type ? request.type : "application/grpc"},
                               {"te", "trailers"},
                               {request.extra_name, request.extra_value}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields && fields[i][0]; i++)
        list[n++] = (nghttp2_nv){.name = (uint8_t *)fields[i][0],
                                 .value = (uint8_t *)fields[i][1],
                                 .namelen = strlen(fields[i][0]),
                                 .valuelen = strlen(fields[i][1])};
    int32_t next = (int32_t)nghttp2_session_get_next_stream_id(client.session);
    struct source *source = &sources[next / 2];
    *source = (struct source){.bytes = request.bytes, .count = request.count, .is_last = !request.stays_open};
    const nghttp2_data_provider provider = {.source.ptr = source, .read_callback = read_source};
    client.last_stream = nghttp2_submit_request(client.session, NULL, list, n, &provider, NULL);
    client.n_bytes = 0;
    assert_int_equal(client.last_stream, next);
    flush();
    return next;
}

static const char empty_message[GRPC_WIRE_PREFIX_BYTES];
#define EMPTY .bytes = empty_message, .count = sizeof empty_message

static void is_served(void)
{
    const struct answer *answer = answer_of(ask((struct request){EMPTY}));
    await(last_is_over);
    assert_string_equal(answer->status, "200");
    assert_string_equal(answer->grpc_status, "0");
    assert_int_equal(answer->reset, 0);
}

static void answers(struct request request, const char *status, const char *grpc_status)
{
    const struct answer *answer = answer_of(ask(request));
    await(last_is_over);
    assert_string_equal(answer->status, status);
    assert_string_equal(answer->grpc_status, grpc_status);
}

/* --- tests ----------------------------------------------------------------------------------------------------------- */

static void what_is_not_grpc_is_told_so_by_http(void **state)
{
    (void)state;
    answers((struct request){.type = "text/html", EMPTY}, "415", "");
    answers((struct request){.type = "application/grpc-web", EMPTY}, "415", "");
    answers((struct request){.method = "GET", EMPTY}, "405", "");
    answers((struct request){.type = "application/grpc+proto", EMPTY}, "200", "0");
    is_served();
}

static void encodings_other_than_identity_are_unimplemented(void **state)
{
    (void)state;
    answers((struct request){.extra_name = "grpc-encoding", .extra_value = "gzip", EMPTY}, "200", "12");
    answers((struct request){.extra_name = "grpc-encoding", .extra_value = "identity", EMPTY}, "200", "0");
    answers((struct request){.bytes = "\1\0\0\0\1a", .count = 6}, "200", "12");
    assert_int_equal(rpc_scene.handled, 0);
}

static void headers_may_have_16_kib(void **state)
{
    char value[RPC_MAX_METADATA_BYTES];
    const size_t rest =
        strlen(":methodPOST:schemehttp:path" SERVICE "Status:authorityxcontent-typeapplication/grpctetrailersx");
    (void)state;
    memset(value, 'v', sizeof value);
    value[RPC_MAX_METADATA_BYTES - rest - 7 * 32] = '\0';
    answers((struct request){.extra_name = "x", .extra_value = value, EMPTY}, "200", "0");
    value[RPC_MAX_METADATA_BYTES - rest - 7 * 32] = 'v';
    value[RPC_MAX_METADATA_BYTES - rest - 7 * 32 + 1] = '\0';
    answers((struct request){.extra_name = "x", .extra_value = value, EMPTY}, "200", "8");
    is_served();
}

static void an_answer_before_the_end_of_the_request_ends_both(void **state)
{
    (void)state;
    const struct answer *answer = answer_of(ask((struct request){EMPTY, .stays_open = true}));
    await(last_is_over);
    assert_string_equal(answer->grpc_status, "0");
    is_served(); /* the reset is here by now */
    assert_int_equal(answer->reset, NGHTTP2_NO_ERROR + 1);
}

static size_t count_refused(void)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof client.answers / sizeof *client.answers; i++)
        n += client.answers[i].reset == NGHTTP2_REFUSED_STREAM + 1;
    return n;
}

static bool two_are_refused(void)
{
    return count_refused() == 2;
}

static void a_connection_may_have_128_streams(void **state)
{
    (void)state;
    for (int i = 0; i < MAX_STREAMS + 2; i++) /* before the settings say how many */
        ask((struct request){.stays_open = true});
    await(two_are_refused);
    assert_int_equal(answer_of(2 * MAX_STREAMS - 1)->reset, 0); /* the 128th */
    assert_int_equal(answer_of(2 * MAX_STREAMS + 1)->reset, NGHTTP2_REFUSED_STREAM + 1);
    nghttp2_submit_rst_stream(client.session, 0, 1, NGHTTP2_CANCEL);
    is_served();
}

static bool charged_for_half(void *data)
{
    (void)data;
    return quota_taken(rpc_scene.fixture.quota, QUOTA_METADATA) == (1 << 20) / 2;
}

static bool nothing_is_charged(void *data)
{
    (void)data;
    return quota_taken(rpc_scene.fixture.quota, QUOTA_METADATA) == 0;
}

static bool is_given_up(void)
{
    return answer_of(client.last_stream)->is_over;
}

/* The client's windows are what the server gives it: 256 KiB at first. */
static void half_a_message_is_charged_until_its_stream_ends(void **state)
{
    uint8_t *bytes = memory_alloc(1 << 20);
    (void)state;
    grpc_wire_write_prefix(bytes, 1 << 20);
    int32_t stream =
        ask((struct request){.path = SERVICE "Resolve", .bytes = bytes, .count = (1 << 20) / 2, .stays_open = true});
    client.last_stream = 0;
    for (int i = 0; i < 1000 && !charged_for_half(NULL); i++) {
        struct pollfd ready = {.fd = client.fd, .events = POLLIN};
        uint8_t input[4096];
        ssize_t n = poll(&ready, 1, 20) == 1 ? recv(client.fd, input, sizeof input, 0) : 0;
        nghttp2_session_mem_recv(client.session, input, (size_t)n);
        flush();
    }
    assert_true(charged_for_half(NULL));
    nghttp2_submit_rst_stream(client.session, 0, stream, NGHTTP2_CANCEL);
    is_served();
    rpc_fixture_await(nothing_is_charged, NULL, "the bytes are given back");
    free(bytes);
}

static void a_message_that_is_too_much_is_refused_and_the_connection_goes_on(void **state)
{
    uint8_t *bytes = memory_alloc(1 << 20);
    (void)state;
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_METADATA, 100000, 0);
    grpc_wire_write_prefix(bytes, (1 << 20) - GRPC_WIRE_PREFIX_BYTES);
    const struct answer *answer =
        answer_of(ask((struct request){.path = SERVICE "Resolve", .bytes = bytes, .count = 1 << 20}));
    await(is_given_up);
    assert_string_equal(answer->grpc_status, "8");
    assert_non_null(strstr(answer->message, "metadata bytes"));
    is_served();
    rpc_fixture_await(nothing_is_charged, NULL, "the bytes are given back");
    free(bytes);
}

static size_t count_messages(void)
{
    size_t n = 0, at = 0;
    for (; at + GRPC_WIRE_PREFIX_BYTES <= client.n_bytes; n++) {
        const struct rpc_message message = {.bytes = client.bytes + at};
        at += GRPC_WIRE_PREFIX_BYTES + rpc_message_length(&message);
    }
    return n;
}

/* More than may wait to be written: the server takes one question after the other. */
static void questions_of_a_bidi_call_may_come_all_at_once(void **state)
{
    enum { N = 60 };
    static const uint8_t question[] = {0, 0, 0, 0, 2, 0x3A, 0}; /* list_services: "" */
    uint8_t bytes[N * sizeof question];
    (void)state;
    for (size_t i = 0; i < N; i++)
        memcpy(bytes + i * sizeof question, question, sizeof question);
    answers((struct request){.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                             .bytes = bytes,
                             .count = sizeof bytes},
            "200", "0");
    assert_int_equal(count_messages(), N);
}

static void a_question_of_a_bidi_call_may_have_64_kib(void **state)
{
    uint8_t *bytes = memory_alloc((64 << 10) + 6);
    (void)state;
    grpc_wire_write_prefix(bytes, (64 << 10) + 1);
    answers((struct request){.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                             .bytes = bytes,
                             .count = (64 << 10) + 6},
            "200", "8");
    free(bytes);
}

static bool has_first_message(void)
{
    return client.n_bytes > 0;
}

static void a_health_watch_tells_of_the_end_before_it_ends(void **state)
{
    static const uint8_t both[] = {0, 0, 0, 0, 2, 8, 1, 0, 0, 0, 0, 2, 8, 2}; /* SERVING, NOT_SERVING */
    (void)state;
    const struct answer *answer = answer_of(ask((struct request){.path = "/grpc.health.v1.Health/Watch", EMPTY}));
    await(has_first_message);
    rpc_fixture_drain(&rpc_scene.fixture, 60000);
    await(last_is_over);
    assert_int_equal(client.n_bytes, sizeof both);
    assert_memory_equal(client.bytes, both, sizeof both);
    assert_string_equal(answer->grpc_status, "14");
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    is_drained = true;
}

static void half_a_request_does_not_hold_up_the_end(void **state)
{
    (void)state;
    const struct answer *answer =
        answer_of(ask((struct request){.path = SERVICE "Resolve", .bytes = "\0\0\0\0\5a", .count = 6, .stays_open = true}));
    int32_t stream = client.last_stream;
    is_served();
    client.last_stream = stream;
    rpc_fixture_drain(&rpc_scene.fixture, 600000);
    await(last_is_over);
    assert_string_equal(answer->grpc_status, "14");
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    is_drained = true;
}

static void send_frames(uint8_t type, uint8_t flags, uint32_t stream, const char *payload, size_t count, int times)
{
    uint8_t frame[64] = {0, 0, (uint8_t)count, type, flags, 0, 0, (uint8_t)(stream >> 8), (uint8_t)stream};
    memcpy(frame + 9, payload, count);
    for (int i = 0; i < times && !client.is_closed; i++)
        send_bytes(frame, 9 + count);
}

static void a_flood_ends_the_connection(void **state)
{
    (void)state;
    send_frames(NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4, RPC_DRIBBLES_BURST);
    is_served(); /* which forgives */
    send_frames(NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4, RPC_DRIBBLES_BURST + 200);
    await(is_closed);
    rpc_scene_assert_serves();
}

static bool last_is_reset(void)
{
    return client.is_closed || answer_of(client.last_stream)->reset;
}

/* Every window overflows, so the server resets every stream. */
static void requests_that_break_the_rules_again_and_again_end_the_connection(void **state)
{
    (void)state;
    for (int i = 0; i < RPC_RESETS_BURST - 10; i++) {
        ask((struct request){.stays_open = true});
        send_frames(NGHTTP2_WINDOW_UPDATE, 0, (uint32_t)client.last_stream, "\x7f\xff\xff\xff", 4, 1);
        await(last_is_reset);
        assert_int_equal(answer_of(client.last_stream)->reset, NGHTTP2_FLOW_CONTROL_ERROR + 1);
    }
    is_served();
    for (int i = 0; i < 3000 && !client.is_closed; i++) {
        ask((struct request){.stays_open = true});
        send_frames(NGHTTP2_WINDOW_UPDATE, 0, (uint32_t)client.last_stream, "\x7f\xff\xff\xff", 4, 1);
        if (i % 100 == 99)
            await(last_is_reset);
    }
    await(is_closed);
    rpc_scene_assert_serves();
}

/* --- what takes too long; the clocks are put back -------------------------------------------------------------------- */

static void turn_back(struct rpc_fixture *of, void *seconds)
{
    uint64_t ns = *(uint64_t *)seconds * UINT64_C(1000000000);
    for (struct rpc_connection *connection = of->server->connections; connection; connection = connection->next) {
        connection->heard_ns -= ns;
        connection->used_ns -= ns;
    }
}

static void turn_calls_back(struct rpc_fixture *of, void *seconds)
{
    for (struct rpc_connection *connection = of->server->connections; connection; connection = connection->next)
        for (struct rpc_call *call = connection->calls; call; call = call->next)
            call->made_ns -= *(uint64_t *)seconds * UINT64_C(1000000000);
}

static void a_client_with_a_call_is_asked_whether_it_lives(void **state)
{
    uint64_t seconds = 11, more = 10;
    (void)state;
    ask((struct request){.path = "/grpc.health.v1.Health/Watch", EMPTY});
    is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &seconds);
    struct pollfd ready = {.fd = client.fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    uint8_t ping[17];
    assert_int_equal(recv(client.fd, ping, sizeof ping, MSG_WAITALL), sizeof ping);
    assert_int_equal(ping[3], NGHTTP2_PING);
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &more); /* it does not answer */
    client.last_stream = 0;
    await(is_closed);
}

static void a_request_that_does_not_come_is_given_up(void **state)
{
    uint64_t seconds = 61;
    (void)state;
    const struct answer *answer =
        answer_of(ask((struct request){.path = SERVICE "Resolve", .bytes = "\0\0\0\0\5a", .count = 6, .stays_open = true}));
    int32_t stream = client.last_stream;
    is_served();
    client.last_stream = stream;
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_calls_back, &seconds);
    await(last_is_over);
    assert_string_equal(answer->grpc_status, "4");
}

static void an_idle_connection_is_ended_after_ten_minutes(void **state)
{
    uint64_t less = 590, seconds = 11;
    (void)state;
    is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &less);
    is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &less);
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &seconds);
    await(is_closed);
}

/* --- refusals -------------------------------------------------------------------------------------------------------- */

static void take_little(struct rpc_fixture *of, void *unused)
{
    int least = 1;
    (void)unused;
    for (struct rpc_connection *connection = of->server->connections; connection; connection = connection->next)
        setsockopt(connection->fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
}

static void no_question(struct rpc_fixture *of, void *unused)
{
    (void)of, (void)unused;
}

/* The loop has begun another turn since: what a turn begins with has been done, and what came before was read. */
static void has_turned(void)
{
    rpc_fixture_on_loop(&rpc_scene.fixture, no_question, NULL);
    rpc_fixture_on_loop(&rpc_scene.fixture, no_question, NULL);
}

/* So many requests that no quota has room for, of a client that does not read meanwhile. Each is answered before the next one comes:
 * a socket counts what it sends by pieces, and answers that go in few of them would all fit. */
static void ask_for_refusals(int n)
{
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CALLS, 0, 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, take_little, NULL);
    for (int i = 0; i < n; i++) {
        ask((struct request){EMPTY, .path = SERVICE "Explain"});
        has_turned();
    }
}

/* It seems to live meanwhile: it answers pings. */
static bool is_hung_up_on(void *data)
{
    static const uint8_t pong[17] = {0, 0, 8, NGHTTP2_PING, NGHTTP2_FLAG_ACK};
    struct pollfd end = {.fd = client.fd, .events = POLLOUT};
    (void)data;
    send(client.fd, pong, sizeof pong, MSG_NOSIGNAL | MSG_DONTWAIT);
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

static void sixteen_refusals_wait_for_who_does_not_read_and_more_end_the_connection(void **state)
{
    (void)state;
    is_served();
    ask_for_refusals(16);
    await(last_is_over);
    assert_string_equal(answer_of(client.last_stream)->grpc_status, "8");
    ask_for_refusals(100);
    rpc_fixture_await(is_hung_up_on, NULL, "the connection is ended");
}

/* --- turns ----------------------------------------------------------------------------------------------------------- */

enum { BUSY_CALLS = 40, BUSY_MS = 3 };

static struct turns { /* of the loop */
    struct loop_task hold, count;
    _Atomic bool may_go, is_over;
    int n; /* while the calls were handled */
} turns;

static void hold_loop(struct loop_task *task)
{
    (void)task;
    while (!turns.may_go)
        usleep(1000);
}

static void count_turn(struct loop_task *task)
{
    int handled = rpc_scene.handled;
    turns.n += handled > 0 && handled < BUSY_CALLS;
    if (!turns.is_over)
        loop_post(rpc_scene.fixture.loop, task);
}

static bool all_were_handled(void *unused)
{
    (void)unused;
    return rpc_scene.handled >= BUSY_CALLS;
}

/* They are all there at once. Between two of them everybody else is served. */
static void a_user_whose_handlers_take_long_has_one_in_each_turn_of_the_loop(void **state)
{
    struct raw_bytes packed = rpc_scene_load_message("busy 3", NULL);
    uint8_t bytes[64];
    (void)state;
    is_served();
    grpc_wire_write_prefix(bytes, packed.count);
    memcpy(bytes + GRPC_WIRE_PREFIX_BYTES, packed.data, packed.count);
    turns = (struct turns){.hold.run = hold_loop, .count.run = count_turn};
    int already = rpc_scene.handled;
    assert_int_equal(already, 0);
    loop_post(rpc_scene.fixture.loop, &turns.hold);
    loop_post(rpc_scene.fixture.loop, &turns.count);
    for (int i = 0; i < BUSY_CALLS; i++)
        ask((struct request){.path = SERVICE "Explain", .bytes = bytes, .count = GRPC_WIRE_PREFIX_BYTES + packed.count});
    turns.may_go = true;
    rpc_fixture_await(all_were_handled, NULL, "all are handled");
    await(last_is_over);
    assert_string_equal(answer_of(client.last_stream)->message, "busy 3");
    turns.is_over = true;
    rpc_fixture_on_loop(&rpc_scene.fixture, no_question, NULL);
    assert_true(turns.n >= BUSY_CALLS / 2);
    free(packed.data);
}

static struct loop_turn *starving;
static _Atomic int starved; /* turns */

/* Comes before the server's own. */
static void starve(void *data)
{
    struct rpc_server *server = data;
    for (struct rpc_user *user = server->admission.users; user; user = user->next) {
        user->line.turn = server->turns.turn + 1;
        user->line.spent_ns = UINT64_MAX / 2;
    }
    starved++;
}

static void begin_starving(struct rpc_fixture *of, void *unused)
{
    (void)unused;
    starved = 0;
    starving = loop_turn_create(of->loop, starve, of->server);
}

static void end_starving(struct rpc_fixture *of, void *unused)
{
    (void)of, (void)unused;
    loop_turn_destroy(starving);
}

static bool were_many(void *unused)
{
    (void)unused;
    return starved >= 1000; /* what lies in the socket keeps the loop turning */
}

static void who_has_had_his_time_of_a_turn_is_not_read_from_in_it(void **state)
{
    (void)state;
    is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, begin_starving, NULL);
    has_turned(); /* else what the client still had to say would let its request in, too */
    ask((struct request){EMPTY, .path = SERVICE "Explain"});
    rpc_fixture_await(were_many, NULL, "turns of the loop");
    assert_int_equal(rpc_scene.handled, 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, end_starving, NULL);
    await(last_is_over);
    assert_int_equal(rpc_scene.handled, 1);
}

/* Those that wait for their turn end with it. */
static void a_client_that_leaves_takes_its_waiting_requests_along(void **state)
{
    struct raw_bytes packed = rpc_scene_load_message("busy 3", NULL);
    uint8_t bytes[64];
    (void)state;
    is_served();
    grpc_wire_write_prefix(bytes, packed.count);
    memcpy(bytes + GRPC_WIRE_PREFIX_BYTES, packed.data, packed.count);
    turns = (struct turns){.hold.run = hold_loop};
    loop_post(rpc_scene.fixture.loop, &turns.hold);
    for (int i = 0; i < BUSY_CALLS; i++) {
        int32_t stream =
            ask((struct request){.path = SERVICE "Explain", .bytes = bytes, .count = GRPC_WIRE_PREFIX_BYTES + packed.count});
        if (i % 3 == 2) { /* of some it takes back just this one */
            nghttp2_submit_rst_stream(client.session, 0, stream, NGHTTP2_CANCEL);
            flush();
        }
    }
    end_client();
    turns.may_go = true;
    begin_client();
    is_served();
    assert_true(rpc_scene.handled < BUSY_CALLS / 2);
    free(packed.data);
}

/* --- descriptors ----------------------------------------------------------------------------------------------------- */

/* As on a kernel before Linux 6.16. */
static void let_descriptors_in(struct rpc_fixture *of, void *unused)
{
    int on = 1;
    (void)unused;
    for (struct rpc_connection *connection = of->server->connections; connection; connection = connection->next) {
        connection->refuses_descriptors = false;
        setsockopt(connection->fd, SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &on, sizeof on);
    }
}

static bool pipe_is_closed(void *data)
{
    struct pollfd end = {.fd = *(int *)data, .events = POLLIN};
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

enum { MANY = 100 };

/* Copies of one, with a byte. */
static ssize_t send_copies(int socket, int fd, size_t n)
{
    union {
        char bytes[CMSG_SPACE(MANY * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec place = {(void *)empty_message, 1};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    for (size_t i = 0; i < n; i++)
        memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

static void who_sends_descriptors_is_hung_up_on(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, let_descriptors_in, NULL);
    assert_int_equal(send_copies(client.fd, ends[1], 1), 1);
    close(ends[1]);
    await(is_closed);
    rpc_fixture_await(pipe_is_closed, &ends[0], "the descriptor is closed");
    close(ends[0]);
}

static bool none_is_open(void *data)
{
    (void)data;
    return foreign_fd_open(getuid()) == 0;
}

/* All threads that close for this user hang: what comes waits for them, and takes places that others need. */
static void a_hundred_descriptors_of_a_message_cost_one_of_ours(void **state)
{
    enum { HANGING = 4 };
    int hanging[HANGING];
    (void)state;
    for (int i = 0; i < HANGING; i++)
        foreign_fd_close(hanging[i] = hanging_fd(), getuid());
    is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, let_descriptors_in, NULL);
    assert_int_equal(send_copies(client.fd, fileno(stderr), MANY), 1);
    await(is_closed);
    assert_true(foreign_fd_open(getuid()) <= HANGING + 1);
    for (int i = 0; i < HANGING; i++)
        release_fd(hanging[i]);
    rpc_fixture_await(none_is_open, NULL, "all are closed");
}

struct surplus {
    int fds[8];
    size_t n;
};

static void accept_all(struct rpc_fixture *of, void *data)
{
    const struct surplus *surplus = data;
    const struct ucred peer = {getpid(), 12345, 12345};
    for (size_t i = 0; i < surplus->n; i++)
        rpc_admission_accept(of->server, surplus->fds[i], &peer);
}

/* The last copy of what it has sent may take an hour to be closed. */
static void who_has_too_many_connections_holds_nobody_up_with_what_it_sends(void **state)
{
    struct surplus surplus = {.n = 8};
    int clients[8], other_sides[8];
    (void)state;
    is_served();
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CONNECTIONS, 1000, 1);
    for (size_t i = 0; i < surplus.n; i++) {
        int pair[2], sent = lingering(&other_sides[i]);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
        clients[i] = pair[0];
        surplus.fds[i] = pair[1];
        assert_int_equal(send_copies(clients[i], sent, 1), 1);
        close(sent);
    }
    rpc_fixture_on_loop(&rpc_scene.fixture, accept_all, &surplus);
    for (size_t i = 0; i < surplus.n; i++) {
        struct pollfd end = {.fd = clients[i], .events = POLLIN};
        assert_int_equal(poll(&end, 1, 10000), 1);
        is_served();
        close(clients[i]);
        reset(other_sides[i]);
    }
}

static bool all_are_told(void *count)
{
    return rpc_scene.cancels == *(int *)count;
}

static bool has_sent_more(void *sent)
{
    return rpc_scene.sent > *(int *)sent;
}

/* Its last message is written to a socket that nobody has any more, or is still waiting for its turn. */
static void who_waits_for_a_message_to_be_written_is_told_that_the_client_is_gone(void **state)
{
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    request.artifact = "1000000000 small";
    struct raw_bytes packed = rpc_scene_pack(&request.base);
    (void)state;
    for (int count = 1; count <= 30; count++) {
        int sent = rpc_scene.sent;
        uint8_t bytes[64];
        grpc_wire_write_prefix(bytes, packed.count);
        memcpy(bytes + GRPC_WIRE_PREFIX_BYTES, packed.data, packed.count);
        ask((struct request){
            .path = SERVICE "FetchSidecars", .bytes = bytes, .count = GRPC_WIRE_PREFIX_BYTES + packed.count});
        rpc_fixture_await(has_sent_more, &sent, "it is running");
        end_client();
        rpc_fixture_await(all_are_told, &count, "the handler is told");
        begin_client();
    }
    free(packed.data);
}

int main(void)
{
#define WITH_CLIENT(test) cmocka_unit_test_setup_teardown(test, connect_client, disconnect_client)
    const struct CMUnitTest tests[] = {
        WITH_CLIENT(what_is_not_grpc_is_told_so_by_http),
        WITH_CLIENT(encodings_other_than_identity_are_unimplemented),
        WITH_CLIENT(headers_may_have_16_kib),
        WITH_CLIENT(an_answer_before_the_end_of_the_request_ends_both),
        WITH_CLIENT(a_connection_may_have_128_streams),
        WITH_CLIENT(half_a_message_is_charged_until_its_stream_ends),
        WITH_CLIENT(a_message_that_is_too_much_is_refused_and_the_connection_goes_on),
        WITH_CLIENT(questions_of_a_bidi_call_may_come_all_at_once),
        WITH_CLIENT(a_question_of_a_bidi_call_may_have_64_kib),
        WITH_CLIENT(a_health_watch_tells_of_the_end_before_it_ends),
        WITH_CLIENT(half_a_request_does_not_hold_up_the_end),
        WITH_CLIENT(a_flood_ends_the_connection),
        WITH_CLIENT(requests_that_break_the_rules_again_and_again_end_the_connection),
        WITH_CLIENT(a_client_with_a_call_is_asked_whether_it_lives),
        WITH_CLIENT(a_request_that_does_not_come_is_given_up),
        WITH_CLIENT(an_idle_connection_is_ended_after_ten_minutes),
        WITH_CLIENT(sixteen_refusals_wait_for_who_does_not_read_and_more_end_the_connection),
        WITH_CLIENT(a_user_whose_handlers_take_long_has_one_in_each_turn_of_the_loop),
        WITH_CLIENT(who_has_had_his_time_of_a_turn_is_not_read_from_in_it),
        WITH_CLIENT(a_client_that_leaves_takes_its_waiting_requests_along),
        WITH_CLIENT(who_sends_descriptors_is_hung_up_on),
        WITH_CLIENT(a_hundred_descriptors_of_a_message_cost_one_of_ours),
        WITH_CLIENT(who_has_too_many_connections_holds_nobody_up_with_what_it_sends),
        WITH_CLIENT(who_waits_for_a_message_to_be_written_is_told_that_the_client_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
