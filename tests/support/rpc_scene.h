/* A gRPC server whose handlers do what the artifact of a request says, and a genuine client beside it. For the tests of
 * daemon/rpc/. Test thread; whatever a helper needs and does not get ends the program.
 *
 * Resolve tells who called (identity = time left in ns, total_bytes = connection). Explain fails with the artifact as
 * message, "busy N" after N ms of work. Prewarm counts names. Materialize: "count N" sends N messages and ends, "flood N"
 * sends N MiB and hangs, anything else sends one message and hangs. FetchSidecars: "N" or "N small" sends N chunks, each when the one before was written. */
#ifndef TESTS_SUPPORT_RPC_SCENE_H
#define TESTS_SUPPORT_RPC_SCENE_H

#include <grpc/grpc.h>
#include <stdatomic.h>

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "tests/support/rpc_fixture.h"

/* gRPC's own client, in plain C: what the server has to get along with. */
grpc_channel *raw_channel(const char *socket, const grpc_arg *extra, size_t n_extra);

struct raw_call; /* a call in progress */
struct raw_bytes {
    void *data;
    size_t count;
};
struct raw_call *raw_start(grpc_channel *channel, const char *path, const void *message, size_t count, uint64_t timeout_ms);
struct raw_call *raw_open(grpc_channel *channel, const char *path, uint64_t timeout_ms); /* bidi: nothing sent yet */
void raw_send(struct raw_call *call, const void *message, size_t count);
void raw_half_close(struct raw_call *call);
bool raw_receive(struct raw_call *call, struct raw_bytes *bytes); /* false at the end; the caller frees data */
void raw_cancel(struct raw_call *call);
/* Waits for the status; frees the call. details: grpc-status-details-bin, NULL when absent; caller frees both. */
int raw_finish(struct raw_call *call, char **message, struct raw_bytes *details);
/* start, receive at most one message (may be NULL), finish. */
int raw_unary(grpc_channel *channel, const char *path, const void *message, size_t count, struct raw_bytes *reply,
              char **text);

#define SERVICE "/tensorcast.daemon.v1.StoreDaemon/"
#define SERVED(test) cmocka_unit_test_setup_teardown(test, rpc_scene_start, rpc_scene_stop)

extern struct rpc_scene {
    struct rpc_fixture fixture;
    grpc_channel *channel;
    _Atomic int cancels, disconnects, handled;
    _Atomic uint64_t last_disconnect;
    struct rpc_call *_Atomic held; /* loop thread ends it */
    _Atomic int sent, hung;
} rpc_scene;

void rpc_scene_prepare(void); /* without starting it */
void rpc_scene_launch(void);  /* that */
int rpc_scene_start(void **state);
int rpc_scene_stop(void **state);

struct raw_bytes rpc_scene_pack(const ProtobufCMessage *message);
struct raw_bytes rpc_scene_resolve_message(const char *artifact);
/* Explain, Prewarm and Materialize requests are all the same on the wire. */
struct raw_bytes rpc_scene_load_message(const char *artifact, Tensorcast__Daemon__V1__View *view);
int rpc_scene_resolve(grpc_channel *on, const char *artifact, Tensorcast__Daemon__V1__ResolveResponse **response);
uint64_t rpc_scene_connection(grpc_channel *on);
struct raw_call *rpc_scene_start_load(const char *artifact, uint64_t timeout_ms);
void rpc_scene_receive(struct raw_call *call); /* one message */
bool rpc_scene_has_one_cancel(void *data);
void rpc_scene_assert_serves(void);
int rpc_scene_connect(const char *path); /* a plain socket */

#endif
