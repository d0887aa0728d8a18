/* The shards that PyTorch's distributed checkpoint writes. A tensor's shape is the hull of its boxes; boxes that are the same
 * are copies, the rest has to tile the hull. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/parallel.h"
#include "base/text.h"
#include "resolve/cover.h"
#include "resolve/piece_table.h"

struct builder {
    struct piece_builder pieces;
    uint64_t *next_number; /* of the table's: boxes, and each tensor's hull behind its first box */
    uint64_t **hulls;      /* per record: its shape, while it grows */
    size_t hull_capacity;
    struct cover cover;
    const uint64_t **boxes; /* room for those of one tensor, and their order */
    uint32_t *order;
    size_t boxes_capacity, order_capacity;
    struct error *error;
};

/* --- one array --- */

static const char *name_of_file(const struct builder *builder, uint32_t file)
{
    const char *name = builder->pieces.table->file_names[file];
    return text_show(name);
}

static int fail_array(const struct builder *builder, const struct stored_tensor *stored, uint32_t file, const char *reason,
                      const char *complaint)
{
    fail(builder->error, ERROR_DATA_LOSS, reason, "%s: tensor %s: %s", name_of_file(builder, file),
         text_show_bytes(stored->name, stored->name_length), complaint);
    return error_note_tensor(builder->error, stored->name, stored->name_length);
}

/* Where it begins in the tensor, then its size; NULL on error. The tensor's shape grows to hold it, and to what is said of it. */
static uint64_t *make_box(struct builder *builder, const struct stored_tensor *stored, uint32_t file, struct dcp_info *info,
                          uint64_t *hull)
{
    const struct dcp_entry *entry = NULL;
    uint64_t *box = builder->next_number, end;
    if (info && dcp_info_find(info, stored->name, stored->name_length, &entry, builder->error) < 0) {
        error_prefix(builder->error, "%s", name_of_file(builder, file));
        return NULL;
    }
    if (info && !entry) {
        fail_array(builder, stored, file, "MALFORMED_SHARDING_INFO", DCP_SHARDING_INFO " does not name it");
        return NULL;
    }
    if (entry && entry->rank != stored->rank) {
        fail_array(builder, stored, file, "MALFORMED_SHARDING_INFO",
                   "its saved_offsets are more or fewer than its dimensions");
        return NULL;
    }
    const uint64_t *whole = entry && entry->has_shape ? &info->numbers[entry->shape_at] : NULL;
    builder->next_number += 2 * (size_t)stored->rank;
    for (uint32_t d = 0; d < stored->rank; d++) {
        box[d] = entry ? info->numbers[entry->offsets_at + d] : 0;
        box[stored->rank + d] = stored->shape[d];
        if (!checked_add(box[d], stored->shape[d], &end) || (whole && end > whole[d])) {
            fail_array(builder, stored, file, "MALFORMED_SHARDING_INFO",
                       whole ? "its saved_offsets lead out of its global_shape"
                             : "its saved_offsets are too large for any tensor");
            return NULL;
        }
        if (whole && whole[d] > hull[d])
            hull[d] = whole[d];
        hull[d] = end > hull[d] ? end : hull[d];
    }
    return box;
}

static int add_stored(struct builder *builder, const struct stored_tensor *stored, uint32_t file, struct dcp_info *info)
{
    struct artifact_table *table = builder->pieces.table;
    uint32_t record = piece_find_record(&builder->pieces, stored);
    if (record == MAP_NONE) {
        record = piece_add_record(&builder->pieces, stored);
        if (record == MAP_NONE || METADATA_RESERVE(builder->hulls, record, builder->hull_capacity, builder->error) < 0)
            return -1;
        table->tensors[record].shape = builder->hulls[record] = builder->next_number;
        builder->next_number += stored->rank;
        table->tensors[record].first_piece = (uint32_t)table->n_pieces; /* until they are listed */
    }
    const struct tensor_record *before = &table->tensors[record];
    if (before->first_piece < table->n_pieces && (before->dtype != stored->dtype || before->rank != stored->rank)) {
        char complaint[128 + TEXT_NAME_CHARS];
        snprintf(complaint, sizeof complaint, "%s with %u dimensions here, %s with %u in %s", dtype_name(stored->dtype),
                 (unsigned)stored->rank, dtype_name(before->dtype), (unsigned)before->rank,
                 name_of_file(builder, table->pieces[before->first_piece].file));
        return fail_array(builder, stored, file, "SHARDS_DISAGREE", complaint);
    }
    const uint64_t *box = make_box(builder, stored, file, info, builder->hulls[record]);
    if (!box)
        return -1;
    piece_add(table, stored, file, record, box);
    return 0;
}

/* --- many files --- */

/* The texts of so many files are parsed side by side, before their arrays are added one after the other. */
enum { FILES_AT_ONCE = 8 };

struct batch {
    const struct builder *builder;
    uint32_t first_file;
    struct dcp_info *infos[FILES_AT_ONCE]; /* NULL = the file says nothing, or was not come to */
};

static int parse_info(void *data, size_t i, struct error *error)
{
    struct batch *batch = data;
    uint32_t file = batch->first_file + (uint32_t)i;
    const struct part_header *header = batch->builder->pieces.table->headers[file];
    const struct part_metadata *text = part_header_find_metadata(header, DCP_SHARDING_INFO);
    batch->infos[i] = text ? dcp_info_parse(text->value, text->value_length, error) : NULL;
    return text && !batch->infos[i] ? error_prefix(error, "%s", name_of_file(batch->builder, file)) : 0;
}

static int add_files(struct builder *builder)
{
    const size_t n_files = builder->pieces.table->n_files;
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n_threads = n_cpus > 0 && n_cpus < FILES_AT_ONCE ? (size_t)n_cpus : FILES_AT_ONCE;
    int failed = 0;
    for (size_t first = 0, n; first < n_files && !failed; first += n) {
        struct batch batch = {.builder = builder, .first_file = (uint32_t)first};
        n = n_files - first < FILES_AT_ONCE ? n_files - first : FILES_AT_ONCE;
        failed = parallel_run(n, n_threads, parse_info, &batch, builder->error);
        for (size_t i = 0; i < n; i++) {
            uint32_t file = (uint32_t)(first + i);
            struct dcp_info *info = batch.infos[i];
            const struct part_header *header = builder->pieces.table->headers[file];
            builder->pieces.guess = 0;
            for (size_t k = 0; k < header->n_tensors && !failed; k++)
                failed = add_stored(builder, &header->tensors[k], file, info);
            if (!failed && info && dcp_info_end(info, builder->error) < 0)
                failed = error_prefix(builder->error, "%s", name_of_file(builder, file));
            dcp_info_destroy(info);
        }
    }
    return failed;
}

/* --- one tensor --- */

/* Those that are the same become copies of each other; the first of each goes to the front of builder->boxes. Returns how
 * many there are. */
static size_t join_copies(struct builder *builder, const uint32_t *pieces, size_t n, uint32_t rank)
{
    struct artifact_table *table = builder->pieces.table;
    size_t n_boxes = 0;
    for (size_t i = 0; i < n; i++)
        builder->order[i] = (uint32_t)i;
    cover_sort(builder->order, n, rank, builder->boxes);
    for (size_t i = 0, end; i < n; i = end) {
        const uint64_t *box = builder->boxes[builder->order[i]];
        for (end = i; end < n && memcmp(builder->boxes[builder->order[end]], box, 2 * rank * sizeof *box) == 0;)
            end++;
        for (size_t k = i; k < end; k++)
            builder->order[k] = pieces[builder->order[k]];
        piece_join_copies(table, builder->order + i, end - i);
        builder->order[n_boxes++] = builder->order[i];
    }
    for (size_t i = 0; i < n_boxes; i++)
        builder->boxes[i] = table->pieces[builder->order[i]].box;
    return n_boxes;
}

static int fail_cover(const struct builder *builder, const struct tensor_record *record, const uint32_t *pieces,
                      enum cover_verdict verdict)
{
    const struct artifact_table *table = builder->pieces.table;
    const size_t *pair = builder->cover.pair;
    const char *name = text_show_bytes(record->name, record->name_length);
    if (verdict == COVER_NO_MEMORY)
        return -1;
    if (verdict == COVER_TOO_COMPLEX)
        fail(builder->error, ERROR_UNIMPLEMENTED, "LAYOUT_TOO_COMPLEX",
             "tensor %s is cut in too many ways to be checked in reasonable time", name);
    else if (verdict == COVER_OVERLAPS)
        fail(builder->error, ERROR_DATA_LOSS, "SHARDS_OVERLAP", "tensor %s: its boxes in %s and %s have elements in common",
             name, name_of_file(builder, table->pieces[pieces[pair[0]]].file),
             name_of_file(builder, table->pieces[pieces[pair[1]]].file));
    else
        fail(builder->error, ERROR_DATA_LOSS, "SHARDS_INCOMPLETE",
             "tensor %s: its boxes leave a gap in its shape of %s, from %s on: a shard is missing or damaged", name,
             text_show_shape(record->shape, record->rank), name_of_file(builder, table->pieces[pieces[0]].file));
    return error_note_tensor(builder->error, record->name, record->name_length);
}

static int finish_tensor(struct builder *builder, struct tensor_record *record)
{
    struct artifact_table *table = builder->pieces.table;
    const uint32_t *pieces = &table->piece_lists[record->first_piece];
    size_t n = record->n_pieces, n_boxes = n;
    uint64_t bits = dtype_bits(record->dtype);
    bool fits = true;
    while (builder->boxes_capacity < n)
        if (metadata_reserve((void **)&builder->boxes, &builder->boxes_capacity, sizeof *builder->boxes, builder->error) < 0)
            return -1;
    while (builder->order_capacity < n)
        if (metadata_reserve((void **)&builder->order, &builder->order_capacity, sizeof *builder->order, builder->error) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        builder->boxes[i] = table->pieces[pieces[i]].box;
    for (uint32_t d = 0; d < record->rank; d++)
        fits = fits && checked_mul(bits, record->shape[d], &bits);
    record->bytes = bits / 8;
    if (!fits || bits % 8) /* as much as there is in no file */
        return fail_cover(builder, record, pieces, COVER_GAP);
    /* what is a grid has no box twice, unless boxes have no elements */
    if (!record->bytes || !cover_is_grid(&builder->cover, record->rank, record->shape, builder->boxes, n)) {
        n_boxes = join_copies(builder, pieces, n, record->rank);
        enum cover_verdict verdict = cover_check(&builder->cover, record->rank, record->shape, builder->boxes, n_boxes);
        if (verdict != COVER_EXACT)
            return fail_cover(builder, record, builder->order, verdict); /* which is how the boxes lie now */
    }
    for (size_t i = 0; n_boxes == 1 && i < n; i++) /* all of it */
        table->pieces[table->piece_lists[record->first_piece + i]].box = NULL;
    return 0;
}

/* --- the whole --- */

static int fail_index(const struct shard_index *index, const char *name, size_t length, const char *complaint,
                      const char *file, struct error *error)
{
    return fail(error, ERROR_DATA_LOSS, "INDEX_DISAGREES", "%s and the shards disagree: tensor %s %s %s", index->document,
                text_show_bytes(name, length), complaint, text_show(file));
}

/* The index tells what is lost when no shard shows it. Each name occurs in it once. */
static int check_index(const struct artifact_table *table, const struct shard_index *index, struct error *error)
{
    for (size_t i = 0; i < index->n_entries; i++) {
        const struct shard_entry *entry = &index->entries[i];
        const char *file = index->files[entry->file];
        uint32_t found = map_find(&table->by_name, entry->name, entry->name_length);
        const struct tensor_record *record = found == MAP_NONE ? NULL : &table->tensors[found];
        uint32_t k = 0;
        while (record && k < record->n_pieces &&
               strcmp(table->file_names[table->pieces[table->piece_lists[record->first_piece + k]].file], file) != 0)
            k++;
        if (!record || k == record->n_pieces)
            return fail_index(index, entry->name, entry->name_length, "is not in", file, error);
    }
    if (index->n_entries == table->n_tensors)
        return 0;
    bool *listed = metadata_array(table->n_tensors, sizeof *listed, error);
    size_t missing = 0;
    if (!listed)
        return -1;
    for (size_t i = 0; i < index->n_entries; i++)
        listed[map_find(&table->by_name, index->entries[i].name, index->entries[i].name_length)] = true;
    while (listed[missing])
        missing++;
    metadata_free(listed);
    const struct tensor_record *record = &table->tensors[missing];
    const char *file = table->file_names[table->pieces[table->piece_lists[record->first_piece]].file];
    return fail_index(index, record->name, record->name_length, "is not in the index but in", file, error);
}

static int fill_from_shards(struct builder *builder, const struct shard_index *index)
{
    struct artifact_table *table = builder->pieces.table;
    size_t n_numbers = 0;
    for (uint32_t file = 0; file < table->n_files; file++)
        for (size_t i = 0; i < table->headers[file]->n_tensors; i++)
            n_numbers += 3 * (size_t)table->headers[file]->tensors[i].rank;
    table->numbers = metadata_array(n_numbers, sizeof *table->numbers, builder->error);
    if (!table->numbers)
        return -1;
    table->memory_bytes += n_numbers * sizeof *table->numbers;
    builder->next_number = table->numbers;
    if (add_files(builder) < 0)
        return -1;
    if (piece_list_all(table, builder->error) < 0 || (index && check_index(table, index, builder->error) < 0))
        return -1;
    for (size_t i = 0; i < table->n_tensors; i++)
        if (finish_tensor(builder, &table->tensors[i]) < 0)
            return -1;
    return piece_finish(table, builder->error);
}

struct artifact_table *dcp_table_build(struct part_header *const *headers, const char *const *file_names, size_t n_files,
                                       const struct shard_index *index, bool allow_missing, struct error *error)
{
    struct artifact_layout layout;
    struct artifact_table *table = NULL;
    size_t n_pieces = 0, n_most = 0;
    if (dcp_read_numbers(file_names, n_files, &layout, error) < 0)
        return NULL;
    for (size_t i = 0; i < n_files; i++) {
        n_pieces += headers[i]->n_tensors;
        n_most = headers[i]->n_tensors > n_most ? headers[i]->n_tensors : n_most;
    }
    if (allow_missing || dcp_check_numbers(&layout, error) == 0)
        table = artifact_table_create(headers, file_names, n_files, n_most, n_pieces, error);
    if (!table) {
        memory_free(layout.missing_shards);
        memory_free(layout.missing_files);
        return NULL;
    }
    table->layout = layout;
    struct builder builder = {.pieces = {.table = table, .error = error}, .cover = {.error = error}, .error = error};
    int failed = fill_from_shards(&builder, index);
    metadata_free(builder.hulls);
    metadata_free(builder.boxes);
    metadata_free(builder.order);
    cover_fini(&builder.cover);
    if (!failed)
        return table;
    artifact_table_unref(table);
    return NULL;
}
