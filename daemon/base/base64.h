/* Base64 of RFC 4648: the standard alphabet as stores write checksums, and the URL-safe one without padding of JSON web
 * tokens. Pure; any thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>

char *base64_encode(const void *bytes, size_t count);     /* with padding; malloced */
char *base64_encode_url(const void *bytes, size_t count); /* -_ and no padding; malloced */
/* Exactly `count` bytes from standard base64 with padding and nothing else; 0, or -1 and `out` is undefined. */
int base64_decode(const char *text, size_t length, unsigned char *out, size_t count);

#endif
