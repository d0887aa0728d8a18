/* SHA-256; MD5 and SHA-1 for stores that know nothing better (libcrypto behind all). Not thread-safe per object; any thread. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { DIGEST_BYTES = 32, DIGEST_HEX_CHARS = 64 };

struct digest;                          /* opaque */
struct digest *digest_create(void);     /* SHA-256 */
struct digest *digest_create_md5(void); /* 16 bytes; NULL where libcrypto is built or configured without */
void digest_add(struct digest *digest, const void *bytes, size_t count);
void digest_add_u64(struct digest *digest, uint64_t value);    /* little endian */
void digest_add_text(struct digest *digest, const char *text); /* with its length, so that ("a","b") != ("ab","") */
void digest_finish(struct digest *digest, unsigned char out[DIGEST_BYTES]);    /* destroys it */
void digest_finish_hex(struct digest *digest, char hex[DIGEST_HEX_CHARS + 1]); /* of SHA-256; destroys it */
void digest_hex(const unsigned char *bytes, size_t count, char *hex);          /* 2 * count + 1 chars */

#endif
