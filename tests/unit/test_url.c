/* Origins, Locations and lives of URLs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/url.h"

#include <cmocka.h>

static void the_origin_is_everything_before_the_path(void **state)
{
    static const struct {
        const char *url, *origin;
    } cases[] = {
        {"https://h/x", "https://h"},
        {"http://h:80?x=/", "http://h:80"},
        {"https://[::1]:9/a", "https://[::1]:9"},
        {"https://h.example", "https://h.example"},
        {"ftp://h/x", NULL},
        {"https://", NULL},
        {"/x", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *origin = url_origin(cases[i].url);
        if (cases[i].origin)
            assert_string_equal(origin, cases[i].origin);
        else
            assert_null(origin);
        free(origin);
    }
}

static void a_token_stays_with_scheme_host_and_port(void **state)
{
    (void)state;
    assert_true(url_same_origin("https://Hub.example/a", "https://hub.example:443/b?c"));
    assert_true(url_same_origin("http://[::1]/a", "http://[::1]:80"));
    assert_false(url_same_origin("https://hub.example/", "http://hub.example/"));
    assert_false(url_same_origin("https://hub.example/", "https://hub.example:8443/"));
    assert_false(url_same_origin("https://hub.example/", "https://hub.example.evil/"));
    assert_false(url_same_origin("https://hub.example/", "https://cdn.hub.example/"));
    assert_false(url_same_origin("", ""));
}

static void a_location_is_relative_to_what_sent_it(void **state)
{
    static const struct {
        const char *base, *location, *url;
    } cases[] = {
        {"https://h/a/b?c", "https://x/y?z#f", "https://x/y?z"},
        {"https://h/a/b?c", "//x/y", "https://x/y"},
        {"https://h:1/a/b", "/y?z", "https://h:1/y?z"},
        {"https://h/a/b?c/d", "y", "https://h/a/y"},
        {"https://h/a/b?c", "?d", "https://h/a/b?d"},
        {"https://h/a", "ftp://x/", NULL},
        {"https://h/a", "javascript:x", NULL},
        {"https://h/a", "https://", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *url = url_resolve(cases[i].base, cases[i].location);
        if (cases[i].url)
            assert_string_equal(url, cases[i].url);
        else
            assert_null(url);
        free(url);
    }
}

static void signed_urls_say_how_long_they_live(void **state)
{
    (void)state;
    assert_int_equal(url_life_s("https://h/x?a=1&X-Amz-Expires=3600&b=2", 1000), 3600);
    assert_int_equal(url_life_s("https://h/x?X-Goog-Expires=60", 1000), 60);
    assert_int_equal(url_life_s("https://h/x?Expires=1500&Signature=x", 1000), 500);
    assert_int_equal(url_life_s("https://h/x?Expires=900", 1000), 1);
    assert_int_equal(url_life_s("https://h/Expires=900?NotExpires=9", 1000), 0);
    assert_int_equal(url_life_s("https://h/x?X-Amz-Expires=soon", 1000), 0);
}

static void what_may_not_stand_in_a_url_is_encoded_and_the_rest_stays(void **state)
{
    static const char text[] = "https://h/a b/\xc3\xa4%20\"\n?x=%2F&y={1}";
    char *tidy = url_tidy(text, strlen(text));
    (void)state;
    assert_string_equal(tidy, "https://h/a%20b/%C3%A4%20%22%0A?x=%2F&y=%7B1%7D");
    free(tidy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_origin_is_everything_before_the_path),
        cmocka_unit_test(a_token_stays_with_scheme_host_and_port),
        cmocka_unit_test(a_location_is_relative_to_what_sent_it),
        cmocka_unit_test(signed_urls_say_how_long_they_live),
        cmocka_unit_test(what_may_not_stand_in_a_url_is_encoded_and_the_rest_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
