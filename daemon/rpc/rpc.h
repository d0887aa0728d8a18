/* The gRPC server, over libnghttp2: serves protobuf-c services over our own Unix socket, on the loop thread alone.
 *
 * A method is one row {service descriptor, method name, handler}. Handlers and everything else in this header run on the
 * loop thread. A call ends by exactly one of rpc_call_reply, rpc_call_end, rpc_call_fail; the call and its request are
 * gone when that function returns. When a client cancels, disconnects or passes its deadline, `on_cancel` runs once and
 * the call must still be ended. grpc.health.v1 and server reflection are answered inside. */
#ifndef RPC_RPC_H
#define RPC_RPC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/metadata.h"
#include "base/quota.h"
#include "base/traceparent.h"

struct rpc_server;
struct rpc_call;
struct rpc_out; /* a packed message */

struct rpc_method {
    const ProtobufCServiceDescriptor *service;
    const char *name; /* "Materialize" */
    bool streams;     /* server stream */
    void (*handle)(struct rpc_call *call, const ProtobufCMessage *request, void *context);
    bool is_essential; /* answered for root and the daemon's own user when no quota has room for them */
    bool answers_in_drain;
};

struct rpc_options {
    struct loop *loop;
    const char *socket_path;
    uint32_t socket_mode;
    const char *socket_group; /* "" = leave */
    uint64_t max_message_bytes;
    struct quota *quota; /* shares of users; NULL = nothing is counted */
    int listen_fd; /* -1 = bind socket_path; else a listening socket from systemd, where another process may listen, too */
    const struct rpc_method *methods;
    size_t n_methods;
    const void *descriptor_set; /* serialized FileDescriptorSet, for reflection */
    size_t descriptor_set_bytes;
    void *context;                                             /* for handlers */
    void (*on_disconnect)(void *context, uint64_t connection); /* may be NULL */
    void (*on_grace_over)(void *context);                      /* calls are about to be cut off; may be NULL */
};

/* Binds, listens and serves; health says NOT_SERVING until rpc_server_ready(). A path that is served by a living daemon, is
 * no socket, or is too long is an error naming it; a stale socket is replaced. */
int rpc_server_create(const struct rpc_options *options, struct rpc_server **server, struct error *error);
void rpc_server_ready(struct rpc_server *server);
bool rpc_server_waits(const struct rpc_server *server); /* another process accepts from the passed socket */
/* Health goes NOT_SERVING; new calls are UNAVAILABLE, except of methods that answer in a drain. A socket of its own stays
 * until the last call has ended, so that probes find the daemon. One that was passed is left to the next daemon: clients are
 * told to go there, and calls that are on their way are still handled. Running calls go on; `drained` runs once when the last
 * has ended or, soon after grace_ms, when what was left has been answered with UNAVAILABLE (DAEMON_STOPPING) and cancelled. */
void rpc_server_drain(struct rpc_server *server, uint64_t grace_ms, void (*drained)(void *context));
/* After drained (or at a failed start). A call that its handler has not ended by then is abandoned with the server. */
void rpc_server_destroy(struct rpc_server *server);
uint64_t rpc_server_connections(const struct rpc_server *server);

void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *message); /* the last or only message, and OK */
/* The same in two steps, so that a reply of megabytes is packed beside the loop. rpc_pack(): any thread; charged to the
 * thread's account (base/metadata.h) until it is written; NULL when the user has too much. */
struct rpc_out *rpc_pack(const ProtobufCMessage *message, struct error *error);
void rpc_call_reply_packed(struct rpc_call *call, struct rpc_out *packed); /* takes it */
/* Stream: queues one message. Progress is to be coalesced: send it only while rpc_call_idle(). A client that leaves 16
 * messages unread is cut off with RESOURCE_EXHAUSTED, which the handler sees as a cancel. */
void rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message);
bool rpc_call_idle(const struct rpc_call *call); /* nothing is being written */
/* Calls fn once everything queued was written, or can no longer be because the client is gone: at most once, never from
 * inside this function, and not at all when nothing is being written. For streams that carry more than a few messages. */
void rpc_call_on_idle(struct rpc_call *call, void (*fn)(void *data), void *data);
void rpc_call_end(struct rpc_call *call);                             /* stream: OK after what was queued */
void rpc_call_fail(struct rpc_call *call, const struct error *error); /* code, message, google.rpc.ErrorInfo; logs it */
void rpc_call_fail_quietly(struct rpc_call *call, const struct error *error); /* the log has been told */

void rpc_call_on_cancel(struct rpc_call *call, void (*fn)(void *data), void *data);
bool rpc_call_is_left(const struct rpc_call *call); /* its client is gone; on_cancel may have yet to say so */
/* The decoded request is not needed any more: its memory goes now instead of with the call. */
void rpc_call_drop_request(struct rpc_call *call);
uid_t rpc_call_uid(const struct rpc_call *call);
bool rpc_call_is_of_group(const struct rpc_call *call, gid_t gid);     /* the process that connected was in the Unix group */
pid_t rpc_call_pid(const struct rpc_call *call);                       /* that connected; 0 = not to be seen from here */
struct metadata_account rpc_call_account(const struct rpc_call *call); /* of its user */
uint64_t rpc_call_connection(const struct rpc_call *call);             /* unique per connection of this process's life */
struct traceparent rpc_call_traceparent(const struct rpc_call *call);  /* of its metadata */
const char *rpc_call_method(const struct rpc_call *call);              /* "Resolve"; of the calls that handlers get */

#endif
