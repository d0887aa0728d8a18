/* The parameters of Amazon, Google and CloudFront; see signed_url.h. */
#include "source/signed_url.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A number in the query, as in "X-Amz-Expires=3600". */
static bool query_u64(const char *url, const char *name, uint64_t *value)
{
    const char *at = strchr(url, '?');
    size_t length = strlen(name);
    while (at) {
        at++;
        if (strncmp(at, name, length) == 0 && at[length] == '=' && at[length + 1] >= '0' && at[length + 1] <= '9') {
            *value = strtoull(at + length + 1, NULL, 10);
            return true;
        }
        at = strchr(at, '&');
    }
    return false;
}

uint64_t signed_url_life_s(const char *url, uint64_t now_unix_s)
{
    uint64_t value;
    if (query_u64(url, "X-Amz-Expires", &value) || query_u64(url, "X-Goog-Expires", &value))
        return value;
    if (query_u64(url, "Expires", &value))
        return value > now_unix_s ? value - now_unix_s : 1;
    return 0;
}
