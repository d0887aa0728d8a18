/* Where requests may lead: by the text of a URL, at every hop, by the proxy that is asked, and by the address behind a name,
 * which may be one that no server resolves. */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tests/support/http_scene.h"

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

/* --- proxies, by the variables that curl reads, read as it reads them --- */

static const char *const variables[] = {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
                                        "all_proxy",  "ALL_PROXY",  "no_proxy",    "NO_PROXY"};

static int clear_proxies(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return 0;
}

static const char *proxy_of(const char *text)
{
    struct url url;
    struct error error;
    assert_int_equal(url_parse(text, &url, &error), 0);
    return http_proxy_find(&url);
}

static void the_first_variable_that_says_something_counts(void **state)
{
    (void)state;
    assert_null(proxy_of("https://a.test/"));
    setenv("ALL_PROXY", "http://all", 1);
    assert_string_equal(proxy_of("http://a.test/"), "http://all");
    assert_string_equal(proxy_of("https://a.test/"), "http://all");
    setenv("HTTP_PROXY", "http://cgi", 1); /* a header of a request, where curl runs in a web server */
    assert_string_equal(proxy_of("http://a.test/"), "http://all");
    setenv("http_proxy", "http://plain", 1);
    setenv("https_proxy", "", 1);
    setenv("HTTPS_PROXY", "http://secure", 1);
    assert_string_equal(proxy_of("http://a.test/"), "http://plain");
    assert_string_equal(proxy_of("https://a.test/"), "http://secure");
}

struct sample {
    const char *no_proxy, *url;
    int is_excepted;
};

static void names_addresses_and_nets_are_excepted(void **state)
{
    static const struct sample samples[] = {
        {"a.test", "http://a.test/", 1},
        {"A.Test", "http://a.test:8080/", 1},
        {"a.test", "http://b.a.test/", 1},
        {".a.test", "http://a.test/", 1},
        {".a.test", "http://b.a.test/", 1},
        {"a.test", "http://ba.test/", 0},
        {"b.a.test", "http://a.test/", 0},
        {"x.test, a.test", "http://a.test/", 1},
        {"x.test a.test", "http://a.test/", 1},
        {",,a.test", "http://a.test/", 1},
        {"a.test.", "http://a.test/", 1},
        {"*", "http://a.test/", 1},
        {"*.test", "http://a.test/", 0},
        {"*,b.test", "http://a.test/", 0},
        {"a.test:80", "http://a.test/", 0},
        {"", "http://a.test/", 0},
        {".", "http://a.test/", 0},
        {"10.0.0.1", "http://10.0.0.1/", 1},
        {"10.0.0.1", "http://10.0.0.12/", 0},
        {"0.1", "http://10.0.0.1/", 0},
        {"10.0.0.0/8", "http://10.9.8.7/", 1},
        {"10.0.0.0/8", "http://11.9.8.7/", 0},
        {"10.0.0.0/31", "http://10.0.0.1/", 1},
        {"10.0.0.0/31", "http://10.0.0.2/", 0},
        {"10.0.0.1/32", "http://10.0.0.1/", 1},
        {"10.0.0.1/33", "http://10.0.0.1/", 0},
        {"0.0.0.0/0", "http://10.0.0.1/", 0},
        {"fd00::1", "http://[fd00::1]/", 1},
        {"fd00::/16", "http://[fd00:1::1]/", 1},
        {"fd00::/16", "http://[fe00:1::1]/", 0},
        {"fd00::/129", "http://[fd00::]/", 0},
        {"::/1", "http://10.0.0.1/", 0},
    };
    (void)state;
    setenv("http_proxy", "http://p", 1);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        setenv("no_proxy", samples[i].no_proxy, 1);
        if ((proxy_of(samples[i].url) == NULL) != samples[i].is_excepted)
            fail_msg("no_proxy=%s %s", samples[i].no_proxy, samples[i].url);
    }
    setenv("no_proxy", "", 1);
    setenv("NO_PROXY", "a.test", 1);
    assert_null(proxy_of("http://a.test/"));
}

/* --- addresses behind names --- */

/* libcurl asks us instead of the resolver: names of ".test" lead where `resolved` says, nothing answers for a silent one. */
static const char *resolved;
static atomic_bool is_released = true;
static atomic_int n_asked;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!name || strcmp(name, "silent.invalid") != 0)
        return real(name && strstr(name, ".test") ? resolved : name, service, hints, found);
    atomic_fetch_add(&n_asked, 1);
    while (!atomic_load(&is_released))
        http_script_rest(1);
    return EAI_AGAIN;
}

PLAY(serve, { http_script_answer(peer, 206, "Content-Range: bytes 0-3/4\r\n", "body"); })

/* With a URL of a name that leads to the scene's server, or elsewhere. */
static void start(bool allow_plain)
{
    char loopback[HTTP_SCRIPT_URL_CHARS];
    resolved = "127.0.0.1";
    http_scene.others = serve;
    http_scene.options.fence.allow_plain = allow_plain;
    http_scene_start();
    http_script_url(http_scene.script, "/o", loopback);
    snprintf(http_scene.url, HTTP_SCRIPT_URL_CHARS, "http://name.test%.200s", strrchr(loopback, ':'));
}

/* A document, then a range of that URL. */
static int ask(unsigned way, const struct http_store *store, const char *url)
{
    char bytes[4];
    struct iovec iov = {bytes, sizeof bytes};
    const struct http_range range = {.store = store, .url = url, .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = 4};
    return way ? http_read_range(http_scene.engine, &range, &http_scene.error)
               : http_scene_fetch((struct http_call){.store = store, .url = url, .end = 4, .max_reply_bytes = 4});
}

static void assert_asked_both_ways(void)
{
    for (unsigned way = 0; way < 2; way++)
        if (ask(way, NULL, http_scene.url))
            fail_msg("%s", http_scene.error.message);
}

static void a_name_that_leads_to_a_reserved_address_is_refused_at_once(void **state)
{
    static const char *const addresses[] = {"169.254.169.254", "fe80::1", "0.0.0.0", "::ffff:169.254.169.254",
                                            "fd00:ec2::254"};
    (void)state;
    start(true);
    for (unsigned i = 0; i < 2 * sizeof addresses / sizeof *addresses; i++) {
        resolved = addresses[i / 2];
        assert_int_equal(ask(i % 2, NULL, "https://name.test/o"), -1);
        if (strcmp(http_scene.error.reason, "FORBIDDEN_ADDRESS") != 0)
            fail_msg("%s: %s", resolved, http_scene.error.message);
        assert_int_equal(http_scene.error.code, ERROR_PERMISSION_DENIED);
        assert_non_null(strstr(http_scene.error.message, "(1 try "));
    }
}

static void a_name_may_lead_to_this_host_when_it_was_asked_for_itself(void **state)
{
    (void)state;
    start(true);
    assert_asked_both_ways();
}

static int lead(void *data, struct http_attempt *attempt, struct error *error)
{
    (void)data, (void)error;
    http_attempt_set_url(attempt, http_scene.url);
    return 0;
}

/* As after a redirect: the call is for one host, its prepare sends it to another one. Also where a proxy is asked for
 * everything except that name: libcurl connects to it itself. */
static void a_server_elsewhere_cannot_lead_to_this_host_by_a_name(void **state)
{
    static const struct http_store store = {.prepare = lead};
    (void)state;
    start(true);
    for (unsigned i = 0; i < 4; i++) {
        if (i == 2)
            setenv("http_proxy", "http://127.0.0.1:1", 1);
        setenv("no_proxy", "elsewhere.org, .name.test", 1);
        assert_int_equal(ask(i % 2, &store, "https://elsewhere.test/o"), -1);
        assert_string_equal(http_scene.error.reason, "FORBIDDEN_ADDRESS");
    }
    assert_int_equal(http_script_requests(http_scene.script), 0);
}

static void what_no_proxy_does_not_except_is_asked_through_the_proxy_and_no_other_way(void **state)
{
    struct http_script *proxy = http_script_start(&(struct http_script_options){.play = serve});
    char proxy_url[HTTP_SCRIPT_URL_CHARS];
    (void)state;
    start(true);
    setenv("http_proxy", http_script_url(proxy, "", proxy_url), 1);
    setenv("no_proxy", "other.test,127.0.0.1", 1);
    assert_asked_both_ways();
    assert_int_equal(http_script_requests(http_scene.script), 0);
    assert_int_equal(http_script_requests(proxy), 2);
    setenv("no_proxy", "name.test", 1);
    assert_asked_both_ways();
    assert_int_equal(http_script_requests(http_scene.script), 2); /* not on the connection to the proxy */
    assert_int_equal(http_script_requests(proxy), 2);
    http_script_stop(proxy);
}

static void a_metadata_service_is_asked_by_calls_that_say_so_alone(void **state)
{
    const struct http_call call = {.end = 4, .max_reply_bytes = 4, .no_proxy = true};
    (void)state;
    start(false);
    if (http_scene_fetch(call))
        fail_msg("%s", http_scene.error.message);
    assert_int_equal(ask(0, NULL, http_scene.url), -1); /* nor on the connection that is there already */
    assert_string_equal(http_scene.error.reason, "PLAIN_HTTP");
}

static void *read_from_silence(void *data)
{
    unsigned char byte;
    struct iovec iov = {&byte, 1};
    const struct http_range range = {
        .url = "https://silent.invalid/o", .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = 1};
    http_read_range(http_scene.engine, &range, data);
    return NULL;
}

static void a_name_that_no_server_resolves_holds_up_no_other_host(void **state)
{
    pthread_t thread;
    struct error error;
    (void)state;
    atomic_store(&is_released, false);
    http_scene.options = (struct http_engine_options){.connect_timeout_ms = 50, .max_tries = 3, .backoff_ms = 1};
    http_scene_start();
    pthread_create(&thread, NULL, read_from_silence, &error);
    pthread_join(thread, NULL); /* the look-ups go on, each in a thread that may have to wait for a processor */
    for (int ms = 0; atomic_load(&n_asked) < 3 && ms < 5000; ms++)
        http_script_rest(1);
    assert_int_equal(atomic_load(&n_asked), 3);
    assert_int_equal(error.code, ERROR_UNAVAILABLE);
    assert_true(http_scene_has_read());
}

static int close_scene(void **state)
{
    atomic_store(&is_released, true);
    http_scene_close(state);
    return clear_proxies(state);
}

int main(void)
{
#define PROXY(name) cmocka_unit_test_setup_teardown(name, clear_proxies, clear_proxies)
#define NAME(name) cmocka_unit_test_setup_teardown(name, http_scene_open, close_scene)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_http_leads_to_this_host_alone),
        cmocka_unit_test(link_local_and_metadata_addresses_need_the_configuration_s_word),
        cmocka_unit_test(trust_is_of_the_server_that_is_meant),
        cmocka_unit_test(a_hop_passes_the_same_fence),
        PROXY(the_first_variable_that_says_something_counts),
        PROXY(names_addresses_and_nets_are_excepted),
        NAME(a_name_that_leads_to_a_reserved_address_is_refused_at_once),
        NAME(a_name_may_lead_to_this_host_when_it_was_asked_for_itself),
        NAME(a_server_elsewhere_cannot_lead_to_this_host_by_a_name),
        NAME(what_no_proxy_does_not_except_is_asked_through_the_proxy_and_no_other_way),
        NAME(a_metadata_service_is_asked_by_calls_that_say_so_alone),
        NAME(a_name_that_no_server_resolves_holds_up_no_other_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
