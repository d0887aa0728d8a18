/* What a client may send over HTTP/2, frame by frame. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/http2_guard.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, WINDOW_UPDATE = 8, CONTINUATION = 9 };
enum { END_STREAM = 1, END_HEADERS = 4, USER = 12345, ROOM = 4 << 20 };

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static struct quota *quota;
static struct http2_guard *guard;
static unsigned char *bytes, *out; /* what is sent, and what the server is to have */
static size_t n_bytes;
static long n_out;

static int open_guard(void **state)
{
    (void)state;
    quota = quota_create();
    quota_set_kept(quota, 0);
    guard = http2_guard_create((struct metadata_account){quota, USER});
    bytes = test_malloc(ROOM);
    out = test_malloc(ROOM + HTTP2_GUARD_EXTRA_BYTES);
    memcpy(bytes, preface, sizeof preface - 1);
    n_bytes = sizeof preface - 1;
    return 0;
}

static int close_guard(void **state)
{
    (void)state;
    http2_guard_destroy(guard);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    quota_destroy(quota);
    test_free(bytes);
    test_free(out);
    return 0;
}

static void put(int type, int flags, uint32_t stream, size_t length)
{
    const unsigned char head[] = {(unsigned char)(length >> 16), (unsigned char)(length >> 8), (unsigned char)length,
                                  (unsigned char)type,           (unsigned char)flags,         (unsigned char)(stream >> 24),
                                  (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};
    assert_true(n_bytes + sizeof head + length <= ROOM);
    memcpy(bytes + n_bytes, head, sizeof head);
    memset(bytes + n_bytes + sizeof head, (int)(stream & 255), length);
    n_bytes += sizeof head + length;
}

/* Sends what was put. */
static bool send_at(uint64_t now_ns)
{
    n_out = http2_guard_from_client(guard, bytes, n_bytes, now_ns, out);
    n_bytes = 0;
    return n_out >= 0;
}

static void passes(void)
{
    size_t count = n_bytes;
    assert_true(send_at(1));
    assert_int_equal(n_out, count);
    assert_memory_equal(out, bytes, count);
}

static void ends_with(const char *complaint)
{
    assert_false(send_at(1));
    if (!strstr(http2_guard_complaint(guard), complaint))
        fail_msg("%s", http2_guard_complaint(guard));
}

static void answer_ends(uint32_t stream)
{
    put(HEADERS, END_HEADERS | END_STREAM, stream, 20);
    http2_guard_from_server(guard, bytes, n_bytes);
    n_bytes = 0;
}

static void what_clients_say_goes_through_unchanged_however_it_is_cut(void **state)
{
    (void)state;
    put(SETTINGS, 0, 0, 12);
    put(WINDOW_UPDATE, 0, 0, 4);
    put(HEADERS, 0, 1, 300);
    put(CONTINUATION, END_HEADERS, 1, 200);
    put(DATA, END_STREAM, 1, 40000);
    put(PING, 0, 0, 8);
    put(RST_STREAM, 0, 1, 4);
    for (size_t piece = 1; piece < n_bytes; piece = piece * 3 + 1) {
        struct http2_guard *own = http2_guard_create((struct metadata_account){0});
        size_t n = 0;
        for (size_t at = 0; at < n_bytes; at += piece) {
            size_t count = n_bytes - at < piece ? n_bytes - at : piece;
            long more = http2_guard_from_client(own, bytes + at, count, 1, out + n);
            assert_true(more >= 0);
            n += (size_t)more;
        }
        assert_int_equal(n, n_bytes);
        assert_memory_equal(out, bytes, n);
        http2_guard_destroy(own);
    }
}

static void what_is_not_http2_ends_the_connection(void **state)
{
    (void)state;
    memcpy(bytes, "GET / HTTP/1.1\r\n", n_bytes = 16);
    ends_with("not HTTP/2");
}

static void a_header_block_may_have_64_kib(void **state)
{
    (void)state;
    put(HEADERS, 0, 1, 30000);
    put(CONTINUATION, 0, 1, 30000);
    put(CONTINUATION, END_HEADERS, 1, HTTP2_MAX_BLOCK_BYTES - 60000);
    put(HEADERS, END_HEADERS, 3, HTTP2_MAX_BLOCK_BYTES); /* counted anew */
    passes();
    put(HEADERS, 0, 5, 30000);
    put(CONTINUATION, 0, 5, 30000);
    put(CONTINUATION, END_HEADERS, 5, HTTP2_MAX_BLOCK_BYTES - 60000 + 1);
    ends_with("64 KiB");
}

static void a_header_block_may_have_32_frames(void **state)
{
    (void)state;
    put(HEADERS, 0, 1, 10);
    for (int i = 2; i < HTTP2_MAX_BLOCK_FRAMES; i++)
        put(CONTINUATION, 0, 1, 0);
    put(CONTINUATION, END_HEADERS, 1, 0);
    passes();
    put(HEADERS, 0, 3, 10);
    for (int i = 0; i < HTTP2_MAX_BLOCK_FRAMES; i++)
        put(CONTINUATION, 0, 3, 0);
    ends_with("32 frames");
}

static void a_header_block_is_not_interrupted(void **state)
{
    (void)state;
    put(HEADERS, 0, 1, 10);
    put(PING, 0, 0, 8);
    ends_with("CONTINUATION");
}

static void a_continuation_of_nothing_ends_the_connection(void **state)
{
    (void)state;
    put(CONTINUATION, END_HEADERS, 1, 10);
    ends_with("CONTINUATION");
}

static void cancelling_has_a_rate(void **state)
{
    (void)state;
    passes();
    for (int i = 0; i < HTTP2_RESETS_BURST; i++)
        put(RST_STREAM, 0, 1, 4);
    assert_true(send_at(1));
    put(RST_STREAM, 0, 1, 4);
    assert_true(send_at(1000000001)); /* a second later there is room again */
    for (int i = 0; i < 201; i++)
        put(RST_STREAM, 0, 1, 4);
    assert_false(send_at(1000000001));
}

static void pings_have_a_rate_while_there_is_no_data(void **state)
{
    (void)state;
    for (int i = 0; i < HTTP2_PINGS_BURST; i++)
        put(PING, 0, 0, 8);
    put(PING, 1, 0, 8); /* an answer */
    passes();
    answer_ends(1); /* who gets data may measure how fast */
    for (int i = 0; i < HTTP2_PINGS_BURST; i++)
        put(PING, 0, 0, 8);
    passes();
    put(PING, 0, 0, 8);
    ends_with("pings");
}

static void settings_and_empty_data_have_a_rate(void **state)
{
    (void)state;
    for (int i = 0; i < HTTP2_ODD_FRAMES_BURST / 2; i++) {
        put(SETTINGS, 0, 0, 0);
        put(DATA, 0, 1, 0);
    }
    passes();
    put(SETTINGS, 1, 0, 0); /* what acknowledges ours does not count */
    put(DATA, END_STREAM, 1, 0);
    passes();
    put(SETTINGS, 0, 0, 0);
    ends_with("flood");
}

static void streams_have_a_limit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HTTP2_MAX_STREAMS; i++)
        put(HEADERS, END_HEADERS, 2 * i + 1, 0);
    passes();
    answer_ends(77);
    put(HEADERS, END_HEADERS, 100001, 0);
    passes();
    put(HEADERS, END_HEADERS, 100003, 0);
    ends_with("too many streams");
}

static void messages_are_charged_until_their_stream_ends(void **state)
{
    (void)state;
    put(HEADERS, END_HEADERS, 1, 10);
    put(DATA, 0, 1, HTTP2_FREE_BYTES);
    passes();
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    put(DATA, 0, 1, 1);
    passes();
    assert_true(quota_taken(quota, QUOTA_METADATA) >= 1);
    put(HEADERS, END_HEADERS, 3, 10);
    put(DATA, END_STREAM, 3, 1 << 20);
    passes();
    assert_true(quota_taken(quota, QUOTA_METADATA) >= 1 << 20);
    put(RST_STREAM, 0, 3, 4);
    passes();
    put(HEADERS, END_HEADERS, 5, 10);
    put(DATA, 0, 5, 100000);
    passes();
    answer_ends(5);
    answer_ends(1);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
}

static void a_message_that_its_call_has_is_not_charged_here(void **state)
{
    (void)state;
    put(HEADERS, END_HEADERS, 1, 10);
    put(DATA, END_STREAM, 1, 300005);
    passes();
    http2_guard_taken(guard, 299999);
    assert_true(quota_taken(quota, QUOTA_METADATA) > 200000);
    http2_guard_taken(guard, 300000);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    answer_ends(1);
}

static bool contains(const unsigned char *all, size_t count, const char *text)
{
    return memmem(all, count, text, strlen(text)) != NULL;
}

static void a_message_that_is_too_much_is_refused_and_the_connection_goes_on(void **state)
{
    const unsigned char *answer, reset[] = {0, 0, 4, RST_STREAM, 0, 0, 0, 0, 1, 0, 0, 0, 8};
    (void)state;
    quota_set_limits(quota, QUOTA_METADATA, 1 << 20, 0);
    put(HEADERS, END_HEADERS, 1, 10);
    put(DATA, 0, 1, 500000);
    passes();
    put(DATA, 0, 1, 900000);
    put(DATA, 0, 1, 100);
    put(HEADERS, END_HEADERS, 3, 10);
    put(DATA, END_STREAM, 3, 100);
    assert_true(send_at(1));
    assert_int_equal(n_out, sizeof reset + 9 + 10 + 9 + 100); /* the server sees a cancelled request, and the other one */
    assert_memory_equal(out, reset, sizeof reset);
    assert_int_equal(out[sizeof reset + 3], HEADERS);
    assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    size_t count = http2_guard_take_answer(guard, &answer);
    assert_int_equal(answer[3], HEADERS);
    assert_int_equal(answer[4], END_HEADERS | END_STREAM);
    assert_true(contains(answer, count, "metadata bytes"));
    assert_int_equal(answer[count - 13 + 3], WINDOW_UPDATE);
    assert_int_equal(answer[count - 1], 100);
    assert_int_equal(http2_guard_take_answer(guard, &answer), 0);
}

static void answers_go_between_frames_only(void **state)
{
    (void)state;
    n_bytes = 0;
    put(HEADERS, END_HEADERS, 1, 20);
    size_t first = n_bytes;
    put(DATA, 0, 1, 1000);
    assert_true(http2_guard_between_frames(guard));
    assert_int_equal(http2_guard_from_server(guard, bytes, n_bytes), n_bytes);
    assert_int_equal(http2_guard_from_server(guard, bytes, first + 100), first);
    assert_false(http2_guard_between_frames(guard));
    assert_int_equal(http2_guard_from_server(guard, bytes + first + 100, 200), 201); /* nowhere */
    assert_int_equal(http2_guard_from_server(guard, bytes + first + 300, n_bytes - first - 300), n_bytes - first - 300);
    n_bytes = 0;
    put(HEADERS, 0, 3, 20);
    size_t block = n_bytes;
    put(CONTINUATION, END_HEADERS, 3, 20);
    assert_int_equal(http2_guard_from_server(guard, bytes, block), 0);
    assert_false(http2_guard_between_frames(guard));
    assert_int_equal(http2_guard_from_server(guard, bytes + block, n_bytes - block), n_bytes - block);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, open_guard, close_guard)

static void a_control_frame_may_have_16_kib(void **state)
{
    (void)state;
    put(SETTINGS, 0, 0, 16 << 10);
    passes();
    put(SETTINGS, 0, 0, (16 << 10) + 1);
    ends_with("16 KiB");
}

static void refused_messages_take_no_place_for_ever(void **state)
{
    const unsigned char *answer;
    (void)state;
    quota_set_limits(quota, QUOTA_METADATA, 1, 0);
    for (uint32_t i = 0; i < HTTP2_MAX_STREAMS + 100; i++) {
        put(HEADERS, END_HEADERS, 2 * i + 1, 1);
        put(DATA, 0, 2 * i + 1, HTTP2_FREE_BYTES + 1);
        assert_true(send_at(1)); /* no complaint of too many streams */
        while (http2_guard_take_answer(guard, &answer))
            ;
    }
    quota_set_limits(quota, QUOTA_METADATA, 1 << 20, 0);
    put(HEADERS, END_HEADERS, 1u << 20 | 1, 10);
    put(DATA, END_STREAM, 1u << 20 | 1, 10);
    passes();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(what_clients_say_goes_through_unchanged_however_it_is_cut),
        EACH(what_is_not_http2_ends_the_connection),
        EACH(a_header_block_may_have_64_kib),
        EACH(a_header_block_may_have_32_frames),
        EACH(a_header_block_is_not_interrupted),
        EACH(a_continuation_of_nothing_ends_the_connection),
        EACH(cancelling_has_a_rate),
        EACH(pings_have_a_rate_while_there_is_no_data),
        EACH(settings_and_empty_data_have_a_rate),
        EACH(streams_have_a_limit),
        EACH(a_control_frame_may_have_16_kib),
        EACH(refused_messages_take_no_place_for_ever),
        EACH(messages_are_charged_until_their_stream_ends),
        EACH(a_message_that_its_call_has_is_not_charged_here),
        EACH(a_message_that_is_too_much_is_refused_and_the_connection_goes_on),
        EACH(answers_go_between_frames_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
