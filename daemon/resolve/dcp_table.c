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

static const char *name_of_file(const struct builder *builder, uint32_t file, char text[TEXT_NAME_CHARS])
{
    const char *name = builder->pieces.table->file_names[file];
    return text_escape(name, strlen(name), text);
}

static int note_tensor(struct error *error, const struct stored_tensor *stored)
{
    return error_note(error, "tensor", "%.*s", (int)stored->name_length, stored->name);
}

static int fail_array(const struct builder *builder, const struct stored_tensor *stored, uint32_t file, const char *reason,
                      const char *complaint)
{
    char name[TEXT_NAME_CHARS], text[TEXT_NAME_CHARS];
    fail(builder->error, ERROR_DATA_LOSS, reason, "%s: tensor %s: %s", name_of_file(builder, file, text),
         text_escape(stored->name, stored->name_length, name), complaint);
    return note_tensor(builder->error, stored);
}

static int add_record(struct builder *builder, const struct stored_tensor *stored, uint32_t *record)
{
    *record = piece_add_record(&builder->pieces, stored);
    if (*record == MAP_NONE || METADATA_RESERVE(builder->hulls, *record, builder->hull_capacity, builder->error) < 0)
        return -1;
    builder->hulls[*record] = builder->next_number;
    builder->pieces.table->tensors[*record].shape = builder->next_number;
    builder->next_number += stored->rank;
    return 0;
}

/* Where it begins in the tensor, then its size; NULL on error. The tensor's shape grows to hold it, and to what is said of it. */
static uint64_t *make_box(struct builder *builder, const struct stored_tensor *stored, uint32_t file, struct dcp_info *info,
                          uint64_t *hull)
{
    const struct dcp_entry *entry = NULL;
    uint64_t *box = builder->next_number, end;
    char text[TEXT_NAME_CHARS];
    if (info && dcp_info_find(info, stored->name, stored->name_length, &entry, builder->error) < 0) {
        error_prefix(builder->error, "%s", name_of_file(builder, file, text));
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

static int check_same_kind(const struct builder *builder, const struct tensor_record *record, uint32_t first_file,
                           const struct stored_tensor *stored, uint32_t file)
{
    char complaint[128 + TEXT_NAME_CHARS], other[TEXT_NAME_CHARS];
    if (record->dtype == stored->dtype && record->rank == stored->rank)
        return 0;
    snprintf(complaint, sizeof complaint, "%s with %u dimensions here, %s with %u in %s", dtype_name(stored->dtype),
             (unsigned)stored->rank, dtype_name(record->dtype), (unsigned)record->rank,
             name_of_file(builder, first_file, other));
    return fail_array(builder, stored, file, "SHARDS_DISAGREE", complaint);
}

/* `first_files` by record: for messages. */
static int add_stored(struct builder *builder, const struct stored_tensor *stored, uint32_t file, struct dcp_info *info)
{
    struct artifact_table *table = builder->pieces.table;
    uint32_t record = piece_find_record(&builder->pieces, stored);
    if (record == MAP_NONE) {
        if (add_record(builder, stored, &record) < 0)
            return -1;
        table->tensors[record].first_piece = (uint32_t)table->n_pieces; /* until they are listed */
    }
    uint32_t first = table->tensors[record].first_piece;
    if (first < table->n_pieces &&
        check_same_kind(builder, &table->tensors[record], table->pieces[first].file, stored, file) < 0)
        return -1;
    const uint64_t *box = make_box(builder, stored, file, info, builder->hulls[record]);
    if (!box)
        return -1;
    piece_add(table, stored, file, record, box);
    return 0;
}

/* info: of that file, NULL = it says nothing. */
static int add_file(struct builder *builder, uint32_t file, struct dcp_info *info)
{
    const struct part_header *header = builder->pieces.table->headers[file];
    char name[TEXT_NAME_CHARS];
    int failed = 0;
    builder->pieces.guess = 0;
    for (size_t i = 0; i < header->n_tensors && !failed; i++)
        failed = add_stored(builder, &header->tensors[i], file, info);
    if (!failed && info && dcp_info_end(info, builder->error) < 0)
        failed = error_prefix(builder->error, "%s", name_of_file(builder, file, name));
    return failed;
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
    char name[TEXT_NAME_CHARS];
    batch->infos[i] = text ? dcp_info_parse(text->value, text->value_length, error) : NULL;
    return text && !batch->infos[i] ? error_prefix(error, "%s", name_of_file(batch->builder, file, name)) : 0;
}

static size_t n_threads(void)
{
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return n_cpus > 0 && n_cpus < FILES_AT_ONCE ? (size_t)n_cpus : FILES_AT_ONCE;
}

static int add_files(struct builder *builder)
{
    const size_t n_files = builder->pieces.table->n_files;
    int failed = 0;
    for (size_t first = 0, n; first < n_files && !failed; first += n) {
        struct batch batch = {.builder = builder, .first_file = (uint32_t)first};
        n = n_files - first < FILES_AT_ONCE ? n_files - first : FILES_AT_ONCE;
        failed = parallel_run(n, n_threads(), parse_info, &batch, builder->error);
        for (size_t i = 0; i < n; i++) {
            if (!failed)
                failed = add_file(builder, (uint32_t)(first + i), batch.infos[i]);
            dcp_info_destroy(batch.infos[i]);
        }
    }
    return failed;
}

/* --- one tensor --- */

static int reserve_boxes(struct builder *builder, size_t n)
{
    while (builder->boxes_capacity < n)
        if (metadata_reserve((void **)&builder->boxes, &builder->boxes_capacity, sizeof *builder->boxes, builder->error) < 0)
            return -1;
    while (builder->order_capacity < n)
        if (metadata_reserve((void **)&builder->order, &builder->order_capacity, sizeof *builder->order, builder->error) < 0)
            return -1;
    return 0;
}

static void take_boxes(struct builder *builder, const uint32_t *pieces, size_t n)
{
    for (size_t i = 0; i < n; i++)
        builder->boxes[i] = builder->pieces.table->pieces[pieces[i]].box;
}

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

enum { SHAPE_CHARS = 120 };

/* "[4096, 64]", cut where it is long. */
static const char *shape_text(const struct tensor_record *record, char text[SHAPE_CHARS])
{
    size_t used = (size_t)snprintf(text, SHAPE_CHARS, "[");
    for (uint32_t d = 0; d < record->rank && used < SHAPE_CHARS; d++)
        used +=
            (size_t)snprintf(text + used, SHAPE_CHARS - used, "%s%llu", d ? ", " : "", (unsigned long long)record->shape[d]);
    if (used < SHAPE_CHARS)
        snprintf(text + used, SHAPE_CHARS - used, "]");
    return text;
}

static int fail_cover(const struct builder *builder, const struct tensor_record *record, const uint32_t *pieces,
                      enum cover_verdict verdict)
{
    const struct artifact_table *table = builder->pieces.table;
    const size_t *pair = builder->cover.pair;
    char name[TEXT_NAME_CHARS], one[TEXT_NAME_CHARS], two[TEXT_NAME_CHARS], shape[SHAPE_CHARS];
    text_escape(record->name, record->name_length, name);
    if (verdict == COVER_NO_MEMORY)
        return -1;
    if (verdict == COVER_TOO_COMPLEX)
        fail(builder->error, ERROR_UNIMPLEMENTED, "LAYOUT_TOO_COMPLEX",
             "tensor %s is cut in too many ways to be checked in reasonable time", name);
    else if (verdict == COVER_OVERLAPS)
        fail(builder->error, ERROR_DATA_LOSS, "SHARDS_OVERLAP", "tensor %s: its boxes in %s and %s have elements in common",
             name, name_of_file(builder, table->pieces[pieces[pair[0]]].file, one),
             name_of_file(builder, table->pieces[pieces[pair[1]]].file, two));
    else
        fail(builder->error, ERROR_DATA_LOSS, "SHARDS_INCOMPLETE",
             "tensor %s: its boxes leave a gap in its shape of %s, from %s on: a shard is missing or damaged", name,
             shape_text(record, shape), name_of_file(builder, table->pieces[pieces[0]].file, one));
    return error_note(builder->error, "tensor", "%.*s", (int)record->name_length, record->name);
}

static bool count_bytes(struct tensor_record *record)
{
    uint64_t bits = dtype_bits(record->dtype);
    bool fits = true;
    for (uint32_t d = 0; d < record->rank; d++)
        fits = fits && checked_mul(bits, record->shape[d], &bits);
    record->bytes = bits / 8;
    return fits && bits % 8 == 0;
}

static int finish_tensor(struct builder *builder, struct tensor_record *record)
{
    struct artifact_table *table = builder->pieces.table;
    const uint32_t *pieces = &table->piece_lists[record->first_piece];
    size_t n = record->n_pieces, n_boxes = n;
    if (reserve_boxes(builder, n) < 0)
        return -1;
    take_boxes(builder, pieces, n);
    if (!count_bytes(record)) /* as much as there is in no file */
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

static bool is_in_file(const struct artifact_table *table, const struct tensor_record *record, const char *file)
{
    for (uint32_t i = 0; i < record->n_pieces; i++)
        if (strcmp(table->file_names[table->pieces[table->piece_lists[record->first_piece + i]].file], file) == 0)
            return true;
    return false;
}

static int fail_index(const struct shard_index *index, const char *name, size_t length, const char *complaint,
                      const char *file, struct error *error)
{
    char tensor[TEXT_NAME_CHARS], text[TEXT_NAME_CHARS];
    return fail(error, ERROR_DATA_LOSS, "INDEX_DISAGREES", "%s and the shards disagree: tensor %s %s %s", index->document,
                text_escape(name, length, tensor), complaint, text_escape(file, strlen(file), text));
}

/* The index tells what is lost when no shard shows it. Each name occurs in it once. */
static int check_index(const struct artifact_table *table, const struct shard_index *index, struct error *error)
{
    for (size_t i = 0; i < index->n_entries; i++) {
        const struct shard_entry *entry = &index->entries[i];
        uint32_t found = map_find(&table->by_name, entry->name, entry->name_length);
        if (found == MAP_NONE || !is_in_file(table, &table->tensors[found], index->files[entry->file]))
            return fail_index(index, entry->name, entry->name_length, "is not in", index->files[entry->file], error);
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

static struct artifact_table *create_table(struct part_header *const *headers, const char *const *file_names, size_t n_files,
                                           const struct artifact_layout *layout, struct error *error)
{
    size_t n_pieces = 0, n_most = 0;
    for (size_t i = 0; i < n_files; i++) {
        n_pieces += headers[i]->n_tensors;
        n_most = headers[i]->n_tensors > n_most ? headers[i]->n_tensors : n_most;
    }
    struct artifact_table *table = artifact_table_create(headers, file_names, n_files, n_most, n_pieces, error);
    if (table)
        table->layout = *layout;
    return table;
}

struct artifact_table *dcp_table_build(struct part_header *const *headers, const char *const *file_names, size_t n_files,
                                       const struct shard_index *index, bool allow_missing, struct error *error)
{
    struct artifact_layout layout;
    struct artifact_table *table = NULL;
    if (dcp_read_numbers(file_names, n_files, &layout, error) < 0)
        return NULL;
    if (allow_missing || dcp_check_numbers(&layout, error) == 0)
        table = create_table(headers, file_names, n_files, &layout, error);
    if (!table) {
        memory_free(layout.missing_shards);
        memory_free(layout.missing_files);
        return NULL;
    }
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
