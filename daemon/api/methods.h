/* The methods of tensorcast.daemon.v1.StoreDaemon: one row and one file each. Handlers run on the loop thread; their
 * context is the struct daemon. */
#ifndef RPC_METHODS_H
#define RPC_METHODS_H

#include "rpc/rpc.h"

extern const struct rpc_method rpc_methods[];
extern const size_t rpc_n_methods;

void method_resolve(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_explain(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_materialize(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_prewarm(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_release(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_verify(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_sidecars(struct rpc_call *call, const ProtobufCMessage *request, void *context);

#endif
