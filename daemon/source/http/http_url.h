/* URLs, taken apart by libcurl's own parser: it and we must never disagree about which host a URL names. Pure. */
#ifndef SOURCE_HTTP_URL_H
#define SOURCE_HTTP_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { HTTP_ORIGIN_CHARS = 320, HTTP_URL_CHARS = 512 /* of a redacted one */ };

/* "https://host:443": scheme, host in lower case and port. Only http and https; INVALID_ARGUMENT otherwise. */
int http_url_origin(const char *url, char origin[HTTP_ORIGIN_CHARS], struct error *error);

/* What a request says of it: Host as typed, with a port that is not the scheme's own, and the target, path and query. The
 * caller frees both. False for a URL with a user name, or one that http_url_origin() refuses. */
bool http_url_request(const char *url, char **host, char **target);

/* Where a Location leads from `url`; the caller frees. Refuses other schemes, user names, and https -> http. */
int http_url_follow(const char *url, const char *location, char **target, struct error *error);

#endif
