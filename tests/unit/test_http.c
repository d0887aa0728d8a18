/* The HTTP engine's two calls against a server that behaves: documents, ranges, what stores add, many at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "source/http/http.h"
#include "tests/support/http_object.h"
#include "tests/support/http_script.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

static void http_object_play(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
}

static void a_range_lands_in_its_iovecs_with_its_sum(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    unsigned char a[1000], b[50000];
    struct iovec iov[] = {{a, sizeof a}, {NULL, 20000}, {b, sizeof b}};
    uint64_t sum = 0;
    struct error error = {0};
    struct http_script *script = http_object_serve(http_object_play, NULL);
    struct http_range range = {.url = http_script_url(script, "/o", url),
                               .name = "o",
                               .offset = 777,
                               .iov = iov,
                               .n_iov = 3,
                               .object_bytes = sizeof http_object_bytes,
                               .checksum = CHECKSUM_CRC32C,
                               .checksum_value = &sum};
    (void)state;
    http_object_expect_ok(&error, http_read_range(http_object_engine, &range, &error));
    assert_memory_equal(a, http_object_bytes + 777, sizeof a);
    assert_memory_equal(b, http_object_bytes + 777 + sizeof a + 20000, sizeof b);
    assert_true(sum == crc32c_update(0, http_object_bytes + 777, 71000));
    http_script_stop(script);
}

static void a_document_comes_with_its_head(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(http_object_play, NULL);
    struct http_call call = {.url = http_script_url(script, "/o", url), .max_reply_bytes = sizeof http_object_bytes};
    (void)state;
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    assert_int_equal(reply.head.status, 200);
    assert_string_equal(http_head_find(&reply.head, "content-length"), "300000");
    assert_int_equal(reply.body_bytes, sizeof http_object_bytes);
    assert_memory_equal(reply.body, http_object_bytes, sizeof http_object_bytes);
    http_reply_clear(&reply);
    http_script_stop(script);
}

static void a_document_can_be_a_range(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(http_object_play, NULL);
    struct http_call call = {
        .url = http_script_url(script, "/o", url), .max_reply_bytes = 100, .first_byte = 50, .end = 150};
    (void)state;
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    assert_int_equal(reply.head.status, 206);
    assert_int_equal(reply.body_bytes, 100);
    assert_memory_equal(reply.body, http_object_bytes + 50, 100);
    http_reply_clear(&reply);
    call.first_byte = HTTP_OBJECT_BYTES - 10, call.end = HTTP_OBJECT_BYTES + 10;
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    assert_int_equal(reply.body_bytes, 10);
    http_reply_clear(&reply);
    http_script_stop(script);
}

static void answer_short_whole(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 200, "", "short");
}

static void all_of_a_shorter_object_is_a_good_answer_to_a_range_from_its_start(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_short_whole, NULL);
    struct http_call call = {.url = http_script_url(script, "/o", url), .max_reply_bytes = 100, .end = 100};
    (void)state;
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    assert_string_equal(reply.body, "short");
    http_reply_clear(&reply);
    call.end = 4;
    assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
    assert_string_equal(error.reason, "RANGE_IGNORED");
    http_script_stop(script);
}

static void answer_without_end(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    while (!http_script_is_gone(peer))
        http_script_send_bytes(peer, http_object_bytes, sizeof http_object_bytes);
    http_script_close(peer);
}

static void a_document_may_have_as_many_bytes_as_are_taken_and_no_more(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_short_whole, NULL),
                       *endless = http_object_serve(answer_without_end, NULL);
    struct http_call call = {.url = http_script_url(script, "/o", url), .max_reply_bytes = 5};
    (void)state;
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    http_reply_clear(&reply);
    call.max_reply_bytes = 4;
    assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
    assert_string_equal(error.reason, "ANSWER_TOO_LONG");
    call.url = http_script_url(endless, "/o", url);
    call.max_reply_bytes = 1000000;
    assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
    assert_string_equal(error.reason, "ANSWER_TOO_LONG");
    http_script_stop(endless);
    http_script_stop(script);
}

static void answer_head(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 123456789\r\n"
                           "ETag: \"a\"\r\nETag:  \"b\" \r\n\r\n");
}

static void a_head_request_shows_headers_only(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_head, NULL);
    struct http_call call = {.url = http_script_url(script, "/o", url), .method = "HEAD"};
    (void)state;
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    assert_string_equal(http_head_find(&reply.head, "content-length"), "123456789");
    assert_string_equal(http_head_find(&reply.head, "etag"), "\"b\"");
    assert_null(http_head_find(&reply.head, "etag2"));
    assert_string_equal(http_script_seen(script, 0)->method, "HEAD");
    http_reply_clear(&reply);
    http_script_stop(script);
}

static void a_body_is_sent_with_its_headers_and_its_length(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH"};
    char url[HTTP_SCRIPT_URL_CHARS];
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_short_whole, NULL);
    const struct http_header headers[] = {{"Content-Type", "application/json"}, {"X-Empty", ""}};
    struct http_call call = {.url = http_script_url(script, "/a//b/../c?x=%2B", url),
                             .headers = headers,
                             .n_headers = 2,
                             .body = "{}",
                             .body_bytes = 2,
                             .max_reply_bytes = 100};
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct http_reply reply;
        call.method = methods[i];
        http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
        http_reply_clear(&reply);
        const struct http_script_request *seen = http_script_seen(script, i);
        assert_string_equal(seen->method, methods[i]);
        assert_string_equal(seen->target, "/a//b/../c?x=%2B");
        assert_string_equal(http_script_header(seen, "content-length"), "2");
        assert_string_equal(http_script_header(seen, "content-type"), "application/json");
        assert_string_equal(http_script_header(seen, "x-empty"), "");
        assert_string_equal(http_script_header(seen, "accept-encoding"), "identity");
        assert_null(http_script_header(seen, "expect"));
    }
    http_script_stop(script);
}

static void a_header_with_a_line_break_is_never_sent(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_short_whole, NULL);
    const struct http_header header = {"X", "a\r\nHost: evil"};
    struct http_call call = {
        .url = http_script_url(script, "/o", url), .headers = &header, .n_headers = 1, .max_reply_bytes = 100};
    (void)state;
    assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_int_equal(http_script_requests(script), 0);
    http_script_stop(script);
}

static void only_http_and_https_are_spoken(void **state)
{
    static const char *const urls[] = {
        "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "/x", "", "http://"};
    struct http_reply reply;
    struct error error = {0};
    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct http_call call = {.url = urls[i], .max_reply_bytes = 100};
        assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    }
}

/* --- what a store adds --- */

struct fake_store {
    struct http_store store;
    unsigned n_prepared, n_judged;
    enum http_verdict verdict;
    const char *etag; /* that check wants */
    enum error_code mismatch;
};

static int prepare_token(void *data, struct http_attempt *attempt, struct error *error)
{
    struct fake_store *self = data;
    char token[32];
    if (self->n_prepared == 99)
        return fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS", "no credentials");
    snprintf(token, sizeof token, "t%u", ++self->n_prepared);
    http_attempt_add_header(attempt, "Authorization", "replaced");
    http_attempt_add_header(attempt, "authorization", token);
    return 0;
}

static enum http_verdict judge_as_told(void *data, const struct http_reply *reply, struct error *error)
{
    struct fake_store *self = data;
    self->n_judged++;
    fail(error, ERROR_PERMISSION_DENIED, "TOLD", "the store says %d %s", reply->head.status, reply->body);
    return self->verdict;
}

static int check_etag(void *data, const struct http_head *head, struct error *error)
{
    struct fake_store *self = data;
    const char *etag = http_head_find(head, "etag");
    return etag && strcmp(etag, self->etag) == 0 ? 0 : fail(error, self->mismatch, "MOVED", "the pin does not hold");
}

static void answer_by_token(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    bool is_good = strcmp(http_script_header(request, "authorization"), data) == 0;
    http_script_answer(peer, is_good ? 200 : 401, "etag: e1\r\n", is_good ? "good" : "expired");
}

static int fetch_for(struct fake_store *self, struct http_script *script, struct http_reply *reply, struct error *error)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    self->store.data = self;
    struct http_call call = {.url = http_script_url(script, "/o", url), .store = &self->store, .max_reply_bytes = 100};
    return http_fetch(http_object_engine, &call, reply, error);
}

static void a_renewed_token_is_tried_at_once_and_once(void **state)
{
    struct fake_store self = {.store = {.prepare = prepare_token, .judge = judge_as_told}, .verdict = HTTP_RETRY_RENEWED};
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_by_token, "t2");
    (void)state;
    http_object_expect_ok(&error, fetch_for(&self, script, &reply, &error));
    assert_string_equal(reply.body, "good");
    http_reply_clear(&reply);
    assert_int_equal(self.n_prepared, 2);
    assert_int_equal(fetch_for(&self, script, &reply, &error), -1);
    assert_string_equal(error.reason, "TOLD");
    assert_non_null(strstr(error.message, "the store says 401 expired"));
    assert_int_equal(self.n_prepared, 4);
    http_script_stop(script);
}

static void every_try_is_prepared_anew(void **state)
{
    struct fake_store self = {.store = {.prepare = prepare_token, .judge = judge_as_told}, .verdict = HTTP_RETRY};
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_by_token, "t5");
    (void)state;
    http_object_expect_ok(&error, fetch_for(&self, script, &reply, &error));
    assert_int_equal(self.n_judged, 4);
    http_reply_clear(&reply);
    self.n_prepared = 99;
    assert_int_equal(fetch_for(&self, script, &reply, &error), -1);
    assert_string_equal(error.reason, "NO_CREDENTIALS");
    assert_int_equal(http_script_requests(script), 5);
    http_script_stop(script);
}

static void a_pin_that_does_not_hold_is_final_or_aborted(void **state)
{
    struct fake_store self = {
        .store = {.prepare = prepare_token, .check = check_etag}, .etag = "e2", .mismatch = ERROR_FAILED_PRECONDITION};
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_by_token, "t1"),
                       *any = http_object_serve(answer_short_whole, NULL);
    (void)state;
    assert_int_equal(fetch_for(&self, script, &reply, &error), -1);
    assert_string_equal(error.reason, "MOVED");
    assert_int_equal(http_script_requests(script), 1);
    self.n_prepared = 0;
    self.etag = "e1";
    http_object_expect_ok(&error, fetch_for(&self, script, &reply, &error));
    http_reply_clear(&reply);
    self.mismatch = ERROR_ABORTED;
    assert_int_equal(fetch_for(&self, any, &reply, &error), -1);
    assert_int_equal(http_script_requests(any), 8);
    http_script_stop(any);
    http_script_stop(script);
}

/* --- proxies --- */

static void answer_407(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 407, "Proxy-Authenticate: Basic realm=\"p\"\r\n", "");
}

static void a_proxy_that_refuses_is_named_without_its_password(void **state)
{
    static const struct {
        const char *variable, *url;
    } cases[] = {{"http_proxy", "http://example.invalid/o"}, {"https_proxy", "https://example.invalid/o"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char url[HTTP_SCRIPT_URL_CHARS], proxy[HTTP_SCRIPT_URL_CHARS + 16];
        struct http_reply reply;
        struct error error = {0};
        struct http_script *script = http_object_serve(answer_407, NULL);
        http_script_url(script, "", url);
        snprintf(proxy, sizeof proxy, "http://user:SECRET@%s", url + strlen("http://"));
        setenv(cases[i].variable, proxy, 1);
        struct http_call call = {.url = cases[i].url, .max_reply_bytes = 100};
        assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
        unsetenv(cases[i].variable);
        assert_string_equal(error.reason, "PROXY_FAILED");
        assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
        assert_non_null(strstr(error.message, url));
        assert_null(strstr(error.message, "SECRET"));
        assert_int_equal(http_script_requests(script), 1);
        http_script_stop(script);
    }
}

static void a_proxy_that_is_gone_is_tried_again(void **state)
{
    struct http_reply reply;
    struct error error = {0};
    struct http_call call = {.url = "http://example.invalid/o", .max_reply_bytes = 100, .max_tries = 2};
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
    unsetenv("http_proxy");
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.message, "127.0.0.1 port 1"));
    assert_non_null(strstr(error.message, "2 tries"));
}

static void metadata_servers_are_asked_without_a_proxy(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_short_whole, NULL);
    struct http_call call = {.url = http_script_url(script, "/token", url), .max_reply_bytes = 100, .no_proxy = true};
    (void)state;
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    unsetenv("http_proxy");
    http_reply_clear(&reply);
    http_script_stop(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_lands_in_its_iovecs_with_its_sum),
        cmocka_unit_test(a_document_comes_with_its_head),
        cmocka_unit_test(a_document_can_be_a_range),
        cmocka_unit_test(all_of_a_shorter_object_is_a_good_answer_to_a_range_from_its_start),
        cmocka_unit_test(a_document_may_have_as_many_bytes_as_are_taken_and_no_more),
        cmocka_unit_test(a_head_request_shows_headers_only),
        cmocka_unit_test(a_body_is_sent_with_its_headers_and_its_length),
        cmocka_unit_test(a_header_with_a_line_break_is_never_sent),
        cmocka_unit_test(only_http_and_https_are_spoken),
        cmocka_unit_test(a_renewed_token_is_tried_at_once_and_once),
        cmocka_unit_test(every_try_is_prepared_anew),
        cmocka_unit_test(a_pin_that_does_not_hold_is_final_or_aborted),
        cmocka_unit_test(a_proxy_that_refuses_is_named_without_its_password),
        cmocka_unit_test(a_proxy_that_is_gone_is_tried_again),
        cmocka_unit_test(metadata_servers_are_asked_without_a_proxy),
    };
    return cmocka_run_group_tests(tests, http_object_open, http_object_close);
}
