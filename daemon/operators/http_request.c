#include "operators/http_request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool http_host_is_own(const char *host, const struct tcp_address *listen)
{
    char own[TCP_ADDRESS_CHARS];
    struct tcp_address given = {0};
    struct address number, at;
    const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
    size_t length = colon && (!bracket || bracket < colon) ? (size_t)(colon - host) : strlen(host);
    if (length == strlen("localhost") && strncasecmp(host, "localhost", length) == 0)
        return true;
    if (length + sizeof ":0" > sizeof own)
        return false;
    memcpy(own, host, length);
    memcpy(own + length, ":0", sizeof ":0");
    if (!tcp_address_parse(own, &given) || !address_of_socket((const struct sockaddr *)&given.socket, &number) ||
        !address_of_socket((const struct sockaddr *)&listen->socket, &at))
        return false;
    static const struct address all[] = {{{0}}, {{[10] = 0xff, [11] = 0xff}}}; /* "::", "0.0.0.0" */
    return address_kind(&number) == ADDRESS_THIS_HOST || memcmp(&number, &at, sizeof at) == 0 ||
           memcmp(&at, &all[0], sizeof at) == 0 || memcmp(&at, &all[1], sizeof at) == 0;
}

/* The quality of one element of an Accept header, of the type that is wanted; negative: it is another type. */
static double quality_of(const char *element, size_t length, const char *type)
{
    size_t n = strlen(type);
    if (length < n || strncasecmp(element, type, n) != 0 || (length > n && !strchr(" \t;", element[n])))
        return -1;
    for (size_t at = n; at < length; at++) {
        if (element[at] != ';')
            continue;
        size_t name = at + 1;
        while (name < length && strchr(" \t", element[name]))
            name++;
        if (length - name >= 2 && strncasecmp(element + name, "q=", 2) == 0)
            return strtod(element + name + 2, NULL);
    }
    return 1;
}

bool http_accepts_openmetrics(const char *accept)
{
    double modern = 0, plain = 0;
    while (accept && *accept) {
        accept += strspn(accept, " \t,");
        size_t length = strcspn(accept, ",");
        double q = quality_of(accept, length, "application/openmetrics-text"), p = quality_of(accept, length, "text/plain");
        modern = q > modern ? q : modern;
        plain = p > plain ? p : plain;
        accept += length;
    }
    return modern > 0 && modern >= plain;
}
