/* Resolve: what an artifact holds. Headers are read and the answer, which may have megabytes, is packed on a helper thread.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "daemon.h"
#include "api/codec.h"
#include "api/methods.h"

struct resolve {
    struct loop_work work; /* first */
    struct rpc_call *call;
    const Tensorcast__Daemon__V1__ResolveRequest *request;
    struct daemon *daemon;
    const struct config *config;
    size_t n_to_evict; /* see replica_free_descriptors() */
    _Atomic bool cancelled;
    struct rpc_out *answer; /* NULL = it failed */
    struct error error;
};

static bool is_cancelled(void *data)
{
    return ((struct resolve *)data)->cancelled;
}

static void on_cancel(void *data)
{
    struct resolve *resolve = data;
    resolve->cancelled = true;
    loop_cancel(resolve->daemon->loop, &resolve->work);
}

/* Of two documents in text buffers that double. */
static int charge_indexes(const struct artifact *artifact, struct quota_charge *charge, struct error *error)
{
    enum { BYTES_PER_TENSOR = 160, COPIES = 4 };
    uint64_t bytes = 0;
    for (size_t i = 0; i < artifact->n_tensors; i++)
        bytes += BYTES_PER_TENSOR + artifact->tensors[i].name_length + 40 * artifact->tensors[i].rank;
    return quota_charge_add(charge, COPIES * bytes, error);
}

static struct rpc_out *pack(const struct artifact *artifact, const Tensorcast__Daemon__V1__ResolveRequest *request,
                            struct error *error)
{
    struct arena arena;
    struct quota_charge indexes = metadata_charge();
    char *source_index = NULL, *canonical_index = NULL;
    arena_init(&arena, 0);
    Tensorcast__Daemon__V1__ResolveResponse *response = codec_artifact(artifact, request->known_identity, &arena, error);
    if (response && request->include_indexes && charge_indexes(artifact, &indexes, error) != 0)
        response = NULL;
    if (response && request->include_indexes) {
        response->source_index_json = source_index = artifact_source_index_json(artifact);
        response->canonical_index_json = canonical_index = artifact_canonical_index_json(artifact);
    }
    struct rpc_out *packed = response ? rpc_pack(&response->base, error) : NULL;
    free(source_index);
    free(canonical_index);
    quota_charge_end(&indexes);
    arena_fini(&arena);
    return packed;
}

static void resolve_and_pack(struct resolve *resolve)
{
    const struct cancel cancel = {is_cancelled, resolve};
    struct source_options options = {.trusted_roots = resolve->config->disk.trusted_roots,
                                     .n_trusted_roots = resolve->config->disk.n_trusted_roots,
                                     .stores = resolve->daemon->services.stores,
                                     .cancel = &cancel,
                                     .uid = rpc_call_uid(resolve->call)};
    struct artifact *artifact;
    if (artifact_resolve(resolve->request->artifact, &options, resolve->daemon->services.headers, resolve->request->fresh,
                         &artifact, &resolve->error) != 0)
        return;
    resolve->answer = pack(artifact, resolve->request, &resolve->error);
    artifact_unref(artifact);
}

static void resolve_artifact(struct loop_work *work)
{
    struct resolve *resolve = (struct resolve *)work;
    struct metadata_account before = metadata_enter(rpc_call_account(resolve->call));
    resolve_and_pack(resolve);
    metadata_enter(before);
}

static void finish(struct resolve *resolve)
{
    if (resolve->answer)
        rpc_call_reply_packed(resolve->call, resolve->answer);
    else
        rpc_call_fail(resolve->call, &resolve->error);
    free(resolve);
}

static void answer(struct loop_work *work)
{
    struct resolve *resolve = (struct resolve *)work;
    struct daemon *daemon = resolve->daemon;
    struct replica_table *replicas = daemon->services.targets->list[LOAD_TARGET_HOST].replicas;
    if (!resolve->answer && !resolve->cancelled &&
        (replica_free_descriptors(replicas, rpc_call_uid(resolve->call), &resolve->error, &resolve->n_to_evict) ||
         replica_free_metadata(replicas, &resolve->error, rpc_call_uid(resolve->call)))) {
        loop_continue(daemon->loop, &resolve->work);
        return;
    }
    finish(resolve);
}

void method_resolve(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct daemon *daemon = context;
    struct resolve *resolve = memory_alloc(sizeof *resolve);
    resolve->call = call;
    resolve->request = (const Tensorcast__Daemon__V1__ResolveRequest *)request;
    resolve->work = (struct loop_work){.do_work = resolve_artifact, .done = answer, .uid = rpc_call_uid(call)};
    source_place_work(resolve->request->artifact, &resolve->work);
    resolve->daemon = daemon;
    resolve->config = daemon->config;
    fail(&resolve->error, ERROR_CANCELLED, "CLIENT_LEFT", "the client left before its request was looked at");
    rpc_call_on_cancel(call, on_cancel, resolve);
    if (loop_submit(daemon->loop, &resolve->work, &resolve->error) != 0)
        finish(resolve);
}
