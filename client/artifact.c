/* tc_resolve and the look at what it found. The answer is kept as it came, in one arena, after its columns were checked. */
#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "dtype_name.h"
#include "request.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "variant.h"

#include <stdlib.h>

typedef Tensorcast__Daemon__V1__ResolveResponse resolve_response;

struct tc_artifact {
    struct arena arena;
    const resolve_response *response; /* in the arena */
    size_t *first_dim;                /* of each tensor, in response->dims */
    size_t *first_piece, *first_box;  /* of each tensor, in piece_files and piece_boxes; NULL = all are whole */
};

/* Of the tensors that lie in several boxes; true where none does. */
static bool check_pieces(struct tc_artifact *artifact)
{
    const resolve_response *response = artifact->response;
    size_t n = response->n_names, n_pieces = 0, n_numbers = 0;
    if (response->n_piece_counts == 0)
        return response->n_piece_files == 0 && response->n_piece_boxes == 0;
    if (response->n_piece_counts != n)
        return false;
    artifact->first_piece = arena_array(&artifact->arena, n, sizeof *artifact->first_piece);
    artifact->first_box = arena_array(&artifact->arena, n, sizeof *artifact->first_box);
    for (size_t i = 0; i < n; i++) {
        size_t count = response->piece_counts[i] == 1 ? 0 : response->piece_counts[i];
        artifact->first_piece[i] = n_pieces;
        artifact->first_box[i] = n_numbers;
        if (count > response->n_piece_files - n_pieces ||
            (count && 2 * (size_t)response->ranks[i] > (response->n_piece_boxes - n_numbers) / count))
            return false;
        n_pieces += count;
        n_numbers += 2 * response->ranks[i] * count;
    }
    for (size_t i = 0; i < response->n_piece_files; i++)
        if (response->piece_files[i] >= response->n_files)
            return false;
    return n_pieces == response->n_piece_files && n_numbers == response->n_piece_boxes;
}

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
    for (size_t i = 0; sound && i < response->n_absent_file_indexes; i++)
        sound = response->absent_file_indexes[i] < response->n_absent_files;
    sound = sound && response->n_absent_file_indexes == response->n_absent_tensors &&
            (response->n_copies == 0 || response->n_copies == n) && response->n_metadata_keys == response->n_metadata_values;
    if (sound && n_dims == response->n_dims && check_pieces(artifact))
        return 0;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's description of %s contradicts itself",
                response->artifact);
}

struct tc_artifact *client_artifact(struct arena *arena, const resolve_response *response, struct error *error)
{
    struct tc_artifact *artifact = memory_alloc(sizeof *artifact);
    artifact->arena = *arena;
    artifact->response = response;
    arena_init(arena, 0);
    if (check_columns(artifact, error) == 0)
        return artifact;
    tc_artifact_release(artifact);
    return NULL;
}

const resolve_response *client_artifact_response(const struct tc_artifact *artifact)
{
    return artifact->response;
}

struct tc_artifact *tc_resolve(struct tc_client *client, const char *reference, int flags, uint64_t timeout_ms,
                               struct tc_error *error)
{
    const struct tc_options options = {.timeout_ms = timeout_ms};
    return tc_resolve_with(client, reference, flags, &options, error);
}

struct tc_artifact *tc_resolve_with(struct tc_client *client, const char *reference, int flags,
                                    const struct tc_options *options, struct tc_error *error)
{
    struct error cause;
    struct tc_artifact *artifact = NULL;
    struct arena arena;
    Tensorcast__Daemon__V1__ResolveRequest request = TENSORCAST__DAEMON__V1__RESOLVE_REQUEST__INIT;
    const struct wait wait = client_patient_wait(client, options);
    const struct tc_variant *variant = options ? options->variant : NULL;
    arena_init(&arena, 0);
    request.artifact = client_reference(reference, &arena, &cause);
    request.fresh = flags & TC_RESOLVE_FRESH;
    request.include_indexes = (flags & TC_RESOLVE_INDEXES) != 0;
    request.allow_missing_shards = (flags & TC_RESOLVE_ALLOW_MISSING_SHARDS) != 0;
    request.allow_absent_files = (flags & TC_RESOLVE_ALLOW_ABSENT_FILES) != 0;
    if (variant)
        request.variant = request_variant(variant);
    const resolve_response *response =
        request.artifact ? rpc_client_get(client->rpc, "Resolve", &request.base,
                                          &tensorcast__daemon__v1__resolve_response__descriptor, &wait, &arena, &cause)
                         : NULL;
    if (response)
        artifact = client_artifact(&arena, response, &cause);
    arena_fini(&arena);
    if (artifact)
        return artifact;
    variant_locate(variant, &cause);
    client_fail(error, &cause);
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

const char *tc_artifact_layout(const struct tc_artifact *artifact)
{
    return artifact->response->layout;
}

uint32_t tc_artifact_world_size(const struct tc_artifact *artifact)
{
    return artifact->response->world_size;
}

const uint32_t *tc_artifact_missing_shards(const struct tc_artifact *artifact, size_t *n)
{
    *n = artifact->response->n_missing_shards;
    return artifact->response->missing_shards;
}

const uint32_t *tc_artifact_missing_files(const struct tc_artifact *artifact, size_t *n)
{
    *n = artifact->response->n_missing_files;
    return artifact->response->missing_files;
}

const char *tc_artifact_note(const struct tc_artifact *artifact, size_t index)
{
    return index < artifact->response->n_notes ? artifact->response->notes[index] : NULL;
}

const char *tc_artifact_absent_file(const struct tc_artifact *artifact, size_t index)
{
    return index < artifact->response->n_absent_files ? artifact->response->absent_files[index] : NULL;
}

const char *tc_artifact_absent_tensor(const struct tc_artifact *artifact, size_t index, size_t *file)
{
    if (index >= artifact->response->n_absent_tensors)
        return NULL;
    *file = artifact->response->absent_file_indexes[index];
    return artifact->response->absent_tensors[index];
}

size_t tc_artifact_n_metadata(const struct tc_artifact *artifact, uint64_t *left_out_bytes)
{
    if (left_out_bytes)
        *left_out_bytes = artifact->response->metadata_left_out_bytes;
    return artifact->response->n_metadata_keys;
}

void tc_artifact_metadata(const struct tc_artifact *artifact, size_t index, struct tc_metadata *pair)
{
    const ProtobufCBinaryData *key = &artifact->response->metadata_keys[index];
    const ProtobufCBinaryData *value = &artifact->response->metadata_values[index];
    *pair = (struct tc_metadata){(const char *)key->data, (const char *)value->data, key->len, value->len};
}

void tc_artifact_tensor(const struct tc_artifact *artifact, size_t index, struct tc_tensor_info *info)
{
    const resolve_response *response = artifact->response;
    uint64_t bits;
    *info = (struct tc_tensor_info){.n_pieces = response->n_piece_counts ? response->piece_counts[index] : 1,
                                    .copies = response->n_copies ? response->copies[index] : 1,
                                    .name = response->names[index],
                                    .dtype = dtype_name_of((int)response->dtypes[index], &bits),
                                    .shape = response->dims + artifact->first_dim[index],
                                    .rank = response->ranks[index],
                                    .bytes = response->sizes[index],
                                    .file = response->file_indexes[index]};
}

void tc_artifact_piece(const struct tc_artifact *artifact, size_t tensor, size_t piece, struct tc_piece_info *info)
{
    const resolve_response *response = artifact->response;
    size_t rank = response->ranks[tensor];
    *info = (struct tc_piece_info){.file = response->file_indexes[tensor]};
    if (response->n_piece_counts == 0 || response->piece_counts[tensor] == 1)
        return;
    info->file = response->piece_files[artifact->first_piece[tensor] + piece];
    info->offsets = response->piece_boxes + artifact->first_box[tensor] + 2 * rank * piece;
    info->shape = info->offsets + rank;
}
