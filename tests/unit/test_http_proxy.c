/* The variables that curl reads, read as it reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "source/http/http_proxy.h"

#include <cmocka.h> /* last: it makes a macro of fail */

static const char *const variables[] = {"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
                                        "all_proxy",  "ALL_PROXY",  "no_proxy",    "NO_PROXY"};

static int clear(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_variable_that_says_something_counts, clear, clear),
        cmocka_unit_test_setup_teardown(names_addresses_and_nets_are_excepted, clear, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
