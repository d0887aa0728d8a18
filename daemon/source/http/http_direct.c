/* Ranges and large bodies without libcurl in between; see http_direct.h. */
#include "source/http/http_direct.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "source/http/http_failure.h"
#include "source/http/http_send.h"

enum {
    TURN_BYTES = 2 << 20,     /* then it is another exchange's turn */
    IN_PLACE_BYTES = 32 << 10 /* smaller pieces are received together and copied */
};

static bool is_range_into_memory(const struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    return exchange->order.has_sink && exchange->order.expected->is_range && strcmp(attempt->method, "GET") == 0 &&
           attempt->body_bytes == 0;
}

/* Over TLS sending may have to wait for something to read first, which is left to libcurl. */
static bool is_large_plain_body(const struct http_exchange *exchange)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    return attempt->body_bytes > HTTP_LARGE_BODY && !attempt->where.is_secure && !exchange->order.has_sink;
}

bool http_direct_prepare(struct http_exchange *exchange, const struct http_wire *wire)
{
    const struct http_attempt *attempt = exchange->order.attempt;
    /* Behind a proxy plain HTTP is said in other words; for https libcurl makes a tunnel, and what is said in it is the
     * same. */
    bool is_plainly_proxied = !attempt->where.is_secure && attempt->guard.is_proxied;
    if (attempt->is_malformed || is_plainly_proxied || !(is_range_into_memory(exchange) || is_large_plain_body(exchange)))
        return false;
    url_origin(&attempt->where, exchange->direct.origin);
    http_send_prepare(exchange, wire);
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
    if (how == CURLE_AGAIN && direct->sending.has_failed)
        over_because(exchange, code, CURLE_SEND_ERROR, "it takes no more");
    else if (how == CURLE_AGAIN)
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

/* A server that takes no more of a body may have said why: that is looked for before the connection is given up. */
static size_t send_bytes(struct http_exchange *exchange, CURLcode *code)
{
    struct http_direct *direct = &exchange->direct;
    bool is_body = http_send_next(exchange) == HTTP_SEND_BODY;
    size_t n_sent;
    if (!is_on_its_connection(exchange, code))
        return 0;
    CURLcode how = http_send_go_on(exchange, TURN_BYTES, &n_sent);
    if (how == CURLE_AGAIN)
        direct->wait = is_body ? HTTP_WAIT_EITHER : HTTP_WAIT_WRITABLE;
    else if (how == CURLE_SEND_ERROR && is_body)
        direct->sending.is_cut_short = direct->sending.has_failed = true;
    else if (how != CURLE_OK)
        over_because(exchange, code, how, direct->connection->message);
    return n_sent;
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

/* An answer before the end of the body: a refusal, whose sender need not take the rest. Nobody can have accepted what was not
 * sent yet. */
static void cut_body_short(struct http_exchange *exchange, CURLcode *code)
{
    exchange->direct.sending.is_cut_short = true;
    exchange->direct.framing.ends_connection = true;
    if (exchange->answer.head.head.status < 300)
        over_because(exchange, code, CURLE_SEND_ERROR, "it was answered before all of it was sent");
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
    } else if (exchange->answer.has_head && direct->sending.n_body_sent < exchange->order.attempt->body_bytes) {
        cut_body_short(exchange, code);
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

/* While there is more to send; nothing of an answer is no reason to wait then. */
static size_t look_for_answer(struct http_exchange *exchange, CURLcode *code)
{
    size_t count = read_head(exchange, code);
    if (exchange->direct.wait == HTTP_WAIT_READABLE)
        exchange->direct.wait = HTTP_WAIT_NOTHING;
    return count;
}

size_t http_direct_go_on(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES], CURLcode *code)
{
    struct http_direct *direct = &exchange->direct;
    size_t n_sent = 0, n_came = http_send_next(exchange) == HTTP_SEND_BODY ? look_for_answer(exchange, code) : 0;
    while (direct->wait == HTTP_WAIT_NOTHING && n_came + n_sent < TURN_BYTES) {
        if (http_send_next(exchange) != HTTP_SEND_NOTHING)
            n_sent += send_bytes(exchange, code);
        else if (!exchange->answer.has_head)
            n_came += read_head(exchange, code);
        else
            n_came += read_body(exchange, scratch, code);
    }
    return n_came;
}

bool http_direct_spares_connection(const struct http_exchange *exchange, CURLcode code)
{
    return code == CURLE_OK && exchange->answer.has_head && exchange->direct.framing.is_over &&
           !exchange->direct.framing.ends_connection;
}
