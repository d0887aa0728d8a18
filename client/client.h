/* What the files of the library share: the client and how its errors reach the caller. */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include "base/error.h"
#include "rpc_client.h"
#include "tensorcast.h"

struct tc_client {
    char *socket_path;
    struct rpc_client *rpc;
};

int client_fail(struct tc_error *to, const struct error *from); /* returns -1; `to` may be NULL */

#endif
