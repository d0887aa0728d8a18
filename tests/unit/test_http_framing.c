/* Where the body of an answer ends: lengths, chunks in pieces of any size, and what contradicts itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/http/http_framing.h"
#include "source/http/http_head.h"

#include <cmocka.h>

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

static void a_length_ends_the_body_and_leaves_what_follows(void **state)
{
    (void)state;
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

static void chunks_are_put_together_however_they_come(void **state)
{
    static const char text[] = "5\r\nhello\r\n1;name=\"value\"\r\n \r\n00a \r\nwide world\r\n0\r\nTrailer: x\r\n\r\nrest";
    (void)state;
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

static void chunks_that_end_early_are_not_over(void **state)
{
    static const char *const texts[] = {"", "5", "5\r\nhell", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\nA: b\r\n"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct http_framing framing;
        assert_non_null(unwrap_chunks(&framing, texts[i]));
        assert_false(framing.is_over);
    }
}

static void malformed_chunks_are_refused(void **state)
{
    static const char *const texts[] = {
        "\r\n", "x\r\n", "-1\r\n", "5hello\r\n", "5\r\nhelloX", "1000000000000000\r\n", ";a\r\n", "5\r\nhello\r\n\r\n0"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct http_framing framing;
        if (unwrap_chunks(&framing, texts[i]))
            fail_msg("taken: %s", texts[i]);
    }
}

static void lines_between_chunks_are_bounded(void **state)
{
    static char text[40 << 10];
    (void)state;
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

static void without_a_length_the_connection_is_the_end(void **state)
{
    struct http_framing framing;
    struct error error;
    size_t n_used;
    (void)state;
    assert_int_equal(begin(&framing, "Content-Type: x\n", &error), 0);
    assert_string_equal(unwrap(&framing, "hello", 2, &n_used), "hello");
    assert_true(!framing.is_over && framing.ends_connection && framing.kind == HTTP_FRAMING_CLOSE);
}

static void an_empty_body_is_over_at_once(void **state)
{
    struct http_framing framing;
    struct error error;
    (void)state;
    assert_int_equal(begin(&framing, "Content-Length: 0\n", &error), 0);
    assert_true(framing.is_over && !framing.ends_connection);
}

static void contradictions_are_refused(void **state)
{
    static const char *const heads[] = {"Content-Length: 5\nContent-Length: 6\n", "Content-Length: 5, 5\n",
                                        "Content-Length: -1\n", "Content-Length: 18446744073709551616\n",
                                        "Transfer-Encoding: gzip, chunked\n"};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct http_framing framing;
        struct error error = {0};
        assert_int_equal(begin(&framing, heads[i], &error), -1);
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
        assert_string_equal(error.reason, "BAD_ANSWER");
    }
}

static void a_connection_is_kept_only_when_both_sides_agree(void **state)
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
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(begin(&framing, cases[i].lines, &error), 0);
        assert_int_equal(framing.ends_connection, cases[i].ends);
    }
    assert_int_equal(http_framing_begin(&framing, &none, true, &error), 0);
    assert_true(framing.ends_connection);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_length_ends_the_body_and_leaves_what_follows),
        cmocka_unit_test(chunks_are_put_together_however_they_come),
        cmocka_unit_test(chunks_that_end_early_are_not_over),
        cmocka_unit_test(malformed_chunks_are_refused),
        cmocka_unit_test(lines_between_chunks_are_bounded),
        cmocka_unit_test(without_a_length_the_connection_is_the_end),
        cmocka_unit_test(an_empty_body_is_over_at_once),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(a_connection_is_kept_only_when_both_sides_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
