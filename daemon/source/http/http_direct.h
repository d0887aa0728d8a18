/* The way of a range into memory: request out, head in, then from the connection straight to where the bytes belong. And that of
 * a large body out of memory over plain HTTP: request and body out (http_send.h), while an answer may come, then head in.
 *
 *   prepare -> (connecting ->) begin -> go_on ... -> HTTP_WAIT_OVER
 *
 * What a body needs that has no place yet - chunked, thrown away, a refusal, in small pieces - goes through a scratch buffer
 * as libcurl's bodies do. Small bodies, bodies over TLS, documents and plain HTTP through a proxy stay with libcurl. */
#ifndef SOURCE_HTTP_DIRECT_H
#define SOURCE_HTTP_DIRECT_H

#include <curl/curl.h>
#include <stdbool.h>

#include "source/http/http_connection.h"
#include "source/http/http_exchange.h"

enum { HTTP_SCRATCH_BYTES = 256 << 10 };

/* Caller's thread: whether the exchange can go this way, and what it will say. */
bool http_direct_prepare(struct http_exchange *exchange, const struct http_wire *wire);

/* Mover's thread from here on. On an open connection with nothing under way. */
void http_direct_begin(struct http_exchange *exchange, struct http_connection *connection);
/* As far as it goes now, but for no more than a turn; returns how many bytes came. Sets direct.wait; *code is how it ended
 * when that is HTTP_WAIT_OVER. */
size_t http_direct_go_on(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES], CURLcode *code);
/* Of one that is over: the connection can carry another request. */
bool http_direct_spares_connection(const struct http_exchange *exchange, CURLcode code);

#endif
