/* Ranges and large bodies without libcurl in between; see http_direct.h. */
#include "source/http/http_direct.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    TURN_BYTES = 2 << 20,     /* then it is another exchange's turn */
    IN_PLACE_BYTES = 32 << 10 /* smaller pieces are received together and copied */
};
enum {
    RECEIVE_BYTES = 1 << 20, /* at once; more saves no CPU */
    WINDOW_BYTES = 4 << 20,  /* to begin with */
    AHEAD_BYTES = 64 << 10   /* of every connection with TLS; 256 KiB falls out of the caches */
};

/* --- the request --- */

static void add_line(FILE *out, const struct http_attempt *attempt, const char *name, const char *value)
{
    if (!http_attempt_has_header(attempt, name))
        fprintf(out, "%s: %s\r\n", name, value);
}

bool http_direct_prepare(struct http_exchange *exchange, const struct http_wire *wire)
{
    struct http_direct *direct = &exchange->direct;
    const struct http_attempt *attempt = exchange->order.attempt;
    const struct http_expectation *expected = exchange->order.expected;
    bool is_range_into_memory =
        exchange->order.has_sink && expected->is_range && strcmp(attempt->method, "GET") == 0 && attempt->body_bytes == 0;
    /* Over TLS sending may have to wait for something to read first, which is left to libcurl. */
    bool is_large_plain_body =
        attempt->body_bytes > HTTP_LARGE_BODY && !attempt->where.is_secure && !exchange->order.has_sink;
    /* Behind a proxy plain HTTP is said in other words; for https libcurl makes a tunnel, and what is said in it is the
     * same. */
    bool is_plainly_proxied = !attempt->where.is_secure && attempt->guard.is_proxied;
    if (attempt->is_malformed || is_plainly_proxied || !(is_range_into_memory || is_large_plain_body))
        return false;
    url_origin(&attempt->where, direct->origin);
    char host[URL_AUTHORITY_CHARS], *target = url_target(&attempt->where);
    FILE *out = memory_stream(&direct->words, &direct->words_bytes);
    fprintf(out, "%s %s HTTP/1.1\r\n", attempt->method, target);
    add_line(out, attempt, "Host", url_authority(&attempt->where, host));
    add_line(out, attempt, "User-Agent", wire->options->user_agent);
    add_line(out, attempt, "Accept", "*/*");
    for (size_t i = 0; i < attempt->n_headers; i++)
        fprintf(out, "%s:%s%s\r\n", attempt->headers[i].name, *attempt->headers[i].value ? " " : "",
                attempt->headers[i].value);
    if (expected->is_range)
        fprintf(out, "Range: bytes=%" PRIu64 "-%" PRIu64 "\r\n", expected->first_byte, expected->end - 1);
    if (attempt->body_bytes > 0)
        fprintf(out, "Content-Length: %zu\r\n", attempt->body_bytes);
    fprintf(out, "\r\n");
    fclose(out);
    free(target);
    return true;
}

/* --- connections --- */

/* A new connection may have 64 KiB under way and earns more round trip by round trip: many ranges are nearly over then.
 * SO_RCVBUF would keep it from ever growing; asking to be woken only at so many bytes makes room for them as well, and the
 * room stays when the wish is taken back (tcp_set_rcvlowat() in Linux). */
static int widen_window(void *data, curl_socket_t socket, curlsocktype purpose)
{
    (void)data, (void)purpose;
    setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &(int){WINDOW_BYTES}, sizeof(int));
    setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int));
    return CURL_SOCKOPT_OK;
}

/* OpenSSL asks the socket for the five bytes of each record's head, then for its 16 KiB. From now on it asks for as much as
 * there is. Only for a handle that is read until CURLE_AGAIN: libcurl's own transfers (before 8.15) wait for a socket whose
 * bytes OpenSSL already has. */
static CURLcode read_ahead(CURL *easy, void *context, void *data)
{
    (void)easy, (void)data;
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, AHEAD_BYTES);
    return CURLE_OK;
}

struct http_connection *http_connection_open(CURLM *multi, struct http_exchange *exchange)
{
    const char *tls = curl_version_info(CURLVERSION_NOW)->ssl_version;
    struct http_connection *connection = memory_alloc(sizeof *connection);
    CURL *easy = connection->easy = curl_easy_init();
    connection->wire = exchange->curl.wire;
    connection->socket = CURL_SOCKET_BAD;
    memcpy(connection->origin, exchange->direct.origin, sizeof connection->origin);
    if (easy) {
        http_gate_set(easy, &exchange->curl.gate);
        if (tls && strncmp(tls, "OpenSSL/", 8) == 0)
            curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, read_ahead);
        curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
        if (!connection->wire.options->open_socket)
            curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, widen_window);
        curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
        curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->message);
        curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
        if (curl_easy_setopt(easy, CURLOPT_URL, exchange->order.attempt->url) == CURLE_OK &&
            curl_multi_add_handle(multi, easy) == CURLM_OK)
            return connection;
    }
    curl_easy_cleanup(easy);
    free(connection);
    return NULL;
}

bool http_connection_serves(const struct http_connection *connection, const struct http_exchange *exchange)
{
    return strcmp(connection->origin, exchange->direct.origin) == 0 &&
           http_wire_same(&connection->wire, &exchange->curl.wire);
}

bool http_connection_is_quiet(struct http_connection *connection)
{
    char byte;
    size_t count;
    return curl_easy_recv(connection->easy, &byte, 1, &count) == CURLE_AGAIN;
}

void http_connection_close(CURLM *multi, struct http_connection *connection)
{
    curl_multi_remove_handle(multi, connection->easy);
    curl_easy_cleanup(connection->easy);
    free(connection);
}

/* --- on the connection --- */

void http_direct_begin(struct http_exchange *exchange, struct http_connection *connection)
{
    connection->n_buffered = 0;
    exchange->direct.connection = connection;
    exchange->direct.is_connecting = false;
    exchange->direct.wait = HTTP_WAIT_NOTHING;
    http_exchange_sent(exchange);
}

static void over(struct http_exchange *exchange, CURLcode code)
{
    exchange->direct.wait = HTTP_WAIT_OVER;
    exchange->curl.code = code;
}

static void over_because(struct http_exchange *exchange, CURLcode code, const char *why)
{
    snprintf(exchange->curl.message, sizeof exchange->curl.message, "%s", why);
    over(exchange, code);
}

/* Asked where bytes are sent and where they arrive. A connection to another server would hand it the request with its
 * credentials, and take its bytes for the answer. */
static bool is_on_its_connection(struct http_exchange *exchange)
{
    const struct http_connection *connection = exchange->direct.connection;
    if (http_connection_serves(connection, exchange))
        return true;
    fail(&exchange->outcome.error, ERROR_INTERNAL, "WRONG_CONNECTION",
         "a request for %s was about to use a connection to %s; it was stopped, please report this", exchange->direct.origin,
         connection->origin);
    exchange->outcome.fault = HTTP_FAULT_FINAL;
    over(exchange, CURLE_FAILED_INIT);
    return false;
}

static bool has_words_to_send(const struct http_exchange *exchange)
{
    return exchange->direct.n_words_sent < exchange->direct.words_bytes;
}

static bool has_body_to_send(const struct http_exchange *exchange)
{
    const struct http_direct *direct = &exchange->direct;
    return !has_words_to_send(exchange) && !direct->is_cut_short &&
           direct->n_body_sent < exchange->order.attempt->body_bytes;
}

/* As much as the connection takes now, of a body no more than a turn; returns how many bytes of the body.
 *
 * The body goes past libcurl, which would not tell apart whether the connection is lost or the body: it may lie in a file's
 * pages, and those of a file that was cut off cannot be read. A server that takes no more of it may have said why: that is
 * looked for before the connection is given up. */
static size_t send_bytes(struct http_exchange *exchange)
{
    struct http_direct *direct = &exchange->direct;
    struct http_connection *connection = direct->connection;
    const struct http_attempt *attempt = exchange->order.attempt;
    if (!is_on_its_connection(exchange))
        return 0;
    if (has_words_to_send(exchange)) {
        size_t n_sent = 0;
        CURLcode code = curl_easy_send(connection->easy, direct->words + direct->n_words_sent,
                                       direct->words_bytes - direct->n_words_sent, &n_sent);
        direct->n_words_sent += n_sent;
        if (code == CURLE_AGAIN)
            direct->wait = HTTP_WAIT_WRITABLE;
        else if (code != CURLE_OK)
            over_because(exchange, code, connection->message);
        return 0;
    }
    size_t left = attempt->body_bytes - direct->n_body_sent;
    ssize_t n = send(connection->socket, (const char *)attempt->body + direct->n_body_sent,
                     left < TURN_BYTES ? left : TURN_BYTES, MSG_NOSIGNAL);
    if (n >= 0) {
        direct->n_body_sent += (size_t)n;
        __atomic_store_n(&exchange->seen.last_taken_ns, clock_now_ns(), __ATOMIC_SEQ_CST);
        return (size_t)n;
    }
    if (errno == EFAULT) {
        exchange->outcome.fault = HTTP_FAULT_FINAL;
        fail(&exchange->outcome.error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
             "the file that is sent has become shorter meanwhile, or cannot be read");
        over(exchange, CURLE_READ_ERROR);
    } else if (errno == EAGAIN || errno == EINTR) {
        direct->wait = HTTP_WAIT_EITHER;
    } else {
        direct->is_cut_short = direct->has_failed = true;
    }
    return 0;
}

/* Whether there are bytes of an answer: an end or a wait otherwise, noted. */
static bool receive_bytes(struct http_exchange *exchange, void *bytes, size_t room, size_t *count)
{
    struct http_direct *direct = &exchange->direct;
    const struct http_framing *framing = &direct->framing;
    if (!is_on_its_connection(exchange))
        return false;
    *count = 0;
    CURLcode code = curl_easy_recv(direct->connection->easy, bytes, room, count);
    if (code == CURLE_OK && *count > 0)
        return true;
    if (code == CURLE_AGAIN && direct->has_failed)
        over_because(exchange, CURLE_SEND_ERROR, "it takes no more");
    else if (code == CURLE_AGAIN)
        direct->wait = HTTP_WAIT_READABLE;
    else if (code != CURLE_OK)
        over_because(exchange, CURLE_RECV_ERROR, direct->connection->message);
    else if (!exchange->answer.has_head)
        over(exchange, CURLE_GOT_NOTHING);
    else if (framing->kind == HTTP_FRAMING_CLOSE)
        over(exchange, CURLE_OK);
    else {
        snprintf(exchange->curl.message, sizeof exchange->curl.message,
                 "the connection was closed with %" PRIu64 " bytes%s to come", framing->left_bytes,
                 framing->kind == HTTP_FRAMING_CHUNKED ? " of a chunk" : "");
        over(exchange, CURLE_PARTIAL_FILE);
    }
    return false;
}

/* Bytes that came together with others: the frame is taken off, the rest goes where the body goes. */
static void unwrap(struct http_exchange *exchange, const char *bytes, size_t count)
{
    struct http_framing *framing = &exchange->direct.framing;
    while (count > 0 && !framing->is_over) {
        const char *body;
        size_t n_body, used = http_framing_take(framing, bytes, count, &body, &n_body, &exchange->outcome.error);
        if (used == SIZE_MAX)
            exchange->outcome.fault = HTTP_FAULT_PROTOCOL;
        if (used == SIZE_MAX || (n_body > 0 && !http_exchange_take_body(exchange, body, n_body))) {
            over(exchange, CURLE_WRITE_ERROR);
            return;
        }
        bytes += used;
        count -= used;
    }
    if (framing->is_over) {
        framing->ends_connection = framing->ends_connection || count > 0; /* bytes that were not asked for */
        over(exchange, CURLE_OK);
    }
}

static bool take_line(struct http_exchange *exchange, const char *line, size_t count)
{
    struct http_direct *direct = &exchange->direct;
    const struct http_head *head = &exchange->answer.head.head;
    bool is_status = count > 9 && memcmp(line, "HTTP/1.", 7) == 0;
    if (is_status)
        direct->is_old = line[7] == '0';
    if (!is_status && head->status == 0)
        over_because(exchange, CURLE_WEIRD_SERVER_REPLY, "its first line is not that of HTTP/1");
    else if (!http_exchange_take_line(exchange, line, count))
        over(exchange, CURLE_WRITE_ERROR);
    else if (exchange->answer.has_head &&
             http_framing_begin(&direct->framing, head, direct->is_old, &exchange->outcome.error)) {
        exchange->outcome.fault = HTTP_FAULT_PROTOCOL;
        over(exchange, CURLE_WRITE_ERROR);
    } else if (exchange->answer.has_head && direct->n_body_sent < exchange->order.attempt->body_bytes) {
        /* An answer before the end of the body: a refusal, whose sender need not take the rest. No server can have accepted
         * what was not sent yet. */
        direct->is_cut_short = direct->framing.ends_connection = true;
        if (head->status < 300)
            over_because(exchange, CURLE_SEND_ERROR, "it was answered before all of it was sent");
    }
    return direct->wait == HTTP_WAIT_NOTHING;
}

/* Whole lines are taken; the beginning of another stays in the buffer, the beginning of the body is taken. */
static size_t read_head(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->direct.connection;
    size_t n_came;
    if (!receive_bytes(exchange, connection->buffer + connection->n_buffered,
                       HTTP_CONNECTION_BUFFER - connection->n_buffered, &n_came))
        return 0;
    const char *line = connection->buffer, *end = line + connection->n_buffered + n_came, *newline;
    while (!exchange->answer.has_head && (newline = memchr(line, '\n', (size_t)(end - line)))) {
        size_t count = (size_t)(newline + 1 - line);
        if (!take_line(exchange, line, count))
            return n_came;
        line += count;
    }
    connection->n_buffered = (size_t)(end - line);
    if (exchange->answer.has_head)
        unwrap(exchange, line, connection->n_buffered);
    else if (connection->n_buffered == HTTP_CONNECTION_BUFFER)
        over_because(exchange, HTTP_CURLE_TOO_LARGE, "a line is longer than 64 KiB");
    else
        memmove(connection->buffer, line, connection->n_buffered);
    return n_came;
}

static size_t read_body(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES])
{
    struct http_framing *framing = &exchange->direct.framing;
    uint64_t announced = exchange->answer.announced_bytes - __atomic_load_n(&exchange->seen.body_bytes, __ATOMIC_RELAXED);
    size_t room = 0, count;
    char *place = exchange->answer.is_accepted && framing->kind != HTTP_FRAMING_CHUNKED
                      ? http_sink_place(&exchange->sink, &room)
                      : NULL;
    room = room < framing->left_bytes ? room : (size_t)framing->left_bytes;
    room = room < announced ? room : (size_t)announced;
    bool is_in_place = place && room >= IN_PLACE_BYTES;
    if (!receive_bytes(exchange, is_in_place ? place : scratch, is_in_place ? room : HTTP_SCRATCH_BYTES, &count))
        return 0;
    if (!is_in_place) {
        unwrap(exchange, scratch, count);
        return count;
    }
    http_sink_advance(&exchange->sink, count);
    http_exchange_count(exchange, count);
    framing->left_bytes -= framing->kind == HTTP_FRAMING_LENGTH ? count : 0;
    framing->is_over = framing->left_bytes == 0;
    if (framing->is_over)
        over(exchange, CURLE_OK);
    return count;
}

size_t http_direct_go_on(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES])
{
    struct http_direct *direct = &exchange->direct;
    size_t n_sent = 0, n_came = 0;
    if (has_body_to_send(exchange)) { /* nothing of an answer is no reason to wait then */
        n_came = read_head(exchange);
        direct->wait = direct->wait == HTTP_WAIT_READABLE ? HTTP_WAIT_NOTHING : direct->wait;
    }
    while (direct->wait == HTTP_WAIT_NOTHING && n_came + n_sent < TURN_BYTES) {
        if (has_words_to_send(exchange) || has_body_to_send(exchange))
            n_sent += send_bytes(exchange);
        else
            n_came += exchange->answer.has_head ? read_body(exchange, scratch) : read_head(exchange);
    }
    return n_came;
}

bool http_direct_spares_connection(const struct http_exchange *exchange)
{
    return exchange->curl.code == CURLE_OK && exchange->answer.has_head && exchange->direct.framing.is_over &&
           !exchange->direct.framing.ends_connection;
}
