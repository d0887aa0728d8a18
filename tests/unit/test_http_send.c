/* Large bodies that are sent without libcurl in between: what is said, what a slow or short-tempered server makes of them, and
 * which connections are used again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc.h"
#include "source/http/http_exchange.h"
#include "tests/support/http_scene.h"

#include <cmocka.h>

enum { BODY_BYTES = 12 << 20 /* more than the kernel takes for somebody who does not read */, TAKEN_BYTES = 100000 };

static char *body;

static struct http_engine_options quick(void)
{
    return (struct http_engine_options){.backoff_ms = 2, .max_tries = 4, .hedge_percent = 101};
}

static bool is_cancelled(void *data)
{
    return atomic_load((atomic_int *)data) != 0;
}

static int add_headers(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)data, (void)error;
    http_attempt_add_header(attempt, "Authorization", "Bearer token");
    http_attempt_add_header(attempt, "x-empty", "");
    return 0;
}

static int send_body(size_t count, struct http_reply *reply)
{
    static const struct http_store store = {.prepare = add_headers};
    const struct cancel cancel = {.is_set = is_cancelled, .data = &http_scene.is_cancelled};
    const struct http_call call = {.method = "PUT",
                                   .url = http_scene.url,
                                   .store = &store,
                                   .body = body,
                                   .body_bytes = count,
                                   .max_reply_bytes = 100,
                                   .cancel = &cancel};
    return http_fetch(http_scene.engine, &call, reply, &http_scene.error);
}

static bool has_sent(void)
{
    struct http_reply reply;
    if (send_body(BODY_BYTES, &reply)) {
        fprintf(stderr, "%s\n", http_scene.error.message);
        return false;
    }
    bool is_right = reply.head.status == 200 && strcmp(reply.body, "taken") == 0;
    http_reply_clear(&reply);
    return is_right;
}

static bool fails(enum error_code code, const char *reason)
{
    struct http_reply reply;
    if (send_body(BODY_BYTES, &reply) == 0) {
        http_reply_clear(&reply);
        return false;
    }
    if (http_scene.error.code != code || strcmp(http_scene.error.reason, reason) != 0)
        fprintf(stderr, "not %s but %s: %s\n", reason, http_scene.error.reason, http_scene.error.message);
    return http_scene.error.code == code && strcmp(http_scene.error.reason, reason) == 0;
}

static void answer(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_take_body(peer);
    http_script_answer(peer, 200, "", "taken");
}

static int open_scene(void **state)
{
    http_scene_open(state);
    http_scene.others = answer;
    return 0;
}

/* --- what is said --- */

static void a_body_is_announced_in_the_words_that_libcurl_uses(void **state)
{
    char direct[HTTP_SCRIPT_HEAD_BYTES * 2], by_libcurl[HTTP_SCRIPT_HEAD_BYTES * 2];
    struct http_reply reply;
    (void)state;
    http_scene_start(quick());
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(send_body(HTTP_LARGE_BODY + i, &reply), 0);
        http_reply_clear(&reply);
        const struct http_script_request *seen = http_script_seen(http_scene.script, i);
        assert_int_equal(strtoul(http_script_header(seen, "content-length"), NULL, 10), HTTP_LARGE_BODY + i);
        assert_int_equal(seen->body_crc32c, crc32c_update(0, body, HTTP_LARGE_BODY + i));
    }
    http_scene_sort_lines(http_script_seen(http_scene.script, 0), by_libcurl);
    http_scene_sort_lines(http_script_seen(http_scene.script, 1), direct);
    assert_string_equal(direct, by_libcurl);
    assert_non_null(strstr(direct, "PUT /bucket/o?sig=SECRET HTTP/1.1|"));
    assert_null(strstr(direct, "Expect"));
}

static void a_body_through_a_proxy_is_left_to_libcurl(void **state)
{
    (void)state;
    http_scene_start_proxy(quick());
    bool is_sent = has_sent();
    http_scene_end_proxy();
    assert_true(is_sent);
    assert_string_equal(http_script_seen(http_scene.script, 0)->target, http_scene.url);
    assert_int_equal(http_script_seen(http_scene.script, 0)->body_crc32c, crc32c_update(0, body, BODY_BYTES));
}

/* --- what arrives --- */

static void assert_arrived(unsigned n)
{
    assert_int_equal(http_script_seen(http_scene.script, n)->body_crc32c, crc32c_update(0, body, BODY_BYTES));
}

static void bodies_arrive_whole_on_one_connection(void **state)
{
    (void)state;
    http_scene_start(quick());
    for (unsigned i = 0; i < 3; i++) {
        assert_true(has_sent());
        assert_arrived(i);
    }
    assert_int_equal(http_script_connections(http_scene.script), 1);
}

static void close_in_peace(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    answer(peer, request, data);
    http_script_close(peer);
}

static void a_kept_connection_that_was_closed_counts_as_no_try(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    http_scene.plays[0] = close_in_peace;
    http_scene_start(options);
    assert_true(has_sent());
    assert_true(has_sent());
    assert_arrived(1);
    assert_int_equal(http_script_connections(http_scene.script), 2);
}

static void reset_it(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_reset(peer);
}

static void say_hints(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    http_script_send(peer, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    answer(peer, request, data);
}

static void hints_before_its_end_do_not_end_a_body(void **state)
{
    (void)state;
    http_scene.body_limit = TAKEN_BYTES;
    http_scene.plays[0] = say_hints;
    http_scene_start(quick());
    assert_true(has_sent());
    assert_true(has_sent());
    assert_int_equal(http_script_requests(http_scene.script), 2);
    assert_int_equal(http_script_connections(http_scene.script), 1);
}

/* --- servers that do not take all of it --- */

static void after_a_reset_all_of_it_is_sent_again(void **state)
{
    (void)state;
    http_scene.body_limit = TAKEN_BYTES;
    http_scene.plays[0] = http_scene.plays[1] = reset_it;
    http_scene_start(quick());
    assert_true(has_sent());
    assert_int_equal(http_script_requests(http_scene.script), 3);
    assert_int_equal(http_script_connections(http_scene.script), 3);
}

static void refuse_and_wait(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 403, "", "no");
    http_script_pause(peer, MINUTE_MS);
}

/* Whose bytes nobody has read: the kernel makes that a reset. */
static void refuse_and_close(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 403, "", "no");
    http_script_close(peer);
}

static void a_refusal_before_its_end_is_heard(void **state)
{
    static play_fn *const plays[] = {refuse_and_wait, refuse_and_close};
    for (size_t i = 0; i < sizeof plays / sizeof plays[0]; i++) {
        open_scene(state);
        http_scene.body_limit = TAKEN_BYTES;
        http_scene.others = plays[i];
        http_scene_start(quick());
        assert_true(fails(ERROR_PERMISSION_DENIED, "ACCESS_DENIED"));
        assert_int_equal(http_script_requests(http_scene.script), 1);
        http_scene_close(state);
    }
    open_scene(state);
}

static void be_busy(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 503, "Retry-After: 0\r\n", "");
    http_script_pause(peer, MINUTE_MS);
}

static void a_connection_with_half_a_body_is_not_used_again(void **state)
{
    (void)state;
    http_scene.body_limit = TAKEN_BYTES;
    http_scene.plays[0] = be_busy;
    http_scene_start(quick());
    assert_true(has_sent());
    assert_int_equal(http_script_requests(http_scene.script), 2);
    assert_int_equal(http_script_connections(http_scene.script), 2);
}

static void say_yes_too_early(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 200, "", "taken");
    http_script_pause(peer, MINUTE_MS);
}

static void nobody_has_taken_what_was_not_sent(void **state)
{
    (void)state;
    http_scene.body_limit = TAKEN_BYTES;
    http_scene.plays[0] = say_yes_too_early;
    http_scene_start(quick());
    assert_true(has_sent());
    assert_int_equal(http_script_requests(http_scene.script), 2);
    assert_int_equal(http_script_connections(http_scene.script), 2);
}

static void cut_the_answer(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_take_body(peer);
    http_script_send(peer, "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nta");
    http_script_close(peer);
}

static void an_answer_that_is_cut_is_asked_for_again(void **state)
{
    (void)state;
    http_scene.plays[0] = cut_the_answer;
    http_scene_start(quick());
    assert_true(has_sent());
    assert_arrived(1);
}

static void take_no_more(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_pause(peer, MINUTE_MS);
}

static void a_server_that_takes_no_more_is_given_up(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.first_byte_timeout_ms = 200;
    options.max_tries = 1;
    http_scene.body_limit = TAKEN_BYTES;
    http_scene.others = take_no_more;
    http_scene_start(options);
    assert_true(fails(ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT"));
}

static void cancel_and_take_no_more(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request;
    atomic_store(&((struct http_scene *)data)->is_cancelled, 1);
    http_script_pause(peer, MINUTE_MS);
}

static void a_body_can_be_cancelled_while_it_is_sent(void **state)
{
    (void)state;
    http_scene.body_limit = TAKEN_BYTES;
    http_scene.others = cancel_and_take_no_more;
    http_scene_start(quick());
    assert_true(fails(ERROR_CANCELLED, "CANCELLED"));
    assert_int_equal(http_script_requests(http_scene.script), 1);
}

/* As a part that is sent as it lies in the page cache, of a file that somebody cuts off. */
static void a_body_that_is_cut_off_ends_its_request_for_good(void **state)
{
    char *kept = body;
    int fd = memfd_create("body", MFD_CLOEXEC);
    (void)state;
    assert_int_equal(ftruncate(fd, BODY_BYTES), 0);
    body = mmap(NULL, BODY_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(body, MAP_FAILED);
    assert_int_equal(ftruncate(fd, BODY_BYTES / 2), 0);
    http_scene_start(quick());
    bool has_failed = fails(ERROR_FAILED_PRECONDITION, "SOURCE_CHANGED");
    munmap(body, BODY_BYTES);
    close(fd);
    body = kept;
    assert_true(has_failed);
    assert_int_equal(http_script_connections(http_scene.script), 1);
    assert_int_equal(http_script_requests(http_scene.script), 0); /* none that was complete */
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

int main(void)
{
#define SEND(name) cmocka_unit_test_setup_teardown(name, open_scene, http_scene_close)
    const struct CMUnitTest tests[] = {
        SEND(a_body_is_announced_in_the_words_that_libcurl_uses),
        SEND(a_body_through_a_proxy_is_left_to_libcurl),
        SEND(bodies_arrive_whole_on_one_connection),
        SEND(a_kept_connection_that_was_closed_counts_as_no_try),
        SEND(hints_before_its_end_do_not_end_a_body),
        SEND(after_a_reset_all_of_it_is_sent_again),
        SEND(a_refusal_before_its_end_is_heard),
        SEND(a_connection_with_half_a_body_is_not_used_again),
        SEND(nobody_has_taken_what_was_not_sent),
        SEND(an_answer_that_is_cut_is_asked_for_again),
        SEND(a_server_that_takes_no_more_is_given_up),
        SEND(a_body_can_be_cancelled_while_it_is_sent),
        SEND(a_body_that_is_cut_off_ends_its_request_for_good),
    };
    return cmocka_run_group_tests(tests, make_body, free_body);
}
