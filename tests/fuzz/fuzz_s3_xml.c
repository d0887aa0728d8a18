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

static bool check_element(void *data, const char *path, const char *text)
{
    (void)text;
    if (!*path || path[0] == '/' || path[strlen(path) - 1] == '/' || ++*(size_t *)data > 1 << 24)
        abort();
    return true;
}

static void check_elements(const uint8_t *data, size_t size)
{
    size_t n_elements = 0;
    if (!xml_read(data, size, check_element, &n_elements) && !n_elements)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct aws_error said;
    struct aws_keys keys;
    struct error error;
    check_listing(data, size);
    check_elements(data, size);
    if (aws_error_parse(data, size, &said) && !said.code)
        abort();
    aws_error_clear(&said);
    if (aws_keys_parse_xml(data, size, &keys, &error) == 0 && (!keys.access_key || !keys.secret_key))
        abort();
    aws_keys_clear(&keys);
    return 0;
}
