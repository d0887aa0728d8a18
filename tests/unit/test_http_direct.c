/* Ranges that are received without libcurl in between: what is said, every way an answer can be framed, and which
 * connections are used again. What a range survives from a server that lies is in test_http_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/http_scene.h"

#include <cmocka.h>

static struct http_engine_options quick(void)
{
    return (struct http_engine_options){.backoff_ms = 2, .max_tries = 4, .hedge_percent = 101};
}

static void send_head(struct http_script_peer *peer, const struct http_script_request *request, const char *lines)
{
    char head[512];
    snprintf(head, sizeof head, "HTTP/1.1 206 Partial\r\nContent-Range: bytes %llu-%llu/%d\r\n%s\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, lines);
    http_script_send(peer, head);
}

static const unsigned char *wanted(const struct http_script_request *request)
{
    return http_scene.object + request->first;
}

/* --- what is said --- */

static int add_headers(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)data, (void)error;
    http_attempt_add_header(attempt, "Authorization", "Bearer token");
    http_attempt_add_header(attempt, "x-empty", "");
    return 0;
}

static void a_range_is_asked_for_in_the_words_that_libcurl_uses(void **state)
{
    static const struct http_store store = {.prepare = add_headers};
    unsigned char bytes[100];
    char direct[HTTP_SCRIPT_HEAD_BYTES * 2], by_libcurl[HTTP_SCRIPT_HEAD_BYTES * 2];
    struct iovec iov = {bytes, sizeof bytes};
    struct http_reply reply;
    struct error error;
    (void)state;
    http_scene_start(quick());
    struct http_range range = {.url = http_scene.url,
                               .store = &store,
                               .name = "o",
                               .offset = 7,
                               .iov = &iov,
                               .n_iov = 1,
                               .object_bytes = OBJECT_BYTES};
    struct http_call call = {.url = http_scene.url, .store = &store, .first_byte = 7, .end = 107, .max_reply_bytes = 100};
    assert_int_equal(http_read_range(http_scene.engine, &range, &error), 0);
    assert_int_equal(http_fetch(http_scene.engine, &call, &reply, &error), 0);
    assert_memory_equal(bytes, reply.body, sizeof bytes);
    http_reply_clear(&reply);
    http_scene_sort_lines(http_script_seen(http_scene.script, 0), direct);
    http_scene_sort_lines(http_script_seen(http_scene.script, 1), by_libcurl);
    assert_string_equal(direct, by_libcurl);
    assert_non_null(strstr(direct, "GET /bucket/o?sig=SECRET HTTP/1.1|"));
}

static void a_url_with_a_password_is_refused(void **state)
{
    char rest[HTTP_SCRIPT_URL_CHARS];
    (void)state;
    http_scene_start(quick());
    snprintf(rest, sizeof rest, "%s", http_scene.url + strlen("http://"));
    snprintf(http_scene.url, sizeof http_scene.url, "http://user:pw@%.200s", rest);
    assert_true(http_scene_fails(ERROR_INVALID_ARGUMENT, "BAD_URL"));
    assert_null(strstr(http_scene.error.message, "pw"));
    assert_int_equal(http_script_requests(http_scene.script), 0);
}

static void a_range_through_a_proxy_is_asked_of_the_proxy(void **state)
{
    (void)state;
    http_scene_start_proxy(quick());
    bool has_read = http_scene_has_read();
    http_scene_end_proxy();
    assert_true(has_read);
    assert_string_equal(http_script_seen(http_scene.script, 0)->target, http_scene.url);
}

/* --- how answers are framed --- */

static void send_chunks(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    char size[64];
    (void)data;
    send_head(peer, request, "Transfer-Encoding: chunked\r\n");
    for (size_t at = 0, step = 1; at < BYTES; at += step, step = step * 3 + 1) {
        step = step < BYTES - at ? step : BYTES - at;
        snprintf(size, sizeof size, "%zx;a=\"b\"\r\n", step);
        http_script_send(peer, size);
        http_script_send_bytes(peer, wanted(request) + at, step);
        http_script_send(peer, "\r\n");
    }
    http_script_send(peer, "0\r\nX-Sum: 1\r\n\r\n");
}

static void chunks_land_in_place_and_the_connection_is_kept(void **state)
{
    (void)state;
    http_scene.plays[0] = send_chunks;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 2);
    assert_int_equal(http_script_connections(http_scene.script), 1);
}

static void send_byte_by_byte(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    char head[256];
    (void)data;
    int length =
        snprintf(head, sizeof head, "HTTP/1.1 206 Partial\nContent-Range: bytes %llu-%llu/%d\nContent-Length: %d\n\n",
                 (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, BYTES);
    for (int i = 0; i < length; i++) {
        http_script_send_bytes(peer, head + i, 1);
        http_script_rest(1);
    }
    for (int i = 0; i < 3; i++) {
        http_script_send_bytes(peer, wanted(request) + i, 1);
        http_script_rest(1);
    }
    http_script_send_bytes(peer, wanted(request) + 3, BYTES - 3);
}

static void assert_one_request_does(play_fn *play)
{
    http_scene.plays[0] = play;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 1);
}

static void an_answer_may_come_byte_by_byte(void **state)
{
    (void)state;
    assert_one_request_does(send_byte_by_byte);
}

static void send_hints_first(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send(peer,
                     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length: 3\r\n\r\n");
    http_script_send_range(peer, request, UINT64_MAX);
}

static void hints_before_the_answer_are_passed_over(void **state)
{
    (void)state;
    assert_one_request_does(send_hints_first);
}

static const char *framing_lines, *framing_text;

static void answer_framed(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    send_head(peer, request, framing_lines);
    http_script_send(peer, framing_text);
    http_script_send_bytes(peer, wanted(request), BYTES);
    http_script_close(peer);
}

static void frames_that_contradict_themselves_are_tried_once_more(void **state)
{
    static const char *const cases[][2] = {{"Content-Length: 200000\r\nContent-Length: 200001\r\n", ""},
                                           {"Transfer-Encoding: gzip\r\n", ""},
                                           {"Transfer-Encoding: chunked\r\n", "no size\r\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        http_scene_open(state);
        framing_lines = cases[i][0];
        framing_text = cases[i][1];
        http_scene.others = answer_framed;
        http_scene_start(quick());
        assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
        assert_non_null(strstr(http_scene.error.message, "2 tries"));
        http_scene_close(state);
    }
    http_scene_open(state);
}

static void answer_in_another_tongue(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "SSH-2.0-OpenSSH_9.2\r\n\r\n");
}

static void what_is_not_http_is_said_to_be_so(void **state)
{
    (void)state;
    http_scene.others = answer_in_another_tongue;
    http_scene_start(quick());
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
    assert_non_null(strstr(http_scene.error.message, "not HTTP"));
}

static char long_line[100 << 10];

static void send_a_long_line(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 206 Partial\r\nX: ");
    http_script_send(peer, long_line);
}

static void a_line_that_does_not_end_is_an_error(void **state)
{
    (void)state;
    memset(long_line, 'x', sizeof long_line - 1);
    http_scene.others = send_a_long_line;
    http_scene_start(quick());
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
    assert_non_null(strstr(http_scene.error.message, "too large"));
}

/* --- connections --- */

static void send_old(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    char head[256];
    (void)data;
    snprintf(head, sizeof head, "HTTP/1.0 206 P\r\nContent-Range: bytes %llu-%llu/%d\r\nContent-Length: %d\r\n\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, BYTES);
    http_script_send(peer, head);
    http_script_send_bytes(peer, wanted(request), BYTES);
}

static void send_and_announce_close(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    send_head(peer, request, "Connection: close\r\nContent-Length: 200000\r\n");
    http_script_send_bytes(peer, wanted(request), BYTES);
}

static void send_to_the_end(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    send_head(peer, request, "");
    http_script_send_bytes(peer, wanted(request), BYTES);
    http_script_close(peer);
}

static void what_the_server_will_close_is_not_used_again(void **state)
{
    static play_fn *const plays[] = {send_old, send_and_announce_close, send_to_the_end};
    for (size_t i = 0; i < sizeof plays / sizeof plays[0]; i++) {
        struct http_engine_options options = quick();
        http_scene_open(state);
        options.max_tries = 1;
        http_scene.plays[0] = plays[i];
        http_scene_start(options);
        assert_true(http_scene_has_read());
        assert_true(http_scene_has_read());
        assert_int_equal(http_script_requests(http_scene.script), 2);
        assert_int_equal(http_script_connections(http_scene.script), 2);
        http_scene_close(state);
    }
    http_scene_open(state);
}

static void refuse_once(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 503, "Retry-After: 0\r\n", "busy");
}

static void a_refusal_that_is_read_to_its_end_leaves_the_connection(void **state)
{
    (void)state;
    http_scene.plays[0] = refuse_once;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 2);
    assert_int_equal(http_script_connections(http_scene.script), 1);
}

/* --- places --- */

static void pieces_of_every_size_and_what_is_thrown_away(void **state)
{
    enum { PIECES = 400 };
    struct iovec iov[PIECES];
    struct error error;
    unsigned char *bytes = malloc(OBJECT_BYTES);
    size_t used = 0;
    int n = 0;
    (void)state;
    http_scene_start(quick());
    memset(bytes, 0xEE, OBJECT_BYTES);
    for (; n < PIECES && used < OBJECT_BYTES; n++) {
        size_t count = n == 5 || n == 9 ? 70000 : n == 7 ? 0 : (size_t)(n * 37 % 1500 + 1);
        count = count < OBJECT_BYTES - used ? count : OBJECT_BYTES - used;
        iov[n] = (struct iovec){n % 3 == 0 ? NULL : bytes + used, count};
        used += count;
    }
    struct http_range range = {.url = http_scene.url, .name = "o", .iov = iov, .n_iov = n, .object_bytes = OBJECT_BYTES};
    assert_int_equal(http_read_range(http_scene.engine, &range, &error), 0);
    for (int i = 0, at = 0; i < n; at += (int)iov[i++].iov_len)
        for (size_t j = 0; j < iov[i].iov_len; j++)
            assert_int_equal(bytes[(size_t)at + j], iov[i].iov_base ? http_scene.object[(size_t)at + j] : 0xEE);
    free(bytes);
}

int main(void)
{
#define DIRECT(name) cmocka_unit_test_setup_teardown(name, http_scene_open, http_scene_close)
    const struct CMUnitTest tests[] = {
        DIRECT(a_range_is_asked_for_in_the_words_that_libcurl_uses),
        DIRECT(a_url_with_a_password_is_refused),
        DIRECT(a_range_through_a_proxy_is_asked_of_the_proxy),
        DIRECT(chunks_land_in_place_and_the_connection_is_kept),
        DIRECT(an_answer_may_come_byte_by_byte),
        DIRECT(hints_before_the_answer_are_passed_over),
        DIRECT(frames_that_contradict_themselves_are_tried_once_more),
        DIRECT(what_is_not_http_is_said_to_be_so),
        DIRECT(a_line_that_does_not_end_is_an_error),
        DIRECT(what_the_server_will_close_is_not_used_again),
        DIRECT(a_refusal_that_is_read_to_its_end_leaves_the_connection),
        DIRECT(pieces_of_every_size_and_what_is_thrown_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
