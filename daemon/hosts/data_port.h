/* The port for other hosts, HTTP/1.1 by libmicrohttpd, over mutual TLS if hosts.tls is set. A request without a proof (proof.h, or
 * the certificate) gets 401 and nothing else. A connection that has proven nothing ends after ten seconds.
 *
 *     GET /v1/host     who this is: {"name", "incarnation", "version"}
 *     GET /v1/blocks   bytes of a block (block_query.h): 206 with ETag: "ID", Content-Range (of rows: 0-(N-1)/N, as they are a resource
 *                      of N bytes) and x-tensorcast-read, the bytes that the source was asked for; or a line of text that says why not
 *                      (block_server.h)
 *
 * Answers come from threads of their own, one for each connection; open, reap and close are the loop's. */
#ifndef HOSTS_DATA_PORT_H
#define HOSTS_DATA_PORT_H

#include <stdint.h>

#include "hosts/host_settings.h"

#define BLOCK_READ_HEADER "x-tensorcast-read"

struct block_server;
struct data_port;
struct data_port_identity { /* of this host; lives as long as the port */
    const char *name, *incarnation, *version;
};
struct data_port_blocks {
    struct block_server *server; /* lives as long as the port; NULL = this host gives none */
    /* A host has got so many bytes. Called on the port's threads; may be NULL. */
    void (*count_out)(void *data, const char *incarnation, uint64_t bytes);
    void *data;
};
/* Binds and serves. -1 with the error when it cannot listen there. Borrows everything until data_port_close(). */
int data_port_open(const struct host_settings *settings, const struct data_port_identity *identity,
                   const struct data_port_blocks *blocks, struct data_port **port, struct error *error);
void data_port_close(struct data_port *port);            /* cuts answers off that are being sent; accepts NULL */
uint16_t data_port_number(const struct data_port *port); /* that it is bound to */
void data_port_reap(struct data_port *port); /* once a second: ends connections that have proven nothing in time */

#endif
