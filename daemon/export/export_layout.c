/* sort -> splits are checked -> the format places parts -> offsets -> headers -> documents. */
#include "export/export_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/text.h"
#include "resolve/safetensors.h"

enum { LENGTH_BYTES = 8, HEADER_ALIGN = 8, MAX_FILE_NAME_BYTES = 255 /* what file systems take */ };

struct layout_build {
    struct export_layout *layout;
    const struct export_layout_options *options;
    size_t n_parts, part_room;
    const char *const *file_names; /* of --mapping, by tensor in official order; NULL = none */
    struct error *error;
};

struct layout_format {
    const char *name;
    /* Makes layout->files with their names, and says by layout_add_part() what of each tensor is in which, in order. */
    int (*place)(struct layout_build *build);
    /* Optional. The members of a file's __metadata__ instead of the source's. */
    void (*describe)(const struct export_layout *layout, uint32_t file, struct json_writer *json);
    /* Of a layout whose place() has set document_name. */
    int (*write_document)(const struct export_layout *layout, const struct export_sink *sink, struct error *error);
};

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

static uint32_t *layout_by_name(const struct export_layout *layout)
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
    const char *name = text_show_bytes(record->name, record->name_length);
    fail(build->error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
         "tensor '%s': dimension %d (%" PRIu64 ") does not divide by %u ranks; --uneven ceil cuts it into unequal parts, "
         "--uneven share gives it whole to every rank, 'export' with --tp-rule '%s=DIM' chooses another dimension",
         name, tensor->split, tensor->shape[tensor->split], options->world_size, name);
    return error_note_tensor(build->error, record->name, record->name_length);
}

static bool layout_cut(struct layout_build *build, const struct export_tensor *tensor, uint32_t rank, const uint64_t **start,
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

static void layout_set_files(struct layout_build *build, size_t n_files)
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

static void layout_add_part(struct layout_build *build, size_t tensor, uint32_t file, const uint64_t *start,
                            const uint64_t *size)
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
    const char *name = text_show_bytes(record->name, record->name_length);
    fail(build->error, ERROR_UNIMPLEMENTED, "SPLITS_A_BYTE",
         "tensor '%s' of %s is cut within a byte; 'export' with --tp-rule '%s=replicate' leaves it whole", name,
         dtype_name(record->dtype), name);
    return error_note_tensor(build->error, record->name, record->name_length);
}

/* --- headers --- */

static int compare_file(const void *key, const void *part)
{
    uint32_t file = *(const uint32_t *)key, found = ((const struct export_part *)part)->file;
    return (file > found) - (file < found);
}

static const struct export_part *layout_find_part(const struct export_layout *layout, size_t tensor, uint32_t file)
{
    size_t first = layout->first_part[tensor], n = layout->first_part[tensor + 1] - first;
    const struct export_part *parts = &layout->parts[first];
    if (n == layout->n_files) /* one in each */
        return &parts[file];
    return bsearch(&file, parts, n, sizeof *parts, compare_file);
}

static void write_metadata(const struct export_layout *layout, uint32_t file, struct json_writer *json)
{
    if (!layout->format->describe && !layout->n_metadata)
        return;
    json_put_open(json, "__metadata__", '{');
    if (layout->format->describe)
        layout->format->describe(layout, file, json);
    for (size_t i = 0; !layout->format->describe && i < layout->n_metadata; i++) {
        const struct export_pair *pair = &layout->metadata[i];
        json_write_key_bytes(json, pair->key, pair->key_length);
        json_write_string(json, pair->value, pair->value_length);
    }
    json_write_close(json, '}');
}

/* NULL = zeroes. */
static void put_numbers(struct json_writer *json, const char *key, const uint64_t *numbers, size_t n)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        json_write_u64(json, numbers ? numbers[i] : 0);
    json_write_close(json, ']');
}

static void write_entry(const struct export_tensor *tensor, const struct export_part *part, struct json_writer *json)
{
    const struct tensor_record *record = tensor->record;
    const uint64_t *shape = part->start ? part->size : tensor->shape;
    json_write_key_bytes(json, record->name, record->name_length);
    json_write_open(json, '{');
    json_put_text(json, "dtype", dtype_name(record->dtype));
    put_numbers(json, "shape", shape, record->rank);
    put_numbers(json, "data_offsets", (const uint64_t[]){part->offset, part->offset + part->bytes}, 2);
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

struct indenting {
    char *text;
    size_t length, room;
};

static void put_char(struct indenting *out, char c)
{
    ARRAY_RESERVE(out->text, out->length, out->room);
    out->text[out->length++] = c;
}

static void put_line(struct indenting *out, size_t depth)
{
    put_char(out, '\n');
    for (size_t i = 0; i < 2 * depth; i++)
        put_char(out, ' ');
}

/* A bracket that is closed at once stays as it is. */
static void put_bracket(struct indenting *out, char c, char before, size_t depth)
{
    bool is_opening = c == '{' || c == '[', is_empty = before == '{' || before == '[';
    if (!is_opening && !is_empty)
        put_line(out, depth);
    put_char(out, c);
}

/* Compact JSON -> the same with two blanks per level, as json.dumps(indent=2) and serde_json's pretty printer write it; the text
 * is a member of an object that begins `depth` levels deep. The caller frees. */
static char *indent_json(const char *text, size_t length, size_t depth)
{
    struct indenting out = {0};
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i], before = i ? text[i - 1] : '\0';
        bool is_first = !in_string && (before == '{' || before == '[') && c != '}' && c != ']';
        if (is_first)
            put_line(&out, depth);
        if (in_string || c == '"') {
            put_char(&out, c);
            if (in_string && c == '\\')
                put_char(&out, text[++i]);
            else if (c == '"')
                in_string = !in_string;
        } else if (c == '{' || c == '[') {
            put_bracket(&out, c, before, depth++);
        } else if (c == '}' || c == ']') {
            put_bracket(&out, c, before, --depth);
        } else {
            put_char(&out, c);
            if (c == ',')
                put_line(&out, depth);
            else if (c == ':')
                put_char(&out, ' ');
        }
    }
    put_char(&out, '\0');
    return out.text;
}

static int export_put_text(const struct export_sink *sink, const char *text, struct error *error)
{
    return sink->put(sink->data, text, strlen(text), error);
}

static int layout_put_member(const struct export_sink *sink, struct json_writer *json, size_t depth, bool is_first,
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

/* --- hf --- */

/* Whole tensors, in one file, or in several filled one after the other, or as a mapping says; and the index that says which
 * file has what. */

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

static const struct layout_format layout_hf = {.name = "hf", .place = place_whole, .write_document = write_index};

/* --- topology --- */

/* A file for each rank, with its part of every tensor that is cut and the whole of every other, and topology.json, which says
 * so in the form of its reference: tensors by name, two blanks per level. */

static int place_chunks(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    uint32_t world_size = build->options->world_size;
    layout_set_files(build, world_size);
    for (uint32_t r = 0; r < world_size; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank%u.safetensors", r);
        layout->files[r].name = arena_text(&layout->arena, name, strlen(name));
    }
    layout->document_name = "topology.json";
    for (size_t t = 0; t < layout->n_tensors; t++)
        for (uint32_t r = 0; r < world_size; r++) {
            const uint64_t *start = NULL, *size = NULL;
            if (layout->tensors[t].split != EXPORT_NOT_SPLIT)
                layout_cut(build, &layout->tensors[t], r, &start, &size);
            layout_add_part(build, t, r, start, size);
        }
    return 0;
}

static void put_chunks(const struct export_layout *layout, size_t t, struct json_writer *json)
{
    uint32_t rank = layout->tensors[t].record->rank;
    json_put_open(json, "chunks", '[');
    for (size_t p = layout->first_part[t]; p < layout->first_part[t + 1]; p++) {
        const struct export_part *part = &layout->parts[p];
        json_write_open(json, '{');
        put_numbers(json, "offsets", part->start, rank);
        put_numbers(json, "shape", part->size, rank);
        json_put_u64(json, "filename_index", part->file);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

static void put_tensor(const struct export_layout *layout, size_t t, struct json_writer *json)
{
    const struct export_tensor *tensor = &layout->tensors[t];
    bool is_cut = tensor->split != EXPORT_NOT_SPLIT;
    json_write_key_bytes(json, tensor->record->name, tensor->record->name_length);
    json_write_open(json, '{');
    json_put_text(json, "type", is_cut ? "Distributed" : "Shared");
    put_numbers(json, "shape", tensor->shape, tensor->record->rank);
    json_put_text(json, "dtype", dtype_name(tensor->record->dtype));
    if (is_cut) {
        put_chunks(layout, t, json);
    } else {
        json_put_open(json, "filename_indices", '[');
        for (size_t f = 0; f < layout->n_files; f++)
            json_write_u64(json, f);
        json_write_close(json, ']');
    }
    json_write_close(json, '}');
}

static int put_tensors(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    uint32_t *order = layout_by_name(layout);
    int status = export_put_text(sink, "{\n  \"tensors\": {", error);
    for (size_t i = 0; status == 0 && i < layout->n_tensors; i++) {
        struct json_writer json = {0};
        put_tensor(layout, order[i], &json);
        status = layout_put_member(sink, &json, 2, i == 0, error);
    }
    free(order);
    return status < 0 ? -1 : export_put_text(sink, layout->n_tensors ? "\n  }" : "}", error);
}

static int write_topology(const struct export_layout *layout, const struct export_sink *sink, struct error *error)
{
    struct json_writer names = {0}, size = {0};
    json_put_open(&names, "filenames", '[');
    for (size_t f = 0; f < layout->n_files; f++)
        json_write_text(&names, layout->files[f].name);
    json_write_close(&names, ']');
    json_put_u64(&size, "world_size", layout->world_size);
    int status = put_tensors(layout, sink, error);
    if (status == 0)
        status = layout_put_member(sink, &names, 1, false, error);
    if (status == 0)
        status = layout_put_member(sink, &size, 1, false, error);
    free(names.text);
    free(size.text);
    return status < 0 ? -1 : export_put_text(sink, "\n}", error);
}

static const struct layout_format layout_topology = {
    .name = "topology", .place = place_chunks, .write_document = write_topology};

/* --- dcp --- */

/* A shard for each rank as PyTorch's distributed checkpoint writes it (torch/distributed/checkpoint/_hf_utils.py): the name
 * carries the rank, and the metadata where in its tensor each array begins. Nothing says how large a tensor is: readers take
 * the hull of its parts. A tensor that is not cut is in one shard, that of the rank that has least so far. */

/* An empty part says nothing about a tensor that has others; of an empty tensor the first one is kept, which says how large
 * the other dimensions are. */
static void place_cut(struct layout_build *build, size_t t, uint64_t *loads)
{
    const struct export_tensor *tensor = &build->layout->tensors[t];
    bool is_placed = false;
    for (uint32_t r = 0; r < build->options->world_size; r++) {
        const uint64_t *start, *size;
        bool is_empty = layout_cut(build, tensor, r, &start, &size) || tensor->bytes == 0;
        if (is_empty && (is_placed || tensor->bytes))
            continue;
        if (is_empty)
            start = size = NULL;
        layout_add_part(build, t, r, start, size);
        loads[r] += build->layout->parts[build->n_parts - 1].bytes;
        is_placed = true;
    }
}

static int place_shards(struct layout_build *build)
{
    struct export_layout *layout = build->layout;
    uint32_t world_size = build->options->world_size;
    uint64_t *loads = memory_alloc_array(world_size, sizeof *loads);
    layout_set_files(build, world_size);
    for (uint32_t r = 0; r < world_size; r++) {
        char name[64];
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", r + 1);
        layout->files[r].name = arena_text(&layout->arena, name, strlen(name));
    }
    for (size_t t = 0; t < layout->n_tensors; t++) {
        if (layout->tensors[t].split != EXPORT_NOT_SPLIT) {
            place_cut(build, t, loads);
            continue;
        }
        uint32_t least = 0;
        for (uint32_t r = 1; r < world_size; r++)
            least = loads[r] < loads[least] ? r : least;
        layout_add_part(build, t, least, NULL, NULL);
        loads[least] += layout->tensors[t].bytes;
    }
    free(loads);
    return 0;
}

static void describe_shard(const struct export_layout *layout, uint32_t file, struct json_writer *json)
{
    struct json_writer info = {0};
    json_write_open(&info, '{');
    for (size_t t = 0; t < layout->n_tensors; t++) {
        const struct export_part *part = layout_find_part(layout, t, file);
        if (!part)
            continue;
        const struct tensor_record *record = layout->tensors[t].record;
        json_write_key_bytes(&info, record->name, record->name_length);
        json_write_open(&info, '{');
        put_numbers(&info, "saved_offsets", part->start, record->rank);
        json_write_close(&info, '}');
    }
    json_write_close(&info, '}');
    json_put_string(json, "DCP_SHARDING_INFO", info.text, info.length);
    json_put_text(json, "DCP_VERSION", "1.0");
    json_put_text(json, "format", "pt");
    free(info.text);
}

static const struct layout_format layout_dcp = {.name = "dcp", .place = place_shards, .describe = describe_shard};

/* --- the whole --- */

static const struct layout_format *const layout_formats[] = {
    [EXPORT_HF] = &layout_hf, [EXPORT_TOPOLOGY] = &layout_topology, [EXPORT_DCP] = &layout_dcp};

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
    int status = 0;
    for (size_t i = 0; options->format != EXPORT_HF && status == 0 && i < n_tensors; i++)
        status = check_split(&build, &layout->tensors[i]);
    if (status == 0 && layout->format->place(&build) == 0 && place_parts(&build) == 0 && measure_headers(&build) == 0)
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

/* --- which file of an output each tensor goes to, by --mapping --- */

struct mapping_reader {
    struct json json;
    const struct export_tensor *tensors;
    struct map by_name;
    struct arena *arena;
    const char **file_of;
    struct error *error;
};

static int fail_tensor_of_mapping(struct mapping_reader *reader, const struct json_string *tensor, const char *complaint)
{
    fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING", "mapping: tensor '%s' %s",
         text_show_bytes(tensor->text, tensor->length), complaint);
    return error_note_tensor(reader->error, tensor->text, tensor->length);
}

static int take_pair(struct mapping_reader *reader, const struct json_string *tensor)
{
    struct json_string file;
    if (json_peek(&reader->json) != JSON_STRING)
        return fail_tensor_of_mapping(reader, tensor, "is mapped to something that is no file name");
    if (!json_take_string(&reader->json, &file))
        return 0; /* told at the end */
    if (file.length > MAX_FILE_NAME_BYTES || !text_is_plain_name(file.text, file.length) ||
        !text_ends_with(file.text, file.length, SAFETENSORS_SUFFIX))
        return fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING",
                    "mapping: tensor '%s' is mapped to '%s'; files are plain names that end in .safetensors",
                    text_show_bytes(tensor->text, tensor->length), text_show_bytes(file.text, file.length));
    uint32_t index = map_find(&reader->by_name, tensor->text, tensor->length);
    if (index == MAP_NONE)
        return fail_tensor_of_mapping(reader, tensor, "is not among those that are exported");
    if (reader->file_of[index])
        return fail_tensor_of_mapping(reader, tensor, "occurs twice");
    reader->file_of[index] = arena_text(reader->arena, file.text, file.length);
    return 0;
}

static int read_mapping(struct mapping_reader *reader)
{
    struct json_string key;
    char text[JSON_ERROR_CHARS];
    bool has_map = false;
    if (json_begin_object(&reader->json))
        while (json_next_key(&reader->json, &key)) {
            bool is_map = json_string_is(&key, "weight_map");
            if (!is_map) {
                json_skip(&reader->json);
                continue;
            }
            if (has_map)
                json_fail(&reader->json, "weight_map occurs twice");
            has_map = true;
            if (json_begin_object(&reader->json))
                while (json_next_key(&reader->json, &key))
                    if (take_pair(reader, &key) < 0)
                        return -1;
        }
    if (!json_end(&reader->json))
        return fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING", "mapping: %s", json_error(&reader->json, text));
    return has_map ? 0 : fail(reader->error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING", "mapping: there is no weight_map");
}

int export_mapping_parse(const char *text, size_t length, const struct export_tensor *tensors, size_t n_tensors,
                         struct arena *arena, const char **file_of, struct error *error)
{
    struct mapping_reader reader = {.tensors = tensors, .arena = arena, .file_of = file_of, .error = error};
    json_init(&reader.json, text, length, arena);
    map_init(&reader.by_name, n_tensors);
    for (size_t i = 0; i < n_tensors; i++)
        map_add(&reader.by_name, tensors[i].record->name, tensors[i].record->name_length, (uint32_t)i);
    int status = read_mapping(&reader);
    if (status == 0 && n_tensors == 0)
        status = fail(error, ERROR_INVALID_ARGUMENT, "BAD_MAPPING",
                      "mapping: there is no tensor to name, so no file would be written; leave --mapping out");
    for (size_t i = 0; status == 0 && i < n_tensors; i++)
        if (!file_of[i])
            status = fail_tensor_of_mapping(
                &reader, &(struct json_string){tensors[i].record->name, tensors[i].record->name_length}, "is missing");
    map_fini(&reader.by_name);
    return status;
}
