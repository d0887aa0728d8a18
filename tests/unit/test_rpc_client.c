/* What a client makes of the answers of whatever listens on its socket, written frame by frame, and how connections and calls
 * end. */
#include "tests/support/unit.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/base64.h"
#include "client/rpc_client.h"
#include "client/rpc_stream.h"
#include "client/wait.h"
#include "google/rpc/status.pb-c.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* --- a server that answers with the bytes that a test has written, frame by frame ----------------------------------- */

enum { GREETING_BYTES = 24, HEAD_BYTES = 9, MOST_ANSWERS = 4, PATIENCE_MS = 60000, ANSWER_ROOM = 1 << 20, TRIES = 20 };
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, CONTINUATION = 9 };
enum { END_STREAM = 1, END_HEADERS = 4, CANCEL = 8, REFUSED_STREAM = 7 };

struct frame_answer { /* to what comes over a connection */
    uint8_t bytes[ANSWER_ROOM];
    size_t count;
    bool hangs;   /* does not close then */
    bool is_deaf; /* reads nothing but the beginning */
};

static struct frame_server {
    int listener;
    char folder[64], path[sizeof((struct sockaddr_un *)0)->sun_path];
    pthread_t thread;
    size_t n_answers; /* the last one is for all that come then */
    _Atomic unsigned n_connections;
    _Atomic uint32_t reset; /* what the client's last RST_STREAM says, + 1 */
    _Atomic bool is_asked;  /* by a client whose call hangs */
} frame_server;

static struct frame_answer frame_server_answers[MOST_ANSWERS];

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
                frame_server.reset = 1u + head[12];
            if (head[3] == HEADERS)
                frame_server.is_asked = true;
            at += length;
        }
        n = recv(fd, bytes + count, room - count, 0);
        count += n > 0 ? (size_t)n : 0;
    }
}

static void serve(int fd, const struct frame_answer *said)
{
    static uint8_t bytes[1 << 20];
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (said->is_deaf)
        shutdown(fd, SHUT_RD);
    if (n > 0 && said->count)
        (void)!send(fd, said->bytes, said->count, MSG_NOSIGNAL);
    if (said->is_deaf)
        poll(&(struct pollfd){.fd = fd}, 1, PATIENCE_MS); /* until the client hangs up */
    else if (n > 0 && said->hangs)
        watch_client(fd, bytes, sizeof bytes, (size_t)n);
    shutdown(fd, SHUT_WR); /* a close with unread bytes resets the connection */
    while (n > 0 && !said->is_deaf && recv(fd, bytes, sizeof bytes, 0) > 0)
        continue;
    close(fd);
}

static void *run_server(void *unused)
{
    int fd;
    (void)unused;
    while ((fd = accept(frame_server.listener, NULL, NULL)) >= 0) {
        size_t i = frame_server.n_connections++;
        serve(fd, &frame_server_answers[i < frame_server.n_answers ? i : frame_server.n_answers - 1]);
    }
    return NULL;
}

static int frame_server_open(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    memset(&frame_server, 0, sizeof frame_server);
    for (size_t i = 0; i < MOST_ANSWERS; i++)
        frame_server_answers[i].count = 0, frame_server_answers[i].hangs = frame_server_answers[i].is_deaf = false;
    frame_server.n_answers = 1;
    snprintf(frame_server.folder, sizeof frame_server.folder, "/tmp/rpc-client-XXXXXX");
    if (!mkdtemp(frame_server.folder))
        abort();
    snprintf(frame_server.path, sizeof frame_server.path, "%s/s", frame_server.folder);
    memcpy(address.sun_path, frame_server.path, sizeof frame_server.path);
    frame_server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(frame_server.listener, (struct sockaddr *)&address, sizeof address) || listen(frame_server.listener, 16))
        abort();
    return pthread_create(&frame_server.thread, NULL, run_server, NULL);
}

static int frame_server_close(void **state)
{
    (void)state;
    shutdown(frame_server.listener, SHUT_RDWR);
    pthread_join(frame_server.thread, NULL);
    close(frame_server.listener);
    unlink(frame_server.path);
    rmdir(frame_server.folder);
    return 0;
}

static struct frame_answer *frame_server_answer = frame_server_answers;

static void frame_server_say(const void *bytes, size_t count)
{
    assert_true(frame_server_answer->count + count <= ANSWER_ROOM);
    memcpy(frame_server_answer->bytes + frame_server_answer->count, bytes, count);
    frame_server_answer->count += count;
}

static void frame_server_say_frame(uint8_t type, uint8_t flags, uint8_t stream, const void *content, size_t length)
{
    const uint8_t head[HEAD_BYTES] = {
        (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type, flags, 0, 0, 0, stream};
    frame_server_say(head, sizeof head);
    frame_server_say(content, length);
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
static void frame_server_say_headers(uint8_t stream, uint8_t flags, ...)
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
    frame_server_say_frame(HEADERS, flags | END_HEADERS, stream, block, n);
}

static void frame_server_say_settings(void)
{
    frame_server_say_frame(SETTINGS, 0, 0, "", 0);
}

static void frame_server_say_head(uint8_t stream)
{
    frame_server_say_headers(stream, 0, ":status", "200", "content-type", "application/grpc", NULL);
}

static void frame_server_say_status(uint8_t stream, const char *code)
{
    frame_server_say_headers(stream, END_STREAM, "grpc-status", code, NULL);
}

/* DATA: a prefix that says `length`, and so many bytes of content. */
static void frame_server_say_message(uint8_t stream, uint8_t flags, size_t length, const void *content, size_t count)
{
    uint8_t bytes[256] = {0, (uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length};
    memcpy(bytes + 5, content, count);
    frame_server_say_frame(DATA, flags, stream, bytes, 5 + count);
}

static const uint8_t frame_server_seven[2] = {11 << 3, 7}; /* a StatusResponse */

static void frame_server_say_seven(uint8_t stream)
{
    frame_server_say_head(stream);
    frame_server_say_message(stream, 0, sizeof frame_server_seven, frame_server_seven, sizeof frame_server_seven);
    frame_server_say_status(stream, "0");
}

static void frame_server_say_reset(uint8_t stream, uint8_t code)
{
    const uint8_t content[] = {0, 0, 0, code};
    frame_server_say_frame(RST_STREAM, 0, stream, content, sizeof content);
}

static struct error frame_server_error;

static int frame_server_ask_with(struct rpc_client *client, const struct wait *wait)
{
    const Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    struct arena arena;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *response =
        (const void *)rpc_client_get(client, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor,
                                     wait, &arena, &frame_server_error);
    int connections = response ? (int)response->connections : -1;
    arena_fini(&arena);
    return connections;
}

static int frame_server_ask(struct rpc_client *client)
{
    const struct wait wait = wait_begin(30000, NULL);
    return frame_server_ask_with(client, &wait);
}

/* Of a client that asks once. */
static void frame_server_fails_with(enum error_code code, const char *reason, const char *words)
{
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), -1);
    rpc_client_destroy(client);
    assert_string_equal(error_code_name(frame_server_error.code), error_code_name(code));
    assert_string_equal(frame_server_error.reason, reason);
    if (!strstr(frame_server_error.message, words))
        print_error("\"%s\" is not in \"%s\"\n", words, frame_server_error.message);
    assert_non_null(strstr(frame_server_error.message, words));
}

static void frame_server_is_unreachable(const char *words)
{
    frame_server_fails_with(ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE", words);
    assert_non_null(strstr(frame_server_error.message, frame_server.path));
}

/* --- the tests ------------------------------------------------------------------------------------------------------- */

static void is_bad(const char *words)
{
    frame_server_fails_with(ERROR_INTERNAL, "BAD_ANSWER", words);
    assert_int_equal(frame_server.n_connections, 1);
}

TEST_IN(an_answer_is_read, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
}

TEST_IN(other_services_are_no_daemon, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_headers(1, END_STREAM, ":status", "404", "content-type", "text/html", NULL);
    frame_server_is_unreachable("HTTP status 404");
    assert_int_equal(frame_server.n_connections, 1);
}

TEST_IN(other_content_is_no_daemon, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_headers(1, 0, ":status", "200", "content-type", "text/html", NULL);
    frame_server_say_frame(DATA, 0, 1, "<html>", 6);
    frame_server_answer->hangs = true; /* more of it may follow for ever */
    frame_server_is_unreachable("application/grpc");
}

TEST_IN(an_interim_answer_is_waited_through, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_headers(1, 0, ":status", "103", NULL);
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
}

TEST_IN(the_status_of_the_daemon_is_the_error, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", "5",
                             "grpc-message", "no %C3%A9 100%25 %", NULL);
    frame_server_fails_with(ERROR_NOT_FOUND, "NOT_FOUND", "no \xc3\xa9 100% %");
    assert_int_equal(frame_server.n_connections, 1);
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
    frame_server_say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", "14",
                             "grpc-message", "gone", "grpc-status-details-bin", text, NULL);
}

TEST_IN(reason_and_notes_come_in_base64_with_or_without_padding, frame_server_open, frame_server_close)
{
    const char *value;
    frame_server.n_answers = 2;
    for (unsigned i = 0; i < 2; i++) {
        frame_server_answer = &frame_server_answers[i];
        frame_server_say_settings();
        say_details(i == 1);
    }
    frame_server_answer = frame_server_answers;
    for (unsigned i = 0; i < 2; i++) {
        frame_server_fails_with(ERROR_UNAVAILABLE, "TENSOR_GONE", "gone");
        assert_string_equal(error_next_note(&frame_server_error, NULL, &value), "tensor");
        assert_string_equal(value, "w");
        assert_int_equal(frame_server.n_connections, i + 1); /* the daemon answered: it is not asked again */
    }
}

TEST_IN(a_status_that_is_no_number_of_one_is_unknown, frame_server_open, frame_server_close)
{
    static const char *const codes[] = {"17", "-1", "x", "9999999999"};
    frame_server.n_answers = 4;
    for (size_t i = 0; i < 4; i++) {
        frame_server_answer = &frame_server_answers[i];
        frame_server_say_settings();
        frame_server_say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status",
                                 codes[i], NULL);
    }
    frame_server_answer = frame_server_answers;
    for (size_t i = 0; i < 4; i++)
        frame_server_fails_with((enum error_code)2, "UNKNOWN", "");
}

/* What comes behind the settings and the head of the answer, and what the error says. */
static const struct bad_answer {
    const char *name, *message; /* NULL = there is none */
    size_t said_bytes, count;   /* by its prefix; of the message */
    const char *status;         /* NULL = the answer ends without one */
    const char *words;
} bad_answers[] = {
    {"without a status", "\x58\x07", 2, 2, NULL, "without a status"},
    {"trailers without a status", NULL, 0, 0, NULL, "without a status"},
    {"a message that is shorter than said", "\x58\x07", 3, 2, "0", "within a message"},
    {"a message of which more follows", "\x58\x07\x58\x07\x58\x07\x58", 1, 7, "0", ""}, /* the first byte is none */
    {"a message of another type", "\xff\xff\xff", 3, 3, "0", "is not a tensorcast.daemon.v1.StatusResponse"},
    {"without a message", NULL, 0, 0, "0", "holds no message"},
};

TEST(answers_that_are_not_those_of_grpc_are_bad)
{
    for (size_t i = 0; i < sizeof bad_answers / sizeof *bad_answers; i++) {
        const struct bad_answer *bad = &bad_answers[i];
        print_message("%s\n", bad->name);
        frame_server_open(state);
        frame_server_say_settings();
        frame_server_say_head(1);
        if (bad->message)
            frame_server_say_message(1, bad->status ? 0 : END_STREAM, bad->said_bytes, bad->message, bad->count);
        else if (!bad->status)
            frame_server_say_headers(1, END_STREAM, "x", "y", NULL);
        if (bad->status)
            frame_server_say_status(1, bad->status);
        is_bad(bad->words);
        frame_server_close(state);
    }
}

TEST_IN(a_compressed_message_is_bad, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_frame(DATA, 0, 1, "\1\0\0\0\2\x58\x07", 7);
    frame_server_answer->hangs = true;
    is_bad("compressed");
}

TEST_IN(a_message_may_have_one_gibibyte_and_no_more, frame_server_open, frame_server_close)
{
    frame_server.n_answers = 2;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, RPC_STREAM_MAX_MESSAGE_BYTES + 1u, "", 0);
    frame_server_answer->hangs = true;
    is_bad("1073741825 bytes");
    frame_server_answer = &frame_server_answers[1];
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, RPC_STREAM_MAX_MESSAGE_BYTES, "", 0);
    frame_server_say_status(1, "0");
    frame_server_fails_with(ERROR_INTERNAL, "BAD_ANSWER", "within a message");
    frame_server_answer = frame_server_answers;
}

TEST_IN(an_answer_of_two_messages_is_bad, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, 0, "", 0);
    frame_server_say_message(1, 0, 0, "", 0); /* and so on */
    frame_server_answers[0].hangs = true;
    is_bad("holds more than one message");
}

TEST_IN(a_stream_that_is_reset_is_bad, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_reset(1, 2);
    is_bad("INTERNAL_ERROR");
}

/* --- rpc client ends --- */

static _Atomic uint64_t ahead_ns; /* of the client's clock */

/* Instead of libc's, for everything that this is linked from. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += (time_t)(ahead_ns / 1000000000);
    return failed;
}

static void say_goaway(uint8_t last_stream, uint8_t code)
{
    const uint8_t content[] = {0, 0, 0, last_stream, 0, 0, 0, code};
    frame_server_say_frame(GOAWAY, 0, 0, content, sizeof content);
}

TEST_IN(what_is_not_http_2_is_no_daemon_and_not_asked_again, frame_server_open, frame_server_close)
{
    static const char http_1[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    frame_server_say(http_1, sizeof http_1 - 1);
    frame_server_is_unreachable("does not speak HTTP/2");
    assert_int_equal(frame_server.n_connections, 1);
}

TEST_IN(frames_before_settings_are_not_http_2, frame_server_open, frame_server_close)
{
    frame_server_say_frame(PING, 0, 0, "12345678", 8); /* SETTINGS have to be first */
    frame_server_is_unreachable("does not speak HTTP/2");
}

TEST_IN(who_closes_at_once_is_asked_again_for_a_second, frame_server_open, frame_server_close)
{
    frame_server_is_unreachable("it closed the connection");
    assert_int_equal(frame_server.n_connections, TRIES);
}

TEST_IN(who_reads_no_more_is_a_dead_connection, frame_server_open, frame_server_close)
{
    frame_server_say_settings(); /* of which the client tells that it has them */
    frame_server_answer->is_deaf = true;
    frame_server_is_unreachable("it reads no more");
}

TEST_IN(a_frame_that_is_cut_off_is_a_dead_connection, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say("\0\0\x09\1", 4);
    frame_server_is_unreachable("it closed the connection");
    assert_int_equal(frame_server.n_connections, TRIES);
}

TEST_IN(a_call_that_was_refused_is_asked_again, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_reset(1, REFUSED_STREAM);
    say_goaway(1, 0);
    frame_server_answer = &frame_server_answers[1];
    frame_server_say_settings();
    frame_server_say_seven(1);
    frame_server_answer = frame_server_answers;
    frame_server.n_answers = 2;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(frame_server.n_connections, 2);
}

TEST_IN(a_connection_that_the_daemon_ends_is_made_again, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_seven(1);
    say_goaway(1, 0); /* and closes, some time before the next call or while it is made */
    frame_server_answer = &frame_server_answers[1];
    frame_server_say_settings();
    frame_server_say_seven(1);
    frame_server_answer->hangs = true;
    frame_server_answer = frame_server_answers;
    frame_server.n_answers = 2;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(frame_server.n_connections, 2);
}

TEST_IN(a_goaway_in_front_of_the_answer_does_not_cost_it, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    say_goaway(1, 0);
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(frame_server.n_connections, 1);
}

TEST_IN(a_header_block_without_end_ends_the_connection, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    frame_server_say_frame(HEADERS, 0, 1, "", 0);
    for (int i = 0; i < 1000; i++)
        frame_server_say_frame(CONTINUATION, 0, 1, "", 0);
    frame_server_answer->hangs = true;
    frame_server_is_unreachable("does not speak HTTP/2");
}

TEST_IN(floods_of_pings_are_survived, frame_server_open, frame_server_close)
{
    frame_server_say_settings();
    for (int i = 0; i < 20000; i++)
        frame_server_say_frame(PING, 0, 0, "12345678", 8);
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    if (frame_server_ask(client) < 0)
        assert_int_equal(frame_server_error.code, ERROR_UNAVAILABLE);
    rpc_client_destroy(client);
}

static bool is_reset_by(uint32_t code)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 10000 && !frame_server.reset; i++)
        nanosleep(&pause, NULL);
    return frame_server.reset == code + 1;
}

static void wait_until_asked(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    while (!frame_server.is_asked)
        nanosleep(&pause, NULL);
}

static void *let_time_pass(void *unused)
{
    wait_until_asked();
    ahead_ns = 15 * UINT64_C(1000000000); /* less than a daemon may be silent */
    return unused;
}

TEST_IN(a_passed_deadline_cancels_the_call_at_the_daemon, frame_server_open, frame_server_close)
{
    struct tc_cancel *never = tc_cancel_create(); /* for it the clock is looked at now and then */
    const struct wait wait = wait_begin(10000, never);
    pthread_t thread;
    frame_server_say_settings();
    frame_server_answer->hangs = true;
    pthread_create(&thread, NULL, let_time_pass, NULL);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    pthread_join(thread, NULL);
    ahead_ns = 0;
    assert_int_equal(frame_server_error.code, ERROR_DEADLINE_EXCEEDED);
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

TEST_IN(a_raised_flag_cancels_the_call_at_the_daemon, frame_server_open, frame_server_close)
{
    struct tc_cancel *cancel = tc_cancel_create();
    const struct wait wait = wait_begin(0, cancel);
    pthread_t thread;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_answer->hangs = true;
    pthread_create(&thread, NULL, raise_when_asked, cancel);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    assert_int_equal(frame_server_error.code, ERROR_CANCELLED);
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

TEST_IN(what_was_told_is_in_the_error_of_the_deadline, frame_server_open, frame_server_close)
{
    struct wait wait = wait_begin(600000, NULL);
    wait.tell = tell_that_an_hour_passed;
    frame_server_say_settings();
    frame_server_answer->hangs = true;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    ahead_ns = 0;
    assert_int_equal(frame_server_error.code, ERROR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(frame_server_error.message, "waiting for the end"));
    rpc_client_destroy(client);
}

TEST_IN(who_says_nothing_for_20_s_is_no_daemon, frame_server_open, frame_server_close)
{
    struct wait wait = wait_begin(0, NULL);
    wait.tell = tell_that_an_hour_passed;
    frame_server_answer->hangs = true;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    ahead_ns = 0;
    assert_string_equal(frame_server_error.reason, "DAEMON_UNREACHABLE");
    assert_non_null(strstr(frame_server_error.message, "says nothing for 20 s"));
    rpc_client_destroy(client);
}

TEST_IN(the_daemons_end_at_our_deadline_is_told_as_ours, frame_server_open, frame_server_close)
{
    const struct wait wait = wait_begin(600000, NULL); /* its clock was first */
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_status(1, "4");
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    assert_int_equal(frame_server_error.code, ERROR_DEADLINE_EXCEEDED);
    assert_string_equal(frame_server_error.message, "not done within the time limit of 600000 ms");
    rpc_client_destroy(client);
}

/* --- rpc trailers --- */

static struct rpc_trailers trailers;

static int clear(void **state)
{
    memset(&trailers, 0, sizeof trailers);
    return 0;
}

static void hear(const char *name, const char *value)
{
    rpc_trailers_header(&trailers, name, strlen(name), value, strlen(value));
}

/* google.rpc.Status with one ErrorInfo, and as many bytes of message as that its base64 has `length` characters. */
static void hear_details(const char *reason, const char *key, const char *value, size_t length)
{
    static char text[32 << 10], padding[32 << 10];
    static uint8_t details[32 << 10];
    uint8_t packed[256];
    Google__Rpc__MetadataEntry entry = GOOGLE__RPC__METADATA_ENTRY__INIT, *entries[] = {&entry};
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__Detail detail = GOOGLE__RPC__DETAIL__INIT, *list[] = {&detail};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    entry.key = key, entry.value = value;
    info.reason = reason, info.metadata = entries, info.n_metadata = 1;
    detail.type_url = "type.googleapis.com/google.rpc.ErrorInfo";
    detail.value = (ProtobufCBinaryData){google__rpc__error_info__pack(&info, packed), packed};
    status.details = list, status.n_details = 1, status.message = padding;
    memset(padding, 'x', length > 1000 ? length * 3 / 4 - 300 : 0);
    size_t n = base64_encode(details, google__rpc__status__pack(&status, details), text);
    while (n < length) {
        padding[strlen(padding)] = 'x';
        n = base64_encode(details, google__rpc__status__pack(&status, details), text);
    }
    rpc_trailers_header(&trailers, "grpc-status-details-bin", strlen("grpc-status-details-bin"), text, n);
    memset(padding, 0, sizeof padding);
}

TEST_IN(numbers_of_http_and_of_statuses_have_three_digits, clear, NULL)
{
    static const char *const bad[] = {"", "-1", "1000", "20x", "0x1", " 200"};
    hear(":status", "200");
    assert_int_equal(trailers.http_status, 200);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hear(":status", bad[i]);
        assert_int_equal(trailers.http_status, -1);
        hear("grpc-status", bad[i]);
        assert_int_equal(trailers.code, 2);
    }
    hear("grpc-status", "16");
    assert_int_equal(trailers.code, 16);
}

TEST_IN(a_message_is_printable_whatever_it_was, clear, NULL)
{
    char longest[3 * ERROR_MESSAGE_CHARS];
    hear("grpc-message", "a%0Ab%1B%5B31m%00%FFc%E2%82%AC%E2%82");
    assert_string_equal(trailers.told.message, "a\nb?[31m??c\xe2\x82\xac??");
    memset(longest, 'x', sizeof longest);
    rpc_trailers_header(&trailers, "grpc-message", strlen("grpc-message"), longest, sizeof longest);
    assert_int_equal(strlen(trailers.told.message), ERROR_MESSAGE_CHARS - 1);
}

TEST_IN(a_reason_is_a_word_for_programs, clear, NULL)
{
    const char *value;
    hear_details("TENSOR_GONE", "tensor", "w", 0);
    assert_true(trailers.has_info);
    assert_string_equal(trailers.told.reason, "TENSOR_GONE");
    assert_string_equal(error_next_note(&trailers.told, NULL, &value), "tensor");
    assert_string_equal(value, "w");
    clear(state);
    hear_details("no word\x1b[31m", "tensor", "\xff", 0);
    assert_true(trailers.has_info);
    assert_string_equal(trailers.told.reason, "");
    assert_null(error_next_note(&trailers.told, NULL, &value));
}

TEST_IN(details_that_are_none_count_as_not_sent, clear, NULL)
{
    static const char *const bad[] = {"", "!", "abc=d", "A", "/////w=="};
    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
        hear("grpc-status-details-bin", bad[i]);
        assert_false(trailers.has_info);
    }
}

TEST_IN(details_of_16_kib_are_read_and_longer_ones_are_not, clear, NULL)
{
    hear_details("LONG", "k", "v", 16384);
    assert_string_equal(trailers.told.reason, "LONG");
    clear(state);
    hear_details("LONGER", "k", "v", 16385);
    assert_false(trailers.has_info);
}
