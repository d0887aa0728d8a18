/* Only what http and https URLs need. A URL is split by looking, never rewritten: what a server signed must stay as it is.
 */
#include "source/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

static size_t scheme_length(const char *url) /* with "://", 0 = not http or https */
{
    return strncasecmp(url, "https://", 8) == 0 ? 8 : strncasecmp(url, "http://", 7) == 0 ? 7 : 0;
}

static char *copy(const char *text, size_t length)
{
    char *copied = memory_alloc(length + 1);
    memcpy(copied, text, length);
    return copied;
}

/* Length of "https://host:port". */
static size_t origin_length(const char *url)
{
    size_t scheme = scheme_length(url);
    return scheme ? scheme + strcspn(url + scheme, "/?#") : 0;
}

char *url_origin(const char *url)
{
    size_t length = origin_length(url);
    return length > scheme_length(url) ? copy(url, length) : NULL;
}

struct authority {
    const char *host;
    size_t host_length;
    unsigned long port;
    bool secure;
};

static struct authority authority_of(const char *url)
{
    size_t scheme = scheme_length(url), end = origin_length(url);
    struct authority found = {.host = url + scheme, .host_length = end - scheme, .secure = scheme == 8};
    const char *bracket = memchr(found.host, ']', found.host_length);
    const char *colon = bracket ? bracket + 1 : memchr(found.host, ':', found.host_length);
    found.port = found.secure ? 443 : 80;
    if (colon && colon < url + end && *colon == ':') {
        found.port = strtoul(colon + 1, NULL, 10);
        found.host_length = (size_t)(colon - found.host);
    }
    return found;
}

bool url_same_origin(const char *a, const char *b)
{
    struct authority x = authority_of(a), y = authority_of(b);
    return x.host_length > 0 && x.secure == y.secure && x.port == y.port && x.host_length == y.host_length &&
           strncasecmp(x.host, y.host, x.host_length) == 0;
}

static char *join(const char *a, size_t a_length, const char *b)
{
    size_t b_length = strcspn(b, "#");
    char *joined = memory_alloc(a_length + b_length + 1);
    memcpy(joined, a, a_length);
    memcpy(joined + a_length, b, b_length);
    return joined;
}

/* Up to and with the last slash of the path. */
static size_t folder_length(const char *url)
{
    size_t end = strcspn(url, "?#"), origin = origin_length(url);
    while (end > origin && url[end - 1] != '/')
        end--;
    return end;
}

char *url_resolve(const char *base, const char *location)
{
    if (scheme_length(location))
        return origin_length(location) > scheme_length(location) ? join("", 0, location) : NULL;
    if (strncmp(location, "//", 2) == 0)
        return join(base, scheme_length(base) - 2, location);
    if (location[0] == '/')
        return join(base, origin_length(base), location);
    if (location[0] == '?')
        return join(base, strcspn(base, "?#"), location);
    if (location[strcspn(location, ":/?#")] == ':') /* another scheme */
        return NULL;
    return join(base, folder_length(base), location);
}

bool url_query_u64(const char *url, const char *name, uint64_t *value)
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

uint64_t url_life_s(const char *url, uint64_t now_unix_s)
{
    uint64_t value;
    if (url_query_u64(url, "X-Amz-Expires", &value) || url_query_u64(url, "X-Goog-Expires", &value))
        return value;
    if (url_query_u64(url, "Expires", &value))
        return value > now_unix_s ? value - now_unix_s : 1;
    return 0;
}

char *url_tidy(const char *text, size_t length)
{
    char *tidy = memory_alloc(3 * length + 1), *to = tidy;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c >= 0x7f || strchr("\"<>\\^`{|}", c))
            to += sprintf(to, "%%%02X", c);
        else
            *to++ = (char)c;
    }
    return tidy;
}
