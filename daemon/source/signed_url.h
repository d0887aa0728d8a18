/* How long a URL that a store signed may be used. Pure; any thread. */
#ifndef SOURCE_SIGNED_URL_H
#define SOURCE_SIGNED_URL_H

#include <stdint.h>

/* Seconds from now until it ends (X-Amz-Expires, X-Goog-Expires, Expires; se is not read); 0 = it does not say. */
uint64_t signed_url_life_s(const char *url, uint64_t now_unix_s);

#endif
