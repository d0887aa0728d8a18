/* HMAC and RSA through libcrypto's EVP interface. Only the RSA half can fail: its key comes from a file. */
#include "base/signature.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <stdlib.h>

#include "base/memory.h"

void signature_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t count,
                           unsigned char out[DIGEST_BYTES])
{
    unsigned out_bytes = DIGEST_BYTES;
    if (!HMAC(EVP_sha256(), key, (int)key_bytes, data, count, out, &out_bytes))
        abort();
}

/* Without it a key with a passphrase would make libcrypto ask on the terminal. */
static int no_passphrase(char *passphrase, int size, int is_writing, void *data)
{
    (void)passphrase, (void)size, (void)is_writing, (void)data;
    return -1;
}

static EVP_PKEY *read_key(const char *pem, size_t pem_chars)
{
    BIO *text = BIO_new_mem_buf(pem, (int)pem_chars);
    if (!text)
        abort();
    EVP_PKEY *key = PEM_read_bio_PrivateKey(text, NULL, no_passphrase, NULL);
    BIO_free(text);
    if (key && EVP_PKEY_base_id(key) != EVP_PKEY_RSA) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    return key;
}

static int sign_digest(EVP_PKEY *key, const void *data, size_t count, unsigned char **signature, size_t *signature_bytes)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!context)
        abort();
    int failed = EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) != 1 ||
                 EVP_DigestSign(context, NULL, signature_bytes, data, count) != 1;
    if (!failed) {
        *signature = memory_alloc(*signature_bytes);
        failed = EVP_DigestSign(context, *signature, signature_bytes, data, count) != 1;
    }
    EVP_MD_CTX_free(context);
    return failed ? -1 : 0;
}

int signature_rs256(const char *pem, size_t pem_chars, const void *data, size_t count, unsigned char **signature,
                    size_t *signature_bytes, struct error *error)
{
    enum { MAX_PEM_CHARS = 1 << 16 };
    *signature = NULL;
    EVP_PKEY *key = pem_chars <= MAX_PEM_CHARS ? read_key(pem, pem_chars) : NULL;
    if (!key)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PRIVATE_KEY",
                    "the private key is not an RSA key in PEM without a passphrase");
    int failed = sign_digest(key, data, count, signature, signature_bytes);
    EVP_PKEY_free(key);
    if (!failed)
        return 0;
    free(*signature);
    *signature = NULL;
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PRIVATE_KEY", "nothing can be signed with the private key");
}

void signature_wipe(void *secret, size_t count)
{
    if (secret)
        OPENSSL_cleanse(secret, count);
}
