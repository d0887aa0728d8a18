/* URLs, and where redirects lead. Reaches base/url.c, base/redact.c and http_fence.c. The input is lines: the URL that is
 * asked for, then a Location of each answer; a first byte below '0' sets options of the fence.
 *
 * Whatever is accepted is read by libcurl as we read it, so that what is compared is what is connected to; no hop leads
 * where the fence forbids; a user's name and password that libcurl finds are never shown. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/redact.h"
#include "base/url.h"
#include "source/http/http_fence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_LINES = 6 };

static void check(bool good)
{
    if (!good)
        abort();
}

static char *part_of(CURLU *parts, CURLUPart part, unsigned flags)
{
    char *text = NULL;
    return curl_url_get(parts, part, &text, flags) == CURLUE_OK ? text : NULL;
}

/* The printed form, which is what libcurl is given. */
static void check_reading(const struct url *url, const char *whole)
{
    CURLU *parts = curl_url();
    struct url again;
    struct error error;
    char origin[URL_ORIGIN_CHARS], same[URL_ORIGIN_CHARS], port[8];
    check(url_parse(whole, &again, &error) == 0 && url_same_origin(url, &again));
    check(strcmp(url_origin(url, origin), url_origin(&again, same)) == 0);
    char *twice = url_print(&again);
    check(strcmp(twice, whole) == 0);
    free(twice);
    check(curl_url_set(parts, CURLUPART_URL, whole, CURLU_PATH_AS_IS) == CURLUE_OK);
    char *scheme = part_of(parts, CURLUPART_SCHEME, 0), *host = part_of(parts, CURLUPART_HOST, 0),
         *number = part_of(parts, CURLUPART_PORT, CURLU_DEFAULT_PORT), *user = part_of(parts, CURLUPART_USER, 0);
    snprintf(port, sizeof port, "%u", url->port);
    check(scheme && strcmp(scheme, url->is_secure ? "https" : "http") == 0);
    check(host && strcmp(host, url->host) == 0 && number && strcmp(number, port) == 0 && !user);
    curl_free(scheme);
    curl_free(host);
    curl_free(number);
    curl_url_cleanup(parts);
}

static bool has_prefix(const unsigned char *bytes, unsigned first, unsigned second, unsigned mask)
{
    return bytes[0] == first && (bytes[1] & mask) == second;
}

/* As the resolver reads the host, which knows more forms of addresses than we accept. */
static void check_place(const struct http_fence *fence, const struct url *url)
{
    struct in_addr v4;
    unsigned char v6[16];
    char host[URL_HOST_CHARS];
    bool is_v4 = inet_aton(url->host, &v4), is_here = strcmp(url->host, "localhost") == 0;
    snprintf(host, sizeof host, "%s", url->host[0] == '[' ? url->host + 1 : "");
    host[strcspn(host, "]")] = '\0';
    if (is_v4) {
        const unsigned char *bytes = (const unsigned char *)&v4;
        check(bytes[0] != 0 && !has_prefix(bytes, 169, 254, 0xff));
        is_here = bytes[0] == 127;
    } else if (inet_pton(AF_INET6, host, v6) == 1) {
        static const unsigned char none[16], loopback[16] = {[15] = 1};
        check(!has_prefix(v6, 0xfe, 0x80, 0xc0) && memcmp(v6, none, 16) != 0);
        check(memcmp(v6, none, 10) != 0 || memcmp(v6, loopback, 16) == 0);
        is_here = memcmp(v6, loopback, 16) == 0;
    }
    check(url->is_secure || fence->allow_plain || is_here);
    check(url_is_this_host(url) == is_here);
}

static void check_shown(const char *text)
{
    char shown[REDACT_CHARS], *copy = redact_copy(text);
    CURLU *parts = curl_url();
    redact(text, shown, sizeof shown);
    check(strlen(shown) < sizeof shown && shown[strspn(shown, "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                              "[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~")] == '\0');
    char *again = redact_copy(copy);
    bool is_local = strncmp(text, "disk:", 5) == 0 || strncmp(text, "memory:", 7) == 0;
    if (!is_local && curl_url_set(parts, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME | CURLU_PATH_AS_IS) == CURLUE_OK) {
        char *password = part_of(parts, CURLUPART_PASSWORD, 0), *query = part_of(parts, CURLUPART_QUERY, 0);
        const char *authority = strstr(copy, "://"); /* before any path, which may hold the same word by chance */
        size_t length = authority ? 3 + strcspn(authority + 3, "/?#") : 0;
        const char *first = password ? strstr(text, password) : NULL;
        bool is_unique = first && strlen(password) >= 3 && !strstr(first + 1, password); /* else the host may say the same */
        check(!is_unique || !authority || !memmem(authority, length, password, strlen(password)));
        check(!query || strlen(query) < 4 || !strchr(copy, '?') || strcmp(strchr(copy, '?'), "?...") == 0);
        curl_free(password);
        curl_free(query);
    }
    curl_url_cleanup(parts);
    free(again);
    free(copy);
}

static void follow(const struct http_fence *fence, char *lines[MAX_LINES], size_t n_lines)
{
    struct url from, to, home;
    struct error error;
    char *url = NULL;
    if (n_lines == 0 || url_parse(lines[0], &home, &error) < 0 || http_fence_check(fence, lines[0], &error) < 0)
        return;
    url = url_print(&home);
    for (size_t i = 1; url && i < n_lines; i++) {
        const struct http_hop hop = {url, lines[i], fence->n_trusted_urls > 0};
        char *next = http_fence_follow(fence, &hop, &error);
        if (next) {
            check(url_parse(url, &from, &error) == 0 && url_parse(next, &to, &error) == 0);
            check_reading(&to, next);
            check_place(fence, &to);
            check(to.is_secure || !from.is_secure);
            check(!url_is_this_host(&to) || url_is_this_host(&from) || fence->n_trusted_urls > 0);
            check(!hop.is_confined || strncmp(next, "https://h/m", strlen("https://h/m")) == 0);
        } else {
            check(error.code != ERROR_OK && error.message[0]);
        }
        free(url);
        url = next;
    }
    free(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const trusted[] = {"https://h/m", "gs://bucket"};
    struct http_fence fence = {0};
    char *text = malloc(size + 1), *rest = text, *lines[MAX_LINES];
    size_t n_lines = 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (size > 0 && data[0] < '0') {
        fence.allow_plain = data[0] & 1;
        fence.trusted_urls = trusted;
        fence.n_trusted_urls = data[0] & 2 ? 2 : 0;
        rest++;
    }
    while (rest && n_lines < MAX_LINES)
        lines[n_lines++] = strsep(&rest, "\n");
    for (size_t i = 0; i < n_lines; i++) {
        struct url url;
        struct error error;
        if (url_parse(lines[i], &url, &error) == 0) {
            char *whole = url_print(&url);
            check_reading(&url, whole);
            if (http_fence_check(&fence, whole, &error) == 0 && fence.n_trusted_urls == 0)
                check_place(&fence, &url);
            free(whole);
        }
        check_shown(lines[i]);
    }
    follow(&fence, lines, n_lines);
    free(text);
    return 0;
}
