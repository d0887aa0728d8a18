/* The fence where addresses are known: a name that was let pass may lead to any address, and to another one each time.
 *
 * A gate stands before one connection that libcurl makes and sees every address that it is about to try. A refused one is
 * skipped; when none is left the connection fails and the gate says why. One thread, the mover's, until the connection is
 * made or given up; the gate lives as long. */
#ifndef SOURCE_HTTP_GATE_H
#define SOURCE_HTTP_GATE_H

#include <curl/curl.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/error.h"
#include "source/http/http_fence.h"

struct http_gate {
    struct http_guard guard;
    int (*open_socket)(void *data, struct sockaddr_storage *address,
                       socklen_t *address_bytes); /* of tests; NULL = socket() */
    void *open_socket_data;
    bool has_passed, has_refused;
    struct address refused; /* the last one */
};

bool http_guard_same(const struct http_guard *a, const struct http_guard *b);
void http_gate_set(CURL *easy, struct http_gate *gate); /* on a handle that has not connected */
/* Of a connection that could not be made: no address was let pass. */
bool http_gate_is_shut(const struct http_gate *gate);
int http_gate_fail(const struct http_gate *gate, struct error *error); /* then: returns -1 */

#endif
