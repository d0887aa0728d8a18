/* <name>.manifest.json: what a checkpoint's bytes were when all of them had been read and checked. docs/manifest.md has
 * the format; `tensorcast manifest` writes it, a manifest beside the checkpoint is used by every load.
 *
 * manifest_parse() is pure: bytes in, table out. Const once parsed; any thread. */
#ifndef RESOLVE_MANIFEST_H
#define RESOLVE_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/map.h"

#define MANIFEST_FORMAT "tensorcast-manifest"
#define MANIFEST_SUFFIX ".manifest.json"
enum {
    MANIFEST_VERSION = 1,
    MANIFEST_MAX_BYTES = 64 << 20,
    MANIFEST_MIN_BLOCK_BYTES = 4 << 10,
    MANIFEST_BLOCK_BYTES = 4 << 20, /* of those we write */
    MANIFEST_MAX_BLOCK_BYTES = 64 << 20,
    MANIFEST_MAX_FILES = 10000,
};

struct manifest_tensor {
    const char *name; /* name_length counts */
    uint32_t name_length;
    uint32_t file; /* index into files */
    uint32_t crc32c;
};

struct manifest_file {
    const char *name;
    uint64_t bytes;
    const char *version;            /* what pinned it when it was summed; "" = unknown */
    struct checksum crc32c, sha256; /* of the whole; kind CHECKSUM_NONE when not given */
    struct checksum header;         /* CRC-32C of what lies before the tensors; likewise */
    const uint32_t *blocks;         /* CRC-32C of block after block; NULL = not given */
    uint64_t n_blocks;
    const char *arrays; /* CRC-32C of array after array, in hex, of an activation store; NULL = not given */
    size_t n_arrays;
};

struct manifest {
    unsigned n_refs; /* atomic */
    uint64_t block_bytes;
    struct manifest_file *files;
    size_t n_files;
    struct manifest_tensor *tensors;
    size_t n_tensors;
    struct map file_by_name, tensor_by_name;
    struct arena arena;
};

/* DATA_LOSS unless it is a manifest of a version that we know; of another one UNIMPLEMENTED. NULL on error. */
struct manifest *manifest_parse(const char *json, uint64_t json_bytes, struct error *error);
struct manifest *manifest_ref(struct manifest *manifest);
void manifest_unref(struct manifest *manifest);                  /* accepts NULL */
uint64_t manifest_memory_bytes(const struct manifest *manifest); /* about */

/* To make one of something else: empty; files are added with METADATA_RESERVE and their texts in the arena; then their
 * names are indexed, twice the same is DATA_LOSS. */
struct manifest *manifest_create(void);
int manifest_index(struct manifest *manifest, struct error *error);
/* Adds the segments of one host of an activation store, named from `folder` ("host_003", or "") on. Of another format: nothing
 * is added. DATA_LOSS when it is damaged. `room` begins as 0. */
int manifest_add_segments(struct manifest *manifest, size_t *room, const char *folder, const char *json, uint64_t json_bytes,
                          struct error *error);

/* NULL when the manifest does not have it. */
const struct manifest_file *manifest_find_file(const struct manifest *manifest, const char *name);
const struct manifest_tensor *manifest_find_tensor(const struct manifest *manifest, const char *name, size_t name_length);

/* The name of the manifest that goes with a reference's last component: "model" + MANIFEST_SUFFIX for a folder, the file's
 * own name without .safetensors for a file. The caller frees. */
char *manifest_name(const char *file_name);

#endif
