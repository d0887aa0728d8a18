/* The headers of the files held against topology.json, which was found to add up: every file has exactly what the document
 * says, in dtype and shape. Files come in ascending order and so do each tensor's chunks, so one cursor per tensor tells which
 * chunk comes next. */
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
    uint32_t *n_found;          /* per tensor of the topology: chunks so far */
    struct error *error;
};

static int fail_disagreement(const struct builder *builder, const char *name, size_t length, const char *complaint,
                             uint32_t file)
{
    char tensor[TEXT_NAME_CHARS], text[TEXT_NAME_CHARS];
    const char *file_name = builder->topology->files[file];
    fail(builder->error, ERROR_DATA_LOSS, "TOPOLOGY_DISAGREES", TOPOLOGY_NAME " and the files disagree: tensor %s %s %s",
         text_escape(name, length, tensor), complaint, text_escape(file_name, strlen(file_name), text));
    error_note(builder->error, "file", "%s", file_name);
    return error_note(builder->error, "tensor", "%.*s", (int)length, name);
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
    return 0;
}

/* The chunk of the tensor that this file has, *chunk NULL = all of it. */
static int next_chunk(struct builder *builder, uint32_t number, uint32_t file, const struct topology_chunk **chunk)
{
    const struct topology_tensor *tensor = &builder->topology->tensors[number];
    uint32_t at = builder->n_found[number]++;
    const struct topology_chunk *next = &builder->topology->chunks[tensor->first_chunk + at];
    *chunk = NULL;
    if (tensor->is_shared && !tensor->lists_files)
        return 0;
    if (at < tensor->n_chunks && next->file < file)
        return fail_disagreement(builder, tensor->name, tensor->name_length, "is not in", next->file);
    if (at == tensor->n_chunks || next->file > file)
        return fail_disagreement(builder, tensor->name, tensor->name_length, "is, against the document, in", file);
    *chunk = tensor->is_shared ? NULL : next;
    return 0;
}

static bool has_stored(const struct topology_tensor *tensor, const uint64_t *shape, const struct stored_tensor *stored)
{
    return stored->dtype == tensor->dtype && stored->rank == tensor->rank &&
           memcmp(stored->shape, shape, tensor->rank * sizeof *shape) == 0;
}

static int add_stored(struct builder *builder, const struct stored_tensor *stored, uint32_t file)
{
    const struct topology *topology = builder->topology;
    const struct topology_chunk *chunk;
    uint32_t record = piece_find_record(&builder->pieces, stored);
    if (record == MAP_NONE && add_record(builder, stored, file, &record) < 0)
        return -1;
    uint32_t number = builder->tensor_of_record[record];
    if (next_chunk(builder, number, file, &chunk) < 0)
        return -1;
    const struct topology_tensor *tensor = &topology->tensors[number];
    const uint64_t *box = chunk ? &topology->numbers[chunk->box_at] : NULL;
    const uint64_t *shape = chunk ? box + tensor->rank : &topology->numbers[tensor->shape_at];
    if (!has_stored(tensor, shape, stored))
        return fail_disagreement(builder, tensor->name, tensor->name_length, "has another dtype or shape in", file);
    piece_add(builder->pieces.table, stored, file, record, tensor->n_chunks > 1 ? box : NULL);
    return 0;
}

static int check_complete(const struct builder *builder)
{
    const struct topology *topology = builder->topology;
    char name[TEXT_NAME_CHARS];
    for (size_t i = 0; i < topology->n_tensors; i++) {
        const struct topology_tensor *tensor = &topology->tensors[i];
        uint32_t n_found = builder->n_found[i];
        if (n_found < tensor->n_chunks)
            return fail_disagreement(builder, tensor->name, tensor->name_length, "is not in",
                                     topology->chunks[tensor->first_chunk + n_found].file);
        if (n_found == 0)
            return fail(builder->error, ERROR_DATA_LOSS, "TOPOLOGY_DISAGREES",
                        "tensor %s of " TOPOLOGY_NAME " is in no file",
                        text_escape(tensor->name, tensor->name_length, name));
    }
    return 0;
}

/* Shared tensors: every piece holds all of it. */
static void join_copies(const struct builder *builder)
{
    struct artifact_table *table = builder->pieces.table;
    for (size_t i = 0; i < table->n_tensors; i++) {
        const struct tensor_record *record = &table->tensors[i];
        if (builder->topology->tensors[builder->tensor_of_record[i]].is_shared)
            piece_join_copies(table, &table->piece_lists[record->first_piece], record->n_pieces);
    }
}

static int fill_from_topology(struct builder *builder)
{
    struct artifact_table *table = builder->pieces.table;
    for (uint32_t file = 0; file < table->n_files; file++) {
        const struct part_header *header = table->headers[file];
        builder->pieces.guess = 0;
        for (size_t i = 0; i < header->n_tensors; i++)
            if (add_stored(builder, &header->tensors[i], file) < 0)
                return -1;
    }
    if (check_complete(builder) < 0 || piece_list_all(table, builder->error) < 0)
        return -1;
    join_copies(builder);
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
    builder.n_found = metadata_array(topology->n_tensors, sizeof *builder.n_found, error);
    int failed = builder.tensor_of_record && builder.n_found ? fill_from_topology(&builder) : -1;
    metadata_free(builder.tensor_of_record);
    metadata_free(builder.n_found);
    if (failed) {
        artifact_table_unref(table);
        return NULL;
    }
    table->layout.kind = LAYOUT_TOPOLOGY;
    table->layout.world_size = topology->world_size;
    table->numbers = topology->numbers;
    table->memory_bytes += topology->n_numbers * sizeof *topology->numbers;
    topology->numbers = NULL;
    return table;
}
