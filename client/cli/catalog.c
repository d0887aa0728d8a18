/* Two builders, then output that knows nothing of where the catalog came from. */
#include "catalog.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "shape_text.h"

static struct catalog *create_catalog(size_t n_files, size_t n_tensors)
{
    struct catalog *catalog = memory_alloc(sizeof *catalog);
    catalog->files = memory_alloc_array(n_files + 1, sizeof *catalog->files);
    catalog->tensors = memory_alloc_array(n_tensors + 1, sizeof *catalog->tensors);
    catalog->n_files = n_files;
    catalog->n_tensors = n_tensors;
    return catalog;
}

struct catalog *catalog_from_daemon(struct tc_artifact *artifact)
{
    struct catalog *catalog = create_catalog(tc_artifact_n_files(artifact), tc_artifact_n_tensors(artifact));
    catalog->from_daemon = artifact;
    catalog->reference = tc_artifact_reference(artifact);
    catalog->identity = tc_artifact_identity(artifact);
    catalog->total_bytes = tc_artifact_total_bytes(artifact);
    for (size_t i = 0; i < catalog->n_files; i++)
        catalog->files[i].name = tc_artifact_file(artifact, i, &catalog->files[i].bytes);
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        struct tc_tensor_info info;
        tc_artifact_tensor(artifact, i, &info);
        catalog->tensors[i] =
            (struct catalog_tensor){info.name, strlen(info.name), info.dtype, info.shape, info.rank, info.bytes, info.file};
    }
    return catalog;
}

struct catalog *catalog_from_disk(struct artifact *artifact)
{
    struct catalog *catalog = create_catalog(artifact->source->n_files, artifact->n_tensors);
    catalog->from_disk = artifact;
    catalog->reference = artifact->reference;
    catalog->identity = artifact->identity;
    catalog->total_bytes = artifact->total_bytes;
    for (size_t i = 0; i < catalog->n_files; i++)
        catalog->files[i] = (struct catalog_file){artifact->source->files[i].name, artifact->source->files[i].size_bytes};
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        catalog->tensors[i] = (struct catalog_tensor){record->name,
                                                      record->name_length,
                                                      dtype_name(record->dtype),
                                                      record->shape,
                                                      record->rank,
                                                      record->bytes,
                                                      artifact_piece(artifact, record, 0)->file};
    }
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
    free(catalog);
}

static void write_tensor(struct json_writer *json, const struct catalog *catalog, const struct catalog_tensor *tensor)
{
    json_write_open(json, '{');
    json_put_string(json, "name", tensor->name, tensor->name_length);
    json_put_text(json, "dtype", tensor->dtype);
    json_put_open(json, "shape", '[');
    for (size_t d = 0; d < tensor->rank; d++)
        json_write_u64(json, tensor->shape[d]);
    json_write_close(json, ']');
    json_put_text(json, "file", catalog->files[tensor->file].name);
    json_put_u64(json, "bytes", tensor->bytes);
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

char *catalog_json(const struct catalog *catalog)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    catalog_json_head(catalog, &json);
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
    int name, dtype, shape, bytes;
};

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
        char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS], shape[SHAPE_TEXT_CHARS];
        widen_column(&widths.name, text_columns(text_escape(tensor->name, tensor->name_length, name)));
        widen_column(&widths.dtype, strlen(tensor->dtype));
        widen_column(&widths.shape, strlen(shape_text(tensor->shape, tensor->rank, shape)));
        widen_column(&widths.bytes, strlen(text_people_bytes(tensor->bytes, size)));
    }
    return widths;
}

void catalog_print(const struct catalog *catalog, FILE *out)
{
    struct widths widths = measure_columns(catalog);
    char name[TEXT_NAME_CHARS], file[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS], shape[SHAPE_TEXT_CHARS];
    fprintf(out, "%-*s  %-*s  %-*s  %*s  file\n", widths.name, "tensor", widths.dtype, "dtype", widths.shape, "shape",
            widths.bytes, "size");
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        const char *file_name = catalog->files[tensor->file].name;
        text_escape(tensor->name, tensor->name_length, name);
        fprintf(out, "%s%*s  %-*s  %-*s  %*s  %s\n", name, widths.name - (int)text_columns(name), "", widths.dtype,
                tensor->dtype, widths.shape, shape_text(tensor->shape, tensor->rank, shape), widths.bytes,
                text_people_bytes(tensor->bytes, size), text_escape(file_name, strlen(file_name), file));
    }
    fprintf(out, "\n%s\n", text_escape(catalog->reference, strlen(catalog->reference), name));
    fprintf(out, "%zu tensor%s in %zu file%s, %s (%" PRIu64 " bytes)\nidentity %s\n", catalog->n_tensors,
            catalog->n_tensors == 1 ? "" : "s", catalog->n_files, catalog->n_files == 1 ? "" : "s",
            text_people_bytes(catalog->total_bytes, size), catalog->total_bytes, catalog->identity);
}

char *catalog_index_json(const struct catalog *catalog, bool canonical)
{
    if (catalog->from_daemon)
        return memory_copy_text(tc_artifact_index_json(catalog->from_daemon, canonical));
    return canonical ? artifact_canonical_index_json(catalog->from_disk) : artifact_source_index_json(catalog->from_disk);
}
