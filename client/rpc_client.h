/* Calls to the daemon, over one connection that is made at the first of them, so that a process may connect, fork and call in
 * the child. No threads of its own: a thread that waits for an answer serves the connection. Any thread. */
#ifndef CLIENT_RPC_CLIENT_H
#define CLIENT_RPC_CLIENT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "wait.h"

struct rpc_client;

/* other_path: where a daemon was looked for in vain, for errors; NULL = nowhere. */
struct rpc_client *rpc_client_create(const char *socket_path, const char *other_path);
/* Before the first call: all are part of that trace. What is no traceparent, or NULL, is ignored, as the W3C wants it. */
void rpc_client_set_traceparent(struct rpc_client *client, const char *text);
void rpc_client_destroy(struct rpc_client *client);

struct rpc_question {
    const char *method; /* of StoreDaemon: "Resolve"; of another service with its name: "ActivationStore/Open" */
    const ProtobufCMessage *message;
    const ProtobufCMessageDescriptor *answer;
    /* Gets every answer of a stream, in order, or the one of a unary call. It lives in `arena` until the caller of
     * rpc_client_ask() ends that. Non-zero cancels the call and is what rpc_client_ask() fails with. */
    int (*on_answer)(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error);
    void *data;
};

/* Waits for the end of the call. Asks once more when the connection turns out to be dead before anything was answered:
 * every method of the daemon may be repeated. Errors of the transport are UNAVAILABLE and name the socket. */
int rpc_client_ask(struct rpc_client *client, const struct rpc_question *question, const struct wait *wait,
                   struct arena *arena, struct error *error);

/* A unary call: the answer in `arena`, or NULL. */
void *rpc_client_get(struct rpc_client *client, const char *method, const ProtobufCMessage *message,
                     const ProtobufCMessageDescriptor *answer, const struct wait *wait, struct arena *arena,
                     struct error *error);

#endif
