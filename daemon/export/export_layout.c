/* sort -> splits are checked -> the format places parts -> offsets -> headers -> documents. */
#include "export/export_layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "export/indent_json.h"
#include "export/layout_private.h"
#include "resolve/safetensors.h"

enum { LENGTH_BYTES = 8, HEADER_ALIGN = 8 };

static const struct layout_format *const layout_formats[] = {
    [EXPORT_HF] = &layout_hf, [EXPORT_TOPOLOGY] = &layout_topology, [EXPORT_DCP] = &layout_dcp};

/* --- order --- */

static int compare_names(const struct tensor_record *a, const struct tensor_record *b)
{
    size_t shorter = a->name_length < b->name_length ? a->name_length : b->name_length;
    int order = memcmp(a->name, b->name, shorter);
    return order ? order : (a->name_length > b->name_length) - (a->name_length < b->name_length);
}

struct sorting {
    const struct export_tensor *tensors;
};

static int compare_tensors(const void *left, const void *right, void *context)
{
    const struct export_tensor *tensors = ((const struct sorting *)context)->tensors;
    const struct tensor_record *a = tensors[*(const uint32_t *)left].record, *b = tensors[*(const uint32_t *)right].record;
    return a->dtype != b->dtype ? (a->dtype < b->dtype) - (a->dtype > b->dtype) : compare_names(a, b);
}

static int compare_by_name(const void *left, const void *right, void *context)
{
    const struct export_tensor *tensors = ((const struct sorting *)context)->tensors;
    return compare_names(tensors[*(const uint32_t *)left].record, tensors[*(const uint32_t *)right].record);
}

static uint32_t *sorted_indexes(const struct export_tensor *tensors, size_t n,
                                int (*compare)(const void *, const void *, void *))
{
    struct sorting sorting = {tensors};
    uint32_t *order = memory_alloc_array(n + 1, sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, compare, &sorting);
    return order;
}

uint32_t *layout_by_name(const struct export_layout *layout)
{
    return sorted_indexes(layout->tensors, layout->n_tensors, compare_by_name);
}

static const uint64_t *copy_numbers(struct arena *arena, const uint64_t *numbers, size_t n)
{
    uint64_t *copy = arena_array(arena, n + 1, sizeof *copy);
    if (n)
        memcpy(copy, numbers, n * sizeof *copy);
    return copy;
}

static void take_tensors(struct layout_build *build, const struct export_tensor *tensors, size_t n)
{
    struct export_layout *layout = build->layout;
    const char *const *names = build->options->file_of_tensor;
    const char **sorted_names = names ? arena_array(&layout->arena, n + 1, sizeof *sorted_names) : NULL;
    uint32_t *order = sorted_indexes(tensors, n, compare_tensors);
    layout->tensors = arena_array(&layout->arena, n + 1, sizeof *layout->tensors);
    layout->n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        struct export_tensor *tensor = &layout->tensors[i];
        *tensor = tensors[order[i]];
        if (tensor->start)
            tensor->start = copy_numbers(&layout->arena, tensor->start, tensor->record->rank);
        tensor->shape = copy_numbers(&layout->arena, tensor->shape, tensor->record->rank);
        if (names)
            sorted_names[i] = names[order[i]];
    }
    build->file_names = sorted_names;
    free(order);
}

/* --- splits --- */

static int check_split(const struct layout_build *build, struct export_tensor *tensor)
{
    const struct export_layout_options *options = build->options;
    const struct tensor_record *record = tensor->record;
    if (tensor->split == EXPORT_NOT_SPLIT || tensor->shape[tensor->split] % options->world_size == 0)
        return 0;
    if (options->uneven == UNEVEN_SHARE)
        tensor->split = EXPORT_NOT_SPLIT;
    if (options->uneven != UNEVEN_ERROR)
        return 0;
    char name[TEXT_NAME_CHARS];
    text_escape(record->name, record->name_length, name);
    fail(build->error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
         "tensor '%s': dimension %d (%" PRIu64 ") does not divide by %u ranks; --uneven ceil cuts it into unequal parts, "
         "--uneven share gives it whole to every rank, 'export' with --tp-rule '%s=DIM' chooses another dimension",
         name, tensor->split, tensor->shape[tensor->split], options->world_size, name);
    return error_note(build->error, "tensor", "%.*s", (int)record->name_length, record->name);
}

static int check_splits(const struct layout_build *build)
{
    if (build->options->format == EXPORT_HF)
        return 0;
    for (size_t i = 0; i < build->layout->n_tensors; i++)
        if (check_split(build, &build->layout->tensors[i]) < 0)
            return -1;
    return 0;
}

bool layout_cut(struct layout_build *build, const struct export_tensor *tensor, uint32_t rank, const uint64_t **start,
                const uint64_t **size)
{
    struct arena *arena = &build->layout->arena;
    size_t n_dims = tensor->record->rank;
    uint64_t extent = tensor->shape[tensor->split], world_size = build->options->world_size;
    uint64_t chunk = extent / world_size + (extent % world_size != 0), from = extent, to = extent;
    if (chunk && rank < extent / chunk + 1) { /* else rank * chunk could be no number */
        from = rank * chunk < extent ? rank * chunk : extent;
        to = extent - from > chunk ? from + chunk : extent;
    }
    uint64_t *starts = arena_array(arena, n_dims, sizeof *starts), *sizes = arena_array(arena, n_dims, sizeof *sizes);
    memcpy(sizes, tensor->shape, n_dims * sizeof *sizes);
    starts[tensor->split] = from;
    sizes[tensor->split] = to - from;
    *start = starts;
    *size = sizes;
    return from == to;
}

/* --- files and parts --- */

void layout_set_files(struct layout_build *build, size_t n_files)
{
    struct export_layout *layout = build->layout;
    layout->files = arena_array(&layout->arena, n_files + 1, sizeof *layout->files);
    layout->n_files = n_files;
    for (size_t i = 0; i < n_files; i++)
        layout->files[i].is_written = build->options->rank == EXPORT_ALL_RANKS || (size_t)build->options->rank == i;
}

static uint64_t box_bytes(const struct tensor_record *record, const uint64_t *size)
{
    uint64_t elements = 1; /* no more than the tensor has */
    for (uint32_t d = 0; d < record->rank; d++)
        if (size[d] == 0)
            return 0;
    for (uint32_t d = 0; d < record->rank; d++)
        elements *= size[d];
    return elements / 8 * dtype_bits(record->dtype) + elements % 8 * dtype_bits(record->dtype) / 8;
}

void layout_add_part(struct layout_build *build, size_t tensor, uint32_t file, const uint64_t *start, const uint64_t *size)
{
    struct export_layout *layout = build->layout;
    const struct export_tensor *whole = &layout->tensors[tensor];
    ARRAY_RESERVE(layout->parts, build->n_parts, build->part_room);
    layout->parts[build->n_parts++] = (struct export_part){
        .file = file, .start = start, .size = size, .bytes = start ? box_bytes(whole->record, size) : whole->bytes};
    layout->first_part[tensor + 1] = build->n_parts;
}

static int check_whole_bytes(const struct layout_build *build, size_t tensor, const struct export_part *part)
{
    const struct tensor_record *record = build->layout->tensors[tensor].record;
    uint64_t elements = 1;
    for (uint32_t d = 0; part->start && d < record->rank; d++)
        elements *= part->size[d];
    if (!part->start || elements * dtype_bits(record->dtype) % 8 == 0)
        return 0;
    char name[TEXT_NAME_CHARS];
    fail(build->error, ERROR_UNIMPLEMENTED, "SPLITS_A_BYTE",
         "tensor '%s' of %s is cut within a byte; 'export' with --tp-rule '%s=replicate' leaves it whole",
         text_escape(record->name, record->name_length, name), dtype_name(record->dtype), name);
    return error_note(build->error, "tensor", "%.*s", (int)record->name_length, record->name);
}

/* --- headers --- */

static int compare_file(const void *key, const void *part)
{
    uint32_t file = *(const uint32_t *)key, found = ((const struct export_part *)part)->file;
    return (file > found) - (file < found);
}

const struct export_part *layout_find_part(const struct export_layout *layout, size_t tensor, uint32_t file)
{
    size_t first = layout->first_part[tensor], n = layout->first_part[tensor + 1] - first;
    const struct export_part *parts = &layout->parts[first];
    if (n == layout->n_files) /* one in each */
        return &parts[file];
    return bsearch(&file, parts, n, sizeof *parts, compare_file);
}

static void write_pairs(const struct export_layout *layout, struct json_writer *json)
{
    for (size_t i = 0; i < layout->n_metadata; i++) {
        const struct export_pair *pair = &layout->metadata[i];
        json_write_key_bytes(json, pair->key, pair->key_length);
        json_write_string(json, pair->value, pair->value_length);
    }
}

static void write_metadata(const struct export_layout *layout, uint32_t file, struct json_writer *json)
{
    if (!layout->format->describe && !layout->n_metadata)
        return;
    json_put_open(json, "__metadata__", '{');
    if (layout->format->describe)
        layout->format->describe(layout, file, json);
    else
        write_pairs(layout, json);
    json_write_close(json, '}');
}

static void write_entry(const struct export_tensor *tensor, const struct export_part *part, struct json_writer *json)
{
    const struct tensor_record *record = tensor->record;
    const uint64_t *shape = part->start ? part->size : tensor->shape;
    json_write_key_bytes(json, record->name, record->name_length);
    json_write_open(json, '{');
    json_put_text(json, "dtype", dtype_name(record->dtype));
    json_put_open(json, "shape", '[');
    for (uint32_t d = 0; d < record->rank; d++)
        json_write_u64(json, shape[d]);
    json_write_close(json, ']');
    json_put_open(json, "data_offsets", '[');
    json_write_u64(json, part->offset);
    json_write_u64(json, part->offset + part->bytes);
    json_write_close(json, ']');
    json_write_close(json, '}');
}

static struct json_writer write_header(const struct export_layout *layout, uint32_t file, size_t *padded)
{
    struct json_writer json = {.escapes_least = true};
    json_write_open(&json, '{');
    write_metadata(layout, file, &json);
    for (size_t t = 0; t < layout->n_tensors; t++) {
        const struct export_part *part = layout_find_part(layout, t, file);
        if (part)
            write_entry(&layout->tensors[t], part, &json);
    }
    json_write_close(&json, '}');
    *padded = (json.length + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    return json;
}

char *export_layout_head(const struct export_layout *layout, uint32_t file)
{
    size_t padded;
    struct json_writer json = write_header(layout, file, &padded);
    char *head = memory_alloc(LENGTH_BYTES + padded);
    for (int i = 0; i < LENGTH_BYTES; i++)
        head[i] = (char)((uint64_t)padded >> 8 * i);
    memcpy(head + LENGTH_BYTES, json.text, json.length);
    memset(head + LENGTH_BYTES + json.length, ' ', padded - json.length);
    free(json.text);
    return head;
}

static int place_parts(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    for (size_t t = 0; t < layout->n_tensors; t++)
        for (size_t p = layout->first_part[t]; p < layout->first_part[t + 1]; p++) {
            struct export_part *part = &layout->parts[p];
            struct export_file *file = &layout->files[part->file];
            part->offset = file->file_bytes;
            if (check_whole_bytes(build, t, part) < 0)
                return -1;
            if (!checked_add(file->file_bytes, part->bytes, &file->file_bytes) || file->file_bytes > INT64_MAX / 2)
                return fail(build->error, ERROR_INVALID_ARGUMENT, "FILE_TOO_LARGE", "%s would be larger than any file",
                            file->name);
        }
    return 0;
}

static int measure_headers(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    for (uint32_t f = 0; f < layout->n_files; f++) {
        struct export_file *file = &layout->files[f];
        size_t padded;
        if (!file->is_written)
            continue;
        free(write_header(layout, f, &padded).text);
        if (padded > SAFETENSORS_MAX_HEADER_BYTES)
            return fail(build->error, ERROR_INVALID_ARGUMENT, "HEADER_TOO_LARGE",
                        "the header of %s takes %zu bytes, and a safetensors file may have %d; write more files "
                        "(--max-file-size, --mapping)",
                        file->name, padded, SAFETENSORS_MAX_HEADER_BYTES);
        file->head_bytes = LENGTH_BYTES + padded;
        file->file_bytes += file->head_bytes;
    }
    return 0;
}

/* --- documents --- */

int export_put_text(const struct export_sink *sink, const char *text, struct error *error)
{
    return sink->put(sink->data, text, strlen(text), error);
}

int layout_put_member(const struct export_sink *sink, struct json_writer *json, size_t depth, bool is_first,
                      struct error *error)
{
    char blanks[] = "\n        ";
    char *text = indent_json(json->text, json->length, depth);
    free(json->text);
    *json = (struct json_writer){0};
    blanks[1 + 2 * depth] = '\0';
    int status = is_first ? 0 : sink->put(sink->data, ",", 1, error);
    if (status == 0 && sink->put(sink->data, blanks, 1 + 2 * depth, error) == 0)
        status = sink->put(sink->data, text, strlen(text), error);
    else
        status = -1;
    free(text);
    return status;
}

int export_layout_write_document(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    return layout->format->write_document(layout, sink, error);
}

/* --- the whole --- */

struct export_layout *export_layout_build(const struct export_tensor *tensors, size_t n_tensors,
                                          const struct export_layout_options *options, struct error *error)
{
    struct export_layout *layout = memory_alloc(sizeof *layout);
    struct layout_build build = {.layout = layout, .options = options, .error = error};
    layout->format = layout_formats[options->format];
    layout->world_size = options->world_size;
    layout->metadata = options->metadata;
    layout->n_metadata = options->n_metadata;
    take_tensors(&build, tensors, n_tensors);
    layout->first_part = arena_array(&layout->arena, n_tensors + 2, sizeof *layout->first_part);
    if (check_splits(&build) == 0 && layout->format->place(&build) == 0 && place_parts(&build) == 0 &&
        measure_headers(&build) == 0)
        return layout;
    export_layout_destroy(layout);
    return NULL;
}

void export_layout_destroy(struct export_layout *layout)
{
    if (!layout)
        return;
    free(layout->parts);
    arena_fini(&layout->arena);
    free(layout);
}

uint64_t export_layout_bytes(const struct export_layout *layout)
{
    uint64_t bytes = 0;
    for (size_t f = 0; f < layout->n_files; f++)
        bytes += layout->files[f].is_written ? layout->files[f].file_bytes : 0;
    return bytes;
}

static void add_numbers(struct digest *digest, const uint64_t *numbers, size_t n)
{
    for (size_t i = 0; numbers && i < n; i++)
        digest_add_u64(digest, numbers[i]);
}

void export_layout_digest(const struct export_layout *layout, struct digest *digest)
{
    for (size_t f = 0; f < layout->n_files; f++) {
        const struct export_file *file = &layout->files[f];
        digest_add_text(digest, file->name);
        digest_add_u64(digest, file->is_written);
        digest_add_u64(digest, file->head_bytes);
    }
    for (size_t t = 0; t < layout->n_tensors; t++) {
        const struct export_tensor *tensor = &layout->tensors[t];
        digest_add_text(digest, tensor->record->name);
        digest_add_u64(digest, tensor->record->dtype);
        digest_add_u64(digest, tensor->record->rank);
        digest_add_u64(digest, tensor->start != NULL);
        add_numbers(digest, tensor->start, tensor->record->rank);
        add_numbers(digest, tensor->shape, tensor->record->rank);
        for (size_t p = layout->first_part[t]; p < layout->first_part[t + 1]; p++) {
            const struct export_part *part = &layout->parts[p];
            digest_add_u64(digest, part->file);
            digest_add_u64(digest, part->start != NULL);
            add_numbers(digest, part->start, tensor->record->rank);
            add_numbers(digest, part->start ? part->size : NULL, tensor->record->rank);
        }
    }
    for (size_t i = 0; i < layout->n_metadata; i++) {
        digest_add_text(digest, layout->metadata[i].key);
        digest_add_text(digest, layout->metadata[i].value);
    }
    digest_add_text(digest, layout->format->name);
    digest_add_u64(digest, layout->world_size);
    digest_add_text(digest, layout->document_name ? layout->document_name : "");
}
