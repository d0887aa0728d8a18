/* The parts of the HTTP engine that are plain values: heads, where the body of an answer ends, latencies, backoff, the adaptive
 * limit, and what of a body is kept. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "source/http/http_run.h"

static bool content_range(const char *value, struct http_content_range *range)
{
    struct http_header header = {"content-range", value};
    struct http_head head = {.status = 206, .headers = &header, .n_headers = 1};
    return http_head_content_range(&head, range);
}

TEST(content_ranges_are_read_strictly)
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

TEST(a_head_is_bounded_and_begins_with_its_last_status_line)
{
    struct http_head_builder builder = {0};
    struct error error;
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

TEST(a_head_has_so_many_bytes_and_not_one_more)
{
    struct http_head_builder builder = {0};
    struct error error;
    char *line = malloc(HTTP_HEAD_MAX_BYTES + 1);
    memset(line, 'x', HTTP_HEAD_MAX_BYTES + 1);
    line[1] = ':';
    assert_int_equal(http_head_add_line(&builder, line, HTTP_HEAD_MAX_BYTES + 1, &error), -1);
    assert_int_equal(http_head_add_line(&builder, line, HTTP_HEAD_MAX_BYTES, &error), 0);
    assert_int_equal(add_line(&builder, "a:b"), -1);
    http_head_clear(&builder);
    free(line);
}

/* --- frames --- */

enum { ROOM = 1 << 10 };

/* Of a head with these lines ("Name: value\n..."). */
static int begin(struct http_framing *framing, const char *lines, struct error *error)
{
    struct http_head_builder builder = {0};
    assert_int_equal(http_head_add_line(&builder, "HTTP/1.1 206 x\r\n", 16, error), 0);
    for (const char *line = lines; *line;) {
        size_t count = strcspn(line, "\n") + 1;
        assert_int_equal(http_head_add_line(&builder, line, count, error), 0);
        line += count;
    }
    int result = http_framing_begin(framing, &builder.head, false, error);
    http_head_clear(&builder);
    return result;
}

/* What the frame says the body is when it comes in pieces of `step`; NULL when it is malformed. */
static const char *unwrap(struct http_framing *framing, const char *text, size_t step, size_t *n_used)
{
    static char out[ROOM];
    struct error error;
    size_t n_out = 0, length = strlen(text);
    *n_used = 0;
    while (*n_used < length && !framing->is_over) {
        const char *body;
        size_t n_body, count = length - *n_used < step ? length - *n_used : step;
        size_t used = http_framing_take(framing, text + *n_used, count, &body, &n_body, &error);
        if (used == SIZE_MAX)
            return NULL;
        assert_true(used > 0 && used <= count && n_body <= used);
        memcpy(out + n_out, body, n_body);
        n_out += n_body;
        *n_used += used;
    }
    out[n_out] = '\0';
    return out;
}

TEST(a_length_ends_the_body_and_leaves_what_follows)
{
    for (size_t step = 1; step < 12; step++) {
        struct http_framing framing;
        struct error error;
        size_t n_used;
        assert_int_equal(begin(&framing, "Content-Length: 5\nContent-Length: 5\n", &error), 0);
        assert_string_equal(unwrap(&framing, "helloHTTP", step, &n_used), "hello");
        assert_true(framing.is_over && !framing.ends_connection);
        assert_int_equal(n_used, 5);
    }
}

TEST(chunks_are_put_together_however_they_come)
{
    static const char text[] = "5\r\nhello\r\n1;name=\"value\"\r\n \r\n00a \r\nwide world\r\n0\r\nTrailer: x\r\n\r\nrest";
    for (size_t step = 1; step < sizeof text; step++) {
        struct http_framing framing;
        struct error error;
        size_t n_used;
        assert_int_equal(begin(&framing, "Transfer-Encoding: Chunked\n", &error), 0);
        assert_string_equal(unwrap(&framing, text, step, &n_used), "hello wide world");
        assert_true(framing.is_over && !framing.ends_connection);
        assert_string_equal(text + n_used, "rest");
    }
}

static const char *unwrap_chunks(struct http_framing *framing, const char *text)
{
    struct error error;
    size_t n_used;
    assert_int_equal(begin(framing, "Transfer-Encoding: chunked\n", &error), 0);
    return unwrap(framing, text, 1, &n_used);
}

TEST(malformed_chunks_are_refused_and_those_that_end_early_are_not_over)
{
    static const char *const early[] = {"", "5", "5\r\nhell", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nA: b\r\n"};
    static const char *const malformed[] = {
        "\r\n", "x\r\n", "-1\r\n", "5hello\r\n", "5\r\nhelloX", "1000000000000000\r\n", ";a\r\n", "5\r\nhello\r\n\r\n0"};
    struct http_framing framing;
    for (size_t i = 0; i < sizeof early / sizeof early[0]; i++) {
        assert_non_null(unwrap_chunks(&framing, early[i]));
        assert_false(framing.is_over);
    }
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
        if (unwrap_chunks(&framing, malformed[i]))
            fail_msg("taken: %s", malformed[i]);
}

TEST(lines_between_chunks_are_bounded)
{
    static char text[40 << 10];
    for (int is_trailer = 0; is_trailer < 2; is_trailer++) {
        struct http_framing framing;
        struct error error;
        const char *body;
        size_t n_body, used = 0, length = (size_t)sprintf(text, "%s", is_trailer ? "0\r\n" : "5;");
        for (size_t i = length; i < sizeof text; i++)
            text[i] = is_trailer && i % 80 == 0 ? '\n' : 'x';
        assert_int_equal(begin(&framing, "Transfer-Encoding: chunked\n", &error), 0);
        used = http_framing_take(&framing, text, sizeof text, &body, &n_body, &error);
        assert_true(used == SIZE_MAX);
        assert_non_null(strstr(error.message, "too long"));
    }
}

TEST(without_a_length_the_connection_is_the_end_and_an_empty_body_is_over_at_once)
{
    struct http_framing framing;
    struct error error;
    size_t n_used;
    assert_int_equal(begin(&framing, "Content-Type: x\n", &error), 0);
    assert_string_equal(unwrap(&framing, "hello", 2, &n_used), "hello");
    assert_true(!framing.is_over && framing.ends_connection && framing.kind == HTTP_FRAMING_CLOSE);
    assert_int_equal(begin(&framing, "Content-Length: 0\n", &error), 0);
    assert_true(framing.is_over && !framing.ends_connection);
}

TEST(contradictions_are_refused)
{
    static const char *const heads[] = {"Content-Length: 5\nContent-Length: 6\n", "Content-Length: 5, 5\n",
                                        "Content-Length: -1\n", "Content-Length: 18446744073709551616\n",
                                        "Transfer-Encoding: gzip, chunked\n"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct http_framing framing;
        struct error error = {0};
        assert_int_equal(begin(&framing, heads[i], &error), -1);
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
        assert_string_equal(error.reason, "BAD_ANSWER");
    }
}

TEST(a_connection_is_kept_only_when_both_sides_agree)
{
    static const struct {
        const char *lines;
        bool is_old, ends;
    } cases[] = {{"Content-Length: 5\n", false, false},
                 {"Content-Length: 5\nConnection: close\n", false, true},
                 {"Content-Length: 5\nConnection: Keep-Alive, Close\n", false, true},
                 {"Content-Length: 5\nConnection: closed\n", false, false},
                 {"Content-Length: 5\nTransfer-Encoding: chunked\n", false, true}};
    struct http_head none = {.status = 206};
    struct http_framing framing;
    struct error error;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(begin(&framing, cases[i].lines, &error), 0);
        assert_int_equal(framing.ends_connection, cases[i].ends);
    }
    assert_int_equal(http_framing_begin(&framing, &none, true, &error), 0);
    assert_true(framing.ends_connection);
}

/* --- bodies --- */

/* So many bytes that the next ones fit in no memory. */
TEST(a_body_without_memory_is_an_error_of_its_request)
{
    struct quota *quota = quota_create();
    struct http_exchange *exchange = calloc(1, sizeof *exchange);
    struct http_arriving *answer = &exchange->answer;
    struct http_origin origin = {0};
    exchange->order.origin = &origin;
    *answer = (struct http_arriving){.has_head = true, .is_accepted = true, .max_body = SIZE_MAX};
    answer->charge = (struct quota_charge){.quota = quota, .kind = QUOTA_METADATA, .uid = 7};
    assert_true(http_exchange_take_body(exchange, "some", 4));
    uint64_t taken = quota_taken(quota, QUOTA_METADATA);
    assert_in_range(taken, 4, 64);
    answer->n_body = SIZE_MAX / 4;
    assert_false(http_exchange_take_body(exchange, "more", 4));
    assert_int_equal(exchange->outcome.fault, HTTP_FAULT_FINAL);
    assert_string_equal(exchange->outcome.error.reason, "OUT_OF_MEMORY");
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), taken);
    assert_memory_equal(answer->body, "some", 4);
    quota_charge_end(&answer->charge);
    free(answer->body);
    free(exchange);
    quota_destroy(quota);
}

/* --- latencies and retries --- */

TEST(latencies_give_a_median_and_a_slow_end)
{
    struct http_latency latency = {0};
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

TEST(retry_after_is_seconds_or_a_date_and_at_most_a_minute)
{
    static const struct {
        const char *value;
        uint64_t seconds;
    } rows[] = {{"7", 7},
                {"60", 60},
                {"61", 60},
                {"99999999999999999999", 60},
                {"Fri, 31 Dec 2100 23:59:59 GMT", 60},
                {"Fri, 31 Dec 1999 23:59:59 GMT", 0},
                {"soon", 0},
                {"-5", 0},
                {NULL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (http_retry_after_ns(rows[i].value) != rows[i].seconds * 1000000000u)
            fail_msg("%s", rows[i].value);
}

TEST(backoff_doubles_up_to_a_limit)
{
    uint64_t most[12] = {0};
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

TEST(the_budget_is_a_burst_and_then_a_rate)
{
    uint64_t s = 1000000000u;
    struct http_budget budget = http_budget_full(s);
    for (int i = 0; i < 256; i++)
        assert_true(http_budget_take(&budget, s) == 0);
    assert_in_range(http_budget_take(&budget, s), s / 10 - 1000, s / 10 + 1000);
    assert_in_range(http_budget_take(&budget, s), s / 5 - 1000, s / 5 + 1000);
    for (int i = 0; i < 30; i++)
        http_budget_earn(&budget);
    assert_true(http_budget_take(&budget, s) == 0);
    for (int i = 0; i < 10; i++)
        assert_true(http_budget_take(&budget, 2 * s) == 0);
}

/* --- the limit --- */

/* So many rounds of requests that all end well, `callers` of them at a time. */
static void run_rounds(struct http_limit *limit, uint32_t callers, uint32_t n_rounds, uint64_t *now_ns)
{
    for (uint32_t n_left = n_rounds * limit->most; n_left > 0; n_left--) {
        *now_ns += 50000000;
        http_limit_answered(limit, callers < limit->allowed ? callers : limit->allowed, *now_ns);
    }
}

TEST(a_cut_halves_once_for_all_who_were_in_flight_and_recovers_one_by_one)
{
    struct http_limit limit = {.allowed = 16, .most = 16};
    uint64_t now_ns = 1000;
    run_rounds(&limit, 16, 10, &now_ns);
    assert_int_equal(limit.allowed, 16); /* until the origin says otherwise */
    now_ns = 1000;
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

TEST(a_new_origin_is_asked_once_and_after_each_round_of_answers_twice_as_much)
{
    struct http_limit limit = {.allowed = 1, .most = 8};
    for (uint32_t n = 1; n < 8; n *= 2)
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(limit.allowed, n + i);
            http_limit_answered(&limit, limit.allowed - 1, 1000); /* they suffice */
            http_limit_answered(&limit, limit.allowed, 1000);
        }
    http_limit_answered(&limit, 8, 1000);
    assert_int_equal(limit.allowed, 8);
    assert_true(http_limit_cut(&limit, 500, 1000)); /* once it has refused one, it grows by rounds */
    http_limit_answered(&limit, 4, 2000);
    assert_int_equal(limit.allowed, 4);
}

TEST(a_limit_that_is_not_reached_or_only_in_a_burst_does_not_recover)
{
    struct http_limit limit = {.allowed = 16, .most = 16};
    uint64_t now_ns = 1000;
    assert_true(http_limit_cut(&limit, 500, now_ns));
    for (uint64_t i = 0; i < 100; i++) /* quick answers are one round */
        http_limit_answered(&limit, 8, now_ns + i);
    assert_int_equal(limit.allowed, 8);
    run_rounds(&limit, 7, 20, &now_ns);
    assert_int_equal(limit.allowed, 8);
}
