/* Resolve: what an artifact holds. Headers are read and the answer, which may have megabytes, is packed on a helper thread.
 */
#include <stdlib.h>

#include "api/api_job.h"
#include "api/codec.h"
#include "base/memory.h"
#include "variant/variant.h"

struct resolve {
    struct api_job job; /* first */
    const Tensorcast__Daemon__V1__ResolveRequest *request;
    struct rpc_out *answer;
};

/* Of two documents in text buffers that double. */
static int charge_indexes(const struct artifact *artifact, struct quota_charge *charge, struct error *error)
{
    enum { BYTES_PER_TENSOR = 160, COPIES = 4 };
    uint64_t bytes = 0;
    for (size_t i = 0; i < artifact->n_tensors; i++)
        bytes += BYTES_PER_TENSOR + artifact->tensors[i].name_length + 40 * artifact->tensors[i].rank;
    return quota_charge_add(charge, COPIES * bytes, error);
}

static struct rpc_out *pack_artifact(const struct artifact *artifact, const Tensorcast__Daemon__V1__ResolveRequest *request,
                                     struct error *error)
{
    struct arena arena;
    struct quota_charge indexes = metadata_charge();
    char *source_index = NULL, *canonical_index = NULL;
    arena_init(&arena, 0);
    Tensorcast__Daemon__V1__ResolveResponse *response = codec_artifact(artifact, request->known_identity, &arena, error);
    if (response && request->include_indexes && artifact->derivation) {
        fail(error, ERROR_UNIMPLEMENTED, "INDEX_OF_VARIANT",
             "an index document says where tensors are stored; those of a variant are stored nowhere");
        response = NULL;
    }
    if (response && request->include_indexes && charge_indexes(artifact, &indexes, error) != 0)
        response = NULL;
    if (response && request->include_indexes) {
        response->source_index_json = source_index = artifact_source_index_json(artifact);
        response->canonical_index_json = canonical_index = artifact_canonical_index_json(artifact);
        if (!source_index || !canonical_index) {
            metadata_fail_memory(indexes.amount, error);
            response = NULL;
        }
    }
    struct rpc_out *packed = response ? rpc_pack(&response->base, error) : NULL;
    free(source_index);
    free(canonical_index);
    quota_charge_end(&indexes);
    arena_fini(&arena);
    return packed;
}

static int resolve_and_pack(struct api_job *job)
{
    struct resolve *resolve = (struct resolve *)job;
    struct artifact *artifact;
    unsigned flags =
        (resolve->request->fresh ? RESOLVE_FRESH : 0) |
        (resolve->request->allow_missing_shards ? RESOLVE_ALLOW_MISSING_SHARDS : 0) |
        (resolve->request->allow_absent_files && !resolve->request->variant.len ? RESOLVE_ALLOW_ABSENT_FILES : 0);
    if (artifact_resolve(resolve->request->artifact, &job->source, job->api->services.headers, flags, &artifact,
                         &job->error) != 0)
        return -1;
    if (resolve->request->variant.len &&
        variant_apply(&artifact, (const char *)resolve->request->variant.data, resolve->request->variant.len,
                      job->api->services.headers, job->source.cancel, &job->error) != 0)
        return -1;
    resolve->answer = pack_artifact(artifact, resolve->request, &job->error);
    artifact_unref(artifact);
    return resolve->answer ? 0 : -1;
}

static void reply_resolved(struct api_job *job)
{
    rpc_call_reply_packed(job->call, ((struct resolve *)job)->answer);
    api_job_end(job);
}

void method_resolve(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    struct resolve *resolve = memory_alloc(sizeof *resolve);
    resolve->request = (const Tensorcast__Daemon__V1__ResolveRequest *)request;
    api_job_init(&resolve->job, context, call, resolve->request->artifact, NULL);
    api_job_run(&resolve->job, resolve_and_pack, reply_resolved);
}
