/* What the headers of a request say. Pure; any thread. */
#ifndef OPERATORS_HTTP_REQUEST_H
#define OPERATORS_HTTP_REQUEST_H

#include <stdbool.h>

#include "base/tcp_listener.h"

/* Whether the Host of a request is this port: the address that it listens at, localhost, or any number where it listens at all
 * addresses. A page elsewhere whose name leads here has another one. */
bool http_host_is_own(const char *host, const struct tcp_address *listen);
/* Whether an Accept header prefers application/openmetrics-text; NULL is none. */
bool http_accepts_openmetrics(const char *accept);

#endif
