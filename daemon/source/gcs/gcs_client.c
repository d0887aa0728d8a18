/* A bearer token in, a reason out: JSON errors of the API say by a word whether asking again helps. */
#include "source/gcs/gcs_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/url.h"
#include "source/gcs/gcp_credentials.h"
#include "source/gcs/gcs_answer.h"
#include "source/gcs/source_gcs.h"
#include "source/secret.h"

/* --- keys --- */

/* clang-format off */
static const struct config_key keys[] = {
    {"sources.gcs.enabled", CONFIG_BOOL, CONFIG_FIELD(gcs_settings, base.is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from gs:// references."},
    {"sources.gcs.endpoint", CONFIG_TEXT, CONFIG_FIELD(gcs_settings, base.endpoint), .fallback = "", .may_be_empty = true,
     .environment = "STORAGE_EMULATOR_HOST TENSORSTORE_GCS_HTTP_URL", .otherwise = "https://storage.googleapis.com",
     .help = "Server of gs:// references. Empty: STORAGE_EMULATOR_HOST, else https://storage.googleapis.com."},
    {"sources.gcs.credentials_file", CONFIG_PATH, CONFIG_FIELD(gcs_settings, credentials_file), .fallback = "", .may_be_empty = true,
     .environment = "GOOGLE_APPLICATION_CREDENTIALS",
     .help = "File with the credentials. Empty: GOOGLE_APPLICATION_CREDENTIALS, gcloud's own, then the metadata server."},
    {"sources.gcs.user_project", CONFIG_TEXT, CONFIG_FIELD(gcs_settings, user_project), .fallback = "", .may_be_empty = true,
     .environment = "GOOGLE_CLOUD_QUOTA_PROJECT",
     .help = "Project that pays for reading buckets whose owner does not. Empty: GOOGLE_CLOUD_QUOTA_PROJECT."},
    {"sources.gcs.anonymous", CONFIG_BOOL, CONFIG_FIELD(gcs_settings, is_anonymous), .fallback = "false",
     .help = "Sends no credentials, for public buckets."},
};
/* clang-format on */

const struct config_section gcs_settings_section = {keys, sizeof keys / sizeof keys[0], sizeof(struct gcs_settings)};

void gcs_settings_complete(const void *configured, void *settings, struct arena *arena)
{
    const struct gcs_settings *was = configured;
    struct gcs_settings *gcs = settings;
    const char *emulator = getenv("STORAGE_EMULATOR_HOST");
    gcs->base.endpoint = stores_endpoint_url(gcs->base.endpoint, arena);
    if (!*was->base.endpoint && emulator && *emulator)
        gcs->is_anonymous = true; /* an emulator asks for nothing and must not be sent a token */
}

/* --- the client --- */

struct gcs_client {
    struct stores *stores;
    const struct gcs_settings *settings;
    struct gcp_credentials *credentials;
};

void *gcs_client_connect(struct stores *stores)
{
    const struct gcs_settings *settings = stores_settings(stores, &source_gcs_store);
    struct gcs_client *client = memory_alloc(sizeof *client);
    const struct gcp_credentials_options credentials = {.http = stores->http,
                                                        .file = settings->credentials_file,
                                                        .anonymous = settings->is_anonymous,
                                                        .fence = &stores->fence,
                                                        .may_write = stores->may_write};
    client->stores = stores;
    client->settings = settings;
    client->credentials = gcp_credentials_create(&credentials);
    return client;
}

void gcs_client_disconnect(void *kept)
{
    struct gcs_client *client = kept;
    gcp_credentials_destroy(client->credentials);
    free(client);
}

struct gcs_client *gcs_client_of(struct stores *stores)
{
    return stores_client(stores, &source_gcs_store);
}

void gcs_client_describe(struct stores *stores, struct store_line *line)
{
    const struct gcs_client *client = gcs_client_of(stores);
    redact(client->settings->base.endpoint, line->endpoint, sizeof line->endpoint);
    line->is_configured |= gcp_credentials_describe(client->credentials, line->credentials);
}

int gcs_client_check(struct gcs_client *client, struct error *error)
{
    return http_fence_check(&client->stores->fence, client->settings->base.endpoint, error);
}

/* path: "storage/v1" or "upload/storage/v1". */
static char *url_below(const struct gcs_client *client, const char *path, const char *bucket, const char *object,
                       const char *query)
{
    const char *payer = client->settings->user_project;
    char *name = url_encode(bucket, strlen(bucket), false);
    char *key = object ? url_encode(object, strlen(object), false) : memory_copy_text("");
    char *project = url_encode(payer, strlen(payer), false);
    char *url = memory_print("%s/%s/b/%s/o%s%s?%s%s%s", client->settings->base.endpoint, path, name, object ? "/" : "", key,
                             query, *project ? "&userProject=" : "", project);
    free(name);
    free(key);
    free(project);
    return url;
}

char *gcs_client_url(struct gcs_client *client, const char *bucket, const char *object, const char *query)
{
    return url_below(client, "storage/v1", bucket, object, query);
}

char *gcs_client_upload_url(struct gcs_client *client, const char *bucket, const char *query)
{
    return url_below(client, "upload/storage/v1", bucket, NULL, query);
}

/* --- requests --- */

int gcs_client_prepare(void *data, struct http_attempt *attempt, struct error *error)
{
    struct gcs_client *client = data;
    struct gcp_access access;
    if (gcp_credentials_get(client->credentials, client->stores->cancel, &access, error) < 0)
        return -1;
    const char *payer = client->settings->user_project;
    const char *project = *payer ? payer : access.quota_project;
    attempt->credential = access.generation;
    if (access.token) {
        char *value = memory_print("Bearer %s", access.token);
        http_attempt_add_header(attempt, "Authorization", value);
        secret_free(value);
    }
    if (project && *project && !strpbrk(project, "\r\n"))
        http_attempt_add_header(attempt, "x-goog-user-project", project);
    gcp_access_clear(&access);
    return 0;
}

/* --- answers --- */

enum http_verdict gcs_client_judge(void *data, const struct http_reply *reply, struct error *error)
{
    /* a 403 of these means "not so fast" */
    static const char *const rate_limits[] = {"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"};
    struct gcs_client *client = data;
    struct gcs_complaint complaint;
    int status = reply->head.status;
    char who[GCP_DESCRIBE_CHARS];
    gcs_complaint_parse(reply->body ? reply->body : "", reply->body_bytes, &complaint);
    enum http_verdict verdict = http_judge(reply, error);
    if (status == 401)
        verdict = HTTP_RETRY_RENEWED;
    else if (status == 403 && text_is_one_of(complaint.reason, rate_limits, sizeof rate_limits / sizeof rate_limits[0]))
        verdict = HTTP_THROTTLED;
    fail(error, http_error_code(status, verdict), "GCS_ERROR", "Google Cloud Storage answers %d%s%s%s%s", status,
         complaint.reason[0] ? " " : "", complaint.reason, complaint.message[0] ? ": " : "", complaint.message);
    if (error->code == ERROR_PERMISSION_DENIED) {
        gcp_credentials_describe(client->credentials, who);
        error_prefix(error, "with the credentials %s", who);
    }
    if (verdict == HTTP_RETRY_RENEWED)
        gcp_credentials_refused(client->credentials, reply->credential);
    if (status == 400 && strstr(complaint.message, "requester pays"))
        error_prefix(error, "set sources.gcs.user_project to the project that pays");
    return verdict;
}
