#include "source/gcs/gcp_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/base64.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/signature.h"
#include "base/text.h"
#include "source/secret.h"

#define DEFAULT_TOKEN_URI "https://oauth2.googleapis.com/token"
#define SCOPE_READING "https://www.googleapis.com/auth/devstorage.read_only"
#define SCOPE_WRITING "https://www.googleapis.com/auth/devstorage.read_write"
enum { ASSERTION_LIFETIME_S = 3600, MAX_EXPIRES_S = 86400 };

static bool parse_object(const void *bytes, size_t count, const struct json_field *fields, size_t n_fields)
{
    struct arena arena;
    struct json json;
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    bool is_good = json_take_fields(&json, fields, n_fields) && json_end(&json);
    arena_fini(&arena);
    return is_good;
}

/* --- the file --- */

void gcp_key_clear(struct gcp_key *key)
{
    free(key->client_id);
    secret_free(key->client_secret);
    secret_free(key->refresh_token);
    free(key->client_email);
    secret_free(key->private_key);
    free(key->private_key_id);
    free(key->token_uri);
    free(key->quota_project_id);
    *key = (struct gcp_key){0};
}

static int check_key(struct gcp_key *key, const char *type, struct error *error)
{
    if (!type)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_CREDENTIALS_FILE", "it has no \"type\"");
    if (strcmp(type, "authorized_user") == 0)
        key->kind = GCP_USER;
    else if (strcmp(type, "service_account") == 0)
        key->kind = GCP_SERVICE_ACCOUNT;
    else
        return fail(error, ERROR_UNIMPLEMENTED, "CREDENTIALS_NOT_SUPPORTED",
                    "credentials of type %s are not supported; use a service account's key file, those that \"gcloud auth "
                    "application-default login\" makes for a user, or the metadata server of the machine (no file at all)",
                    text_show(type));
    if (key->kind == GCP_USER && (!key->client_id || !key->client_secret || !key->refresh_token))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_CREDENTIALS_FILE",
                    "an authorized_user needs client_id, client_secret and refresh_token");
    if (key->kind == GCP_SERVICE_ACCOUNT && (!key->client_email || !key->private_key))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_CREDENTIALS_FILE",
                    "a service_account needs client_email and private_key");
    if (!key->token_uri)
        key->token_uri = memory_copy_text(DEFAULT_TOKEN_URI);
    return 0;
}

int gcp_key_parse(const void *bytes, size_t count, struct gcp_key *key, struct error *error)
{
    char *type = NULL;
    *key = (struct gcp_key){0};
    const struct json_field fields[] = {
        {"type", &type, NULL},
        {"client_id", &key->client_id, NULL},
        {"client_secret", &key->client_secret, NULL},
        {"refresh_token", &key->refresh_token, NULL},
        {"client_email", &key->client_email, NULL},
        {"private_key", &key->private_key, NULL},
        {"private_key_id", &key->private_key_id, NULL},
        {"token_uri", &key->token_uri, NULL},
        {"quota_project_id", &key->quota_project_id, NULL},
    };
    int failed = 0;
    if (!parse_object(bytes, count, fields, sizeof fields / sizeof fields[0]))
        failed = fail(error, ERROR_INVALID_ARGUMENT, "BAD_CREDENTIALS_FILE", "it is no JSON object of credentials");
    if (!failed)
        failed = check_key(key, type, error);
    free(type);
    if (failed)
        gcp_key_clear(key);
    return failed;
}

/* --- what is posted --- */

/* {"alg": ...}.{"iss": ...} in base64, of a JSON web token. */
static char *claims_of(const struct gcp_key *key, bool may_write, int64_t unix_time)
{
    struct json_writer head = {0}, claims = {0};
    json_write_open(&head, '{');
    json_put_text(&head, "alg", "RS256");
    json_put_text(&head, "typ", "JWT");
    if (key->private_key_id)
        json_put_text(&head, "kid", key->private_key_id);
    json_write_close(&head, '}');
    json_write_open(&claims, '{');
    json_put_text(&claims, "iss", key->client_email);
    json_put_text(&claims, "scope", may_write ? SCOPE_WRITING : SCOPE_READING);
    json_put_text(&claims, "aud", key->token_uri);
    json_write_key(&claims, "iat");
    json_write_i64(&claims, unix_time);
    json_write_key(&claims, "exp");
    json_write_i64(&claims, unix_time + ASSERTION_LIFETIME_S);
    json_write_close(&claims, '}');
    char *first = base64_encode_url(head.text, head.length), *second = base64_encode_url(claims.text, claims.length);
    char *text = memory_print("%s.%s", first, second);
    free(first);
    free(second);
    free(head.text);
    free(claims.text);
    return text;
}

int gcp_key_form(const struct gcp_key *key, bool may_write, int64_t unix_time, char **form, struct error *error)
{
    *form = NULL;
    if (key->kind == GCP_USER) {
        *form = secret_form((const char *const[][2]){{"grant_type", "refresh_token"},
                                                     {"client_id", key->client_id},
                                                     {"client_secret", key->client_secret},
                                                     {"refresh_token", key->refresh_token},
                                                     {NULL}});
        return 0;
    }
    unsigned char *signature;
    size_t n_signature;
    char *claims = claims_of(key, may_write, unix_time);
    int failed =
        signature_rs256(key->private_key, strlen(key->private_key), claims, strlen(claims), &signature, &n_signature, error);
    if (!failed) {
        char *encoded = base64_encode_url(signature, n_signature), *assertion = memory_print("%s.%s", claims, encoded);
        *form = secret_form((const char *const[][2]){
            {"grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"}, {"assertion", assertion}, {NULL}});
        free(assertion);
        free(encoded);
        free(signature);
    }
    free(claims);
    return failed;
}

/* --- answers --- */

void gcp_token_clear(struct gcp_token *token)
{
    secret_free(token->text);
    *token = (struct gcp_token){0};
}

int gcp_token_parse(const void *bytes, size_t count, struct gcp_token *token, struct error *error)
{
    uint64_t expires = 0;
    *token = (struct gcp_token){0};
    const struct json_field fields[] = {{"access_token", &token->text, NULL}, {"expires_in", NULL, &expires}};
    if (parse_object(bytes, count, fields, 2) && token->text && secret_fits_header(token->text) && expires > 0) {
        token->expires_in_s = expires < MAX_EXPIRES_S ? (int64_t)expires : MAX_EXPIRES_S;
        return 0;
    }
    gcp_token_clear(token);
    return fail(error, ERROR_UNAVAILABLE, "BAD_CREDENTIALS_ANSWER", "the answer is no access token with its lifetime");
}

void gcp_token_complaint(const void *bytes, size_t count, char text[GCP_COMPLAINT_CHARS])
{
    char *code = NULL, *description = NULL;
    const struct json_field fields[] = {{"error", &code, NULL}, {"error_description", &description, NULL}};
    parse_object(bytes, count, fields, 2);
    bool says_more = description && *description;
    snprintf(text, GCP_COMPLAINT_CHARS, "%s%s%s", code ? text_show(code) : "", says_more ? ": " : "",
             says_more ? text_show(description) : "");
    free(code);
    free(description);
}
