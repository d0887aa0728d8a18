/* Joins the headers of all part files, as the index says where there is one; see artifact_table.h. */
#include "resolve/artifact_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"

static int add_tensor(struct artifact_table *table, const struct stored_tensor *tensor, uint32_t file, struct error *error)
{
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
        return fail(
            error, ERROR_DATA_LOSS, "DUPLICATE_TENSOR",
            "tensor %s is in %s and in %s, and no index says which of them counts; a reference to one file reads that file",
            text_show_bytes(record->name, record->name_length),
            text_show(table->file_names[table->pieces[table->tensors[other].first_piece].file]),
            text_show(table->file_names[file]));
    table->n_tensors++;
    if (!checked_add(table->total_bytes, record->bytes, &table->total_bytes))
        return fail(error, ERROR_DATA_LOSS, "VALIDATION_OVERFLOW", "the part files together are too large");
    return 0;
}

/* --- by an index --- */

struct left_out { /* of one kind */
    size_t n;
    const struct stored_tensor *first;
    uint32_t file;
};

struct index_reader {
    struct artifact_table *table;
    const struct shard_index *index;
    struct map entries;  /* of the index, by name */
    uint32_t *files;     /* by file of the index: of the table; MAP_NONE = it is absent */
    uint32_t *absent_at; /* by file of the index: which of the absent ones */
    struct left_out unnamed, elsewhere;
};

static void leave_out(struct left_out *left_out, const struct stored_tensor *tensor, uint32_t file)
{
    if (!left_out->n++) {
        left_out->first = tensor;
        left_out->file = file;
    }
}

/* Each entry has its tensor, or its file is absent. */
static int check_entries(struct index_reader *reader, struct error *error)
{
    const struct shard_index *index = reader->index;
    struct artifact_table *table = reader->table;
    for (size_t i = 0; i < index->n_entries; i++) {
        const struct shard_entry *entry = &index->entries[i];
        const char *file = index->files[entry->file];
        if (reader->files[entry->file] == MAP_NONE) {
            char *name = arena_try_bytes(&table->absent_names, entry->name_length + 1, error);
            if (!name)
                return -1;
            memcpy(name, entry->name, entry->name_length);
            table->absent.tensors[table->absent.n_tensors++] =
                (struct absent_tensor){name, (uint32_t)entry->name_length, reader->absent_at[entry->file]};
        } else if (map_find(&table->by_name, entry->name, entry->name_length) == MAP_NONE) {
            return fail(error, ERROR_DATA_LOSS, "INDEX_DISAGREES", "%s and the files disagree: tensor %s is not in %s",
                        index->document, text_show_bytes(entry->name, entry->name_length), text_show(file));
        }
    }
    return 0;
}

static void note_left_out(const struct index_reader *reader)
{
    struct artifact_table *table = reader->table;
    const struct left_out *unnamed = &reader->unnamed, *elsewhere = &reader->elsewhere;
    const struct artifact_absent *absent = &table->absent;
    const char *index = reader->index->document, *file;
    if (unnamed->n) {
        file = table->file_names[unnamed->file];
        notes_add(&table->notes,
                  unnamed->n == 1 ? "%zu tensor that %s does not name is left out: %s of %s"
                                  : "%zu tensors that %s does not name are left out; the first is %s of %s",
                  unnamed->n, index, text_show_bytes(unnamed->first->name, unnamed->first->name_length), text_show(file));
    }
    if (elsewhere->n) {
        file = table->file_names[elsewhere->file];
        notes_add(
            &table->notes,
            elsewhere->n == 1
                ? "%zu tensor is also in another file than %s says, and that copy is not read: %s in %s"
                : "%zu tensors are also in other files than %s says, and those copies are not read; the first is %s in %s",
            elsewhere->n, index, text_show_bytes(elsewhere->first->name, elsewhere->first->name_length), text_show(file));
    }
    if (absent->files.n)
        notes_add(&table->notes,
                  "%zu of the %zu files that %s names %s missing, with %zu tensor%s that cannot be loaded%s %s",
                  absent->files.n, reader->index->n_files, index, absent->files.n == 1 ? "is" : "are", absent->n_tensors,
                  absent->n_tensors == 1 ? "" : "s", absent->files.n == 1 ? ":" : "; the first is",
                  text_show(absent->files.texts[0]));
}

static int add_by_index(struct artifact_table *table, const struct shard_index *index, struct error *error)
{
    struct index_reader reader = {.table = table, .index = index};
    int failed = map_init_charged(&reader.entries, index->n_entries, error);
    reader.files = memory_alloc_array(index->n_files, sizeof *reader.files);
    reader.absent_at = memory_alloc_array(index->n_files, sizeof *reader.absent_at);
    for (size_t i = 0; i < index->n_entries && !failed; i++)
        map_add(&reader.entries, index->entries[i].name, index->entries[i].name_length, (uint32_t)i);
    for (size_t i = 0, next = 0; i < index->n_files; i++) { /* both lists are sorted */
        bool is_there = next < table->n_files && strcmp(index->files[i], table->file_names[next]) == 0;
        reader.files[i] = is_there ? (uint32_t)next++ : MAP_NONE;
        reader.absent_at[i] = (uint32_t)table->absent.files.n;
        if (!is_there)
            notes_add(&table->absent.files, "%s", index->files[i]);
    }
    if (!failed && table->absent.files.n) {
        table->absent.tensors = metadata_array(index->n_entries, sizeof *table->absent.tensors, error);
        failed = table->absent.tensors ? 0 : -1;
    }
    for (uint32_t file = 0; file < table->n_files; file++)
        for (size_t i = 0; i < table->headers[file]->n_tensors && !failed; i++) {
            const struct stored_tensor *tensor = &table->headers[file]->tensors[i];
            uint32_t entry = map_find(&reader.entries, tensor->name, tensor->name_length);
            if (entry == MAP_NONE)
                leave_out(&reader.unnamed, tensor, file);
            else if (reader.files[index->entries[entry].file] != file)
                leave_out(&reader.elsewhere, tensor, file);
            else
                failed = add_tensor(table, tensor, file, error);
        }
    if (!failed)
        failed = check_entries(&reader, error);
    if (!failed)
        note_left_out(&reader);
    map_fini(&reader.entries);
    free(reader.files);
    free(reader.absent_at);
    return failed;
}

/* Charged to the user who resolves it first, until it is not used any more. */
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
    for (size_t i = 0; i < n_files && !failed && !index; i++)
        for (size_t k = 0; k < headers[i]->n_tensors && !failed; k++)
            failed = add_tensor(table, &headers[i]->tensors[k], (uint32_t)i, error);
    if (index)
        failed = add_by_index(table, index, error);
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
    notes_fini(&table->absent.files);
    metadata_free(table->absent.tensors);
    arena_fini(&table->absent_names);
    notes_fini(&table->notes);
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
