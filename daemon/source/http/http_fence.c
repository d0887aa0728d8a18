/* The rules, on parsed URLs; see http_fence.h. */
#include "source/http/http_fence.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"
#include "source/http/http_proxy.h"

static int refuse_url(const char *url, const char *reason, const char *why, struct error *error)
{
    char shown[REDACT_CHARS];
    redact(url, shown, sizeof shown);
    return fail(error, ERROR_PERMISSION_DENIED, reason, "%s %s", shown, why);
}

/* --- what is trusted --- */

/* "gs://models" trusts gs://models/llama and not gs://models-of-others. */
static bool is_below(const char *reference, const char *prefix)
{
    size_t length = strlen(prefix);
    return length > 0 && strncmp(reference, prefix, length) == 0 &&
           (prefix[length - 1] == '/' || strchr("/@?#", reference[length]) != NULL);
}

/* Nothing that a server might read as a way up and out. */
static bool goes_up(const char *reference)
{
    static const char *const ways[] = {"/..", "/./", "%2e", "%2f", "%5c", "\\"};
    size_t length = strcspn(reference, "?#");
    for (size_t at = 0; at < length; at++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            if (strncasecmp(reference + at, ways[i], strlen(ways[i])) == 0)
                return true;
        }
    }
    return false;
}

/* As it is connected to, so that two ways to write the same are the same; malloced, NULL = it is no good URL. */
static char *in_one_form(const char *reference)
{
    struct url url;
    struct error ignored;
    if (!(strncasecmp(reference, "https:", 6) == 0 || strncasecmp(reference, "http:", 5) == 0) ||
        strcasecmp(reference, "https://") == 0 || strcasecmp(reference, "http://") == 0)
        return memory_copy_text(reference);
    char *tidy = url_tidy(reference, strcspn(reference, "#"));
    char *form = url_parse(tidy, &url, &ignored) < 0 ? NULL : url_print(&url);
    free(tidy);
    return form;
}

static bool is_below_one(const struct http_fence *fence, const char *reference)
{
    bool found = false;
    for (size_t i = 0; !found && i < fence->n_trusted_urls; i++) {
        char *prefix = in_one_form(fence->trusted_urls[i]);
        found = prefix && is_below(reference, prefix);
        free(prefix);
    }
    return found;
}

bool http_fence_trusts(const struct http_fence *fence, const char *reference)
{
    if (fence->n_trusted_urls == 0)
        return true;
    char *form = in_one_form(reference);
    bool trusted = form && !goes_up(reference) && !goes_up(form) && is_below_one(fence, form);
    free(form);
    return trusted;
}

/* Whether the configuration names the very host. */
static bool is_configured(const struct http_fence *fence, const struct url *url)
{
    struct url endpoint;
    struct error ignored;
    for (size_t i = 0; i < fence->n_endpoints; i++) {
        if (url_parse(fence->endpoints[i], &endpoint, &ignored) == 0 && url_same_origin(&endpoint, url))
            return true;
    }
    char *form = url_print(url);
    bool trusted = fence->n_trusted_urls > 0 && http_fence_trusts(fence, form);
    free(form);
    return trusted;
}

/* --- one URL --- */

static int check_parsed_url(const struct http_fence *fence, const char *text, const struct url *url, struct error *error)
{
    bool is_reserved = url->has_address && address_kind(&url->address) == ADDRESS_RESERVED;
    if (is_reserved && !is_configured(fence, url))
        return refuse_url(
            text, REASON(FORBIDDEN_ADDRESS),
            "is a link-local address or one of a cloud's metadata service, which nothing is loaded from unless "
            "sources.trusted_urls or an endpoint of the configuration names it",
            error);
    if (url->is_secure || fence->allow_plain || url_is_this_host(url))
        return 0;
    return refuse_url(text, REASON(PLAIN_HTTP),
                      "is not https://; plain http:// is only allowed to this host, or with sources.http.allow_plain: true",
                      error);
}

int http_fence_check(const struct http_fence *fence, const char *text, struct error *error)
{
    struct url url;
    return url_parse(text, &url, error) < 0 ? -1 : check_parsed_url(fence, text, &url, error);
}

/* --- a hop --- */

static int check_hop(const struct http_fence *fence, const struct http_hop *hop, const char *target, struct error *error)
{
    struct url from, to;
    if (url_parse(hop->from, &from, error) < 0 || url_parse(target, &to, error) < 0)
        return -1;
    if (from.is_secure && !to.is_secure)
        return refuse_url(target, REASON(PLAIN_HTTP), "is not https://, and https is never left for plain http", error);
    if (check_parsed_url(fence, target, &to, error) < 0)
        return -1;
    if (url_is_this_host(&to) && !url_is_this_host(&from) && !is_configured(fence, &to))
        return refuse_url(target, REASON(REDIRECT_TO_THIS_HOST), "is this host, and the server that says so is not", error);
    if (hop->is_confined && !http_fence_trusts(fence, target))
        return refuse_url(target, REASON(OUTSIDE_TRUSTED_URLS), "is not below any of sources.trusted_urls", error);
    return 0;
}

char *http_fence_follow(const struct http_fence *fence, const struct http_hop *hop, struct error *error)
{
    struct error why;
    char *target = url_resolve(hop->from, hop->location, &why);
    if (!target) {
        fail(error, ERROR_FAILED_PRECONDITION, REASON(BAD_REDIRECT), "the server leads elsewhere: %s", why.message);
        return NULL;
    }
    if (check_hop(fence, hop, target, error) == 0)
        return target;
    error_prefix(error, "the server leads elsewhere");
    free(target);
    return NULL;
}

bool http_fence_has_refused(const struct error *error)
{
    switch (error->kind) {
    case ERROR_KIND_PLAIN_HTTP:
    case ERROR_KIND_FORBIDDEN_ADDRESS:
    case ERROR_KIND_REDIRECT_TO_THIS_HOST:
    case ERROR_KIND_OUTSIDE_TRUSTED_URLS:
    case ERROR_KIND_BAD_REDIRECT:
        return true;
    default:
        return false;
    }
}

/* --- addresses --- */

struct http_guard http_fence_guard(const struct http_fence *fence, const struct url *url, const struct url *home)
{
    bool is_led = !url_same_origin(url, home) && !url_is_this_host(home);
    bool is_proxied = http_proxy_find(url) != NULL;
    return (struct http_guard){
        .only_this_host = !url->is_secure && !fence->allow_plain && !is_proxied && url_is_this_host(url),
        .not_this_host = is_led && !is_proxied && !is_configured(fence, url),
        .may_be_reserved = url->has_address,
        .is_proxied = is_proxied,
    };
}
