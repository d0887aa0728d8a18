/* Keys "sources.s3.*" of the configuration. */
#ifndef SOURCE_S3_SETTINGS_H
#define SOURCE_S3_SETTINGS_H

#include "source/s3/s3_endpoint.h"
#include "source/store.h"

struct s3_settings {
    struct store_settings base;
    const char *region, *profile;
    const char *ca_file; /* AWS_CA_BUNDLE, else the profile's ca_bundle; NULL = those of all stores */
    enum s3_addressing addressing;
    bool is_anonymous, requester_pays;
};

extern const struct config_section s3_settings_section;
void s3_settings_complete(const void *configured, void *settings, struct arena *arena);

#endif
