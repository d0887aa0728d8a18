/* model.safetensors.index.json: which part file holds which tensor. Pure; bytes in, table out.
 *
 * Read as Python's json reads it: of a name or key that occurs twice the last one counts. A file lies in the same folder or below
 * it. Unknown keys are ignored. Errors are DATA_LOSS. */
#ifndef RESOLVE_SHARD_INDEX_H
#define RESOLVE_SHARD_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

#define SHARD_INDEX_NAME "model.safetensors.index.json"
#define SHARD_INDEX_DIFFUSION_NAME "diffusion_pytorch_model.safetensors.index.json"
enum { SHARD_INDEX_MAX_BYTES = 100000000, SHARD_INDEX_MAX_FILES = 10000 };

struct shard_entry {
    const char *name; /* tensor; not NUL-terminated */
    size_t name_length;
    uint32_t file; /* index into files */
};

struct shard_index {
    const char *document; /* its name: SHARD_INDEX_NAME, unless its parser says otherwise */
    const char **files;   /* sorted bytewise, each once; every one has a tensor */
    size_t n_files;
    struct shard_entry *entries; /* in the document's order, each name once */
    size_t n_entries;
    struct arena arena;
};

/* NULL on error. Borrows `json` until shard_index_destroy(). */
struct shard_index *shard_index_parse(const char *json, uint64_t json_bytes, struct error *error);
void shard_index_destroy(struct shard_index *index); /* accepts NULL */

#endif
