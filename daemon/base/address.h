/* Addresses of the Internet as numbers: which of them are this host, and which no request from outside may lead to.
 * Pure; any thread. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct address {
    unsigned char bytes[16]; /* IPv4 as ::ffff:a.b.c.d */
};

enum address_kind {
    ADDRESS_ANY,       /* of the network, private ones included */
    ADDRESS_THIS_HOST, /* 127.0.0.0/8, ::1 */
    ADDRESS_RESERVED,  /* link-local, unspecified, or a metadata service of a cloud, also where IPv6 wraps one of IPv4 */
};

enum { ADDRESS_CHARS = 48 };

/* "10.1.2.3" with four decimal numbers, or "fe80::1" without brackets and zone. */
bool address_parse(const char *text, size_t length, struct address *address);
/* Whether programs might read a host's name as an IPv4 address: its last part is a number, "127.1", "0x7f000001",
 * "017.0.0.1".
 */
bool address_is_numeric(const char *host, size_t length);
bool address_of_socket(const struct sockaddr *from, struct address *address); /* false = of another family */

enum address_kind address_kind(const struct address *address);
bool address_is_mapped(const struct address *address); /* IPv4, or IPv6 that stands for it: ::ffff:1.2.3.4, ::1.2.3.4 */
/* As in a URL, without brackets. Returns `text`. */
const char *address_print(const struct address *address, char text[ADDRESS_CHARS]);

#endif
