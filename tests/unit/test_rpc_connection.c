/* What a client may send over HTTP/2, frame by frame, and what comes back. Clients that do harm are in test_rpc_abuse.c. */
#include "tests/support/unit.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/memory.h"
#include "rpc/rpc_internal.h"
#include "tests/support/http2_client.h"
#include "tests/support/rpc_scene.h"

TEST_IN(what_is_not_grpc_is_told_so_by_http, http2_client_connect, http2_client_disconnect)
{
    http2_client_answers((struct http2_request){.type = "text/html", HTTP2_EMPTY}, "415", "");
    http2_client_answers((struct http2_request){.type = "application/grpc-web", HTTP2_EMPTY}, "415", "");
    http2_client_answers((struct http2_request){.method = "GET", HTTP2_EMPTY}, "405", "");
    http2_client_answers((struct http2_request){.type = "application/grpc+proto", HTTP2_EMPTY}, "200", "0");
    http2_client_is_served();
}

TEST_IN(encodings_other_than_identity_are_unimplemented, http2_client_connect, http2_client_disconnect)
{
    http2_client_answers((struct http2_request){.extra_name = "grpc-encoding", .extra_value = "gzip", HTTP2_EMPTY}, "200",
                         "12");
    http2_client_answers((struct http2_request){.extra_name = "grpc-encoding", .extra_value = "identity", HTTP2_EMPTY},
                         "200", "0");
    http2_client_answers((struct http2_request){.bytes = "\1\0\0\0\1a", .count = 6}, "200", "12");
    assert_int_equal(rpc_scene.handled, 0);
}

TEST_IN(headers_may_have_16_kib, http2_client_connect, http2_client_disconnect)
{
    char value[RPC_MAX_METADATA_BYTES];
    const size_t rest =
        strlen(":methodPOST:schemehttp:path" SERVICE "Status:authorityxcontent-typeapplication/grpctetrailersx");
    memset(value, 'v', sizeof value);
    value[RPC_MAX_METADATA_BYTES - rest - 7 * 32] = '\0';
    http2_client_answers((struct http2_request){.extra_name = "x", .extra_value = value, HTTP2_EMPTY}, "200", "0");
    value[RPC_MAX_METADATA_BYTES - rest - 7 * 32] = 'v';
    value[RPC_MAX_METADATA_BYTES - rest - 7 * 32 + 1] = '\0';
    http2_client_answers((struct http2_request){.extra_name = "x", .extra_value = value, HTTP2_EMPTY}, "200", "8");
    http2_client_is_served();
}

TEST_IN(an_answer_before_the_end_of_the_request_ends_both, http2_client_connect, http2_client_disconnect)
{
    const struct http2_answer *answer =
        http2_client_answer(http2_client_ask((struct http2_request){HTTP2_EMPTY, .stays_open = true}));
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(answer->grpc_status, "0");
    http2_client_is_served(); /* the reset is here by now */
    assert_int_equal(answer->reset, NGHTTP2_NO_ERROR + 1);
}

static size_t count_refused(void)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof http2_client.answers / sizeof *http2_client.answers; i++)
        n += http2_client.answers[i].reset == NGHTTP2_REFUSED_STREAM + 1;
    return n;
}

static bool two_are_refused(void)
{
    return count_refused() == 2;
}

TEST_IN(a_connection_may_have_128_streams, http2_client_connect, http2_client_disconnect)
{
    for (int i = 0; i < MAX_STREAMS + 2; i++) /* before the settings say how many */
        http2_client_ask((struct http2_request){.stays_open = true});
    http2_client_await(two_are_refused);
    assert_int_equal(http2_client_answer(2 * MAX_STREAMS - 1)->reset, 0); /* the 128th */
    assert_int_equal(http2_client_answer(2 * MAX_STREAMS + 1)->reset, NGHTTP2_REFUSED_STREAM + 1);
    nghttp2_submit_rst_stream(http2_client.session, 0, 1, NGHTTP2_CANCEL);
    http2_client_is_served();
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
    return http2_client_answer(http2_client.last_stream)->is_over;
}

/* The http2_client's windows are what the server gives it: 256 KiB at first. */
TEST_IN(half_a_message_is_charged_until_its_stream_ends, http2_client_connect, http2_client_disconnect)
{
    uint8_t *bytes = memory_alloc(1 << 20);
    grpc_wire_write_prefix(bytes, 1 << 20);
    int32_t stream = http2_client_ask(
        (struct http2_request){.path = SERVICE "Resolve", .bytes = bytes, .count = (1 << 20) / 2, .stays_open = true});
    http2_client.last_stream = 0;
    for (int i = 0; i < 1000 && !charged_for_half(NULL); i++) {
        struct pollfd ready = {.fd = http2_client.fd, .events = POLLIN};
        uint8_t input[4096];
        ssize_t n = poll(&ready, 1, 20) == 1 ? recv(http2_client.fd, input, sizeof input, 0) : 0;
        nghttp2_session_mem_recv(http2_client.session, input, (size_t)n);
        http2_client_flush();
    }
    assert_true(charged_for_half(NULL));
    nghttp2_submit_rst_stream(http2_client.session, 0, stream, NGHTTP2_CANCEL);
    http2_client_is_served();
    rpc_fixture_await(nothing_is_charged, NULL, "the bytes are given back");
    free(bytes);
}

TEST_IN(a_message_that_is_too_much_is_refused_and_the_connection_goes_on, http2_client_connect, http2_client_disconnect)
{
    uint8_t *bytes = memory_alloc(1 << 20);
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_METADATA, 100000, 0);
    grpc_wire_write_prefix(bytes, (1 << 20) - GRPC_WIRE_PREFIX_BYTES);
    const struct http2_answer *answer = http2_client_answer(
        http2_client_ask((struct http2_request){.path = SERVICE "Resolve", .bytes = bytes, .count = 1 << 20}));
    http2_client_await(is_given_up);
    assert_string_equal(answer->grpc_status, "8");
    assert_non_null(strstr(answer->message, "metadata bytes"));
    http2_client_is_served();
    rpc_fixture_await(nothing_is_charged, NULL, "the bytes are given back");
    free(bytes);
}

static size_t count_messages(void)
{
    size_t n = 0, at = 0;
    for (; at + GRPC_WIRE_PREFIX_BYTES <= http2_client.n_bytes; n++) {
        const struct rpc_message message = {.bytes = http2_client.bytes + at};
        at += GRPC_WIRE_PREFIX_BYTES + rpc_message_length(&message);
    }
    return n;
}

/* More than may wait to be written: the server takes one question after the other. */
TEST_IN(questions_of_a_bidi_call_may_come_all_at_once, http2_client_connect, http2_client_disconnect)
{
    enum { N = 60 };
    static const uint8_t question[] = {0, 0, 0, 0, 2, 0x3A, 0}; /* list_services: "" */
    uint8_t bytes[N * sizeof question];
    for (size_t i = 0; i < N; i++)
        memcpy(bytes + i * sizeof question, question, sizeof question);
    http2_client_answers((struct http2_request){.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                                .bytes = bytes,
                                                .count = sizeof bytes},
                         "200", "0");
    assert_int_equal(count_messages(), N);
}

TEST_IN(a_question_of_a_bidi_call_may_have_64_kib, http2_client_connect, http2_client_disconnect)
{
    uint8_t *bytes = memory_alloc((64 << 10) + 6);
    grpc_wire_write_prefix(bytes, (64 << 10) + 1);
    http2_client_answers((struct http2_request){.path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                                .bytes = bytes,
                                                .count = (64 << 10) + 6},
                         "200", "8");
    free(bytes);
}

static bool has_first_message(void)
{
    return http2_client.n_bytes > 0;
}

TEST_IN(a_health_watch_tells_of_the_end_before_it_ends, http2_client_connect, http2_client_disconnect)
{
    static const uint8_t both[] = {0, 0, 0, 0, 2, 8, 1, 0, 0, 0, 0, 2, 8, 2}; /* SERVING, NOT_SERVING */
    const struct http2_answer *answer =
        http2_client_answer(http2_client_ask((struct http2_request){.path = "/grpc.health.v1.Health/Watch", HTTP2_EMPTY}));
    http2_client_await(has_first_message);
    rpc_fixture_drain(&rpc_scene.fixture, 60000);
    http2_client_await(http2_client_last_is_over);
    assert_int_equal(http2_client.n_bytes, sizeof both);
    assert_memory_equal(http2_client.bytes, both, sizeof both);
    assert_string_equal(answer->grpc_status, "14");
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    http2_client_is_drained = true;
}

TEST_IN(half_a_request_does_not_hold_up_the_end, http2_client_connect, http2_client_disconnect)
{
    const struct http2_answer *answer = http2_client_answer(http2_client_ask(
        (struct http2_request){.path = SERVICE "Resolve", .bytes = "\0\0\0\0\5a", .count = 6, .stays_open = true}));
    int32_t stream = http2_client.last_stream;
    http2_client_is_served();
    http2_client.last_stream = stream;
    rpc_fixture_drain(&rpc_scene.fixture, 600000);
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(answer->grpc_status, "14");
    rpc_fixture_wait_drained(&rpc_scene.fixture);
    http2_client_is_drained = true;
}

/* --- what takes too long; the clocks are put back -------------------------------------------------------------------- */

static void turn_back(struct rpc_fixture *of, void *seconds)
{
    uint64_t ns = *(uint64_t *)seconds * UINT64_C(1000000000);
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &of->server->connections, in_server) {
        connection->heard_ns -= ns;
        connection->used_ns -= ns;
    }
}

static void turn_calls_back(struct rpc_fixture *of, void *seconds)
{
    struct rpc_connection *connection;
    struct rpc_call *call;
    LIST_FOREACH (connection, &of->server->connections, in_server)
        LIST_FOREACH (call, &connection->calls, in_connection)
            call->made_ns -= *(uint64_t *)seconds * UINT64_C(1000000000);
}

TEST_IN(a_client_with_a_call_is_asked_whether_it_lives, http2_client_connect, http2_client_disconnect)
{
    uint64_t seconds = 11, more = 10;
    http2_client_ask((struct http2_request){.path = "/grpc.health.v1.Health/Watch", HTTP2_EMPTY});
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &seconds);
    struct pollfd ready = {.fd = http2_client.fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    uint8_t ping[17];
    assert_int_equal(recv(http2_client.fd, ping, sizeof ping, MSG_WAITALL), sizeof ping);
    assert_int_equal(ping[3], NGHTTP2_PING);
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &more); /* it does not answer */
    http2_client.last_stream = 0;
    http2_client_await(http2_client_is_closed);
}

TEST_IN(a_request_that_does_not_come_is_given_up, http2_client_connect, http2_client_disconnect)
{
    uint64_t seconds = 61;
    const struct http2_answer *answer = http2_client_answer(http2_client_ask(
        (struct http2_request){.path = SERVICE "Resolve", .bytes = "\0\0\0\0\5a", .count = 6, .stays_open = true}));
    int32_t stream = http2_client.last_stream;
    http2_client_is_served();
    http2_client.last_stream = stream;
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_calls_back, &seconds);
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(answer->grpc_status, "4");
}

TEST_IN(an_idle_connection_is_ended_after_ten_minutes, http2_client_connect, http2_client_disconnect)
{
    uint64_t less = 590, seconds = 11;
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &less);
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &less);
    rpc_fixture_on_loop(&rpc_scene.fixture, turn_back, &seconds);
    http2_client_await(http2_client_is_closed);
}
