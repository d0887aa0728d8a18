/* A scripted server; see http_script.h. No thread blocks on a socket: each thread polls its socket and a stop pipe. */
#include "tests/support/http_script.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memory.h"

enum { TLS_HANDSHAKE = 0x16 };

struct http_script {
    struct http_script_options options;
    int listener, stop[2];
    uint16_t port;
    pthread_t thread;
    atomic_uint n_requests, n_connections;
    struct http_script_peer *peers;
    _Atomic(struct http_script_request *) seen[HTTP_SCRIPT_SEEN];
};

struct http_script_peer {
    struct http_script *script;
    struct http_script_peer *next;
    pthread_t thread;
    int socket; /* -1 = gone */
    unsigned connection;
    size_t body_left_bytes;
    struct http_script_request request;
};

/* False when the script is being stopped or the time is over. */
static bool wait_for(const struct http_script *script, int socket, short events, int ms)
{
    struct pollfd ready[2] = {{.fd = socket, .events = events}, {.fd = script->stop[0], .events = POLLIN}};
    int n;
    do
        n = poll(ready, 2, ms);
    while (n < 0 && errno == EINTR);
    return n > 0 && !ready[1].revents;
}

void http_script_send_bytes(struct http_script_peer *peer, const void *bytes, size_t count)
{
    const char *from = bytes;
    while (peer->socket >= 0 && count > 0) {
        if (!wait_for(peer->script, peer->socket, POLLOUT, -1))
            return;
        ssize_t sent = send(peer->socket, from, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return;
        from += sent > 0 ? sent : 0;
        count -= sent > 0 ? (size_t)sent : 0;
    }
}

void http_script_send(struct http_script_peer *peer, const char *text)
{
    http_script_send_bytes(peer, text, strlen(text));
}

void http_script_answer(struct http_script_peer *peer, int status, const char *header_lines, const char *body)
{
    char head[2048];
    snprintf(head, sizeof head, "HTTP/1.1 %d X\r\n%sContent-Length: %zu\r\n\r\n", status, header_lines, strlen(body));
    http_script_send(peer, head);
    http_script_send(peer, body);
}

void http_script_send_range(struct http_script_peer *peer, const struct http_script_request *request, uint64_t send_bytes)
{
    const struct http_script_options *options = &peer->script->options;
    char head[512];
    uint64_t first = request->has_range ? request->first : 0, last = request->has_range ? request->last : UINT64_MAX;
    last = last < options->object_bytes ? last : options->object_bytes - 1;
    uint64_t bytes = last - first + 1;
    int used = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\n",
                        request->has_range ? "206 Partial Content" : "200 OK", bytes);
    if (request->has_range)
        used += snprintf(head + used, sizeof head - (size_t)used,
                         "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", first, last, options->object_bytes);
    snprintf(head + used, sizeof head - (size_t)used, "\r\n");
    http_script_send(peer, head);
    http_script_send_bytes(peer, options->object + first, bytes < send_bytes ? bytes : send_bytes);
}

void http_script_close(struct http_script_peer *peer)
{
    if (peer->socket >= 0)
        close(peer->socket);
    peer->socket = -1;
}

static void reset(int socket)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(socket);
}

void http_script_reset(struct http_script_peer *peer)
{
    if (peer->socket >= 0)
        reset(peer->socket);
    peer->socket = -1;
}

bool http_script_wait_gone(struct http_script_peer *peer)
{
    char byte;
    if (peer->socket < 0 || !wait_for(peer->script, peer->socket, POLLIN, -1))
        return false;
    return recv(peer->socket, &byte, 1, MSG_PEEK) <= 0;
}

bool http_script_is_gone(struct http_script_peer *peer)
{
    struct pollfd ready[2] = {{.fd = peer->socket, .events = POLLIN}, {.fd = peer->script->stop[0], .events = POLLIN}};
    return peer->socket < 0 || poll(ready, 2, 0) != 0; /* nothing is sent before an answer is complete */
}

void http_script_rest(unsigned ms)
{
    poll(NULL, 0, (int)ms);
}

void http_script_pause(struct http_script_peer *peer, unsigned ms)
{
    wait_for(peer->script, -1, 0, (int)ms);
}

const char *http_script_header(const struct http_script_request *request, const char *name)
{
    static _Thread_local char value[1024];
    size_t length = strlen(name);
    for (const char *line = strstr(request->head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, length) != 0 || line[2 + length] != ':')
            continue;
        const char *from = line + 3 + length + strspn(line + 3 + length, " ");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "\r"), from);
        return value;
    }
    return NULL;
}

static bool read_some(struct http_script_peer *peer, char *bytes, size_t room, size_t *count)
{
    if (!wait_for(peer->script, peer->socket, POLLIN, -1))
        return false;
    ssize_t got = recv(peer->socket, bytes, room, 0);
    *count = got > 0 ? (size_t)got : 0;
    return got > 0;
}

static void sum_body(struct http_script_peer *peer, const char *bytes, size_t count)
{
    peer->request.body_crc32c = crc32c_update(peer->request.body_crc32c, bytes, count);
    peer->body_left_bytes -= count;
}

/* Until so many bytes of it are left. */
static bool take_body(struct http_script_peer *peer, size_t left_bytes)
{
    char bytes[4096];
    while (peer->body_left_bytes > left_bytes) {
        size_t room = peer->body_left_bytes - left_bytes, count;
        if (!read_some(peer, bytes, room < sizeof bytes ? room : sizeof bytes, &count))
            return false;
        sum_body(peer, bytes, count);
    }
    return true;
}

void http_script_take_body(struct http_script_peer *peer)
{
    take_body(peer, 0);
}

static bool begin_body(struct http_script_peer *peer, const char *bytes, size_t count)
{
    const char *length = http_script_header(&peer->request, "content-length");
    size_t body_bytes = length ? strtoul(length, NULL, 10) : 0, limit = peer->script->options.body_limit;
    peer->body_left_bytes = body_bytes;
    peer->request.body_crc32c = 0;
    sum_body(peer, bytes, count < body_bytes ? count : body_bytes);
    return take_body(peer, limit > 0 && limit < body_bytes ? body_bytes - limit : 0);
}

/* No pipelining: what follows a head is its body. */
static bool read_request(struct http_script_peer *peer)
{
    struct http_script_request *request = &peer->request;
    size_t used = 0, count;
    char *end = NULL;
    while (!end) {
        if (used + 1 >= sizeof request->head ||
            !read_some(peer, request->head + used, sizeof request->head - 1 - used, &count))
            return false;
        used += count;
        request->head[used] = '\0';
        if (request->head[0] == TLS_HANDSHAKE) { /* as web servers do on a port without TLS */
            http_script_send(peer, "HTTP/1.1 400 Bad Request\r\n\r\n");
            return false;
        }
        end = strstr(request->head, "\r\n\r\n");
    }
    size_t head_bytes = (size_t)(end + 4 - request->head);
    char body[sizeof request->head];
    memcpy(body, request->head + head_bytes, used - head_bytes);
    request->head[head_bytes] = '\0';
    sscanf(request->head, "%15s %1023s", request->method, request->target);
    const char *range = http_script_header(request, "range");
    request->has_range = range && sscanf(range, "bytes=%" SCNu64 "-%" SCNu64, &request->first, &request->last) == 2;
    return begin_body(peer, body, used - head_bytes);
}

static void *serve(void *data)
{
    struct http_script_peer *peer = data;
    struct http_script *script = peer->script;
    while (peer->socket >= 0 && read_request(peer)) {
        peer->request.number = atomic_fetch_add(&script->n_requests, 1);
        peer->request.connection = peer->connection;
        if (peer->request.number < HTTP_SCRIPT_SEEN)
            atomic_store(&script->seen[peer->request.number], memory_copy(&peer->request, sizeof peer->request));
        script->options.play(peer, &peer->request, script->options.data);
        peer->request.on_connection++;
    }
    http_script_close(peer);
    return NULL;
}

static void *listen_for_peers(void *data)
{
    struct http_script *script = data;
    while (wait_for(script, script->listener, POLLIN, -1)) {
        int socket = accept(script->listener, NULL, NULL);
        unsigned number = atomic_fetch_add(&script->n_connections, 1);
        if (script->options.accept && !script->options.accept(number, script->options.data)) {
            reset(socket);
            continue;
        }
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct http_script_peer *peer = memory_alloc(sizeof *peer);
        peer->script = script;
        peer->socket = socket;
        peer->connection = number;
        peer->next = script->peers;
        script->peers = peer;
        pthread_create(&peer->thread, NULL, serve, peer);
    }
    return NULL;
}

struct http_script *http_script_start(const struct http_script_options *options)
{
    struct http_script *script = memory_alloc(sizeof *script);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    script->options = *options;
    script->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_up = pipe(script->stop) == 0 && bind(script->listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                 listen(script->listener, 128) == 0 &&
                 getsockname(script->listener, (struct sockaddr *)&address, &length) == 0;
    assert(is_up);
    (void)is_up;
    script->port = ntohs(address.sin_port);
    pthread_create(&script->thread, NULL, listen_for_peers, script);
    return script;
}

void http_script_stop(struct http_script *script)
{
    close(script->stop[1]);
    pthread_join(script->thread, NULL);
    while (script->peers) {
        struct http_script_peer *peer = script->peers;
        script->peers = peer->next;
        pthread_join(peer->thread, NULL);
        free(peer);
    }
    for (unsigned i = 0; i < HTTP_SCRIPT_SEEN; i++)
        free(atomic_load(&script->seen[i]));
    close(script->stop[0]);
    close(script->listener);
    free(script);
}

char *http_script_url(const struct http_script *script, const char *path, char *url)
{
    snprintf(url, HTTP_SCRIPT_URL_CHARS, "http://127.0.0.1:%u%s", script->port, path);
    return url;
}

unsigned http_script_requests(struct http_script *script)
{
    return atomic_load(&script->n_requests);
}

const struct http_script_request *http_script_seen(struct http_script *script, unsigned n)
{
    return n < HTTP_SCRIPT_SEEN ? atomic_load(&script->seen[n]) : NULL;
}

unsigned http_script_connections(struct http_script *script)
{
    return atomic_load(&script->n_connections);
}
