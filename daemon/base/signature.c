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

int signature_rs256(const char *pem, size_t pem_chars, const void *data, size_t count, unsigned char **signature,
                    size_t *signature_bytes, struct error *error)
{
    enum { MAX_PEM_CHARS = 1 << 16 };
    *signature = NULL;
    BIO *text = BIO_new_mem_buf(pem, pem_chars <= MAX_PEM_CHARS ? (int)pem_chars : 0);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!text || !context)
        abort();
    EVP_PKEY *key = PEM_read_bio_PrivateKey(text, NULL, no_passphrase, NULL);
    bool is_rsa = key && EVP_PKEY_base_id(key) == EVP_PKEY_RSA;
    int failed = !is_rsa || EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) != 1 ||
                 EVP_DigestSign(context, NULL, signature_bytes, data, count) != 1;
    if (!failed) {
        *signature = memory_alloc(*signature_bytes);
        failed = EVP_DigestSign(context, *signature, signature_bytes, data, count) != 1;
    }
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    BIO_free(text);
    if (!is_rsa)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PRIVATE_KEY",
                    "the private key is not an RSA key in PEM without a passphrase");
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
