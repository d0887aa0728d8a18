/* What the files of the gRPC server share; no other file includes this. Everything runs on the loop thread, except for the
 * decoding of large requests and rpc_pack(), which see no struct of here but a call's request and its rpc_out. */
#ifndef RPC_RPC_INTERNAL_H
#define RPC_RPC_INTERNAL_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/unix_listener.h"
#include "rpc/rpc.h"
#include "rpc/rpc_floods.h"
#include "rpc/rpc_message.h"
#include "rpc/rpc_status.h"
#include "rpc/rpc_symbols.h"

struct rpc_connection;

enum rpc_state { RPC_STARTING, RPC_SERVING, RPC_DRAINING };
enum {
    RPC_MAX_METADATA_BYTES = 16 << 10
}; /* of a request's headers, 32 more for each, as SETTINGS_MAX_HEADER_LIST_SIZE counts */

/* --- methods: rpc_services.c ----------------------------------------------------------------------------------------- */

enum rpc_kind { RPC_UNARY, RPC_STREAM, RPC_BIDI };

struct rpc_route {
    char *path; /* "/package.Service/Method" */
    const ProtobufCMessageDescriptor *input;
    enum rpc_kind kind;
    bool is_essential, answers_in_drain; /* see struct rpc_method */
    void (*handle)(struct rpc_call *call, const ProtobufCMessage *request, void *context);
    void *context;
};

int rpc_services_build(struct rpc_server *server, struct error *error);
const struct rpc_route *rpc_services_find(const struct rpc_server *server, const char *path, size_t length);
void rpc_services_destroy(struct rpc_server *server);

/* --- whose handler runs when: rpc_admission.c ------------------------------------------------------------------------ */

struct rpc_line { /* of a user: calls whose messages are there, in order */
    TAILQ_HEAD(, rpc_call) calls;
    uint64_t turn, spent_ns; /* for the user, in this turn of the loop */
};

struct rpc_spell { /* of reading from a connection */
    struct rpc_line *line;
    uint64_t began_ns, before_ns;
};

struct rpc_turns {
    struct loop_turn *next;
    uint64_t turn, n_waiting;
};

void rpc_admission_init(struct rpc_server *server);
void rpc_admission_fini(struct rpc_server *server);
/* False: its user has used up the time of this turn. Otherwise rpc_admission_end_spell() counts what follows. */
bool rpc_admission_begin_spell(const struct rpc_connection *connection, struct rpc_spell *spell);
void rpc_admission_end_spell(const struct rpc_spell *spell);
/* Has the call's request decoded, if it is not yet, and handled, now or in a later turn. */
void rpc_admission_run(struct rpc_call *call);
void rpc_admission_remove(struct rpc_call *call); /* if it waits */
/* Another turn of the loop follows, whether something happens or not. */
void rpc_admission_next_turn(struct rpc_server *server);

/* --- who may connect and call: rpc_admission.c ----------------------------------------------------------------------- */

struct rpc_user { /* one per uid that has a connection */
    struct rpc_user *next;
    uid_t uid;
    struct rpc_line line;
    uint64_t n_connections, n_surplus; /* the latter are there to be told that they are too many */
    struct quota_charge connections, descriptors;
    struct error refusal; /* why the last surplus connection is one */
};

struct rpc_admission {
    struct rpc_user *users;
    uint64_t n_surplus;            /* of users who are not privileged */
    uint64_t warned_ns, n_refused; /* of connections; n_refused: since then */
    uint64_t evicted_ns;           /* when idle connections were last ended */
    struct loop_timer *sweep;      /* while there are connections */
    bool is_sweeping;
};

void rpc_admission_accept(void *server, int fd, const struct ucred *peer); /* takes fd */
void rpc_admission_ended(struct rpc_server *server, struct rpc_user *user, bool is_surplus);
/* -1: error says that the call, or the connection it came in on, is too many. */
int rpc_admission_admit(struct rpc_call *call, struct error *error);

/* --- sockets and HTTP/2: rpc_connection.c ---------------------------------------------------------------------------- */

struct rpc_unsent { /* what the socket did not take */
    uint8_t *bytes;
    size_t at, count;
};

/* One client's connection. It is destroyed by what its watch tells, or with the server, and by no other code: code that wants
 * it to end hangs up, and the watch tells. A surplus connection has no session before its first byte. */
struct rpc_connection {
    struct rpc_server *server;
    LIST_ENTRY(rpc_connection) in_server;
    struct rpc_user *user;
    uint64_t id;
    int fd;
    pid_t pid;
    bool refuses_descriptors; /* the kernel does, see base/foreign_fd.h */
    bool is_surplus;
    bool was_used; /* a call came in on it */
    bool is_pinged, is_over;
    uint64_t made_ns, heard_ns, used_ns; /* used: when it was made, or a call began or ended */
    struct loop_watch *watch;
    nghttp2_session *session;
    struct rpc_floods floods;
    const char *complaint; /* why it is to be ended */
    LIST_HEAD(, rpc_call) calls;
    size_t n_calls, n_refused; /* refused: of these, calls that are in no quota */
    struct rpc_unsent unsent;
    LIST_ENTRY(rpc_connection) in_touched;
    bool is_touched; /* it has something to write */
};

struct rpc_http2 { /* of the server: what all connections use in turns */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct loop_turn *turn;
    LIST_HEAD(, rpc_connection) touched;
    uint8_t *in, *out;
    size_t n_out;
    uint64_t complained_ns, n_unsaid; /* of connections that were ended */
};

void rpc_connection_init(struct rpc_server *server);
void rpc_connection_fini(struct rpc_server *server);
/* Takes fd. NULL: it cannot be watched, and is closed. */
struct rpc_connection *rpc_connection_create(struct rpc_server *server, int fd, const struct ucred *peer);
/* Says our SETTINGS, once, before or with the first answer. */
void rpc_connection_greet(struct rpc_connection *connection);
void rpc_connection_touch(struct rpc_connection *connection); /* something is to be written, before the loop waits */
void rpc_connection_end(struct rpc_connection *connection);   /* politely: says GOAWAY first */
void rpc_connection_ping(struct rpc_connection *connection);
void rpc_connection_send_away_all(
    struct rpc_server *server);                         /* asks clients to make their next calls on other connections */
void rpc_connection_end_all(struct rpc_server *server); /* at once; calls hear that their client left */

/* --- calls: rpc_call.c ----------------------------------------------------------------------------------------------- */

/*   RECEIVING --message--> [DECODING on a helper] --> [WAITING] --> RUNNING, the handler has it --> ENDED --> freed, when its
 *       ^------------------- bidi: the next message ------------------'                               stream is closed
 * WAITING is for its user's next turn. A refused call goes from RECEIVING to ENDED. Whether the client can still be told is
 * not a state: `stream`, `is_left`. */
enum rpc_call_state { RPC_CALL_RECEIVING, RPC_CALL_DECODING, RPC_CALL_WAITING, RPC_CALL_RUNNING, RPC_CALL_ENDED };

struct rpc_head {                  /* what the headers say */
    const struct rpc_route *route; /* NULL = unknown method */
    uint64_t timeout_ns;           /* UINT64_MAX = none */
    size_t bytes;
    bool is_post, is_grpc, is_encoded;
    struct traceparent parent;
};

struct rpc_request {
    struct rpc_message message; /* as it arrives */
    struct arena arena;
    ProtobufCMessage *decoded; /* in the arena */
    struct loop_work decoding;
    struct error *error; /* of decoding; NULL = none */
    size_t unconsumed;   /* bytes that came before their turn: the client's window stays shut for them */
    bool is_complete;    /* the client sends no more */
};

struct rpc_out { /* a packed message that waits to be written */
    STAILQ_ENTRY(rpc_out) link;
    struct quota_charge charge;
    size_t count;
    uint8_t bytes[]; /* with its prefix */
};

struct rpc_reply {
    STAILQ_HEAD(, rpc_out) outs;
    size_t n_out, at; /* so much of the first was written */
    size_t largest_bytes;
    enum error_code code;
    struct rpc_status *status; /* NULL = OK */
    bool is_begun;             /* headers were submitted */
    bool is_waiting;           /* libnghttp2 is to be told when there is more */
    bool is_last;              /* the status follows what is queued */
    bool is_closed;            /* the status was submitted: nothing can follow */
    bool was_dropped;          /* what was queued did not go out */
    bool has_drained;          /* the last of what was queued did, and the handler was not told */
};

struct rpc_hooks { /* what the handler wants to hear of */
    void (*on_cancel)(void *data);
    void *cancel_data;
    void (*on_idle)(void *data);
    void *idle_data;
    void (*on_state)(struct rpc_call *call); /* the server's state changed; for calls that we answer ourselves */
};

struct rpc_call {
    struct rpc_server *server;
    struct rpc_connection *connection; /* NULL = it has ended */
    LIST_ENTRY(rpc_call) in_connection;
    int32_t stream; /* 0 = closed */
    enum rpc_call_state state;
    uid_t uid;
    pid_t pid;
    uint64_t connection_id, made_ns, deadline_ns;
    struct loop_timer *deadline; /* NULL = none */
    struct quota_charge charge;  /* one of QUOTA_CALLS */
    struct rpc_head head;
    struct rpc_request request;
    struct rpc_reply reply;
    struct rpc_hooks hooks;
    struct rpc_line *line; /* of its user; NULL = it does not wait */
    TAILQ_ENTRY(rpc_call) in_line;
    struct loop_task telling; /* that the client is gone, when it cannot be said at once */
    bool is_telling_posted;
    enum rpc_state state_told; /* of the server, to hooks.on_state */
    unsigned holds;            /* of functions of ours that look at it later */
    bool is_left;              /* the client is gone, or was told the end */
    bool is_cut_off;           /* the daemon stops: answered, or about to be, whatever its handler says later */
    bool is_refused;           /* before it was charged */
};

/* From the connection, in this order. */
struct rpc_call *rpc_call_create(struct rpc_connection *connection, int32_t stream);
void rpc_call_header(struct rpc_call *call, nghttp2_vec name, nghttp2_vec value);
void rpc_call_begin(struct rpc_call *call); /* all headers are there */
void rpc_call_data(struct rpc_call *call, const uint8_t *bytes, size_t count);
void rpc_call_half_closed(struct rpc_call *call); /* the client sends no more */
void rpc_call_drained(struct rpc_call *call);     /* everything that was queued was written */
void rpc_call_closed(struct rpc_call *call);      /* the stream is; by the client or since all is said */
void rpc_call_disconnected(struct rpc_call *call);
void rpc_call_wait(struct rpc_call *call);   /* rpc_admission.c: it has to */
void rpc_call_handle(struct rpc_call *call); /* it is its turn */

/* Tells the handler as if the client had left. It may end the call at once; if it does not, since a helper of its hangs, the
 * client gets server->drain.stopping all the same. */
void rpc_call_cut_off(struct rpc_call *call);

/* A DATA frame: its head and `count` bytes of the first message go out. One at a time, for there is room for so many. */
int rpc_call_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t count,
                       nghttp2_data_source *source, void *connection);

/* --- the server: rpc.c ----------------------------------------------------------------------------------------------- */

struct rpc_drain {
    struct loop_timer *timer;
    uint64_t grace_ns, leaving_ns; /* until when calls have time; until when new ones are taken */
    bool is_shut, is_over, is_destroyed;
    struct loop_task over;
    void (*on_drained)(void *context);
    struct error stopping; /* what calls get that the end of the grace cuts off */
};

struct rpc_server {
    struct rpc_options options;
    enum rpc_state state;
    struct rpc_route *routes;
    size_t n_routes, routes_capacity;
    struct map paths; /* -> index into routes */
    struct rpc_symbols *symbols;
    struct unix_listener *listener;
    LIST_HEAD(, rpc_connection) connections;
    uint64_t n_connections, last_connection, n_calls, n_late_calls; /* calls: from arrival until freed */
    struct rpc_admission admission;
    struct rpc_turns turns;
    struct rpc_http2 http2;
    struct rpc_drain drain;
    struct loop_timer *trim;
    bool trim_waits;
};

void rpc_server_call_gone(struct rpc_server *server);  /* a call was freed; the server may be, too */
void rpc_server_trim_later(struct rpc_server *server); /* gives memory of large requests back in a moment */

#endif
