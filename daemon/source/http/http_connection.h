/* A connection that libcurl makes and lends: names, addresses, proxies, TLS and trust are libcurl's, what is said on it is
 * ours. So the bytes of a body go from the socket, or from TLS, into their place without libcurl's buffer between.
 *
 * A connection belongs to one scheme, host and port, and to one way of getting there, by value: nothing else is ever said on
 * it, and http_connection_serves() is asked before every byte in either direction.
 *
 * Its handle stays in the multi handle it was opened in for as long as it lives. One thread, the mover's. */
#ifndef SOURCE_HTTP_CONNECTION_H
#define SOURCE_HTTP_CONNECTION_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/url.h"
#include "source/http/http_wire.h"

enum { HTTP_CONNECTION_BUFFER = 64 << 10 /* what comes with a head; a line of one has to fit */ };

struct http_connection {
    /* the owner's */
    struct http_connection *next;
    uint64_t idle_since_ns;
    char origin[URL_ORIGIN_CHARS]; /* where it leads: "https://host:443" */
    struct http_wire wire;         /* strings are the engine's */
    CURL *easy;
    CURLM *multi;                  /* borrowed */
    curl_socket_t socket;          /* once it is open */
    size_t n_buffered;             /* bytes of the head in `buffer` that are not a whole line yet */
    char message[CURL_ERROR_SIZE]; /* why it could not be opened */
    char buffer[HTTP_CONNECTION_BUFFER];
};

/* Begins to connect to where `url` leads; CURLMSG_DONE, with `data` as CURLINFO_PRIVATE, says how that ended. NULL: it
 * cannot even begin. */
struct http_connection *http_connection_open(CURLM *multi, const char *url, const struct http_wire *wire, void *data);
bool http_connection_serves(const struct http_connection *connection, const char *origin, const struct http_wire *wire);
/* When that was CURLE_OK. Send at once: until it has been used through its handle libcurl takes a connection that it lent
 * for an idle one, and closes those when something comes on them. */
void http_connection_opened(struct http_connection *connection);
void http_connection_close(struct http_connection *connection);

/* CURLE_AGAIN: not now; anything else but CURLE_OK: the connection is lost. */
CURLcode http_connection_send(struct http_connection *connection, const char *bytes, size_t count, size_t *n_sent);
/* CURLE_OK with 0 bytes: the other end sends no more. */
CURLcode http_connection_receive(struct http_connection *connection, void *bytes, size_t room, size_t *count);
/* Of one without a request under way: nothing came, and it was not closed. */
bool http_connection_is_quiet(struct http_connection *connection);

#endif
