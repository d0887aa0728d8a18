/* Redirects: which are followed, how often, and what goes along. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "source/http/http.h"
#include "tests/support/http_object.h"
#include "tests/support/http_script.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

/* --- redirects --- */

static struct {
    char target[HTTP_SCRIPT_URL_CHARS];
    int status;
} redirect;

static void answer_redirect(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    char lines[HTTP_SCRIPT_URL_CHARS + 32];
    (void)data;
    if (strcmp(request->target, "/end") == 0) {
        http_script_answer(peer, 200, "", "here");
        return;
    }
    snprintf(lines, sizeof lines, "Location: %s\r\n", redirect.target);
    http_script_answer(peer, redirect.status, lines, "moved");
}

static int sign(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)data, (void)error;
    http_attempt_add_header(attempt, "Authorization", "Bearer SECRET");
    http_attempt_add_header(attempt, "X-Signed", "yes");
    return 0;
}

static const struct http_header private_headers[] = {{"Accept", "a/b"}, {"Cookie", "c"}, {"x-amz-security-token", "t"}};

static int fetch_redirected(struct http_script *script, struct http_reply *reply, struct error *error)
{
    static const struct http_store store = {.prepare = sign};
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_call call = {.url = http_script_url(script, "/a/b?c", url),
                             .store = &store,
                             .headers = private_headers,
                             .n_headers = 3,
                             .max_reply_bytes = 100,
                             .follow_redirects = true};
    return http_fetch(http_object_engine, &call, reply, error);
}

static void a_redirect_on_the_same_host_is_signed_again(void **state)
{
    static const char *const targets[] = {"/end", "../end"};
    struct http_reply reply;
    struct error error = {0};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct http_script *script = http_object_serve(answer_redirect, NULL);
        redirect.status = 302;
        strcpy(redirect.target, targets[i]);
        http_object_expect_ok(&error, fetch_redirected(script, &reply, &error));
        assert_string_equal(reply.body, "here");
        assert_non_null(strstr(reply.url, "/end"));
        assert_string_equal(http_script_header(http_script_seen(script, 1), "authorization"), "Bearer SECRET");
        http_reply_clear(&reply);
        http_script_stop(script);
    }
}

static void nothing_secret_follows_a_redirect_to_another_host(void **state)
{
    struct http_reply reply;
    struct error error = {0};
    struct http_script *first = http_object_serve(answer_redirect, NULL), *other = http_object_serve(answer_redirect, NULL);
    (void)state;
    redirect.status = 307;
    http_script_url(other, "/end", redirect.target);
    http_object_expect_ok(&error, fetch_redirected(first, &reply, &error));
    const struct http_script_request *seen = http_script_seen(other, 0);
    assert_string_equal(http_script_header(seen, "accept"), "a/b");
    assert_null(http_script_header(seen, "authorization"));
    assert_null(http_script_header(seen, "x-signed"));
    assert_null(http_script_header(seen, "cookie"));
    assert_null(http_script_header(seen, "x-amz-security-token"));
    assert_string_equal(reply.url, redirect.target);
    http_reply_clear(&reply);
    http_script_stop(first);
    http_script_stop(other);
}

static void redirect_five_times(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    if (request->number < 5)
        http_script_answer(peer, 302, "Location: /next\r\n", "");
    else
        http_script_answer(peer, 200, "", "here");
}

static void five_redirects_are_followed(void **state)
{
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(redirect_five_times, NULL);
    (void)state;
    http_object_expect_ok(&error, fetch_redirected(script, &reply, &error));
    assert_string_equal(reply.body, "here");
    http_reply_clear(&reply);
    http_script_stop(script);
}

static void a_circle_of_redirects_ends(void **state)
{
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_redirect, NULL);
    (void)state;
    redirect.status = 301;
    strcpy(redirect.target, "/again");
    assert_int_equal(fetch_redirected(script, &reply, &error), -1);
    assert_string_equal(error.reason, "TOO_MANY_REDIRECTS");
    assert_int_equal(http_script_requests(script), 6);
    http_script_stop(script);
}

static void redirects_to_other_schemes_and_with_passwords_are_refused(void **state)
{
    static const char *const targets[] = {"file:///etc/passwd", "ftp://127.0.0.1/", "http://u:p@127.0.0.1/"};
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_redirect, NULL);
    (void)state;
    redirect.status = 302;
    for (size_t i = 0; i < 3; i++) {
        strcpy(redirect.target, targets[i]);
        assert_int_equal(fetch_redirected(script, &reply, &error), -1);
        assert_string_equal(error.reason, "BAD_REDIRECT");
        assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    }
    http_script_stop(script);
}

static void a_redirect_that_is_not_followed_is_an_answer(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = http_object_serve(answer_redirect, NULL);
    struct http_call call = {.url = http_script_url(script, "/o", url), .max_reply_bytes = 100, .accept_any_status = true};
    (void)state;
    redirect.status = 302;
    strcpy(redirect.target, "/end");
    http_object_expect_ok(&error, http_fetch(http_object_engine, &call, &reply, &error));
    assert_int_equal(reply.head.status, 302);
    assert_string_equal(http_head_find(&reply.head, "location"), "/end");
    assert_string_equal(reply.body, "moved");
    http_reply_clear(&reply);
    call.accept_any_status = false;
    assert_int_equal(http_fetch(http_object_engine, &call, &reply, &error), -1);
    http_script_stop(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_redirect_on_the_same_host_is_signed_again),
        cmocka_unit_test(nothing_secret_follows_a_redirect_to_another_host),
        cmocka_unit_test(five_redirects_are_followed),
        cmocka_unit_test(a_circle_of_redirects_ends),
        cmocka_unit_test(redirects_to_other_schemes_and_with_passwords_are_refused),
        cmocka_unit_test(a_redirect_that_is_not_followed_is_an_answer),
    };
    return cmocka_run_group_tests(tests, http_object_open, http_object_close);
}
