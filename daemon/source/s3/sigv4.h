/* AWS Signature Version 4 in the header of a request, as S3 wants it: the path is signed as it is sent (encoded once, never
 * normalized), the query sorted after encoding. Our own because no libcurl we meet signs every key and query right.
 * Pure: the time is given; any thread. */
#ifndef SOURCE_SIGV4_H
#define SOURCE_SIGV4_H

#include <stddef.h>
#include <stdint.h>

#include "source/http/http.h"

#define SIGV4_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct sigv4_key {
    const char *access_key, *secret_key;
    const char *session_token; /* NULL or "" = a permanent key */
    const char *region, *service;
};

struct sigv4_request {
    const char *method;
    const char *url;                   /* "https://host[:port]/path?query", percent-encoded as it will be sent */
    const struct http_header *headers; /* to sign besides the three below; lower case; none twice */
    size_t n_headers;
    const char *payload_hash; /* SHA-256 in hex, SIGV4_EMPTY_SHA256 or "UNSIGNED-PAYLOAD" */
    int64_t unix_time;
};

enum { SIGV4_DATE_CHARS = 17 };

struct sigv4_signature {
    char date[SIGV4_DATE_CHARS]; /* for x-amz-date */
    char *authorization;         /* for Authorization; malloced, holds no secret */
};

/* Signs host, x-amz-date, x-amz-security-token when there is a session token, and the given headers. */
void sigv4_sign(const struct sigv4_key *key, const struct sigv4_request *request, struct sigv4_signature *signature);

#endif
