/* Ranges without libcurl in between; see http_direct.h. */
#include "source/http/http_direct.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "source/http/http_failure.h"

enum {
    TURN_BYTES = 2 << 20,     /* then it is another exchange's turn */
    IN_PLACE_BYTES = 32 << 10 /* smaller pieces are received together and copied */
};

/* --- the request --- */

static void add_line(FILE *out, const struct http_attempt *attempt, const char *name, const char *value)
{
    if (!http_attempt_has_header(attempt, name))
        fprintf(out, "%s: %s\r\n", name, value);
}

static void set_request(struct http_exchange *exchange, const struct http_wire *wire, const char *host, const char *target)
{
    struct http_direct *direct = &exchange->direct;
    const struct http_attempt *attempt = exchange->order.attempt;
    FILE *out = open_memstream(&direct->request, &direct->request_bytes);
    if (!out)
        abort(); /* as any small allocation that fails: see base/memory.h */
    fprintf(out, "GET %s HTTP/1.1\r\n", target);
    add_line(out, attempt, "Host", host);
    add_line(out, attempt, "User-Agent", wire->user_agent);
    add_line(out, attempt, "Accept", "*/*");
    for (size_t i = 0; i < attempt->n_headers; i++)
        fprintf(out, "%s:%s%s\r\n", attempt->headers[i].name, *attempt->headers[i].value ? " " : "",
                attempt->headers[i].value);
    fprintf(out, "Range: bytes=%" PRIu64 "-%" PRIu64 "\r\n\r\n", exchange->order.expected->first_byte,
            exchange->order.expected->end - 1);
    fclose(out);
}

bool http_direct_prepare(struct http_exchange *exchange, const struct http_wire *wire)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    char host[URL_AUTHORITY_CHARS];
    /* Behind a proxy plain HTTP is said in other words; for https libcurl makes a tunnel, and what is said in it is the
     * same. */
    bool is_plainly_proxied = !attempt->where.is_secure && attempt->guard.is_proxied;
    if (!exchange->order.has_sink || !exchange->order.expected->is_range || strcmp(attempt->method, "GET") != 0 ||
        attempt->body_bytes > 0 || attempt->is_malformed || is_plainly_proxied)
        return false;
    char *target = url_target(&attempt->where);
    url_origin(&attempt->where, exchange->direct.origin);
    set_request(exchange, wire, url_authority(&attempt->where, host), target);
    free(target);
    return true;
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

static void over(struct http_exchange *exchange, CURLcode *code, CURLcode how)
{
    exchange->direct.wait = HTTP_WAIT_OVER;
    *code = how;
}

static void over_because(struct http_exchange *exchange, CURLcode *code, CURLcode how, const char *why)
{
    snprintf(exchange->curl.message, sizeof exchange->curl.message, "%s", why);
    over(exchange, code, how);
}

/* Asked where bytes are sent and where they arrive. A connection to somebody else would hand him the request with its
 * credentials, and take his bytes for the answer. */
static bool is_on_its_connection(struct http_exchange *exchange, CURLcode *code)
{
    const struct http_connection *connection = exchange->direct.connection;
    if (http_connection_serves(connection, exchange->direct.origin, &exchange->curl.wire))
        return true;
    fail(&exchange->outcome.error, ERROR_INTERNAL, "WRONG_CONNECTION",
         "a request for %s was about to use a connection to %s; it was stopped, please report this", exchange->direct.origin,
         connection->origin);
    exchange->outcome.fault = HTTP_FAULT_FINAL;
    over(exchange, code, CURLE_FAILED_INIT);
    return false;
}

/* Whether there are bytes of an answer: an end or a wait otherwise, noted. */
static bool receive_bytes(struct http_exchange *exchange, void *bytes, size_t room, size_t *count, CURLcode *code)
{
    struct http_direct *direct = &exchange->direct;
    if (!is_on_its_connection(exchange, code))
        return false;
    CURLcode how = http_connection_receive(direct->connection, bytes, room, count);
    if (how == CURLE_OK && *count > 0)
        return true;
    if (how == CURLE_AGAIN)
        direct->wait = HTTP_WAIT_READABLE;
    else if (how != CURLE_OK)
        over_because(exchange, code, CURLE_RECV_ERROR, direct->connection->message);
    else if (!exchange->answer.has_head)
        over(exchange, code, CURLE_GOT_NOTHING);
    else if (direct->framing.kind == HTTP_FRAMING_CLOSE)
        over(exchange, code, CURLE_OK);
    else {
        const struct http_framing *framing = &exchange->direct.framing;
        char why[CURL_ERROR_SIZE];
        snprintf(why, sizeof why, "the connection was closed with %" PRIu64 " bytes%s to come", framing->left_bytes,
                 framing->kind == HTTP_FRAMING_CHUNKED ? " of a chunk" : "");
        over_because(exchange, code, CURLE_PARTIAL_FILE, why);
    }
    return false;
}

static void send_request(struct http_exchange *exchange, CURLcode *code)
{
    struct http_direct *direct = &exchange->direct;
    size_t n_sent;
    if (!is_on_its_connection(exchange, code))
        return;
    CURLcode how = http_connection_send(direct->connection, direct->request + direct->n_sent,
                                        direct->request_bytes - direct->n_sent, &n_sent);
    direct->n_sent += n_sent;
    if (how == CURLE_AGAIN)
        direct->wait = HTTP_WAIT_WRITABLE;
    else if (how != CURLE_OK)
        over_because(exchange, code, CURLE_SEND_ERROR, direct->connection->message);
}

/* Bytes that came together with others: the frame is taken off, the rest goes where the body goes. */
static void unwrap(struct http_exchange *exchange, const char *bytes, size_t count, CURLcode *code)
{
    struct http_framing *framing = &exchange->direct.framing;
    while (count > 0 && !framing->is_over) {
        const char *body;
        size_t n_body, used = http_framing_take(framing, bytes, count, &body, &n_body, &exchange->outcome.error);
        if (used == SIZE_MAX)
            exchange->outcome.fault = HTTP_FAULT_PROTOCOL;
        if (used == SIZE_MAX || (n_body > 0 && !http_exchange_take_body(exchange, body, n_body))) {
            over(exchange, code, CURLE_WRITE_ERROR);
            return;
        }
        bytes += used;
        count -= used;
    }
    if (framing->is_over) {
        framing->ends_connection = framing->ends_connection || count > 0; /* what nobody asked for */
        over(exchange, code, CURLE_OK);
    }
}

static bool take_line(struct http_exchange *exchange, const char *line, size_t count, CURLcode *code)
{
    struct http_direct *direct = &exchange->direct;
    bool is_status = count > 9 && memcmp(line, "HTTP/1.", 7) == 0;
    if (is_status)
        direct->is_old = line[7] == '0';
    if (!is_status && exchange->answer.head.head.status == 0)
        over_because(exchange, code, CURLE_WEIRD_SERVER_REPLY, "its first line is not that of HTTP/1");
    else if (!http_exchange_take_line(exchange, line, count))
        over(exchange, code, CURLE_WRITE_ERROR);
    else if (exchange->answer.has_head &&
             http_framing_begin(&direct->framing, &exchange->answer.head.head, direct->is_old, &exchange->outcome.error)) {
        exchange->outcome.fault = HTTP_FAULT_PROTOCOL;
        over(exchange, code, CURLE_WRITE_ERROR);
    }
    return direct->wait == HTTP_WAIT_NOTHING;
}

/* Whole lines of what is buffered; the beginning of another stays, the beginning of the body is taken. */
static void take_lines(struct http_exchange *exchange, CURLcode *code)
{
    struct http_connection *connection = exchange->direct.connection;
    const char *line = connection->buffer, *end = line + connection->n_buffered, *newline;
    while (!exchange->answer.has_head && (newline = memchr(line, '\n', (size_t)(end - line)))) {
        size_t count = (size_t)(newline + 1 - line);
        if (!take_line(exchange, line, count, code))
            return;
        line += count;
    }
    connection->n_buffered = (size_t)(end - line);
    if (exchange->answer.has_head)
        unwrap(exchange, line, connection->n_buffered, code);
    else if (connection->n_buffered == HTTP_CONNECTION_BUFFER)
        over_because(exchange, code, HTTP_CURLE_TOO_LARGE, "a line is longer than 64 KiB");
    else
        memmove(connection->buffer, line, connection->n_buffered);
}

static size_t read_head(struct http_exchange *exchange, CURLcode *code)
{
    struct http_connection *connection = exchange->direct.connection;
    size_t count;
    if (!receive_bytes(exchange, connection->buffer + connection->n_buffered,
                       HTTP_CONNECTION_BUFFER - connection->n_buffered, &count, code))
        return 0;
    connection->n_buffered += count;
    take_lines(exchange, code);
    return count;
}

/* Where the next bytes of the body can be received at once, and how many; NULL when they have to go through the scratch. */
static char *place_of(const struct http_exchange *exchange, size_t *room)
{
    const struct http_framing *framing = &exchange->direct.framing;
    uint64_t announced =
        exchange->answer.announced_bytes - atomic_load_explicit(&exchange->seen.body_bytes, memory_order_relaxed);
    char *place = exchange->answer.is_accepted ? http_sink_place(&exchange->sink, room) : NULL;
    if (!place || framing->kind == HTTP_FRAMING_CHUNKED)
        return NULL;
    *room = *room < framing->left_bytes ? *room : (size_t)framing->left_bytes;
    *room = *room < announced ? *room : (size_t)announced;
    return *room >= IN_PLACE_BYTES ? place : NULL;
}

static size_t read_body(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES], CURLcode *code)
{
    struct http_framing *framing = &exchange->direct.framing;
    size_t room, count;
    char *place = place_of(exchange, &room);
    if (!receive_bytes(exchange, place ? place : scratch, place ? room : HTTP_SCRATCH_BYTES, &count, code))
        return 0;
    if (place) {
        http_sink_advance(&exchange->sink, count);
        http_exchange_count(exchange, count);
        framing->left_bytes -= framing->kind == HTTP_FRAMING_LENGTH ? count : 0;
        framing->is_over = framing->left_bytes == 0;
        if (framing->is_over)
            over(exchange, code, CURLE_OK);
    } else {
        unwrap(exchange, scratch, count, code);
    }
    return count;
}

size_t http_direct_go_on(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES], CURLcode *code)
{
    struct http_direct *direct = &exchange->direct;
    size_t n_bytes = 0;
    while (direct->wait == HTTP_WAIT_NOTHING && n_bytes < TURN_BYTES) {
        if (direct->n_sent < direct->request_bytes)
            send_request(exchange, code);
        else if (!exchange->answer.has_head)
            n_bytes += read_head(exchange, code);
        else
            n_bytes += read_body(exchange, scratch, code);
    }
    return n_bytes;
}

bool http_direct_spares_connection(const struct http_exchange *exchange, CURLcode code)
{
    return code == CURLE_OK && exchange->answer.has_head && exchange->direct.framing.is_over &&
           !exchange->direct.framing.ends_connection;
}
