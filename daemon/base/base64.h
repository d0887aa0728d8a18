/* Base64 of RFC 4648 in the URL-safe alphabet and without padding, as JSON web tokens have it. Pure; any thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>

char *base64_encode_url(const void *bytes, size_t count); /* malloced */

#endif
