/* Resolve: what an artifact holds. Headers are read and lists are built on a helper thread. */
#include <stdlib.h>

#include "base/memory.h"
#include "daemon.h"
#include "rpc/codec.h"
#include "rpc/methods.h"

struct resolve {
    struct loop_work work; /* first */
    struct rpc_call *call;
    const Tensorcast__Daemon__V1__ResolveRequest *request;
    const struct config *config;
    struct header_cache *headers;
    struct stores *stores;
    struct artifact *artifact;
    Tensorcast__Daemon__V1__ResolveResponse *response;
    char *source_index, *canonical_index;
    struct arena arena;
    struct error error;
};

static void resolve_artifact(struct loop_work *work)
{
    struct resolve *resolve = (struct resolve *)work;
    struct source_options options = {.trusted_roots = resolve->config->disk.trusted_roots,
                                     .n_trusted_roots = resolve->config->disk.n_trusted_roots,
                                     .stores = resolve->stores};
    if (artifact_resolve(resolve->request->artifact, &options, resolve->headers, resolve->request->fresh, &resolve->artifact,
                         &resolve->error) != 0)
        return;
    resolve->response = codec_artifact(resolve->artifact, resolve->request->known_identity, &resolve->arena);
    if (resolve->request->include_indexes) {
        resolve->response->source_index_json = resolve->source_index = artifact_source_index_json(resolve->artifact);
        resolve->response->canonical_index_json = resolve->canonical_index =
            artifact_canonical_index_json(resolve->artifact);
    }
}

static void answer(struct loop_work *work)
{
    struct resolve *resolve = (struct resolve *)work;
    if (resolve->response)
        rpc_call_reply(resolve->call, &resolve->response->base);
    else
        rpc_call_fail(resolve->call, &resolve->error);
    free(resolve->source_index);
    free(resolve->canonical_index);
    artifact_unref(resolve->artifact);
    arena_fini(&resolve->arena);
    free(resolve);
}

void method_resolve(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct daemon *daemon = context;
    struct resolve *resolve = memory_alloc(sizeof *resolve);
    resolve->work = (struct loop_work){.do_work = resolve_artifact, .done = answer};
    resolve->call = call;
    resolve->request = (const Tensorcast__Daemon__V1__ResolveRequest *)request;
    resolve->config = daemon->config;
    resolve->headers = daemon->services.headers;
    resolve->stores = daemon->services.stores;
    arena_init(&resolve->arena, 0);
    loop_submit(daemon->loop, &resolve->work);
}
