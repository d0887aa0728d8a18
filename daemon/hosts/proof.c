/* See proof.h. */
#include "hosts/proof.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/signature.h"

enum { NONCES_MAX = 1 << 20 }; /* of two windows: 16 MiB each, and more requests than a data port answers in that time */

void proof_make_nonce(char nonce[PROOF_NONCE_CHARS])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        abort(); /* up to 256 bytes never fail once the kernel has its seed */
    digest_hex(bytes, sizeof bytes, nonce);
}

uint64_t proof_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Digested first, so that no text, however long, needs room; each with its length, so that none can run into the next. */
static void make_mac(const unsigned char key[HOST_KEY_BYTES], struct digest *digest, unsigned char mac[DIGEST_BYTES])
{
    unsigned char sum[DIGEST_BYTES];
    digest_finish(digest, sum);
    signature_hmac_sha256(key, HOST_KEY_BYTES, sum, sizeof sum, mac);
}

static void sign(const unsigned char key[HOST_KEY_BYTES], struct digest *digest, char proof[PROOF_CHARS])
{
    unsigned char mac[DIGEST_BYTES];
    make_mac(key, digest, mac);
    digest_hex(mac, sizeof mac, proof);
}

void proof_of_request(const unsigned char key[HOST_KEY_BYTES], const struct proof_request *request, char proof[PROOF_CHARS])
{
    struct digest *digest = digest_create();
    digest_add_text(digest, "tensorcast request");
    digest_add_text(digest, request->method);
    digest_add_text(digest, request->path);
    digest_add_text(digest, request->range);
    digest_add_text(digest, request->to);
    digest_add_u64(digest, request->time_ms);
    digest_add_text(digest, request->nonce);
    sign(key, digest, proof);
}

void proof_of_answer(const unsigned char key[HOST_KEY_BYTES], const struct proof_answer *answer, char proof[PROOF_CHARS])
{
    struct digest *digest = digest_create();
    digest_add_text(digest, "tensorcast answer");
    digest_add_text(digest, answer->request_proof);
    digest_add_u64(digest, (uint64_t)answer->status);
    digest_add_text(digest, answer->etag);
    digest_add_text(digest, answer->content_range);
    digest_add_text(digest, answer->body_sum);
    sign(key, digest, proof);
}

bool proof_holds(const struct host_settings *settings, const struct proof_answer *answer, const char *proof, const char *sum)
{
    char wanted[PROOF_CHARS];
    if (!settings->has_key)
        return sum && strcmp(sum, answer->body_sum) == 0;
    proof_of_answer(settings->key, answer, wanted);
    return proof && proof_equals(wanted, proof);
}

static pthread_once_t gcm_once = PTHREAD_ONCE_INIT;
static EVP_CIPHER *gcm; /* fetched once, as in base/digest.c */

static void fetch_gcm(void)
{
    gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
}

void body_sum_begin(struct body_sum *sum, const struct host_settings *settings, const char *request_proof)
{
    static const unsigned char zero_iv[12];
    unsigned char own_key[DIGEST_BYTES];
    *sum = (struct body_sum){0};
    if (!settings->has_key)
        return;
    pthread_once(&gcm_once, fetch_gcm);
    struct digest *digest = digest_create();
    digest_add_text(digest, "tensorcast body");
    digest_add_text(digest, request_proof);
    make_mac(settings->key, digest, own_key);
    sum->mac = EVP_CIPHER_CTX_new();
    if (!sum->mac || EVP_EncryptInit_ex2(sum->mac, gcm, own_key, zero_iv, NULL) != 1)
        abort();
    signature_wipe(own_key, sizeof own_key);
}

void body_sum_add(struct body_sum *sum, const void *bytes, size_t count)
{
    enum { MOST_AT_ONCE = 1 << 30 };
    const unsigned char *at = bytes;
    int unused;
    if (!sum->mac)
        sum->crc = crc32c_update(sum->crc, bytes, count);
    for (size_t part; sum->mac && count; at += part, count -= part) {
        part = count < MOST_AT_ONCE ? count : MOST_AT_ONCE;
        if (EVP_EncryptUpdate(sum->mac, NULL, &unused, at, (int)part) != 1) /* bytes that are authenticated alone: GMAC */
            abort();
    }
}

void body_sum_finish(struct body_sum *sum, char text[BODY_SUM_CHARS])
{
    unsigned char tag[16];
    int unused;
    if (!sum->mac) {
        snprintf(text, BODY_SUM_CHARS, "crc32c=%08x", sum->crc);
        return;
    }
    if (EVP_EncryptFinal_ex(sum->mac, tag, &unused) != 1 ||
        EVP_CIPHER_CTX_ctrl(sum->mac, EVP_CTRL_AEAD_GET_TAG, sizeof tag, tag) != 1)
        abort();
    EVP_CIPHER_CTX_free(sum->mac);
    sum->mac = NULL;
    digest_hex(tag, sizeof tag, stpcpy(text, "gmac="));
}

bool proof_equals(const char *one, const char *other)
{
    unsigned char difference = 0;
    if (strlen(one) != strlen(other))
        return false;
    for (size_t i = 0; one[i]; i++)
        difference |= (unsigned char)(one[i] ^ other[i]);
    return difference == 0;
}

/* Two generations: a nonce of the last window is in one of them, and the older one is forgotten as a whole. */
struct proof_nonces {
    pthread_mutex_t lock;
    struct generation {
        uint64_t *slots; /* open addressing; 0 = free */
        size_t n_slots, n;
    } fresh, old;
    uint64_t began_ms; /* the fresh one */
};

struct proof_nonces *proof_nonces_create(void)
{
    struct proof_nonces *nonces = memory_alloc(sizeof *nonces);
    pthread_mutex_init(&nonces->lock, NULL);
    return nonces;
}

void proof_nonces_destroy(struct proof_nonces *nonces)
{
    if (!nonces)
        return;
    pthread_mutex_destroy(&nonces->lock);
    free(nonces->fresh.slots);
    free(nonces->old.slots);
    free(nonces);
}

static uint64_t *find_slot(const struct generation *generation, uint64_t nonce)
{
    size_t at = nonce & (generation->n_slots - 1);
    while (generation->slots[at] && generation->slots[at] != nonce)
        at = (at + 1) & (generation->n_slots - 1);
    return &generation->slots[at];
}

bool proof_nonces_take(struct proof_nonces *nonces, const char *nonce, uint64_t now_ms)
{
    struct generation *fresh = &nonces->fresh;
    char half[17] = "";
    memcpy(half, nonce, 16);
    uint64_t number = strtoull(half, NULL, 16) | 1; /* of 2^63 random ones */
    pthread_mutex_lock(&nonces->lock);
    /* a request may be as old as the window, and its clock as far ahead */
    if (now_ms - nonces->began_ms > 2 * PROOF_WINDOW_MS || now_ms < nonces->began_ms) {
        free(nonces->old.slots);
        nonces->old = *fresh;
        *fresh = (struct generation){.slots = memory_alloc_array(1024, sizeof *fresh->slots), .n_slots = 1024};
        nonces->began_ms = now_ms;
    }
    if (2 * fresh->n >= fresh->n_slots && fresh->n < NONCES_MAX) {
        struct generation grown = {memory_alloc_array(2 * fresh->n_slots, sizeof *fresh->slots), 2 * fresh->n_slots,
                                   fresh->n};
        for (size_t i = 0; i < fresh->n_slots; i++)
            if (fresh->slots[i])
                *find_slot(&grown, fresh->slots[i]) = fresh->slots[i];
        free(fresh->slots);
        *fresh = grown;
    }
    uint64_t *slot = find_slot(fresh, number);
    bool is_new = fresh->n < NONCES_MAX && !*slot && !(nonces->old.slots && *find_slot(&nonces->old, number));
    if (is_new) {
        *slot = number;
        fresh->n++;
    }
    pthread_mutex_unlock(&nonces->lock);
    return is_new;
}

bool proof_has_ended(const char *certificate, const char *key, struct error *error)
{
    struct tm end;
    char day[16];
    BIO *text = certificate && *certificate ? BIO_new_mem_buf(certificate, -1) : NULL;
    X509 *read = text ? PEM_read_bio_X509(text, NULL, NULL, NULL) : NULL;
    const ASN1_TIME *last = read ? X509_get0_notAfter(read) : NULL;
    bool has_ended = last && X509_cmp_current_time(last) < 0 && ASN1_TIME_to_tm(last, &end) == 1;
    if (has_ended) {
        strftime(day, sizeof day, "%Y-%m-%d", &end);
        fail(error, ERROR_PERMISSION_DENIED, REASON(CERTIFICATE_EXPIRED),
             "this host's own certificate, %s, ended on %s: renew it and restart the daemon", key, day);
    }
    X509_free(read);
    BIO_free(text);
    return has_ended;
}
