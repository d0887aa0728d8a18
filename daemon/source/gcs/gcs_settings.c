#include "source/gcs/gcs_settings.h"

#include <stdlib.h>

#include "source/stores.h"

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
