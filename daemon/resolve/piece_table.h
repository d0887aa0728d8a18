/* Tables of artifacts whose tensors lie in boxes in several files. topology_table.c and dcp_table.c say which box a stored
 * array is; what they have in common is here: arrays of one name become one tensor, pieces are listed by tensor, and boxes
 * that are stored more than once become copies of each other. */
#ifndef RESOLVE_PIECE_TABLE_H
#define RESOLVE_PIECE_TABLE_H

#include "resolve/artifact_table.h"
#include "resolve/dcp.h"
#include "resolve/topology.h"

/* The files are those of the topology, in its order; its numbers go to the table. NULL on error: DATA_LOSS naming tensor and
 * file. */
struct artifact_table *topology_table_build(struct part_header *const *headers, const char *const *file_names,
                                            size_t n_files, struct topology *topology, struct error *error);

/* Any files, those without sharding information included. index may be NULL; else each of its tensors has to be in the file
 * that it says. Numbers of shards may be missing only where `allow_missing` says so: otherwise that is told first, as the
 * cause of everything else. NULL on error. */
struct artifact_table *dcp_table_build(struct part_header *const *headers, const char *const *file_names, size_t n_files,
                                       const struct shard_index *index, bool allow_missing, struct error *error);

/* --- for these two --- */

struct piece_builder {
    struct artifact_table *table;
    uint32_t guess; /* files mostly have the same tensors in the same order: the one behind the last that was found */
    struct error *error;
};

/* The record of that name, MAP_NONE = there is none yet. */
uint32_t piece_find_record(struct piece_builder *builder, const struct stored_tensor *stored);
/* A record with name and dtype, still without a shape. MAP_NONE on error. */
uint32_t piece_add_record(struct piece_builder *builder, const struct stored_tensor *stored);
void piece_add(struct artifact_table *table, const struct stored_tensor *stored, uint32_t file, uint32_t record,
               const uint64_t *box);

/* All pieces by tensor, in file order: table->piece_lists, and first_piece and n_pieces of the records. */
int piece_list_all(struct artifact_table *table, struct error *error);
/* Makes these pieces, ascending, copies of each other. */
void piece_join_copies(struct artifact_table *table, const uint32_t *pieces, size_t n);
/* Leaves the first of each ring in the lists, and counts total_bytes. */
int piece_finish(struct artifact_table *table, struct error *error);

#endif
