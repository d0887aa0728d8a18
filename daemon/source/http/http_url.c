/* URLs; see http_url.h. Redaction is textual so that it also works on what no parser accepts. */
#include "source/http/http_url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "source/http/http.h"

/* Control characters, spaces and bytes above ASCII have no place in an encoded URL, and none in a log line. */
static char printable(char c)
{
    return c > ' ' && c < 0x7f ? c : '_';
}

static const char *skip_user(const char *authority)
{
    const char *host = authority;
    for (const char *c = authority; *c && !strchr("/?#", *c); c++)
        host = *c == '@' ? c + 1 : host;
    return host;
}

void http_redact(const char *url, char *text, size_t text_chars)
{
    const char *scheme_end = strstr(url, "://");
    const char *from = scheme_end ? scheme_end + 3 : url, *host = skip_user(from);
    size_t used = 0;
    bool in_query = false, in_value = false;
    for (const char *c = url; *c && *c != '#' && used + 1 < text_chars; c++) {
        if (c == from)
            c = host;
        if (!*c || *c == '#')
            break;
        in_query = in_query || *c == '?';
        in_value = in_value && *c != '&';
        if (!in_value)
            text[used++] = printable(*c);
        if (in_query && *c == '=' && !in_value) {
            in_value = true;
            used += (size_t)snprintf(text + used, text_chars - used, "...");
            used = used < text_chars ? used : text_chars - 1;
        }
    }
    if (text_chars > 0)
        text[used] = '\0';
}

char *http_encode(const char *bytes, size_t count, bool keep_slashes)
{
    static const char digits[] = "0123456789ABCDEF";
    char *text = memory_alloc_array(count + 1, 3), *out = text;
    for (size_t i = 0; i < count; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (is_letter || (c >= '0' && c <= '9') || (c != '\0' && strchr("-._~", c)) || (c == '/' && keep_slashes)) {
            *out++ = (char)c;
            continue;
        }
        *out++ = '%';
        *out++ = digits[c >> 4];
        *out++ = digits[c & 15];
    }
    return text;
}

static int refuse(struct error *error, const char *url, const char *why)
{
    char shown[HTTP_URL_CHARS];
    http_redact(url, shown, sizeof shown);
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_URL", "the URL %s %s", shown, why);
}

static int origin_of(CURLU *parts, const char *url, char origin[HTTP_ORIGIN_CHARS], struct error *error)
{
    char *scheme = NULL, *host = NULL, *port = NULL;
    bool is_whole = !curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) && !curl_url_get(parts, CURLUPART_HOST, &host, 0) &&
                    !curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    int result = 0;
    if (!is_whole || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        result = refuse(error, url, "is not an http or https URL");
    else if (snprintf(origin, HTTP_ORIGIN_CHARS, "%s://%s:%s", scheme, host, port) >= HTTP_ORIGIN_CHARS)
        result = refuse(error, url, "has a host name that is too long");
    for (char *c = origin; result == 0 && *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    return result;
}

int http_url_origin(const char *url, char origin[HTTP_ORIGIN_CHARS], struct error *error)
{
    CURLU *parts = curl_url();
    int result = curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) ? refuse(error, url, "cannot be understood")
                                                                           : origin_of(parts, url, origin, error);
    curl_url_cleanup(parts);
    return result;
}

static char *join(const char *first, const char *between, const char *second)
{
    size_t room = strlen(first) + strlen(between) + strlen(second) + 1;
    char *text = memory_alloc(room);
    snprintf(text, room, "%s%s%s", first, between, second);
    return text;
}

bool http_url_request(const char *url, char **host, char **target)
{
    CURLU *parts = curl_url();
    char *user = NULL, *name = NULL, *port = NULL, *path = NULL, *query = NULL;
    bool is_whole = !curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) &&
                    curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_NO_USER &&
                    !curl_url_get(parts, CURLUPART_HOST, &name, 0) && !curl_url_get(parts, CURLUPART_PATH, &path, 0);
    if (is_whole) {
        curl_url_get(parts, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
        curl_url_get(parts, CURLUPART_QUERY, &query, 0);
        *host = join(name, port ? ":" : "", port ? port : "");
        *target = join(path, query ? "?" : "", query ? query : "");
    }
    curl_free(user);
    curl_free(name);
    curl_free(port);
    curl_free(path);
    curl_free(query);
    curl_url_cleanup(parts);
    return is_whole;
}

static int follow(CURLU *parts, const char *url, const char *location, char **target, struct error *error)
{
    char origin[HTTP_ORIGIN_CHARS], *user = NULL, *whole = NULL;
    if (curl_url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) ||
        curl_url_set(parts, CURLUPART_URL, location, CURLU_PATH_AS_IS | CURLU_URLENCODE))
        return refuse(error, location, "to which the server redirects cannot be understood");
    if (origin_of(parts, location, origin, error))
        return -1;
    if (!curl_url_get(parts, CURLUPART_USER, &user, 0)) {
        curl_free(user);
        return refuse(error, location, "to which the server redirects holds a user name");
    }
    if (strncasecmp(url, "https:", 6) == 0 && strncmp(origin, "https:", 6) != 0)
        return refuse(error, location, "to which the server redirects would leave https for http");
    if (curl_url_get(parts, CURLUPART_URL, &whole, 0))
        return refuse(error, location, "to which the server redirects cannot be understood");
    *target = memory_copy_text(whole);
    curl_free(whole);
    return 0;
}

int http_url_follow(const char *url, const char *location, char **target, struct error *error)
{
    CURLU *parts = curl_url();
    int result = follow(parts, url, location, target, error);
    curl_url_cleanup(parts);
    return result;
}
