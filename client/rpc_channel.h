/* One HTTP/2 connection to the daemon, shared by all calls of a client: what the daemon ties to a connection (tokens of
 * memory, what a call waits for, a user's share of connections) holds for all of them. It has no thread: of those who wait
 * for an answer one reads, for all. So nothing is read, and no ping is answered, while no thread waits. Any thread. */
#ifndef CLIENT_RPC_CHANNEL_H
#define CLIENT_RPC_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc_stream.h"

struct rpc_channel;

struct rpc_channel *rpc_channel_create(int fd); /* takes fd, a connected socket that does not block */
struct rpc_channel *rpc_channel_ref(struct rpc_channel *channel);
void rpc_channel_unref(struct rpc_channel *channel); /* the last one closes; takes NULL */
/* In a forked child: closes its copy of the socket. The rest is lost, since it is unknown in which state it was left. */
void rpc_channel_forget(struct rpc_channel *channel);

/* Whether a call may be made on it, by what has come until now. */
bool rpc_channel_is_usable(struct rpc_channel *channel);

/* Begins a call. The stream stays until rpc_channel_leave(), and is touched meanwhile by no function but those of here. */
void rpc_channel_submit(struct rpc_channel *channel, struct rpc_stream *stream, char *path, uint64_t timeout_ns,
                        char *traceparent); /* "" = none */
/* Until the stream has a message or an end: true. False: it is until_ns (UINT64_MAX = no limit). */
bool rpc_channel_wait(struct rpc_channel *channel, struct rpc_stream *stream, uint64_t until_ns);
/* The next message, the caller's to free(); NULL = there is none now. */
struct rpc_answer *rpc_channel_take(struct rpc_channel *channel, struct rpc_stream *stream);
/* Cancels the call if it has not ended. */
void rpc_channel_leave(struct rpc_channel *channel, struct rpc_stream *stream);

#endif
