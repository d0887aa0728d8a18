/* What PyTorch's distributed checkpoint (HuggingFaceStorageWriter) says in its shards: where in a tensor the stored arrays
 * begin, and by the names of the files how many ranks and files there are. Pure; bytes in, table out.
 *
 *     __metadata__: {"DCP_SHARDING_INFO": "{\"NAME\": {\"saved_offsets\": [o0, o1, ..]}, ..}", "DCP_VERSION": "1.0", ..}
 *     shard-00001-model-00001-of-00002.safetensors    of rank 1, file 1 of 2; one process writes model-00001-of-00002
 *
 * No shape of a whole tensor is stored: it is the hull of its boxes. Errors are DATA_LOSS. */
#ifndef RESOLVE_DCP_H
#define RESOLVE_DCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "resolve/format.h"

#define DCP_SHARDING_INFO "DCP_SHARDING_INFO"
enum { DCP_MAX_NUMBER = 100000 }; /* of a rank or a file; one that is higher is no number of a shard */

/* --- sharding information of one file --- */

struct dcp_entry {
    const char *name;
    size_t name_length;
    size_t offsets_at; /* in numbers */
    uint32_t rank;     /* how many offsets */
};

struct dcp_info {
    struct dcp_entry *entries;
    size_t n_entries;
    uint64_t *numbers;
    struct map by_name;
    struct arena arena;
};

/* NULL on error. Borrows `json` until dcp_info_destroy(). */
struct dcp_info *dcp_info_parse(const char *json, size_t json_bytes, struct error *error);
void dcp_info_destroy(struct dcp_info *info); /* accepts NULL */
/* NULL when the file says nothing of that tensor. */
const struct dcp_entry *dcp_info_find(const struct dcp_info *info, const char *name, size_t length);

/* --- numbers of all files --- */

struct dcp_numbers {
    uint32_t world_size;                      /* the highest number of a shard; 1 where none has one */
    uint32_t n_files;                         /* what the names say behind "-of-"; 0 = nothing */
    uint32_t *missing_shards, *missing_files; /* ascending; malloced */
    size_t n_missing_shards, n_missing_files;
};

/* Fails when the names disagree about the number of files. Names of any other kind say nothing. */
int dcp_numbers_read(const char *const *file_names, size_t n_files, struct dcp_numbers *numbers, struct error *error);
void dcp_numbers_fini(struct dcp_numbers *numbers);
/* DATA_LOSS that names what is missing and says what may be done; 0 when nothing is. */
int dcp_numbers_check(const struct dcp_numbers *numbers, struct error *error);

#endif
