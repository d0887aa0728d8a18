/* What S3 and STS answer: pages of listings, errors, keys. Reaches xml.c, s3_listing.c and aws_keys.c. Whatever is accepted
 * makes sense: keys without NULs, a next page only where it is named. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/aws_keys.h"
#include "source/s3/s3_listing.h"
#include "source/s3/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_listing(const uint8_t *data, size_t size)
{
    struct s3_listing listing;
    struct error error;
    if (s3_listing_parse(data, size, &listing, &error) < 0) {
        if (error.code == ERROR_OK || !error.message[0] || listing.n_entries)
            abort();
        return;
    }
    for (size_t i = 0; i < listing.n_entries; i++) {
        if (!listing.entries[i].key || (listing.entries[i].etag && strlen(listing.entries[i].etag) < 2))
            abort();
    }
    if (listing.next_token && !*listing.next_token)
        abort();
    s3_listing_clear(&listing);
}

/* Skipping a document and walking through it agree on whether it is well formed. */
static bool walk(struct xml *xml)
{
    struct xml_name name;
    while (xml_next(xml, &name))
        walk(xml);
    return xml_end(xml);
}

static void check_walk(const uint8_t *data, size_t size)
{
    struct xml skipped, walked;
    struct xml_name name;
    xml_init(&skipped, data, size);
    xml_init(&walked, data, size);
    bool entered = xml_next(&skipped, &name) && xml_skip(&skipped);
    if ((entered && xml_end(&skipped)) != walk(&walked))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct aws_error said;
    struct aws_keys keys;
    struct error error;
    check_listing(data, size);
    check_walk(data, size);
    if (aws_error_parse(data, size, &said) && !said.code)
        abort();
    aws_error_clear(&said);
    if (aws_keys_parse_xml(data, size, &keys, &error) == 0 && (!keys.access_key || !keys.secret_key))
        abort();
    aws_keys_clear(&keys);
    return 0;
}
