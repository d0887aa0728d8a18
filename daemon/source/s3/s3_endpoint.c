/* By default: buckets are part of the host at Amazon, unless a dot in their name would break its certificate, and part of
 * the path elsewhere, where nobody can be expected to have a wild card in the DNS. */
#include "source/s3/s3_endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"

int s3_endpoint_check_bucket(const char *bucket, struct error *error)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    char text[TEXT_NAME_CHARS];
    size_t length = strlen(bucket);
    if (length > 0 && length <= 255 && strspn(bucket, allowed) == length && bucket[0] != '.' && bucket[0] != '-')
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE",
                "%s cannot be the name of a bucket: letters, digits, dots, dashes and underscores only",
                text_escape(bucket, length, text));
}

char *s3_endpoint_url(const struct s3_endpoint *endpoint, const char *bucket, const char *region, const char *key,
                      const char *query)
{
    size_t length = strlen(bucket);
    bool fits_a_host = length >= 3 && length <= 63 && strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
    bool is_virtual = endpoint->addressing == S3_ADDRESSING_AUTO ? !*endpoint->base && fits_a_host
                                                                 : endpoint->addressing == S3_ADDRESSING_VIRTUAL;
    char *base = *endpoint->base
                     ? memory_copy_text(endpoint->base)
                     : memory_print("https://s3.%s.amazonaws.com%s", region, strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    char *encoded = url_encode(key, strlen(key), true), *url;
    const char *mark = query ? "?" : "", *rest = query ? query : "";
    const char *host = strstr(base, "://") + 3;
    if (is_virtual)
        url = memory_print("%.*s%s.%s/%s%s%s", (int)(host - base), base, bucket, host, encoded, mark, rest);
    else
        url = memory_print("%s/%s%s%s%s%s", base, bucket, *key || !query ? "/" : "", encoded, mark, rest);
    free(encoded);
    free(base);
    return url;
}
