/* The parts of the HTTP engine that are plain values: heads, latencies, backoff, and the adaptive limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "source/http/http.h"
#include "source/http/http_head.h"
#include "source/http/http_latency.h"
#include "source/http/http_limit.h"
#include "source/http/http_retry.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

static bool content_range(const char *value, struct http_content_range *range)
{
    struct http_header header = {"content-range", value};
    struct http_head head = {.status = 206, .headers = &header, .n_headers = 1};
    return http_head_content_range(&head, range);
}

static void content_ranges_are_read_strictly(void **state)
{
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 0-9",
                                      "bytes 0-9/",
                                      "bytes 9-0/10",
                                      "bytes 0-10/10",
                                      "bytes */10",
                                      "bytes 0-9/10 ",
                                      "bytes -1-9/10",
                                      "items 0-9/10",
                                      "bytes 0-9/99999999999999999999",
                                      "bytes 0x0-9/10",
                                      "bytes 0-9/10, 11-12/13"};
    struct http_content_range range;
    (void)state;
    assert_true(content_range("bytes 5-9/10", &range));
    assert_true(range.first == 5 && range.last == 9 && range.total_bytes == 10);
    assert_true(content_range("bytes 0-18446744073709551613/18446744073709551614", &range));
    assert_true(content_range("bytes 0-0/*", &range));
    assert_true(range.total_bytes == UINT64_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(content_range(bad[i], &range));
}

static int add_line(struct http_head_builder *builder, const char *line)
{
    struct error error;
    return http_head_add_line(builder, line, strlen(line), &error);
}

static void a_head_is_bounded_and_begins_with_its_last_status_line(void **state)
{
    struct http_head_builder builder = {0};
    struct error error;
    (void)state;
    assert_int_equal(add_line(&builder, "HTTP/1.1 100 Continue\r\n"), 0);
    assert_int_equal(add_line(&builder, "X: y\r\n"), 0);
    assert_int_equal(add_line(&builder, "HTTP/1.1 206\r\n"), 0);
    assert_int_equal(builder.head.status, 206);
    assert_int_equal(builder.head.n_headers, 0);
    for (int i = 0; i < HTTP_HEAD_MAX_LINES; i++)
        assert_int_equal(add_line(&builder, "Name:  value \t\r\n"), 0);
    assert_string_equal(http_head_find(&builder.head, "name"), "value");
    assert_int_equal(add_line(&builder, "Name: value\r\n"), -1);
    static const char *const bad[] = {"HTTP/1.1 abc\r\n", "HTTP/1.1\r\n", "no colon\r\n", ": no name\r\n", " folded: x\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        http_head_clear(&builder);
        assert_int_equal(add_line(&builder, bad[i]), -1);
    }
    assert_int_equal(http_head_add_line(&builder, "a: \0b\r\n", 7, &error), -1);
    http_head_clear(&builder);
}

static void a_head_has_so_many_bytes_and_not_one_more(void **state)
{
    struct http_head_builder builder = {0};
    struct error error;
    char *line = malloc(HTTP_HEAD_MAX_BYTES + 1);
    (void)state;
    memset(line, 'x', HTTP_HEAD_MAX_BYTES + 1);
    line[1] = ':';
    assert_int_equal(http_head_add_line(&builder, line, HTTP_HEAD_MAX_BYTES + 1, &error), -1);
    assert_int_equal(http_head_add_line(&builder, line, HTTP_HEAD_MAX_BYTES, &error), 0);
    assert_int_equal(add_line(&builder, "a:b"), -1);
    http_head_clear(&builder);
    free(line);
}

static void latencies_give_a_median_and_a_slow_end(void **state)
{
    struct http_latency latency = {0};
    (void)state;
    for (int i = 0; i < 19; i++)
        http_latency_add(&latency, 1000000);
    assert_true(http_latency_ns(&latency, 50) == 0);
    for (int i = 0; i < 79; i++)
        http_latency_add(&latency, 1000000);
    http_latency_add(&latency, 900000000);
    http_latency_add(&latency, UINT64_MAX);
    assert_in_range(http_latency_ns(&latency, 50), 1000000, 1300000);
    assert_in_range(http_latency_ns(&latency, 99), 900000000, 1200000000);
    for (int i = 0; i < 100000; i++)
        http_latency_add(&latency, 50000000);
    assert_in_range(http_latency_ns(&latency, 50), 50000000, 63000000);
}

static void retry_after_is_seconds_or_a_date_and_at_most_a_minute(void **state)
{
    static const uint64_t s = 1000000000u;
    (void)state;
    assert_true(http_retry_after_ns("7") == 7 * s);
    assert_true(http_retry_after_ns("60") == 60 * s);
    assert_true(http_retry_after_ns("61") == 60 * s);
    assert_true(http_retry_after_ns("99999999999999999999") == 60 * s);
    assert_true(http_retry_after_ns("Fri, 31 Dec 2100 23:59:59 GMT") == 60 * s);
    assert_true(http_retry_after_ns("Fri, 31 Dec 1999 23:59:59 GMT") == 0);
    assert_true(http_retry_after_ns("soon") == 0);
    assert_true(http_retry_after_ns("-5") == 0);
    assert_true(http_retry_after_ns(NULL) == 0);
}

static void backoff_doubles_up_to_a_limit(void **state)
{
    uint64_t most[12] = {0};
    (void)state;
    for (int i = 0; i < 2000; i++) {
        for (uint32_t n = 1; n < 12; n++) {
            uint64_t wait = http_backoff_ns(1000, n);
            most[n] = wait > most[n] ? wait : most[n];
        }
    }
    for (uint32_t n = 1; n < 12; n++) {
        uint64_t limit = n > 7 ? 80000 : (uint64_t)1000 << (n - 1);
        assert_in_range(most[n], limit / 2, limit - 1);
    }
}

static void the_budget_is_a_burst_and_then_a_rate(void **state)
{
    struct http_budget budget;
    uint64_t s = 1000000000u;
    (void)state;
    http_budget_init(&budget, s);
    for (int i = 0; i < 256; i++)
        assert_true(http_budget_take(&budget, s) == 0);
    assert_in_range(http_budget_take(&budget, s), s / 10 - 1000, s / 10 + 1000);
    assert_in_range(http_budget_take(&budget, s), s / 5 - 1000, s / 5 + 1000);
    for (int i = 0; i < 30; i++)
        http_budget_earn(&budget);
    assert_true(http_budget_take(&budget, s) == 0);
    for (int i = 0; i < 10; i++)
        assert_true(http_budget_take(&budget, 2 * s) == 0);
    http_budget_fini(&budget);
}

/* --- the limit --- */

/* So many rounds of requests that all end well, `callers` of them at a time. */
static void run_rounds(struct http_limit *limit, uint32_t callers, uint32_t n_rounds, uint64_t *now_ns)
{
    for (uint32_t n_left = n_rounds * limit->most; n_left > 0; n_left--) {
        *now_ns += 50000000;
        http_limit_completed(limit, callers < limit->allowed ? callers : limit->allowed, *now_ns);
    }
}

static void everything_is_allowed_until_the_origin_says_otherwise(void **state)
{
    struct http_limit limit;
    uint64_t now_ns = 1000;
    (void)state;
    http_limit_init(&limit, 32);
    run_rounds(&limit, 32, 10, &now_ns);
    assert_int_equal(limit.allowed, 32);
}

static void a_cut_halves_once_for_all_who_were_in_flight_and_recovers_one_by_one(void **state)
{
    struct http_limit limit;
    uint64_t now_ns = 1000;
    (void)state;
    http_limit_init(&limit, 16);
    assert_true(http_limit_cut(&limit, 500, now_ns));
    assert_false(http_limit_cut(&limit, 600, now_ns + 1));
    assert_int_equal(limit.allowed, 8);
    assert_true(http_limit_cut(&limit, now_ns, now_ns + 2));
    assert_int_equal(limit.allowed, 4);
    run_rounds(&limit, 16, 1, &now_ns);
    assert_in_range(limit.allowed, 5, 8);
    run_rounds(&limit, 16, 20, &now_ns);
    assert_int_equal(limit.allowed, 16);
    for (int i = 0; i < 10; i++)
        http_limit_cut(&limit, UINT64_MAX, now_ns);
    assert_int_equal(limit.allowed, 1);
}

static void a_limit_that_nobody_reaches_does_not_recover(void **state)
{
    struct http_limit limit;
    uint64_t now_ns = 1000;
    (void)state;
    http_limit_init(&limit, 16);
    assert_true(http_limit_cut(&limit, 500, now_ns));
    run_rounds(&limit, 7, 20, &now_ns);
    assert_int_equal(limit.allowed, 8);
}

static void a_burst_of_quick_answers_is_one_round(void **state)
{
    struct http_limit limit;
    (void)state;
    http_limit_init(&limit, 16);
    assert_true(http_limit_cut(&limit, 500, 1000));
    for (uint64_t i = 0; i < 100; i++)
        http_limit_completed(&limit, 8, 1000 + i);
    assert_int_equal(limit.allowed, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_ranges_are_read_strictly),
        cmocka_unit_test(a_head_is_bounded_and_begins_with_its_last_status_line),
        cmocka_unit_test(a_head_has_so_many_bytes_and_not_one_more),
        cmocka_unit_test(latencies_give_a_median_and_a_slow_end),
        cmocka_unit_test(retry_after_is_seconds_or_a_date_and_at_most_a_minute),
        cmocka_unit_test(backoff_doubles_up_to_a_limit),
        cmocka_unit_test(the_budget_is_a_burst_and_then_a_rate),
        cmocka_unit_test(everything_is_allowed_until_the_origin_says_otherwise),
        cmocka_unit_test(a_cut_halves_once_for_all_who_were_in_flight_and_recovers_one_by_one),
        cmocka_unit_test(a_limit_that_nobody_reaches_does_not_recover),
        cmocka_unit_test(a_burst_of_quick_answers_is_one_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
