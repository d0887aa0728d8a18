/* An accept loop on a Unix socket of ours, for gRPC and for the hand-off, that tells who connected. A lock file beside the socket
 * decides who owns the path; a spare descriptor lets surplus connections be shed when none is left.
 *
 * A listening socket that a supervisor passed may have several processes: one accepts, the others wait until it closes the
 * socket or ends, and connections wait in the kernel meanwhile. Everything runs on the loop thread. */
#ifndef UNIX_LISTENER_H
#define UNIX_LISTENER_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/loop.h"

struct unix_listener;

struct unix_listener_options {
    struct loop *loop;
    const char *key; /* of the path in the configuration, for messages: "server.socket_path" */
    int type;        /* SOCK_STREAM or SOCK_SEQPACKET */
    const char *path;
    uint32_t mode;
    const char *group;       /* "" = leave; a name or a number */
    int listen_fd;           /* -1 = bind `path`, else a passed socket, taken over as it is */
    bool refuse_descriptors; /* that clients send along, where the kernel can: base/foreign_fd.h */
    /* Takes the connected descriptor (non-blocking, close-on-exec). */
    void (*on_accept)(void *context, int fd, const struct ucred *peer);
    void (*on_shed)(void *context, int errno_value); /* descriptors ran out and a connection was closed; may be NULL */
    void (*on_turn)(void *context);                  /* the process that accepted has gone: now this one does; may be NULL */
    void *context;
};

/* Whether this process accepts from a passed socket; if so, until it closes any descriptor of that socket. */
bool unix_listener_take_turn(int fd);

/* NULL: an error that names the path. */
struct unix_listener *unix_listener_open(const struct unix_listener_options *options, struct error *error);
bool unix_listener_waits(const struct unix_listener *listener); /* another process accepts */
void unix_listener_close(struct unix_listener *listener);       /* removes the socket if we made it; accepts NULL */

#endif
