/* Whole tensors, in one file, or in several filled one after the other, or as a mapping says; and the index that says which
 * file has what. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "export/layout_private.h"
#include "resolve/safetensors.h"

/* File of each tensor, filled greedily in order; a tensor that is larger than the limit is alone. Returns the number of
 * files. */
static size_t fill_files(const struct layout_build *build, uint32_t *file_of)
{
    const struct export_layout *layout = build->layout;
    uint64_t limit = build->options->max_file_bytes, bytes = 0;
    size_t n_files = 1, n_in_file = 0;
    for (size_t t = 0; t < layout->n_tensors; t++) {
        uint64_t more = layout->tensors[t].bytes;
        if (limit && n_in_file && (more > limit || bytes > limit - more)) {
            n_files++;
            n_in_file = 0;
            bytes = 0;
        }
        bytes += more;
        n_in_file++;
        file_of[t] = (uint32_t)(n_files - 1);
    }
    return n_files;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The same as a mapping says: files by name. */
static size_t take_mapping(struct layout_build *build, uint32_t *file_of)
{
    const struct export_layout *layout = build->layout;
    size_t n = layout->n_tensors, n_files = 0;
    const char **names = memory_alloc_array(n + 1, sizeof *names);
    for (size_t t = 0; t < n; t++)
        names[t] = build->file_names[t];
    qsort(names, n, sizeof *names, compare_texts);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[n_files - 1]) != 0)
            names[n_files++] = names[i];
    layout_set_files(build, n_files);
    for (size_t f = 0; f < n_files; f++)
        layout->files[f].name = arena_text(&build->layout->arena, names[f], strlen(names[f]));
    for (size_t t = 0; t < n; t++) {
        const char **found = bsearch(&build->file_names[t], names, n_files, sizeof *names, compare_texts);
        file_of[t] = (uint32_t)(found - names);
    }
    free(names);
    return n_files;
}

static void name_files(struct layout_build *build, size_t n_files)
{
    struct export_layout *layout = build->layout;
    layout_set_files(build, n_files);
    for (size_t f = 0; f < n_files; f++) {
        char name[64] = SAFETENSORS_SINGLE_NAME;
        if (n_files > 1)
            snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", f + 1, n_files);
        layout->files[f].name = arena_text(&layout->arena, name, strlen(name));
    }
}

static int place_whole(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    uint32_t *file_of = memory_alloc_array(layout->n_tensors + 1, sizeof *file_of);
    if (build->file_names)
        take_mapping(build, file_of);
    else
        name_files(build, fill_files(build, file_of));
    for (size_t t = 0; t < layout->n_tensors; t++)
        layout_add_part(build, t, file_of[t], NULL, NULL);
    if (layout->n_files > 1 || build->file_names)
        layout->document_name = format_safetensors.index_names[0];
    free(file_of);
    return 0;
}

static int put_weight_map(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    uint32_t *order = layout_by_name(layout);
    int status = 0;
    for (size_t i = 0; status == 0 && i < layout->n_tensors; i++) {
        const struct tensor_record *record = layout->tensors[order[i]].record;
        struct json_writer json = {0};
        json_write_key_bytes(&json, record->name, record->name_length);
        json_write_text(&json, layout->files[layout->parts[layout->first_part[order[i]]].file].name);
        status = layout_put_member(sink, &json, 2, i == 0, error);
    }
    free(order);
    return status;
}

static int write_index(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    char metadata[80];
    uint64_t total_bytes = 0;
    for (size_t t = 0; t < layout->n_tensors; t++)
        total_bytes += layout->tensors[t].bytes;
    snprintf(metadata, sizeof metadata, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n", total_bytes);
    if (export_put_text(sink, metadata, error) < 0 || export_put_text(sink, "  \"weight_map\": {", error) < 0 ||
        put_weight_map(layout, sink, error) < 0)
        return -1;
    return export_put_text(sink, layout->n_tensors ? "\n  }\n}" : "}\n}", error);
}

const struct layout_format layout_hf = {.name = "hf", .place = place_whole, .write_document = write_index};
