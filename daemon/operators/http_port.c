#include "operators/http_port.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "operators/http_request.h"

enum {
    HEAD_BYTES = 16 << 10, /* of a request's head and an answer's */
    BLOCK_BYTES = 16 << 10,
    IDLE_S = 20, /* a stream whose reader takes nothing for so long ends */
};

struct connection {
    LIST_ENTRY(connection) next; /* the newest first */
    struct http_port *port;
    int fd;
    uint64_t since_ns;         /* when it came, or its whole head had come */
    bool has_asked, is_stream; /* its head is there; it may go on for ever */
    bool is_cut;
};

struct http_question {
    struct MHD_Connection *peer;
    struct connection *connection;
    bool is_begun;   /* its head was seen */
    bool is_asked;   /* and handed to the options' `asked` */
    unsigned status; /* of the answer; 0 = it has none. Under the lock until the connection goes on, like the two below */
    const char *type;
    struct http_text *text;
};

struct stream { /* a reader of events */
    LIST_ENTRY(stream) next;
    struct http_port *port;
    struct MHD_Connection *peer;
    struct http_text *text; /* that is being sent; NULL = it waits for a newer one */
    size_t sent;
    uint64_t number; /* of that text */
    bool is_waiting; /* suspended; under the lock */
};

struct http_port {
    struct http_port_options options;
    struct tcp_address bound;
    int listen_fd;
    struct MHD_Daemon *server;
    pthread_mutex_t lock; /* guards everything below */
    LIST_HEAD(, connection) connections;
    size_t n_unasked;
    LIST_HEAD(, stream) streams;
    size_t n_streams;
    struct http_text *published;
    uint64_t n_published;
    bool is_closing;
};

/* --- connections ----------------------------------------------------------------------------------------------------- */

/* libmicrohttpd sees the end, and closes it. Under the lock. */
static void cut_off(struct connection *connection)
{
    if (!connection->is_cut && connection->fd >= 0)
        shutdown(connection->fd, SHUT_RDWR);
    connection->is_cut = true;
}

static void make_room(struct http_port *port)
{
    struct connection *connection, *oldest = NULL;
    size_t n = 0;
    LIST_FOREACH (connection, &port->connections, next)
        if (!connection->has_asked && !connection->is_cut) {
            oldest = connection;
            n++;
        }
    if (n > HTTP_UNASKED_MAX)
        cut_off(oldest);
}

static void on_connection(void *data, struct MHD_Connection *peer, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http_port *port = data;
    struct connection *connection = *context;
    pthread_mutex_lock(&port->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = connection = memory_alloc(sizeof *connection);
        *connection = (struct connection){.port = port, .fd = fd ? fd->connect_fd : -1, .since_ns = clock_now_ns()};
        LIST_INSERT_HEAD(&port->connections, connection, next);
        if (++port->n_unasked > HTTP_UNASKED_MAX)
            make_room(port);
    } else {
        port->n_unasked -= !connection->has_asked;
        LIST_REMOVE(connection, next);
        free(connection);
    }
    pthread_mutex_unlock(&port->lock);
}

void http_port_sweep(struct http_port *port)
{
    struct connection *connection;
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&port->lock);
    LIST_FOREACH (connection, &port->connections, next) {
        uint64_t may_take_ms = connection->has_asked ? HTTP_ANSWER_MS : HTTP_REQUEST_MS;
        if (!connection->is_stream && now_ns - connection->since_ns > may_take_ms * NS_PER_MS)
            cut_off(connection);
    }
    pthread_mutex_unlock(&port->lock);
}

/* --- streams --------------------------------------------------------------------------------------------------------- */

/* The newest text, unless it was sent. Under the lock. */
static bool take_published(struct stream *stream)
{
    struct http_port *port = stream->port;
    if (!port->published || stream->number == port->n_published)
        return false;
    stream->text = http_text_ref(port->published);
    stream->number = port->n_published;
    stream->sent = 0;
    return true;
}

static ssize_t read_stream(void *data, uint64_t position, char *bytes, size_t room)
{
    struct stream *stream = data;
    struct http_port *port = stream->port;
    (void)position;
    if (stream->text && stream->sent == stream->text->length) {
        http_text_unref(stream->text);
        stream->text = NULL;
    }
    pthread_mutex_lock(&port->lock);
    bool is_closing = port->is_closing, has_text = stream->text || take_published(stream);
    if (!has_text && !is_closing) {
        stream->is_waiting = true;
        MHD_suspend_connection(stream->peer);
    }
    pthread_mutex_unlock(&port->lock);
    if (is_closing)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!has_text)
        return 0;
    size_t left = stream->text->length - stream->sent, n = left < room ? left : room;
    memcpy(bytes, stream->text->bytes + stream->sent, n);
    stream->sent += n;
    return (ssize_t)n;
}

static void end_stream(void *data)
{
    struct stream *stream = data;
    pthread_mutex_lock(&stream->port->lock);
    LIST_REMOVE(stream, next);
    struct http_text *last = NULL;
    if (--stream->port->n_streams == 0) { /* the next one begins with something newer */
        last = stream->port->published;
        stream->port->published = NULL;
    }
    pthread_mutex_unlock(&stream->port->lock);
    http_text_unref(last);
    http_text_unref(stream->text);
    free(stream);
}

/* Under the lock. */
static void wake_streams(struct http_port *port)
{
    struct stream *stream;
    LIST_FOREACH (stream, &port->streams, next)
        if (stream->is_waiting) {
            stream->is_waiting = false;
            MHD_resume_connection(stream->peer);
        }
}

void http_port_publish(struct http_port *port, struct http_text *text)
{
    pthread_mutex_lock(&port->lock);
    struct http_text *old = port->published;
    port->published = text;
    port->n_published++;
    wake_streams(port);
    pthread_mutex_unlock(&port->lock);
    http_text_unref(old);
}

size_t http_port_streams(struct http_port *port)
{
    pthread_mutex_lock(&port->lock);
    size_t n = port->n_streams;
    pthread_mutex_unlock(&port->lock);
    return n;
}

/* --- requests -------------------------------------------------------------------------------------------------------- */

static void add_headers(const struct http_port *port, struct MHD_Response *response, const char *type)
{
    const char *const headers[][2] = {{"Content-Type", type},
                                      {"Content-Security-Policy", port->options.content_security_policy},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"Cross-Origin-Resource-Policy", "same-origin"},
                                      {"Cache-Control", "no-store"},
                                      {"Connection", "close"}};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
}

static void unref_text(void *data)
{
    http_text_unref(data);
}

static ssize_t read_text(void *data, uint64_t position, char *bytes, size_t room)
{
    const struct http_text *text = data;
    size_t left = text->length - (size_t)position, n = left < room ? left : room;
    memcpy(bytes, text->bytes + position, n);
    return (ssize_t)n;
}

/* Takes the text. */
static enum MHD_Result send_text(struct http_port *port, struct MHD_Connection *peer, unsigned status, const char *type,
                                 struct http_text *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(text->length, BLOCK_BYTES, read_text, text, unref_text);
    if (!response) {
        http_text_unref(text);
        return MHD_NO;
    }
    add_headers(port, response, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    enum MHD_Result sent = MHD_queue_response(peer, status, response);
    MHD_destroy_response(response);
    return sent;
}

static enum MHD_Result send_words(struct http_port *port, struct MHD_Connection *peer, unsigned status, const char *words)
{
    char *line = memory_print("%s\n", words);
    return send_text(port, peer, status, "text/plain; charset=utf-8", http_text_make(line, strlen(line)));
}

static enum MHD_Result send_stream(struct http_port *port, struct MHD_Connection *peer, struct connection *connection)
{
    struct stream *stream = memory_alloc(sizeof *stream);
    *stream = (struct stream){.port = port, .peer = peer};
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, stream, end_stream);
    if (!response) {
        free(stream);
        return MHD_NO;
    }
    pthread_mutex_lock(&port->lock);
    LIST_INSERT_HEAD(&port->streams, stream, next);
    bool is_full = port->n_streams++ == HTTP_STREAMS_MAX;
    if (!is_full)
        connection->is_stream = true;
    pthread_mutex_unlock(&port->lock);
    enum MHD_Result sent;
    if (is_full) {
        sent = send_words(port, peer, MHD_HTTP_SERVICE_UNAVAILABLE, "too many readers of events");
    } else {
        add_headers(port, response, "text/event-stream");
        sent = MHD_queue_response(peer, MHD_HTTP_OK, response);
    }
    MHD_destroy_response(response);
    return sent;
}

static enum MHD_Result take_question(struct http_port *port, struct http_question *question, const char *url)
{
    const struct http_path *paths = port->options.paths;
    size_t path = 0;
    while (path < port->options.n_paths && strcmp(paths[path].path, url) != 0)
        path++;
    if (path == port->options.n_paths)
        return send_words(port, question->peer, MHD_HTTP_NOT_FOUND, "nothing has this path");
    if (paths[path].is_stream)
        return send_stream(port, question->peer, question->connection);
    question->is_asked = true;
    MHD_suspend_connection(question->peer); /* goes on when there is the answer */
    const char *accept = MHD_lookup_connection_value(question->peer, MHD_HEADER_KIND, "Accept");
    port->options.asked(port->options.data, path, http_accepts_openmetrics(accept), question);
    return MHD_YES;
}

void http_question_answer(struct http_question *question, unsigned status, const char *content_type, struct http_text *text)
{
    struct http_port *port = question->connection->port;
    pthread_mutex_lock(&port->lock);
    question->status = status;
    question->type = content_type;
    question->text = text;
    MHD_resume_connection(question->peer);
    pthread_mutex_unlock(&port->lock);
}

static enum MHD_Result send_answer(struct http_port *port, struct http_question *question)
{
    pthread_mutex_lock(&port->lock);
    unsigned status = question->status;
    struct http_text *text = question->text;
    question->text = NULL;
    pthread_mutex_unlock(&port->lock);
    return text ? send_text(port, question->peer, status, question->type, text) : MHD_YES;
}

static bool announces_body(struct MHD_Connection *peer)
{
    const char *length = MHD_lookup_connection_value(peer, MHD_HEADER_KIND, "Content-Length");
    return (length && strcmp(length, "0") != 0) || MHD_lookup_connection_value(peer, MHD_HEADER_KIND, "Transfer-Encoding");
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *peer, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **context)
{
    struct http_port *port = data;
    struct http_question *question = *context;
    (void)version, (void)upload;
    if (!question) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        *context = question = memory_alloc(sizeof *question);
        *question = (struct http_question){.peer = peer, .connection = info->socket_context};
        pthread_mutex_lock(&port->lock);
        question->connection->has_asked = true;
        question->connection->since_ns = clock_now_ns();
        port->n_unasked--;
        pthread_mutex_unlock(&port->lock);
        const char *host = MHD_lookup_connection_value(peer, MHD_HEADER_KIND, "Host");
        if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
            return send_words(port, peer, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are answered");
        if (!host || !http_host_is_own(host, &port->bound))
            return send_words(port, peer, MHD_HTTP_MISDIRECTED_REQUEST, "this port has another name");
        if (announces_body(peer)) /* which might never come, and would keep a place meanwhile */
            return send_words(port, peer, MHD_HTTP_CONTENT_TOO_LARGE, "no request here has a body");
        return MHD_YES; /* the same is called again, for what comes after the head */
    }
    if (*upload_bytes)
        return MHD_NO; /* none was announced */
    return question->is_asked ? send_answer(port, question) : take_question(port, question, url);
}

static void on_answered(void *data, struct MHD_Connection *peer, void **context, enum MHD_RequestTerminationCode code)
{
    struct http_question *question = *context;
    (void)data, (void)peer, (void)code;
    if (question)
        http_text_unref(question->text);
    free(question);
    *context = NULL;
}

/* --- the port -------------------------------------------------------------------------------------------------------- */

int http_port_open(const struct http_port_options *options, struct tcp_address *bound, struct http_port **made,
                   struct error *error)
{
    char text[TCP_ADDRESS_CHARS];
    int fd = tcp_listen(&options->listen, bound);
    if (fd < 0)
        return fail_errno(error, errno, "server.metrics_address: cannot listen at %s",
                          tcp_address_print(&options->listen, text));
    struct http_port *port = memory_alloc(sizeof *port);
    *port = (struct http_port){.options = *options, .bound = *bound, .listen_fd = fd};
    pthread_mutex_init(&port->lock, NULL);
    *made = port;
    return 0;
}

int http_port_start(struct http_port *port, struct error *error)
{
    port->server = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request,
                                    port, MHD_OPTION_LISTEN_SOCKET, port->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
                                    (unsigned)HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                                    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
                                    on_connection, port, MHD_OPTION_NOTIFY_COMPLETED, on_answered, port, MHD_OPTION_END);
    if (!port->server)
        return fail_errno(error, errno, "server.metrics_address: cannot serve there");
    return 0;
}

void http_port_close(struct http_port *port)
{
    if (!port)
        return;
    pthread_mutex_lock(&port->lock);
    port->is_closing = true;
    wake_streams(port);
    pthread_mutex_unlock(&port->lock);
    if (port->server)
        MHD_stop_daemon(port->server); /* closes the socket */
    else
        close(port->listen_fd);
    http_text_unref(port->published);
    pthread_mutex_destroy(&port->lock);
    free(port);
}
