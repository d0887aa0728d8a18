/* The part of an artifact that depends on nothing but its files' contents: one table of all tensors, with a map of their
 * names. Const and reference-counted; artifacts share it, so resolving a known checkpoint again costs no table. */
#ifndef RESOLVE_ARTIFACT_TABLE_H
#define RESOLVE_ARTIFACT_TABLE_H

#include "base/map.h"
#include "resolve/artifact.h"
#include "resolve/format.h"
#include "resolve/shard_index.h"

struct artifact_table {
    struct artifact_layout layout;
    struct tensor_record *tensors;
    struct tensor_piece *pieces; /* by file, then offset */
    size_t n_tensors, n_pieces, tensor_capacity;
    uint32_t *piece_lists, *copies; /* as struct artifact has them */
    uint64_t *numbers;              /* shapes and boxes that no header has; from metadata_alloc() */
    struct map by_name;
    struct artifact_absent absent;
    struct arena absent_names;
    struct notes notes; /* of what was left out */
    uint64_t total_bytes;
    uint64_t document_crc; /* CRC-64 of the index or topology.json; 0 = there is none */
    bool needs_all_files;  /* no table but a finding: these are DCP shards, and other files of the folder count as well */
    struct part_header **headers; /* one per file; names and shapes live there */
    char **file_names;
    size_t n_files;
    uint64_t memory_bytes;      /* without the headers */
    struct quota_charge charge; /* of them */
    int references;             /* atomic */
};

/* Of plain artifacts. Takes a reference on every header. index may be NULL; else it decides: a tensor is in the file that it says,
 * what it does not name is left out, and what lies in a file that is not among these is absent. NULL on error: DATA_LOSS naming
 * tensor and files, or RESOURCE_EXHAUSTED. */
struct artifact_table *artifact_table_build(struct part_header *const *headers, const char *const *file_names,
                                            size_t n_files, const struct shard_index *index, struct error *error);
/* An empty one with its files and room for so many tensors and pieces, to be filled. NULL on error. */
struct artifact_table *artifact_table_create(struct part_header *const *headers, const char *const *file_names,
                                             size_t n_files, size_t n_tensors, size_t n_pieces, struct error *error);
/* The artifact whose table it is, of which identity and source_key are left to fill in. Takes both. */
struct artifact *artifact_of_table(struct source *source, struct artifact_table *table);
/* What identifies one of its files, with or without the span of its lease. */
void artifact_add_file_key(struct digest *digest, const struct source_file *file, bool with_span);
struct artifact_table *artifact_table_ref(struct artifact_table *table);
void artifact_table_unref(struct artifact_table *table); /* accepts NULL */

#endif
