/* Pieces are added in file order and stay so; the lists are made by counting. */
#include "resolve/piece_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"

uint32_t piece_find_record(struct piece_builder *builder, const struct stored_tensor *stored)
{
    const struct artifact_table *table = builder->table;
    uint32_t found = builder->guess;
    const struct tensor_record *record = &table->tensors[found];
    if (found >= table->n_tensors || record->name_length != stored->name_length ||
        memcmp(record->name, stored->name, stored->name_length) != 0)
        found = map_find(&table->by_name, stored->name, stored->name_length);
    if (found != MAP_NONE)
        builder->guess = found + 1;
    return found;
}

uint32_t piece_add_record(struct piece_builder *builder, const struct stored_tensor *stored)
{
    struct artifact_table *table = builder->table;
    size_t before = table->tensor_capacity;
    if (table->n_tensors == before) { /* room for twice as many */
        if (METADATA_RESERVE(table->tensors, before, table->tensor_capacity, builder->error) < 0 ||
            map_reserve(&table->by_name, table->tensor_capacity, builder->error) < 0)
            return MAP_NONE;
        size_t more = table->tensor_capacity - before;
        table->memory_bytes += more * sizeof *table->tensors + map_memory_bytes(more);
    }
    uint32_t number = (uint32_t)table->n_tensors++;
    table->tensors[number] = (struct tensor_record){
        .name = stored->name, .name_length = stored->name_length, .dtype = stored->dtype, .rank = stored->rank};
    map_add(&table->by_name, stored->name, stored->name_length, number);
    builder->guess = number + 1;
    return number;
}

void piece_add(struct artifact_table *table, const struct stored_tensor *stored, uint32_t file, uint32_t record,
               const uint64_t *box)
{
    table->pieces[table->n_pieces++] =
        (struct tensor_piece){.offset = stored->offset, .box = box, .file = file, .tensor = record};
    table->tensors[record].n_pieces++;
}

static uint32_t *take_numbers(struct artifact_table *table, struct error *error)
{
    table->memory_bytes += table->n_pieces * sizeof(uint32_t);
    return metadata_array(table->n_pieces, sizeof(uint32_t), error);
}

int piece_list_all(struct artifact_table *table, struct error *error)
{
    table->piece_lists = take_numbers(table, error);
    if (!table->piece_lists)
        return -1;
    uint32_t next = 0;
    for (size_t i = 0; i < table->n_tensors; i++) {
        table->tensors[i].first_piece = next;
        next += table->tensors[i].n_pieces;
        table->tensors[i].n_pieces = 0;
    }
    for (size_t i = 0; i < table->n_pieces; i++) {
        struct tensor_record *record = &table->tensors[table->pieces[i].tensor];
        table->piece_lists[record->first_piece + record->n_pieces++] = (uint32_t)i;
    }
    table->copies = take_numbers(table, error); /* given back where there are none */
    for (size_t i = 0; table->copies && i < table->n_pieces; i++)
        table->copies[i] = (uint32_t)i;
    return table->copies ? 0 : -1;
}

void piece_join_copies(struct artifact_table *table, const uint32_t *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++)
        table->copies[pieces[i]] = pieces[(i + 1) % n];
}

int piece_finish(struct artifact_table *table, struct error *error)
{
    bool *is_later = metadata_array(table->n_pieces, sizeof *is_later, error);
    uint32_t n_listed = 0;
    if (!is_later)
        return -1;
    for (size_t i = 0; i < table->n_tensors; i++) {
        struct tensor_record *record = &table->tensors[i];
        uint32_t first = record->first_piece, n = record->n_pieces;
        record->first_piece = n_listed;
        for (uint32_t k = first; k < first + n; k++) {
            uint32_t piece = table->piece_lists[k];
            if (is_later[piece]) /* a lower one is in its ring */
                continue;
            for (uint32_t other = table->copies[piece]; other != piece; other = table->copies[other])
                is_later[other] = true;
            table->piece_lists[n_listed++] = piece;
        }
        record->n_pieces = n_listed - record->first_piece;
        if (!checked_add(table->total_bytes, record->bytes, &table->total_bytes)) {
            metadata_free(is_later);
            return fail(error, ERROR_DATA_LOSS, "VALIDATION_OVERFLOW", "the part files together are too large");
        }
    }
    metadata_free(is_later);
    if (n_listed == table->n_pieces) {
        metadata_free(table->copies);
        table->copies = NULL;
        table->memory_bytes -= table->n_pieces * sizeof(uint32_t);
    }
    return 0;
}
