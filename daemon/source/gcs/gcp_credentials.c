/* A file is read anew for every renewal, because it may have been replaced. Without any file the metadata server is asked by
 * name, then by address; an answer without its Metadata-Flavor comes from another server and is refused. */
#include "source/gcs/gcp_credentials.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/environment.h"
#include "source/gcs/gcp_key.h"
#include "source/secret.h"
#include "source/renewal.h"

enum {
    MAX_FILE_BYTES = 64 << 10,
    MAX_ANSWER_BYTES = 64 << 10,
    TIMEOUT_MS = 30000,
    METADATA_TIMEOUT_S = 3,
    METADATA_TRIES = 3
};

struct gcp_credentials {
    struct gcp_credentials_options options; /* its text is ours */
    struct renewal renewal;                 /* of a struct gcp_access */
};

void gcp_access_clear(struct gcp_access *access)
{
    secret_free(access->token);
    free(access->quota_project);
    *access = (struct gcp_access){0};
}

/* --- the file --- */

/* gcloud's, where it would be; malloced, "" when nothing says where. */
static char *gcloud_path(void)
{
    const char *folder = environment_get("CLOUDSDK_CONFIG"), *home = environment_get("HOME");
    if (folder)
        return memory_print("%s/application_default_credentials.json", folder);
    return home ? memory_print("%s/.config/gcloud/application_default_credentials.json", home) : memory_copy_text("");
}

/* The file that counts, malloced, or NULL: the metadata server. One that is named must exist, gcloud's need not. */
static char *find_file(const struct gcp_credentials *credentials)
{
    if (*credentials->options.file)
        return memory_copy_text(credentials->options.file);
    char *path = gcloud_path();
    if (access(path, R_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static int read_key_file(const char *path, struct gcp_key *key, struct error *error)
{
    size_t length;
    char *text = secret_read_file(path, MAX_FILE_BYTES, &length);
    if (!text)
        return fail_errno(error, errno, "Google credentials file %s", text_show(path));
    int failed = gcp_key_parse(text, length <= MAX_FILE_BYTES ? length : 0, key, error);
    secret_free(text);
    return failed ? error_prefix(error, "Google credentials file %s", text_show(path)) : 0;
}

/* --- a token for a key --- */

static int post_form(const struct gcp_credentials *credentials, const char *url, const char *form,
                     const struct cancel *cancel, struct gcp_token *token, struct error *error)
{
    static const struct http_header type = {"Content-Type", "application/x-www-form-urlencoded"};
    const struct http_call call = {.method = "POST",
                                   .url = url,
                                   .headers = &type,
                                   .n_headers = 1,
                                   .body = form,
                                   .body_bytes = strlen(form),
                                   .max_reply_bytes = MAX_ANSWER_BYTES,
                                   .accept_any_status = true,
                                   .timeout_ms = TIMEOUT_MS,
                                   .cancel = cancel};
    struct http_reply reply = {0};
    char complaint[GCP_COMPLAINT_CHARS];
    int failed = http_fetch(credentials->options.http, &call, &reply, error);
    if (!failed && reply.head.status == 200) {
        failed = gcp_token_parse(reply.body, reply.body_bytes, token, error);
    } else if (!failed) {
        gcp_token_complaint(reply.body, reply.body_bytes, complaint);
        failed = fail(error, reply.head.status >= 500 ? ERROR_UNAVAILABLE : ERROR_PERMISSION_DENIED, "TOKEN_REFUSED",
                      "no token is given: HTTP %d %s", reply.head.status, complaint);
    }
    http_reply_clear(&reply);
    return failed;
}

static int64_t now_of(const struct gcp_credentials *credentials)
{
    return credentials->options.now ? credentials->options.now() : (int64_t)time(NULL);
}

static int token_of_file(const struct gcp_credentials *credentials, const char *path, const struct cancel *cancel,
                         struct gcp_token *token, char **quota_project, struct error *error)
{
    const struct gcp_credentials_options *options = &credentials->options;
    struct gcp_key key;
    char *form = NULL;
    if (read_key_file(path, &key, error) < 0)
        return -1;
    int failed = http_fence_check(options->fence, key.token_uri, error);
    if (!failed)
        failed = gcp_key_form(&key, options->may_write, now_of(credentials), &form, error);
    if (!failed)
        failed = post_form(credentials, key.token_uri, form, cancel, token, error);
    secret_free(form);
    *quota_project = key.quota_project_id;
    key.quota_project_id = NULL;
    gcp_key_clear(&key);
    return failed ? error_prefix(error, "Google credentials file %s", text_show(path)) : 0;
}

/* --- the metadata server --- */

static int ask_metadata(const struct gcp_credentials *credentials, const char *host, uint32_t tries,
                        const struct cancel *cancel, struct gcp_token *token, struct error *error)
{
    static const struct http_header flavor = {"Metadata-Flavor", "Google"};
    const char *timeout = environment_get("GCE_METADATA_TIMEOUT");
    long seconds = timeout ? strtol(timeout, NULL, 10) : 0;
    uint64_t timeout_ms = 1000 * (uint64_t)(seconds > 0 && seconds <= 600 ? seconds : METADATA_TIMEOUT_S);
    char *url = memory_print("http://%s/computeMetadata/v1/instance/service-accounts/default/token", host);
    const struct http_call call = {.url = url,
                                   .headers = &flavor,
                                   .n_headers = 1,
                                   .max_reply_bytes = MAX_ANSWER_BYTES,
                                   .no_proxy = true,
                                   .timeout_ms = timeout_ms * tries,
                                   .max_tries = tries,
                                   .cancel = cancel};
    struct http_reply reply = {0};
    int failed = http_fetch(credentials->options.http, &call, &reply, error);
    const char *answered = failed ? NULL : http_head_find(&reply.head, "metadata-flavor");
    if (!failed && (!answered || strcmp(answered, "Google") != 0))
        failed = fail(error, ERROR_PERMISSION_DENIED, "NO_METADATA_SERVER",
                      "the answer has no \"Metadata-Flavor: Google\": this is not the metadata server");
    if (!failed)
        failed = gcp_token_parse(reply.body, reply.body_bytes, token, error);
    http_reply_clear(&reply);
    free(url);
    return failed;
}

static int fail_nothing(struct error *error)
{
    char reason[500], *path = gcloud_path(), owner[ENVIRONMENT_OWNER_CHARS];
    snprintf(reason, sizeof reason, "%s", error->message);
    fail(
        error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS",
        "%s has no Google credentials; set GOOGLE_APPLICATION_CREDENTIALS %s, run gcloud auth application-default login, or "
        "for a public bucket set sources.gcs.anonymous: true. Tried:\n"
        "environment: GOOGLE_APPLICATION_CREDENTIALS is not set\n"
        "gcloud: there is no %s\n"
        "metadata server: %s",
        environment_owner(owner), environment_remedy(), text_show(path), reason);
    free(path);
    return environment_note(error, "GOOGLE_APPLICATION_CREDENTIALS CLOUDSDK_CONFIG");
}

static bool metadata_allowed(void)
{
    const char *skip = environment_get("NO_GCE_CHECK");
    return !skip || strcasecmp(skip, "true") != 0;
}

static int token_of_machine(const struct gcp_credentials *credentials, const struct cancel *cancel, struct gcp_token *token,
                            struct error *error)
{
    const char *host = environment_get("GCE_METADATA_HOST"), *address = environment_get("GCE_METADATA_IP");
    if (!host)
        host = environment_get("GCE_METADATA_ROOT");
    if (!metadata_allowed()) {
        fail(error, ERROR_PERMISSION_DENIED, "NO_CREDENTIALS", "NO_GCE_CHECK is set");
        return fail_nothing(error);
    }
    if (ask_metadata(credentials, host ? host : "metadata.google.internal", METADATA_TRIES, cancel, token, error) == 0)
        return 0;
    bool elsewhere = !host && error->code != ERROR_CANCELLED; /* a host that was named is meant */
    if (elsewhere && ask_metadata(credentials, address ? address : "169.254.169.254", 1, cancel, token, error) == 0)
        return 0;
    return error->code == ERROR_CANCELLED ? -1 : fail_nothing(error);
}

/* --- the whole --- */

static int fetch_access(void *owner, const struct cancel *cancel, void **value, int64_t *expires, struct error *error)
{
    const struct gcp_credentials *credentials = owner;
    struct gcp_token token = {0};
    char *quota_project = NULL, *path = find_file(credentials);
    int64_t asked_at = now_of(credentials);
    int failed = path ? token_of_file(credentials, path, cancel, &token, &quota_project, error)
                      : token_of_machine(credentials, cancel, &token, error);
    free(path);
    if (failed) {
        free(quota_project);
        return -1;
    }
    struct gcp_access *access = memory_alloc(sizeof *access);
    *access = (struct gcp_access){.token = token.text, .quota_project = quota_project};
    *value = access;
    *expires = asked_at + token.expires_in_s;
    return 0;
}

static void copy_access(const void *value, void *out)
{
    const struct gcp_access *from = value;
    *(struct gcp_access *)out = (struct gcp_access){
        .token = memory_copy_text(from->token),
        .quota_project = memory_copy_text(from->quota_project),
    };
}

static void destroy_access(void *value)
{
    gcp_access_clear(value);
    free(value);
}

/* Not earlier: the metadata server hands out the same token until then. */
static const struct renewal_rules rules = {.what = "tokens for Google Cloud Storage",
                                           .before_s = 225,
                                           .fetch = fetch_access,
                                           .copy = copy_access,
                                           .destroy = destroy_access};

struct gcp_credentials *gcp_credentials_create(const struct gcp_credentials_options *options)
{
    struct gcp_credentials *credentials = memory_alloc(sizeof *credentials);
    credentials->options = *options;
    credentials->options.file = memory_copy_text(options->file ? options->file : "");
    renewal_init(&credentials->renewal, &rules, credentials, options->now);
    return credentials;
}

void gcp_credentials_destroy(struct gcp_credentials *credentials)
{
    if (!credentials)
        return;
    renewal_fini(&credentials->renewal);
    memory_free_const(credentials->options.file);
    free(credentials);
}

int gcp_credentials_get(struct gcp_credentials *credentials, const struct cancel *cancel, struct gcp_access *access,
                        struct error *error)
{
    uint64_t generation;
    *access = (struct gcp_access){0};
    if (credentials->options.anonymous)
        return 0;
    if (renewal_get(&credentials->renewal, cancel, access, &generation, error) < 0)
        return -1;
    access->generation = generation;
    return 0;
}

void gcp_credentials_refused(struct gcp_credentials *credentials, uint64_t generation)
{
    renewal_refuse(&credentials->renewal, generation);
}

bool gcp_credentials_describe(struct gcp_credentials *credentials, char text[GCP_DESCRIBE_CHARS])
{
    bool is_anonymous = credentials->options.anonymous;
    char *path = is_anonymous ? NULL : find_file(credentials);
    struct gcp_key key;
    struct error error;
    if (!path) {
        snprintf(text, GCP_DESCRIBE_CHARS, "%s",
                 is_anonymous         ? "anonymous"
                 : metadata_allowed() ? "metadata server (nothing else is configured)"
                                      : "none");
        return is_anonymous;
    }
    if (read_key_file(path, &key, &error) < 0) {
        snprintf(text, GCP_DESCRIBE_CHARS, "file %.120s (%s)", text_show(path), error.reason);
    } else {
        if (key.kind == GCP_SERVICE_ACCOUNT)
            snprintf(text, GCP_DESCRIBE_CHARS, "service account %.100s of %.120s", text_show(key.client_email),
                     text_show(path));
        else
            snprintf(text, GCP_DESCRIBE_CHARS, "authorized user of %.120s", text_show(path));
        gcp_key_clear(&key);
    }
    free(path);
    return true;
}
