/* read_header() walks the JSON into entries, check_names() looks for equal ones, of which the reference silently keeps the
 * last, and validate() sorts by place and applies the rules of the reference reader in its order. Only when all is well is
 * the compact table built. Each pass is a loop of its own: done between the lines of the JSON, looking up names took five
 * times as long. */
#include "resolve/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/crc.h"
#include "base/json.h"
#include "base/json_mold.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/header_store.h"
#include "resolve/shard_index.h"
#include "source/source.h"

struct entry {
    struct json_string name;
    size_t shape_at; /* in reader.dims */
    uint32_t rank;
    enum dtype dtype;
    uint64_t start, end; /* in the data section */
};

enum { N_MOLDS = 4 }; /* weights, norms, another type or two */

struct entry_mold { /* dtype, then shape, then data_offsets, as an entry before had them */
    struct json_mold text;
    enum dtype dtype;
};

struct reader {
    struct json json;
    struct entry_mold molds[N_MOLDS];
    unsigned last_mold;
    struct part_header *names_of; /* whose texts the entries' names have become; NULL = the JSON's or those of `escaped` */
    struct arena escaped;         /* strings that had escapes */
    struct entry *entries;
    size_t n_entries, entry_capacity;
    uint64_t *dims;
    size_t n_dims, dim_capacity;
    struct part_metadata *metadata; /* texts of the JSON, or of `escaped` */
    size_t n_metadata, metadata_capacity;
    bool has_metadata, metadata_is_null; /* which the reference takes for none */
    struct error *error;
};

/* What is often found where a safetensors file should be, by its first bytes, and what to do then. NULL = something else.
 * is_length: as a length of a header they would be possible, so that two of them say nothing. */
static const char *known_stranger(const unsigned char *first, bool is_length)
{
    enum { TELLING = 4 };
    static const struct {
        const char *magic;
        size_t length;
        const char *text;
    } strangers[] = {
        {"version ", 8, "this is a Git LFS pointer, not the file that it stands for; run 'git lfs pull' in its repository"},
        {"PK\3\4", 4, "this is a zip archive, as torch.save writes; " SAFETENSORS_CONVERT_HINT},
        {"GGUF", 4, "this is a GGUF file, which is not read; take the safetensors files that it was made of"},
        {"\x80\x02", 2, "this is a pickle, as torch.save wrote; " SAFETENSORS_CONVERT_HINT},
        {"\x80\x04", 2, "this is a pickle; " SAFETENSORS_CONVERT_HINT},
        {"\x1f\x8b", 2, "this is compressed by gzip; unpack it first"},
        {"{\"", 2, "this is a JSON document; name the folder that it lies in, or a .safetensors file"},
        {"{\n", 2, "this is a JSON document; name the folder that it lies in, or a .safetensors file"},
        {"<!DOCTYP", 8, "this is a web page, as a browser's download of a page that shows the file"},
        {"<!doctyp", 8, "this is a web page, as a browser's download of a page that shows the file"},
        {"<html", 5, "this is a web page, as a browser's download of a page that shows the file"},
    };
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        if ((!is_length || strangers[i].length >= TELLING) && memcmp(first, strangers[i].magic, strangers[i].length) == 0)
            return strangers[i].text;
    return NULL;
}

int safetensors_header_length(const unsigned char *first, uint64_t file_bytes, uint64_t *json_bytes, struct error *error)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | first[i];
    bool is_too_large = length > SAFETENSORS_MAX_HEADER_BYTES, is_beyond = length > file_bytes - 8;
    const char *stranger = is_too_large || is_beyond ? known_stranger(first, !is_too_large) : NULL;
    if (stranger)
        return fail(error, ERROR_DATA_LOSS, "NOT_SAFETENSORS", "%s", stranger);
    if (is_too_large)
        return fail(error, ERROR_DATA_LOSS, "HEADER_TOO_LARGE", "the header claims %llu bytes; the format allows %d",
                    (unsigned long long)length, SAFETENSORS_MAX_HEADER_BYTES);
    if (is_beyond)
        return fail(error, ERROR_DATA_LOSS, "INVALID_HEADER_LENGTH", "the header claims %llu bytes, the file has %llu",
                    (unsigned long long)length, (unsigned long long)file_bytes);
    *json_bytes = length;
    return 0;
}

/* --- reading --- */

static int fail_tensor(struct error *error, enum error_code code, const char *reason, const struct json_string *name,
                       const char *complaint)
{
    fail(error, code, reason, "tensor %s: %s", text_show_bytes(name->text, name->length), complaint);
    return error_note_tensor(error, name->text, name->length);
}

/* The reference checks the encoding before it parses. */
static int fail_json(struct reader *reader)
{
    char text[JSON_ERROR_CHARS];
    if (reader->json.is_out_of_memory)
        return -1;
    return fail(reader->error, ERROR_DATA_LOSS,
                reader->json.has_bad_utf8 ? "INVALID_HEADER" : "INVALID_HEADER_DESERIALIZATION",
                "the header is not as the format wants it: %s", json_error(&reader->json, text));
}

static int fail_entry(struct reader *reader, const struct entry *entry)
{
    fail_json(reader);
    return error_prefix(reader->error, "tensor %s", text_show_bytes(entry->name.text, entry->name.length));
}

static int read_metadata(struct reader *reader)
{
    struct json_string key, value;
    if (reader->has_metadata)
        json_fail(&reader->json, "__metadata__ occurs twice");
    reader->has_metadata = true;
    reader->metadata_is_null = json_peek(&reader->json) == JSON_NULL;
    if (reader->metadata_is_null)
        return json_take_null(&reader->json) ? 0 : fail_json(reader);
    if (json_begin_object(&reader->json)) {
        while (json_next_key(&reader->json, &key) && json_take_string(&reader->json, &value)) {
            if (METADATA_RESERVE(reader->metadata, reader->n_metadata, reader->metadata_capacity, reader->error) < 0)
                return -1;
            reader->metadata[reader->n_metadata++] = (struct part_metadata){key.text, value.text, key.length, value.length};
        }
    }
    return json_ok(&reader->json) ? 0 : fail_json(reader);
}

static int read_dtype(struct reader *reader, struct entry *entry)
{
    struct json_string name;
    if (!json_take_string(&reader->json, &name))
        return fail_entry(reader, entry);
    if (dtype_parse(name.text, name.length, &entry->dtype))
        return 0;
    return fail(reader->error, ERROR_UNIMPLEMENTED, "UNKNOWN_DTYPE", "tensor %s: unknown dtype %s",
                text_show_bytes(entry->name.text, entry->name.length), text_show_bytes(name.text, name.length));
}

static int read_shape(struct reader *reader, struct entry *entry)
{
    entry->shape_at = reader->n_dims;
    if (json_begin_array(&reader->json)) {
        while (json_next_item(&reader->json)) {
            if (entry->rank == TENSOR_MAX_RANK)
                return fail_tensor(reader->error, ERROR_UNIMPLEMENTED, "RANK_TOO_LARGE", &entry->name,
                                   "more than 64 dimensions");
            if (METADATA_RESERVE(reader->dims, reader->n_dims, reader->dim_capacity, reader->error) < 0)
                return -1;
            if (!json_take_u64(&reader->json, &reader->dims[reader->n_dims++]))
                break;
            entry->rank++;
        }
    }
    return json_ok(&reader->json) ? 0 : fail_entry(reader, entry);
}

static int read_offsets(struct reader *reader, struct entry *entry)
{
    struct json *json = &reader->json;
    bool two = json_begin_array(json) && json_next_item(json) && json_take_u64(json, &entry->start) &&
               json_next_item(json) && json_take_u64(json, &entry->end);
    if (!two || json_next_item(json))
        json_fail(json, "data_offsets must be two numbers");
    return json_ok(json) ? 0 : fail_entry(reader, entry);
}

/* 1 = it is written like an entry before, 0 = it is not, -1 = no memory. */
static int take_molded(struct reader *reader, struct entry *entry)
{
    uint64_t numbers[JSON_MOLD_MAX_NUMBERS];
    const struct entry_mold *mold = NULL;
    for (unsigned i = 0; i < N_MOLDS && !mold; i++) {
        unsigned at = (reader->last_mold + N_MOLDS - i) % N_MOLDS;
        if (json_mold_take(&reader->molds[at].text, &reader->json, numbers))
            mold = &reader->molds[at];
    }
    if (!mold)
        return 0;
    entry->dtype = mold->dtype;
    entry->shape_at = reader->n_dims;
    entry->rank = mold->text.n_numbers - 2u;
    for (uint32_t i = 0; i < entry->rank; i++) {
        if (METADATA_RESERVE(reader->dims, reader->n_dims, reader->dim_capacity, reader->error) < 0)
            return -1;
        reader->dims[reader->n_dims++] = numbers[i];
    }
    entry->start = numbers[entry->rank];
    entry->end = numbers[entry->rank + 1];
    return 1;
}

static int read_entry(struct reader *reader, struct entry *entry)
{
    static const struct {
        const char *key;
        int (*read)(struct reader *reader, struct entry *entry);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    enum { N_FIELDS = sizeof fields / sizeof fields[0] };
    struct json_string key;
    unsigned seen = 0;
    bool is_in_order = true;
    int molded = take_molded(reader, entry);
    if (molded)
        return molded < 0 ? -1 : 0;
    if (!json_begin_object(&reader->json))
        return fail_entry(reader, entry);
    const char *text = reader->json.at - 1;
    while (json_next_key(&reader->json, &key)) {
        unsigned i = 0;
        while (i < N_FIELDS && !json_string_is(&key, fields[i].key))
            i++;
        if (i < N_FIELDS && seen & 1u << i)
            json_fail(&reader->json, "dtype, shape or data_offsets occurs twice");
        is_in_order = is_in_order && i < N_FIELDS && 1u << i > seen;
        seen |= 1u << i;
        if (i == N_FIELDS)
            json_skip(&reader->json); /* the reference ignores what it does not know */
        else if (json_ok(&reader->json) && fields[i].read(reader, entry) < 0)
            return -1;
    }
    if (json_ok(&reader->json) && (seen & ((1u << N_FIELDS) - 1)) != (1u << N_FIELDS) - 1)
        json_fail(&reader->json, "dtype, shape or data_offsets is missing");
    if (!json_ok(&reader->json))
        return fail_entry(reader, entry);
    if (is_in_order) { /* the numbers of its text are those of its fields, and come in this order */
        reader->last_mold = (reader->last_mold + 1) % N_MOLDS;
        struct entry_mold *mold = &reader->molds[reader->last_mold];
        mold->dtype = entry->dtype;
        json_mold_set(&mold->text, text, (size_t)(reader->json.at - text), entry->rank + 2);
    }
    return 0;
}

static int read_header(struct reader *reader)
{
    struct json_string key;
    if (!json_begin_object(&reader->json))
        return fail_json(reader);
    while (json_next_key(&reader->json, &key)) {
        if (json_string_is(&key, "__metadata__")) {
            if (read_metadata(reader) < 0)
                return -1;
            continue;
        }
        if (METADATA_RESERVE(reader->entries, reader->n_entries, reader->entry_capacity, reader->error) < 0)
            return -1;
        struct entry *entry = &reader->entries[reader->n_entries++];
        *entry = (struct entry){.name = key};
        if (memchr(key.text, '\0', key.length)) /* C strings and protobuf-c's texts would lose what lies behind it */
            return fail_tensor(reader->error, ERROR_UNIMPLEMENTED, "NUL_IN_NAME", &key,
                               "names with a NUL character cannot be handed on");
        if (read_entry(reader, entry) < 0)
            return -1;
    }
    return json_end(&reader->json) ? 0 : fail_json(reader);
}

/* --- rules --- */

/* Whether the names are those of another header, or some of them, in its order: then none occurs twice, and there is no need
 * to keep them again. */
static bool take_names_of(struct reader *reader, struct part_header *sibling)
{
    size_t n = sibling->n_tensors, at = 0;
    for (size_t i = 0; i < reader->n_entries; i++, at++) {
        struct json_string *name = &reader->entries[i].name;
        while (at < n && (sibling->tensors[at].name_length != name->length ||
                          memcmp(sibling->tensors[at].name, name->text, name->length) != 0))
            at++;
        if (at == n)
            return false;
        name->text = sibling->tensors[at].name; /* the same bytes, also when a later name is another */
    }
    reader->names_of = sibling->names_of ? sibling->names_of : sibling;
    return true;
}

static int check_names(const struct reader *reader)
{
    struct map names;
    size_t i = 0;
    if (map_init_charged(&names, reader->n_entries, reader->error) < 0)
        return -1;
    while (i < reader->n_entries &&
           map_add(&names, reader->entries[i].name.text, reader->entries[i].name.length, 0) == MAP_NONE)
        i++;
    map_fini(&names);
    if (i == reader->n_entries)
        return 0;
    return fail_tensor(reader->error, ERROR_DATA_LOSS, "DUPLICATE_TENSOR", &reader->entries[i].name,
                       "the name occurs twice in the header");
}

/* What has no bytes lies where the next one does: as the header lists them then, each of them has a dimension in reader.dims. */
static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->shape_at > y->shape_at) - (x->shape_at < y->shape_at);
}

static int check_size(struct reader *reader, const struct entry *entry)
{
    uint64_t bits = 1;
    bool fits = true;
    for (uint32_t i = 0; i < entry->rank; i++)
        fits = fits && checked_mul(bits, reader->dims[entry->shape_at + i], &bits);
    if (!fits || !checked_mul(bits, dtype_bits(entry->dtype), &bits))
        return fail_tensor(reader->error, ERROR_DATA_LOSS, "VALIDATION_OVERFLOW", &entry->name,
                           "the shape is too large for any file");
    if (bits % 8)
        return fail_tensor(reader->error, ERROR_DATA_LOSS, "MISALIGNED_SLICE", &entry->name,
                           "its elements do not fill whole bytes");
    if (entry->end - entry->start == bits / 8)
        return 0;
    return fail(reader->error, ERROR_DATA_LOSS, "TENSOR_INVALID_INFO",
                "tensor %s: shape and dtype make %llu bytes, data_offsets %llu",
                text_show_bytes(entry->name.text, entry->name.length), (unsigned long long)(bits / 8),
                (unsigned long long)(entry->end - entry->start));
}

static int validate(struct reader *reader, uint64_t data_bytes)
{
    uint64_t end = 0;
    size_t n_sorted = 1; /* most writers sort already */
    while (n_sorted < reader->n_entries && compare_entries(&reader->entries[n_sorted - 1], &reader->entries[n_sorted]) <= 0)
        n_sorted++;
    if (n_sorted < reader->n_entries)
        qsort(reader->entries, reader->n_entries, sizeof *reader->entries, compare_entries);
    for (size_t i = 0; i < reader->n_entries; i++) {
        const struct entry *entry = &reader->entries[i];
        if (entry->start != end || entry->end < entry->start)
            return fail(reader->error, ERROR_DATA_LOSS, "INVALID_OFFSET",
                        "tensor %s: data_offsets [%llu, %llu] do not continue at %llu, where the tensor before it ends",
                        text_show_bytes(entry->name.text, entry->name.length), (unsigned long long)entry->start,
                        (unsigned long long)entry->end, (unsigned long long)end);
        if (check_size(reader, entry) < 0)
            return -1;
        end = entry->end;
    }
    if (end == data_bytes)
        return 0;
    return fail(reader->error, ERROR_DATA_LOSS, "METADATA_INCOMPLETE_BUFFER",
                "the tensors need %llu data bytes, the file has %llu: it is %s", (unsigned long long)end,
                (unsigned long long)data_bytes, end > data_bytes ? "truncated" : "followed by something else");
}

/* --- the table --- */

static const char *keep_text(struct arena *arena, const char *text, size_t length, struct error *error)
{
    char *copy = arena_try_bytes(arena, length + 1, error);
    return copy ? memcpy(copy, text, length) : NULL; /* the NUL behind it is there: the arena is zeroed */
}

static int keep_metadata(const struct reader *reader, struct part_header *header)
{
    header->n_metadata = reader->n_metadata;
    header->has_metadata = reader->has_metadata && !reader->metadata_is_null;
    header->metadata = arena_try_array(&header->arena, reader->n_metadata, sizeof *header->metadata, reader->error);
    for (size_t i = 0; i < reader->n_metadata && header->metadata; i++) {
        const struct part_metadata *read = &reader->metadata[i];
        struct part_metadata *kept = &header->metadata[i];
        *kept = *read;
        kept->key = keep_text(&header->arena, read->key, read->key_length, reader->error);
        kept->value = keep_text(&header->arena, read->value, read->value_length, reader->error);
        if (!kept->key || !kept->value)
            return -1;
    }
    return header->metadata ? 0 : -1;
}

static struct part_header *build(const struct reader *reader, uint64_t json_bytes, uint64_t file_bytes)
{
    struct part_header *header = memory_alloc(sizeof *header);
    size_t name_bytes = 0;
    for (size_t i = 0; i < reader->n_entries && !reader->names_of; i++)
        name_bytes += reader->entries[i].name.length + 1;
    header->references = 1;
    header->data_offset = 8 + json_bytes;
    header->file_bytes = file_bytes;
    header->n_tensors = reader->n_entries;
    header->tensors = arena_try_array(&header->arena, reader->n_entries, sizeof *header->tensors, reader->error);
    uint64_t *dims = arena_try_array(&header->arena, reader->n_dims, sizeof *dims, reader->error);
    char *names = arena_try(&header->arena, name_bytes, reader->error);
    header->names_of = reader->names_of ? part_header_ref(reader->names_of) : NULL;
    if (!header->tensors || !dims || !names || keep_metadata(reader, header) < 0) {
        part_header_unref(header);
        return NULL;
    }
    if (reader->n_dims)
        memcpy(dims, reader->dims, reader->n_dims * sizeof *dims);
    for (size_t i = 0; i < reader->n_entries; i++) {
        const struct entry *entry = &reader->entries[i];
        const char *name = entry->name.text;
        if (!reader->names_of) { /* the NUL behind it is there: the arena is zeroed */
            name = memcpy(names, name, entry->name.length);
            names += entry->name.length + 1;
        }
        header->tensors[i] = (struct stored_tensor){
            .name = name,
            .name_length = (uint32_t)entry->name.length,
            .dtype = entry->dtype,
            .rank = entry->rank,
            .shape = dims + entry->shape_at,
            .offset = header->data_offset + entry->start,
            .bytes = entry->end - entry->start,
        };
    }
    return header;
}

static struct part_header *parse_with(const char *json, uint64_t json_bytes, uint64_t file_bytes, struct format_help *help,
                                      struct error *error)
{
    struct reader reader = {.entries = help->entries,
                            .entry_capacity = help->entry_capacity,
                            .dims = help->dims,
                            .dim_capacity = help->dim_capacity,
                            .error = error};
    struct part_header *header = NULL;
    unsigned char first[8];
    arena_init(&reader.escaped, 0);
    json_init(&reader.json, json, json_bytes, &reader.escaped);
    reader.json.memory_error = error;
    if (read_header(&reader) == 0 &&
        ((help->sibling && take_names_of(&reader, help->sibling)) || check_names(&reader) == 0) &&
        validate(&reader, file_bytes - 8 - json_bytes) == 0)
        header = build(&reader, json_bytes, file_bytes);
    /* the bytes before the data are read apart from it, or come from a cache: their sums let the whole file's be checked */
    for (int i = 0; i < 8; i++)
        first[i] = (unsigned char)(json_bytes >> 8 * i);
    for (enum checksum_kind kind = CHECKSUM_CRC32C; header && kind <= CHECKSUM_CRC64NVME; kind++)
        header->prefix_crcs[kind] = crc_update(kind, crc_update(kind, 0, first, sizeof first), json, json_bytes);
    help->entries = reader.entries;
    help->entry_capacity = reader.entry_capacity;
    help->dims = reader.dims;
    help->dim_capacity = reader.dim_capacity;
    metadata_free(reader.metadata);
    arena_fini(&reader.escaped);
    return header;
}

struct part_header *safetensors_parse(const char *json, uint64_t json_bytes, uint64_t file_bytes, struct error *error)
{
    struct format_help help = {0};
    struct part_header *header = parse_with(json, json_bytes, file_bytes, &help, error);
    format_help_fini(&help);
    return header;
}

/* Hidden files are left out: "._model.safetensors" is what macOS leaves beside a copy. */
static bool is_part(const char *file_name)
{
    return file_name[0] != '.' && source_format_safetensors.is_part(file_name);
}

const char *const safetensors_single_names[] = {SAFETENSORS_SINGLE_NAME, SAFETENSORS_DIFFUSION_NAME, NULL};
const char *const safetensors_index_names[] = {SHARD_INDEX_NAME, SHARD_INDEX_DIFFUSION_NAME, NULL};

const struct format format_safetensors = {
    .name = "safetensors",
    .single_names = safetensors_single_names,
    .index_names = safetensors_index_names,
    .pattern = "*" SAFETENSORS_SUFFIX,
    .probe = is_part,
    .source_format = &source_format_safetensors,
    .cache_kind = HEADER_KIND_SAFETENSORS,
    .first_bytes = 8,
    .length = safetensors_header_length,
    .parse = parse_with,
};
