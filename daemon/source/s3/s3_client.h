/* What all requests to S3 share: endpoint, region of each bucket, keys, the clock's offset, and what is known of checksums.
 * One per process, kept by struct stores. Thread-safe. */
#ifndef SOURCE_S3_CLIENT_H
#define SOURCE_S3_CLIENT_H

#include <stdbool.h>

#include "base/checksum.h"
#include "source/http/http.h"
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

/* Checksums that a HEAD told, by the identity of one version of an object; bounded, the newest win. */
bool s3_client_find_checksums(struct s3_client *client, const struct source_identity *identity,
                              struct checksum checksums[CHECKSUM_PER_FILE]);
void s3_client_keep_checksums(struct s3_client *client, const struct source_identity *identity,
                              const struct checksum checksums[CHECKSUM_PER_FILE]);

#endif
