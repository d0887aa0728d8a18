/* tc_resolve and the look at what it found. The answer is kept as it came, in one arena, after its columns were checked. */
#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "dtype_name.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

#include <stdlib.h>

typedef Tensorcast__Daemon__V1__ResolveResponse resolve_response;

struct tc_artifact {
    struct arena arena;
    const resolve_response *response; /* in the arena */
    size_t *first_dim;                /* of each tensor, in response->dims */
};

/* Every column as long as it must be, and no rank or file beyond what there is. */
static int check_columns(struct tc_artifact *artifact, struct error *error)
{
    const resolve_response *response = artifact->response;
    size_t n = response->n_names, n_dims = 0;
    uint64_t bits;
    bool sound =
        response->n_dtypes == n && response->n_ranks == n && response->n_file_indexes == n && response->n_sizes == n;
    artifact->first_dim = arena_array(&artifact->arena, n + 1, sizeof *artifact->first_dim);
    for (size_t i = 0; sound && i < n; i++) {
        artifact->first_dim[i] = n_dims;
        n_dims += response->ranks[i];
        sound = dtype_name_of((int)response->dtypes[i], &bits) && response->ranks[i] <= response->n_dims &&
                response->file_indexes[i] < response->n_files;
    }
    if (sound && n_dims == response->n_dims)
        return 0;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's description of %s contradicts itself",
                response->artifact);
}

struct tc_artifact *tc_resolve(struct tc_client *client, const char *reference, int flags, uint64_t timeout_ms,
                               struct tc_error *error)
{
    struct error cause;
    struct tc_artifact *artifact = memory_alloc(sizeof *artifact);
    Tensorcast__Daemon__V1__ResolveRequest request = TENSORCAST__DAEMON__V1__RESOLVE_REQUEST__INIT;
    const struct wait wait = wait_begin(timeout_ms, NULL);
    arena_init(&artifact->arena, 0);
    request.artifact = reference;
    request.fresh = flags & TC_RESOLVE_FRESH;
    request.include_indexes = (flags & TC_RESOLVE_INDEXES) != 0;
    artifact->response = (const resolve_response *)rpc_client_get(client->rpc, "Resolve", &request.base,
                                                                  &tensorcast__daemon__v1__resolve_response__descriptor,
                                                                  &wait, &artifact->arena, &cause);
    if (artifact->response && check_columns(artifact, &cause) == 0)
        return artifact;
    client_fail(error, &cause);
    tc_artifact_release(artifact);
    return NULL;
}

void tc_artifact_release(struct tc_artifact *artifact)
{
    if (!artifact)
        return;
    arena_fini(&artifact->arena);
    free(artifact);
}

const char *tc_artifact_reference(const struct tc_artifact *artifact)
{
    return artifact->response->artifact;
}

const char *tc_artifact_identity(const struct tc_artifact *artifact)
{
    return artifact->response->identity;
}

uint64_t tc_artifact_total_bytes(const struct tc_artifact *artifact)
{
    return artifact->response->total_bytes;
}

size_t tc_artifact_n_files(const struct tc_artifact *artifact)
{
    return artifact->response->n_files;
}

const char *tc_artifact_file(const struct tc_artifact *artifact, size_t file, uint64_t *bytes)
{
    *bytes = artifact->response->files[file]->bytes;
    return artifact->response->files[file]->name;
}

size_t tc_artifact_n_tensors(const struct tc_artifact *artifact)
{
    return artifact->response->n_names;
}

const char *tc_artifact_index_json(const struct tc_artifact *artifact, bool canonical)
{
    return canonical ? artifact->response->canonical_index_json : artifact->response->source_index_json;
}

void tc_artifact_tensor(const struct tc_artifact *artifact, size_t index, struct tc_tensor_info *info)
{
    const resolve_response *response = artifact->response;
    uint64_t bits;
    *info = (struct tc_tensor_info){.name = response->names[index],
                                    .dtype = dtype_name_of((int)response->dtypes[index], &bits),
                                    .shape = response->dims + artifact->first_dim[index],
                                    .rank = response->ranks[index],
                                    .bytes = response->sizes[index],
                                    .file = response->file_indexes[index]};
}
