/* Where requests may lead: by the text of a URL, at every hop, and by the address behind a name. */
#include <dlfcn.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "source/http/http.h"
#include "source/http/http_fence.h"
#include "tests/support/http_script.h"

#include <cmocka.h>

/* --- the text of a URL --- */

static const char *const endpoints[] = {"", "https://169.254.9.9", "https://hub.example/mirror"};
static const char *const trusted[] = {"https://cdn.example/models", "gs://bucket", "https://169.254.1.1/m",
                                      "http://10.0.0.1:8080"};
static const struct http_fence strict = {.endpoints = endpoints, .n_endpoints = 3};
static const struct http_fence plain = {.allow_plain = true};
static const struct http_fence confined = {.trusted_urls = trusted, .n_trusted_urls = 4};

static void expect_refused(const struct http_fence *fence, const char *url, const char *reason)
{
    struct error error;
    if (http_fence_check(fence, url, &error) == 0)
        fail_msg("%s is let pass", url);
    if (strcmp(error.reason, reason) != 0)
        fail_msg("%s: %s: %s", url, error.reason, error.message);
    assert_int_equal(error.code, strcmp(reason, "BAD_URL") == 0 ? ERROR_INVALID_ARGUMENT : ERROR_PERMISSION_DENIED);
}

static void expect_passed(const struct http_fence *fence, const char *url)
{
    struct error error;
    if (http_fence_check(fence, url, &error) < 0)
        fail_msg("%s", error.message);
}

static void plain_http_leads_to_this_host_alone(void **state)
{
    static const char *const others[] = {"http://h/x", "http://10.0.0.1/", "http://localhost.evil/",
                                         "http://[2001:db8::1]/"};
    static const char *const numbers[] = {"http://2130706433/",         "http://0x7f.1/",
                                          "http://017700000001/",       "http://127.1/",
                                          "http://[::ffff:127.0.0.1]/", "http://0/"};
    (void)state;
    expect_passed(&strict, "http://127.0.0.1:8/");
    expect_passed(&strict, "http://LocalHost/");
    expect_passed(&strict, "http://[::1]/");
    expect_passed(&strict, "https://h/");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        expect_refused(&strict, others[i], "PLAIN_HTTP");
        expect_passed(&plain, others[i]);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        expect_refused(&strict, numbers[i], "BAD_URL");
}

static void link_local_and_metadata_addresses_need_the_configuration_s_word(void **state)
{
    static const char *const hosts[] = {"169.254.169.254", "169.254.170.2",   "0.0.0.0",
                                        "[fe80::1]",       "[fd00:ec2::254]", "[::]"};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char url[80];
        snprintf(url, sizeof url, "https://%s/latest", hosts[i]);
        expect_refused(&strict, url, "FORBIDDEN_ADDRESS");
        expect_refused(&plain, url, "FORBIDDEN_ADDRESS");
        snprintf(url, sizeof url, "http://%s:80/latest", hosts[i]);
        expect_refused(&plain, url, "FORBIDDEN_ADDRESS");
    }
    expect_passed(&strict, "https://169.254.9.9/bucket");                      /* an endpoint */
    expect_refused(&strict, "https://169.254.9.9:8443/", "FORBIDDEN_ADDRESS"); /* not that one */
    expect_passed(&confined, "https://169.254.1.1/m/x");
    expect_refused(&confined, "https://169.254.1.1/x", "FORBIDDEN_ADDRESS");
}

static void trust_is_of_the_server_that_is_meant(void **state)
{
    static const char *const good[] = {"https://cdn.example/models",
                                       "https://CDN.example:443/models/x?y=%2F..",
                                       "gs://bucket/a",
                                       "https://cdn.example/models#sha256=0",
                                       "http://10.0.0.1:8080/x",
                                       "https://cdn.example/models/a b"};
    static const char *const bad[] = {"https://cdn.example/models2",
                                      "https://cdn.example/",
                                      "https://cdn.example:8443/models/x",
                                      "http://cdn.example/models/x",
                                      "https://cdn.example@evil/models/",
                                      "https://evil/https://cdn.example/models",
                                      "https://evil@cdn.example/models/x",
                                      "https://cdn.example\\@evil/models/x",
                                      "https://cdn.example/models/../x",
                                      "https://cdn.example/models/%2e%2E/x",
                                      "https://cdn.example/models/..%5cx",
                                      "https://cdn.example/models\\..\\x",
                                      "gs://bucket2/a",
                                      "gs://evil@bucket/a",
                                      "http://10.0.0.1:80801/x",
                                      "http://10.0.0.1/x",
                                      "https://cdn.example.evil/models/x",
                                      "",
                                      "s3://bucket/a"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!http_fence_trusts(&confined, good[i]))
            fail_msg("%s is not trusted", good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (http_fence_trusts(&confined, bad[i]))
            fail_msg("%s is trusted", bad[i]);
    }
    assert_true(http_fence_trusts(&strict, "https://anything"));
}

/* --- hops --- */

static void a_hop_passes_the_same_fence(void **state)
{
    static const struct {
        const struct http_fence *fence;
        const char *from, *location;
        bool is_confined;
        const char *leads; /* a URL, or the reason of the refusal */
    } cases[] = {
        {&strict, "https://h/a", "/b", false, "https://h/b"},
        {&strict, "https://h/a", "https://Other:443/b#c", false, "https://other/b"},
        {&strict, "http://127.0.0.1:1/a", "http://localhost:2/b", false, "http://localhost:2/b"},
        {&strict, "http://127.0.0.1:1/a", "http://h/b", false, "PLAIN_HTTP"},
        {&strict, "http://127.0.0.1:1/a", "//h/b", false, "PLAIN_HTTP"},
        {&plain, "http://h/a", "http://other/b", false, "http://other/b"},
        {&plain, "https://h/a", "http://h/a", false, "PLAIN_HTTP"},
        {&plain, "https://127.0.0.1/a", "http://127.0.0.1/a", false, "PLAIN_HTTP"},
        {&plain, "http://h/a", "http://169.254.169.254/latest", false, "FORBIDDEN_ADDRESS"},
        {&strict, "https://h/a", "https://[fe80::1]/", false, "FORBIDDEN_ADDRESS"},
        {&strict, "http://127.0.0.1/a", "http://2130706433/", false, "BAD_REDIRECT"},
        {&strict, "http://127.0.0.1/a", "http://0.0.0.0/", false, "FORBIDDEN_ADDRESS"},
        {&strict, "http://127.0.0.1/a", "http://[::ffff:127.0.0.1]/", false, "BAD_REDIRECT"},
        {&strict, "https://h/a", "https://h:443@evil/", false, "BAD_REDIRECT"},
        {&strict, "https://h/a", "file:///etc/passwd", false, "BAD_REDIRECT"},
        {&plain, "http://h/a", "http://127.0.0.1:9/b", false, "REDIRECT_TO_THIS_HOST"},
        {&plain, "http://h/a", "http://localhost:9/b", false, "REDIRECT_TO_THIS_HOST"},
        {&strict, "https://h/a", "https://[::1]/b", false, "REDIRECT_TO_THIS_HOST"},
        {&confined, "https://cdn.example/models/a", "/models/b", true, "https://cdn.example/models/b"},
        {&confined, "https://cdn.example/models/a", "b", true, "https://cdn.example/models/b"},
        {&confined, "https://cdn.example/models/a", "/private", true, "OUTSIDE_TRUSTED_URLS"},
        {&confined, "https://cdn.example/models/a", "/models/../private", true, "OUTSIDE_TRUSTED_URLS"},
        {&confined, "https://cdn.example/models/a", "https://evil/models/b", true, "OUTSIDE_TRUSTED_URLS"},
        {&confined, "https://cdn.example/models/a", "https://evil/models/b", false, "https://evil/models/b"},
        {&strict, "https://cdn.example/models/a", "https://evil/models/b", true, "https://evil/models/b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct http_hop hop = {cases[i].from, cases[i].location, cases[i].is_confined};
        struct error error;
        char *target = http_fence_follow(cases[i].fence, &hop, &error);
        if (strcmp(target ? target : error.reason, cases[i].leads) != 0)
            fail_msg("%s -> %s: %s", hop.from, hop.location, target ? target : error.message);
        free(target);
    }
}

/* --- addresses behind names --- */

/* libcurl asks us instead of the resolver: names of this file lead where they say, all others nowhere. */
static const char *resolved;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name && strstr(name, ".test") ? resolved : name, service, hints, found);
}

static void serve(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 206, "Content-Range: bytes 0-3/4\r\n", "body");
}

static struct http_script *start_script(void)
{
    return http_script_start(&(struct http_script_options){.play = serve});
}

static struct http_engine *start_engine(bool allow_plain)
{
    struct http_engine_options options = {.backoff_ms = 2, .fence = {.allow_plain = allow_plain}};
    struct http_engine *engine;
    struct error error;
    if (http_engine_create(&options, &engine, &error))
        fail_msg("%s", error.message);
    return engine;
}

static int fetch(struct http_engine *engine, const char *url, struct error *error)
{
    const struct http_call call = {.url = url, .end = 4, .max_reply_bytes = 4};
    struct http_reply reply = {0};
    int failed = http_fetch(engine, &call, &reply, error);
    http_reply_clear(&reply);
    return failed;
}

static int read_range(struct http_engine *engine, const char *url, struct error *error)
{
    char bytes[4];
    struct iovec iov = {bytes, sizeof bytes};
    const struct http_range range = {.url = url, .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = 4};
    return http_read_range(engine, &range, error);
}

static int (*const ways[])(struct http_engine *engine, const char *url, struct error *error) = {fetch, read_range};

static void a_name_that_leads_to_a_reserved_address_is_refused_at_once(void **state)
{
    static const char *const addresses[] = {"169.254.169.254", "fe80::1", "0.0.0.0", "::ffff:169.254.169.254",
                                            "fd00:ec2::254"};
    struct http_engine *engine = start_engine(true);
    struct error error;
    (void)state;
    for (size_t i = 0; i < 2 * sizeof addresses / sizeof *addresses; i++) {
        resolved = addresses[i / 2];
        assert_int_equal(ways[i % 2](engine, "https://name.test/o", &error), -1);
        if (strcmp(error.reason, "FORBIDDEN_ADDRESS") != 0)
            fail_msg("%s: %s", resolved, error.message);
        assert_int_equal(error.code, ERROR_PERMISSION_DENIED);
        assert_non_null(strstr(error.message, "(1 try "));
    }
    http_engine_destroy(engine);
}

static const char *named(struct http_script *script, const char *path, char url[HTTP_SCRIPT_URL_CHARS])
{
    char loopback[HTTP_SCRIPT_URL_CHARS];
    http_script_url(script, path, loopback);
    snprintf(url, HTTP_SCRIPT_URL_CHARS, "http://name.test%.200s", strrchr(loopback, ':'));
    return url;
}

static void a_name_may_lead_to_this_host_when_it_was_asked_for_itself(void **state)
{
    struct http_engine *engine = start_engine(true);
    struct http_script *script = start_script();
    char url[HTTP_SCRIPT_URL_CHARS];
    struct error error;
    (void)state;
    resolved = "127.0.0.1";
    for (size_t i = 0; i < 2; i++) {
        if (ways[i](engine, named(script, "/o", url), &error))
            fail_msg("%s", error.message);
    }
    http_script_stop(script);
    http_engine_destroy(engine);
}

static int lead(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)error;
    http_attempt_set_url(attempt, data);
    return 0;
}

/* As after a redirect: the call is for one host, its prepare sends it to another one. */
static void a_server_elsewhere_cannot_lead_to_this_host_by_a_name(void **state)
{
    struct http_engine *engine = start_engine(true);
    struct http_script *script = start_script();
    char bytes[4], url[HTTP_SCRIPT_URL_CHARS];
    const struct http_store store = {.prepare = lead, .data = (void *)(uintptr_t)named(script, "/o", url)};
    struct iovec iov = {bytes, sizeof bytes};
    const struct http_range range = {
        .store = &store, .url = "https://elsewhere.test/o", .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = 4};
    const struct http_call call = {.store = &store, .url = range.url, .end = 4, .max_reply_bytes = 4};
    struct http_reply reply = {0};
    struct error error;
    (void)state;
    resolved = "127.0.0.1";
    assert_int_equal(http_read_range(engine, &range, &error), -1);
    assert_string_equal(error.reason, "FORBIDDEN_ADDRESS");
    assert_int_equal(http_fetch(engine, &call, &reply, &error), -1);
    assert_string_equal(error.reason, "FORBIDDEN_ADDRESS");
    assert_int_equal(http_script_requests(script), 0);
    http_script_stop(script);
    http_engine_destroy(engine);
}

/* The same, where a proxy is asked for everything but that name: libcurl connects to it itself. */
static void nor_by_a_name_that_no_proxy_excepts(void **state)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("no_proxy", "elsewhere.org, .name.test", 1);
    a_server_elsewhere_cannot_lead_to_this_host_by_a_name(state);
    unsetenv("http_proxy");
    unsetenv("no_proxy");
}

static void what_no_proxy_does_not_except_is_asked_through_the_proxy_and_no_other_way(void **state)
{
    struct http_engine *engine = start_engine(true);
    struct http_script *script = start_script(), *proxy = start_script();
    char url[HTTP_SCRIPT_URL_CHARS], proxy_url[HTTP_SCRIPT_URL_CHARS];
    struct error error;
    (void)state;
    resolved = "127.0.0.1";
    setenv("http_proxy", http_script_url(proxy, "", proxy_url), 1);
    setenv("no_proxy", "other.test,127.0.0.1", 1);
    for (size_t i = 0; i < 2; i++)
        if (ways[i](engine, named(script, "/o", url), &error))
            fail_msg("%s", error.message);
    assert_int_equal(http_script_requests(script), 0);
    assert_int_equal(http_script_requests(proxy), 2);
    setenv("no_proxy", "name.test", 1);
    for (size_t i = 0; i < 2; i++)
        if (ways[i](engine, url, &error))
            fail_msg("%s", error.message);
    assert_int_equal(http_script_requests(script), 2); /* not on the connection to the proxy */
    assert_int_equal(http_script_requests(proxy), 2);
    unsetenv("http_proxy");
    unsetenv("no_proxy");
    http_script_stop(script);
    http_script_stop(proxy);
    http_engine_destroy(engine);
}

static void a_metadata_service_is_asked_by_calls_that_say_so_alone(void **state)
{
    struct http_engine *engine = start_engine(false);
    struct http_script *script = start_script();
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply = {0};
    struct error error;
    const struct http_call call = {.url = named(script, "/o", url), .end = 4, .max_reply_bytes = 4, .no_proxy = true};
    (void)state;
    resolved = "127.0.0.1";
    if (http_fetch(engine, &call, &reply, &error))
        fail_msg("%s", error.message);
    http_reply_clear(&reply);
    assert_int_equal(fetch(engine, url, &error), -1); /* nor on the connection that is there already */
    assert_string_equal(error.reason, "PLAIN_HTTP");
    http_script_stop(script);
    http_engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_http_leads_to_this_host_alone),
        cmocka_unit_test(link_local_and_metadata_addresses_need_the_configuration_s_word),
        cmocka_unit_test(trust_is_of_the_server_that_is_meant),
        cmocka_unit_test(a_hop_passes_the_same_fence),
        cmocka_unit_test(a_name_that_leads_to_a_reserved_address_is_refused_at_once),
        cmocka_unit_test(a_name_may_lead_to_this_host_when_it_was_asked_for_itself),
        cmocka_unit_test(a_server_elsewhere_cannot_lead_to_this_host_by_a_name),
        cmocka_unit_test(nor_by_a_name_that_no_proxy_excepts),
        cmocka_unit_test(what_no_proxy_does_not_except_is_asked_through_the_proxy_and_no_other_way),
        cmocka_unit_test(a_metadata_service_is_asked_by_calls_that_say_so_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
