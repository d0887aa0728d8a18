/* See frame_server.h. */
#include "tests/support/frame_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/rpc_client.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

struct frame_answer frame_server_answers[MOST_ANSWERS];

struct frame_server frame_server;

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
    shutdown(fd, SHUT_WR); /* who closes with bytes that he has not read resets the connection */
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

int frame_server_open(void **state)
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

int frame_server_close(void **state)
{
    (void)state;
    shutdown(frame_server.listener, SHUT_RDWR);
    pthread_join(frame_server.thread, NULL);
    close(frame_server.listener);
    unlink(frame_server.path);
    rmdir(frame_server.folder);
    return 0;
}

struct frame_answer *frame_server_answer = frame_server_answers;

void frame_server_say(const void *bytes, size_t count)
{
    assert_true(frame_server_answer->count + count <= ANSWER_ROOM);
    memcpy(frame_server_answer->bytes + frame_server_answer->count, bytes, count);
    frame_server_answer->count += count;
}

void frame_server_say_frame(uint8_t type, uint8_t flags, uint8_t stream, const void *content, size_t length)
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

void frame_server_say_headers(uint8_t stream, uint8_t flags, ...)
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

void frame_server_say_settings(void)
{
    frame_server_say_frame(SETTINGS, 0, 0, "", 0);
}

void frame_server_say_head(uint8_t stream)
{
    frame_server_say_headers(stream, 0, ":status", "200", "content-type", "application/grpc", NULL);
}

void frame_server_say_status(uint8_t stream, const char *code)
{
    frame_server_say_headers(stream, END_STREAM, "grpc-status", code, NULL);
}

void frame_server_say_message(uint8_t stream, uint8_t flags, size_t length, const void *content, size_t count)
{
    uint8_t bytes[256] = {0, (uint8_t)(length >> 24), (uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length};
    memcpy(bytes + 5, content, count);
    frame_server_say_frame(DATA, flags, stream, bytes, 5 + count);
}

const uint8_t frame_server_seven[2] = {11 << 3, 7}; /* a StatusResponse */

void frame_server_say_seven(uint8_t stream)
{
    frame_server_say_head(stream);
    frame_server_say_message(stream, 0, sizeof frame_server_seven, frame_server_seven, sizeof frame_server_seven);
    frame_server_say_status(stream, "0");
}

void frame_server_say_reset(uint8_t stream, uint8_t code)
{
    const uint8_t content[] = {0, 0, 0, code};
    frame_server_say_frame(RST_STREAM, 0, stream, content, sizeof content);
}

struct error frame_server_error;

int frame_server_ask_with(struct rpc_client *client, const struct wait *wait)
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

int frame_server_ask(struct rpc_client *client)
{
    const struct wait wait = wait_begin(30000, NULL);
    return frame_server_ask_with(client, &wait);
}

void frame_server_fails_with(enum error_code code, const char *reason, const char *words)
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

void frame_server_is_unreachable(const char *words)
{
    frame_server_fails_with(ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE", words);
    assert_non_null(strstr(frame_server_error.message, frame_server.path));
}
