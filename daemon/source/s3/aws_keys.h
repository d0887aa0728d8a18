/* Keys that sign requests to AWS, and the answers that carry them: JSON from metadata services and credential processes,
 * XML from STS. Also the errors of AWS, which S3 and STS write alike. Pure; any thread. */
#ifndef SOURCE_AWS_KEYS_H
#define SOURCE_AWS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct aws_keys {     /* malloced texts; aws_keys_clear() */
    char *access_key; /* NULL = anonymous: requests are not signed */
    char *secret_key;
    char *session_token; /* NULL = a permanent key */
    int64_t expires;     /* unix time; 0 = never */
    uint64_t generation; /* which renewal they come from, for aws_credentials_refused() */
};

void aws_keys_clear(struct aws_keys *keys); /* wipes the secrets */
void aws_keys_copy(struct aws_keys *to, const struct aws_keys *from);

/* {"AccessKeyId": , "SecretAccessKey": , "Token" or "SessionToken": , "Expiration": }; messages never show values. */
int aws_keys_parse_json(const void *bytes, size_t count, struct aws_keys *keys, struct error *error);
/* <AssumeRoleResponse> and <AssumeRoleWithWebIdentityResponse>. */
int aws_keys_parse_xml(const void *bytes, size_t count, struct aws_keys *keys, struct error *error);

/* "2026-11-21T15:37:10Z", also with fractions of a second or "+00:00". */
int aws_parse_time(const char *text, int64_t *unix_time);

struct aws_error { /* malloced texts or NULL; aws_error_clear() */
    char *code, *message, *region;
};

/* <Error>, or <ErrorResponse><Error>; false when it is neither (the texts are NULL then). */
bool aws_error_parse(const void *bytes, size_t count, struct aws_error *found);
void aws_error_clear(struct aws_error *found);

#endif
