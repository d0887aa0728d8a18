/* Which connection a call came in on. gRPC names a call's peer "fd:N" after the descriptor it was given, and descriptor
 * numbers are used again, so the descriptors that gRPC gets are dup()ed to numbers handed out in a circle: a number comes
 * back thousands of connections later, when no call of its former owner can still be in a queue.
 * We keep the accepted descriptor itself and watch it for hang-up, which is how the end of a connection is seen.
 * Loop thread, except rpc_connections_find() and rpc_connections_pid(). */
#ifndef RPC_CONNECTIONS_H
#define RPC_CONNECTIONS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/loop.h"

struct rpc_connections;

struct rpc_connections *rpc_connections_create(struct loop *loop, void (*on_end)(void *context, uint64_t id, void *owner),
                                               void *context);
void rpc_connections_end_all(struct rpc_connections *connections); /* without calling on_end */
void rpc_connections_destroy(struct rpc_connections *connections); /* accepts NULL */

/* Takes `fd`. Returns the descriptor to give to gRPC, or -1 when there is none left (fd is closed then). `on_end` is
 * called once when the connection has hung up. */
int rpc_connections_add(struct rpc_connections *connections, int fd, void *owner);

/* Any thread. The id of the connection of `owner` that gRPC knows as descriptor `number`; 0 = it has hung up. */
uint64_t rpc_connections_find(struct rpc_connections *connections, int number, const void *owner);
/* Any thread. The process that made this connection, as the kernel says; 0 = it has hung up, or lives in another name space.
 */
pid_t rpc_connections_pid(struct rpc_connections *connections, int number, const void *owner);
uint64_t rpc_connections_count(const struct rpc_connections *connections);

#endif
