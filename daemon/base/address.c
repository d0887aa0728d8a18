/* One table of prefixes. IPv6 has several ways to write an address of IPv4: the inner one counts, too, because a translator
 * or the kernel itself leads there. */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#define MAPPED 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff
#define V4(a, b, c, d) MAPPED, a, b, c, d
enum { V4_BITS = 96 };

struct prefix {
    unsigned char bytes[16];
    unsigned bits;
    enum address_kind kind;
};

static const struct prefix prefixes[] = {
    {{V4(127, 0, 0, 0)}, V4_BITS + 8, ADDRESS_THIS_HOST},
    {{[15] = 1}, 128, ADDRESS_THIS_HOST},
    {{V4(0, 0, 0, 0)}, V4_BITS + 8, ADDRESS_RESERVED}, /* "this host" when it is connected to */
    {{0}, 128, ADDRESS_RESERVED},
    {{V4(169, 254, 0, 0)}, V4_BITS + 16, ADDRESS_RESERVED}, /* link-local; metadata of AWS, Google, Azure, Oracle */
    {{0xfe, 0x80}, 10, ADDRESS_RESERVED},
    {{0xfd, 0x00, 0x0e, 0xc2}, 32, ADDRESS_RESERVED},           /* metadata, credentials and time of AWS */
    {{0xfd, 0x20, 0x00, 0xce}, 32, ADDRESS_RESERVED},           /* metadata of Google */
    {{V4(168, 63, 129, 16)}, V4_BITS + 32, ADDRESS_RESERVED},   /* the host agent of Azure */
    {{V4(100, 100, 100, 200)}, V4_BITS + 32, ADDRESS_RESERVED}, /* metadata of Alibaba */
    {{V4(192, 0, 0, 192)}, V4_BITS + 32, ADDRESS_RESERVED},     /* metadata of Oracle */
};

/* Prefixes of IPv6 behind which an address of IPv4 stands, from byte `at` on. */
static const struct {
    unsigned char bytes[16];
    unsigned bits, at;
} wrappers[] = {
    {{0}, 96, 12},                                  /* ::1.2.3.4, deprecated */
    {{[8] = 0xff, 0xff}, 96, 12},                   /* ::ffff:0:1.2.3.4, of translators */
    {{0x00, 0x64, 0xff, 0x9b}, 96, 12},             /* 64:ff9b::1.2.3.4, NAT64 */
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, 12}, /* 64:ff9b:1::/48, NAT64 within a site */
    {{0x20, 0x02}, 16, 2},                          /* 2002:102:304::, 6to4 */
};

static bool has_prefix(const struct address *address, const unsigned char *prefix, unsigned bits)
{
    unsigned bytes = bits / 8, rest = bits % 8;
    if (memcmp(address->bytes, prefix, bytes) != 0)
        return false;
    return rest == 0 || ((address->bytes[bytes] ^ prefix[bytes]) >> (8 - rest)) == 0;
}

static struct address mapped(const unsigned char v4[4])
{
    return (struct address){{V4(v4[0], v4[1], v4[2], v4[3])}};
}

static enum address_kind kind_of_itself(const struct address *address)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (has_prefix(address, prefixes[i].bytes, prefixes[i].bits))
            return prefixes[i].kind;
    }
    return ADDRESS_ANY;
}

enum address_kind address_kind(const struct address *address)
{
    enum address_kind kind = kind_of_itself(address);
    for (size_t i = 0; kind == ADDRESS_ANY && i < sizeof wrappers / sizeof *wrappers; i++) {
        struct address inner = mapped(address->bytes + wrappers[i].at);
        /* the loopback behind a translator is another host's: no good either way */
        if (has_prefix(address, wrappers[i].bytes, wrappers[i].bits) && kind_of_itself(&inner) != ADDRESS_ANY)
            kind = ADDRESS_RESERVED;
    }
    return kind;
}

bool address_is_mapped(const struct address *address)
{
    static const unsigned char v4[16] = {MAPPED}, compatible[16] = {0}, this_host[16] = {[15] = 1};
    if (has_prefix(address, v4, V4_BITS))
        return true;
    return has_prefix(address, compatible, V4_BITS) && memcmp(address->bytes, compatible, 16) != 0 &&
           memcmp(address->bytes, this_host, 16) != 0;
}

bool address_parse(const char *text, size_t length, struct address *address)
{
    char copy[ADDRESS_CHARS];
    unsigned char v4[4];
    if (length == 0 || length >= sizeof copy || memchr(text, '\0', length))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (inet_pton(AF_INET6, copy, address->bytes) == 1)
        return true;
    if (inet_pton(AF_INET, copy, v4) != 1) /* four decimal numbers without leading zeros */
        return false;
    *address = mapped(v4);
    return true;
}

bool address_is_numeric(const char *host, size_t length)
{
    while (length > 0 && host[length - 1] == '.')
        length--;
    size_t from = length;
    while (from > 0 && host[from - 1] != '.')
        from--;
    const char *last = host + from;
    size_t n = length - from, digits = 0;
    if (n >= 2 && last[0] == '0' && (last[1] == 'x' || last[1] == 'X'))
        return true;
    while (digits < n && last[digits] >= '0' && last[digits] <= '9')
        digits++;
    return n > 0 && digits == n;
}

bool address_of_socket(const struct sockaddr *from, struct address *address)
{
    if (from->sa_family == AF_INET6) {
        memcpy(address->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, sizeof address->bytes);
        return true;
    }
    if (from->sa_family != AF_INET)
        return false;
    unsigned char v4[4];
    memcpy(v4, &((const struct sockaddr_in *)(const void *)from)->sin_addr, sizeof v4);
    *address = mapped(v4);
    return true;
}

const char *address_print(const struct address *address, char text[ADDRESS_CHARS])
{
    static const unsigned char v4[16] = {MAPPED};
    bool is_v4 = has_prefix(address, v4, V4_BITS);
    return inet_ntop(is_v4 ? AF_INET : AF_INET6, address->bytes + (is_v4 ? 12 : 0), text, ADDRESS_CHARS);
}
