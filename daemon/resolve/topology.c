/* One walk over the JSON into growing arrays; numbers are pointed to by index until they no longer move. What the walk finds
 * wrong is malformed; whether the parts fit together is checked afterwards. */
#include "resolve/topology.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"
#include "base/json_mold.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/cover.h"
#include "resolve/format.h"

struct reader {
    struct json json;
    struct topology *topology;
    size_t file_capacity, tensor_capacity, chunk_capacity, number_capacity;
    struct json_mold chunk_mold; /* of the last chunk that was parsed: offsets, sizes, file */
    uint8_t mold_rank;           /* its offsets, and as many sizes */
    struct error *error;
};

/* A tensor while its fields come, in any order. */
struct fields {
    struct topology_tensor *tensor;
    unsigned seen; /* bits of tensor_fields[] */
    size_t first_chunk, first_file;
    uint32_t n_chunks, n_files; /* of `chunks`; of `filename_indices` or `filename_index` */
};

static int fail_json(struct reader *reader)
{
    char text[JSON_ERROR_CHARS];
    if (reader->json.is_out_of_memory)
        return -1;
    return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_TOPOLOGY", "not a topology: %s", json_error(&reader->json, text));
}

static int fail_tensor(struct reader *reader, const struct topology_tensor *tensor, const char *complaint)
{
    fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_TOPOLOGY", "tensor %s: %s",
         text_show_bytes(tensor->name, tensor->name_length), complaint);
    return error_note_tensor(reader->error, tensor->name, tensor->name_length);
}

/* --- numbers and chunks --- */

/* A list that may be longer than any tensor has dimensions: then its first numbers, and a count that no rank is as large as. */
struct numbers {
    uint64_t list[TENSOR_MAX_RANK + 1];
    uint32_t count;
};

static int read_numbers(struct reader *reader, struct numbers *numbers)
{
    uint64_t number;
    numbers->count = 0;
    if (json_begin_array(&reader->json)) {
        while (json_next_item(&reader->json) && json_take_u64(&reader->json, &number)) {
            if (numbers->count <= TENSOR_MAX_RANK)
                numbers->list[numbers->count++] = number;
        }
    }
    return json_ok(&reader->json) ? 0 : fail_json(reader);
}

static int keep_numbers(struct reader *reader, const uint64_t *list, size_t count)
{
    struct topology *topology = reader->topology;
    while (reader->number_capacity - topology->n_numbers < count)
        if (metadata_reserve((void **)&topology->numbers, &reader->number_capacity, sizeof *topology->numbers,
                             reader->error) < 0)
            return -1;
    memcpy(&topology->numbers[topology->n_numbers], list, count * sizeof *list);
    topology->n_numbers += count;
    return 0;
}

static struct topology_chunk *add_chunk(struct reader *reader)
{
    struct topology *topology = reader->topology;
    if (topology->n_chunks == TOPOLOGY_MAX_CHUNKS) {
        fail(reader->error, ERROR_UNIMPLEMENTED, "TOO_MANY_TENSORS", "more than %d chunks", TOPOLOGY_MAX_CHUNKS);
        return NULL;
    }
    if (METADATA_RESERVE(topology->chunks, topology->n_chunks, reader->chunk_capacity, reader->error) < 0)
        return NULL;
    topology->chunks[topology->n_chunks] = (struct topology_chunk){.file = UINT32_MAX};
    return &topology->chunks[topology->n_chunks++];
}

/* What is no index of any file becomes one that none has. */
static uint32_t file_index(uint64_t file)
{
    return file < UINT32_MAX ? (uint32_t)file : UINT32_MAX;
}

static bool take_file(struct reader *reader, struct topology_chunk *chunk)
{
    uint64_t file;
    if (!json_take_u64(&reader->json, &file))
        return false;
    chunk->file = file_index(file);
    return true;
}

static int read_chunk(struct reader *reader)
{
    enum { OFFSETS = 1, SHAPE = 2, FILE_INDEX = 4, ALL = 7 };
    struct topology_chunk *chunk = add_chunk(reader);
    struct json *json = &reader->json;
    struct numbers offsets, sizes;
    struct json_string key;
    uint64_t molded[JSON_MOLD_MAX_NUMBERS];
    unsigned seen = 0;
    bool is_in_order = true;
    if (!chunk)
        return -1;
    chunk->box_at = reader->topology->n_numbers;
    if (json_mold_take(&reader->chunk_mold, json, molded)) { /* it is written like the one before */
        size_t n = 2 * (size_t)reader->mold_rank;
        chunk->n_offsets = chunk->n_sizes = reader->mold_rank;
        chunk->file = file_index(molded[n]);
        return keep_numbers(reader, molded, n);
    }
    if (!json_begin_object(json))
        return fail_json(reader);
    const char *text = json->at - 1;
    while (json_next_key(json, &key)) {
        unsigned field = json_string_is(&key, "offsets")          ? OFFSETS
                         : json_string_is(&key, "shape")          ? SHAPE
                         : json_string_is(&key, "filename_index") ? FILE_INDEX
                                                                  : 0;
        if (seen & field)
            json_fail(json, "offsets, shape or filename_index occurs twice");
        is_in_order = is_in_order && field > seen;
        seen |= field;
        if (field == 0)
            json_skip(json);
        else if (field == FILE_INDEX)
            take_file(reader, chunk);
        else if (json_ok(json) && read_numbers(reader, field == SHAPE ? &sizes : &offsets) < 0)
            return -1;
    }
    if (json_ok(json) && seen != ALL)
        json_fail(json, "a chunk needs offsets, shape and filename_index");
    if (!json_ok(json))
        return fail_json(reader);
    /* a mold where the numbers of its text are those of the fields, and come in this order */
    reader->mold_rank = (uint8_t)offsets.count;
    reader->chunk_mold.is_set = false;
    if (is_in_order && offsets.count == sizes.count)
        json_mold_set(&reader->chunk_mold, text, (size_t)(json->at - text), 2 * offsets.count + 1);
    chunk->n_offsets = (uint8_t)offsets.count;
    chunk->n_sizes = (uint8_t)sizes.count;
    return keep_numbers(reader, offsets.list, offsets.count) < 0 ? -1 : keep_numbers(reader, sizes.list, sizes.count);
}

/* --- the fields of a tensor --- */

static int read_type(struct reader *reader, struct fields *fields)
{
    struct json_string type;
    if (!json_take_string(&reader->json, &type))
        return fail_json(reader);
    fields->tensor->is_shared = json_string_is(&type, "Shared");
    if (fields->tensor->is_shared || json_string_is(&type, "Distributed"))
        return 0;
    return fail_tensor(reader, fields->tensor, "its type is neither Distributed nor Shared");
}

static int read_dtype(struct reader *reader, struct fields *fields)
{
    struct json_string name;
    if (!json_take_string(&reader->json, &name))
        return fail_json(reader);
    return dtype_parse(name.text, name.length, &fields->tensor->dtype)
               ? 0
               : fail_tensor(reader, fields->tensor, "unknown dtype");
}

static int read_shape(struct reader *reader, struct fields *fields)
{
    struct topology_tensor *tensor = fields->tensor;
    struct numbers shape;
    if (read_numbers(reader, &shape) < 0)
        return -1;
    tensor->shape_at = reader->topology->n_numbers;
    tensor->rank = shape.count;
    return shape.count <= TENSOR_MAX_RANK ? keep_numbers(reader, shape.list, shape.count)
                                          : fail_tensor(reader, tensor, "more than 64 dimensions");
}

static int read_chunks(struct reader *reader, struct fields *fields)
{
    fields->first_chunk = reader->topology->n_chunks;
    if (json_begin_array(&reader->json)) {
        while (json_next_item(&reader->json)) {
            if (read_chunk(reader) < 0)
                return -1;
            fields->n_chunks++;
        }
    }
    return json_ok(&reader->json) ? 0 : fail_json(reader);
}

static int read_file_index(struct reader *reader, struct fields *fields)
{
    struct topology_chunk *chunk = add_chunk(reader);
    fields->first_file = reader->topology->n_chunks - 1;
    fields->n_files = 1;
    if (!chunk)
        return -1;
    return take_file(reader, chunk) ? 0 : fail_json(reader);
}

static int read_file_indices(struct reader *reader, struct fields *fields)
{
    fields->first_file = reader->topology->n_chunks;
    if (json_begin_array(&reader->json)) {
        while (json_next_item(&reader->json)) {
            struct topology_chunk *chunk = add_chunk(reader);
            if (!chunk)
                return -1;
            if (!take_file(reader, chunk))
                break;
            fields->n_files++;
        }
    }
    return json_ok(&reader->json) ? 0 : fail_json(reader);
}

enum { HAS_TYPE = 1, HAS_DTYPE = 2, HAS_SHAPE = 4, HAS_CHUNKS = 8, HAS_FILE = 16, HAS_FILES = 32 };

static const struct {
    const char *key;
    unsigned bit;
    int (*read)(struct reader *reader, struct fields *fields);
} tensor_fields[] = {
    {"type", HAS_TYPE, read_type},
    {"dtype", HAS_DTYPE, read_dtype},
    {"shape", HAS_SHAPE, read_shape},
    {"chunks", HAS_CHUNKS, read_chunks},
    {"filename_index", HAS_FILE, read_file_index},
    {"filename_indices", HAS_FILES, read_file_indices},
};

static int read_fields(struct reader *reader, struct fields *fields)
{
    enum { N_FIELDS = sizeof tensor_fields / sizeof tensor_fields[0] };
    struct json *json = &reader->json;
    struct json_string key;
    if (!json_begin_object(json))
        return fail_json(reader);
    while (json_next_key(json, &key)) {
        unsigned i = 0;
        while (i < N_FIELDS && !json_string_is(&key, tensor_fields[i].key))
            i++;
        if (i == N_FIELDS) {
            json_skip(json);
            continue;
        }
        if (fields->seen & tensor_fields[i].bit)
            return fail_tensor(reader, fields->tensor, "a field occurs twice");
        fields->seen |= tensor_fields[i].bit;
        if (tensor_fields[i].read(reader, fields) < 0)
            return -1;
    }
    return json_ok(json) ? 0 : fail_json(reader);
}

static int count_bytes(struct reader *reader, struct topology_tensor *tensor)
{
    uint64_t bits = 1;
    bool fits = true;
    for (uint32_t d = 0; d < tensor->rank; d++)
        fits = fits && checked_mul(bits, reader->topology->numbers[tensor->shape_at + d], &bits);
    if (!fits || !checked_mul(bits, dtype_bits(tensor->dtype), &bits))
        return fail_tensor(reader, tensor, "the shape is too large for any file");
    tensor->bytes = bits / 8;
    return bits % 8 == 0 ? 0 : fail_tensor(reader, tensor, "its elements do not fill whole bytes");
}

static int read_tensor(struct reader *reader, struct topology_tensor *tensor)
{
    struct fields fields = {.tensor = tensor};
    if (read_fields(reader, &fields) < 0)
        return -1;
    if (~fields.seen & (HAS_TYPE | HAS_DTYPE | HAS_SHAPE))
        return fail_tensor(reader, tensor, "a tensor needs type, shape and dtype");
    if (!tensor->is_shared && !(fields.seen & HAS_CHUNKS))
        return fail_tensor(reader, tensor, "a Distributed tensor needs chunks");
    if (tensor->is_shared && fields.seen & HAS_FILE && fields.seen & HAS_FILES)
        return fail_tensor(reader, tensor, "it has filename_index and filename_indices");
    tensor->lists_files = fields.seen & (HAS_FILE | HAS_FILES);
    tensor->first_chunk = tensor->is_shared ? fields.first_file : fields.first_chunk;
    tensor->n_chunks = tensor->is_shared ? fields.n_files : fields.n_chunks;
    return count_bytes(reader, tensor);
}

/* --- the document --- */

static int read_tensors(struct reader *reader)
{
    struct topology *topology = reader->topology;
    struct json_string name;
    if (!json_begin_object(&reader->json))
        return fail_json(reader);
    while (json_next_key(&reader->json, &name)) {
        if (METADATA_RESERVE(topology->tensors, topology->n_tensors, reader->tensor_capacity, reader->error) < 0)
            return -1;
        struct topology_tensor *tensor = &topology->tensors[topology->n_tensors++];
        *tensor = (struct topology_tensor){.name = name.text, .name_length = name.length};
        if (read_tensor(reader, tensor) < 0)
            return -1;
    }
    return json_ok(&reader->json) ? 0 : fail_json(reader);
}

static int add_file(struct reader *reader, struct map *known, const struct json_string *file)
{
    struct topology *topology = reader->topology;
    if (!part_name_is_plain(file->text, file->length))
        return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_TOPOLOGY",
                    "filenames has \"%s\"; a part file is a plain name in the same folder",
                    text_show_bytes(file->text, file->length));
    if (topology->n_files == TOPOLOGY_MAX_FILES)
        return fail(reader->error, ERROR_UNIMPLEMENTED, "TOO_MANY_FILES", "more than %d part files", TOPOLOGY_MAX_FILES);
    if (METADATA_RESERVE(topology->files, topology->n_files, reader->file_capacity, reader->error) < 0)
        return -1;
    char *copy = arena_try_bytes(&topology->arena, file->length + 1, reader->error);
    if (!copy)
        return -1;
    memcpy(copy, file->text, file->length);
    if (map_add(known, copy, file->length, 0) != MAP_NONE)
        return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_TOPOLOGY", "filenames has %s twice",
                    text_show_bytes(file->text, file->length));
    topology->files[topology->n_files++] = copy;
    return 0;
}

static int read_files(struct reader *reader)
{
    struct json_string file;
    struct map known;
    int failed = 0;
    map_init(&known, 0);
    if (json_begin_array(&reader->json))
        while (!failed && json_next_item(&reader->json) && json_take_string(&reader->json, &file))
            failed = add_file(reader, &known, &file);
    map_fini(&known);
    return failed || json_ok(&reader->json) ? failed : fail_json(reader);
}

static int read_world_size(struct reader *reader)
{
    return json_take_u64(&reader->json, &reader->topology->world_size) ? 0 : fail_json(reader);
}

static int read_document(struct reader *reader)
{
    static const struct {
        const char *key;
        int (*read)(struct reader *reader);
    } fields[] = {{"tensors", read_tensors}, {"filenames", read_files}, {"world_size", read_world_size}};
    enum { N_FIELDS = sizeof fields / sizeof fields[0] };
    struct json_string key;
    unsigned seen = 0;
    if (!json_begin_object(&reader->json))
        return fail_json(reader);
    while (json_next_key(&reader->json, &key)) {
        unsigned i = 0;
        while (i < N_FIELDS && !json_string_is(&key, fields[i].key))
            i++;
        if (i < N_FIELDS && seen & 1u << i)
            json_fail(&reader->json, "tensors, filenames or world_size occurs twice");
        seen |= 1u << i;
        if (i == N_FIELDS)
            json_skip(&reader->json);
        else if (json_ok(&reader->json) && fields[i].read(reader) < 0)
            return -1;
    }
    if (json_ok(&reader->json) && ~seen & ((1u << N_FIELDS) - 1))
        json_fail(&reader->json, "a topology needs tensors, filenames and world_size");
    return json_end(&reader->json) ? 0 : fail_json(reader);
}

static int compare_names(const void *a, const void *b)
{
    const struct topology_tensor *x = a, *y = b;
    size_t shorter = x->name_length < y->name_length ? x->name_length : y->name_length;
    int order = memcmp(x->name, y->name, shorter);
    return order ? order : (x->name_length > y->name_length) - (x->name_length < y->name_length);
}

/* Most writers sort already. */
static int sort_tensors(struct reader *reader)
{
    struct topology *topology = reader->topology;
    size_t n_sorted = 1, n = topology->n_tensors;
    while (n_sorted < n && compare_names(&topology->tensors[n_sorted - 1], &topology->tensors[n_sorted]) < 0)
        n_sorted++;
    if (n_sorted >= n)
        return 0;
    qsort(topology->tensors, n, sizeof *topology->tensors, compare_names);
    for (size_t i = 1; i < n; i++)
        if (compare_names(&topology->tensors[i - 1], &topology->tensors[i]) == 0)
            return fail_tensor(reader, &topology->tensors[i], "the name occurs twice");
    return 0;
}

/* --- the rules of the reference in its order, tensor by tensor in the order of names --- */

struct checker {
    struct topology *topology;
    struct cover cover;
    uint32_t *seen_by; /* per file: the last tensor that has a chunk in it, counted from 1 */
    const uint64_t **boxes;
    size_t boxes_capacity;
    struct error *error;
};

/* `word` is the reference's, `reason` ours. */
__attribute__((format(printf, 5, 6))) static int fail_rule(const struct checker *checker,
                                                           const struct topology_tensor *tensor, const char *reason,
                                                           const char *word, const char *format, ...)
{
    char detail[256 + 2 * TEXT_NAME_CHARS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    fail(checker->error, ERROR_DATA_LOSS, reason, "tensor %s: %s: %s", text_show_bytes(tensor->name, tensor->name_length),
         word, detail);
    return error_note_tensor(checker->error, tensor->name, tensor->name_length);
}

static const char *file_of(const struct checker *checker, const struct topology_chunk *chunk)
{
    return text_show(checker->topology->files[chunk->file]);
}

static int check_files(struct checker *checker, const struct topology_tensor *tensor)
{
    const struct topology *topology = checker->topology;
    const struct topology_chunk *chunks = tensor->n_chunks ? &topology->chunks[tensor->first_chunk] : NULL;
    uint32_t number = (uint32_t)(tensor - topology->tensors) + 1;
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        if (chunks[i].file < topology->n_files)
            continue;
        return fail_rule(checker, tensor, "INVALID_FILENAME_INDEX", "InvalidFilenameIndex",
                         "%s %u is in a file that is not one of the %zu of filenames", tensor->is_shared ? "copy" : "chunk",
                         i, topology->n_files);
    }
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        uint32_t *seen_by = &checker->seen_by[chunks[i].file];
        if (*seen_by == number) {
            return fail_rule(checker, tensor, "DUPLICATE_INDICES", "DuplicateIndices", "it is in %s twice",
                             file_of(checker, &chunks[i]));
        }
        *seen_by = number;
    }
    return 0;
}

static int check_bounds(const struct checker *checker, const struct topology_tensor *tensor)
{
    const struct topology *topology = checker->topology;
    const uint64_t *shape = &topology->numbers[tensor->shape_at];
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        const struct topology_chunk *chunk = &topology->chunks[tensor->first_chunk + i];
        if (chunk->n_offsets != tensor->rank || chunk->n_sizes != tensor->rank) {
            return fail_rule(checker, tensor, "INVALID_CHUNK_DIMENSIONS", "InvalidChunkDimensions",
                             "chunk %u in %s has %u offsets and %u sizes, the tensor %u dimensions", i,
                             file_of(checker, chunk), chunk->n_offsets, chunk->n_sizes, tensor->rank);
        }
        const uint64_t *offsets = &topology->numbers[chunk->box_at], *sizes = offsets + tensor->rank;
        for (uint32_t d = 0; d < tensor->rank; d++) {
            if (offsets[d] <= shape[d] && sizes[d] <= shape[d] - offsets[d])
                continue;
            return fail_rule(checker, tensor, "CHUNK_OUT_OF_BOUNDS", "ChunkOutOfBounds",
                             "chunk %u in %s: %llu elements from %llu on in dimension %u, which has %llu", i,
                             file_of(checker, chunk), (unsigned long long)sizes[d], (unsigned long long)offsets[d], d,
                             (unsigned long long)shape[d]);
        }
    }
    return 0;
}

static int check_cover(struct checker *checker, const struct topology_tensor *tensor)
{
    const struct topology *topology = checker->topology;
    const struct topology_chunk *chunks = tensor->n_chunks ? &topology->chunks[tensor->first_chunk] : NULL;
    const size_t *pair = checker->cover.pair;
    while (checker->boxes_capacity < tensor->n_chunks)
        if (metadata_reserve((void **)&checker->boxes, &checker->boxes_capacity, sizeof *checker->boxes, checker->error) < 0)
            return -1;
    for (uint32_t i = 0; i < tensor->n_chunks; i++)
        checker->boxes[i] = &topology->numbers[chunks[i].box_at];
    switch (
        cover_check(&checker->cover, tensor->rank, &topology->numbers[tensor->shape_at], checker->boxes, tensor->n_chunks)) {
    case COVER_EXACT:
        return 0;
    case COVER_OVERLAPS:
        return fail_rule(checker, tensor, "OVERLAPPING_CHUNKS", "OverlappingChunks",
                         "chunk %zu in %s and chunk %zu in %s have elements in common", pair[0],
                         file_of(checker, &chunks[pair[0]]), pair[1], file_of(checker, &chunks[pair[1]]));
    case COVER_GAP:
        return fail_rule(checker, tensor, "NON_COVERING_CHUNKS", "NonCoveringChunks",
                         "not every element of the tensor is in a chunk");
    case COVER_TOO_COMPLEX:
        return fail(checker->error, ERROR_UNIMPLEMENTED, "LAYOUT_TOO_COMPLEX",
                    "tensor %s is cut in too many ways to be checked in reasonable time",
                    text_show_bytes(tensor->name, tensor->name_length));
    case COVER_NO_MEMORY:
        break;
    }
    return -1;
}

static int compare_files(const void *a, const void *b)
{
    const struct topology_chunk *x = a, *y = b;
    return (x->file > y->file) - (x->file < y->file);
}

static int check_tensor(struct checker *checker, const struct topology_tensor *tensor)
{
    struct topology *topology = checker->topology;
    if (!tensor->is_shared && tensor->n_chunks != topology->world_size) {
        return fail_rule(checker, tensor, "INVALID_CHUNK_COUNT", "InvalidChunkCount", "%u chunks for a world size of %llu",
                         tensor->n_chunks, (unsigned long long)topology->world_size);
    }
    if (tensor->is_shared && tensor->lists_files && !tensor->n_chunks)
        return fail_rule(checker, tensor, "NO_FILE_OF_TENSOR", "InvalidFilenameIndex", "filename_indices is empty");
    if (check_files(checker, tensor) < 0)
        return -1;
    if (!tensor->is_shared && (check_bounds(checker, tensor) < 0 || check_cover(checker, tensor) < 0))
        return -1;
    struct topology_chunk *chunks = tensor->n_chunks ? &topology->chunks[tensor->first_chunk] : NULL;
    uint32_t n_sorted = 1;
    while (n_sorted < tensor->n_chunks && chunks[n_sorted - 1].file < chunks[n_sorted].file)
        n_sorted++;
    if (n_sorted < tensor->n_chunks)
        qsort(chunks, tensor->n_chunks, sizeof *chunks, compare_files);
    return 0;
}

/* Whether all tensors add up. Sorts each one's chunks by file. */
static int check_topology(struct topology *topology, struct error *error)
{
    struct checker checker = {.topology = topology, .cover = {.error = error}, .error = error};
    checker.seen_by = metadata_array(topology->n_files, sizeof *checker.seen_by, error);
    int failed = checker.seen_by ? 0 : -1;
    for (size_t i = 0; i < topology->n_tensors && !failed; i++)
        failed = check_tensor(&checker, &topology->tensors[i]);
    if (!failed &&
        (!topology->world_size || topology->world_size > UINT32_MAX)) /* and no tensor is cut, which tells first */
        failed = fail(error, ERROR_DATA_LOSS, "MALFORMED_TOPOLOGY", "not a topology: world_size is the number of ranks");
    cover_fini(&checker.cover);
    metadata_free(checker.seen_by);
    metadata_free(checker.boxes);
    return failed;
}

struct topology *topology_parse(const char *json, uint64_t json_bytes, struct error *error)
{
    struct reader reader = {.topology = memory_alloc(sizeof *reader.topology), .error = error};
    json_init(&reader.json, json, json_bytes, &reader.topology->arena);
    reader.json.memory_error = error;
    reader.json.is_lenient = true;
    /* there are numbers to point to, also where all tensors are scalars */
    if (METADATA_RESERVE(reader.topology->numbers, 0, reader.number_capacity, error) == 0 && read_document(&reader) == 0 &&
        sort_tensors(&reader) == 0 && check_topology(reader.topology, error) == 0)
        return reader.topology;
    topology_destroy(reader.topology);
    return NULL;
}

void topology_destroy(struct topology *topology)
{
    if (!topology)
        return;
    metadata_free(topology->files);
    metadata_free(topology->tensors);
    metadata_free(topology->chunks);
    metadata_free(topology->numbers);
    arena_fini(&topology->arena);
    free(topology);
}
