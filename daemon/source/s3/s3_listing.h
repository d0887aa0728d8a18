/* One page of a listing by S3's ListObjectsV2. Pure; any thread. */
#ifndef SOURCE_S3_LISTING_H
#define SOURCE_S3_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum s3_checksum_hint { /* what the listing says about checksums of an object; their values only a HEAD gives */
                        S3_CHECKSUM_UNKNOWN,
                        S3_CHECKSUM_WHOLE, /* of an algorithm we know, and not of the parts only */
                        S3_CHECKSUM_USELESS,
};

struct s3_entry {
    char *key;
    char *etag; /* with its quotes; NULL when absent */
    uint64_t size_bytes;
    enum s3_checksum_hint checksum;
};

enum { S3_MAX_PAGE_ENTRIES = 10000 };

struct s3_listing {
    struct s3_entry *entries;
    size_t n_entries, capacity;
    char **prefixes; /* of deeper objects, up to and with the slash */
    size_t n_prefixes, prefixes_capacity;
    char *next_token; /* NULL = the last page */
};

int s3_listing_parse(const void *bytes, size_t count, struct s3_listing *listing, struct error *error);
void s3_listing_clear(struct s3_listing *listing);

/* An ETag as If-Match wants it: quotes are added when a server leaves them out. Malloced. */
char *s3_quote_etag(const char *etag);

#endif
