/* One row for each type, those with most bytes first. */
#include "catalog_summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

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
        n *= tensor->shape[i]; /* whoever checked the header knows that it fits */
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
    char size[TEXT_SIZE_CHARS], count[COUNT_CHARS];
    struct row rest = {.dtype = "others"};
    for (size_t i = n_shown; i < sums->n_rows; i++) {
        rest.parameters += sums->rows[i].parameters;
        rest.bytes += sums->rows[i].bytes;
    }
    for (size_t i = 0; i < n_shown + (rest.bytes || rest.parameters ? 1 : 0); i++) {
        const struct row *row = i < n_shown ? &sums->rows[i] : &rest;
        fprintf(out, "  %-10s%10s  %s\n", row->dtype, text_people_bytes(row->bytes, size),
                people_count(row->parameters, count));
    }
}

static void print_text(const char *text, size_t n_bytes, FILE *out)
{
    char shown[TEXT_NAME_CHARS];
    text_escape(text, n_bytes, shown);
    fprintf(out, "%.*s%s", PAIR_COLUMNS, shown, strlen(shown) > PAIR_COLUMNS ? "..." : "");
}

static void print_metadata(const struct catalog *catalog, FILE *out)
{
    char size[TEXT_SIZE_CHARS];
    if (catalog->metadata_left_out_bytes)
        fprintf(out, "metadata    %s, too large to be shown\n", text_people_bytes(catalog->metadata_left_out_bytes, size));
    if (!catalog->n_metadata)
        return;
    fputs("metadata    ", out);
    for (size_t i = 0; i < catalog->n_metadata && i < SHOWN_PAIRS; i++) {
        const struct tc_metadata *pair = &catalog->metadata[i];
        fputs(i ? ", " : "", out);
        print_text(pair->key, pair->key_bytes, out);
        fputc('=', out);
        print_text(pair->value, pair->value_bytes, out);
    }
    if (catalog->n_metadata > SHOWN_PAIRS)
        fprintf(out, " and %zu more", catalog->n_metadata - SHOWN_PAIRS);
    fputc('\n', out);
}

void catalog_summary_print(const struct catalog *catalog, FILE *out)
{
    struct sums sums = sum_up(catalog);
    char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS], count[COUNT_CHARS];
    fprintf(out, "%s\n", text_escape(catalog->reference, strlen(catalog->reference), name));
    catalog_print_layout(catalog, out);
    fprintf(out, "parameters  %s\n", people_count(sums.all.parameters, count));
    fprintf(out, "size        %s (%" PRIu64 " bytes), ", text_people_bytes(sums.all.bytes, size), sums.all.bytes);
    if (catalog->n_tensors != catalog->n_all_tensors)
        fprintf(out, "%zu of ", catalog->n_tensors);
    fprintf(out, "%zu tensor%s in %zu file%s\n", catalog->n_all_tensors, catalog->n_all_tensors == 1 ? "" : "s",
            catalog->n_files, catalog->n_files == 1 ? "" : "s");
    print_types(&sums, out);
    print_metadata(catalog, out);
    fprintf(out, "identity    %s\n", catalog->identity);
    catalog_print_notes(catalog, out);
}

static void write_row(struct json_writer *json, const struct row *row)
{
    json_write_open(json, '{');
    json_put_text(json, "dtype", row->dtype);
    json_put_u64(json, "n_tensors", row->n_tensors);
    json_put_u64(json, "parameters", row->parameters);
    json_put_u64(json, "bytes", row->bytes);
    json_write_close(json, '}');
}

char *catalog_summary_json(const struct catalog *catalog)
{
    struct json_writer json = {0};
    struct sums sums = sum_up(catalog);
    json_write_open(&json, '{');
    json_put_text(&json, "artifact", catalog->reference);
    json_put_text(&json, "identity", catalog->identity);
    json_put_text(&json, "layout", catalog->layout_name);
    json_put_u64(&json, "n_files", catalog->n_files);
    json_put_u64(&json, "n_tensors", sums.all.n_tensors);
    json_put_u64(&json, "parameters", sums.all.parameters);
    json_put_u64(&json, "total_bytes", sums.all.bytes);
    json_put_open(&json, "dtypes", '[');
    for (size_t i = 0; i < sums.n_rows; i++)
        write_row(&json, &sums.rows[i]);
    json_write_close(&json, ']');
    catalog_json_notes(catalog, &json);
    catalog_json_metadata(catalog, &json);
    json_write_close(&json, '}');
    return json.text;
}
