/* Empty variables are as good as none. In no_proxy are names, each with all below it, and addresses, alone or with a number of
 * bits, between commas or blanks; an asterisk alone stands for everything. */
#include "source/http/http_proxy.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Both as IPv6; bits: that have to be the same. */
static bool is_same_net(const struct address *a, const struct address *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a->bytes, b->bytes, whole) != 0)
        return false;
    return rest == 0 || (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0;
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
    return is_same_net(address, &net, 128 - most + (bits ? (unsigned)bits : most));
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
