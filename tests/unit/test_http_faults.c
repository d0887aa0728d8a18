/* Reads of a range from a server that answers wrongly, over connections that are not made, are lost or kept too long: each
 * ends with the right bytes, or with an error that says why. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/http_scene.h"

static void assert_fails(enum error_code code, const char *reason)
{
    assert_true(http_scene_fails(code, reason));
    assert_non_null(strstr(http_scene.error.message, "/bucket/o"));
}

static void assert_message_has(const char *text)
{
    if (!strstr(http_scene.error.message, text))
        fail_msg("\"%s\" is not in: %s", text, http_scene.error.message);
}

/* --- plays --- */

static const char *status_lines = "Retry-After: 0\r\nLocation: /elsewhere\r\n";
static int status_code;

PLAY(answer_status, { http_script_answer(peer, status_code, status_lines, "<no/>"); })

PLAY(send_part, {
    http_script_send_range(peer, request, PART);
    http_script_close(peer);
})

PLAY(send_part_and_reset, {
    http_script_send_range(peer, request, PART);
    http_script_pause(peer, 30); /* what the client has not read by then it loses, and asks for again */
    http_script_reset(peer);
})

PLAY(send_part_of_chunks, {
    http_scene_send_head(peer, request, "Transfer-Encoding: chunked\r\n");
    http_script_send(peer, "ea60\r\n"); /* PART */
    http_script_send_bytes(peer, http_scene.object + request->first, PART);
    http_script_send(peer, "\r\n");
    http_script_close(peer);
})

PLAY(send_part_without_length, {
    http_scene_send_head(peer, request, "Connection: close\r\n");
    http_script_send_bytes(peer, http_scene.object + request->first, PART);
    http_script_close(peer);
})

PLAY(send_too_much, {
    static const char junk[OBJECT_BYTES];
    http_scene_send_head(peer, request, "Connection: close\r\n");
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_close(peer);
})

PLAY(answer_a_piece, {
    struct http_script_request piece = *request;
    piece.last = piece.first + PART - 1;
    http_script_send_range(peer, &piece, UINT64_MAX);
})

PLAY(hang_up_when_kept, {
    if (request->on_connection == 0)
        http_script_send_range(peer, request, UINT64_MAX);
    else
        http_script_close(peer);
})

PLAY(send_more_after_the_answer, {
    http_script_send_range(peer, request, UINT64_MAX);
    http_script_send(peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
})

PLAY(close_every_third, {
    http_script_send_range(peer, request, UINT64_MAX);
    if (request->on_connection == 2)
        http_script_close(peer);
})

/* --- what ends well --- */

enum { ANY = -1 };

static const struct recovery {
    const char *name;
    play_fn *plays[2], *others;
    int status;
    unsigned max_tries, n_reads;   /* 0: 4, 1 */
    int n_requests, n_connections; /* 0: ANY */
    int received, lost;            /* by the first request: how much the second need not ask for, and may ask for again */
} recoveries[] = {
    {"408 is tried again", {answer_status, answer_status}, .status = 408, .n_requests = 3},
    {"429 is tried again", {answer_status, answer_status}, .status = 429, .n_requests = 3},
    {"500 is tried again", {answer_status, answer_status}, .status = 500, .n_requests = 3},
    {"502 is tried again", {answer_status, answer_status}, .status = 502, .n_requests = 3},
    {"503 is tried again", {answer_status, answer_status}, .status = 503, .n_requests = 3},
    {"504 is tried again", {answer_status, answer_status}, .status = 504, .n_requests = 3},
    {"after a truncated answer only the rest is asked for", {send_part}, .received = PART, .n_connections = 2},
    {"after a reset in the body only the rest is asked for",
     {send_part_and_reset},
     .received = PART,
     .lost = PART,
     .n_requests = 2},
    {"after a truncated chunked answer only the rest is asked for", {send_part_of_chunks}, .received = PART},
    {"after a short answer without length only the rest is asked for", {send_part_without_length}, .received = PART},
    {"an answer that goes on too long is not believed at all", {send_too_much}, .n_requests = 2},
    {"an honest piece is no failure",
     {answer_a_piece, answer_a_piece},
     .max_tries = 1,
     .n_requests = 3,
     .n_connections = 1,
     .received = PART},
    {"a connection lost before the answer is tried again",
     {http_scene_reset, http_scene_hang_up},
     .n_requests = 3,
     .n_connections = 3},
    {"a kept connection that died costs no try",
     {hang_up_when_kept, hang_up_when_kept},
     .max_tries = 1,
     .n_reads = 2,
     .n_requests = 3,
     .n_connections = 2,
     .received = ANY},
    {"a connection with bytes left over is not used again", {send_more_after_the_answer}, .n_reads = 2, .received = ANY},
    {"a server that closes kept connections shows no error",
     {NULL},
     close_every_third,
     .max_tries = 1,
     .n_reads = 10,
     .received = ANY},
};

TEST_IN(faults_that_pass_are_survived, http_scene_open, http_scene_close)
{
    for (size_t i = 0; i < sizeof recoveries / sizeof *recoveries; i++) {
        const struct recovery *row = &recoveries[i];
        http_scene_stop();
        status_code = row->status;
        http_scene.plays[0] = row->plays[0];
        http_scene.plays[1] = row->plays[1];
        http_scene.others = row->others;
        http_scene.options.max_tries = row->max_tries ? row->max_tries : 4;
        http_scene_start();
        bool is_good = http_scene_has_read();
        for (unsigned n = 1; n < row->n_reads; n++)
            is_good = is_good && http_scene_has_read();
        const struct http_script_request *second = http_script_seen(http_scene.script, 1);
        unsigned requests = http_script_requests(http_scene.script),
                 connections = http_script_connections(http_scene.script);
        is_good = is_good && (!row->n_requests || requests == (unsigned)row->n_requests) &&
                  (!row->n_connections || connections == (unsigned)row->n_connections);
        if (is_good && row->received != ANY)
            is_good = second && second->first <= OFFSET + (uint64_t)row->received &&
                      second->first + (uint64_t)row->lost >= OFFSET + (uint64_t)row->received &&
                      second->last <= OFFSET + BYTES - 1;
        if (!is_good)
            fail_msg("%s: %u requests on %u connections", row->name, requests, connections);
    }
}

/* --- what does not --- */

PLAY(answer_all, {
    struct http_script_request whole = *request;
    whole.has_range = false;
    http_script_send_range(peer, &whole, UINT64_MAX);
})

PLAY(answer_without_total, { http_script_answer(peer, 206, "Content-Range: bytes 100-104/*\r\n", "bytes"); })

PLAY(answer_other_range, {
    struct http_script_request other = *request;
    other.first -= 1, other.last -= 1;
    http_script_send_range(peer, &other, UINT64_MAX);
})

PLAY(answer_without_content_range, { http_script_answer(peer, 206, "", "bytes"); })

PLAY(answer_garbage, {
    http_script_send(peer, "SSH-2.0-OpenSSH_9.2p1\r\n");
    http_script_close(peer);
})

PLAY(answer_too_much_head, {
    http_script_send(peer, "HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 100; i++) {
        char line[1024];
        snprintf(line, sizeof line, "x-%d: %0900d\r\n", i, i);
        http_script_send(peer, line);
    }
})

PLAY(answer_too_many_lines, {
    http_script_send(peer, "HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 300; i++)
        http_script_send(peer, "x: y\r\n");
})

PLAY(answer_with_wrong_length, {
    http_scene_send_head(peer, request, "Content-Length: 5\r\n");
    http_script_send(peer, "bytes");
})

PLAY(answer_other_total, {
    char head[256];
    snprintf(head, sizeof head, "HTTP/1.1 206 P\r\nContent-Range: bytes %llu-%llu/%d\r\nContent-Length: %d\r\n\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES + 1, BYTES);
    http_script_send(peer, head);
    http_script_send_bytes(peer, http_scene.object, BYTES);
})

PLAY(answer_compressed, {
    http_scene_send_head(peer, request, "Content-Encoding: gzip\r\nContent-Length: 200000\r\n");
    http_script_send_bytes(peer, http_scene.object, BYTES);
})

struct failure {
    play_fn *play;
    int status;
    enum error_code code;
    const char *reason;
};

static void assert_ends(const struct failure *row, unsigned n_requests)
{
    http_scene_stop();
    status_code = row->status;
    http_scene.plays[0] = http_scene.plays[1] = row->play;
    http_scene_start();
    assert_fails(row->code, row->reason);
    assert_true(http_scene_has_seen(n_requests, n_requests));
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(http_scene.bytes[i], 0xEE); /* nothing was written */
}

TEST_IN(what_is_final_is_asked_for_once, http_scene_open, http_scene_close)
{
    static const struct failure rows[] = {
        {answer_status, 401, ERROR_PERMISSION_DENIED, "NOT_AUTHENTICATED"},
        {answer_status, 403, ERROR_PERMISSION_DENIED, "ACCESS_DENIED"},
        {answer_status, 404, ERROR_NOT_FOUND, "NO_SUCH_OBJECT"},
        {answer_status, 410, ERROR_NOT_FOUND, "NO_SUCH_OBJECT"},
        {answer_status, 412, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
        {answer_status, 416, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
        {answer_status, 400, ERROR_INTERNAL, "REQUEST_REFUSED"},
        {answer_status, 302, ERROR_UNAVAILABLE, "REDIRECTED"},
        {answer_other_total, 0, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
        {answer_compressed, 0, ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_ends(&rows[i], 1);
}

TEST_IN(lies_are_tried_once_more_then_final, http_scene_open, http_scene_close)
{
    static const struct failure rows[] = {
        {answer_all, 0, ERROR_FAILED_PRECONDITION, "RANGE_IGNORED"},
        {answer_without_total, 0, ERROR_FAILED_PRECONDITION, "SERVER_UNFIT"},
        {answer_other_range, 0, ERROR_UNAVAILABLE, "BAD_ANSWER"},
        {answer_without_content_range, 0, ERROR_UNAVAILABLE, "BAD_ANSWER"},
        {answer_garbage, 0, ERROR_UNAVAILABLE, "BAD_ANSWER"},
        {answer_too_much_head, 0, ERROR_UNAVAILABLE, "BAD_ANSWER"},
        {answer_too_many_lines, 0, ERROR_UNAVAILABLE, "BAD_ANSWER"},
        {answer_with_wrong_length, 0, ERROR_UNAVAILABLE, "BAD_ANSWER"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_ends(&rows[i], 2);
        http_scene_stop();
        http_scene.plays[1] = NULL;
        http_scene_start();
        assert_true(http_scene_has_read());
    }
}

TEST_IN(an_endless_503_ends_at_the_limit_and_says_what_happened, http_scene_open, http_scene_close)
{
    static const char *const parts[] = {"bytes 1000-200999 of o", "?...", "503", "4 tries", "request id RQ17"};
    status_code = 503;
    status_lines = "x-amz-request-id: RQ17\r\n";
    http_scene.others = answer_status;
    http_scene_start();
    assert_fails(ERROR_UNAVAILABLE, "SERVER_BUSY");
    assert_int_equal(http_script_requests(http_scene.script), 4);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_message_has(parts[i]);
}

TEST_IN(a_throttled_request_halves_the_limit, http_scene_open, http_scene_close)
{
    struct http_statistics other, after;
    status_code = 429;
    status_lines = "Retry-After: 0\r\n";
    http_scene.plays[0] = answer_status;
    http_scene_start();
    assert_true(http_scene_has_read());
    http_engine_statistics(http_scene.engine, http_scene.url, &after);
    http_engine_statistics(http_scene.engine, "http://127.0.0.1:1", &other);
    assert_int_equal(after.limit, 16);
    assert_int_equal(after.throttled, 1);
    assert_int_equal(after.retries, 1);
    assert_int_equal(after.requests, 2);
    assert_int_equal(other.requests, 0);
}

TEST_IN(a_retry_after_beyond_the_patience_is_an_error_now, http_scene_open, http_scene_close)
{
    http_scene.options.progress_timeout_ms = 1000;
    status_code = 503;
    status_lines = "Retry-After: 30\r\n";
    http_scene.plays[0] = answer_status;
    http_scene_start();
    assert_fails(ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS");
    assert_message_has("503");
    assert_int_equal(http_script_requests(http_scene.script), 1);
}

PLAY(refuse_at_length, {
    static char body[(64 << 10) + 2];
    memset(body, 'x', sizeof body - 1);
    body[(64 << 10) + request->number] = '\0';
    http_script_answer(peer, 404, "", body);
})

TEST_IN(a_refusal_means_the_same_however_long_it_is, http_scene_open, http_scene_close)
{
    http_scene.others = refuse_at_length;
    http_scene_start();
    assert_true(http_scene_fails(ERROR_NOT_FOUND, "NO_SUCH_OBJECT")); /* all of it is taken */
    assert_true(http_scene_fails(ERROR_NOT_FOUND, "NO_SUCH_OBJECT")); /* one byte more: the rest is cut off */
    assert_int_equal(http_script_requests(http_scene.script), 2);
}

enum { MOST_ANSWERS = 65 /* of one range: the first and 64 more */ };

PLAY(answer_a_crumb, {
    struct http_script_request crumb = *request;
    uint64_t bytes = BYTES / MOST_ANSWERS + (atomic_load(&http_scene.n_gone) ? 0 : 1);
    crumb.last = crumb.first + bytes - 1 < request->last ? crumb.first + bytes - 1 : request->last;
    http_script_send_range(peer, &crumb, UINT64_MAX);
})

TEST_IN(a_range_may_come_in_so_many_pieces_and_not_one_more, http_scene_open, http_scene_close)
{
    http_scene.others = answer_a_crumb;
    http_scene_start();
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), MOST_ANSWERS);
    atomic_store(&http_scene.n_gone, 1); /* pieces a byte smaller from now on */
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "BAD_ANSWER"));
    assert_int_equal(http_script_requests(http_scene.script), 2 * MOST_ANSWERS);
}

/* --- connections --- */

TEST_IN(a_server_that_does_not_listen_is_tried_and_named, http_scene_open, http_scene_close)
{
    http_scene_start();
    http_script_stop(http_scene.script);
    http_scene.script = NULL;
    assert_fails(ERROR_UNAVAILABLE, "CONNECT_FAILED");
    assert_message_has("4 tries");
    assert_message_has("127.0.0.1");
}

TEST_IN(another_address_of_the_name_is_tried, http_scene_open, http_scene_close)
{
    unsigned port;
    http_scene_start();
    assert_int_equal(sscanf(http_scene.url, "http://127.0.0.1:%u", &port), 1);
    snprintf(http_scene.url, sizeof http_scene.url, "http://localhost:%u/bucket/o", port); /* often ::1 first */
    assert_true(http_scene_has_read());
}

TEST_IN(a_document_of_an_unknown_host_is_asked_for_four_times, http_scene_open, http_scene_close)
{
    http_scene.options.max_tries = 8;
    http_scene_start();
    assert_int_equal(http_scene_fetch((struct http_call){.url = "https://no-such-host.invalid/index.json"}), -1);
    assert_string_equal(http_scene.error.reason, "DNS_FAILED");
    assert_message_has("4 tries");
    strcpy(http_scene.url, "https://no-such-host.invalid/bucket/o");
    assert_fails(ERROR_UNAVAILABLE, "DNS_FAILED");
    assert_message_has("no-such-host.invalid");
    assert_message_has("8 tries"); /* a range is of a server whose name was known just before */
}

TEST_IN(a_server_without_tls_is_a_final_error_that_names_the_ca, http_scene_open, http_scene_close)
{
    http_scene.options.ca_file = "/etc/ssl/certs/ca-certificates.crt";
    http_scene_start();
    memmove(http_scene.url + 5, http_scene.url + 4, strlen(http_scene.url + 4) + 1);
    http_scene.url[4] = 's';
    assert_fails(ERROR_FAILED_PRECONDITION, "TLS_FAILED");
    assert_message_has("ca-certificates.crt");
    assert_message_has("1 try");
}

static bool refuse_some(unsigned connection, void *data)
{
    (void)data;
    return connection % 3 != 1;
}

static void *read_on_thread(void *data)
{
    unsigned char *bytes = malloc(BYTES);
    struct error error = {0};
    atomic_int *n_good = data;
    if (http_scene_read(bytes, &error) == 0 && memcmp(bytes, http_scene.object + OFFSET, BYTES) == 0)
        atomic_fetch_add(n_good, 1);
    else
        fprintf(stderr, "%s\n", error.message);
    free(bytes);
    return NULL;
}

TEST_IN(connections_reset_at_accept_are_tried_again, http_scene_open, http_scene_close)
{
    enum { READERS = 12 };
    pthread_t threads[READERS];
    atomic_int n_good = 0;
    struct http_statistics statistics;
    http_scene.options.max_tries = 20;
    http_scene.accept = refuse_some;
    http_scene_start();
    for (int i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_on_thread, &n_good);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_good, READERS);
    http_engine_statistics(http_scene.engine, http_scene.url, &statistics);
    assert_int_equal(statistics.in_flight, 0);
}
