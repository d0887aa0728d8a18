/* A host is a name of letters, digits, dots, dashes and underscores, or an address. Behind it every printable ASCII
 * character but the backslash may stand. */
#include "base/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"

enum { MAX_LABEL_CHARS = 63, SHOWN_CHARS = 300 };

static int refuse_url(struct error *error, const char *text, const char *why)
{
    char shown[SHOWN_CHARS];
    redact(text, shown, sizeof shown);
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_URL", "the URL %s %s", shown, why);
}

static size_t scheme_length(const char *text) /* with "://", 0 = not http or https */
{
    return strncasecmp(text, "https://", 8) == 0 ? 8 : strncasecmp(text, "http://", 7) == 0 ? 7 : 0;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* --- the host --- */

/* "www.example.com" */
static const char *take_name(const char *text, size_t length, struct url *url)
{
    size_t label = 0;
    if (address_is_numeric(text, length)) {
        url->has_address = address_parse(text, length, &url->address) && !memchr(text, ':', length);
        if (!url->has_address)
            return "has a number for a host that programs read differently; an address is written 10.1.2.3 or [fe80::1]";
    }
    bool is_good = length < URL_HOST_CHARS;
    for (size_t i = 0; i < length && is_good; i++) {
        bool is_upper = text[i] >= 'A' && text[i] <= 'Z', is_dot = text[i] == '.';
        url->host[i] = is_upper ? (char)(text[i] + 32) : text[i];
        is_good = is_dot ? label > 0 : is_letter(text[i]) || is_digit(text[i]) || text[i] == '-' || text[i] == '_';
        label = is_dot ? 0 : label + 1;
        is_good = is_good && label <= MAX_LABEL_CHARS;
    }
    return is_good && label > 0 ? NULL : "has no good host name";
}

static const char *take_authority(const char *text, size_t length, struct url *url)
{
    const char *bracket = text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *colon = memchr(text, ':', length);
    char address[ADDRESS_CHARS];
    unsigned long port = 0;
    if (memchr(text, '@', length))
        return "holds a user name or a password, which is not accepted";
    if (text[0] == '[' && !bracket)
        return "has no good address between its brackets";
    size_t host = bracket ? (size_t)(bracket + 1 - text) : colon ? (size_t)(colon - text) : length;
    if (host == 0)
        return "has no host";
    const char *wrong = bracket ? NULL : take_name(text, host, url);
    if (wrong)
        return wrong;
    if (bracket) { /* "[fe80::1]" */
        if (!memchr(text, ':', host) || !address_parse(text + 1, host - 2, &url->address))
            return "has no good address between its brackets";
        if (address_is_mapped(&url->address))
            return "has an IPv4 address in the form of IPv6; it is written 10.1.2.3";
        url->has_address = true;
        snprintf(url->host, sizeof url->host, "[%s]", address_print(&url->address, address));
    }
    url->port = url->is_secure ? 443 : 80;
    if (host == length)
        return NULL;
    for (size_t i = host + 1; i < length && length - host <= sizeof "65535"; i++) /* ":8443" */
        port = is_digit(text[i]) ? port * 10 + (unsigned long)(text[i] - '0') : 100000;
    if (text[host] != ':' || text[host + 1] == '0' || port == 0 || port > UINT16_MAX)
        return "has no good port: a number from 1 to 65535 follows the colon";
    url->port = (uint16_t)port;
    return NULL;
}

/* --- the whole --- */

int url_parse(const char *text, struct url *url, struct error *error)
{
    size_t scheme = scheme_length(text), length = strcspn(text, "#");
    *url = (struct url){.is_secure = scheme == 8};
    if (!scheme)
        return refuse_url(error, text, "is not an http or https URL");
    for (size_t i = 0; i < length; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f || text[i] == '\\')
            return refuse_url(error, text, "holds a character that has to be percent-encoded");
    }
    size_t authority = strcspn(text + scheme, "/?#");
    const char *wrong = take_authority(text + scheme, authority, url);
    if (wrong)
        return refuse_url(error, text, wrong);
    url->path = text + scheme + authority;
    url->path_length = strcspn(url->path, "?#");
    url->query = url->path + url->path_length;
    url->query_length = (size_t)(text + length - url->query);
    return 0;
}

const char *url_origin(const struct url *url, char origin[URL_ORIGIN_CHARS])
{
    snprintf(origin, URL_ORIGIN_CHARS, "%s://%s:%u", url->is_secure ? "https" : "http", url->host, url->port);
    return origin;
}

const char *url_authority(const struct url *url, char authority[URL_AUTHORITY_CHARS])
{
    if (url->port == (url->is_secure ? 443 : 80))
        snprintf(authority, URL_AUTHORITY_CHARS, "%s", url->host);
    else
        snprintf(authority, URL_AUTHORITY_CHARS, "%s:%u", url->host, url->port);
    return authority;
}

char *url_target(const struct url *url)
{
    return memory_print("%s%.*s%.*s", url->path_length ? "" : "/", (int)url->path_length, url->path, (int)url->query_length,
                        url->query);
}

char *url_print(const struct url *url)
{
    char authority[URL_AUTHORITY_CHARS];
    return memory_print("%s://%s%s%.*s%.*s", url->is_secure ? "https" : "http", url_authority(url, authority),
                        url->path_length ? "" : "/", (int)url->path_length, url->path, (int)url->query_length, url->query);
}

bool url_same_origin(const struct url *a, const struct url *b)
{
    return a->is_secure == b->is_secure && a->port == b->port && strcmp(a->host, b->host) == 0;
}

bool url_is_same_origin(const char *a, const char *b)
{
    struct url first, second;
    struct error ignored; /* what is no URL has no origin */
    return url_parse(a, &first, &ignored) == 0 && url_parse(b, &second, &ignored) == 0 && url_same_origin(&first, &second);
}

bool url_is_this_host(const struct url *url)
{
    if (url->has_address)
        return address_kind(&url->address) == ADDRESS_THIS_HOST;
    return strcmp(url->host, "localhost") == 0;
}

/* --- encoding --- */

/* As it is up to byte `from`; behind that the bytes for which `stays` says no are percent-encoded. */
static char *encode(const char *bytes, size_t count, size_t from, bool (*stays)(unsigned char c))
{
    char *text = memory_alloc_array(count + 1, 3), *out = text;
    for (size_t i = 0; i < count; i++) {
        if (i < from || stays((unsigned char)bytes[i]))
            *out++ = bytes[i];
        else
            out += sprintf(out, "%%%02X", (unsigned char)bytes[i]);
    }
    return text;
}

static bool is_unreserved(unsigned char c)
{
    return is_letter((char)c) || is_digit((char)c) || (c != '\0' && strchr("-._~", c));
}

static bool is_unreserved_or_slash(unsigned char c)
{
    return c == '/' || is_unreserved(c);
}

static bool may_stand_raw(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("\"<>\\^`{|}", c);
}

/* What else has no place in a URL is left for url_parse() to refuse. */
static bool is_ascii_without_space(unsigned char c)
{
    return c != ' ' && c < 0x80;
}

char *url_encode(const char *bytes, size_t count, bool keep_slashes)
{
    return encode(bytes, count, 0, keep_slashes ? is_unreserved_or_slash : is_unreserved);
}

char *url_tidy(const char *text, size_t length)
{
    return encode(text, length, 0, may_stand_raw);
}

/* --- relative to another --- */

/* "/a/b/../c/./d" -> "/a/c/d", in place, up to the query: RFC 3986, 5.2.4. */
static void remove_dots(char *path)
{
    char *to = path, *from = path, *end = path + strcspn(path, "?");
    while (from < end) {
        size_t length = 1 + strcspn(from + 1, "/?"); /* "/segment" */
        bool is_last = from + length == end;
        bool is_up = length == 3 && memcmp(from, "/..", 3) == 0, is_here = length == 2 && from[1] == '.';
        if (is_up)
            while (to > path && *--to != '/')
                ;
        if (!is_up && !is_here) {
            memmove(to, from, length);
            to += length;
        } else if (is_last) {
            *to++ = '/';
        }
        from += length;
    }
    memmove(to, end, strlen(end) + 1);
}

static char *join_path(const struct url *base, const char *location)
{
    char origin[URL_ORIGIN_CHARS];
    const char *scheme = base->is_secure ? "https" : "http";
    url_origin(base, origin);
    if (scheme_length(location))
        return memory_copy_text(location);
    if (strncmp(location, "//", 2) == 0)
        return memory_print("%s:%s", scheme, location);
    if (location[0] == '/')
        return memory_print("%s%s", origin, location);
    if (location[0] == '?' || location[0] == '#' || !location[0])
        return memory_print("%s%s%.*s%s", origin, base->path_length ? "" : "/", (int)base->path_length, base->path,
                            location);
    size_t folder = base->path_length; /* up to the last slash */
    while (folder > 0 && base->path[folder - 1] != '/')
        folder--;
    char *path = memory_print("%.*s%s%s", (int)folder, base->path, folder ? "" : "/", location);
    path[strcspn(path, "#")] = '\0';
    remove_dots(path);
    char *joined = memory_print("%s%s", origin, path);
    free(path);
    return joined;
}

char *url_resolve(const char *base, const char *location, struct error *error)
{
    struct url from, to;
    if (url_parse(base, &from, error) < 0)
        return NULL;
    if (!scheme_length(location) && location[strcspn(location, ":/?#\\")] == ':') {
        refuse_url(error, location, "is not an http or https URL");
        return NULL;
    }
    char *joined = join_path(&from, location);
    size_t scheme = scheme_length(joined), behind_host = scheme + strcspn(joined + scheme, "/?#");
    char *encoded = encode(joined, strcspn(joined, "#"), behind_host, is_ascii_without_space);
    char *resolved = url_parse(encoded, &to, error) < 0 ? NULL : url_print(&to);
    free(joined);
    free(encoded);
    return resolved;
}
