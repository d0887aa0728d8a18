#include "source/s3/s3_settings.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "source/environment.h"
#include "source/s3/aws_profile.h"
#include "source/stores.h"

static const char *const addressing_names[] = {"auto", "path", "virtual", NULL};

/* clang-format off */
static const struct config_key keys[] = {
    {"sources.s3.enabled", CONFIG_BOOL, CONFIG_FIELD(s3_settings, base.is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from s3:// references."},
    {"sources.s3.endpoint", CONFIG_TEXT, CONFIG_FIELD(s3_settings, base.endpoint), .fallback = "", .may_be_empty = true,
     .environment = "AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL RUNAI_STREAMER_S3_ENDPOINT",
     .help = "Server of s3:// references. Empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, RUNAI_STREAMER_S3_ENDPOINT, the profile's, "
             "then AWS itself."},
    {"sources.s3.region", CONFIG_TEXT, CONFIG_FIELD(s3_settings, region), .fallback = "", .may_be_empty = true,
     .environment = "AWS_REGION AWS_DEFAULT_REGION",
     .help = "Region to sign for. Empty: AWS_REGION, AWS_DEFAULT_REGION, the profile's, then what the server says."},
    {"sources.s3.profile", CONFIG_TEXT, CONFIG_FIELD(s3_settings, profile), .fallback = "", .may_be_empty = true,
     .environment = "AWS_PROFILE AWS_DEFAULT_PROFILE",
     .help = "Profile of the AWS credentials and configuration files. Empty: AWS_PROFILE, then default."},
    {"sources.s3.addressing", CONFIG_ENUM, CONFIG_FIELD(s3_settings, addressing), .fallback = "auto", .names = addressing_names,
     .help = "Where the bucket's name stands in a URL: virtual in the host's name, path behind it. auto: path for servers that are "
             "not AWS and for buckets with a dot."},
    {"sources.s3.anonymous", CONFIG_BOOL, CONFIG_FIELD(s3_settings, is_anonymous), .fallback = "false",
     .help = "Signs nothing, for public buckets."},
    {"sources.s3.requester_pays", CONFIG_BOOL, CONFIG_FIELD(s3_settings, requester_pays), .fallback = "false",
     .environment = "AWS_REQUEST_PAYER",
     .help = "Agrees to pay for reading buckets whose owner does not, as AWS_REQUEST_PAYER=requester does."},
};
/* clang-format on */

const struct config_section s3_settings_section = {keys, sizeof keys / sizeof keys[0], sizeof(struct s3_settings)};

/* TENSORCAST_S3_ADDRESSING by name; RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING is what users of vLLM's streamer know. */
static enum s3_addressing addressing_of_environment(void)
{
    const char *name = getenv("TENSORCAST_S3_ADDRESSING"), *virtual = getenv("RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING");
    if (name && strcmp(name, "path") == 0)
        return S3_ADDRESSING_PATH;
    if (name && strcmp(name, "virtual") == 0)
        return S3_ADDRESSING_VIRTUAL;
    if ((name && *name && strcmp(name, "auto") != 0) || !virtual || !*virtual)
        return S3_ADDRESSING_AUTO;
    return strcmp(virtual, "0") == 0 || strcmp(virtual, "false") == 0 ? S3_ADDRESSING_PATH : S3_ADDRESSING_VIRTUAL;
}

/* botocore's order, before the names that every program knows. */
static const char *find_ca_file(const char *profile, struct arena *arena)
{
    struct aws_profiles *profiles = aws_profiles_load();
    const char *named = environment_get("AWS_CA_BUNDLE");
    if (!named)
        named = aws_profiles_get_from(profiles, AWS_FILE_CONFIG, *profile ? profile : "default", "ca_bundle");
    const char *ca_file = named ? arena_text(arena, named, strlen(named)) : NULL;
    aws_profiles_destroy(profiles);
    return ca_file;
}

void s3_settings_complete(const void *configured, void *settings, struct arena *arena)
{
    struct s3_settings *s3 = settings;
    const char *payer = getenv("AWS_REQUEST_PAYER"); /* "requester" as of GDAL and object_store; 1 as any other switch */
    (void)configured;
    s3->base.endpoint = stores_endpoint_url(s3->base.endpoint, arena);
    s3->ca_file = find_ca_file(s3->profile, arena);
    s3->requester_pays = s3->requester_pays || (payer && strcasecmp(payer, "requester") == 0);
    if (s3->addressing == S3_ADDRESSING_AUTO)
        s3->addressing = addressing_of_environment();
}
