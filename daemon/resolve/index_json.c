/* The two index documents; names sorted, compact. The source index leaves out tensors in several boxes. What torch has no name for keeps its safetensors name. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "resolve/artifact.h"
#include "resolve/artifact_table.h"

enum { CANONICAL_ALIGNMENT = 8 };

static int compare_names(const void *a, const void *b)
{
    const struct tensor_record *x = *(const struct tensor_record *const *)a, *y = *(const struct tensor_record *const *)b;
    size_t shorter = x->name_length < y->name_length ? x->name_length : y->name_length;
    int order = memcmp(x->name, y->name, shorter);
    return order ? order : (x->name_length > y->name_length) - (x->name_length < y->name_length);
}

static const struct tensor_record **sorted_records(const struct artifact *artifact)
{
    const struct tensor_record **records = memory_try(artifact->n_tensors * sizeof *records);
    for (size_t i = 0; records && i < artifact->n_tensors; i++)
        records[i] = &artifact->tensors[i];
    if (records && artifact->n_tensors)
        qsort(records, artifact->n_tensors, sizeof *records, compare_names);
    return records;
}

static void write_record(struct json_writer *writer, const struct tensor_record *record, uint64_t offset)
{
    const char *torch_name = dtype_torch_name(record->dtype);
    uint64_t strides[TENSOR_MAX_RANK], stride = 1; /* in elements, as torch has them: an extent of 0 counts as 1 */
    for (uint32_t i = record->rank; i-- > 0;) {
        strides[i] = stride;
        stride *= record->shape[i] ? record->shape[i] : 1; /* may wrap only where there are no elements */
    }
    json_write_key_bytes(writer, record->name, record->name_length);
    json_write_open(writer, '[');
    json_write_u64(writer, offset);
    json_write_u64(writer, record->bytes);
    json_write_open(writer, '[');
    for (uint32_t i = 0; i < record->rank; i++)
        json_write_u64(writer, record->shape[i]);
    json_write_close(writer, ']');
    json_write_open(writer, '[');
    for (uint32_t i = 0; i < record->rank; i++)
        json_write_u64(writer, strides[i]);
    json_write_close(writer, ']');
    json_write_text(writer, torch_name ? torch_name : dtype_name(record->dtype));
    json_write_u64(writer, 0); /* storage_offset: every tensor has a storage of its own */
    json_write_close(writer, ']');
}

static char *finish(struct json_writer *writer, const struct tensor_record **records)
{
    json_write_close(writer, '}');
    if (!records)
        memory_free(writer->text);
    free(records);
    return records ? writer->text : NULL;
}

char *artifact_source_index_json(const struct artifact *artifact)
{
    const struct tensor_record **records = sorted_records(artifact);
    const struct artifact_table *table = artifact->table;
    /* where each file's data section begins in the concatenation of all, less where it begins in its file */
    uint64_t *bases = memory_alloc_array(table->n_files, sizeof *bases), end = 0;
    struct json_writer writer = {.can_fail = true};
    for (size_t i = 0; i < table->n_files; i++) {
        bases[i] = end - table->headers[i]->data_offset; /* modulo 2^64; adding an offset of the file brings it back */
        end += table->headers[i]->file_bytes - table->headers[i]->data_offset;
    }
    json_write_open(&writer, '{');
    for (size_t i = 0; records && i < artifact->n_tensors; i++) {
        const struct tensor_piece *piece = artifact_piece(artifact, records[i], 0);
        if (artifact_is_in_pieces(records[i])) /* it is at no one place */
            continue;
        write_record(&writer, records[i], bases[piece->file] + piece->offset);
    }
    free(bases);
    return finish(&writer, records);
}

char *artifact_canonical_index_json(const struct artifact *artifact)
{
    const struct tensor_record **records = sorted_records(artifact);
    struct json_writer writer = {.can_fail = true};
    uint64_t end = 0;
    json_write_open(&writer, '{');
    for (size_t i = 0; records && i < artifact->n_tensors; i++) {
        uint64_t offset = (end + CANONICAL_ALIGNMENT - 1) & ~(uint64_t)(CANONICAL_ALIGNMENT - 1);
        write_record(&writer, records[i], offset);
        end = offset + records[i]->bytes;
    }
    return finish(&writer, records);
}
