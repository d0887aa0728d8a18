/* What Google's credentials are made of: the JSON file of Application Default Credentials, the signed assertion of a service
 * account, and the token endpoint's answer. Pure; any thread. Messages never show secrets. */
#ifndef SOURCE_GCP_KEY_H
#define SOURCE_GCP_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum gcp_key_kind { GCP_USER, GCP_SERVICE_ACCOUNT };

struct gcp_key { /* malloced texts; gcp_key_clear() */
    enum gcp_key_kind kind;
    char *client_id, *client_secret, *refresh_token;   /* of a user */
    char *client_email, *private_key, *private_key_id; /* of a service account */
    char *token_uri;                                   /* where tokens are had */
    char *quota_project_id;                            /* NULL = none */
};

/* Other kinds of files (external_account, impersonated_service_account, ...) are refused by name: UNIMPLEMENTED. */
int gcp_key_parse(const void *bytes, size_t count, struct gcp_key *key, struct error *error);
void gcp_key_clear(struct gcp_key *key);

/* The body of a POST to token_uri, malloced; to be wiped. */
int gcp_key_form(const struct gcp_key *key, bool may_write, int64_t unix_time, char **form, struct error *error);

struct gcp_token {
    char *text; /* malloced */
    int64_t expires_in_s;
};
int gcp_token_parse(const void *bytes, size_t count, struct gcp_token *token, struct error *error);
void gcp_token_clear(struct gcp_token *token);

/* "invalid_grant: Token has been expired or revoked." of an error answer, escaped; "" when it says nothing. */
enum { GCP_COMPLAINT_CHARS = 420 };
void gcp_token_complaint(const void *bytes, size_t count, char text[GCP_COMPLAINT_CHARS]);

#endif
