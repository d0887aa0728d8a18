/* Ranges that are received, and large bodies that are sent, without libcurl in between: what is said, every way an answer can
 * be framed, what a slow or short-tempered server makes of a body, and which connections are used again. What a range survives
 * from a server that lies is in test_http_faults.c. */
#include "tests/support/unit.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/crc.h"
#include "source/http/http_exchange.h"
#include "tests/support/http_scene.h"

enum { BODY_BYTES = 12 << 20 /* more than the kernel takes for a peer that does not read */, TAKEN_BYTES = 100000 };

static char *body;

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

static const struct http_store store = {.prepare = add_headers};
static const struct cancel cancel = {.is_set = http_scene_is_cancelled};

/* Of the first two requests, one of which libcurl has made. */
static void assert_same_words(const char *line)
{
    char direct[HTTP_SCRIPT_HEAD_BYTES * 2], by_libcurl[HTTP_SCRIPT_HEAD_BYTES * 2];
    http_scene_sort_lines(http_script_seen(http_scene.script, 0), direct);
    http_scene_sort_lines(http_script_seen(http_scene.script, 1), by_libcurl);
    assert_string_equal(direct, by_libcurl);
    assert_non_null(strstr(direct, line));
    assert_null(strstr(direct, "Expect"));
}

TEST_IN(a_range_is_asked_for_in_the_words_that_libcurl_uses, http_scene_open, http_scene_close)
{
    unsigned char bytes[100];
    struct iovec iov = {bytes, sizeof bytes};
    http_scene_start();
    struct http_range range = {.url = http_scene.url,
                               .store = &store,
                               .name = "o",
                               .offset = 7,
                               .iov = &iov,
                               .n_iov = 1,
                               .object_bytes = OBJECT_BYTES};
    assert_int_equal(http_read_range(http_scene.engine, &range, &http_scene.error), 0);
    assert_int_equal(http_scene_fetch((struct http_call){.store = &store, .first_byte = 7, .end = 107}), 0);
    assert_memory_equal(bytes, http_scene.reply.body, sizeof bytes);
    assert_same_words("GET /bucket/o?sig=SECRET HTTP/1.1|");
}

TEST_IN(a_url_with_a_password_is_refused, http_scene_open, http_scene_close)
{
    char rest[HTTP_SCRIPT_URL_CHARS];
    http_scene_start();
    snprintf(rest, sizeof rest, "%s", http_scene.url + strlen("http://"));
    snprintf(http_scene.url, sizeof http_scene.url, "http://user:pw@%.200s", rest);
    assert_true(http_scene_fails(ERROR_INVALID_ARGUMENT, "BAD_URL"));
    assert_null(strstr(http_scene.error.message, "pw"));
    assert_true(http_scene_has_seen(0, 0));
}

TEST_IN(a_range_through_a_proxy_is_asked_of_the_proxy, http_scene_open, http_scene_close)
{
    http_scene_start_proxy();
    bool has_read = http_scene_has_read();
    http_scene_end_proxy();
    assert_true(has_read);
    assert_string_equal(http_script_seen(http_scene.script, 0)->target, http_scene.url);
}

/* --- how answers are framed --- */

PLAY(send_chunks, {
    char size[64];
    http_scene_send_head(peer, request, "Transfer-Encoding: chunked\r\n");
    for (size_t at = 0, step = 1; at < BYTES; at += step, step = step * 3 + 1) {
        step = step < BYTES - at ? step : BYTES - at;
        snprintf(size, sizeof size, "%zx;a=\"b\"\r\n", step);
        http_script_send(peer, size);
        http_script_send_bytes(peer, wanted(request) + at, step);
        http_script_send(peer, "\r\n");
    }
    http_script_send(peer, "0\r\nX-Sum: 1\r\n\r\n");
})

PLAY(send_byte_by_byte, {
    char head[256];
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
})

PLAY(send_hints_first, {
    http_script_send(peer,
                     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length: 3\r\n\r\n");
    http_script_send_range(peer, request, UINT64_MAX);
})

PLAY(send_old, {
    char head[256];
    snprintf(head, sizeof head, "HTTP/1.0 206 P\r\nContent-Range: bytes %llu-%llu/%d\r\nContent-Length: %d\r\n\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, BYTES);
    http_script_send(peer, head);
    http_script_send_bytes(peer, wanted(request), BYTES);
})

PLAY(send_and_announce_close, {
    http_scene_send_head(peer, request, "Connection: close\r\nContent-Length: 200000\r\n");
    http_script_send_bytes(peer, wanted(request), BYTES);
})

PLAY(send_to_the_end, {
    http_scene_send_head(peer, request, "");
    http_script_send_bytes(peer, wanted(request), BYTES);
    http_script_close(peer);
})

PLAY(refuse_once, { http_script_answer(peer, 503, "Retry-After: 0\r\n", "busy"); })

TEST_IN(answers_may_be_framed_in_every_way, http_scene_open, http_scene_close)
{
    static const struct {
        const char *name;
        play_fn *play;
        unsigned n_reads, n_requests, n_connections;
    } rows[] = {
        {"chunks land in place and the connection is kept", send_chunks, 2, 2, 1},
        {"an answer may come byte by byte", send_byte_by_byte, 1, 1, 1},
        {"hints before the answer are passed over", send_hints_first, 1, 1, 1},
        {"after HTTP/1.0 the connection is not used again", send_old, 2, 2, 2},
        {"after Connection: close it is not used again", send_and_announce_close, 2, 2, 2},
        {"what ends with its connection leaves none", send_to_the_end, 2, 2, 2},
        {"a refusal that is read to its end leaves the connection", refuse_once, 1, 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_good = true;
        http_scene_stop();
        http_scene.plays[0] = rows[i].play;
        http_scene.options.max_tries = rows[i].n_requests > rows[i].n_reads ? 4 : 1;
        http_scene_start();
        for (unsigned n = 0; n < rows[i].n_reads; n++)
            is_good = is_good && http_scene_has_read();
        if (!is_good || !http_scene_has_seen(rows[i].n_requests, rows[i].n_connections))
            fail_msg("%s", rows[i].name);
    }
}

static const char *framing_lines, *framing_text;

PLAY(answer_framed, {
    http_scene_send_head(peer, request, framing_lines);
    http_script_send(peer, framing_text);
    http_script_send_bytes(peer, wanted(request), BYTES);
    http_script_close(peer);
})

TEST_IN(frames_that_contradict_themselves_are_tried_once_more, http_scene_open, http_scene_close)
{
    static const char *const cases[][2] = {{"Content-Length: 200000\r\nContent-Length: 200001\r\n", ""},
                                           {"Transfer-Encoding: gzip\r\n", ""},
                                           {"Transfer-Encoding: chunked\r\n", "no size\r\n"}};
    http_scene.others = answer_framed;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        http_scene_stop();
        framing_lines = cases[i][0];
        framing_text = cases[i][1];
        http_scene_start();
        assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
        assert_non_null(strstr(http_scene.error.message, "2 tries"));
    }
}

PLAY(answer_in_another_tongue, { http_script_send(peer, "SSH-2.0-OpenSSH_9.2\r\n\r\n"); })

static char long_line[100 << 10];

PLAY(send_a_long_line, {
    http_script_send(peer, "HTTP/1.1 206 Partial\r\nX: ");
    http_script_send(peer, long_line);
})

TEST_IN(what_is_not_http_or_has_a_line_without_end_is_said_to_be_so, http_scene_open, http_scene_close)
{
    http_scene.others = answer_in_another_tongue;
    http_scene_start();
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
    assert_non_null(strstr(http_scene.error.message, "not HTTP"));
    memset(long_line, 'x', sizeof long_line - 1);
    http_scene.others = send_a_long_line;
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
    assert_non_null(strstr(http_scene.error.message, "too large"));
}

TEST_IN(pieces_of_every_size_and_what_is_thrown_away, http_scene_open, http_scene_close)
{
    enum { PIECES = 400 };
    struct iovec iov[PIECES];
    unsigned char *bytes = malloc(OBJECT_BYTES);
    size_t used = 0;
    int n = 0;
    http_scene_start();
    memset(bytes, 0xEE, OBJECT_BYTES);
    for (; n < PIECES && used < OBJECT_BYTES; n++) {
        size_t count = n == 5 || n == 9 ? 70000 : n == 7 ? 0 : (size_t)(n * 37 % 1500 + 1);
        count = count < OBJECT_BYTES - used ? count : OBJECT_BYTES - used;
        iov[n] = (struct iovec){n % 3 == 0 ? NULL : bytes + used, count};
        used += count;
    }
    struct http_range range = {.url = http_scene.url, .name = "o", .iov = iov, .n_iov = n, .object_bytes = OBJECT_BYTES};
    assert_int_equal(http_read_range(http_scene.engine, &range, &http_scene.error), 0);
    for (int i = 0, at = 0; i < n; at += (int)iov[i++].iov_len)
        for (size_t j = 0; j < iov[i].iov_len; j++)
            assert_int_equal(bytes[(size_t)at + j], iov[i].iov_base ? http_scene.object[(size_t)at + j] : 0xEE);
    free(bytes);
}

/* --- bodies that are sent --- */

PLAY(take_it, {
    http_script_take_body(peer);
    http_script_answer(peer, 200, "", "taken");
})

static int send_body(size_t count)
{
    return http_scene_fetch(
        (struct http_call){.method = "PUT", .store = &store, .body = body, .body_bytes = count, .cancel = &cancel});
}

static bool has_sent(void)
{
    int failed = send_body(BODY_BYTES);
    if (failed)
        print_error("%s\n", http_scene.error.message);
    return !failed && http_scene.reply.head.status == 200 && strcmp(http_scene.reply.body, "taken") == 0;
}

static void assert_not_sent(enum error_code code, const char *reason)
{
    assert_int_equal(send_body(BODY_BYTES), -1);
    assert_string_equal(http_scene.error.reason, reason);
    assert_int_equal(http_scene.error.code, code);
}

static bool has_arrived(unsigned n)
{
    return http_script_seen(http_scene.script, n)->body_crc32c == crc32c_update(0, body, BODY_BYTES);
}

static int open_for_bodies(void **state)
{
    http_scene_open(state);
    http_scene.others = take_it;
    return 0;
}

TEST_IN(a_body_is_announced_in_the_words_that_libcurl_uses, open_for_bodies, http_scene_close)
{
    http_scene_start();
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(send_body(HTTP_LARGE_BODY + i), 0);
        const struct http_script_request *seen = http_script_seen(http_scene.script, i);
        assert_int_equal(strtoul(http_script_header(seen, "content-length"), NULL, 10), HTTP_LARGE_BODY + i);
        assert_int_equal(seen->body_crc32c, crc32c_update(0, body, HTTP_LARGE_BODY + i));
    }
    assert_same_words("PUT /bucket/o?sig=SECRET HTTP/1.1|");
}

TEST_IN(a_body_through_a_proxy_is_left_to_libcurl, open_for_bodies, http_scene_close)
{
    http_scene_start_proxy();
    bool is_sent = has_sent();
    http_scene_end_proxy();
    assert_true(is_sent);
    assert_string_equal(http_script_seen(http_scene.script, 0)->target, http_scene.url);
    assert_true(has_arrived(0));
}

PLAY(close_in_peace, {
    take_it(peer, request, data);
    http_script_close(peer);
})

PLAY(say_hints, {
    http_script_send(peer, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    take_it(peer, request, data);
})

PLAY(be_busy, {
    http_script_answer(peer, 503, "Retry-After: 0\r\n", "");
    http_script_pause(peer, MINUTE_MS);
})

PLAY(say_yes_too_early, {
    http_script_answer(peer, 200, "", "taken");
    http_script_pause(peer, MINUTE_MS);
})

PLAY(cut_the_answer, {
    http_script_take_body(peer);
    http_script_send(peer, "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nta");
    http_script_close(peer);
})

TEST_IN(bodies_arrive_whole_whatever_happens_to_the_first, open_for_bodies, http_scene_close)
{
    static const struct {
        const char *name;
        play_fn *plays[2];
        unsigned max_tries, n_sent, n_requests, n_connections;
        bool is_taken; /* by the server, before it plays; or TAKEN_BYTES of it */
    } rows[] = {
        {"bodies arrive whole on one connection", {NULL}, 1, 3, 3, 1, true},
        {"a kept connection that was closed counts as no try", {close_in_peace}, 1, 2, 2, 2, true},
        {"hints before its end do not end a body", {say_hints}, 4, 2, 2, 1, false},
        {"after a reset all of it is sent again", {http_scene_reset, http_scene_reset}, 4, 1, 3, 3, false},
        {"a connection with half a body is not used again", {be_busy}, 4, 1, 2, 2, false},
        {"no server has taken what was not sent", {say_yes_too_early}, 4, 1, 2, 2, false},
        {"an answer that is cut is asked for again", {cut_the_answer}, 4, 1, 2, 2, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_good = true;
        http_scene_stop();
        http_scene.plays[0] = rows[i].plays[0];
        http_scene.plays[1] = rows[i].plays[1];
        http_scene.options.max_tries = rows[i].max_tries;
        http_scene.body_limit = rows[i].is_taken ? 0 : TAKEN_BYTES;
        http_scene_start();
        for (unsigned n = 0; n < rows[i].n_sent; n++)
            is_good = is_good && has_sent();
        is_good = is_good && http_scene_has_seen(rows[i].n_requests, rows[i].n_connections);
        for (unsigned n = 0; is_good && rows[i].is_taken && n < rows[i].n_requests; n++)
            is_good = n + rows[i].n_sent < rows[i].n_requests || has_arrived(n);
        if (!is_good)
            fail_msg("%s", rows[i].name);
    }
}

PLAY(refuse_and_wait, {
    http_script_answer(peer, 403, "", "no");
    http_script_pause(peer, MINUTE_MS);
})

/* With bytes that it has not read: the kernel makes that a reset. */
PLAY(refuse_and_close, {
    http_script_answer(peer, 403, "", "no");
    http_script_close(peer);
})

PLAY(take_no_more, { http_script_pause(peer, MINUTE_MS); })

PLAY(cancel_and_take_no_more, {
    atomic_store(&http_scene.is_cancelled, 1);
    http_script_pause(peer, MINUTE_MS);
})

TEST_IN(a_refusal_before_its_end_is_heard_and_a_server_that_takes_no_more_is_given_up, open_for_bodies, http_scene_close)
{
    static const struct {
        play_fn *play;
        enum error_code code;
        const char *reason;
        uint64_t first_byte_timeout_ms;
    } rows[] = {{refuse_and_wait, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", 0},
                {refuse_and_close, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", 0},
                {take_no_more, ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT", 200},
                {cancel_and_take_no_more, ERROR_CANCELLED, "CANCELLED", 0}};
    http_scene.body_limit = TAKEN_BYTES;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        http_scene_stop();
        http_scene.others = rows[i].play;
        http_scene.options.first_byte_timeout_ms = rows[i].first_byte_timeout_ms;
        http_scene.options.max_tries = rows[i].first_byte_timeout_ms ? 1 : 4;
        http_scene_start();
        assert_not_sent(rows[i].code, rows[i].reason);
        assert_int_equal(http_script_requests(http_scene.script), 1);
    }
}

/* As a part that is sent as it lies in the page cache, of a file that another process cuts off. */
TEST_IN(a_body_that_is_cut_off_ends_its_request_for_good, open_for_bodies, http_scene_close)
{
    char *kept = body;
    int fd = memfd_create("body", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, BODY_BYTES), 0);
    body = mmap(NULL, BODY_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(body, MAP_FAILED);
    assert_int_equal(ftruncate(fd, BODY_BYTES / 2), 0);
    http_scene_start();
    int failed = send_body(BODY_BYTES);
    munmap(body, BODY_BYTES);
    close(fd);
    body = kept;
    assert_int_equal(failed, -1);
    assert_string_equal(http_scene.error.reason, "SOURCE_CHANGED");
    assert_true(http_scene_has_seen(0, 1)); /* no request that was complete */
}

static int make_body(void **state)
{
    (void)state;
    body = malloc(BODY_BYTES);
    for (size_t i = 0; i < BODY_BYTES; i++)
        body[i] = (char)(i * 31 + i / 253);
    return 0;
}

static int free_body(void **state)
{
    (void)state;
    free(body);
    return 0;
}

TESTS_IN(make_body, free_body)
