/* Two builders, then output that knows nothing of where the catalog came from. */
#include "catalog.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/artifact_metadata.h"
#include "shape_text.h"

static struct catalog *create_catalog(size_t n_files, size_t n_tensors)
{
    struct catalog *catalog = memory_alloc(sizeof *catalog);
    catalog->files = memory_alloc_array(n_files + 1, sizeof *catalog->files);
    catalog->tensors = memory_alloc_array(n_tensors + 1, sizeof *catalog->tensors);
    arena_init(&catalog->arena, 0);
    catalog->n_files = n_files;
    catalog->n_tensors = catalog->n_all_tensors = n_tensors;
    return catalog;
}

static void take_metadata_told(struct catalog *catalog, const struct tc_artifact *artifact)
{
    catalog->n_metadata = tc_artifact_n_metadata(artifact, &catalog->metadata_left_out_bytes);
    catalog->metadata = arena_array(&catalog->arena, catalog->n_metadata, sizeof *catalog->metadata);
    for (size_t i = 0; i < catalog->n_metadata; i++)
        tc_artifact_metadata(artifact, i, &catalog->metadata[i]);
}

static void take_metadata_read(struct catalog *catalog, const struct artifact *artifact)
{
    struct artifact_metadata read;
    struct error error;
    if (artifact_metadata_collect(artifact, &catalog->arena, &read, &error) != 0)
        abort(); /* no memory, as everywhere in this command */
    catalog->metadata_left_out_bytes = read.left_out_bytes;
    catalog->n_metadata = read.n_pairs;
    catalog->metadata = arena_array(&catalog->arena, read.n_pairs, sizeof *catalog->metadata);
    for (size_t i = 0; i < read.n_pairs; i++)
        catalog->metadata[i] = (struct tc_metadata){read.pairs[i]->key, read.pairs[i]->value, read.pairs[i]->key_length,
                                                    read.pairs[i]->value_length};
}

/* Room in the arena. */
static void make_remarks(struct catalog *catalog, size_t n_notes, size_t n_files, size_t n_absent)
{
    catalog->n_notes = n_notes;
    catalog->notes = arena_array(&catalog->arena, n_notes, sizeof *catalog->notes);
    catalog->n_absent_files = n_files;
    catalog->absent_files = arena_array(&catalog->arena, n_files, sizeof *catalog->absent_files);
    catalog->n_absent = n_absent;
    catalog->absent = arena_array(&catalog->arena, n_absent, sizeof *catalog->absent);
}

static void take_remarks_told(struct catalog *catalog, const struct tc_artifact *artifact)
{
    size_t n_notes = 0, n_files = 0, n_absent = 0, file;
    while (tc_artifact_note(artifact, n_notes))
        n_notes++;
    while (tc_artifact_absent_file(artifact, n_files))
        n_files++;
    while (tc_artifact_absent_tensor(artifact, n_absent, &file))
        n_absent++;
    make_remarks(catalog, n_notes, n_files, n_absent);
    for (size_t i = 0; i < n_notes; i++)
        catalog->notes[i] = tc_artifact_note(artifact, i);
    for (size_t i = 0; i < n_files; i++)
        catalog->absent_files[i] = tc_artifact_absent_file(artifact, i);
    for (size_t i = 0; i < n_absent; i++) {
        catalog->absent[i].name = tc_artifact_absent_tensor(artifact, i, &file);
        catalog->absent[i].file = catalog->absent_files[file];
    }
}

static void take_remarks_read(struct catalog *catalog, const struct artifact *artifact)
{
    const struct artifact_absent *absent = artifact_absent(artifact);
    const struct notes *notes = &(artifact->stored ? artifact->stored : artifact)->notes;
    make_remarks(catalog, notes->n, absent->files.n, absent->n_tensors);
    for (size_t i = 0; i < notes->n; i++)
        catalog->notes[i] = notes->texts[i];
    for (size_t i = 0; i < absent->files.n; i++)
        catalog->absent_files[i] = absent->files.texts[i];
    for (size_t i = 0; i < absent->n_tensors; i++)
        catalog->absent[i] = (struct catalog_absent){absent->tensors[i].name, absent->files.texts[absent->tensors[i].file]};
}

struct catalog *catalog_from_daemon(struct tc_artifact *artifact)
{
    struct catalog *catalog = create_catalog(tc_artifact_n_files(artifact), tc_artifact_n_tensors(artifact));
    catalog->from_daemon = artifact;
    catalog->reference = tc_artifact_reference(artifact);
    catalog->identity = tc_artifact_identity(artifact);
    catalog->total_bytes = tc_artifact_total_bytes(artifact);
    catalog->layout_name = tc_artifact_layout(artifact);
    catalog->layout.world_size = tc_artifact_world_size(artifact);
    catalog->layout.missing_shards = tc_artifact_missing_shards(artifact, &catalog->layout.n_missing_shards);
    catalog->layout.missing_files = tc_artifact_missing_files(artifact, &catalog->layout.n_missing_files);
    for (size_t i = 0; i < catalog->n_files; i++)
        catalog->files[i].name = tc_artifact_file(artifact, i, &catalog->files[i].bytes);
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        struct tc_tensor_info info;
        tc_artifact_tensor(artifact, i, &info);
        catalog->tensors[i] = (struct catalog_tensor){.name = info.name,
                                                      .name_length = strlen(info.name),
                                                      .dtype = info.dtype,
                                                      .shape = info.shape,
                                                      .rank = info.rank,
                                                      .bytes = info.bytes,
                                                      .index = i,
                                                      .file = info.file,
                                                      .n_pieces = info.n_pieces,
                                                      .copies = info.copies};
    }
    take_metadata_told(catalog, artifact);
    take_remarks_told(catalog, artifact);
    return catalog;
}

struct catalog *catalog_from_disk(struct artifact *artifact)
{
    struct catalog *catalog = create_catalog(artifact->source->n_files, artifact->n_tensors);
    catalog->from_disk = artifact;
    catalog->reference = artifact->reference;
    catalog->identity = artifact->identity;
    catalog->total_bytes = artifact->total_bytes;
    catalog->layout = artifact->layout;
    catalog->layout_name = layout_kind_name(artifact->layout.kind);
    for (size_t i = 0; i < catalog->n_files; i++)
        catalog->files[i] = (struct catalog_file){artifact->source->files[i].name, artifact->source->files[i].size_bytes};
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        catalog->tensors[i] = (struct catalog_tensor){.name = record->name,
                                                      .name_length = record->name_length,
                                                      .dtype = dtype_name(record->dtype),
                                                      .shape = record->shape,
                                                      .rank = record->rank,
                                                      .bytes = record->bytes,
                                                      .index = i,
                                                      .file = artifact_piece(artifact, record, 0)->file,
                                                      .n_pieces = record->n_pieces,
                                                      .copies = artifact_n_copies(artifact, record)};
    }
    take_metadata_read(catalog, artifact);
    take_remarks_read(catalog, artifact);
    return catalog;
}

void catalog_destroy(struct catalog *catalog)
{
    if (!catalog)
        return;
    tc_artifact_release(catalog->from_daemon);
    artifact_unref(catalog->from_disk);
    free(catalog->files);
    free(catalog->tensors);
    arena_fini(&catalog->arena);
    free(catalog);
}

static struct tc_piece_info piece_of(const struct catalog *catalog, size_t tensor, size_t k)
{
    struct tc_piece_info info;
    if (catalog->from_daemon) {
        tc_artifact_piece(catalog->from_daemon, tensor, k, &info);
        return info;
    }
    const struct tensor_record *record = &catalog->from_disk->tensors[tensor];
    const struct tensor_piece *piece = artifact_piece(catalog->from_disk, record, (uint32_t)k);
    return (struct tc_piece_info){piece->file, piece->box, piece->box ? piece->box + record->rank : NULL};
}

static void write_numbers(struct json_writer *json, const char *key, const uint64_t *numbers, size_t n)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_u64(json, numbers[i]);
    json_write_close(json, ']');
}

static void write_pieces(struct json_writer *json, const struct catalog *catalog, const struct catalog_tensor *tensor)
{
    json_put_open(json, "pieces", '[');
    for (size_t k = 0; k < tensor->n_pieces; k++) {
        struct tc_piece_info piece = piece_of(catalog, tensor->index, k);
        json_write_open(json, '{');
        json_put_text(json, "file", catalog->files[piece.file].name);
        write_numbers(json, "offsets", piece.offsets, tensor->rank);
        write_numbers(json, "shape", piece.shape, tensor->rank);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void write_tensor(struct json_writer *json, const struct catalog *catalog, const struct catalog_tensor *tensor)
{
    json_write_open(json, '{');
    json_put_string(json, "name", tensor->name, tensor->name_length);
    json_put_text(json, "dtype", tensor->dtype);
    write_numbers(json, "shape", tensor->shape, tensor->rank);
    json_put_text(json, "file", catalog->files[tensor->file].name);
    json_put_u64(json, "bytes", tensor->bytes);
    if (tensor->n_pieces > 1)
        write_pieces(json, catalog, tensor);
    if (tensor->copies > 1)
        json_put_u64(json, "copies", tensor->copies);
    json_write_close(json, '}');
}

void catalog_json_head(const struct catalog *catalog, struct json_writer *json)
{
    json_put_text(json, "artifact", catalog->reference);
    json_put_text(json, "identity", catalog->identity);
    json_put_open(json, "files", '[');
    for (size_t i = 0; i < catalog->n_files; i++) {
        json_write_open(json, '{');
        json_put_text(json, "name", catalog->files[i].name);
        json_put_u64(json, "bytes", catalog->files[i].bytes);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void write_missing(struct json_writer *json, const char *key, const uint32_t *numbers, size_t n)
{
    if (!n)
        return;
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_u64(json, numbers[i]);
    json_write_close(json, ']');
}

static void write_layout(struct json_writer *json, const struct catalog *catalog)
{
    const struct artifact_layout *layout = &catalog->layout;
    json_put_text(json, "layout", catalog->layout_name);
    if (layout->world_size)
        json_put_u64(json, "world_size", layout->world_size);
    write_missing(json, "missing_shards", layout->missing_shards, layout->n_missing_shards);
    write_missing(json, "missing_files", layout->missing_files, layout->n_missing_files);
}

static void write_texts(struct json_writer *json, const char *key, const char *const *texts, size_t n)
{
    if (!n)
        return;
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_text(json, texts[i]);
    json_write_close(json, ']');
}

void catalog_json_notes(const struct catalog *catalog, struct json_writer *json)
{
    write_texts(json, "notes", catalog->notes, catalog->n_notes);
    write_texts(json, "absent_files", catalog->absent_files, catalog->n_absent_files);
}

void catalog_json_metadata(const struct catalog *catalog, struct json_writer *json)
{
    json_put_open(json, "metadata", '{');
    for (size_t i = 0; i < catalog->n_metadata; i++) {
        json_write_key_bytes(json, catalog->metadata[i].key, catalog->metadata[i].key_bytes);
        json_write_string(json, catalog->metadata[i].value, catalog->metadata[i].value_bytes);
    }
    json_write_close(json, '}');
    if (catalog->metadata_left_out_bytes)
        json_put_u64(json, "metadata_left_out_bytes", catalog->metadata_left_out_bytes);
}

char *catalog_json(const struct catalog *catalog)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    catalog_json_head(catalog, &json);
    write_layout(&json, catalog);
    catalog_json_notes(catalog, &json);
    catalog_json_metadata(catalog, &json);
    json_put_open(&json, "tensors", '[');
    for (size_t i = 0; i < catalog->n_tensors; i++)
        write_tensor(&json, catalog, &catalog->tensors[i]);
    json_write_close(&json, ']');
    json_put_u64(&json, "total_bytes", catalog->total_bytes);
    json_write_close(&json, '}');
    return json.text;
}

/* Columns as wide as their widest entry; sizes right-aligned, everything else left. */
struct widths {
    int name, dtype, shape, bytes, file;
};

enum { LEAST_FILE_COLUMNS = 16 };

static char *file_text(const struct catalog *catalog, const struct catalog_tensor *tensor, char text[TEXT_NAME_CHARS])
{
    const char *name = catalog->files[tensor->file].name;
    char shown[TEXT_NAME_CHARS], pieces[40] = "", copies[40] = "";
    if (tensor->n_pieces > 1)
        snprintf(pieces, sizeof pieces, " and %zu more piece%s", tensor->n_pieces - 1, tensor->n_pieces == 2 ? "" : "s");
    if (tensor->copies > 1)
        snprintf(copies, sizeof copies, ", %zu copies", tensor->copies);
    snprintf(text, TEXT_NAME_CHARS, "%s%s%s", text_escape(name, strlen(name), shown), pieces, copies);
    return text;
}

static void widen_column(int *width, size_t length)
{
    if ((int)length > *width)
        *width = (int)length;
}

static struct widths measure_columns(const struct catalog *catalog)
{
    struct widths widths = {
        .name = sizeof "tensor" - 1, .dtype = sizeof "dtype" - 1, .shape = sizeof "shape" - 1, .bytes = sizeof "size" - 1};
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS], shape[SHAPE_TEXT_CHARS], file[TEXT_NAME_CHARS];
        widen_column(&widths.name, text_columns(text_escape(tensor->name, tensor->name_length, name)));
        widen_column(&widths.dtype, strlen(tensor->dtype));
        widen_column(&widths.shape, strlen(shape_text(tensor->shape, tensor->rank, shape)));
        widen_column(&widths.bytes, strlen(text_people_bytes(tensor->bytes, size)));
        widen_column(&widths.file, text_columns(file_text(catalog, tensor, file)));
    }
    return widths;
}

/* Names are cut where a terminal has not so many columns, files first. */
static void fit_columns(struct widths *widths, size_t columns)
{
    int fixed = widths->dtype + widths->shape + widths->bytes + 8, room = (int)columns - fixed;
    if (!columns || widths->name + widths->file <= room)
        return;
    int file = room - widths->name > LEAST_FILE_COLUMNS ? room - widths->name : LEAST_FILE_COLUMNS;
    widths->file = file < widths->file ? file : widths->file;
    int name = room - widths->file > LEAST_FILE_COLUMNS ? room - widths->file : LEAST_FILE_COLUMNS;
    widths->name = name < widths->name ? name : widths->name;
}

void catalog_print_layout(const struct catalog *catalog, FILE *out)
{
    const struct artifact_layout *layout = &catalog->layout;
    if (!layout->world_size)
        return;
    fprintf(out, "layout %s of %u rank%s", catalog->layout_name, layout->world_size, layout->world_size == 1 ? "" : "s");
    if (layout->n_missing_shards)
        fprintf(out, ", %zu without a file (the first is %u)", layout->n_missing_shards, layout->missing_shards[0]);
    if (layout->n_missing_files)
        fprintf(out, ", %zu file number%s missing (the first is %u)", layout->n_missing_files,
                layout->n_missing_files == 1 ? "" : "s", layout->missing_files[0]);
    fputc('\n', out);
}

void catalog_print_notes(const struct catalog *catalog, FILE *out)
{
    for (size_t i = 0; i < catalog->n_notes; i++)
        fprintf(out, "note: %s\n", catalog->notes[i]);
    if (catalog->n_absent_files < 2) /* the note names it */
        return;
    fputs("missing:", out);
    for (size_t i = 0; i < catalog->n_absent_files; i++) {
        char name[TEXT_NAME_CHARS];
        fprintf(out, "%s %s", i ? "," : "", text_escape(catalog->absent_files[i], strlen(catalog->absent_files[i]), name));
    }
    fputc('\n', out);
}

/* To its end, which has the number of the shard: "..00001-of-00002". */
static const char *cut_file(char *file, size_t columns, char out[TEXT_NAME_CHARS])
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(file);
    if (text_columns(file) > columns && text_ends_with(file, length, ending))
        file[length - strlen(ending)] = '\0';
    bool is_cut = text_columns(file) > columns;
    while (is_cut && (text_columns(file) > columns - 2 || ((unsigned char)*file & 0xc0) == 0x80)) /* whole characters */
        file++;
    snprintf(out, TEXT_NAME_CHARS, "%s%s", is_cut ? ".." : "", file);
    return out;
}

static void print_tensors(const struct catalog *catalog, size_t columns, FILE *out)
{
    struct widths widths = measure_columns(catalog);
    char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS], shape[SHAPE_TEXT_CHARS], file[TEXT_NAME_CHARS], cut[TEXT_NAME_CHARS];
    fit_columns(&widths, columns);
    fprintf(out, "%-*s  %-*s  %-*s  %*s  file\n", widths.name, "tensor", widths.dtype, "dtype", widths.shape, "shape",
            widths.bytes, "size");
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        text_cut(text_escape(tensor->name, tensor->name_length, name), (size_t)widths.name, cut);
        fprintf(out, "%s%*s  %-*s  %-*s  %*s  ", cut, widths.name - (int)text_columns(cut), "", widths.dtype, tensor->dtype,
                widths.shape, shape_text(tensor->shape, tensor->rank, shape), widths.bytes,
                text_people_bytes(tensor->bytes, size));
        fprintf(out, "%s\n", cut_file(file_text(catalog, tensor, file), (size_t)widths.file, cut));
    }
}

void catalog_print(const struct catalog *catalog, size_t columns, FILE *out)
{
    char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS];
    print_tensors(catalog, columns, out);
    fprintf(out, "\n%s\n", text_escape(catalog->reference, strlen(catalog->reference), name));
    catalog_print_layout(catalog, out);
    if (catalog->n_tensors != catalog->n_all_tensors)
        fprintf(out, "%zu of ", catalog->n_tensors);
    fprintf(out, "%zu tensor%s in %zu file%s, %s (%" PRIu64 " bytes)\nidentity %s\n", catalog->n_all_tensors,
            catalog->n_all_tensors == 1 ? "" : "s", catalog->n_files, catalog->n_files == 1 ? "" : "s",
            text_people_bytes(catalog->total_bytes, size), catalog->total_bytes, catalog->identity);
    catalog_print_notes(catalog, out);
}

void catalog_print_names(const struct catalog *catalog, FILE *out)
{
    char shown[TEXT_ESCAPE_CHARS];
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        for (size_t at = 0; at < tensor->name_length;) {
            at += text_escape_char(tensor->name + at, tensor->name_length - at, shown);
            fputs(shown, out);
        }
        fputc('\n', out);
    }
}

char *catalog_index_json(const struct catalog *catalog, bool canonical)
{
    if (catalog->from_daemon)
        return memory_copy_text(tc_artifact_index_json(catalog->from_daemon, canonical));
    return canonical ? artifact_canonical_index_json(catalog->from_disk) : artifact_source_index_json(catalog->from_disk);
}
