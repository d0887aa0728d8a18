/* What a client makes of whatever listens on its socket. The server is this file: it takes the question and answers with the
 * bytes that a test has written, frame by frame. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/clock.h"
#include "client/rpc_client.h"
#include "client/rpc_stream.h"
#include "google/rpc/status.pb-c.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

enum { GREETING_BYTES = 24, HEAD_BYTES = 9, MOST_ANSWERS = 4, PATIENCE_MS = 20000, ANSWER_ROOM = 1 << 20, TRIES = 20 };
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, CONTINUATION = 9 };
enum { END_STREAM = 1, END_HEADERS = 4, CANCEL = 8, REFUSED_STREAM = 7 };

static _Atomic uint64_t ahead_ns; /* of the client's clock */

/* Instead of libc's, for everything that this is linked from. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += (time_t)(ahead_ns / 1000000000);
    return failed;
}

/* --- the server ------------------------------------------------------------------------------------------------------ */

static struct answer { /* to what comes over a connection */
    uint8_t bytes[ANSWER_ROOM];
    size_t count;
    bool hangs;   /* does not close then */
    bool is_deaf; /* reads nothing but the beginning */
} answers[MOST_ANSWERS];

static struct {
    int listener;
    char folder[64], path[sizeof((struct sockaddr_un *)0)->sun_path];
    pthread_t thread;
    size_t n_answers; /* the last one is for all that come then */
    _Atomic unsigned n_connections;
    _Atomic uint32_t reset; /* what the client's last RST_STREAM says, + 1 */
    _Atomic bool is_asked;  /* by a client whose answer hangs */
} server;

/* Until the client closes. */
static void watch_client(int fd, uint8_t *bytes, size_t room, size_t count)
{
    ssize_t n = 1;
    size_t at = GREETING_BYTES;
    while (n > 0) {
        for (size_t left = count - at; left >= HEAD_BYTES; left = count - at) {
            const uint8_t *head = bytes + at;
            size_t length = HEAD_BYTES + ((size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2]);
            if (left < length)
                break;
            if (head[3] == RST_STREAM)
                server.reset = 1u + head[12];
            if (head[3] == HEADERS)
                server.is_asked = true;
            at += length;
        }
        n = recv(fd, bytes + count, room - count, 0);
        count += n > 0 ? (size_t)n : 0;
    }
}

static void serve(int fd, const struct answer *answer)
{
    static uint8_t bytes[1 << 20];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (answer->is_deaf)
        shutdown(fd, SHUT_RD);
    if (n > 0 && answer->count)
        (void)!send(fd, answer->bytes, answer->count, MSG_NOSIGNAL);
    if (answer->is_deaf)
        poll(&(struct pollfd){.fd = fd}, 1, PATIENCE_MS); /* until the client hangs up */
    else if (n > 0 && answer->hangs)
        watch_client(fd, bytes, sizeof bytes, (size_t)n);
    shutdown(fd, SHUT_WR); /* who closes with bytes that he has not read resets the connection */
    while (n > 0 && !answer->is_deaf && recv(fd, bytes, sizeof bytes, 0) > 0)
        continue;
    close(fd);
}

static void *run_server(void *unused)
{
    int fd;
    (void)unused;
    while ((fd = accept(server.listener, NULL, NULL)) >= 0) {
        size_t i = server.n_connections++;
        serve(fd, &answers[i < server.n_answers ? i : server.n_answers - 1]);
    }
    return NULL;
}

static int start(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    memset(&server, 0, sizeof server);
    for (size_t i = 0; i < MOST_ANSWERS; i++)
        answers[i].count = 0, answers[i].hangs = answers[i].is_deaf = false;
    server.n_answers = 1;
    snprintf(server.folder, sizeof server.folder, "/tmp/rpc-client-XXXXXX");
    if (!mkdtemp(server.folder))
        abort();
    snprintf(server.path, sizeof server.path, "%s/s", server.folder);
    memcpy(address.sun_path, server.path, sizeof server.path);
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server.listener, (struct sockaddr *)&address, sizeof address) || listen(server.listener, 16))
        abort();
    return pthread_create(&server.thread, NULL, run_server, NULL);
}

static int stop(void **state)
{
    (void)state;
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    unlink(server.path);
    rmdir(server.folder);
    return 0;
}

/* --- what it says ---------------------------------------------------------------------------------------------------- */

static struct answer *answer = answers;

static void say(const void *bytes, size_t count)
{
    assert_true(answer->count + count <= ANSWER_ROOM);
    memcpy(answer->bytes + answer->count, bytes, count);
    answer->count += count;
}

static void say_frame(uint8_t type, uint8_t flags, uint8_t stream, const void *content, size_t length)
{
    const uint8_t head[HEAD_BYTES] = {
        (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type, flags, 0, 0, 0, stream};
    say(head, sizeof head);
    say(content, length);
}

static size_t put_text(uint8_t *to, const char *text)
{
    size_t length = strlen(text), n = 0, rest = length - 127;
    if (length < 127) {
        to[n++] = (uint8_t)length;
    } else {
        for (to[n++] = 127; rest >= 128; rest >>= 7)
            to[n++] = (uint8_t)(rest | 128);
        to[n++] = (uint8_t)rest;
    }
    memcpy(to + n, text, length);
    return n + length;
}

/* Names and values, NULL behind them, as literals that no table remembers. */
static void say_headers(uint8_t stream, uint8_t flags, ...)
{
    static uint8_t block[16 << 10];
    size_t n = 0;
    va_list fields;
    va_start(fields, flags);
    for (const char *name; (name = va_arg(fields, const char *)) != NULL;) {
        block[n++] = 0;
        n += put_text(block + n, name);
        n += put_text(block + n, va_arg(fields, const char *));
    }
    va_end(fields);
    say_frame(HEADERS, flags | END_HEADERS, stream, block, n);
}

static void say_settings(void)
{
    say_frame(SETTINGS, 0, 0, "", 0);
}

static void say_head(uint8_t stream)
{
    say_headers(stream, 0, ":status", "200", "content-type", "application/grpc", NULL);
}

static void say_status(uint8_t stream, const char *code)
{
    say_headers(stream, END_STREAM, "grpc-status", code, NULL);
}

/* DATA: a prefix that says `length`, and so many bytes of content. */
static void say_message(uint8_t stream, uint8_t flags, size_t length, const void *content, size_t count)
{
    uint8_t bytes[256] = {0, (uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length};
    memcpy(bytes + 5, content, count);
    say_frame(DATA, flags, stream, bytes, 5 + count);
}

static const uint8_t seven_connections[] = {11 << 3, 7}; /* a StatusResponse */

static void say_seven(uint8_t stream)
{
    say_head(stream);
    say_message(stream, 0, sizeof seven_connections, seven_connections, sizeof seven_connections);
    say_status(stream, "0");
}

static void say_goaway(uint8_t last_stream, uint8_t code)
{
    const uint8_t content[] = {0, 0, 0, last_stream, 0, 0, 0, code};
    say_frame(GOAWAY, 0, 0, content, sizeof content);
}

static void say_reset(uint8_t stream, uint8_t code)
{
    const uint8_t content[] = {0, 0, 0, code};
    say_frame(RST_STREAM, 0, stream, content, sizeof content);
}

/* --- the client ------------------------------------------------------------------------------------------------------ */

static struct error error;

static int ask_with(struct rpc_client *client, const struct wait *wait)
{
    const Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    struct arena arena;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *response = (const void *)rpc_client_get(
        client, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor, wait, &arena, &error);
    int connections = response ? (int)response->connections : -1;
    arena_fini(&arena);
    return connections;
}

static int ask(struct rpc_client *client)
{
    const struct wait wait = wait_begin(30000, NULL);
    return ask_with(client, &wait);
}

/* Of a client that asks once. */
static void fails_with(enum error_code code, const char *reason, const char *words)
{
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask(client), -1);
    rpc_client_destroy(client);
    assert_string_equal(error_code_name(error.code), error_code_name(code));
    assert_string_equal(error.reason, reason);
    if (!strstr(error.message, words))
        print_error("\"%s\" is not in \"%s\"\n", words, error.message);
    assert_non_null(strstr(error.message, words));
}

static void is_unreachable(const char *words)
{
    fails_with(ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE", words);
    assert_non_null(strstr(error.message, server.path));
}

static void is_bad(const char *words)
{
    fails_with(ERROR_INTERNAL, "BAD_ANSWER", words);
    assert_int_equal(server.n_connections, 1);
}

/* --- tests ----------------------------------------------------------------------------------------------------------- */

static void an_answer_is_read(void **state)
{
    (void)state;
    say_settings();
    say_seven(1);
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask(client), 7);
    rpc_client_destroy(client);
}

static void what_is_not_http_2_is_no_daemon_and_not_asked_again(void **state)
{
    static const char http_1[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    (void)state;
    say(http_1, sizeof http_1 - 1);
    is_unreachable("does not speak HTTP/2");
    assert_int_equal(server.n_connections, 1);
}

static void frames_before_settings_are_not_http_2(void **state)
{
    (void)state;
    say_frame(PING, 0, 0, "12345678", 8); /* SETTINGS have to be first */
    is_unreachable("does not speak HTTP/2");
}

static void who_closes_at_once_is_asked_again_for_a_second(void **state)
{
    (void)state;
    is_unreachable("it closed the connection");
    assert_int_equal(server.n_connections, TRIES);
}

static void who_reads_no_more_is_a_dead_connection(void **state)
{
    (void)state;
    say_settings(); /* of which the client tells that it has them */
    answer->is_deaf = true;
    is_unreachable("it reads no more");
}

static void a_frame_that_is_cut_off_is_a_dead_connection(void **state)
{
    (void)state;
    say_settings();
    say("\0\0\x09\1", 4);
    is_unreachable("it closed the connection");
    assert_int_equal(server.n_connections, TRIES);
}

static void other_services_are_no_daemon(void **state)
{
    (void)state;
    say_settings();
    say_headers(1, END_STREAM, ":status", "404", "content-type", "text/html", NULL);
    is_unreachable("HTTP status 404");
    assert_int_equal(server.n_connections, 1);
}

static void other_content_is_no_daemon(void **state)
{
    (void)state;
    say_settings();
    say_headers(1, 0, ":status", "200", "content-type", "text/html", NULL);
    say_frame(DATA, 0, 1, "<html>", 6);
    answer->hangs = true; /* more of it may follow for ever */
    is_unreachable("application/grpc");
}

static void an_interim_answer_is_waited_through(void **state)
{
    (void)state;
    say_settings();
    say_headers(1, 0, ":status", "103", NULL);
    say_seven(1);
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask(client), 7);
    rpc_client_destroy(client);
}

static void the_status_of_the_daemon_is_the_error(void **state)
{
    (void)state;
    say_settings();
    say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message",
                "no %C3%A9 100%25 %", NULL);
    fails_with(ERROR_NOT_FOUND, "NOT_FOUND", "no \xc3\xa9 100% %");
    assert_int_equal(server.n_connections, 1);
}

/* As the daemon packs it. */
static void say_details(bool padded)
{
    uint8_t packed[256], details[512];
    char text[1024];
    Google__Rpc__MetadataEntry entry = GOOGLE__RPC__METADATA_ENTRY__INIT, *entries[] = {&entry};
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__Detail detail = GOOGLE__RPC__DETAIL__INIT, *list[] = {&detail};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    entry.key = "tensor", entry.value = "w";
    info.reason = "TENSOR_GONE", info.metadata = entries, info.n_metadata = 1;
    detail.type_url = "type.googleapis.com/google.rpc.ErrorInfo";
    detail.value = (ProtobufCBinaryData){google__rpc__error_info__pack(&info, packed), packed};
    status.message = "12"; /* so that there is something to pad */
    status.details = list, status.n_details = 1;
    size_t n = base64_encode(details, google__rpc__status__pack(&status, details), text);
    assert_int_not_equal(n % 4, 0);
    while (padded && n % 4)
        text[n++] = '=';
    text[n] = '\0';
    say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", "14", "grpc-message",
                "gone", "grpc-status-details-bin", text, NULL);
}

static void reason_and_notes_come_in_base64_with_or_without_padding(void **state)
{
    const char *value;
    (void)state;
    server.n_answers = 2;
    for (unsigned i = 0; i < 2; i++) {
        answer = &answers[i];
        say_settings();
        say_details(i == 1);
    }
    answer = answers;
    for (unsigned i = 0; i < 2; i++) {
        fails_with(ERROR_UNAVAILABLE, "TENSOR_GONE", "gone");
        assert_string_equal(error_next_note(&error, NULL, &value), "tensor");
        assert_string_equal(value, "w");
        assert_int_equal(server.n_connections, i + 1); /* the daemon answered: it is not asked again */
    }
}

static void a_status_that_is_no_number_of_one_is_unknown(void **state)
{
    static const char *const codes[] = {"17", "-1", "x", "9999999999"};
    (void)state;
    server.n_answers = 4;
    for (size_t i = 0; i < 4; i++) {
        answer = &answers[i];
        say_settings();
        say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", codes[i], NULL);
    }
    answer = answers;
    for (size_t i = 0; i < 4; i++)
        fails_with((enum error_code)2, "UNKNOWN", "");
}

static void an_answer_without_a_status_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_message(1, END_STREAM, sizeof seven_connections, seven_connections, sizeof seven_connections);
    is_bad("without a status");
}

static void trailers_without_a_status_are_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_headers(1, END_STREAM, "x", "y", NULL);
    is_bad("without a status");
}

static void a_message_that_is_shorter_than_said_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_message(1, 0, 3, seven_connections, sizeof seven_connections);
    say_status(1, "0");
    is_bad("within a message");
}

static void a_message_that_is_longer_than_said_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_message(1, 0, 1, "\x58\x07\x58\x07\x58\x07\x58", 7);
    say_status(1, "0");
    fails_with(ERROR_INTERNAL, "BAD_ANSWER", ""); /* the first byte alone is no message */
}

static void a_compressed_message_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_frame(DATA, 0, 1, "\1\0\0\0\2\x58\x07", 7);
    answer->hangs = true;
    is_bad("compressed");
}

static void a_message_may_have_one_gibibyte_and_no_more(void **state)
{
    (void)state;
    server.n_answers = 2;
    say_settings();
    say_head(1);
    say_message(1, 0, RPC_STREAM_MAX_MESSAGE_BYTES + 1u, "", 0);
    answer->hangs = true;
    is_bad("1073741825 bytes");
    answer = &answers[1];
    say_settings();
    say_head(1);
    say_message(1, 0, RPC_STREAM_MAX_MESSAGE_BYTES, "", 0);
    say_status(1, "0");
    fails_with(ERROR_INTERNAL, "BAD_ANSWER", "within a message");
    answer = answers;
}

static void a_message_of_another_type_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_message(1, 0, 3, "\xff\xff\xff", 3);
    say_status(1, "0");
    is_bad("is not a tensorcast.daemon.v1.StatusResponse");
}

static void an_answer_without_a_message_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_status(1, "0");
    is_bad("holds no message");
}

static void an_answer_of_two_messages_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_head(1);
    say_message(1, 0, 0, "", 0);
    say_message(1, 0, 0, "", 0); /* and so on */
    answers[0].hangs = true;
    is_bad("holds more than one message");
}

static void a_stream_that_is_reset_is_bad(void **state)
{
    (void)state;
    say_settings();
    say_reset(1, 2);
    is_bad("INTERNAL_ERROR");
}

static void a_call_that_was_refused_is_asked_again(void **state)
{
    (void)state;
    say_settings();
    say_reset(1, REFUSED_STREAM);
    say_goaway(1, 0);
    answer = &answers[1];
    say_settings();
    say_seven(1);
    answer = answers;
    server.n_answers = 2;
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(server.n_connections, 2);
}

static void a_connection_that_the_daemon_ends_is_made_again(void **state)
{
    (void)state;
    say_settings();
    say_seven(1);
    say_goaway(1, 0); /* and closes, some time before the next call or while it is made */
    answer = &answers[1];
    say_settings();
    say_seven(1);
    answer->hangs = true;
    answer = answers;
    server.n_answers = 2;
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask(client), 7);
    assert_int_equal(ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(server.n_connections, 2);
}

static void a_goaway_in_front_of_the_answer_does_not_cost_it(void **state)
{
    (void)state;
    say_settings();
    say_goaway(1, 0);
    say_seven(1);
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(server.n_connections, 1);
}

static void a_header_block_without_end_ends_the_connection(void **state)
{
    (void)state;
    say_settings();
    say_frame(HEADERS, 0, 1, "", 0);
    for (int i = 0; i < 1000; i++)
        say_frame(CONTINUATION, 0, 1, "", 0);
    answer->hangs = true;
    is_unreachable("does not speak HTTP/2");
}

static void floods_of_pings_are_survived(void **state)
{
    (void)state;
    say_settings();
    for (int i = 0; i < 20000; i++)
        say_frame(PING, 0, 0, "12345678", 8);
    say_seven(1);
    struct rpc_client *client = rpc_client_create(server.path);
    if (ask(client) < 0)
        assert_int_equal(error.code, ERROR_UNAVAILABLE);
    rpc_client_destroy(client);
}

static bool is_reset_by(uint32_t code)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 10000 && !server.reset; i++)
        nanosleep(&pause, NULL);
    return server.reset == code + 1;
}

static void wait_until_asked(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    while (!server.is_asked)
        nanosleep(&pause, NULL);
}

static void *let_time_pass(void *unused)
{
    wait_until_asked();
    ahead_ns = 15 * UINT64_C(1000000000); /* less than a daemon may be silent */
    return unused;
}

static void a_passed_deadline_cancels_the_call_at_the_daemon(void **state)
{
    struct tc_cancel *never = tc_cancel_create(); /* for it the clock is looked at now and then */
    const struct wait wait = wait_begin(10000, never);
    pthread_t thread;
    (void)state;
    say_settings();
    answer->hangs = true;
    pthread_create(&thread, NULL, let_time_pass, NULL);
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask_with(client, &wait), -1);
    pthread_join(thread, NULL);
    ahead_ns = 0;
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_true(is_reset_by(CANCEL));
    rpc_client_destroy(client);
    tc_cancel_destroy(never);
}

static void *raise_when_asked(void *cancel)
{
    wait_until_asked();
    tc_cancel_raise(cancel);
    return NULL;
}

static void a_raised_flag_cancels_the_call_at_the_daemon(void **state)
{
    struct tc_cancel *cancel = tc_cancel_create();
    const struct wait wait = wait_begin(0, cancel);
    pthread_t thread;
    (void)state;
    say_settings();
    say_head(1);
    answer->hangs = true;
    pthread_create(&thread, NULL, raise_when_asked, cancel);
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask_with(client, &wait), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_true(is_reset_by(CANCEL));
    rpc_client_destroy(client);
    pthread_join(thread, NULL);
    tc_cancel_destroy(cancel);
}

static int tell_that_an_hour_passed(const struct wait *wait, const char *method, char told[WAIT_TOLD_CHARS])
{
    (void)wait, (void)method;
    snprintf(told, WAIT_TOLD_CHARS, "waiting for the end");
    ahead_ns = 3600 * UINT64_C(1000000000);
    return 0;
}

static void what_was_told_is_in_the_error_of_the_deadline(void **state)
{
    struct wait wait = wait_begin(600000, NULL);
    (void)state;
    wait.tell = tell_that_an_hour_passed;
    say_settings();
    answer->hangs = true;
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask_with(client, &wait), -1);
    ahead_ns = 0;
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(error.message, "waiting for the end"));
    rpc_client_destroy(client);
}

static void who_says_nothing_for_20_s_is_no_daemon(void **state)
{
    struct wait wait = wait_begin(0, NULL);
    (void)state;
    wait.tell = tell_that_an_hour_passed;
    answer->hangs = true;
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask_with(client, &wait), -1);
    ahead_ns = 0;
    assert_string_equal(error.reason, "DAEMON_UNREACHABLE");
    assert_non_null(strstr(error.message, "says nothing for 20 s"));
    rpc_client_destroy(client);
}

#define SERVED(test) cmocka_unit_test_setup_teardown(test, start, stop)

static void the_daemons_end_at_our_deadline_is_told_as_ours(void **state)
{
    const struct wait wait = wait_begin(600000, NULL); /* its clock was first */
    (void)state;
    say_settings();
    say_head(1);
    say_status(1, "4");
    struct rpc_client *client = rpc_client_create(server.path);
    assert_int_equal(ask_with(client, &wait), -1);
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_string_equal(error.message, "not done within the time limit of 600000 ms");
    rpc_client_destroy(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(an_answer_is_read),
        SERVED(what_is_not_http_2_is_no_daemon_and_not_asked_again),
        SERVED(frames_before_settings_are_not_http_2),
        SERVED(who_closes_at_once_is_asked_again_for_a_second),
        SERVED(who_reads_no_more_is_a_dead_connection),
        SERVED(a_frame_that_is_cut_off_is_a_dead_connection),
        SERVED(who_says_nothing_for_20_s_is_no_daemon),
        SERVED(other_services_are_no_daemon),
        SERVED(other_content_is_no_daemon),
        SERVED(an_interim_answer_is_waited_through),
        SERVED(the_status_of_the_daemon_is_the_error),
        SERVED(reason_and_notes_come_in_base64_with_or_without_padding),
        SERVED(a_status_that_is_no_number_of_one_is_unknown),
        SERVED(an_answer_without_a_status_is_bad),
        SERVED(trailers_without_a_status_are_bad),
        SERVED(a_message_that_is_shorter_than_said_is_bad),
        SERVED(a_message_that_is_longer_than_said_is_bad),
        SERVED(a_compressed_message_is_bad),
        SERVED(a_message_may_have_one_gibibyte_and_no_more),
        SERVED(a_message_of_another_type_is_bad),
        SERVED(an_answer_without_a_message_is_bad),
        SERVED(an_answer_of_two_messages_is_bad),
        SERVED(a_stream_that_is_reset_is_bad),
        SERVED(a_call_that_was_refused_is_asked_again),
        SERVED(a_connection_that_the_daemon_ends_is_made_again),
        SERVED(a_goaway_in_front_of_the_answer_does_not_cost_it),
        SERVED(a_header_block_without_end_ends_the_connection),
        SERVED(floods_of_pings_are_survived),
        SERVED(a_passed_deadline_cancels_the_call_at_the_daemon),
        SERVED(a_raised_flag_cancels_the_call_at_the_daemon),
        SERVED(what_was_told_is_in_the_error_of_the_deadline),
        SERVED(the_daemons_end_at_our_deadline_is_told_as_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
