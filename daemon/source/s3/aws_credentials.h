/* Which keys sign requests to S3: the chain that botocore walks, in its order, and the keys it found, renewed in time.
 *
 *   AWS_ACCESS_KEY_ID ... in the environment; a profile with role_arn (STS AssumeRole from source_profile or
 *   credential_source); web identity (AWS_WEB_IDENTITY_TOKEN_FILE or the profile's); keys of the shared credentials file;
 *   credential_process; keys of the config file; the container's endpoint; instance metadata.
 *
 * The first that is configured wins; when it fails, that is the error: silently going on would sign as another identity.
 * Nothing is asked before the first aws_credentials_get(). One caller at a time renews, others keep the old keys while these
 * are valid, or wait. Thread-safe. */
#ifndef SOURCE_AWS_CREDENTIALS_H
#define SOURCE_AWS_CREDENTIALS_H

#include <stdbool.h>

#include "base/cancel.h"
#include "source/s3/aws_keys.h"
#include "source/http/http.h"

struct aws_credentials;

struct aws_credentials_options {
    struct http_engine *http;
    const char *profile;  /* "" or NULL = "default"; when AWS_PROFILE does not say the same, keys in the environment are
                             not looked at: a profile of the configuration comes first */
    const char *region;   /* of STS; "" or NULL = the profile's */
    const char *ca_file;  /* of STS; NULL = the engine's. Not copied */
    bool anonymous;       /* the only way not to sign */
    int64_t (*now)(void); /* unix time; NULL = the clock's */
};

struct aws_credentials *aws_credentials_create(const struct aws_credentials_options *options); /* copies the texts */
void aws_credentials_destroy(struct aws_credentials *credentials);                             /* accepts NULL */

/* The keys to sign with now, a copy. May block while they are fetched. PERMISSION_DENIED when there are none, with a
 * message that says where they were looked for. */
int aws_credentials_get(struct aws_credentials *credentials, const struct cancel *cancel, struct aws_keys *keys,
                        struct error *error);
/* A server said of keys of this generation that they are expired or unknown: the next get looks for others. */
void aws_credentials_refused(struct aws_credentials *credentials, uint64_t generation);
/* Whether keys would come from the instance's metadata: then the region may, too. Asks no server. */
bool aws_credentials_of_instance(const struct aws_credentials *credentials);

enum { AWS_DESCRIBE_CHARS = 256 };
/* "environment (AWS_ACCESS_KEY_ID)", "profile x of /root/.aws/credentials", ...: what would be used, without asking anyone.
 */
void aws_credentials_describe(struct aws_credentials *credentials, char text[AWS_DESCRIBE_CHARS]);

#endif
