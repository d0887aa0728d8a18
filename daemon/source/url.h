/* What backends ask of URLs beyond http.h: origins, references relative to another URL, values of a query. Pure; any thread.
 */
#ifndef SOURCE_URL_H
#define SOURCE_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

char *url_origin(const char *url); /* "https://host:port" as it stands there; malloced, NULL when it is no http URL */
/* The same scheme, host and port; letters of either case, default ports filled in. */
bool url_same_origin(const char *a, const char *b);
/* A Location: header as an absolute URL without fragment; malloced, NULL when it leads to anything but http or https. */
char *url_resolve(const char *base, const char *location);
/* A number in the query, as in "X-Amz-Expires=3600". */
bool url_query_u64(const char *url, const char *name, uint64_t *value);
/* Seconds from now until a signed URL ends (X-Amz-Expires, X-Goog-Expires, Expires, se is not read); 0 = it does not say. */
uint64_t url_life_s(const char *url, uint64_t now_unix_s);
/* Text of a user as part of a URL: what may not stand in one raw is percent-encoded, what is encoded already stays. */
char *url_tidy(const char *text, size_t length);

#endif
