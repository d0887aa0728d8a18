/* libtensorcast: tensors of a checkpoint from the loader daemon of this host, without a copy.
 *
 *     struct tc_error error;
 *     struct tc_client *client = tc_connect(NULL, &error);
 *     struct tc_load *load = tc_load_view(client, "disk:/models/llama", NULL, NULL, &error);
 *     struct tc_tensor weight;
 *     if (load && tc_load_find(load, "lm_head.weight", &weight)) use(weight.data, weight.bytes);
 *     tc_load_release(load);
 *     tc_disconnect(client);
 *
 * Every function may be called from any thread; a client is shared freely, a load is const once returned. No global state,
 * no output, no exit. Functions that fail return NULL or -1 and fill the caller's `struct tc_error`. After fork() a child
 * uses its inherited loads but needs a client of its own. */
#ifndef TENSORCAST_H
#define TENSORCAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define TC_VERSION "0.1.0"

enum { TC_MAX_RANK = 64 };

struct tc_error {
    int code;           /* grpc.StatusCode: 0 OK, 3 INVALID_ARGUMENT, 5 NOT_FOUND, ... */
    char reason[64];    /* UPPER_SNAKE_CASE, for programs */
    char message[1024]; /* for people */
    char notes[512];    /* what the message names, for programs: tc_error_note() */
};
/* The key of the next of its values after `key` (NULL = the first), such as "tensor" or "needed_bytes", and the value; NULL
 * when there is none. Borrowed from the error. */
const char *tc_error_note(const struct tc_error *error, const char *key, const char **value);
const char *tc_code_name(int code); /* "NOT_FOUND" */

struct tc_client;
struct tc_artifact;
struct tc_load;
struct tc_cancel;

/* socket NULL = $TENSORCAST_SOCKET, then /run/tensorcast/daemon.sock, then the user's own daemon,
 * $XDG_RUNTIME_DIR/tensorcast/daemon.sock (base/runtime_folder.h has the rule); "unix:PATH" and "PATH" both work.
 * Makes no connection yet: NULL only when the path is too long. */
struct tc_client *tc_connect(const char *socket, struct tc_error *error);
void tc_disconnect(struct tc_client *client); /* loads stay valid; accepts NULL */
const char *tc_socket_path(const struct tc_client *client);
const char *tc_version(void);

/* Artifacts are paths that begin with "/", "./", "../" or "~/", file:///PATH, disk:PATH, or in a store: gs://, s3://, hf://,
 * https://. Relative ones are made absolute with this process's working folder. */

/* What an artifact holds. timeout_ms 0 = none. flags: TC_RESOLVE_FRESH checks every header again;
 * TC_RESOLVE_ALLOW_MISSING_SHARDS: of PyTorch's DCP shards, numbers may be missing as long as their boxes are complete;
 * TC_RESOLVE_ALLOW_ABSENT_FILES: files that an index names need not be there, see tc_artifact_absent_file(). Not of a
 * variant. */
enum {
    TC_RESOLVE_FRESH = 1,
    TC_RESOLVE_INDEXES = 2,
    TC_RESOLVE_ALLOW_MISSING_SHARDS = 4,
    TC_RESOLVE_ALLOW_ABSENT_FILES = 8
};
struct tc_artifact *tc_resolve(struct tc_client *client, const char *artifact, int flags, uint64_t timeout_ms,
                               struct tc_error *error);
void tc_artifact_release(struct tc_artifact *artifact); /* accepts NULL */
const char *tc_artifact_reference(const struct tc_artifact *artifact);
const char *tc_artifact_identity(const struct tc_artifact *artifact);
uint64_t tc_artifact_total_bytes(const struct tc_artifact *artifact);
size_t tc_artifact_n_files(const struct tc_artifact *artifact);
const char *tc_artifact_file(const struct tc_artifact *artifact, size_t file, uint64_t *bytes);
size_t tc_artifact_n_tensors(const struct tc_artifact *artifact);
const char *tc_artifact_index_json(const struct tc_artifact *artifact, bool canonical); /* "" unless asked for */

/* How its files make up the tensors: "plain", "topology" (topology.json) or "dcp" (PyTorch's shards); docs/layouts.md. */
const char *tc_artifact_layout(const struct tc_artifact *artifact);
uint32_t tc_artifact_world_size(const struct tc_artifact *artifact); /* ranks that wrote it; 0 for plain */
/* Numbers of DCP shards, and of files per shard, that no file has, ascending. */
const uint32_t *tc_artifact_missing_shards(const struct tc_artifact *artifact, size_t *n);
const uint32_t *tc_artifact_missing_files(const struct tc_artifact *artifact, size_t *n);

/* What is worth knowing of how it was found, sentences for people; files that its index names and that are not there; and the
 * tensors in those, which tc_artifact_tensor() does not tell of. NULL = there are no more. */
const char *tc_artifact_note(const struct tc_artifact *artifact, size_t index);
const char *tc_artifact_absent_file(const struct tc_artifact *artifact, size_t index);
const char *tc_artifact_absent_tensor(const struct tc_artifact *artifact, size_t index, size_t *file);

struct tc_tensor_info { /* borrowed from the artifact */
    const char *name;
    const char *dtype; /* safetensors name, "BF16" */
    const uint64_t *shape;
    size_t rank;
    uint64_t bytes;
    size_t file;     /* of its first piece */
    size_t n_pieces; /* boxes that it lies in; 1 = it is whole */
    size_t copies;   /* how many times it is stored */
};
void tc_artifact_tensor(const struct tc_artifact *artifact, size_t index, struct tc_tensor_info *info);
struct tc_piece_info { /* borrowed from the artifact */
    size_t file;
    const uint64_t *offsets, *shape; /* in the tensor, rank numbers each; NULL when it is whole */
};
void tc_artifact_piece(const struct tc_artifact *artifact, size_t tensor, size_t piece, struct tc_piece_info *info);

/* __metadata__ of the first part file: keys and values are UTF-8, may hold NULs and do not end with one. Each key comes once.
 * *left_out_bytes (may be NULL), when it is not 0: there are more than the 8 MiB that are told, and no pair is. */
struct tc_metadata { /* borrowed from the artifact */
    const char *key, *value;
    size_t key_bytes, value_bytes;
};
size_t tc_artifact_n_metadata(const struct tc_artifact *artifact, uint64_t *left_out_bytes);
void tc_artifact_metadata(const struct tc_artifact *artifact, size_t index, struct tc_metadata *pair);

/* The same with what a load may be told: of `options` (may be NULL) the time limit, the cancel flag and the variant count. */
struct tc_options;
struct tc_artifact *tc_resolve_with(struct tc_client *client, const char *artifact, int flags,
                                    const struct tc_options *options, struct tc_error *error);

/* A variant: steps that turn an artifact's tensors into others (docs/variants.md), ready to be sent. The recipe is a YAML
 * file or the name of a built-in one; its ${KEY}s are filled in from the settings, else from the artifact's config.json, for
 * which the daemon is asked (client NULL: there is none). A file is read now and not again. What is wrong with it is
 * INVALID_ARGUMENT with file, line and step. Const once created; used by many loads, of any artifact. */
struct tc_variant;
struct tc_setting {
    const char *key, *value;
};
struct tc_variant *tc_variant_create(struct tc_client *client, const char *artifact, const char *recipe,
                                     const struct tc_setting *settings, size_t n_settings, const struct tc_options *options,
                                     struct tc_error *error);
/* The same of JSON, {"version": 1, "steps": [..]}. */
struct tc_variant *tc_variant_parse(struct tc_client *client, const char *artifact, const char *json,
                                    const struct tc_setting *settings, size_t n_settings, const struct tc_options *options,
                                    struct tc_error *error);
void tc_variant_release(struct tc_variant *variant);           /* accepts NULL */
const char *tc_variant_json(const struct tc_variant *variant); /* canonical: what LoadRequest.variant is on the wire */
unsigned tc_variant_line(const struct tc_variant *variant,
                         size_t step); /* in its file, from 1; 0 = unknown. Steps count from 1 */
const char *tc_builtin_variant(size_t index, const char **summary); /* NULL = there are no more; summary may be NULL */

/* The sidecars of an artifact: the small files beside its tensors, such as config.json and the tokenizer. Of `options` (may
 * be NULL) the variant, of which the documents are true then, the time limit and the cancel flag count. Names are plain file
 * names. */
struct tc_sidecars;
struct tc_sidecars *tc_sidecars_list(struct tc_client *client, const char *artifact, const struct tc_options *options,
                                     struct tc_error *error);
/* Also writes each of them into `folder`, which is made when only its last part is missing; a file is replaced as a whole or
 * not at all. */
struct tc_sidecars *tc_sidecars_fetch(struct tc_client *client, const char *artifact, const char *folder,
                                      const struct tc_options *options, struct tc_error *error);
void tc_sidecars_release(struct tc_sidecars *sidecars); /* accepts NULL */
size_t tc_sidecars_n_files(const struct tc_sidecars *sidecars);
const char *tc_sidecars_file(const struct tc_sidecars *sidecars, size_t file, uint64_t *bytes);
/* What was left out, such as a config.json that is a link to no file: sentences for people. NULL = there are no more. */
const char *tc_sidecars_note(const struct tc_sidecars *sidecars, size_t index);

/* Has every byte read that a checksum of the store, or a manifest beside the artifact, covers, and compares. Damaged files
 * are no failure of the call. with_manifest: reads everything and makes a manifest (docs/manifest.md). Of `options` (may be
 * NULL) the time limit, the cancel flag and the progress count. */
struct tc_verification;
struct tc_verified_file { /* borrowed from the verification */
    const char *name;
    uint64_t bytes;
    const char *status; /* "verified", "unverified": there is nothing to compare with, "damaged" */
    const char *by;     /* "crc32c + sha256", "manifest crc32c" */
    const char *damage; /* what is wrong and where; "" unless damaged */
    bool healed;        /* it came wrong at first, and right when it was read again */
};
struct tc_verification *tc_verify(struct tc_client *client, const char *artifact, bool with_manifest,
                                  const struct tc_options *options, struct tc_error *error);
void tc_verification_release(struct tc_verification *verification); /* accepts NULL */
size_t tc_verification_n_files(const struct tc_verification *verification);
void tc_verification_file(const struct tc_verification *verification, size_t index, struct tc_verified_file *file);
const char *tc_verification_manifest(const struct tc_verification *verification);      /* its text; "" = none was made */
const char *tc_verification_manifest_name(const struct tc_verification *verification); /* to be found by */

/* A view: what this client wants, in this order. start and stop as NumPy means them, step 1. */
#define TC_OPEN_END INT64_MAX
struct tc_slice {
    int64_t start, stop; /* {0, TC_OPEN_END} = all */
};
struct tc_view_item {
    const char *name;
    size_t n_slices; /* 0 = the whole tensor, else its rank */
    const struct tc_slice *slices;
};
struct tc_view {
    const struct tc_view_item *items;
    size_t n_items;
    uint64_t align_bytes; /* of each tensor; 0 = 64, with TC_PLACEMENT_SOURCE the size of its elements */
};

/* What one device of a mesh holds of each tensor, as JAX's NamedSharding, torch's DTensor or the best-effort rule split it. */
struct tc_sharding;
struct tc_sharding_options { /* exactly one of specs, placements and best_effort */
    const char *mesh;        /* "data=4,model=8", or a name: "v5e-64"; needed unless best_effort stands alone */
    int64_t mesh_rank;       /* of the device, row-major on the mesh */
    /* Rules; the first whose glob matches a name decides, and a tensor that none matches is whole. */
    const char *const *specs;      /* "GLOB=model,-": per dimension an axis, (several,axes), or - for none */
    const char *const *placements; /* "GLOB=S(0),R": per axis of the mesh S(dim), R or _S(dim,split_factor) */
    size_t n_specs, n_placements;
    int64_t best_effort; /* so many devices, with a mesh as many as it has: split what divides, replicate over the rest */
};
struct tc_sharding *tc_sharding_create(const struct tc_sharding_options *options, struct tc_error *error);
void tc_sharding_destroy(struct tc_sharding *sharding); /* accepts NULL */
/* The slices of one tensor, one per dimension; all of them {0, TC_OPEN_END} for a tensor that is whole. */
int tc_sharding_slices(const struct tc_sharding *sharding, const char *name, const uint64_t *shape, size_t rank,
                       struct tc_slice *slices, struct tc_error *error);
/* All tensors of an artifact, each as the device holds it; to be given back by tc_view_release(). Fails when a dimension does
 * not divide, or a device's part of a tensor is not one block. */
struct tc_view *tc_sharding_view(const struct tc_sharding *sharding, const struct tc_artifact *artifact,
                                 struct tc_error *error);
void tc_view_release(struct tc_view *view); /* accepts NULL */

/* GENERIC is what reports call generic_byte_range, LOCAL tensor_batched_local, COLLECTIVE owner_file_collective. */
enum tc_executor { TC_EXECUTOR_AUTO, TC_EXECUTOR_GENERIC, TC_EXECUTOR_LOCAL, TC_EXECUTOR_COLLECTIVE };
enum tc_collective { TC_COLLECTIVE_AUTO, TC_COLLECTIVE_REQUIRED, TC_COLLECTIVE_DISABLED };
/* Where tensors begin in memory of the daemon: as they lie in their files, so that a disk writes them where they belong, or
 * one behind the other in view order. */
enum tc_placement { TC_PLACEMENT_SOURCE, TC_PLACEMENT_PACKED };
enum tc_locality { TC_LOCALITY_AUTO, TC_LOCALITY_HOST_LOCAL, TC_LOCALITY_SHARED_SOURCE };

/* Whether tensors may be handed out as the pages of the part files themselves, where their bytes cannot change
 * (docs/mapped.md). AUTO lets the daemon choose, MAPPED is an error where it is not possible. With both a caller has to look at
 * the strides: a slice of columns is not packed then. COPIED is memory with packed tensors. */
enum tc_memory { TC_MEMORY_COPIED, TC_MEMORY_AUTO, TC_MEMORY_MAPPED };

struct tc_options { /* all zero = defaults */
    enum tc_executor executor;
    enum tc_collective collective;
    const char *group_id; /* NULL = no group */
    int64_t rank, world_size;
    enum tc_locality source_locality;
    const char *source_sharing_domain;
    uint64_t timeout_ms; /* 0 = none */
    /* Called on the calling thread, at most ten times a second and once at the end; non-zero cancels the load.
     * stage: "read", or "waiting for https://host to answer"; total_bytes is 0 while it is not known. Of what is no load (resolve,
     * explain, prewarm, sidecars) it is called twice a second, once half a second has passed. Return within seconds: the
     * daemon takes a client that waits for an answer and is silent for 20 s for stopped, and cancels the call. */
    int (*progress)(void *data, const char *stage, uint64_t done_bytes, uint64_t total_bytes);
    void *data;
    struct tc_cancel *cancel;         /* may be NULL */
    const char *device;               /* NULL or "cpu" = host memory; "cuda:N" as this process counts, or a GPU's UUID */
    bool allow_missing_shards;        /* as TC_RESOLVE_ALLOW_MISSING_SHARDS */
    const struct tc_variant *variant; /* NULL = the artifact as it is stored; else names are the variant's */
    enum tc_memory memory;            /* of host memory */
    enum tc_placement placement;
};

/* A flag that another thread (or a signal handler) raises to end a load early. */
struct tc_cancel *tc_cancel_create(void);
void tc_cancel_raise(struct tc_cancel *cancel); /* async-signal-safe */
void tc_cancel_destroy(struct tc_cancel *cancel);

/* Loads a view (NULL = everything) and maps it read-only, 2 MiB aligned. Blocks. */
struct tc_load *tc_load_view(struct tc_client *client, const char *artifact, const struct tc_view *view,
                             const struct tc_options *options, struct tc_error *error);
/* Loads a view into memory of the caller's on options->device: `bytes` (at least as many as the view needs, with its
 * alignment) at a device address in one allocation of cudaMalloc, or of cuMemCreate for POSIX descriptors. Everything up to
 * the end of the last tensor is written, also the padding between them. When this returns nothing of the daemon touches the
 * memory any more, unless the error's reason is REGION_IN_USE; after an error its content is undefined. */
struct tc_load *tc_load_into(struct tc_client *client, const char *artifact, const struct tc_view *view,
                             const struct tc_options *options, void *memory, uint64_t bytes, struct tc_error *error);
/* Memory of this process that loads write into, array by array (docs/into.md). It stays the caller's: no lease, no budget of
 * the daemon's. A region may be used by one load after the other, or by several at once. */
struct tc_region;
/* New host memory: `bytes` zeros, 2 MiB aligned. A page is charged to the process that touches it first. */
struct tc_region *tc_region_create(uint64_t bytes, struct tc_error *error);
/* The memory of a memfd, which is duplicated: it has to have F_SEAL_SHRINK and no seal against writing. */
struct tc_region *tc_region_open(int memfd, struct tc_error *error);
/* GPU memory of the caller's, borrowed: `bytes` at a device address in one allocation, as of tc_load_into(). What this process
 * has queued on the device is done before a load begins to write. */
struct tc_region *tc_region_wrap(const char *device, void *memory, uint64_t bytes, struct tc_error *error);
void *tc_region_memory(const struct tc_region *region, uint64_t *bytes); /* bytes may be NULL */
void tc_region_destroy(struct tc_region *region);                        /* unmaps; accepts NULL */

struct tc_target {
    const char *name;       /* a tensor of the view, else what errors call it */
    const char *dtype;      /* safetensors name, "BF16" */
    const uint64_t *shape;  /* rank numbers */
    const int64_t *strides; /* in bytes, any in which no element comes twice; NULL = C order */
    size_t rank;            /* up to TC_MAX_RANK */
    const struct tc_region *region;
    uint64_t offset;   /* in the region, in bytes: of the element with all indexes 0 */
    const void *value; /* one element that all become; NULL = the tensor of that name is loaded */
};
struct tc_targets {
    const struct tc_target *targets;
    size_t n_targets;
    const struct tc_target *covers; /* arrays of which every element has to be written by this load; values do not count */
    size_t n_covers;
};
/* Loads a view (NULL = the tensors that targets name, whole) into targets: one without a value for each tensor of the view, of
 * its dtype and shape, all regions in host memory or all on one GPU, which options->device need not say. Blocks. What is
 * missing, overlaps, leaves its region, has another dtype or shape, or is not covered is INVALID_ARGUMENT with its name, and
 * nothing was written. After a later error the content of the targets is undefined, and the message says so; unless its reason
 * is REGION_IN_USE nothing touches the regions any more when this returns. json (may be NULL): the object of `tensorcast load
 * --json`; the caller frees. */
int tc_load_targets(struct tc_client *client, const char *artifact, const struct tc_view *view,
                    const struct tc_targets *targets, const struct tc_options *options, char **json, struct tc_error *error);

void tc_load_release(struct tc_load *load); /* unmaps and ends the lease; accepts NULL */

struct tc_tensor { /* borrowed from the load */
    const char *name;
    const char *dtype;
    const void *data; /* never NULL, also for empty tensors; with a device an address there, not to be followed here */
    const uint64_t *shape;
    const uint64_t *strides; /* in elements; C order, but where the load is of files */
    size_t rank;
    uint64_t bytes;  /* of its elements */
    uint64_t offset; /* in tc_load_memory(), or in its file */
};
size_t tc_load_n_tensors(const struct tc_load *load);
void tc_load_tensor(const struct tc_load *load, size_t index, struct tc_tensor *tensor);
bool tc_load_find(const struct tc_load *load, const char *name, struct tc_tensor *tensor);
/* Of a load of files there is none: 0 bytes. */
const void *tc_load_memory(const struct tc_load *load, uint64_t *bytes);
/* The files that the tensors lie in, mapped read-only; 0 = it is a load of memory, or of nothing. */
size_t tc_load_n_files(const struct tc_load *load);
const void *tc_load_file(const struct tc_load *load, size_t file, const char **name, uint64_t *bytes);
size_t tc_load_tensor_file(const struct tc_load *load, size_t index); /* of a tensor that has bytes */
const char *tc_load_device(const struct tc_load *load);               /* UUID of the GPU; "" = host memory */
/* Copies a piece of the load's memory, wherever it is, into the caller's. */
int tc_load_read(const struct tc_load *load, uint64_t offset, uint64_t bytes, void *to, struct tc_error *error);

/* The object of `tensorcast load --json`. with_digests adds sha256 per tensor. The caller frees. */
char *tc_load_report_json(const struct tc_load *load, bool with_digests);

/* The plan only, as the object of `tensorcast explain --json` and as a table; either may be NULL. The caller frees. */
int tc_explain(struct tc_client *client, const char *artifact, const struct tc_view *view, const struct tc_options *options,
               char **json, char **text, struct tc_error *error);
/* Makes a replica without mapping it; json as above. */
int tc_prewarm(struct tc_client *client, const char *artifact, const struct tc_view *view, const struct tc_options *options,
               char **json, struct tc_error *error);
/* PIN: the replica stays, whatever is idle, short or released, until it is unpinned, its source changes or the daemon ends; it
 * counts as this user's. DETACH: returns at once, with *json NULL; tc_status() tells what became of it. */
enum { TC_PREWARM_PIN = 1, TC_PREWARM_DETACH = 2 };
int tc_prewarm_with(struct tc_client *client, const char *artifact, const struct tc_view *view,
                    const struct tc_options *options, int flags, char **json, struct tc_error *error);
struct tc_unpinned {
    uint64_t replicas, bytes; /* replicas: those that are still being loaded, too */
};
/* artifact NULL = all. Of this user; for root and the daemon's own user, of all users. NOT_FOUND: it is not pinned. */
int tc_unpin(struct tc_client *client, const char *artifact, uint64_t timeout_ms, struct tc_unpinned *unpinned,
             struct tc_error *error);
/* artifact NULL = all. */
int tc_release(struct tc_client *client, const char *artifact, uint64_t timeout_ms, uint64_t *released_replicas,
               uint64_t *released_bytes, struct tc_error *error);
struct tc_released {
    uint64_t replicas, bytes;
    uint64_t leased_replicas, leased_bytes; /* kept, because clients hold them */
    uint64_t replicas_of_others;            /* kept, because another user has loaded them */
    uint64_t pinned_replicas, pinned_bytes; /* kept, because they are pinned and no client has them */
};
int tc_release_counted(struct tc_client *client, const char *artifact, uint64_t timeout_ms, struct tc_released *released,
                       struct tc_error *error);
/* The object of `tensorcast status --json`, and a page for people; either may be NULL. */
int tc_status(struct tc_client *client, uint64_t timeout_ms, char **json, char **text, struct tc_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
