/* Base64 of RFC 4648. Pure; any thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

char *base64_encode_url(const void *bytes, size_t count); /* as JSON web tokens have it: unpadded, - and _; malloced */

/* With + and /, unpadded, as gRPC has it. `out` has room for 4 bytes for each 3, and 4 more. Returns the length. */
size_t base64_encode(const void *bytes, size_t count, char *out);
/* The same padded, as HTTP headers have it, with a NUL behind it. */
void base64_encode_padded(const void *bytes, size_t count, char *out);
/* With or without padding; `out` has room for 3 bytes for each 4 digits, and 3 more. False: it is not base64, or bits that
 * belong to no byte are not zero. */
bool base64_decode(const char *text, size_t length, uint8_t *out, size_t *count);

#endif
