/* Digests through libcrypto's EVP interface. */
#include "base/digest.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static EVP_MD_CTX *context(struct digest *digest)
{
    return (EVP_MD_CTX *)digest;
}

static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;
static EVP_MD *sha256; /* fetched once: with EVP_sha256() every digest looks for it anew */

static void fetch_sha256(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

struct digest *digest_create(void)
{
    pthread_once(&sha256_once, fetch_sha256);
    EVP_MD_CTX *fresh = EVP_MD_CTX_new();
    if (!fresh || EVP_DigestInit_ex(fresh, sha256 ? sha256 : EVP_sha256(), NULL) != 1)
        abort();
    return (struct digest *)fresh;
}

struct digest *digest_create_md5(void)
{
    EVP_MD_CTX *fresh = EVP_MD_CTX_new();
    if (!fresh)
        abort();
    if (EVP_DigestInit_ex(fresh, EVP_md5(), NULL) == 1)
        return (struct digest *)fresh;
    EVP_MD_CTX_free(fresh);
    return NULL;
}

void digest_add(struct digest *digest, const void *bytes, size_t count)
{
    if (count && EVP_DigestUpdate(context(digest), bytes, count) != 1)
        abort();
}

void digest_add_u64(struct digest *digest, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    digest_add(digest, bytes, sizeof bytes);
}

void digest_add_text(struct digest *digest, const char *text)
{
    digest_add_u64(digest, strlen(text));
    digest_add(digest, text, strlen(text));
}

void digest_finish(struct digest *digest, unsigned char out[DIGEST_BYTES])
{
    if (EVP_DigestFinal_ex(context(digest), out, NULL) != 1)
        abort();
    EVP_MD_CTX_free(context(digest));
}

void digest_hex(const unsigned char *bytes, size_t count, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * count] = '\0';
}

void digest_finish_hex(struct digest *digest, char hex[DIGEST_HEX_CHARS + 1])
{
    unsigned char value[DIGEST_BYTES];
    digest_finish(digest, value);
    digest_hex(value, sizeof value, hex);
}
