/* Where requests may lead: asked of every attempt and of every hop; http_wire.h asks the same of every address.
 *
 * Refused, with PERMISSION_DENIED:
 *   PLAIN_HTTP            http:// to another host than this one, unless it is allowed; https that leads to http, always
 *   FORBIDDEN_ADDRESS     link-local and unspecified addresses and the metadata services of clouds, unless the configuration
 *                         names that very address
 *   REDIRECT_TO_THIS_HOST a server elsewhere sends us to this host
 *   OUTSIDE_TRUSTED_URLS  a confined call is sent to what is below none of the trusted URLs
 * The machine's own metadata service is asked by calls that say so (http_call.no_proxy); they follow no redirects. Behind a
 * proxy only what stands in the URL is known here: names are the proxy's to resolve. Pure except for the environment; any thread. */
#ifndef SOURCE_HTTP_FENCE_H
#define SOURCE_HTTP_FENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/url.h"

struct http_fence { /* borrowed texts; zeroed = plain http to this host alone, no confinement */
    bool allow_plain;
    bool no_proxies;                 /* whatever the environment says */
    const char *const *trusted_urls; /* beginnings of references, "https://host/models", "gs://bucket" */
    size_t n_trusted_urls;           /* 0 = everything is trusted */
    const char *const *endpoints;    /* servers that the configuration names; "" = none */
    size_t n_endpoints;
};

/* 0, or PERMISSION_DENIED; INVALID_ARGUMENT for what is no good URL. */
int http_fence_check(const struct http_fence *fence, const char *url, struct error *error);
/* Whether a reference of any scheme is below one of the trusted URLs, and cannot be read as a way up and out. */
bool http_fence_trusts(const struct http_fence *fence, const char *reference);

struct http_hop {
    const char *from;     /* the URL that was asked */
    const char *location; /* what its answer says: Location, Link */
    bool is_confined;     /* to the trusted URLs */
};
/* Where a hop leads; malloced, NULL with the error when it leads nowhere (FAILED_PRECONDITION, BAD_REDIRECT) or is refused.
 */
char *http_fence_follow(const struct http_fence *fence, const struct http_hop *hop, struct error *error);

/* Whether an error is a refusal of the fence, not of a server. */
bool http_fence_has_refused(const struct error *error);

/* Which proxy a URL is asked through, by the variables of the environment that curl reads. libcurl is told and not left to
 * find out: what the fence checks is where the connection leads, which is another place with a proxy. The value of
 * http_proxy, https_proxy, HTTPS_PROXY, all_proxy or ALL_PROXY; NULL = none, or no_proxy (NO_PROXY) excepts the host. */
const char *http_proxy_find(const struct url *url);

struct http_guard { /* what the addresses of a connection may be */
    bool only_this_host, not_this_host, may_be_reserved;
    bool is_proxied; /* they are the proxy's */
};
/* For a request to `url`, which the fence let pass, of a call to `home`. */
struct http_guard http_fence_guard(const struct http_fence *fence, const struct url *url, const struct url *home);

#endif
