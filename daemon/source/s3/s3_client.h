/* What all requests to S3 share: endpoint, region of each bucket, keys, the clock's offset, and what is known of checksums.
 * One per process, kept by struct stores. Thread-safe. */
#ifndef SOURCE_S3_CLIENT_H
#define SOURCE_S3_CLIENT_H

#include <stdbool.h>

#include "source/http/http.h"
#include "source/s3/source_s3.h"
#include "source/source.h"
#include "source/stores.h"

struct s3_client;

struct s3_client *s3_client_of(struct stores *stores);
/* Of struct store. */
void *s3_client_connect(struct stores *stores);
void s3_client_disconnect(void *client);
void s3_client_describe(struct stores *stores, struct store_line *line);

/* 0 when the configured endpoint may be talked to. */
int s3_client_check(struct s3_client *client, struct error *error);
/* Of the bucket's region as far as it is known. Malloced. May ask the instance for its region, once. */
char *s3_client_url(struct s3_client *client, const char *bucket, const char *key, const char *query);
/* Whether every URL of the bucket has the same origin, whatever is learned of its region. */
bool s3_client_origin_is_fixed(const struct s3_client *client);

/* 0 for names that buckets may have; such a name cannot change the meaning of a URL. */
int s3_client_check_bucket(const char *bucket, struct error *error);
/* "https://bucket.s3.eu-west-3.amazonaws.com/a/b%20c?query"; key may be "", query NULL. Malloced. */
char *s3_client_endpoint_url(const struct s3_endpoint *endpoint, const char *bucket, const char *region, const char *key,
                             const char *query);

enum { S3_MAX_SIGNED_HEADERS = 4 };

/* One kind of request to one bucket; data of a struct http_store with the two functions below. */
struct s3_request {
    struct s3_client *client;
    const char *bucket;
    bool checksums;                           /* asks for x-amz-checksum-* */
    const char *if_match;                     /* NULL = any version */
    const struct http_header *signed_headers; /* of what is written: lower case, x-amz-* and content-md5 */
    size_t n_signed_headers;                  /* at most S3_MAX_SIGNED_HEADERS */
    const char *payload_hash;                 /* SHA-256 in hex or "UNSIGNED-PAYLOAD"; NULL = there is no body */
};
int s3_client_prepare(void *request, struct http_attempt *attempt, struct error *error);
enum http_verdict s3_client_judge(void *request, const struct http_reply *reply, struct error *error);

/* CHECKSUM_PER_FILE of them that a HEAD told, by the identity of one version of an object. */
struct known *s3_client_checksums(const struct s3_client *client);

/* What an answer of S3 that is not 2xx means. */
enum s3_fault_kind {
    S3_FAULT_FINAL,     /* asking again will not help */
    S3_FAULT_RETRY,     /* later */
    S3_FAULT_THROTTLED, /* later, and less at once */
    S3_FAULT_REGION,    /* the bucket lies in another region */
    S3_FAULT_CLOCK,     /* our clock is off by `clock_offset_s` */
    S3_FAULT_KEYS,      /* the keys are expired or unknown */
};

struct s3_fault {
    enum s3_fault_kind kind;
    char region[64];        /* where the bucket is, "" = not said */
    int64_t clock_offset_s; /* to be added to our clock */
};

/* `now` is our unix time. Fills the error for every kind: what the server said, without what could be secret in it. */
struct s3_fault s3_fault_of(const struct http_reply *reply, int64_t now, struct error *error);

#endif
