/* URLs, taken apart by libcurl's own parser: it and we must never disagree about which host a URL names. Pure. */
#ifndef SOURCE_HTTP_URL_H
#define SOURCE_HTTP_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { HTTP_ORIGIN_CHARS = 320, HTTP_URL_CHARS = 512 /* of a redacted one */ };

/* "https://host:443": scheme, host in lower case and port. Only http and https; INVALID_ARGUMENT otherwise. */
int http_url_origin(const char *url, char origin[HTTP_ORIGIN_CHARS], struct error *error);

/* Where a Location leads from `url`; the caller frees. Refuses other schemes, user names, and https -> http. */
int http_url_follow(const char *url, const char *location, char **target, struct error *error);

#endif
