/* Keys "sources.gcs.*" of the configuration. */
#ifndef SOURCE_GCS_SETTINGS_H
#define SOURCE_GCS_SETTINGS_H

#include "source/store.h"

struct gcs_settings {
    struct store_settings base;
    const char *credentials_file;
    const char *user_project; /* who pays */
    bool is_anonymous;
};

extern const struct config_section gcs_settings_section;
void gcs_settings_complete(const void *configured, void *settings, struct arena *arena);

#endif
