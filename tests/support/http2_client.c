/* See http2_client.h. */
#include "tests/support/http2_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "tests/support/rpc_scene.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

struct http2_client http2_client;

bool http2_client_is_drained; /* by the test */

struct http2_answer *http2_client_answer(int32_t stream)
{
    return &http2_client.answers[stream / 2];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t n_name,
                     const uint8_t *value, size_t n_value, uint8_t flags, void *data)
{
    struct http2_answer *answer = http2_client_answer(frame->hd.stream_id);
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
    http2_client_answer(stream)->n_bytes += count;
    if (stream == http2_client.last_stream && http2_client.n_bytes + count <= ANSWER_ROOM) {
        memcpy(http2_client.bytes + http2_client.n_bytes, bytes, count);
        http2_client.n_bytes += count;
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct http2_answer *answer = http2_client_answer(frame->hd.stream_id);
    (void)session, (void)data;
    if (frame->hd.stream_id && frame->hd.type == NGHTTP2_RST_STREAM)
        answer->reset = frame->rst_stream.error_code + 1;
    if (frame->hd.stream_id && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        answer->is_over = true;
    return 0;
}

void http2_client_send(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count) {
        ssize_t n = send(http2_client.fd, at, count, MSG_NOSIGNAL);
        if (n < 0) {
            http2_client.is_closed = true;
            return;
        }
        at += n;
        count -= (size_t)n;
    }
}

void http2_client_flush(void)
{
    const uint8_t *bytes;
    ssize_t n;
    while ((n = nghttp2_session_mem_send(http2_client.session, &bytes)) > 0)
        http2_client_send(bytes, (size_t)n);
}

void http2_client_begin(void)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    memset(&http2_client, 0, sizeof http2_client);
    http2_client.fd = rpc_scene_connect(rpc_scene.fixture.socket);
    http2_client.bytes = memory_alloc(ANSWER_ROOM);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_option_new(&option);
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000); /* until the server says how many */
    nghttp2_session_client_new2(&http2_client.session, callbacks, NULL, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(http2_client.session, 0, NULL, 0);
    http2_client_flush();
}

void http2_client_end(void)
{
    nghttp2_session_del(http2_client.session);
    free(http2_client.bytes);
    close(http2_client.fd);
}

int http2_client_connect(void **state)
{
    rpc_scene_start(state);
    http2_client_begin();
    return 0;
}

int http2_client_disconnect(void **state)
{
    http2_client_end();
    if (!http2_client_is_drained)
        return rpc_scene_stop(state);
    http2_client_is_drained = false;
    grpc_channel_destroy(rpc_scene.channel);
    rpc_fixture_finish(&rpc_scene.fixture);
    grpc_shutdown_blocking();
    return 0;
}

void http2_client_await(bool (*condition)(void))
{
    static uint8_t bytes[64 << 10];
    while (!condition()) {
        struct pollfd ready = {.fd = http2_client.fd, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
        ssize_t n = recv(http2_client.fd, bytes, sizeof bytes, 0);
        http2_client.is_closed = http2_client.is_closed || n <= 0;
        if (n <= 0 && !condition())
            fail_msg("%s", "the connection was ended");
        if (n > 0)
            assert_int_equal(nghttp2_session_mem_recv(http2_client.session, bytes, (size_t)n), n);
        http2_client_flush();
    }
}

bool http2_client_is_closed(void)
{
    return http2_client.is_closed;
}

bool http2_client_last_is_over(void)
{
    return http2_client_answer(http2_client.last_stream)->is_over || http2_client_answer(http2_client.last_stream)->reset;
}

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

int32_t http2_client_ask(struct http2_request request)
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
    int32_t next = (int32_t)nghttp2_session_get_next_stream_id(http2_client.session);
    struct source *source = &sources[next / 2];
    *source = (struct source){.bytes = request.bytes, .count = request.count, .is_last = !request.stays_open};
    const nghttp2_data_provider provider = {.source.ptr = source, .read_callback = read_source};
    http2_client.last_stream = nghttp2_submit_request(http2_client.session, NULL, list, n, &provider, NULL);
    http2_client.n_bytes = 0;
    assert_int_equal(http2_client.last_stream, next);
    http2_client_flush();
    return next;
}

const char http2_empty_message[GRPC_WIRE_PREFIX_BYTES];

void http2_client_is_served(void)
{
    const struct http2_answer *answer = http2_client_answer(http2_client_ask((struct http2_request){HTTP2_EMPTY}));
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(answer->status, "200");
    assert_string_equal(answer->grpc_status, "0");
    assert_int_equal(answer->reset, 0);
}

void http2_client_answers(struct http2_request request, const char *status, const char *grpc_status)
{
    const struct http2_answer *answer = http2_client_answer(http2_client_ask(request));
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(answer->status, status);
    assert_string_equal(answer->grpc_status, grpc_status);
}
