/* Who we are for Google Cloud Storage: Application Default Credentials, in the order that Google's libraries look for them.
 *
 *   the file that the configuration or GOOGLE_APPLICATION_CREDENTIALS names; gcloud's file below CLOUDSDK_CONFIG or
 *   ~/.config/gcloud; the metadata server of the machine, past every proxy.
 *
 * The first that is configured wins; when it fails, that is the error. Nothing is asked before the first get; the token is
 * renewed 225 s before it expires, by one caller at a time. Thread-safe. */
#ifndef SOURCE_GCP_CREDENTIALS_H
#define SOURCE_GCP_CREDENTIALS_H

#include <stdbool.h>

#include "base/cancel.h"
#include "base/error.h"
#include "source/http/http.h"

struct gcp_credentials;

struct gcp_credentials_options {
    struct http_engine *http;
    const char *file;               /* "" or NULL = look for gcloud's */
    bool anonymous;                 /* the only way to send no token */
    bool may_write;                 /* what tokens of a service account are asked for; a user's may what the user may */
    const struct http_fence *fence; /* where secrets may be sent */
    int64_t (*now)(void);           /* unix time; NULL = the clock's */
};

struct gcp_credentials *gcp_credentials_create(const struct gcp_credentials_options *options); /* copies the text */
void gcp_credentials_destroy(struct gcp_credentials *credentials);                             /* accepts NULL */

struct gcp_access {      /* malloced texts; gcp_access_clear() */
    char *token;         /* NULL = anonymous */
    char *quota_project; /* NULL = none */
    uint64_t generation;
};
int gcp_credentials_get(struct gcp_credentials *credentials, const struct cancel *cancel, struct gcp_access *access,
                        struct error *error);
void gcp_access_clear(struct gcp_access *access); /* wipes the token */
/* A server answered 401 to the token of this generation. */
void gcp_credentials_refused(struct gcp_credentials *credentials, uint64_t generation);

enum { GCP_DESCRIBE_CHARS = 256 };
/* "service account x@y of /path", "metadata server", ...: what would be used, without asking anyone. */
bool gcp_credentials_describe(struct gcp_credentials *credentials, char text[GCP_DESCRIBE_CHARS]);

#endif
