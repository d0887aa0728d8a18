/* Joins the headers of all part files and holds them against the index; see artifact_table.h. */
#include "resolve/artifact_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"

/* Of a tensor of one piece. */
static const char *file_of(const struct artifact_table *table, const struct tensor_record *tensor)
{
    return table->file_names[table->pieces[tensor->first_piece].file];
}

static int fail_twice(const struct artifact_table *table, const struct tensor_record *first,
                      const struct tensor_record *second, struct error *error)
{
    char name[TEXT_NAME_CHARS], one[TEXT_NAME_CHARS], two[TEXT_NAME_CHARS];
    const char *first_file = file_of(table, first), *second_file = file_of(table, second);
    return fail(error, ERROR_DATA_LOSS, "DUPLICATE_TENSOR", "tensor %s is in %s and in %s",
                text_escape(first->name, first->name_length, name), text_escape(first_file, strlen(first_file), one),
                text_escape(second_file, strlen(second_file), two));
}

static int add_file(struct artifact_table *table, uint32_t file, struct error *error)
{
    struct part_header *header = table->headers[file];
    for (size_t i = 0; i < header->n_tensors; i++) {
        const struct stored_tensor *tensor = &header->tensors[i];
        struct tensor_record *record = &table->tensors[table->n_tensors];
        *record = (struct tensor_record){
            .name = tensor->name,
            .shape = tensor->shape,
            .bytes = tensor->bytes,
            .name_length = tensor->name_length,
            .first_piece = (uint32_t)table->n_pieces,
            .n_pieces = 1,
            .dtype = tensor->dtype,
            .rank = tensor->rank,
        };
        table->pieces[table->n_pieces++] =
            (struct tensor_piece){.offset = tensor->offset, .file = file, .tensor = (uint32_t)table->n_tensors};
        uint32_t other = map_add(&table->by_name, record->name, record->name_length, (uint32_t)table->n_tensors);
        if (other != MAP_NONE)
            return fail_twice(table, &table->tensors[other], record, error);
        table->n_tensors++;
        if (!checked_add(table->total_bytes, record->bytes, &table->total_bytes))
            return fail(error, ERROR_DATA_LOSS, "VALIDATION_OVERFLOW", "the part files together are too large");
    }
    return 0;
}

static int fail_disagreement(const char *name, size_t length, const char *complaint, const char *file, struct error *error)
{
    char tensor[TEXT_NAME_CHARS], text[TEXT_NAME_CHARS];
    return fail(error, ERROR_DATA_LOSS, "INDEX_DISAGREES", SHARD_INDEX_NAME " and the files disagree: tensor %s %s %s",
                text_escape(name, length, tensor), complaint, text_escape(file, strlen(file), text));
}

/* The files of the table are those of the index, in its order. */
static int check_index(const struct artifact_table *table, const struct shard_index *index, struct error *error)
{
    bool *listed = metadata_array(table->n_tensors, sizeof *listed, error);
    if (!listed)
        return -1;
    int failed = 0;
    for (size_t i = 0; i < index->n_entries && !failed; i++) {
        const struct shard_entry *entry = &index->entries[i];
        uint32_t found = map_find(&table->by_name, entry->name, entry->name_length);
        if (found == MAP_NONE || table->pieces[found].file != entry->file)
            failed = fail_disagreement(entry->name, entry->name_length, "is not in", index->files[entry->file], error);
        else
            listed[found] = true;
    }
    for (size_t i = 0; i < table->n_tensors && !failed; i++) {
        const struct tensor_record *record = &table->tensors[i];
        if (!listed[i])
            failed = fail_disagreement(record->name, record->name_length, "is not in the index but in",
                                       file_of(table, record), error);
    }
    metadata_free(listed);
    return failed;
}

/* Charged to whoever resolves it first, until nobody uses it any more. */
struct artifact_table *artifact_table_create(struct part_header *const *headers, const char *const *file_names,
                                             size_t n_files, size_t n_tensors, size_t n_pieces, struct error *error)
{
    struct quota_charge charge = metadata_charge();
    uint64_t of_files_bytes = n_files * 256;
    if (quota_charge_add(&charge, of_files_bytes, error) != 0)
        return NULL;
    struct artifact_table *table = memory_alloc(sizeof *table);
    table->charge = charge;
    table->memory_bytes =
        n_tensors * sizeof *table->tensors + n_pieces * sizeof *table->pieces + map_memory_bytes(n_tensors) + of_files_bytes;
    table->references = 1;
    table->n_files = n_files;
    table->headers = memory_alloc_array(n_files, sizeof *table->headers);
    table->file_names = memory_alloc_array(n_files, sizeof *table->file_names);
    for (size_t i = 0; i < n_files; i++) {
        table->headers[i] = part_header_ref(headers[i]);
        table->file_names[i] = memory_copy_text(file_names[i]);
    }
    table->tensors = metadata_array(n_tensors, sizeof *table->tensors, error);
    table->tensor_capacity = n_tensors;
    table->pieces = metadata_array(n_pieces, sizeof *table->pieces, error);
    if (table->tensors && table->pieces && map_init_charged(&table->by_name, n_tensors, error) == 0)
        return table;
    artifact_table_unref(table);
    return NULL;
}

struct artifact_table *artifact_table_build(struct part_header *const *headers, const char *const *file_names,
                                            size_t n_files, const struct shard_index *index, struct error *error)
{
    size_t n_tensors = 0;
    int failed = 0;
    for (size_t i = 0; i < n_files; i++)
        n_tensors += headers[i]->n_tensors;
    struct artifact_table *table = artifact_table_create(headers, file_names, n_files, n_tensors, n_tensors, error);
    if (!table)
        return NULL;
    for (size_t i = 0; i < n_files && !failed; i++)
        failed = add_file(table, (uint32_t)i, error);
    if (!failed && index)
        failed = check_index(table, index, error);
    if (!failed)
        return table;
    artifact_table_unref(table);
    return NULL;
}

struct artifact_table *artifact_table_ref(struct artifact_table *table)
{
    __atomic_add_fetch(&table->references, 1, __ATOMIC_RELAXED);
    return table;
}

void artifact_table_unref(struct artifact_table *table)
{
    if (!table || __atomic_sub_fetch(&table->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < table->n_files; i++) {
        part_header_unref(table->headers[i]);
        free(table->file_names[i]);
    }
    map_fini(&table->by_name);
    quota_charge_end(&table->charge);
    metadata_free(table->numbers);
    memory_free(table->layout.missing_shards);
    memory_free(table->layout.missing_files);
    metadata_free(table->piece_lists);
    metadata_free(table->copies);
    free(table->headers);
    free(table->file_names);
    metadata_free(table->tensors);
    metadata_free(table->pieces);
    free(table);
}
