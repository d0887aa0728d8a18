/* What is said on a lent connection: a request in the words that libcurl would use, and its body out of the caller's memory,
 * without libcurl's buffer between. What comes back is http_direct.h's. */
#ifndef SOURCE_HTTP_SEND_H
#define SOURCE_HTTP_SEND_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "source/http/http_connection.h"
#include "source/http/http_exchange.h"

/* Caller's thread: the words. */
void http_send_prepare(struct http_exchange *exchange, const struct http_wire *wire);

/* Mover's thread from here on. What there is to send next; a body that is cut short is not sent any more. */
enum http_send_part { HTTP_SEND_NOTHING, HTTP_SEND_WORDS, HTTP_SEND_BODY };
enum http_send_part http_send_next(const struct http_exchange *exchange);
/* As much of that as the connection takes now, of a body no more than `most` bytes; *n_sent are those of the body. CURLE_AGAIN: not
 * now; CURLE_READ_ERROR: the body cannot be read, and the outcome says so; anything else but CURLE_OK: the connection takes no more. */
CURLcode http_send_go_on(struct http_exchange *exchange, size_t most, size_t *n_sent);

#endif
