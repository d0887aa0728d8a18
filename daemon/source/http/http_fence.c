/* The rules, on parsed URLs; see http_fence.h. */
#include "source/http/http_fence.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"

/* --- proxies --- */

/* Empty variables are as good as none. In no_proxy are names, each with all below it, and addresses, alone or with a number of
 * bits, between commas or blanks; an asterisk alone stands for everything. */
static const char *find_variable(const char *const *names)
{
    const char *value = NULL;
    for (; *names && (!value || !*value); names++)
        value = getenv(*names);
    return value && *value ? value : NULL;
}

static bool is_name_below(const char *host, const char *word, size_t length)
{
    size_t n = strlen(host);
    n -= n > 0 && host[n - 1] == '.';
    length -= length > 0 && word[length - 1] == '.';
    if (length > 0 && *word == '.') {
        word++;
        length--;
    }
    if (length == 0 || length > n || strncasecmp(host + n - length, word, length) != 0)
        return false;
    return length == n || host[n - length - 1] == '.';
}

/* As curl has it, no bits at all are all of them, and more than there are match nothing. */
static bool is_address_within(const struct address *address, const char *word, size_t length)
{
    const char *slash = memchr(word, '/', length);
    struct address net;
    if (!address_parse(word, slash ? (size_t)(slash - word) : length, &net) ||
        address_is_mapped(&net) != address_is_mapped(address))
        return false;
    unsigned most = address_is_mapped(&net) ? 32 : 128;
    unsigned long bits = slash ? strtoul(slash + 1, NULL, 10) : 0;
    if (bits > most)
        return false;
    bits = 128 - most + (bits ? bits : most); /* that have to be the same, both as IPv6 */
    unsigned whole = (unsigned)bits / 8, rest = (unsigned)bits % 8;
    return memcmp(address->bytes, net.bytes, whole) == 0 &&
           (rest == 0 || (address->bytes[whole] ^ net.bytes[whole]) >> (8 - rest) == 0);
}

static bool is_excepted(const struct url *url)
{
    static const char *const names[] = {"no_proxy", "NO_PROXY", NULL};
    const char *list = find_variable(names);
    if (!list || strcmp(list, "*") == 0)
        return list != NULL;
    for (const char *word = list + strspn(list, ", "); *word;) {
        size_t length = strcspn(word, ", ");
        if (url->has_address ? is_address_within(&url->address, word, length) : is_name_below(url->host, word, length))
            return true;
        word += length;
        word += strspn(word, ", ");
    }
    return false;
}

const char *http_proxy_find(const struct url *url)
{
    static const char *const for_http[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    static const char *const for_https[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", NULL};
    const char *proxy = find_variable(url->is_secure ? for_https : for_http);
    return proxy && !is_excepted(url) ? proxy : NULL;
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

bool http_fence_trusts(const struct http_fence *fence, const char *reference)
{
    if (fence->n_trusted_urls == 0)
        return true;
    char *form = in_one_form(reference);
    bool is_tame = form && !goes_up(reference) && !goes_up(form), is_trusted = false;
    for (size_t i = 0; is_tame && !is_trusted && i < fence->n_trusted_urls; i++) {
        char *prefix = in_one_form(fence->trusted_urls[i]);
        is_trusted = prefix && is_below(form, prefix);
        free(prefix);
    }
    free(form);
    return is_trusted;
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
        return fail(error, ERROR_PERMISSION_DENIED, REASON(FORBIDDEN_ADDRESS),
                    "%s is a link-local address or one of a cloud's metadata service, which nothing is loaded from unless "
                    "sources.trusted_urls or an endpoint of the configuration names it",
                    redact_show(text));
    if (url->is_secure || fence->allow_plain || url_is_this_host(url))
        return 0;
    return fail(error, ERROR_PERMISSION_DENIED, REASON(PLAIN_HTTP),
                "%s is not https://; plain http:// is only allowed to this host, or with sources.http.allow_plain: true",
                redact_show(text));
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
        return fail(error, ERROR_PERMISSION_DENIED, REASON(PLAIN_HTTP),
                    "%s is not https://, and https is never left for plain http", redact_show(target));
    if (check_parsed_url(fence, target, &to, error) < 0)
        return -1;
    if (url_is_this_host(&to) && !url_is_this_host(&from) && !is_configured(fence, &to))
        return fail(error, ERROR_PERMISSION_DENIED, REASON(REDIRECT_TO_THIS_HOST),
                    "%s is this host, and the server that says so is not", redact_show(target));
    if (hop->is_confined && !http_fence_trusts(fence, target))
        return fail(error, ERROR_PERMISSION_DENIED, REASON(OUTSIDE_TRUSTED_URLS),
                    "%s is not below any of sources.trusted_urls", redact_show(target));
    return 0;
}

char *http_fence_follow(const struct http_fence *fence, const struct http_hop *hop, struct error *error)
{
    struct error why;
    char *target = url_resolve(hop->from, hop->location, &why);
    if (target && check_hop(fence, hop, target, error) == 0)
        return target;
    if (target)
        error_prefix(error, "the server leads elsewhere");
    else
        fail(error, ERROR_FAILED_PRECONDITION, REASON(BAD_REDIRECT), "the server leads elsewhere: %s", why.message);
    free(target);
    return NULL;
}

bool http_fence_has_refused(const struct error *error)
{
    return error->kind == ERROR_KIND_PLAIN_HTTP || error->kind == ERROR_KIND_FORBIDDEN_ADDRESS ||
           error->kind == ERROR_KIND_REDIRECT_TO_THIS_HOST || error->kind == ERROR_KIND_OUTSIDE_TRUSTED_URLS ||
           error->kind == ERROR_KIND_BAD_REDIRECT;
}

/* --- addresses --- */

struct http_guard http_fence_guard(const struct http_fence *fence, const struct url *url, const struct url *home)
{
    bool is_led = !url_same_origin(url, home) && !url_is_this_host(home);
    bool is_proxied = !fence->no_proxies && http_proxy_find(url) != NULL;
    return (struct http_guard){
        .only_this_host = !url->is_secure && !fence->allow_plain && !is_proxied && url_is_this_host(url),
        .not_this_host = is_led && !is_proxied && !is_configured(fence, url),
        .may_be_reserved = url->has_address,
        .is_proxied = is_proxied,
    };
}
