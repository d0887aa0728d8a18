/* One reading of every URL: its host, its port, what is sent, and where a Location leads. */
#include "tests/support/unit.h"

#include <curl/curl.h>

#include "base/url.h"

TEST(a_url_is_taken_apart_and_printed_in_one_form)
{
    static const struct {
        const char *text, *origin, *authority, *target, *whole;
    } cases[] = {
        {"https://h/x", "https://h:443", "h", "/x", "https://h/x"},
        {"HTTPS://Hub.EXAMPLE:443/A?B", "https://hub.example:443", "hub.example", "/A?B", "https://hub.example/A?B"},
        {"http://h:80", "http://h:80", "h", "/", "http://h/"},
        {"http://h:443", "http://h:443", "h:443", "/", "http://h:443/"},
        {"https://h?q=1#fragment", "https://h:443", "h", "/?q=1", "https://h/?q=1"},
        {"http://[::1]:8080/p", "http://[::1]:8080", "[::1]:8080", "/p", "http://[::1]:8080/p"},
        {"http://[2001:DB8:0:0::1]/", "http://[2001:db8::1]:80", "[2001:db8::1]", "/", "http://[2001:db8::1]/"},
        {"http://10.1.2.3:65535/", "http://10.1.2.3:65535", "10.1.2.3:65535", "/", "http://10.1.2.3:65535/"},
        {"http://my_bucket.s3-x.example/a/../b%2fc?x=%20&y=@:/?", "http://my_bucket.s3-x.example:80",
         "my_bucket.s3-x.example", "/a/../b%2fc?x=%20&y=@:/?", "http://my_bucket.s3-x.example/a/../b%2fc?x=%20&y=@:/?"},
        {"https://h/u:p@x", "https://h:443", "h", "/u:p@x", "https://h/u:p@x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char origin[URL_ORIGIN_CHARS], authority[URL_AUTHORITY_CHARS];
        struct url url;
        struct error error;
        if (url_parse(cases[i].text, &url, &error) < 0)
            fail_msg("%s", error.message);
        char *target = url_target(&url), *whole = url_print(&url);
        assert_string_equal(url_origin(&url, origin), cases[i].origin);
        assert_string_equal(url_authority(&url, authority), cases[i].authority);
        assert_string_equal(target, cases[i].target);
        assert_string_equal(whole, cases[i].whole);
        free(target);
        free(whole);
    }
}

TEST(what_programs_read_differently_is_refused)
{
    static const char *const bad[] = {
        "",
        "h",
        "//h/",
        "ftp://h/",
        "file:///etc/passwd",
        "https:/h/",
        "https:h",
        "https://",
        "https:///x",
        "https://?x",
        " https://h/",
        /* user information */
        "https://u@h/",
        "https://u:p@h/",
        "https://hub:443@evil/",
        "https://@h/",
        "https://hub.example@[::1]/",
        "https://u%40h@e/",
        /* ports */
        "https://h:/",
        "https://h:0/",
        "https://h:65536/",
        "https://h:99999999999999999999/",
        "https://h:443x/",
        "https://hub:443:x/",
        "https://h:+1/",
        "https://h:-1/",
        "https://h: 1/",
        "https://h:0443/",
        "https://h:1:2/",
        "https://[::1]x/",
        "https://[::1]:/",
        "https://[::1]443/",
        "https://:443/",
        /* backslashes, control characters, what is not ASCII */
        "https://hub\\@evil/",
        "https://h\\evil/",
        "https://h/a\\b",
        "https://h/a b",
        "https://h/\n",
        "https://h\t/",
        "https://h/\x7f",
        "https://h/\xc3\xa4",
        "https://\xc3\xa4.example/",
        "https://h\x01/",
        "https://h\xef\xbc\x8f"
        "evil/",
        /* hosts */
        "https://h%2eexample/",
        "https://%31%32%37.0.0.1/",
        "https://h..example/",
        "https://.h/",
        "https://h./",
        "https://127.0.0.1./",
        "https://h*/",
        "https://h,i/",
        "https://h;i/",
        "https://h'/",
        "https://{h}/",
        "https://h^/",
        "https://h|i/",
        "https://h<i/",
        /* addresses in other forms */
        "http://2130706433/",
        "http://0x7f000001/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://0x7f.1/",
        "http://0/",
        "http://127.0.0.256/",
        "http://127.0.0.1.0/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[]/",
        "http://[127.0.0.1]/",
        "http://[h]/",
        "http://[::1/",
        "http://::1/",
        "http://h.0x1/",
        "http://h.1/",
    };
    char label[80] = "https://", name[300] = "https://";
    struct url url;
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (url_parse(bad[i], &url, &error) == 0)
            fail_msg("%s is taken for a good URL of %s", bad[i], url.host);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_string_equal(error.reason, "BAD_URL");
    }
    memset(label + 8, 'a', 63);
    assert_int_equal(url_parse(label, &url, &error), 0);
    label[8 + 63] = 'a';
    assert_int_equal(url_parse(label, &url, &error), -1);
    for (size_t i = 0; i < 127; i++)
        memcpy(name + 8 + 2 * i, "a.", 2);
    strcpy(name + 8 + 2 * 127, "a");
    assert_int_equal(url_parse(name, &url, &error), 0); /* 255 characters */
    strcpy(name + 8 + 2 * 127, "aa");
    assert_int_equal(url_parse(name, &url, &error), -1);
}

/* What we compare is what libcurl connects to. */
TEST(libcurl_reads_every_good_url_as_we_do)
{
    static const char *const good[] = {"https://Hub.example/x",    "http://h:80?x",     "http://[::1]:9/a",
                                       "https://10.0.0.1:443/u@h", "https://a_b/:@?@:", "http://[2001:DB8::0:1]/"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct url url;
        struct error error;
        char *host, *port, number[8];
        CURLU *parts = curl_url();
        assert_int_equal(url_parse(good[i], &url, &error), 0);
        char *whole = url_print(&url);
        assert_int_equal(curl_url_set(parts, CURLUPART_URL, whole, CURLU_PATH_AS_IS), CURLUE_OK);
        assert_int_equal(curl_url_get(parts, CURLUPART_HOST, &host, 0), CURLUE_OK);
        assert_int_equal(curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT), CURLUE_OK);
        snprintf(number, sizeof number, "%u", url.port);
        assert_string_equal(host, url.host);
        assert_string_equal(port, number);
        curl_free(host);
        curl_free(port);
        curl_url_cleanup(parts);
        free(whole);
    }
}

TEST(a_token_stays_with_scheme_host_and_port)
{
    static const char *const others[] = {"http://hub.example/",
                                         "https://hub.example:8443/",
                                         "https://hub.example.evil/",
                                         "https://cdn.hub.example/",
                                         "https://hub.example:443@evil/",
                                         "https://hub.example@evil/",
                                         "https://hub.example\\@evil/",
                                         "https://hub.example:x@evil/",
                                         "https://hub.example./",
                                         "https://hub.example%00.evil/",
                                         "https://evil/#hub.example",
                                         "https://evil/?hub.example",
                                         ""};
    assert_true(url_is_same_origin("https://Hub.example/a", "https://hub.example:443/b?c"));
    assert_true(url_is_same_origin("http://[::1]/a", "http://[0::1]:80"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(url_is_same_origin("https://hub.example/", others[i]));
    assert_false(url_is_same_origin("", ""));
}

TEST(this_host_is_localhost_and_the_loopback)
{
    static const char *const here[] = {"http://localhost/", "http://LOCALHOST:80/", "http://127.9.9.9/", "https://[::1]/"};
    static const char *const elsewhere[] = {"http://localhost.evil/", "http://127.0.0.1.evil/", "http://10.0.0.1/",
                                            "http://[2001:db8::1]/",  "http://xlocalhost/",     "http://ip6-localhost/"};
    struct url url;
    struct error error;
    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        assert_true(url_parse(here[i], &url, &error) == 0 && url_is_this_host(&url));
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        assert_true(url_parse(elsewhere[i], &url, &error) == 0 && !url_is_this_host(&url));
}

TEST(a_location_is_relative_to_what_sent_it)
{
    static const struct {
        const char *base, *location, *url;
    } cases[] = {
        {"https://h/a/b?c", "https://x/y?z#f", "https://x/y?z"},
        {"https://h/a/b?c", "HTTP://X:80/", "http://x/"},
        {"https://h/a/b?c", "//x/y", "https://x/y"},
        {"https://h:1/a/b", "/y?z", "https://h:1/y?z"},
        {"https://h/a", "/y/../z", "https://h/y/../z"}, /* it may be signed */
        {"https://h/a/b?c/d", "y", "https://h/a/y"},
        {"https://h/a/b/c?d", "../e?f=..", "https://h/a/e?f=.."},
        {"https://h/a/b", "../../../e", "https://h/e"},
        {"https://h/a/b", "./", "https://h/a/"},
        {"https://h/a/b", "..", "https://h/"},
        {"https://h", "y", "https://h/y"},
        {"https://h/a/b?c", "?d", "https://h/a/b?d"},
        {"https://h/a/b?c", "#d", "https://h/a/b"},
        {"https://h/a", "/b c\xc3\xa4?d e", "https://h/b%20c%C3%A4?d%20e"},
        {"https://h/a", "b@c:d", NULL}, /* "b@c" might be taken for a scheme */
        {"https://h/a", "ftp://x/", NULL},
        {"https://h/a", "javascript:x", NULL},
        {"https://h/a", "https://", NULL},
        {"https://h/a", "https:/x", NULL},
        {"https://h/a", "https:x", NULL},
        {"https://h/a", "///x/y", NULL},
        {"https://h/a", "/\\x/y", NULL},
        {"https://h/a", "\\\\x/y", NULL},
        {"https://h/a", "//hub@x/y", NULL},
        {"https://h/a", "//hub\\@x/y", NULL},
        {"https://h/a", "https://h:443@x/y", NULL},
        {"https://h/a", "https://h:x@x/y", NULL},
        {"https://h/a", "https://x /y", NULL},
        {"https://h/a", "/x\ty", NULL},
        {"no url", "/x", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error;
        char *url = url_resolve(cases[i].base, cases[i].location, &error);
        if (cases[i].url)
            assert_string_equal(url ? url : error.message, cases[i].url);
        else if (url)
            fail_msg("%s leads to %s", cases[i].location, url);
        free(url);
    }
}

TEST(what_may_not_stand_in_a_url_is_encoded_and_the_rest_stays)
{
    static const char text[] = "https://h/a b/\xc3\xa4%20\"\n?x=%2F&y={1}";
    char *tidy = url_tidy(text, strlen(text));
    assert_string_equal(tidy, "https://h/a%20b/%C3%A4%20%22%0A?x=%2F&y=%7B1%7D");
    free(tidy);
}

TEST(encoding_leaves_only_what_rfc_3986_calls_unreserved)
{
    char *path = url_encode("a/b c+%\xff\0~._-Z9", 15, true), *name = url_encode("a/b", 3, false);
    assert_string_equal(path, "a/b%20c%2B%25%FF%00~._-Z9");
    assert_string_equal(name, "a%2Fb");
    free(path);
    free(name);
}
