/* The way of a range into memory: request out, head in, then from the connection straight to where the bytes belong. And that of
 * a large body out of memory over plain HTTP: request and body out, while an answer may come, then head in.
 *
 *   prepare -> (connecting ->) begin -> go_on ... -> HTTP_WAIT_OVER
 *
 * libcurl makes the connection and lends it: names, addresses, proxies, TLS and trust are libcurl's, what is said on it is
 * ours. A connection belongs to one scheme, host and port, and to one way of getting there, by value: nothing else is ever
 * said on it, and http_connection_serves() is asked before every byte in either direction.
 *
 * What a body needs that has no place yet - chunked, thrown away, a refusal, in small pieces - goes through a scratch buffer
 * as libcurl's bodies do. Small bodies, bodies over TLS, documents and plain HTTP through a proxy stay with libcurl. */
#ifndef SOURCE_HTTP_DIRECT_H
#define SOURCE_HTTP_DIRECT_H

#include <curl/curl.h>
#include <stdbool.h>

#include "source/http/http_exchange.h"

enum {
    HTTP_SCRATCH_BYTES = 256 << 10,
    HTTP_CONNECTION_BUFFER = 64 << 10 /* what comes with a head; a line of one has to fit */
};

struct http_connection { /* its handle stays in the multi handle it was opened in for as long as it lives */
    /* the owner's */
    TAILQ_ENTRY(http_connection) link;
    uint64_t idle_since_ns;
    char origin[URL_ORIGIN_CHARS]; /* where it leads: "https://host:443" */
    struct http_wire wire;
    CURL *easy;
    curl_socket_t socket;          /* once it is open */
    size_t n_buffered;             /* bytes of the head in `buffer` that are not a whole line yet */
    char message[CURL_ERROR_SIZE]; /* why it could not be opened */
    char buffer[HTTP_CONNECTION_BUFFER];
};

/* Caller's thread: whether the exchange can go this way, and what it will say. */
bool http_direct_prepare(struct http_exchange *exchange, const struct http_wire *wire);

/* Mover's thread from here on. Begins to connect to where the exchange leads; CURLMSG_DONE, with the exchange as
 * CURLINFO_PRIVATE, says how that ended. NULL: it cannot even begin. */
struct http_connection *http_connection_open(CURLM *multi, struct http_exchange *exchange);
bool http_connection_serves(const struct http_connection *connection, const struct http_exchange *exchange);
/* Of one without a request under way: nothing came, and it was not closed. */
bool http_connection_is_quiet(struct http_connection *connection);
void http_connection_close(CURLM *multi, struct http_connection *connection);

/* On a connection with nothing under way. Send at once on one that has just been opened: until it has been used through its
 * handle libcurl takes a connection that it lent for an idle one, and closes those when something comes on them. */
void http_direct_begin(struct http_exchange *exchange, struct http_connection *connection);
/* As far as it goes now, but for no more than a turn; returns how many bytes came. Sets direct.wait, and the exchange's code
 * when that is HTTP_WAIT_OVER. */
size_t http_direct_go_on(struct http_exchange *exchange, char scratch[HTTP_SCRATCH_BYTES]);
/* Of one that is over: its connection can carry another request. */
bool http_direct_spares_connection(const struct http_exchange *exchange);

#endif
