/* "ADDRESS:PORT" of the configuration, and TCP sockets that listen there. Any thread. */
#ifndef BASE_TCP_LISTENER_H
#define BASE_TCP_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/address.h"

struct tcp_address {
    struct sockaddr_storage socket;
    socklen_t bytes;
};

enum { TCP_ADDRESS_CHARS = ADDRESS_CHARS + 8 };

/* "10.0.0.7:7070", "[::]:0": numbers, no names. False: it is something else. */
bool tcp_address_parse(const char *text, struct tcp_address *address);
/* The same again. Returns `text`. */
const char *tcp_address_print(const struct tcp_address *address, char text[TCP_ADDRESS_CHARS]);
uint16_t tcp_address_port(const struct tcp_address *address);

/* A socket that listens, or -1 with errno. *bound: where, also when a free port was asked for. */
int tcp_listen(const struct tcp_address *address, struct tcp_address *bound);

#endif
