/* Reads of a range from a server that commits faults: each ends with the right bytes, or with an error that says why. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "source/http/http.h"
#include "tests/support/http_script.h"

#include <cmocka.h>

enum { OBJECT_BYTES = 300000, OFFSET = 1000, BYTES = 200000, PART = 60000 };

typedef void play_fn(struct http_script_peer *peer, const struct http_script_request *request, void *data);

static struct scene {
    unsigned char object[OBJECT_BYTES], bytes[BYTES];
    struct http_engine *engine;
    struct http_script *script;
    play_fn *plays[4]; /* of the first requests; the others are served well */
    char url[HTTP_SCRIPT_URL_CHARS];
    struct error error;
    uint64_t sum;
} scene;

static void play(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct scene *self = data;
    if (request->number < 4 && self->plays[request->number])
        self->plays[request->number](peer, request, data);
    else
        http_script_send_range(peer, request, UINT64_MAX);
}

/* Small patience; what a test is about is set by the test. */
static struct http_engine_options quick(void)
{
    return (struct http_engine_options){.backoff_ms = 2, .max_tries = 4, .hedge_percent = 101};
}

static void open_scene_with(struct http_engine_options options)
{
    struct error error = {0};
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        scene.object[i] = (unsigned char)(i * 31 + i / 253);
    memset(scene.bytes, 0xEE, sizeof scene.bytes);
    if (http_engine_create(&options, &scene.engine, &error))
        fail_msg("%s", error.message);
    scene.script = http_script_start(
        &(struct http_script_options){.play = play, .data = &scene, .object = scene.object, .object_bytes = OBJECT_BYTES});
    http_script_url(scene.script, "/bucket/o?sig=SECRET", scene.url);
}

static int open_scene(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof scene);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    http_engine_destroy(scene.engine);
    if (scene.script)
        http_script_stop(scene.script);
    return 0;
}

static int read_range(void)
{
    struct iovec iov[] = {{scene.bytes, 1}, {scene.bytes + 1, BYTES - 1}};
    struct http_range range = {.url = scene.url,
                               .name = "o",
                               .offset = OFFSET,
                               .iov = iov,
                               .n_iov = 2,
                               .object_bytes = OBJECT_BYTES,
                               .checksum = CHECKSUM_CRC32C,
                               .checksum_value = &scene.sum};
    return http_read_range(scene.engine, &range, &scene.error);
}

static void assert_read(void)
{
    if (read_range())
        fail_msg("%s", scene.error.message);
    assert_memory_equal(scene.bytes, scene.object + OFFSET, BYTES);
    assert_true(scene.sum == crc32c_update(0, scene.object + OFFSET, BYTES));
}

static void assert_fails(enum error_code code, const char *reason)
{
    assert_int_equal(read_range(), -1);
    if (scene.error.code != code || strcmp(scene.error.reason, reason) != 0)
        fail_msg("%s %s: %s", error_code_name(scene.error.code), scene.error.reason, scene.error.message);
    assert_null(strstr(scene.error.message, "SECRET"));
    assert_non_null(strstr(scene.error.message, "/bucket/o"));
}

static void assert_untouched(void)
{
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(scene.bytes[i], 0xEE);
}

/* --- statuses --- */

static const char *status_lines = "";
static int status_code;

static void answer_status(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, status_code, status_lines, "<no/>");
}

static void statuses_that_pass_are_tried_again(void **state)
{
    static const int statuses[] = {408, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        open_scene(state);
        status_code = statuses[i];
        status_lines = "Retry-After: 0\r\n";
        scene.plays[0] = scene.plays[1] = answer_status;
        open_scene_with(quick());
        assert_read();
        assert_int_equal(http_script_requests(scene.script), 3);
        close_scene(state);
    }
    open_scene(state);
}

static void final_statuses_are_asked_for_once(void **state)
{
    static const struct {
        int status;
        enum error_code code;
        const char *reason;
    } cases[] = {{401, ERROR_PERMISSION_DENIED, "NOT_AUTHENTICATED"},
                 {403, ERROR_PERMISSION_DENIED, "ACCESS_DENIED"},
                 {404, ERROR_NOT_FOUND, "NO_SUCH_OBJECT"},
                 {410, ERROR_NOT_FOUND, "NO_SUCH_OBJECT"},
                 {412, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
                 {416, ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED"},
                 {400, ERROR_INTERNAL, "REQUEST_REFUSED"},
                 {302, ERROR_UNAVAILABLE, "REDIRECTED"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_scene(state);
        status_code = cases[i].status;
        status_lines = "Location: /elsewhere\r\n";
        scene.plays[0] = answer_status;
        open_scene_with(quick());
        assert_fails(cases[i].code, cases[i].reason);
        assert_int_equal(http_script_requests(scene.script), 1);
        assert_untouched();
        close_scene(state);
    }
    open_scene(state);
}

static void an_endless_503_ends_at_the_limit_and_says_what_happened(void **state)
{
    (void)state;
    status_code = 503;
    status_lines = "x-amz-request-id: RQ17\r\n";
    scene.plays[0] = scene.plays[1] = scene.plays[2] = scene.plays[3] = answer_status;
    open_scene_with(quick());
    assert_fails(ERROR_UNAVAILABLE, "SERVER_BUSY");
    assert_int_equal(http_script_requests(scene.script), 4);
    assert_non_null(strstr(scene.error.message, "bytes 1000-200999 of o"));
    assert_non_null(strstr(scene.error.message, "?sig=..."));
    assert_non_null(strstr(scene.error.message, "503"));
    assert_non_null(strstr(scene.error.message, "4 tries"));
    assert_non_null(strstr(scene.error.message, "request id RQ17"));
}

static void a_throttled_request_halves_the_limit(void **state)
{
    struct http_statistics before, after;
    (void)state;
    status_code = 429;
    status_lines = "Retry-After: 0\r\n";
    scene.plays[0] = answer_status;
    open_scene_with(quick());
    assert_read();
    http_engine_statistics(scene.engine, scene.url, &after);
    http_engine_statistics(scene.engine, "http://127.0.0.1:1", &before);
    assert_int_equal(after.limit, 16);
    assert_int_equal(after.throttled, 1);
    assert_int_equal(after.retries, 1);
    assert_int_equal(after.requests, 2);
    assert_int_equal(before.requests, 0);
}

static void a_retry_after_beyond_the_patience_is_an_error_now(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.progress_timeout_ms = 1000;
    status_code = 503;
    status_lines = "Retry-After: 30\r\n";
    scene.plays[0] = answer_status;
    open_scene_with(options);
    assert_fails(ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS");
    assert_non_null(strstr(scene.error.message, "503"));
    assert_int_equal(http_script_requests(scene.script), 1);
}

/* --- connections --- */

static void nobody_listening_is_tried_and_named(void **state)
{
    char gone[HTTP_SCRIPT_URL_CHARS];
    (void)state;
    open_scene_with(quick());
    strcpy(gone, scene.url);
    http_script_stop(scene.script);
    scene.script = NULL;
    assert_fails(ERROR_UNAVAILABLE, "CONNECT_FAILED");
    assert_non_null(strstr(scene.error.message, "4 tries"));
    assert_non_null(strstr(scene.error.message, "127.0.0.1"));
}

static void another_address_of_the_name_is_tried(void **state)
{
    unsigned port;
    (void)state;
    open_scene_with(quick());
    assert_int_equal(sscanf(scene.url, "http://127.0.0.1:%u", &port), 1);
    snprintf(scene.url, sizeof scene.url, "http://localhost:%u/bucket/o", port); /* often ::1 first */
    assert_read();
}

static void an_unknown_host_is_named(void **state)
{
    (void)state;
    open_scene_with(quick());
    strcpy(scene.url, "http://no-such-host.invalid/bucket/o");
    assert_fails(ERROR_UNAVAILABLE, "DNS_FAILED");
    assert_non_null(strstr(scene.error.message, "no-such-host.invalid"));
}

static void a_server_without_tls_is_a_final_error_that_names_the_ca(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.ca_file = "/etc/ssl/certs/ca-certificates.crt";
    open_scene_with(options);
    memmove(scene.url + 5, scene.url + 4, strlen(scene.url + 4) + 1);
    scene.url[4] = 's';
    assert_fails(ERROR_FAILED_PRECONDITION, "TLS_FAILED");
    assert_non_null(strstr(scene.error.message, "ca-certificates.crt"));
    assert_non_null(strstr(scene.error.message, "1 try"));
}

static void drop(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_close(peer);
}

static void drop_kept(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    if (request->on_connection == 0)
        http_script_send_range(peer, request, UINT64_MAX);
    else
        http_script_close(peer);
}

static void a_kept_connection_that_died_costs_no_try(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    scene.plays[0] = scene.plays[1] = drop_kept;
    open_scene_with(options);
    assert_read();
    assert_read();
    assert_int_equal(http_script_requests(scene.script), 3);
    assert_int_equal(http_script_connections(scene.script), 2);
}

static void reset_now(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_reset(peer);
}

static void a_connection_lost_before_the_answer_is_tried_again(void **state)
{
    (void)state;
    scene.plays[0] = reset_now;
    scene.plays[1] = drop;
    open_scene_with(quick());
    assert_read();
    assert_int_equal(http_script_requests(scene.script), 3);
    assert_int_equal(http_script_connections(scene.script), 3);
}

static bool refuse_some(unsigned connection, void *data)
{
    (void)data;
    return connection % 3 != 1;
}

static void *read_on_thread(void *data)
{
    unsigned char *bytes = malloc(BYTES);
    struct iovec iov = {bytes, BYTES};
    struct error error = {0};
    struct http_range range = {
        .url = scene.url, .name = "o", .offset = OFFSET, .iov = &iov, .n_iov = 1, .object_bytes = OBJECT_BYTES};
    atomic_int *n_good = data;
    if (http_read_range(scene.engine, &range, &error) == 0 && memcmp(bytes, scene.object + OFFSET, BYTES) == 0)
        atomic_fetch_add(n_good, 1);
    else
        fprintf(stderr, "%s\n", error.message);
    free(bytes);
    return NULL;
}

static void connections_reset_at_accept_are_tried_again(void **state)
{
    enum { READERS = 12 };
    pthread_t threads[READERS];
    atomic_int n_good = 0;
    struct http_statistics statistics;
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 20;
    open_scene_with(options);
    http_script_stop(scene.script);
    scene.script = http_script_start(&(struct http_script_options){
        .play = play, .accept = refuse_some, .data = &scene, .object = scene.object, .object_bytes = OBJECT_BYTES});
    http_script_url(scene.script, "/bucket/o", scene.url);
    for (int i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_on_thread, &n_good);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_good, READERS);
    http_engine_statistics(scene.engine, scene.url, &statistics);
    assert_int_equal(statistics.in_flight, 0);
}

static void close_every_third(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
    if (request->on_connection == 2)
        http_script_close(peer);
}

static void a_server_that_closes_kept_connections_shows_no_error(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    open_scene_with(options);
    http_script_stop(scene.script);
    scene.script = http_script_start(
        &(struct http_script_options){.play = close_every_third, .object = scene.object, .object_bytes = OBJECT_BYTES});
    http_script_url(scene.script, "/bucket/o", scene.url);
    for (int i = 0; i < 10; i++)
        assert_read();
}

/* --- bodies that end early --- */

static void assert_remainder_was_asked_for(uint64_t received)
{
    const struct http_script_request *second = http_script_seen(scene.script, 1);
    assert_non_null(second);
    assert_int_equal(second->first, OFFSET + received);
    assert_int_equal(second->last, OFFSET + BYTES - 1);
}

static void send_part(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, PART);
    http_script_close(peer);
}

static void after_a_truncated_answer_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    scene.plays[0] = send_part;
    open_scene_with(quick());
    assert_read();
    assert_remainder_was_asked_for(PART);
    assert_int_equal(http_script_connections(scene.script), 2);
}

static void send_part_and_reset(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, PART);
    http_script_pause(peer, 30); /* what the client has not read by then it loses, and asks for again */
    http_script_reset(peer);
}

static void after_a_reset_in_the_body_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    scene.plays[0] = send_part_and_reset;
    open_scene_with(quick());
    assert_read();
    assert_true(http_script_seen(scene.script, 1)->first <= OFFSET + PART);
    assert_int_equal(http_script_requests(scene.script), 2);
}

static void head_of_range(struct http_script_peer *peer, const struct http_script_request *request, const char *lines)
{
    char head[512];
    snprintf(head, sizeof head, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %llu-%llu/%d\r\n%s\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, lines);
    http_script_send(peer, head);
}

static void send_part_of_chunks(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Transfer-Encoding: chunked\r\n");
    http_script_send(peer, "ea60\r\n");
    http_script_send_bytes(peer, scene.object + request->first, 0xea60);
    http_script_send(peer, "\r\n");
    http_script_close(peer);
}

static void after_a_truncated_chunked_answer_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    scene.plays[0] = send_part_of_chunks;
    open_scene_with(quick());
    assert_read();
    assert_remainder_was_asked_for(0xea60);
}

static void send_part_without_length(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Connection: close\r\n");
    http_script_send_bytes(peer, scene.object + request->first, PART);
    http_script_close(peer);
}

static void after_a_short_answer_without_length_only_the_rest_is_asked_for(void **state)
{
    (void)state;
    scene.plays[0] = send_part_without_length;
    open_scene_with(quick());
    assert_read();
    assert_remainder_was_asked_for(PART);
}

static void answer_a_piece(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request piece = *request;
    (void)data;
    piece.last = piece.first + PART - 1;
    http_script_send_range(peer, &piece, UINT64_MAX);
}

static void an_honest_piece_is_no_failure(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    scene.plays[0] = scene.plays[1] = answer_a_piece;
    open_scene_with(options);
    assert_read();
    assert_int_equal(http_script_requests(scene.script), 3);
    assert_int_equal(http_script_connections(scene.script), 1);
}

/* --- answers to something else --- */

static void answer_all(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request whole = *request;
    (void)data;
    whole.has_range = false;
    http_script_send_range(peer, &whole, UINT64_MAX);
}

static void answer_other_range(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_script_request other = *request;
    (void)data;
    other.first -= 1, other.last -= 1;
    http_script_send_range(peer, &other, UINT64_MAX);
}

static void answer_without_content_range(struct http_script_peer *peer, const struct http_script_request *request,
                                         void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 206, "", "bytes");
}

static void answer_garbage(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "SSH-2.0-OpenSSH_9.2p1\r\n");
    http_script_close(peer);
}

static void answer_too_much_head(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 100; i++) {
        char line[1024];
        snprintf(line, sizeof line, "x-%d: %0900d\r\n", i, i);
        http_script_send(peer, line);
    }
}

static void answer_too_many_lines(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_send(peer, "HTTP/1.1 206 Partial Content\r\n");
    for (int i = 0; i < 300; i++)
        http_script_send(peer, "x: y\r\n");
}

static void answer_with_wrong_length(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Content-Length: 5\r\n");
    http_script_send(peer, "bytes");
}

static void lies_are_tried_once_more_then_final(void **state)
{
    static const struct {
        play_fn *play;
        const char *reason;
    } cases[] = {{answer_all, "RANGE_IGNORED"},
                 {answer_other_range, "BAD_ANSWER"},
                 {answer_without_content_range, "BAD_ANSWER"},
                 {answer_garbage, "BAD_ANSWER"},
                 {answer_too_much_head, "BAD_ANSWER"},
                 {answer_too_many_lines, "BAD_ANSWER"},
                 {answer_with_wrong_length, "BAD_ANSWER"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_scene(state);
        scene.plays[0] = scene.plays[1] = cases[i].play;
        open_scene_with(quick());
        assert_fails(ERROR_UNAVAILABLE, cases[i].reason);
        assert_int_equal(http_script_requests(scene.script), 2);
        assert_int_equal(http_script_connections(scene.script), 2);
        assert_untouched();
        close_scene(state);
        open_scene(state);
        scene.plays[0] = cases[i].play;
        open_scene_with(quick());
        assert_read();
        close_scene(state);
    }
    open_scene(state);
}

static void send_too_much(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    static const char junk[100000];
    (void)data;
    head_of_range(peer, request, "Connection: close\r\n");
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_send_bytes(peer, junk, sizeof junk);
    http_script_close(peer);
}

static void an_answer_that_goes_on_too_long_is_not_believed_at_all(void **state)
{
    (void)state;
    scene.plays[0] = send_too_much;
    open_scene_with(quick());
    assert_read();
    assert_remainder_was_asked_for(0);
}

static void send_more_after_the_answer(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
    http_script_send(peer, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad");
}

static void a_connection_with_bytes_left_over_is_not_used_again(void **state)
{
    (void)state;
    scene.plays[0] = send_more_after_the_answer;
    open_scene_with(quick());
    assert_read();
    assert_read();
}

static void answer_other_total(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    char head[256];
    (void)data;
    snprintf(head, sizeof head, "HTTP/1.1 206 P\r\nContent-Range: bytes %llu-%llu/%d\r\nContent-Length: %d\r\n\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES + 1, BYTES);
    http_script_send(peer, head);
    http_script_send_bytes(peer, scene.object, BYTES);
}

static void another_size_means_the_object_was_replaced(void **state)
{
    (void)state;
    scene.plays[0] = answer_other_total;
    open_scene_with(quick());
    assert_fails(ERROR_FAILED_PRECONDITION, "OBJECT_CHANGED");
    assert_int_equal(http_script_requests(scene.script), 1);
    assert_untouched();
}

static void answer_compressed(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    head_of_range(peer, request, "Content-Encoding: gzip\r\nContent-Length: 200000\r\n");
    http_script_send_bytes(peer, scene.object, BYTES);
}

static void a_compressed_object_is_refused(void **state)
{
    (void)state;
    scene.plays[0] = answer_compressed;
    open_scene_with(quick());
    assert_fails(ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED");
    assert_int_equal(http_script_requests(scene.script), 1);
    assert_untouched();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define FAULT(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)
        FAULT(statuses_that_pass_are_tried_again),
        FAULT(final_statuses_are_asked_for_once),
        FAULT(an_endless_503_ends_at_the_limit_and_says_what_happened),
        FAULT(a_throttled_request_halves_the_limit),
        FAULT(a_retry_after_beyond_the_patience_is_an_error_now),
        FAULT(nobody_listening_is_tried_and_named),
        FAULT(another_address_of_the_name_is_tried),
        FAULT(an_unknown_host_is_named),
        FAULT(a_server_without_tls_is_a_final_error_that_names_the_ca),
        FAULT(a_kept_connection_that_died_costs_no_try),
        FAULT(a_connection_lost_before_the_answer_is_tried_again),
        FAULT(connections_reset_at_accept_are_tried_again),
        FAULT(a_server_that_closes_kept_connections_shows_no_error),
        FAULT(after_a_truncated_answer_only_the_rest_is_asked_for),
        FAULT(after_a_reset_in_the_body_only_the_rest_is_asked_for),
        FAULT(after_a_truncated_chunked_answer_only_the_rest_is_asked_for),
        FAULT(after_a_short_answer_without_length_only_the_rest_is_asked_for),
        FAULT(an_honest_piece_is_no_failure),
        FAULT(lies_are_tried_once_more_then_final),
        FAULT(an_answer_that_goes_on_too_long_is_not_believed_at_all),
        FAULT(a_connection_with_bytes_left_over_is_not_used_again),
        FAULT(another_size_means_the_object_was_replaced),
        FAULT(a_compressed_object_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
