#include "base/tcp_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG = 128 };

bool tcp_address_parse(const char *text, struct tcp_address *address)
{
    char host[ADDRESS_CHARS + 2];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    struct in6_addr v6;
    struct in_addr v4;
    if (!colon || !length || length >= sizeof host || !colon[1] || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    unsigned long port = strtoul(colon + 1, NULL, 10);
    memcpy(host, text, length);
    host[length] = '\0';
    bool is_v6 = host[0] == '[' && host[length - 1] == ']';
    if (is_v6)
        host[length - 1] = '\0';
    if (port > 65535 || inet_pton(is_v6 ? AF_INET6 : AF_INET, host + is_v6, is_v6 ? (void *)&v6 : (void *)&v4) != 1)
        return false;
    *address = (struct tcp_address){.bytes = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)};
    if (is_v6)
        *(struct sockaddr_in6 *)&address->socket =
            (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = v6};
    else
        *(struct sockaddr_in *)&address->socket =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = v4};
    return true;
}

uint16_t tcp_address_port(const struct tcp_address *address)
{
    const struct sockaddr_storage *socket = &address->socket;
    return ntohs(socket->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)socket)->sin6_port
                                               : ((const struct sockaddr_in *)socket)->sin_port);
}

const char *tcp_address_print(const struct tcp_address *address, char text[TCP_ADDRESS_CHARS])
{
    const struct sockaddr_storage *socket = &address->socket;
    char host[ADDRESS_CHARS];
    bool is_v6 = socket->ss_family == AF_INET6;
    inet_ntop(socket->ss_family,
              is_v6 ? (const void *)&((const struct sockaddr_in6 *)socket)->sin6_addr
                    : (const void *)&((const struct sockaddr_in *)socket)->sin_addr,
              host, sizeof host);
    snprintf(text, TCP_ADDRESS_CHARS, is_v6 ? "[%s]:%u" : "%s:%u", host, (unsigned)tcp_address_port(address));
    return text;
}

int tcp_listen(const struct tcp_address *address, struct tcp_address *bound)
{
    int yes = 1, fd = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    *bound = (struct tcp_address){.bytes = sizeof bound->socket};
    if (bind(fd, (const struct sockaddr *)&address->socket, address->bytes) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&bound->socket, &bound->bytes)) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}
