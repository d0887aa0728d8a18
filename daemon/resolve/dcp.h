/* What PyTorch's distributed checkpoint (HuggingFaceStorageWriter) says in its shards: where in a tensor the stored arrays
 * begin, and by the names of the files how many ranks and files there are. Pure; bytes in, table out.
 *
 *     __metadata__: {"DCP_SHARDING_INFO": "{\"NAME\": {\"saved_offsets\": [o0, o1, ..]}, ..}", "DCP_VERSION": "1.0", ..}
 *     newer writers also say the shape of the whole tensor: {"saved_offsets": [..], "global_shape": [n0, n1, ..]}
 *     shard-00001-model-00001-of-00002.safetensors    of rank 1, file 1 of 2; one process writes model-00001-of-00002
 *
 * Where no shape of the whole tensor is stored, it is the hull of its boxes. Errors are DATA_LOSS. */
#ifndef RESOLVE_DCP_H
#define RESOLVE_DCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "resolve/artifact.h"
#include "resolve/format.h"

#define DCP_SHARDING_INFO "DCP_SHARDING_INFO"
enum { DCP_MAX_NUMBER = 100000 }; /* of a rank or a file; one that is higher is no number of a shard */

/* --- sharding information of one file --- */

struct dcp_entry {
    const char *name;
    size_t name_length;
    size_t offsets_at, shape_at; /* in numbers */
    uint32_t rank;               /* how many offsets */
    bool has_shape;              /* of the whole tensor: as many numbers as offsets */
};

struct dcp_info {
    struct dcp_entry *entries;
    size_t n_entries;
    uint64_t *numbers;
    struct arena arena;
    size_t next; /* entry to be asked for, when they come in the order of the file's tensors */
    bool is_mapped;
    struct map by_name; /* made when they do not */
};

/* NULL on error. Borrows `json` until dcp_info_destroy(). */
struct dcp_info *dcp_info_parse(const char *json, size_t json_bytes, struct error *error);
void dcp_info_destroy(struct dcp_info *info); /* accepts NULL */
/* *entry is NULL when the file says nothing of that tensor. Fails for lack of memory, and when a name occurs twice, which is
 * certain to be found out only once every entry was asked for, or by dcp_info_end(). */
int dcp_info_find(struct dcp_info *info, const char *name, size_t length, const struct dcp_entry **entry,
                  struct error *error);
int dcp_info_end(struct dcp_info *info, struct error *error); /* nothing more is asked for */

bool dcp_is_shard(const struct part_header *header); /* the file has sharding information */
bool dcp_is_shard_name(const char *file_name);       /* "shard-00001-model-..": of one rank of several */

/* --- numbers of all files --- */

/* Fills in kind, world_size (1 where no name has a shard's number) and what is missing, malloced. Fails when the names
 * disagree about the number of files. Names of any other kind say nothing. */
int dcp_read_numbers(const char *const *file_names, size_t n_files, struct artifact_layout *layout, struct error *error);
/* Names that are not among these but may be there: of every shard up to the highest, in every file; none where that makes
 * more than `most`. Both malloced. */
char **dcp_names_between(const char *const *file_names, size_t n_files, size_t most, size_t *n_names);
/* DATA_LOSS that names what is missing and says what may be done; 0 when nothing is. */
int dcp_check_numbers(const struct artifact_layout *layout, struct error *error);

#endif
