/* How hosts that share a cluster key prove requests and answers to each other: HMAC-SHA256 (RFC 2104) over a request's method,
 * path, range, destination, time and nonce, and over an answer's head and the sum of its body together with the request's
 * proof. Without the key no process can forge either, replay a request, or answer another
 * question. Hosts without a key have TLS or a loopback address; their sums only find errors. Pure except for struct
 * proof_nonces, which has a lock. Any thread. */
#ifndef HOSTS_PROOF_H
#define HOSTS_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "hosts/host_settings.h"

#define PROOF_HEADER "x-tensorcast-proof" /* of both */
#define PROOF_TIME_HEADER "x-tensorcast-time"
#define PROOF_NONCE_HEADER "x-tensorcast-nonce"
#define BODY_SUM_HEADER "x-tensorcast-sum" /* of answers without a proof */

enum { PROOF_CHARS = DIGEST_HEX_CHARS + 1, PROOF_NONCE_CHARS = 33, PROOF_WINDOW_MS = 60000, BODY_SUM_CHARS = 40 };

struct proof_request {
    const char *method, *path, *range; /* path with its query; range "" = none */
    const char *to;                    /* incarnation of the host that is asked */
    uint64_t time_ms;                  /* since 1970 */
    const char *nonce;                 /* 32 hexadecimal digits */
};
void proof_make_nonce(char nonce[PROOF_NONCE_CHARS]);
uint64_t proof_now_ms(void);
void proof_of_request(const unsigned char key[HOST_KEY_BYTES], const struct proof_request *request, char proof[PROOF_CHARS]);

/* The sum of a body, piece by piece. With a key it is AES-256-GMAC (NIST SP 800-38D), several times as fast as SHA-256. Each
 * answer has a key of its own, made of the cluster's key and the request's proof, and so the IV is zero. That is safe while
 * one body at most is summed for a request: a data port answers each once. Without a key it is CRC-32C. */
struct body_sum {
    void *mac; /* NULL = CRC-32C */
    uint32_t crc;
};
void body_sum_begin(struct body_sum *sum, const struct host_settings *settings, const char *request_proof);
void body_sum_add(struct body_sum *sum, const void *bytes, size_t count);
void body_sum_finish(struct body_sum *sum, char text[BODY_SUM_CHARS]); /* "gmac=HEX", "crc32c=HEX"; frees what it holds */

struct proof_answer {
    const char *request_proof;
    int status;
    const char *etag, *content_range; /* as they are sent; "" = none */
    const char *body_sum;             /* of what is sent: that of nothing for HEAD */
};
void proof_of_answer(const unsigned char key[HOST_KEY_BYTES], const struct proof_answer *answer, char proof[PROOF_CHARS]);
/* What came: the headers PROOF_HEADER and BODY_SUM_HEADER, NULL = absent. With a key the proof counts, else the sum. */
bool proof_holds(const struct host_settings *settings, const struct proof_answer *answer, const char *proof,
                 const char *sum);

bool proof_equals(const char *one, const char *other); /* in a time that does not tell where they differ */

/* Whether a certificate in PEM, the value of `key`, has ended; then *error tells it. Its host is the one to tell: the other side
 * only ends the connection. NULL, "": false. */
bool proof_has_ended(const char *certificate, const char *key, struct error *error);

/* Nonces of requests that were proven: each is taken once within its time. */
struct proof_nonces;
struct proof_nonces *proof_nonces_create(void);
void proof_nonces_destroy(struct proof_nonces *nonces);                                  /* accepts NULL */
bool proof_nonces_take(struct proof_nonces *nonces, const char *nonce, uint64_t now_ms); /* false: seen, or too many */

#endif
