/* The methods of tensorcast.daemon.v1: one row each, and one file each or one for a service. Handlers run on the loop thread; the context
 * that the server gives them is a struct api. */
#ifndef API_API_H
#define API_API_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "activations/activation_writer.h"
#include "load/load_services.h"
#include "load/load_table.h"
#include "load/load_target.h"
#include "load/ticket.h"
#include "replica/folders.h"
#include "replica/handoff.h"
#include "rpc/rpc.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

struct open_calls;

struct api { /* what the methods need of the daemon, which fills it in before it serves */
    struct load_services services;
    struct load_table *loads;
    struct handoff *handoff;
    struct rpc_server *rpc;
    struct activations *activations;
    struct prewarms *prewarms;
    struct open_calls *open_calls;
    struct upload_queue *uploads;
    struct folders *folders;
    gid_t shared_group; /* of limits.shared_group; USER_GROUP_NONE = there is none */
    uint64_t started_ns;
    bool is_draining;
};

/* For a call that asks for a load or its plan, whose request is decoded at the cost of its user. Borrows `load` until the
 * ticket is resolved. with_region: into memory of the client, if it offers some. NULL: the request is no good. */
struct ticket *api_ticket(const struct api *api, struct rpc_call *call, const Tensorcast__Daemon__V1__LoadRequest *load,
                          bool with_region, struct error *error);

/* A folder as a row of the protocol; borrows its texts. */
void api_folder_status(const struct folder *folder, Tensorcast__Daemon__V1__FolderStatus *row);

extern const struct rpc_method api_methods[];
extern const size_t api_n_methods;

void method_resolve(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_explain(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_materialize(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_prewarm(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_unpin(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_release(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_make_folder(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_verify(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_sidecars(struct rpc_call *call, const ProtobufCMessage *request, void *context);

void method_activations_open(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_append(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_commit(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_close(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_describe(struct rpc_call *call, const ProtobufCMessage *request, void *context);

#endif
