/* Temporary keys from AWS's Security Token Service. Blocks; any thread but the loop's. */
#ifndef SOURCE_AWS_STS_H
#define SOURCE_AWS_STS_H

#include "base/cancel.h"
#include "source/s3/aws_keys.h"
#include "source/http/http.h"

struct aws_sts {
    struct http_engine *http;
    const char *endpoint; /* "https://sts.eu-west-3.amazonaws.com"; NULL = that of the region */
    const char *region;   /* NULL = the global endpoint */
    const char *ca_file;  /* its certificate must be signed by; NULL = the engine's */
    const struct cancel *cancel;
};

struct aws_role {
    const char *arn;
    const char *session_name;     /* NULL = "tensorcast" */
    const char *external_id;      /* NULL = none */
    const char *duration_seconds; /* NULL = the role's */
};

int aws_sts_assume_role(const struct aws_sts *sts, const struct aws_role *role, const struct aws_keys *with,
                        struct aws_keys *keys, struct error *error);
/* `token_file` holds an OpenID token that proves who we are; read anew on every call. */
int aws_sts_assume_role_with_web_identity(const struct aws_sts *sts, const struct aws_role *role, const char *token_file,
                                          struct aws_keys *keys, struct error *error);

#endif
