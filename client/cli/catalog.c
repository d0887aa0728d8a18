#include "catalog.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "client/client.h"
#include "summary.h"

struct catalog *catalog_create(struct tc_artifact *artifact, struct artifact *resolved)
{
    struct catalog *catalog = memory_alloc(sizeof *catalog);
    arena_init(&catalog->arena, 0);
    catalog->artifact = artifact;
    catalog->told = client_artifact_response(artifact);
    catalog->resolved = resolved;
    catalog->n_tensors = catalog->n_all_tensors = tc_artifact_n_tensors(artifact);
    catalog->tensors = arena_array(&catalog->arena, catalog->n_tensors + 1, sizeof *catalog->tensors);
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
    return catalog;
}

void catalog_destroy(struct catalog *catalog)
{
    if (!catalog)
        return;
    tc_artifact_release(catalog->artifact);
    artifact_unref(catalog->resolved);
    arena_fini(&catalog->arena);
    free(catalog);
}

static void write_numbers(struct json_writer *json, const char *key, const uint64_t *numbers, size_t n)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_u64(json, numbers[i]);
    json_write_close(json, ']');
}

void catalog_json_file(struct json_writer *json, const char *name, uint64_t bytes)
{
    json_write_open(json, '{');
    json_put_text(json, "name", name);
    json_put_u64(json, "bytes", bytes);
    json_write_close(json, '}');
}

void catalog_json_head(const struct catalog *catalog, struct json_writer *json)
{
    json_put_text(json, "artifact", catalog->told->artifact);
    json_put_text(json, "identity", catalog->told->identity);
    json_put_open(json, "files", '[');
    for (size_t i = 0; i < catalog->told->n_files; i++)
        catalog_json_file(json, catalog->told->files[i]->name, catalog->told->files[i]->bytes);
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

static void write_texts(struct json_writer *json, const char *key, const char *const *texts, size_t n)
{
    if (!n)
        return;
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_text(json, texts[i]);
    json_write_close(json, ']');
}

/* "notes", "absent_files", where there are */
static void catalog_json_notes(const struct catalog *catalog, struct json_writer *json)
{
    write_texts(json, "notes", catalog->told->notes, catalog->told->n_notes);
    write_texts(json, "absent_files", catalog->told->absent_files, catalog->told->n_absent_files);
}

/* the member "metadata" */
static void catalog_json_metadata(const struct catalog *catalog, struct json_writer *json)
{
    json_put_open(json, "metadata", '{');
    for (size_t i = 0; i < catalog->told->n_metadata_keys; i++) {
        const ProtobufCBinaryData *key = &catalog->told->metadata_keys[i], *value = &catalog->told->metadata_values[i];
        json_write_key_bytes(json, (const char *)key->data, key->len);
        json_write_string(json, (const char *)value->data, value->len);
    }
    json_write_close(json, '}');
    if (catalog->told->metadata_left_out_bytes)
        json_put_u64(json, "metadata_left_out_bytes", catalog->told->metadata_left_out_bytes);
}

char *catalog_json(const struct catalog *catalog)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    catalog_json_head(catalog, &json);
    json_put_text(&json, "layout", catalog->told->layout);
    if (catalog->told->world_size)
        json_put_u64(&json, "world_size", catalog->told->world_size);
    write_missing(&json, "missing_shards", catalog->told->missing_shards, catalog->told->n_missing_shards);
    write_missing(&json, "missing_files", catalog->told->missing_files, catalog->told->n_missing_files);
    catalog_json_notes(catalog, &json);
    catalog_json_metadata(catalog, &json);
    json_put_open(&json, "tensors", '[');
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        json_write_open(&json, '{');
        json_put_string(&json, "name", catalog->tensors[i].name, catalog->tensors[i].name_length);
        json_put_text(&json, "dtype", catalog->tensors[i].dtype);
        write_numbers(&json, "shape", catalog->tensors[i].shape, catalog->tensors[i].rank);
        json_put_text(&json, "file", catalog->told->files[catalog->tensors[i].file]->name);
        json_put_u64(&json, "bytes", catalog->tensors[i].bytes);
        if (catalog->tensors[i].n_pieces > 1) {
            json_put_open(&json, "pieces", '[');
            for (size_t k = 0; k < catalog->tensors[i].n_pieces; k++) {
                struct tc_piece_info piece;
                tc_artifact_piece(catalog->artifact, catalog->tensors[i].index, k, &piece);
                json_write_open(&json, '{');
                json_put_text(&json, "file", catalog->told->files[piece.file]->name);
                write_numbers(&json, "offsets", piece.offsets, catalog->tensors[i].rank);
                write_numbers(&json, "shape", piece.shape, catalog->tensors[i].rank);
                json_write_close(&json, '}');
            }
            json_write_close(&json, ']');
        }
        if (catalog->tensors[i].copies > 1)
            json_put_u64(&json, "copies", catalog->tensors[i].copies);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_put_u64(&json, "total_bytes", catalog->told->total_bytes);
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
    const char *name = catalog->told->files[tensor->file]->name;
    char pieces[40] = "", copies[40] = "";
    if (tensor->n_pieces > 1)
        snprintf(pieces, sizeof pieces, " and %zu more piece%s", tensor->n_pieces - 1, tensor->n_pieces == 2 ? "" : "s");
    if (tensor->copies > 1)
        snprintf(copies, sizeof copies, ", %zu copies", tensor->copies);
    snprintf(text, TEXT_NAME_CHARS, "%s%s%s", text_show(name), pieces, copies);
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
        char file[TEXT_NAME_CHARS];
        widen_column(&widths.name, text_columns(text_show_bytes(tensor->name, tensor->name_length)));
        widen_column(&widths.dtype, strlen(tensor->dtype));
        widen_column(&widths.shape, strlen(text_show_shape(tensor->shape, tensor->rank)));
        widen_column(&widths.bytes, strlen(text_show_amount(tensor->bytes)));
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

/* a line, unless it is plain */
static void catalog_print_layout(const struct catalog *catalog, FILE *out)
{
    if (!catalog->told->world_size)
        return;
    fprintf(out, "layout %s of %u rank%s", catalog->told->layout, catalog->told->world_size,
            text_plural(catalog->told->world_size));
    if (catalog->told->n_missing_shards)
        fprintf(out, ", %zu without a file (the first is %u)", catalog->told->n_missing_shards,
                catalog->told->missing_shards[0]);
    if (catalog->told->n_missing_files)
        fprintf(out, ", %zu file number%s missing (the first is %u)", catalog->told->n_missing_files,
                text_plural(catalog->told->n_missing_files), catalog->told->missing_files[0]);
    fputc('\n', out);
}

/* a line each, and the files that are missing */
static void catalog_print_notes(const struct catalog *catalog, FILE *out)
{
    for (size_t i = 0; i < catalog->told->n_notes; i++)
        fprintf(out, "note: %s\n", catalog->told->notes[i]);
    if (catalog->told->n_absent_files < 2) /* the note names it */
        return;
    fputs("missing:", out);
    for (size_t i = 0; i < catalog->told->n_absent_files; i++) {
        fprintf(out, "%s %s", i ? "," : "", text_show(catalog->told->absent_files[i]));
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
    char file[TEXT_NAME_CHARS], cut[TEXT_NAME_CHARS];
    fit_columns(&widths, columns);
    fprintf(out, "%-*s  %-*s  %-*s  %*s  file\n", widths.name, "tensor", widths.dtype, "dtype", widths.shape, "shape",
            widths.bytes, "size");
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        text_cut(text_show_bytes(tensor->name, tensor->name_length), (size_t)widths.name, cut);
        fprintf(out, "%s%*s  %-*s  %-*s  %*s  ", cut, widths.name - (int)text_columns(cut), "", widths.dtype, tensor->dtype,
                widths.shape, text_show_shape(tensor->shape, tensor->rank), widths.bytes, text_show_amount(tensor->bytes));
        fprintf(out, "%s\n", cut_file(file_text(catalog, tensor, file), (size_t)widths.file, cut));
    }
}

void catalog_print(const struct catalog *catalog, size_t columns, FILE *out)
{
    print_tensors(catalog, columns, out);
    fprintf(out, "\n%s\n", text_show(catalog->told->artifact));
    catalog_print_layout(catalog, out);
    if (catalog->n_tensors != catalog->n_all_tensors)
        fprintf(out, "%zu of ", catalog->n_tensors);
    fprintf(out, "%zu tensor%s in %zu file%s, %s (%" PRIu64 " bytes)\nidentity %s\n", catalog->n_all_tensors,
            text_plural(catalog->n_all_tensors), catalog->told->n_files, text_plural(catalog->told->n_files),
            text_show_amount(catalog->told->total_bytes), catalog->told->total_bytes, catalog->told->identity);
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

/* --- catalog summary --- */

enum { MAX_TYPES = 64, SHOWN_TYPES = 5, SHOWN_PAIRS = 8, PAIR_COLUMNS = 32, COUNT_CHARS = 48 };

struct row {
    const char *dtype;
    uint64_t n_tensors, parameters, bytes;
};

struct sums {
    struct row rows[MAX_TYPES], all;
    size_t n_rows;
};

static uint64_t count_elements(const struct catalog_tensor *tensor)
{
    uint64_t n = 1;
    for (size_t i = 0; i < tensor->rank; i++)
        n *= tensor->shape[i]; /* the check of the header proved that it fits */
    return n;
}

static void add_to(struct row *row, const struct catalog_tensor *tensor)
{
    row->n_tensors++;
    row->parameters += count_elements(tensor);
    row->bytes += tensor->bytes;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *one = a, *other = b;
    if (one->bytes != other->bytes)
        return one->bytes < other->bytes ? 1 : -1;
    return strcmp(one->dtype, other->dtype);
}

static struct sums sum_up(const struct catalog *catalog)
{
    struct sums sums = {.all.dtype = ""};
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        size_t k = 0;
        while (k < sums.n_rows && strcmp(sums.rows[k].dtype, tensor->dtype) != 0)
            k++;
        add_to(&sums.all, tensor);
        if (k == MAX_TYPES)
            continue; /* there are 22 */
        if (k == sums.n_rows)
            sums.rows[sums.n_rows++].dtype = tensor->dtype;
        add_to(&sums.rows[k], tensor);
    }
    qsort(sums.rows, sums.n_rows, sizeof sums.rows[0], compare_rows);
    return sums;
}

/* "8.03 billion (8,030,261,248)", "3,532" */
static const char *people_count(uint64_t n, char out[COUNT_CHARS])
{
    static const struct {
        double size;
        const char *name;
    } units[] = {{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}};
    char digits[24], grouped[32];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, n), used = 0;
    for (size_t i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            grouped[used++] = ',';
        grouped[used++] = digits[i];
    }
    grouped[used] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if ((double)n >= units[i].size) {
            snprintf(out, COUNT_CHARS, "%.3g %s (%s)", (double)n / units[i].size, units[i].name, grouped);
            return out;
        }
    snprintf(out, COUNT_CHARS, "%s", grouped);
    return out;
}

static void print_types(const struct sums *sums, FILE *out)
{
    size_t n_shown = sums->n_rows <= SHOWN_TYPES ? sums->n_rows : SHOWN_TYPES - 1;
    char count[COUNT_CHARS];
    struct row rest = {.dtype = "others"};
    for (size_t i = n_shown; i < sums->n_rows; i++) {
        rest.parameters += sums->rows[i].parameters;
        rest.bytes += sums->rows[i].bytes;
    }
    for (size_t i = 0; i < n_shown + (rest.bytes || rest.parameters ? 1 : 0); i++) {
        const struct row *row = i < n_shown ? &sums->rows[i] : &rest;
        fprintf(out, "  %-10s%10s  %s\n", row->dtype, text_show_amount(row->bytes), people_count(row->parameters, count));
    }
}

static void print_text(const ProtobufCBinaryData *text, FILE *out)
{
    const char *shown = text_show_bytes((const char *)text->data, text->len);
    fprintf(out, "%.*s%s", PAIR_COLUMNS, shown, strlen(shown) > PAIR_COLUMNS ? "..." : "");
}

static void print_metadata(const struct catalog *catalog, FILE *out)
{
    if (catalog->told->metadata_left_out_bytes)
        fprintf(out, "metadata    %s, too large to be shown\n", text_show_amount(catalog->told->metadata_left_out_bytes));
    if (!catalog->told->n_metadata_keys)
        return;
    fputs("metadata    ", out);
    for (size_t i = 0; i < catalog->told->n_metadata_keys && i < SHOWN_PAIRS; i++) {
        fputs(i ? ", " : "", out);
        print_text(&catalog->told->metadata_keys[i], out);
        fputc('=', out);
        print_text(&catalog->told->metadata_values[i], out);
    }
    if (catalog->told->n_metadata_keys > SHOWN_PAIRS)
        fprintf(out, " and %zu more", catalog->told->n_metadata_keys - SHOWN_PAIRS);
    fputc('\n', out);
}

void catalog_summary_print(const struct catalog *catalog, FILE *out)
{
    struct sums sums = sum_up(catalog);
    char count[COUNT_CHARS];
    fprintf(out, "%s\n", text_show(catalog->told->artifact));
    catalog_print_layout(catalog, out);
    fprintf(out, "parameters  %s\n", people_count(sums.all.parameters, count));
    fprintf(out, "size        %s (%" PRIu64 " bytes), ", text_show_amount(sums.all.bytes), sums.all.bytes);
    if (catalog->n_tensors != catalog->n_all_tensors)
        fprintf(out, "%zu of ", catalog->n_tensors);
    fprintf(out, "%zu tensor%s in %zu file%s\n", catalog->n_all_tensors, text_plural(catalog->n_all_tensors),
            catalog->told->n_files, text_plural(catalog->told->n_files));
    print_types(&sums, out);
    print_metadata(catalog, out);
    fprintf(out, "identity    %s\n", catalog->told->identity);
    catalog_print_notes(catalog, out);
}

char *catalog_summary_json(const struct catalog *catalog)
{
    struct json_writer json = {0};
    struct sums sums = sum_up(catalog);
    json_write_open(&json, '{');
    json_put_text(&json, "artifact", catalog->told->artifact);
    json_put_text(&json, "identity", catalog->told->identity);
    json_put_text(&json, "layout", catalog->told->layout);
    json_put_u64(&json, "n_files", catalog->told->n_files);
    json_put_u64(&json, "n_tensors", sums.all.n_tensors);
    json_put_u64(&json, "parameters", sums.all.parameters);
    json_put_u64(&json, "total_bytes", sums.all.bytes);
    json_put_open(&json, "dtypes", '[');
    for (size_t i = 0; i < sums.n_rows; i++) {
        json_write_open(&json, '{');
        json_put_text(&json, "dtype", sums.rows[i].dtype);
        json_put_u64(&json, "n_tensors", sums.rows[i].n_tensors);
        json_put_u64(&json, "parameters", sums.rows[i].parameters);
        json_put_u64(&json, "bytes", sums.rows[i].bytes);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    catalog_json_notes(catalog, &json);
    catalog_json_metadata(catalog, &json);
    json_write_close(&json, '}');
    return json.text;
}
