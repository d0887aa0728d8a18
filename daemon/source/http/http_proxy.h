/* Which proxy a URL is asked through, by the variables of the environment that curl reads. libcurl is told and not left to
 * find out: what the fence checks is where the connection leads, which is another place with a proxy. Pure but for the
 * environment; any thread. */
#ifndef SOURCE_HTTP_PROXY_H
#define SOURCE_HTTP_PROXY_H

#include "base/url.h"

/* The value of http_proxy, https_proxy, HTTPS_PROXY, all_proxy or ALL_PROXY; NULL = none, or no_proxy (NO_PROXY) excepts
 * the host. */
const char *http_proxy_find(const struct url *url);

#endif
