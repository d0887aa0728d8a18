/* Which connection a call came in on. gRPC names a call's peer "fd:N" after the descriptor it was given, and descriptor
 * numbers are used again, so the descriptors that gRPC gets are dup()ed to numbers handed out in a circle: a number comes
 * back thousands of connections later, when no call of its former owner can still be in a queue.
 * Between the accepted descriptor and gRPC's is a relay (rpc/rpc_relay.h), which sees that the client keeps to what HTTP/2
 * may ask; what messages need is charged to `account`. We keep the accepted descriptor itself and watch it for hang-up,
 * which is how the end of a connection is seen. Loop thread, except where said otherwise. */
#ifndef RPC_CONNECTIONS_H
#define RPC_CONNECTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/loop.h"
#include "base/metadata.h"

struct rpc_connections;

typedef void rpc_connection_end(void *context, uint64_t id, void *owner, bool is_surplus);
struct rpc_connections *rpc_connections_create(struct loop *loop, rpc_connection_end *on_end, void *context);
void rpc_connections_end_all(struct rpc_connections *connections); /* without calling on_end */
void rpc_connections_destroy(struct rpc_connections *connections); /* accepts NULL */

/* Takes `fd`. Returns the descriptor to give to gRPC, or -1 when there is none left (fd is closed then). `on_end` is
 * called once when the connection has hung up. A surplus connection is one too many. */
int rpc_connections_add(struct rpc_connections *connections, int fd, void *owner, struct metadata_account account,
                        bool is_surplus);
/* Any thread. A call of that connection has its message. */
void rpc_connections_taken(struct rpc_connections *connections, int number, uint64_t message_bytes);
bool rpc_connections_is_surplus(struct rpc_connections *connections, int number, const void *owner);
void rpc_connections_promote(struct rpc_connections *connections, int number, const void *owner); /* surplus no more */
/* Hangs up, later to be seen by `on_end`: surplus connections that are so old, or silent for so long; others without a call,
 * as the rule says. */
void rpc_connections_end_surplus(struct rpc_connections *connections, uint64_t age_ns, uint64_t silent_ns);
struct rpc_idle_rule {
    uint64_t idle_ns;   /* they have had no call for so long ... */
    uint64_t silent_ns; /* ... or for so long, when they have never had one */
    size_t most;
    bool (*may_end)(const void *data, const void *owner); /* of these owners; NULL = of all */
    const void *data;
};
void rpc_connections_end_idle(struct rpc_connections *connections, const struct rpc_idle_rule *rule);
/* Any thread. The id of the connection of `owner` that gRPC knows as descriptor `number`; 0 = it has hung up. */
uint64_t rpc_connections_find(struct rpc_connections *connections, int number, const void *owner);
/* Any thread. The process that made it, as this one sees it; 0 = it has hung up, or cannot be seen from here. */
pid_t rpc_connections_pid(struct rpc_connections *connections, int number, const void *owner);
/* Whether the process that made it was in the Unix group. */
bool rpc_connections_is_of_group(struct rpc_connections *connections, int number, const void *owner, gid_t gid);
/* Any thread. A call came in on this connection, whose id is the answer as above; and it ended. */
uint64_t rpc_connections_call_begins(struct rpc_connections *connections, int number, const void *owner);
void rpc_connections_call_ends(struct rpc_connections *connections, int number, uint64_t id);
uint64_t rpc_connections_count(const struct rpc_connections *connections);

#endif
