/* The HTTP engine's two calls against a server that behaves: documents, ranges, what stores add, redirects, proxies. */
#include "tests/support/unit.h"

#include "base/crc.h"
#include "tests/support/http_scene.h"

#undef fail /* ours is in base/error.h */

static int open_scene(void **state)
{
    http_scene_open(state);
    http_scene.options.max_tries = 8;
    http_scene.options.fence.allow_plain = true;
    return 0;
}

static void assert_fetched(struct http_call call)
{
    int failed = http_scene_fetch(call);
    if (failed)
        print_error("%s\n", http_scene.error.message);
    assert_int_equal(failed, 0);
}

static void assert_refused(struct http_call call, const char *reason)
{
    assert_int_equal(http_scene_fetch(call), -1);
    assert_string_equal(http_scene.error.reason, reason);
}

static const char *header_seen(unsigned request, const char *name)
{
    return http_script_header(http_script_seen(http_scene.script, request), name);
}

TEST_IN(a_range_lands_in_its_iovecs_with_its_sum, open_scene, http_scene_close)
{
    unsigned char a[1000], b[50000];
    struct iovec iov[] = {{a, sizeof a}, {NULL, 20000}, {b, sizeof b}};
    uint64_t sum = 0;
    http_scene_start();
    struct http_range range = {.url = http_scene.url,
                               .name = "o",
                               .offset = 777,
                               .iov = iov,
                               .n_iov = 3,
                               .object_bytes = OBJECT_BYTES,
                               .checksum = CHECKSUM_CRC32C,
                               .checksum_value = &sum};
    assert_int_equal(http_read_range(http_scene.engine, &range, &http_scene.error), 0);
    assert_memory_equal(a, http_scene.object + 777, sizeof a);
    assert_memory_equal(b, http_scene.object + 777 + sizeof a + 20000, sizeof b);
    assert_true(sum == crc32c_update(0, http_scene.object + 777, 71000));
}

TEST_IN(a_document_comes_with_its_head_and_may_be_a_range, open_scene, http_scene_close)
{
    const struct http_reply *reply = &http_scene.reply;
    http_scene_start();
    assert_fetched((struct http_call){0});
    assert_int_equal(reply->head.status, 200);
    assert_string_equal(http_head_find(&reply->head, "content-length"), "300000");
    assert_int_equal(reply->body_bytes, OBJECT_BYTES);
    assert_memory_equal(reply->body, http_scene.object, OBJECT_BYTES);
    assert_fetched((struct http_call){.first_byte = 50, .end = 150, .max_reply_bytes = 100});
    assert_int_equal(reply->head.status, 206);
    assert_int_equal(reply->body_bytes, 100);
    assert_memory_equal(reply->body, http_scene.object + 50, 100);
    assert_fetched((struct http_call){.first_byte = OBJECT_BYTES - 10, .end = OBJECT_BYTES + 10});
    assert_int_equal(reply->body_bytes, 10);
}

PLAY(answer_short_whole, { http_script_answer(peer, 200, "", "short"); })

TEST_IN(all_of_a_shorter_object_is_a_good_answer_to_a_range_from_its_start, open_scene, http_scene_close)
{
    http_scene.others = answer_short_whole;
    http_scene_start();
    assert_fetched((struct http_call){.end = 100});
    assert_string_equal(http_scene.reply.body, "short");
    assert_refused((struct http_call){.end = 4}, "RANGE_IGNORED");
}

PLAY(answer_without_end, {
    http_script_send(peer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    while (!http_script_is_gone(peer))
        http_script_send_bytes(peer, http_scene.object, OBJECT_BYTES);
    http_script_close(peer);
})

TEST_IN(a_document_may_have_as_many_bytes_as_are_taken_and_no_more, open_scene, http_scene_close)
{
    http_scene.others = answer_short_whole;
    http_scene_start();
    assert_fetched((struct http_call){.max_reply_bytes = 5});
    assert_refused((struct http_call){.max_reply_bytes = 4}, "ANSWER_TOO_LONG");
    http_scene.others = answer_without_end;
    assert_refused((struct http_call){.max_reply_bytes = 1000000}, "ANSWER_TOO_LONG");
}

PLAY(answer_head, {
    http_script_send(peer, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 123456789\r\n"
                           "ETag: \"a\"\r\nETag:  \"b\" \r\n\r\n");
})

TEST_IN(a_head_request_shows_headers_only, open_scene, http_scene_close)
{
    const struct http_head *head = &http_scene.reply.head;
    http_scene.others = answer_head;
    http_scene_start();
    assert_fetched((struct http_call){.method = "HEAD"});
    assert_string_equal(http_head_find(head, "content-length"), "123456789");
    assert_string_equal(http_head_find(head, "etag"), "\"b\"");
    assert_null(http_head_find(head, "etag2"));
    assert_string_equal(http_script_seen(http_scene.script, 0)->method, "HEAD");
}

TEST_IN(a_body_is_sent_with_its_headers_and_its_length, open_scene, http_scene_close)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH"};
    static const struct http_header headers[] = {{"Content-Type", "application/json"}, {"X-Empty", ""}};
    char url[HTTP_SCRIPT_URL_CHARS];
    http_scene.others = answer_short_whole;
    http_scene_start();
    http_script_url(http_scene.script, "/a//b/../c?x=%2B", url);
    for (unsigned i = 0; i < 3; i++) {
        assert_fetched((struct http_call){
            .url = url, .method = methods[i], .headers = headers, .n_headers = 2, .body = "{}", .body_bytes = 2});
        const struct http_script_request *seen = http_script_seen(http_scene.script, i);
        assert_string_equal(seen->method, methods[i]);
        assert_string_equal(seen->target, "/a//b/../c?x=%2B");
        assert_string_equal(header_seen(i, "content-length"), "2");
        assert_string_equal(header_seen(i, "content-type"), "application/json");
        assert_string_equal(header_seen(i, "x-empty"), "");
        assert_string_equal(header_seen(i, "accept-encoding"), "identity");
        assert_null(header_seen(i, "expect"));
    }
}

TEST_IN(a_header_with_a_line_break_is_never_sent, open_scene, http_scene_close)
{
    static const struct http_header header = {"X", "a\r\nHost: evil"};
    http_scene_start();
    assert_refused((struct http_call){.headers = &header, .n_headers = 1}, "BAD_HEADER");
    assert_int_equal(http_scene.error.code, ERROR_INVALID_ARGUMENT);
    assert_true(http_scene_has_seen(0, 0));
}

TEST_IN(only_http_and_https_are_spoken, open_scene, http_scene_close)
{
    static const char *const urls[] = {
        "file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "/x", "", "http://"};
    http_scene_start();
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        assert_int_equal(http_scene_fetch((struct http_call){.url = urls[i]}), -1);
        assert_int_equal(http_scene.error.code, ERROR_INVALID_ARGUMENT);
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

static const char *good_token;

PLAY(answer_by_token, {
    bool is_good = strcmp(http_script_header(request, "authorization"), good_token) == 0;
    http_script_answer(peer, is_good ? 200 : 401, "etag: e1\r\n", is_good ? "good" : "expired");
})

static struct http_call start_for(struct fake_store *self, const char *token)
{
    self->store.data = self;
    good_token = token;
    http_scene.others = answer_by_token;
    http_scene_start();
    return (struct http_call){.store = &self->store};
}

TEST_IN(a_renewed_token_is_tried_at_once_and_once, open_scene, http_scene_close)
{
    struct fake_store self = {.store = {.prepare = prepare_token, .judge = judge_as_told}, .verdict = HTTP_RETRY_RENEWED};
    const struct http_call call = start_for(&self, "t2");
    assert_fetched(call);
    assert_string_equal(http_scene.reply.body, "good");
    assert_int_equal(self.n_prepared, 2);
    assert_refused(call, "TOLD");
    assert_non_null(strstr(http_scene.error.message, "the store says 401 expired"));
    assert_int_equal(self.n_prepared, 4);
}

TEST_IN(every_try_is_prepared_anew, open_scene, http_scene_close)
{
    struct fake_store self = {.store = {.prepare = prepare_token, .judge = judge_as_told}, .verdict = HTTP_RETRY};
    const struct http_call call = start_for(&self, "t5");
    assert_fetched(call);
    assert_int_equal(self.n_judged, 4);
    self.n_prepared = 99;
    assert_refused(call, "NO_CREDENTIALS");
    assert_int_equal(http_script_requests(http_scene.script), 5);
}

TEST_IN(a_pin_that_does_not_hold_is_final_or_aborted, open_scene, http_scene_close)
{
    struct fake_store self = {
        .store = {.prepare = prepare_token, .check = check_etag}, .etag = "e2", .mismatch = ERROR_FAILED_PRECONDITION};
    const struct http_call call = start_for(&self, "t1");
    assert_refused(call, "MOVED");
    assert_int_equal(http_script_requests(http_scene.script), 1);
    self.n_prepared = 0;
    self.etag = "e1";
    assert_fetched(call);
    self.mismatch = ERROR_ABORTED;
    http_scene.others = answer_short_whole;
    assert_int_equal(http_scene_fetch(call), -1);
    assert_int_equal(http_script_requests(http_scene.script), 2 + 8);
}

/* --- redirects --- */

static struct {
    char target[HTTP_SCRIPT_URL_CHARS];
    int status;
} redirect;

PLAY(answer_redirect, {
    char lines[HTTP_SCRIPT_URL_CHARS + 32];
    if (strcmp(request->target, "/end") == 0) {
        http_script_answer(peer, 200, "", "here");
        return;
    }
    snprintf(lines, sizeof lines, "Location: %s\r\n", redirect.target);
    http_script_answer(peer, redirect.status, lines, "moved");
})

static int sign(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)data, (void)error;
    http_attempt_add_header(attempt, "Authorization", "Bearer SECRET");
    http_attempt_add_header(attempt, "X-Signed", "yes");
    return 0;
}

/* The call for a document that the server redirects. */
static struct http_call start_redirected(int status, const char *target)
{
    static const struct http_header headers[] = {{"Accept", "a/b"}, {"Cookie", "c"}, {"x-amz-security-token", "t"}};
    static const struct http_store store = {.prepare = sign};
    http_scene_stop();
    redirect.status = status;
    snprintf(redirect.target, sizeof redirect.target, "%s", target);
    http_scene.others = http_scene.others ? http_scene.others : answer_redirect;
    http_scene_start();
    return (struct http_call){.store = &store, .headers = headers, .n_headers = 3, .follow_redirects = true};
}

TEST_IN(a_redirect_on_the_same_host_is_signed_again, open_scene, http_scene_close)
{
    static const char *const targets[] = {"/end", "../end"};
    for (size_t i = 0; i < 2; i++) {
        assert_fetched(start_redirected(302, targets[i]));
        assert_string_equal(http_scene.reply.body, "here");
        assert_non_null(strstr(http_scene.reply.url, "/end"));
        assert_string_equal(header_seen(1, "authorization"), "Bearer SECRET");
    }
}

TEST_IN(nothing_secret_follows_a_redirect_to_another_host, open_scene, http_scene_close)
{
    static const char *const secrets[] = {"authorization", "x-signed", "cookie", "x-amz-security-token"};
    struct http_script *other = http_script_start(&(struct http_script_options){.play = answer_redirect});
    char target[HTTP_SCRIPT_URL_CHARS];
    assert_fetched(start_redirected(307, http_script_url(other, "/end", target)));
    const struct http_script_request *seen = http_script_seen(other, 0);
    assert_string_equal(http_script_header(seen, "accept"), "a/b");
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        assert_null(http_script_header(seen, secrets[i]));
    assert_string_equal(http_scene.reply.url, target);
    http_script_stop(other);
}

PLAY(redirect_five_times, {
    if (request->number < 5)
        http_script_answer(peer, 302, "Location: /next\r\n", "");
    else
        http_script_answer(peer, 200, "", "here");
})

TEST_IN(five_redirects_are_followed_and_a_circle_of_them_ends, open_scene, http_scene_close)
{
    http_scene.others = redirect_five_times;
    assert_fetched(start_redirected(0, ""));
    assert_string_equal(http_scene.reply.body, "here");
    http_scene_stop();
    http_scene.others = NULL;
    assert_refused(start_redirected(301, "/again"), "TOO_MANY_REDIRECTS");
    assert_int_equal(http_script_requests(http_scene.script), 6);
}

TEST_IN(redirects_to_other_schemes_and_with_passwords_are_refused, open_scene, http_scene_close)
{
    static const char *const targets[] = {"file:///etc/passwd", "ftp://127.0.0.1/", "http://u:p@127.0.0.1/"};
    for (size_t i = 0; i < 3; i++) {
        assert_refused(start_redirected(302, targets[i]), "BAD_REDIRECT");
        assert_int_equal(http_scene.error.code, ERROR_FAILED_PRECONDITION);
    }
}

TEST_IN(a_redirect_that_is_not_followed_is_an_answer, open_scene, http_scene_close)
{
    start_redirected(302, "/end");
    assert_fetched((struct http_call){.accept_any_status = true});
    assert_int_equal(http_scene.reply.head.status, 302);
    assert_string_equal(http_head_find(&http_scene.reply.head, "location"), "/end");
    assert_string_equal(http_scene.reply.body, "moved");
    assert_int_equal(http_scene_fetch((struct http_call){0}), -1);
}

/* --- proxies --- */

PLAY(answer_407, { http_script_answer(peer, 407, "Proxy-Authenticate: Basic realm=\"p\"\r\n", ""); })

TEST_IN(a_proxy_that_refuses_is_named_without_its_password, open_scene, http_scene_close)
{
    static const struct {
        const char *variable, *url;
    } cases[] = {{"http_proxy", "http://example.invalid/o"}, {"https_proxy", "https://example.invalid/o"}};
    for (size_t i = 0; i < 2; i++) {
        char url[HTTP_SCRIPT_URL_CHARS], proxy[HTTP_SCRIPT_URL_CHARS + 16];
        http_scene.others = answer_407;
        http_scene_start();
        http_script_url(http_scene.script, "", url);
        snprintf(proxy, sizeof proxy, "http://user:SECRET@%s", url + strlen("http://"));
        setenv(cases[i].variable, proxy, 1);
        int failed = http_scene_fetch((struct http_call){.url = cases[i].url});
        unsetenv(cases[i].variable);
        assert_int_equal(failed, -1);
        assert_string_equal(http_scene.error.reason, "PROXY_FAILED");
        assert_int_equal(http_scene.error.code, ERROR_PERMISSION_DENIED);
        assert_non_null(strstr(http_scene.error.message, url));
        assert_null(strstr(http_scene.error.message, "SECRET"));
        assert_int_equal(http_script_requests(http_scene.script), 1);
    }
}

TEST_IN(a_proxy_that_is_gone_is_tried_again_and_metadata_servers_are_asked_without, open_scene, http_scene_close)
{
    http_scene_start();
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    int failed = http_scene_fetch((struct http_call){.url = "http://example.invalid/o", .max_tries = 2});
    struct error error = http_scene.error;
    int metadata_failed = http_scene_fetch((struct http_call){.no_proxy = true});
    unsetenv("http_proxy");
    assert_int_equal(failed, -1);
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.message, "127.0.0.1 port 1"));
    assert_non_null(strstr(error.message, "2 tries"));
    assert_int_equal(metadata_failed, 0);
}
