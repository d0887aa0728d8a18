/* What a broken exchange means: worth another try or not, and in which words. Pure but for the proxy variables. */
#ifndef SOURCE_HTTP_FAILURE_H
#define SOURCE_HTTP_FAILURE_H

#include <stdbool.h>

#include "base/error.h"
#include "source/http/http_exchange.h"

#define HTTP_CURLE_TOO_LARGE ((CURLcode)100) /* CURLE_TOO_LARGE, since libcurl 8.6 */

struct http_failure {
    bool is_final;
    bool is_protocol;   /* the peer does not speak HTTP: worth one more try */
    bool is_refused;    /* before the server took the request: at connect, or dropped right after */
    bool is_unresolved; /* DNS does not know the name: mostly wrong, or of another network */
    bool is_stale;      /* a kept connection that the server had closed meanwhile: no failure */
};

struct http_failure http_failure_of(const struct http_exchange *exchange, const struct http_wire *wire, struct error *error);

/* The proxy's own answer to a plain request, 407. */
int http_failure_proxy(const struct url *url, int status, struct error *error);

#endif
