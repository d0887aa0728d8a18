/* Requests and bodies on lent connections; see http_send.h. */
#include "source/http/http_send.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"

static void add_line(FILE *out, const struct http_attempt *attempt, const char *name, const char *value)
{
    if (!http_attempt_has_header(attempt, name))
        fprintf(out, "%s: %s\r\n", name, value);
}

void http_send_prepare(struct http_exchange *exchange, const struct http_wire *wire)
{
    struct http_sending *sending = &exchange->direct.sending;
    const struct http_attempt *attempt = exchange->order.attempt;
    const struct http_expectation *expected = exchange->order.expected;
    char host[URL_AUTHORITY_CHARS], *target = url_target(&attempt->where);
    FILE *out = open_memstream(&sending->words, &sending->words_bytes);
    if (!out)
        abort(); /* as any small allocation that fails: see base/memory.h */
    fprintf(out, "%s %s HTTP/1.1\r\n", attempt->method, target);
    add_line(out, attempt, "Host", url_authority(&attempt->where, host));
    add_line(out, attempt, "User-Agent", wire->user_agent);
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
}

enum http_send_part http_send_next(const struct http_exchange *exchange)
{
    const struct http_sending *sending = &exchange->direct.sending;
    if (sending->n_words_sent < sending->words_bytes)
        return HTTP_SEND_WORDS;
    return !sending->is_cut_short && sending->n_body_sent < exchange->order.attempt->body_bytes ? HTTP_SEND_BODY
                                                                                                : HTTP_SEND_NOTHING;
}

static CURLcode send_words(struct http_exchange *exchange)
{
    struct http_sending *sending = &exchange->direct.sending;
    size_t n_sent;
    CURLcode how = http_connection_send(exchange->direct.connection, sending->words + sending->n_words_sent,
                                        sending->words_bytes - sending->n_words_sent, &n_sent);
    sending->n_words_sent += n_sent;
    return how;
}

/* Past libcurl, which would not tell apart whether the connection is lost or the body: it may lie in a file's pages, and those of a
 * file that was cut off cannot be read. */
static CURLcode send_body(struct http_exchange *exchange, size_t most, size_t *n_sent)
{
    struct http_sending *sending = &exchange->direct.sending;
    const struct http_attempt *attempt = exchange->order.attempt;
    size_t left = attempt->body_bytes - sending->n_body_sent;
    ssize_t n = send(exchange->direct.connection->socket, (const char *)attempt->body + sending->n_body_sent,
                     left < most ? left : most, MSG_NOSIGNAL);
    if (n < 0 && errno == EFAULT) {
        exchange->outcome.fault = HTTP_FAULT_FINAL;
        fail(&exchange->outcome.error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
             "the file that is sent has become shorter meanwhile, or cannot be read");
        return CURLE_READ_ERROR;
    }
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? CURLE_AGAIN : CURLE_SEND_ERROR;
    *n_sent = (size_t)n;
    sending->n_body_sent += *n_sent;
    atomic_store(&exchange->seen.last_taken_ns, clock_now_ns());
    return CURLE_OK;
}

CURLcode http_send_go_on(struct http_exchange *exchange, size_t most, size_t *n_sent)
{
    *n_sent = 0;
    return http_send_next(exchange) == HTTP_SEND_BODY ? send_body(exchange, most, n_sent) : send_words(exchange);
}
