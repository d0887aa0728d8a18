/* Where an object of S3 lies, as a URL. Pure; any thread. */
#ifndef SOURCE_S3_ENDPOINT_H
#define SOURCE_S3_ENDPOINT_H

#include <stdbool.h>

#include "base/error.h"

enum s3_addressing {                        /* where the bucket stands */
                     S3_ADDRESSING_AUTO,    /* what fits */
                     S3_ADDRESSING_PATH,    /* base/bucket/key */
                     S3_ADDRESSING_VIRTUAL, /* bucket.host/key */
};

struct s3_endpoint {
    const char *base; /* "https://host[:port][/path]" without a slash at the end; "" = Amazon's of the region */
    enum s3_addressing addressing;
};

/* 0 for names that buckets may have; such a name cannot change the meaning of a URL. */
int s3_endpoint_check_bucket(const char *bucket, struct error *error);
/* "https://bucket.s3.eu-west-3.amazonaws.com/a/b%20c?query"; key may be "", query NULL. Malloced. */
char *s3_endpoint_url(const struct s3_endpoint *endpoint, const char *bucket, const char *region, const char *key,
                      const char *query);

#endif
