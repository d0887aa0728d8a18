/* What every connection of the engine is made with, as options of a libcurl handle, and the fence where addresses are known:
 * a name that was let pass may lead to any address, and to another one each time.
 *
 * A gate stands before one connection that libcurl makes and sees every address that it is about to try. A refused one is
 * skipped; when none is left the connection fails and the gate says why. One thread, the mover's, until the connection is
 * made or given up; the gate and its wire stay where they are as long. */
#ifndef SOURCE_HTTP_WIRE_H
#define SOURCE_HTTP_WIRE_H

#include <curl/curl.h>
#include <stdbool.h>

#include "base/address.h"
#include "source/http/http.h"

struct http_wire {
    const struct http_engine_options *options;
    const char *ca_file; /* outlives the engine; NULL = libcurl's own */
    bool no_proxy;
    struct http_guard guard;
};

/* Whether what was connected with one may carry requests of the other: the same trust and the same proxies. */
bool http_wire_same(const struct http_wire *a, const struct http_wire *b);

struct http_gate {
    const struct http_wire *wire;
    bool has_passed, has_refused;
    struct address refused; /* the last one */
};

/* Sets all of the wire on a handle that was reset, and the gate before it. */
void http_gate_set(CURL *easy, struct http_gate *gate);
/* Of a connection that could not be made: no address was let pass. */
bool http_gate_is_shut(const struct http_gate *gate);
int http_gate_fail(const struct http_gate *gate, struct error *error); /* then: returns -1 */

#endif
