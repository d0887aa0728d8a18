/* What every connection of the engine is made with, as options of a libcurl handle. */
#ifndef SOURCE_HTTP_WIRE_H
#define SOURCE_HTTP_WIRE_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "source/http/http_gate.h"

struct http_wire { /* strings are the engine's */
    const char *ca_file, *user_agent;
    uint64_t connect_timeout_ms;
    bool no_proxy;
    int (*open_socket)(void *data, struct sockaddr_storage *address, socklen_t *address_bytes); /* NULL = libcurl's */
    void *open_socket_data;
    struct http_guard guard;
    struct http_gate *gate; /* the exchange's, with the same guard; of no meaning once the connection is made */
};

/* Whether what was connected with one may carry requests of the other: the same trust and the same proxies. */
bool http_wire_same(const struct http_wire *a, const struct http_wire *b);

/* Sets all of it on a handle that was reset. `wire` stays where it is while the handle connects. */
void http_wire_set(CURL *easy, const struct http_wire *wire);

#endif
