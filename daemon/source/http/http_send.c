/* Requests and bodies on lent connections; see http_send.h. */
#include "source/http/http_send.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

CURLcode http_send_go_on(struct http_exchange *exchange, size_t most, size_t *n_sent)
{
    struct http_sending *sending = &exchange->direct.sending;
    const struct http_attempt *attempt = exchange->order.attempt;
    bool is_body = http_send_next(exchange) == HTTP_SEND_BODY;
    const char *from = is_body ? attempt->body : sending->words;
    size_t *at = is_body ? &sending->n_body_sent : &sending->n_words_sent;
    size_t left = (is_body ? attempt->body_bytes : sending->words_bytes) - *at;
    CURLcode how = http_connection_send(exchange->direct.connection, from + *at, left < most ? left : most, n_sent);
    *at += *n_sent;
    if (is_body && *n_sent > 0)
        atomic_store(&exchange->seen.last_taken_ns, clock_now_ns());
    return how;
}
