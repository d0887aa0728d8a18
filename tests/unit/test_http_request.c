/* Which names and which formats a request may ask for. */
#include "tests/support/unit.h"

#include "operators/http_request.h"

TEST(a_host_is_the_address_or_localhost)
{
    static const struct {
        const char *listen, *host;
        bool is_own;
    } rows[] = {{"127.0.0.1:9464", "127.0.0.1:9464", true}, {"127.0.0.1:9464", "localhost", true},
                {"127.0.0.1:9464", "LOCALHOST:80", true},   {"127.0.0.1:9464", "[::1]:9464", true},
                {"127.0.0.1:9464", "10.0.0.7:9464", false}, {"127.0.0.1:9464", "localhost.evil.example", false},
                {"127.0.0.1:9464", "evil.example", false},  {"127.0.0.1:9464", "", false},
                {"127.0.0.1:9464", ":9464", false},         {"127.0.0.1:9464", "127.0.0.1.nip.io", false},
                {"10.0.0.7:9464", "10.0.0.7", true},        {"10.0.0.7:9464", "10.0.0.8", false},
                {"10.0.0.7:9464", "localhost:1", true},     {"0.0.0.0:9464", "10.0.0.7:9464", true},
                {"[::]:9464", "[fe80::1]:9464", true},      {"[::]:9464", "10.0.0.7", true},
                {"[::]:9464", "pod.svc:9464", false},       {"[::1]:9464", "[::1]", true}};
    struct tcp_address listen;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(tcp_address_parse(rows[i].listen, &listen));
        if (http_host_is_own(rows[i].host, &listen) != rows[i].is_own)
            fail_msg("%s at %s", rows[i].host, rows[i].listen);
    }
}

TEST(openmetrics_is_what_is_asked_for_before_plain_text)
{
    static const struct {
        const char *accept;
        bool is_modern;
    } rows[] = {{NULL, false},
                {"", false},
                {"*/*", false},
                {"text/plain", false},
                {"application/openmetrics-text", true},
                {"application/openmetrics-text; version=1.0.0,text/plain;q=0.5", true},
                {"text/plain;version=0.0.4;q=0.5, application/openmetrics-text;version=1.0.0;q=0.4,*/*;q=0.1", false},
                {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                 "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                 true},
                {"application/openmetrics-text;q=0", false},
                {"application/openmetrics-textual", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (http_accepts_openmetrics(rows[i].accept) != rows[i].is_modern)
            fail_msg("%s", rows[i].accept);
}
