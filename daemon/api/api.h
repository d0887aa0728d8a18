/* The methods of tensorcast.daemon.v1: one row each, and one file each or one for a service. Handlers run on the loop thread; the context
 * that the server gives them is a struct api. */
#ifndef API_API_H
#define API_API_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "activations/activation_writer.h"
#include "load/load_services.h"
#include "load/ticket.h"
#include "replica/folders.h"
#include "replica/handoff.h"
#include "rpc/rpc.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* Calls that are being worked on: Status tells why that takes long, to the clients that wait for them and to every user. */
struct open_call { /* embedded in what a method keeps of a call; zeroed */
    LIST_ENTRY(open_call) in_list;
    const struct rpc_call *call;
    bool is_listed_as_load;                   /* once it reads: Status has a row of its load */
    struct load_info (*describe)(void *data); /* its artifact, how far it is, what it waits for */
    void *data;
};

/* The newest first. A method takes its call out before the call is answered, or in the same turn of the loop. */
LIST_HEAD(open_calls, open_call);

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
    struct hosts *hosts; /* NULL = none are configured, or not joined yet */
    const char *handoff_path;
    const char *metrics_address; /* where the HTTP port of operators listens; "" = nowhere */
    gid_t shared_group;          /* of limits.shared_group; USER_GROUP_NONE = there is none */
    uint64_t started_ns;
    double started_at_s; /* since the epoch */
    bool is_draining;
};

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
void method_blame(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_verify(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_sidecars(struct rpc_call *call, const ProtobufCMessage *request, void *context);

void method_activations_open(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_append(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_commit(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_close(struct rpc_call *call, const ProtobufCMessage *request, void *context);
void method_activations_describe(struct rpc_call *call, const ProtobufCMessage *request, void *context);

#endif
