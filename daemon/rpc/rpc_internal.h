/* What the files of the gRPC server share; nobody else includes this.
 *
 * Threads: the queue thread waits on the one completion queue, re-arms slots, decodes small requests and posts to the
 * loop. Everything else, all state of calls included, belongs to the loop thread. A call is set up by the queue thread
 * before its first post and never touched by it again, except through a tag whose operation is running.
 * Identity: every uid has a grpc_server of its own (a `peer`), so that the server a call came in on says who sent it. */
#ifndef RPC_RPC_INTERNAL_H
#define RPC_RPC_INTERNAL_H

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/map.h"
#include "rpc/rpc.h"
#include "rpc/rpc_connections.h"
#include "base/unix_listener.h"
#include "rpc/rpc_status.h"
#include "rpc/rpc_symbols.h"

/* What a completion-queue event points to. */
struct rpc_tag {
    struct loop_task task;                          /* first: a task is its tag */
    void (*on_event)(struct rpc_tag *tag, bool ok); /* queue thread */
    void *owner;
    _Atomic bool handed_over; /* orders this thread before the queue thread where a race detector can see it */
    bool ok;
};

enum rpc_kind { RPC_UNARY, RPC_STREAM, RPC_BIDI };

struct rpc_route {
    char *path; /* "/package.Service/Method" */
    const ProtobufCMessageDescriptor *input;
    enum rpc_kind kind;
    bool is_essential; /* see struct rpc_method */
    void (*handle)(struct rpc_call *call, const ProtobufCMessage *request, void *context);
    void *context;
};

enum rpc_state { RPC_STARTING, RPC_SERVING, RPC_DRAINING };

/* One per uid, 21 KiB each, from its first connection until a moment after its last connection and call. */
struct rpc_peer {
    struct rpc_server *server;
    struct rpc_peer *next;
    grpc_server *grpc;
    struct rpc_tag stopped;
    uint64_t n_connections, n_surplus; /* the latter are there to be told that they are too many */
    _Atomic uint64_t n_calls;          /* from arrival until freed */
    _Atomic uint64_t n_slots;          /* asked of gRPC and not yet used */
    uint64_t empty_since_ns;           /* 0 = it is not */
    bool is_stopping, has_stopped;
    struct quota_charge connections, descriptors;
    struct error refusal; /* why the last surplus connection is one */
    uid_t uid;
};

struct rpc_server {
    struct rpc_options options;
    enum rpc_state state;
    struct rpc_route *routes;
    size_t n_routes, routes_capacity;
    struct map paths; /* -> index into routes; const once the queue thread runs */
    struct rpc_symbols *symbols;

    struct unix_listener *listener;
    struct rpc_connections *connections;
    struct rpc_peer *peers;
    size_t n_peers_running;
    struct rpc_call *calls;   /* whose request reached the loop; until they are freed */
    _Atomic uint64_t n_calls; /* from arrival until freed */

    grpc_completion_queue *queue;
    grpc_server_credentials *credentials;
    grpc_resource_quota *quota;
    pthread_t thread;
    bool thread_runs;
    pthread_mutex_t post_lock;
    bool closed; /* under post_lock: the loop takes no more tasks */

    struct loop_timer *grace, *trim;
    struct loop_timer *sweep;
    bool is_sweeping;
    struct rpc_surplus *surplus;   /* connections that have not said anything yet */
    uint64_t n_surplus;            /* of users who are not privileged */
    uint64_t warned_ns, n_refused; /* of connections; n_refused: since then */
    uint64_t evicted_ns;           /* when idle connections were last ended */
    bool trim_waits;
    bool shut, drained;
    struct loop_task over;
    void (*on_drained)(void *context);
    struct error stopping; /* what calls get that the end of the grace cuts off */
};

struct rpc_out { /* a packed message that waits to be written */
    struct rpc_out *next;
    grpc_byte_buffer *buffer;
    struct quota_charge charge;
};

struct rpc_call {
    struct rpc_server *server;
    struct rpc_peer *peer;
    const struct rpc_route *route; /* NULL = unknown method */
    struct rpc_call *next, **link; /* in server->calls; link NULL = not in it */

    grpc_call *grpc;
    grpc_call_details details;
    grpc_metadata_array metadata;
    int number; /* of the connection's descriptor in gRPC */
    pid_t pid;
    uint64_t connection, deadline_ns;
    struct quota_charge charge; /* one of QUOTA_CALLS */
    bool is_refused;            /* by the quota, at its arrival: decode_error says why */
    struct rpc_tag arrived, received, closed, written, late_cancel;

    grpc_byte_buffer *payload;
    struct quota_charge payload_charge;
    size_t largest_bytes; /* message in either direction */
    struct loop_work decoding;
    struct arena arena;
    ProtobufCMessage *request; /* in the arena */
    struct error decode_error;
    bool has_message;

    unsigned refs;     /* handler, and every operation that is running */
    int was_cancelled; /* written by gRPC */
    bool cancelled, ended, writing, header_sent, status_sent;
    bool is_cut_off;               /* the daemon stops: answered, or about to be, whatever its handler says later */
    struct rpc_out *being_written; /* gRPC has its bytes; NULL = none */
    struct rpc_out *first_out, **last_out;
    size_t n_out;
    struct rpc_status *status; /* NULL = OK */
    enum error_code code;
    grpc_slice details_slice;
    grpc_metadata trailer;
    void (*on_cancel)(void *data);
    void *cancel_data;
    void (*on_idle)(void *data);
    void *idle_data;
    void (*on_state)(struct rpc_call *call); /* the server's state changed; for calls that we answer ourselves */
};

/* rpc.c */
void rpc_post(struct rpc_server *server, struct rpc_tag *tag); /* any thread; dropped once the server is closed */
void rpc_hand_over(struct rpc_tag *tag);       /* before every operation: gives the tag and its owner to the queue thread */
void rpc_call_gone(struct rpc_server *server); /* a call was freed */
void rpc_peer_gone(struct rpc_server *server); /* a peer has stopped */

/* rpc_route.c */
int rpc_route_build(struct rpc_server *server, struct error *error);
const struct rpc_route *rpc_route_find(const struct rpc_server *server, const char *path, size_t length); /* any thread */
void rpc_route_destroy(struct rpc_server *server);

/* rpc_peer.c */
void rpc_peer_accept(struct rpc_server *server, int fd, uid_t uid); /* takes fd */
void rpc_peer_arm(struct rpc_peer *peer);                           /* asks for one more call; any thread */
/* False: error says that the call, or the connection it came in on, is too many. */
bool rpc_peer_admits(struct rpc_call *call, struct error *error);
/* Root and the daemon's own user can always look and act. Any thread. */
bool rpc_peer_owes(const struct rpc_call *call);
void rpc_peer_connection_ended(struct rpc_server *server, struct rpc_peer *peer, bool is_surplus);
void rpc_peer_on_sweep(void *server);
void rpc_peer_stop_all(struct rpc_server *server); /* cancels everything; rpc_peer_gone() for each */
void rpc_peer_free_all(struct rpc_server *server); /* after that */

/* rpc_memory.c */
void rpc_memory_tame(void);
void rpc_memory_trim_later(struct rpc_server *server);
void rpc_memory_on_timer(void *server);

/* rpc_call.c */
struct rpc_call *rpc_call_create(struct rpc_peer *peer); /* a slot for the next call */
void rpc_call_discard(struct rpc_call *call);            /* a slot that was never used */
void rpc_call_receive(struct rpc_call *call);            /* RPC_BIDI: asks for the next message */
/* Tells the handler as if the client had left. It may end the call at once; if it does not, since a helper of its hangs, the
 * client gets server->stopping all the same. */
void rpc_call_cut_off(struct rpc_call *call);

/* rpc_health.c, rpc_reflection.c: rows for server->routes, with the server as context. */
extern const struct rpc_method rpc_health_methods[];
enum { RPC_HEALTH_METHODS = 2, RPC_REFLECTION_VERSIONS = 2 };
extern const ProtobufCServiceDescriptor *const rpc_reflection_services[RPC_REFLECTION_VERSIONS];
void rpc_reflection_handle(struct rpc_call *call, const ProtobufCMessage *request, void *context);

#endif
