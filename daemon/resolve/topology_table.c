/* The headers of the files held against topology.json, which was found to add up: every file has exactly what the document
 * says, in dtype and shape. First names become records, file by file; then each tensor's pieces are held against its chunks,
 * both in the order of files. Done the other way round, with millions of chunks, each look at one would miss the caches. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/piece_table.h"

struct builder {
    struct piece_builder pieces;
    const struct topology *topology;
    uint32_t *tensor_of_record; /* index into topology->tensors */
    bool *is_stored;            /* per tensor of the topology */
    size_t *first_of_file;      /* index of each file's first piece */
    struct error *error;
};

static int fail_disagreement(const struct builder *builder, const char *name, size_t length, const char *complaint,
                             uint32_t file)
{
    const char *file_name = builder->topology->files[file];
    fail(builder->error, ERROR_DATA_LOSS, "TOPOLOGY_DISAGREES", TOPOLOGY_NAME " and the files disagree: tensor %s %s %s",
         text_show_bytes(name, length), complaint, text_show(file_name));
    error_note(builder->error, "file", "%s", file_name);
    return error_note_tensor(builder->error, name, length);
}

static const struct topology_tensor *find_tensor(const struct topology *topology, const struct stored_tensor *stored)
{
    size_t lo = 0, hi = topology->n_tensors;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        const struct topology_tensor *tensor = &topology->tensors[middle];
        size_t shorter = tensor->name_length < stored->name_length ? tensor->name_length : stored->name_length;
        int order = memcmp(tensor->name, stored->name, shorter);
        if (!order && tensor->name_length == stored->name_length)
            return tensor;
        if (order < 0 || (order == 0 && tensor->name_length < stored->name_length))
            lo = middle + 1;
        else
            hi = middle;
    }
    return NULL;
}

static int add_record(struct builder *builder, const struct stored_tensor *stored, uint32_t file, uint32_t *record)
{
    const struct topology *topology = builder->topology;
    const struct topology_tensor *tensor = find_tensor(topology, stored);
    if (!tensor)
        return fail_disagreement(builder, stored->name, stored->name_length, "is not in the document but in", file);
    *record = piece_add_record(&builder->pieces, stored);
    if (*record == MAP_NONE)
        return -1;
    struct tensor_record *added = &builder->pieces.table->tensors[*record];
    added->dtype = tensor->dtype;
    added->rank = tensor->rank;
    added->shape = &topology->numbers[tensor->shape_at];
    added->bytes = tensor->bytes;
    builder->tensor_of_record[*record] = (uint32_t)(tensor - topology->tensors);
    builder->is_stored[tensor - topology->tensors] = true;
    return 0;
}

/* --- a tensor --- */

/* Pieces and chunks come by file. */
static int check_record(const struct builder *builder, const struct tensor_record *record,
                        const struct topology_tensor *tensor)
{
    const struct topology *topology = builder->topology;
    struct artifact_table *table = builder->pieces.table;
    const struct topology_chunk *chunks = tensor->n_chunks ? &topology->chunks[tensor->first_chunk] : NULL;
    bool has_chunks = !tensor->is_shared || tensor->lists_files;
    for (uint32_t k = 0; k < record->n_pieces; k++) {
        uint32_t piece = table->piece_lists[record->first_piece + k], file = table->pieces[piece].file;
        const uint64_t *shape = &topology->numbers[tensor->shape_at];
        if (has_chunks && k < tensor->n_chunks && chunks[k].file < file)
            return fail_disagreement(builder, tensor->name, tensor->name_length, "is not in", chunks[k].file);
        if (has_chunks && (k == tensor->n_chunks || chunks[k].file > file))
            return fail_disagreement(builder, tensor->name, tensor->name_length, "is, against the document, in", file);
        if (!tensor->is_shared) {
            const uint64_t *box = &topology->numbers[chunks[k].box_at];
            shape = box + tensor->rank;
            table->pieces[piece].box = tensor->n_chunks > 1 ? box : NULL;
        }
        const struct stored_tensor *stored = &table->headers[file]->tensors[piece - builder->first_of_file[file]];
        if (stored->dtype != tensor->dtype || stored->rank != tensor->rank ||
            memcmp(stored->shape, shape, tensor->rank * sizeof *shape) != 0) /* of all of it, or of a chunk */
            return fail_disagreement(builder, tensor->name, tensor->name_length, "has another dtype or shape in", file);
    }
    if (record->n_pieces < tensor->n_chunks)
        return fail_disagreement(builder, tensor->name, tensor->name_length, "is not in", chunks[record->n_pieces].file);
    if (tensor->is_shared) /* every piece holds all of it */
        piece_join_copies(table, &table->piece_lists[record->first_piece], record->n_pieces);
    return 0;
}

static int check_all_stored(const struct builder *builder)
{
    const struct topology *topology = builder->topology;
    size_t missing = 0;
    while (missing < topology->n_tensors && builder->is_stored[missing])
        missing++;
    if (missing == topology->n_tensors)
        return 0;
    const struct topology_tensor *tensor = &topology->tensors[missing];
    if (tensor->n_chunks)
        return fail_disagreement(builder, tensor->name, tensor->name_length, "is not in",
                                 topology->chunks[tensor->first_chunk].file);
    return fail(builder->error, ERROR_DATA_LOSS, "TOPOLOGY_DISAGREES", "tensor %s of " TOPOLOGY_NAME " is in no file",
                text_show_bytes(tensor->name, tensor->name_length));
}

static int fill_from_topology(struct builder *builder)
{
    struct artifact_table *table = builder->pieces.table;
    for (uint32_t file = 0; file < table->n_files; file++) {
        const struct part_header *header = table->headers[file];
        builder->pieces.guess = 0;
        builder->first_of_file[file] = table->n_pieces;
        for (size_t i = 0; i < header->n_tensors; i++) {
            const struct stored_tensor *stored = &header->tensors[i];
            uint32_t record = piece_find_record(&builder->pieces, stored);
            if (record == MAP_NONE && add_record(builder, stored, file, &record) < 0)
                return -1;
            piece_add(table, stored, file, record, NULL);
        }
    }
    if (check_all_stored(builder) < 0 || piece_list_all(table, builder->error) < 0)
        return -1;
    for (size_t i = 0; i < table->n_tensors; i++)
        if (check_record(builder, &table->tensors[i], &builder->topology->tensors[builder->tensor_of_record[i]]) < 0)
            return -1;
    return piece_finish(table, builder->error);
}

struct artifact_table *topology_table_build(struct part_header *const *headers, const char *const *file_names,
                                            size_t n_files, struct topology *topology, struct error *error)
{
    size_t n_pieces = 0;
    for (size_t i = 0; i < n_files; i++)
        n_pieces += headers[i]->n_tensors;
    struct artifact_table *table = artifact_table_create(headers, file_names, n_files, topology->n_tensors, n_pieces, error);
    if (!table)
        return NULL;
    struct builder builder = {.pieces = {.table = table, .error = error}, .topology = topology, .error = error};
    builder.tensor_of_record = metadata_array(topology->n_tensors, sizeof *builder.tensor_of_record, error);
    builder.is_stored = metadata_array(topology->n_tensors, sizeof *builder.is_stored, error);
    builder.first_of_file = memory_alloc_array(n_files, sizeof *builder.first_of_file);
    int failed = builder.tensor_of_record && builder.is_stored ? fill_from_topology(&builder) : -1;
    metadata_free(builder.tensor_of_record);
    metadata_free(builder.is_stored);
    free(builder.first_of_file);
    if (failed) {
        artifact_table_unref(table);
        return NULL;
    }
    table->layout.kind = LAYOUT_TOPOLOGY;
    table->layout.world_size = (uint32_t)topology->world_size;
    table->numbers = topology->numbers;
    table->memory_bytes += topology->n_numbers * sizeof *topology->numbers;
    topology->numbers = NULL;
    return table;
}
