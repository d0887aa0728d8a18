/* Between the accepted sockets and gRPC: copies bytes both ways past a guard (rpc/http2_guard.h), in one thread. Requests
 * and answers are small beside tensors, which never come this way.
 *
 * A client that does not read its answers is not read from, so that what it makes gRPC answer lies in its own socket
 * buffers. A connection that the guard complains of is shut down, which its owner sees as a hang-up. */
#ifndef RPC_RPC_RELAY_H
#define RPC_RPC_RELAY_H

#include <stdint.h>
#include <sys/types.h>

#include "base/metadata.h"

struct rpc_relay;

struct rpc_relay *rpc_relay_create(int n_numbers); /* numbers are below it; NULL = no thread or no epoll */
void rpc_relay_destroy(struct rpc_relay *relay);   /* accepts NULL; every link is removed */

struct rpc_link {
    int number; /* names it in calls of the relay; free again after rpc_relay_remove() */
    int client; /* borrowed until then */
    int server; /* the relay's end of a socket pair; taken */
    pid_t pid;  /* for messages */
    struct metadata_account account;
};
/* Any thread. -1 with errno: not added, server is closed. */
int rpc_relay_add(struct rpc_relay *relay, const struct rpc_link *link);
void rpc_relay_remove(struct rpc_relay *relay, int number);
/* A call of this link has its message. */
void rpc_relay_taken(struct rpc_relay *relay, int number, uint64_t message_bytes);

#endif
