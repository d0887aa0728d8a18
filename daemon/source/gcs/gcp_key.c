/* Flat JSON objects are read by tables of names; what is not in the table is skipped. */
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
#include "base/url.h"
#include "source/http/http.h"
#include "source/secret.h"

#define DEFAULT_TOKEN_URI "https://oauth2.googleapis.com/token"
#define SCOPE_READING "https://www.googleapis.com/auth/devstorage.read_only"
#define SCOPE_WRITING "https://www.googleapis.com/auth/devstorage.read_write"
enum { ASSERTION_LIFETIME_S = 3600, MAX_EXPIRES_S = 86400 };

/* --- a flat object --- */

struct field {
    const char *name;
    char **text; /* one of the two */
    uint64_t *number;
};

static bool take_field(struct json *json, const struct json_string *key, const struct field *fields, size_t n_fields)
{
    struct json_string value;
    const struct field *field = NULL;
    for (size_t i = 0; i < n_fields && !field; i++) {
        bool same = strlen(fields[i].name) == key->length && memcmp(fields[i].name, key->text, key->length) == 0;
        field = same ? &fields[i] : NULL;
    }
    if (!field || json_peek(json) == JSON_NULL)
        return json_skip(json);
    if (field->number)
        return json_take_u64(json, field->number);
    if (!json_take_string(json, &value))
        return false;
    if (*field->text || memchr(value.text, '\0', value.length))
        return json_fail(json, "a field occurs twice or holds a NUL");
    *field->text = memory_print("%.*s", (int)value.length, value.text);
    return true;
}

static bool parse_object(const void *bytes, size_t count, const struct field *fields, size_t n_fields)
{
    struct arena arena;
    struct json json;
    struct json_string key;
    if (count > 1 << 20)
        return false;
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    if (json_begin_object(&json)) {
        while (json_next_key(&json, &key))
            take_field(&json, &key, fields, n_fields);
    }
    bool good = json_end(&json);
    arena_fini(&arena);
    return good;
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
    char text[TEXT_NAME_CHARS];
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
                    text_escape(type, strlen(type), text));
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
    const struct field fields[] = {
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

static void add_pair(FILE *out, const char *name, const char *value)
{
    char *encoded = url_encode(value, strlen(value), false);
    fprintf(out, "&%s=%s", name, encoded);
    secret_free(encoded);
}

static char *user_form(const struct gcp_key *key)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out)
        abort();
    fputs("grant_type=refresh_token", out);
    add_pair(out, "client_id", key->client_id);
    add_pair(out, "client_secret", key->client_secret);
    add_pair(out, "refresh_token", key->refresh_token);
    if (fclose(out) != 0)
        abort();
    return text;
}

/* {"alg": ...}.{"iss": ...} in base64, of a JSON web token. */
static char *claims_of(const struct gcp_key *key, bool may_write, int64_t unix_time)
{
    struct json_writer head = {0}, claims = {0};
    json_write_open(&head, '{');
    json_write_key(&head, "alg");
    json_write_text(&head, "RS256");
    json_write_key(&head, "typ");
    json_write_text(&head, "JWT");
    if (key->private_key_id) {
        json_write_key(&head, "kid");
        json_write_text(&head, key->private_key_id);
    }
    json_write_close(&head, '}');
    json_write_open(&claims, '{');
    json_write_key(&claims, "iss");
    json_write_text(&claims, key->client_email);
    json_write_key(&claims, "scope");
    json_write_text(&claims, may_write ? SCOPE_WRITING : SCOPE_READING);
    json_write_key(&claims, "aud");
    json_write_text(&claims, key->token_uri);
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

static int account_form(const struct gcp_key *key, bool may_write, int64_t unix_time, char **form, struct error *error)
{
    unsigned char *signature;
    size_t n_signature;
    char *claims = claims_of(key, may_write, unix_time);
    int failed =
        signature_rs256(key->private_key, strlen(key->private_key), claims, strlen(claims), &signature, &n_signature, error);
    if (!failed) {
        char *encoded = base64_encode_url(signature, n_signature);
        *form = memory_print("grant_type=urn%%3Aietf%%3Aparams%%3Aoauth%%3Agrant-type%%3Ajwt-bearer&assertion=%s.%s", claims,
                             encoded);
        free(encoded);
        free(signature);
    }
    free(claims);
    return failed;
}

int gcp_key_form(const struct gcp_key *key, bool may_write, int64_t unix_time, char **form, struct error *error)
{
    *form = NULL;
    if (key->kind == GCP_SERVICE_ACCOUNT)
        return account_form(key, may_write, unix_time, form, error);
    *form = user_form(key);
    return 0;
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
    const struct field fields[] = {{"access_token", &token->text, NULL}, {"expires_in", NULL, &expires}};
    if (parse_object(bytes, count, fields, 2) && token->text && secret_fits_header(token->text) && expires > 0) {
        token->expires_in_s = expires < MAX_EXPIRES_S ? (int64_t)expires : MAX_EXPIRES_S;
        return 0;
    }
    gcp_token_clear(token);
    return fail(error, ERROR_UNAVAILABLE, "BAD_CREDENTIALS_ANSWER", "the answer is no access token with its lifetime");
}

void gcp_token_complaint(const void *bytes, size_t count, char text[GCP_COMPLAINT_CHARS])
{
    char *code = NULL, *description = NULL, shown[TEXT_NAME_CHARS] = "", more[TEXT_NAME_CHARS] = "";
    const struct field fields[] = {{"error", &code, NULL}, {"error_description", &description, NULL}};
    parse_object(bytes, count, fields, 2);
    if (code)
        text_escape(code, strlen(code), shown);
    if (description)
        text_escape(description, strlen(description), more);
    snprintf(text, GCP_COMPLAINT_CHARS, "%s%s%s", shown, *more ? ": " : "", more);
    free(code);
    free(description);
}
