/* Our own accept loop on a Unix stream socket: gRPC's dies for ever on the first EMFILE, steals living paths and does not
 * tell who called. A lock file beside the socket decides who owns the path; a spare descriptor lets surplus connections
 * be shed when none is left. Everything runs on the loop thread. */
#ifndef RPC_LISTENER_H
#define RPC_LISTENER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"

struct rpc_listener;

struct rpc_listener_options {
    struct loop *loop;
    const char *path;
    uint32_t mode;
    const char *group; /* "" = leave; a name or a number */
    int listen_fd;     /* -1 = bind `path`, else taken over as it is */
    /* Takes the connected descriptor (non-blocking, close-on-exec). */
    void (*on_accept)(void *context, int fd, uid_t uid);
    void *context;
};

/* NULL: an error that names the path. */
struct rpc_listener *rpc_listener_open(const struct rpc_listener_options *options, struct error *error);
void rpc_listener_close(struct rpc_listener *listener); /* removes the socket if we made it; accepts NULL */

#endif
