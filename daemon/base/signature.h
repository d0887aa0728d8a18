/* What requests to stores are signed with: HMAC-SHA256 (AWS) and RSA with SHA-256 (service accounts of Google). libcrypto
 * behind it. Any thread. */
#ifndef BASE_SIGNATURE_H
#define BASE_SIGNATURE_H

#include <stddef.h>

#include "base/digest.h"
#include "base/error.h"

void signature_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t count,
                           unsigned char out[DIGEST_BYTES]);

/* PKCS #1 v1.5 (RS256 of JSON web tokens) with an unencrypted private RSA key in PEM. The caller frees *signature.
 * Messages never show the key. */
int signature_rs256(const char *pem, size_t pem_chars, const void *data, size_t count, unsigned char **signature,
                    size_t *signature_bytes, struct error *error);

/* Overwrites a secret before its memory is given back; the compiler cannot leave it out. */
void signature_wipe(void *secret, size_t count);

#endif
