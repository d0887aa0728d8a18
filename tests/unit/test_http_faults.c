/* Reads of a range from a server that answers wrongly: each ends with the right bytes, or with an error that says why. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/http_scene.h"

#include <cmocka.h>

/* Small patience; what a test is about is set by the test. */
static struct http_engine_options quick(void)
{
    return (struct http_engine_options){.backoff_ms = 2, .max_tries = 4, .hedge_percent = 101};
}

static void assert_fails(enum error_code code, const char *reason)
{
    assert_true(http_scene_fails(code, reason));
    assert_non_null(strstr(http_scene.error.message, "/bucket/o"));
}

static void assert_untouched(void)
{
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(http_scene.bytes[i], 0xEE);
}

/* --- statuses --- */

static const char *status_lines = "";
static int status_code;

static void answer_status(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, status_code, status_lines, "<no/>");
}

static void statuses_that_pass_are_tried_again(void **state)
{
    static const int statuses[] = {408, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        http_scene_open(state);
        status_code = statuses[i];
        status_lines = "Retry-After: 0\r\n";
        http_scene.plays[0] = http_scene.plays[1] = answer_status;
        http_scene_start(quick());
        assert_true(http_scene_has_read());
        assert_int_equal(http_script_requests(http_scene.script), 3);
        http_scene_close(state);
    }
    http_scene_open(state);
}

static void final_statuses_are_asked_for_once(void **state)
{
    static const struct {
        int status;
        enum error_code code;
        const char *reason;
    } cases[] = {{401, ERROR_PERMISSION_DENIED, "NOT_AUTHENTICATED"},
                 {403, ERROR_PERMISSION_DENIED, "ACCESS_DENIED"},
                 {404, ERROR_NOT_FOUND, "NO_SUCH_OBJECT"},
                 {410, ERROR_NOT_FOUND, "NO_SUCH_OBJECT"},
                 {412, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
                 {416, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
                 {400, ERROR_INTERNAL, "REQUEST_REFUSED"},
                 {302, ERROR_UNAVAILABLE, "REDIRECTED"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        http_scene_open(state);
        status_code = cases[i].status;
        status_lines = "Location: /elsewhere\r\n";
        http_scene.plays[0] = answer_status;
        http_scene_start(quick());
        assert_fails(cases[i].code, cases[i].reason);
        assert_int_equal(http_script_requests(http_scene.script), 1);
        assert_untouched();
        http_scene_close(state);
    }
    http_scene_open(state);
}

static void an_endless_503_ends_at_the_limit_and_says_what_happened(void **state)
{
    (void)state;
    status_code = 503;
    status_lines = "x-amz-request-id: RQ17\r\n";
    http_scene.plays[0] = http_scene.plays[1] = http_scene.plays[2] = http_scene.plays[3] = answer_status;
    http_scene_start(quick());
    assert_fails(ERROR_UNAVAILABLE, "SERVER_BUSY");
    assert_int_equal(http_script_requests(http_scene.script), 4);
    assert_non_null(strstr(http_scene.error.message, "bytes 1000-200999 of o"));
    assert_non_null(strstr(http_scene.error.message, "?..."));
    assert_non_null(strstr(http_scene.error.message, "503"));
    assert_non_null(strstr(http_scene.error.message, "4 tries"));
    assert_non_null(strstr(http_scene.error.message, "request id RQ17"));
}

static void a_throttled_request_halves_the_limit(void **state)
{
    struct http_statistics before, after;
    (void)state;
    status_code = 429;
    status_lines = "Retry-After: 0\r\n";
    http_scene.plays[0] = answer_status;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    http_engine_statistics(http_scene.engine, http_scene.url, &after);
    http_engine_statistics(http_scene.engine, "http://127.0.0.1:1", &before);
    assert_int_equal(after.limit, 16);
    assert_int_equal(after.throttled, 1);
    assert_int_equal(after.retries, 1);
    assert_int_equal(after.requests, 2);
    assert_int_equal(before.requests, 0);
}

static void a_retry_after_beyond_the_patience_is_an_error_now(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.progress_timeout_ms = 1000;
    status_code = 503;
    status_lines = "Retry-After: 30\r\n";
    http_scene.plays[0] = answer_status;
    http_scene_start(options);
    assert_fails(ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS");
    assert_non_null(strstr(http_scene.error.message, "503"));
    assert_int_equal(http_script_requests(http_scene.script), 1);
}

/* --- bodies that end early --- */

static void assert_remainder_was_asked_for(uint64_t received)
{
    const struct http_script_request *second = http_script_seen(http_scene.script, 1);
    assert_non_null(second);
    assert_int_equal(second->first, OFFSET + received);
    assert_int_equal(second->last, OFFSET + BYTES - 1);
}

static void send_part(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, PART);
    http_script_close(peer);
}

static void after_a_truncated_answer_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    http_scene.plays[0] = send_part;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_remainder_was_asked_for(PART);
    assert_int_equal(http_script_connections(http_scene.script), 2);
}

static void send_part_and_reset(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, PART);
    http_script_pause(peer, 30); /* what the client has not read by then it loses, and asks for again */
    http_script_reset(peer);
}

static void after_a_reset_in_the_body_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    http_scene.plays[0] = send_part_and_reset;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_true(http_script_seen(http_scene.script, 1)->first <= OFFSET + PART);
    assert_int_equal(http_script_requests(http_scene.script), 2);
}

static void head_of_range(struct http_script_peer *peer, const struct http_script_request *request, const char *lines)
{
    char head[512];
    snprintf(head, sizeof head, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %llu-%llu/%d\r\n%s\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, lines);
    http_script_send(peer, head);
}

static void send_part_of_chunks(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Transfer-Encoding: chunked\r\n");
    http_script_send(peer, "ea60\r\n");
    http_script_send_bytes(peer, http_scene.object + request->first, 0xea60);
    http_script_send(peer, "\r\n");
    http_script_close(peer);
}

static void after_a_truncated_chunked_answer_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    http_scene.plays[0] = send_part_of_chunks;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_remainder_was_asked_for(0xea60);
}

static void send_part_without_length(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Connection: close\r\n");
    http_script_send_bytes(peer, http_scene.object + request->first, PART);
    http_script_close(peer);
}

static void after_a_short_answer_without_length_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    http_scene.plays[0] = send_part_without_length;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_remainder_was_asked_for(PART);
}

static void answer_a_piece(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request piece = *request;
    (void)data;
    piece.last = piece.first + PART - 1;
    http_script_send_range(peer, &piece, UINT64_MAX);
}

static void an_honest_piece_is_no_failure(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    http_scene.plays[0] = http_scene.plays[1] = answer_a_piece;
    http_scene_start(options);
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 3);
    assert_int_equal(http_script_connections(http_scene.script), 1);
}

static void refuse_at_length(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    static char body[(64 << 10) + 2];
    (void)data;
    memset(body, 'x', sizeof body - 1);
    body[(64 << 10) + request->number] = '\0';
    http_script_answer(peer, 404, "", body);
}

static void a_refusal_means_the_same_however_long_it_is(void **state)
{
    (void)state;
    http_scene.others = refuse_at_length;
    http_scene_start(quick());
    assert_true(http_scene_fails(ERROR_NOT_FOUND, "NO_SUCH_OBJECT")); /* all of it is taken */
    assert_true(http_scene_fails(ERROR_NOT_FOUND, "NO_SUCH_OBJECT")); /* one byte more: the rest is cut off */
    assert_int_equal(http_script_requests(http_scene.script), 2);
}

enum { MOST_ANSWERS = 65 /* of one range: the first and 64 more */ };

static void answer_a_crumb(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request crumb = *request;
    uint64_t bytes = BYTES / MOST_ANSWERS + (atomic_load(&http_scene.n_gone) ? 0 : 1);
    (void)data;
    crumb.last = crumb.first + bytes - 1 < request->last ? crumb.first + bytes - 1 : request->last;
    http_script_send_range(peer, &crumb, UINT64_MAX);
}

static void a_range_may_come_in_so_many_pieces_and_not_one_more(void **state)
{
    (void)state;
    http_scene.others = answer_a_crumb;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), MOST_ANSWERS);
    atomic_store(&http_scene.n_gone, 1); /* pieces a byte smaller from now on */
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
    assert_int_equal(http_script_requests(http_scene.script), 2 * MOST_ANSWERS);
}

/* --- answers to something else --- */

static void answer_all(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request whole = *request;
    (void)data;
    whole.has_range = false;
    http_script_send_range(peer, &whole, UINT64_MAX);
}

static void answer_without_total(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_answer(peer, 206, "Content-Range: bytes 100-104/*\r\n", "bytes");
    (void)request;
}

static void answer_other_range(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request other = *request;
    (void)data;
    other.first -= 1, other.last -= 1;
    http_script_send_range(peer, &other, UINT64_MAX);
}

static void answer_without_content_range(struct http_script_peer *peer, const struct http_script_request *request,
                                         void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 206, "", "bytes");
}

static void answer_garbage(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "SSH-2.0-OpenSSH_9.2p1\r\n");
    http_script_close(peer);
}

static void answer_too_much_head(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 100; i++) {
        char line[1024];
        snprintf(line, sizeof line, "x-%d: %0900d\r\n", i, i);
        http_script_send(peer, line);
    }
}

static void answer_too_many_lines(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 300; i++)
        http_script_send(peer, "x: y\r\n");
}

static void answer_with_wrong_length(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Content-Length: 5\r\n");
    http_script_send(peer, "bytes");
}

static void lies_are_tried_once_more_then_final(void **state)
{
    static const struct {
        play_fn *play;
        enum error_code code;
        const char *reason;
    } cases[] = {{answer_all, ERROR_FAILED_PRECONDITION, "RANGE_IGNORED"},
                 {answer_without_total, ERROR_FAILED_PRECONDITION, "SERVER_UNFIT"},
                 {answer_other_range, ERROR_UNAVAILABLE, "BAD_ANSWER"},
                 {answer_without_content_range, ERROR_UNAVAILABLE, "BAD_ANSWER"},
                 {answer_garbage, ERROR_UNAVAILABLE, "BAD_ANSWER"},
                 {answer_too_much_head, ERROR_UNAVAILABLE, "BAD_ANSWER"},
                 {answer_too_many_lines, ERROR_UNAVAILABLE, "BAD_ANSWER"},
                 {answer_with_wrong_length, ERROR_UNAVAILABLE, "BAD_ANSWER"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        http_scene_open(state);
        http_scene.plays[0] = http_scene.plays[1] = cases[i].play;
        http_scene_start(quick());
        assert_fails(cases[i].code, cases[i].reason);
        assert_int_equal(http_script_requests(http_scene.script), 2);
        assert_int_equal(http_script_connections(http_scene.script), 2);
        assert_untouched();
        http_scene_close(state);
        http_scene_open(state);
        http_scene.plays[0] = cases[i].play;
        http_scene_start(quick());
        assert_true(http_scene_has_read());
        http_scene_close(state);
    }
    http_scene_open(state);
}

static void send_too_much(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    static const char junk[100000];
    (void)data;
    head_of_range(peer, request, "Connection: close\r\n");
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_close(peer);
}

static void an_answer_that_goes_on_too_long_is_not_believed_at_all(void **state)
{
    (void)state;
    http_scene.plays[0] = send_too_much;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_remainder_was_asked_for(0);
}

static void send_more_after_the_answer(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
    http_script_send(peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
}

static void a_connection_with_bytes_left_over_is_not_used_again(void **state)
{
    (void)state;
    http_scene.plays[0] = send_more_after_the_answer;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_true(http_scene_has_read());
}

static void answer_other_total(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    char head[256];
    (void)data;
    snprintf(head, sizeof head, "HTTP/1.1 206 P\r\nContent-Range: bytes %llu-%llu/%d\r\nContent-Length: %d\r\n\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES + 1, BYTES);
    http_script_send(peer, head);
    http_script_send_bytes(peer, http_scene.object, BYTES);
}

static void another_size_means_the_object_was_replaced(void **state)
{
    (void)state;
    http_scene.plays[0] = answer_other_total;
    http_scene_start(quick());
    assert_fails(ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED");
    assert_int_equal(http_script_requests(http_scene.script), 1);
    assert_untouched();
}

static void answer_compressed(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Content-Encoding: gzip\r\nContent-Length: 200000\r\n");
    http_script_send_bytes(peer, http_scene.object, BYTES);
}

static void a_compressed_object_is_refused(void **state)
{
    (void)state;
    http_scene.plays[0] = answer_compressed;
    http_scene_start(quick());
    assert_fails(ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED");
    assert_int_equal(http_script_requests(http_scene.script), 1);
    assert_untouched();
}

int main(void)
{
#define FAULT(name) cmocka_unit_test_setup_teardown(name, http_scene_open, http_scene_close)
    const struct CMUnitTest tests[] = {
        FAULT(statuses_that_pass_are_tried_again),
        FAULT(final_statuses_are_asked_for_once),
        FAULT(an_endless_503_ends_at_the_limit_and_says_what_happened),
        FAULT(a_throttled_request_halves_the_limit),
        FAULT(a_retry_after_beyond_the_patience_is_an_error_now),
        FAULT(after_a_truncated_answer_only_the_rest_is_asked_for),
        FAULT(after_a_reset_in_the_body_only_the_rest_is_asked_for),
        FAULT(after_a_truncated_chunked_answer_only_the_rest_is_asked_for),
        FAULT(after_a_short_answer_without_length_only_the_rest_is_asked_for),
        FAULT(an_honest_piece_is_no_failure),
        FAULT(a_refusal_means_the_same_however_long_it_is),
        FAULT(a_range_may_come_in_so_many_pieces_and_not_one_more),
        FAULT(lies_are_tried_once_more_then_final),
        FAULT(an_answer_that_goes_on_too_long_is_not_believed_at_all),
        FAULT(a_connection_with_bytes_left_over_is_not_used_again),
        FAULT(another_size_means_the_object_was_replaced),
        FAULT(a_compressed_object_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
