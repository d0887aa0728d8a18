/* "s3://bucket/prefix" or "s3://bucket/key.safetensors": objects of Amazon S3 and of what speaks like it. Every range is
 * pinned by If-Match to the ETag that the listing told. */
#ifndef SOURCE_SOURCE_S3_H
#define SOURCE_SOURCE_S3_H

#include "source/store.h"

enum s3_addressing {                        /* where the bucket stands */
                     S3_ADDRESSING_AUTO,    /* what fits */
                     S3_ADDRESSING_PATH,    /* base/bucket/key */
                     S3_ADDRESSING_VIRTUAL, /* bucket.host/key */
};

struct s3_endpoint {
    const char *base; /* "https://host[:port][/path]" without a slash at the end; "" = Amazon's of the region */
    enum s3_addressing addressing;
};

struct s3_settings { /* keys "sources.s3.*" */
    struct store_settings base;
    const char *region, *profile;
    const char *ca_file; /* AWS_CA_BUNDLE, else the profile's ca_bundle; NULL = those of all stores */
    enum s3_addressing addressing;
    bool is_anonymous, requester_pays;
};

extern const struct store source_s3_store;

#endif
