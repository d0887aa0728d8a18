/* topology.json of Safetensors Distributed: which box of which tensor lies in which file. Pure; bytes in, table out.
 *
 *     {"tensors": {NAME: {"type": "Distributed", "shape": [..], "dtype": "F32",
 *                         "chunks": [{"offsets": [..], "shape": [..], "filename_index": i}, ..]}
 *                      | {"type": "Shared", "shape": [..], "dtype": "F32", "filename_indices": [i, ..]}},
 *      "filenames": [..], "world_size": N}
 *
 * Format, rules, their order and the words of their errors (OverlappingChunks) are those of the reference, NarsilAi's
 * topology.rs; unknown fields are ignored. Stricter where it would hand out wrong bytes or none: a key may occur once, a file
 * is a plain name in the same folder and stands once in `filenames`, and coverage is exact for any number of chunks. A Shared
 * tensor may also have "filename_index": i as older files do, or neither: then it is in every file that has it. Errors are
 * DATA_LOSS; UNIMPLEMENTED where a limit is passed. */
#ifndef RESOLVE_TOPOLOGY_H
#define RESOLVE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/error.h"

#define TOPOLOGY_NAME "topology.json"
enum { TOPOLOGY_MAX_BYTES = 1 << 30, TOPOLOGY_MAX_FILES = 10000, TOPOLOGY_MAX_CHUNKS = 1 << 24 };

struct topology_chunk {
    size_t box_at; /* in numbers: rank offsets, then rank sizes; of a Shared tensor nothing */
    uint32_t file; /* index into files */
    uint8_t n_offsets, n_sizes;
};

struct topology_tensor {
    const char *name; /* not NUL-terminated */
    size_t name_length;
    enum dtype dtype;
    uint32_t rank;
    bool is_shared, lists_files; /* of a Shared one: its chunks say which files; else every file that has it */
    size_t shape_at;             /* in numbers */
    uint64_t bytes;
    size_t first_chunk;
    uint32_t n_chunks; /* by file, each file once */
};

struct topology {
    const char **files; /* in the document's order */
    size_t n_files;
    struct topology_tensor *tensors; /* sorted by name, bytewise */
    size_t n_tensors;
    struct topology_chunk *chunks;
    size_t n_chunks;
    uint64_t *numbers; /* shapes and boxes; from metadata_alloc(): code that takes them leaves NULL */
    size_t n_numbers;
    uint64_t world_size; /* checked: from 1 to what 32 bits hold */
    struct arena arena;  /* names of files, and those of tensors that had escapes */
};

/* Parsed and found to add up. NULL on error. Borrows `json` until topology_destroy(). */
struct topology *topology_parse(const char *json, uint64_t json_bytes, struct error *error);
void topology_destroy(struct topology *topology); /* accepts NULL */

#endif
