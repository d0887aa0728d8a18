/* Servers that answer as the input says, and requests to them through the whole engine: connections are opened, used again,
 * closed and lost as in real life, but each ends at a Unix socket that belongs to the host it was opened for.
 *
 * Whatever the servers send, the authority of the connection is the request's: a request, and the credentials in it, arrives
 * at the host that it names, and no byte that one host sent lands in what was asked of another.
 *
 * The input: an operation a byte (which host, what is asked), each followed by answers, a kind a byte, as the requests come.
 * Reaches http_engine.c, http_direct.c, http_exchange.c, http_origin.c, http_slots.c, http_run.c. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/url.h"
#include "source/http/http_engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes of bodies are MARK + the host's number; nothing else that is sent is as large. */
enum {
    HOSTS = 6,
    MARK = 0xF0,
    OBJECT_BYTES = 40000,
    MOST_CALLS = 12,
    SEE_MANY_HOSTS = 0xFF,
    MOST_CONNECTIONS = 64,
    HEAD_BYTES = 8 << 10
};

static const struct host {
    const char *origin, *authority; /* as a URL has them, and as a request must */
    uint32_t address;
    uint16_t port;
} hosts[HOSTS] = {
    {"http://127.0.0.1", "127.0.0.1", 0x7F000001, 80},    {"http://127.0.0.1:81", "127.0.0.1:81", 0x7F000001, 81},
    {"http://127.0.0.2", "127.0.0.2", 0x7F000002, 80},    {"http://127.0.0.2:8080", "127.0.0.2:8080", 0x7F000002, 8080},
    {"http://127.0.0.3:80", "127.0.0.3", 0x7F000003, 80}, {"http://127.0.0.1:8080", "127.0.0.1:8080", 0x7F000001, 8080},
};

struct connection { /* the server's end */
    pthread_t thread;
    unsigned host;
};

static struct scene { /* of one input */
    pthread_mutex_t lock;
    const uint8_t *data;
    size_t size, at;
    int listeners[HOSTS];
    struct sockaddr_un addresses[HOSTS];
    socklen_t address_bytes[HOSTS];
    struct connection connections[MOST_CONNECTIONS];
    unsigned n_connections;
    struct http_engine *engine;
} scene;

static void check(int truth)
{
    if (!truth)
        abort();
}

static unsigned next_byte(void)
{
    pthread_mutex_lock(&scene.lock);
    unsigned byte = scene.at < scene.size ? scene.data[scene.at++] : 0;
    pthread_mutex_unlock(&scene.lock);
    return byte;
}

static int has_more(void)
{
    pthread_mutex_lock(&scene.lock);
    int has = scene.at < scene.size;
    pthread_mutex_unlock(&scene.lock);
    return has;
}

/* --- the servers --- */

struct request {
    char head[HEAD_BYTES];
    unsigned long first, last;
};

/* False: the client hung up, or sent what is no request. */
static int receive(int socket, struct request *request)
{
    size_t n = 0;
    request->head[0] = '\0';
    while (!strstr(request->head, "\r\n\r\n")) {
        ssize_t count = n + 1 < sizeof request->head ? recv(socket, request->head + n, sizeof request->head - 1 - n, 0) : 0;
        if (count <= 0)
            return 0;
        n += (size_t)count;
        request->head[n] = '\0';
    }
    const char *range = strstr(request->head, "\r\nRange: bytes=");
    request->first = 0;
    request->last = OBJECT_BYTES - 1;
    if (range)
        check(sscanf(range, "\r\nRange: bytes=%lu-%lu", &request->first, &request->last) == 2);
    return 1;
}

/* The line of that name says this and nothing else. */
static void check_header(const char *head, const char *name, const char *wanted, int is_required)
{
    const char *line = strstr(head, name);
    check(line || !is_required);
    for (; line; line = strstr(line + 1, name)) {
        size_t length = strlen(wanted);
        check(strncmp(line + strlen(name), wanted, length) == 0 && line[strlen(name) + length] == '\r');
    }
}

static void check_arrived_where_it_belongs(const struct request *request, unsigned host)
{
    char token[32];
    check_header(request->head, "\r\nHost: ", hosts[host].authority, 1);
    snprintf(token, sizeof token, "token-of-%u", host);
    check_header(request->head, "\r\nAuthorization: ", token, 0);
}

static void say(int socket, const char *text)
{
    send(socket, text, strlen(text), MSG_NOSIGNAL);
}

static void send_marks(int socket, unsigned host, size_t count)
{
    char bytes[4096];
    memset(bytes, (int)(MARK + host), sizeof bytes);
    while (count > 0) {
        size_t part = count < sizeof bytes ? count : sizeof bytes;
        if (send(socket, bytes, part, MSG_NOSIGNAL) < 0)
            return;
        count -= part;
    }
}

static void send_head(int socket, const struct request *request, const char *more)
{
    char head[400];
    unsigned long last = request->last < OBJECT_BYTES ? request->last : OBJECT_BYTES - 1;
    snprintf(head, sizeof head, "HTTP/1.1 206 x\r\nContent-Range: bytes %lu-%lu/%d\r\n%s", request->first, last,
             OBJECT_BYTES, more);
    say(socket, head);
}

static size_t wanted(const struct request *request)
{
    return request->first <= request->last ? request->last + 1 - request->first : 0;
}

/* So many bytes of the input, without marks and zeros. */
static void send_raw(int socket, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char byte = (char)(1 + next_byte() % 0x7F);
        send(socket, &byte, 1, MSG_NOSIGNAL);
    }
}

static void redirect(int socket, unsigned how)
{
    char head[200];
    const char *first = hosts[0].authority, *to = hosts[how % HOSTS].authority;
    static const char *const forms[] = {"http://%2$s/o", "//%2$s/o", "http://%1$s@%2$s/o", "http://%2$s\\@%1$s/o"};
    int used = snprintf(head, sizeof head, "HTTP/1.1 302 x\r\nContent-Length: 0\r\nLocation: ");
    used += snprintf(head + used, sizeof head - (size_t)used, forms[how / HOSTS % 4], first, to);
    snprintf(head + used, sizeof head - (size_t)used, "\r\n\r\n");
    say(socket, head);
}

/* False: the connection ends with it. */
static int answer(int socket, unsigned host, const struct request *request)
{
    char text[100];
    size_t count = wanted(request);
    unsigned kind = next_byte();
    snprintf(text, sizeof text, "Content-Length: %zu\r\n\r\n", count);
    switch (kind % 12) {
    case 0: /* well */
    case 1:
        send_head(socket, request, text);
        send_marks(socket, host, count);
        return 1;
    case 2: /* in chunks */
        send_head(socket, request, "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t part; count > 0; count -= part) {
            part = 1 + next_byte() * 64u;
            part = part < count ? part : count;
            snprintf(text, sizeof text, "%zx\r\n", part);
            say(socket, text);
            send_marks(socket, host, part);
            say(socket, "\r\n");
        }
        say(socket, "0\r\n\r\n");
        return 1;
    case 3: /* and more than was asked for, which is there before the next request */
        send_head(socket, request, text);
        send_marks(socket, host, count + 1 + kind);
        return 1;
    case 4: /* and a whole second answer */
        send_head(socket, request, text);
        send_marks(socket, host, count);
        send_head(socket, request, text);
        send_marks(socket, host, count);
        return 1;
    case 5: /* cut off */
        send_head(socket, request, text);
        send_marks(socket, host, count * (kind / 12) / 21);
        return 0;
    case 6: /* to the end of the connection */
        send_head(socket, request, "Connection: close\r\n\r\n");
        send_marks(socket, host, count);
        return 0;
    case 7:
        redirect(socket, kind / 12);
        return 1;
    case 8: /* well, but it will be gone */
        send_head(socket, request, text);
        send_marks(socket, host, count);
        return 0;
    case 9: /* not at all */
        return 0;
    case 10: /* an error with a body */
        say(socket, "HTTP/1.1 503 x\r\nContent-Length: 5\r\n\r\n");
        send_marks(socket, host, 5);
        return 1;
    default:
        send_raw(socket, next_byte());
        return 0;
    }
}

static void *serve(void *data)
{
    const struct connection *connection = data;
    struct pollfd wait = {.fd = scene.listeners[connection->host], .events = POLLIN};
    struct request request;
    if (poll(&wait, 1, 1000) != 1) /* it was never connected */
        return NULL;
    int socket = accept(wait.fd, NULL, NULL);
    while (receive(socket, &request)) {
        check_arrived_where_it_belongs(&request, connection->host);
        if (!answer(socket, connection->host, &request))
            break;
    }
    close(socket);
    return NULL;
}

static unsigned host_at(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)address;
    check(address->ss_family == AF_INET);
    for (unsigned i = 0; i < HOSTS; i++)
        if (ntohl(in->sin_addr.s_addr) == hosts[i].address && ntohs(in->sin_port) == hosts[i].port)
            return i;
    abort();
}

static int open_connection(void *data, struct sockaddr_storage *address, socklen_t *address_bytes)
{
    unsigned host = host_at(address);
    (void)data;
    if (scene.n_connections == MOST_CONNECTIONS)
        return -1;
    struct connection *connection = &scene.connections[scene.n_connections++];
    connection->host = host;
    check(pthread_create(&connection->thread, NULL, serve, connection) == 0);
    memcpy(address, &scene.addresses[host], sizeof scene.addresses[host]);
    *address_bytes = scene.address_bytes[host];
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void listen_as_all(void)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        struct sockaddr_un any = {.sun_family = AF_UNIX};
        scene.listeners[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        scene.address_bytes[i] = sizeof scene.addresses[i];
        check(bind(scene.listeners[i], (struct sockaddr *)&any, sizeof any.sun_family) == 0); /* the kernel finds a name */
        check(listen(scene.listeners[i], MOST_CONNECTIONS) == 0);
        check(getsockname(scene.listeners[i], (struct sockaddr *)&scene.addresses[i], &scene.address_bytes[i]) == 0);
    }
}

/* --- the requests --- */

static void check_marks(const unsigned char *bytes, size_t count, unsigned host)
{
    for (size_t i = 0; i < count; i++)
        check(bytes[i] < MARK || bytes[i] == MARK + host);
}

static int add_token(void *data, struct http_attempt *attempt, struct error *error)
{
    char token[32];
    (void)error;
    snprintf(token, sizeof token, "token-of-%u", *(const unsigned *)data);
    http_attempt_add_header(attempt, "Authorization", token);
    return 0;
}

static void read_range(unsigned host, int is_fresh)
{
    static unsigned char bytes[OBJECT_BYTES];
    char url[64];
    struct error error;
    unsigned long first = next_byte() * 100u, count = 1 + next_byte() * 57u;
    struct iovec iov = {bytes, count};
    const struct http_store store = {.prepare = add_token, .data = &host};
    const struct http_range range = {.store = &store,
                                     .url = url,
                                     .name = "o",
                                     .offset = first,
                                     .iov = &iov,
                                     .n_iov = 1,
                                     .object_bytes = OBJECT_BYTES,
                                     .fresh_connection = is_fresh,
                                     .uid = host};
    snprintf(url, sizeof url, "%s/o", hosts[host].origin);
    memset(bytes, 0, sizeof bytes);
    int failed = http_read_range(scene.engine, &range, &error);
    check_marks(bytes, sizeof bytes, host);
    for (size_t i = 0; !failed && i < count; i++)
        check(bytes[i] != 0);
    for (size_t i = count; i < sizeof bytes; i++)
        check(bytes[i] == 0);
    check(!failed || (error.message[0] && strcmp(error.reason, "WRONG_CONNECTION") != 0));
}

/* What comes after redirects is of the server that it names. */
static void fetch_document(unsigned host)
{
    char url[64];
    struct error error;
    struct http_reply reply = {0};
    const struct http_store store = {.prepare = add_token, .data = &host};
    const struct http_call call = {.store = &store,
                                   .url = url,
                                   .max_reply_bytes = OBJECT_BYTES,
                                   .end = 1000,
                                   .follow_redirects = true,
                                   .accept_any_status = true,
                                   .uid = host};
    snprintf(url, sizeof url, "%s/o", hosts[host].origin);
    if (http_fetch(scene.engine, &call, &reply, &error))
        return;
    unsigned from = HOSTS;
    for (unsigned i = 0; i < HOSTS; i++) {
        if (url_is_same_origin(reply.url, hosts[i].origin))
            from = i;
    }
    check(from < HOSTS);
    check_marks((const unsigned char *)reply.body, reply.body_bytes, from);
    http_reply_clear(&reply);
}

static void see_many_hosts(void)
{
    for (unsigned i = 0; i < HTTP_MAX_ORIGINS; i++) {
        char name[32];
        struct error error;
        snprintf(name, sizeof name, "http://other-%u:80", i);
        struct http_origin *origin = http_origin_ref(&scene.engine->origins, name, &error);
        check(origin != NULL && strcmp(origin->name, name) == 0);
        http_origin_unref(&scene.engine->origins, origin);
    }
}

static void call_once(int *has_seen_many)
{
    unsigned what = next_byte(), host = what % HOSTS;
    if (what == SEE_MANY_HOSTS) {
        if (!*has_seen_many)
            see_many_hosts();
        *has_seen_many = 1;
        return;
    }
    switch (what / HOSTS % 8) {
    case 0:
        fetch_document(host);
        break;
    case 1:
        read_range(host, 1);
        break;
    default:
        read_range(host, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct http_engine_options options = {.max_connections = 4,
                                                .max_tries = 2,
                                                .first_byte_timeout_ms = 200,
                                                .stall_timeout_ms = 200,
                                                .progress_timeout_ms = 500,
                                                .hedge_percent = 101,
                                                .backoff_ms = 1,
                                                .open_socket = open_connection};
    struct error error;
    int has_seen_many = 0;
    scene = (struct scene){.lock = PTHREAD_MUTEX_INITIALIZER, .data = data, .size = size};
    listen_as_all();
    check(http_engine_create(&options, &scene.engine, &error) == 0);
    for (unsigned n = 0; n < MOST_CALLS && has_more(); n++)
        call_once(&has_seen_many);
    http_engine_destroy(scene.engine);
    for (unsigned i = 0; i < scene.n_connections; i++)
        pthread_join(scene.connections[i].thread, NULL);
    for (unsigned i = 0; i < HOSTS; i++)
        close(scene.listeners[i]);
    return 0;
}
