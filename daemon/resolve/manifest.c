/* One walk over the JSON, for manifests of checkpoints and of an activation store's hosts. What is not known is skipped, so that later versions may add to a file; what is known must be
 * right and agree with itself: names once, as many blocks as the size has. See manifest.h. */
#include "resolve/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/activation_name.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/format.h"
#include "resolve/safetensors.h"
#include "source/source.h"

enum { CRC_CHARS = 8 };

struct reader {
    struct json json;
    struct manifest *manifest;
    size_t *file_room, tensor_room;
    const char *folder; /* of a host, whose "segments" these are, before their names; NULL = "files" of a checkpoint */
    struct json_string blocks; /* of the file at hand */
    bool has_blocks, has_bytes;
    uint64_t version;
    struct json_string format;
    struct error *error;
};

static int fail_manifest(struct reader *reader, const char *complaint)
{
    return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_MANIFEST", "not a manifest: %s", complaint);
}

static int fail_file(struct reader *reader, const struct manifest_file *file, const char *complaint)
{
    return fail(reader->error, ERROR_DATA_LOSS, "MALFORMED_MANIFEST", "not a manifest: file %s %s",
                file->name ? text_show(file->name) : "without a name", complaint);
}

static bool out_of_memory(struct reader *reader)
{
    reader->json.is_out_of_memory = true;
    return json_fail(&reader->json, "too much");
}

/* As C has it, below a folder ("" = none). NULL: the document is not read on. */
static const char *copy_text(struct reader *reader, const char *folder, const struct json_string *text)
{
    size_t before = *folder ? strlen(folder) + 1 : 0;
    char *copy = arena_try_bytes(&reader->manifest->arena, before + text->length + 1, reader->error);
    if (!copy) {
        out_of_memory(reader);
        return NULL;
    }
    if (before) {
        memcpy(copy, folder, before - 1);
        copy[before - 1] = '/';
    }
    return (char *)memcpy(copy + before, text->text, text->length) - before;
}

/* A text without NULs. */
static bool take_text(struct reader *reader, const char *folder, const char **text)
{
    struct json_string value;
    if (!json_take_string(&reader->json, &value))
        return false;
    if (memchr(value.text, '\0', value.length) || (reader->folder && memchr(value.text, '/', value.length)))
        return json_fail(&reader->json, "a text with a NUL or a slash");
    *text = copy_text(reader, folder, &value);
    return *text != NULL;
}

static bool take_checksum(struct reader *reader, enum checksum_kind kind, struct checksum *checksum)
{
    const char *text;
    if (!take_text(reader, "", &text))
        return false;
    return checksum_parse_hex(kind, text, checksum) || json_fail(&reader->json, "a checksum that is none");
}

/* --- tensors --- */

static bool take_tensor(struct reader *reader, const struct json_string *name)
{
    struct manifest *manifest = reader->manifest;
    struct checksum sum;
    if (name->length > UINT32_MAX || manifest->n_tensors == UINT32_MAX - 1)
        return json_fail(&reader->json, "too many tensors");
    if (!take_checksum(reader, CHECKSUM_CRC32C, &sum))
        return false;
    const char *copy = copy_text(reader, "", name);
    if (!copy || METADATA_RESERVE(manifest->tensors, manifest->n_tensors, reader->tensor_room, reader->error) < 0)
        return out_of_memory(reader);
    manifest->tensors[manifest->n_tensors++] = (struct manifest_tensor){
        .name = copy,
        .name_length = (uint32_t)name->length,
        .file = (uint32_t)manifest->n_files, /* which is about to be added */
        .crc32c = (uint32_t)checksum_crc(&sum),
    };
    return true;
}

/* --- files --- */

/* CRC-32C of array after array, which stay in hex: there are as many as samples. */
static void take_arrays(struct reader *reader, struct manifest_file *file)
{
    if (!take_text(reader, "", &file->arrays))
        return;
    size_t length = strlen(file->arrays);
    file->n_arrays = length / CRC_CHARS;
    if (length % CRC_CHARS || strspn(file->arrays, "0123456789abcdefABCDEF") != length)
        json_fail(&reader->json, "checksums that are not in hex");
}

static void take_file_value(struct reader *reader, const struct json_string *key, struct manifest_file *file)
{
    struct json *json = &reader->json;
    struct json_string name;
    const char *folder = reader->folder;
    if (json_string_is(key, folder ? "file" : "name"))
        take_text(reader, folder ? folder : "", &file->name);
    else if (json_string_is(key, "bytes"))
        reader->has_bytes = json_take_u64(json, &file->bytes);
    else if (json_string_is(key, "sha256"))
        take_checksum(reader, CHECKSUM_SHA256, &file->sha256);
    else if (json_string_is(key, "crc32c"))
        take_checksum(reader, CHECKSUM_CRC32C, &file->crc32c);
    else if (json_string_is(key, "header_crc32c"))
        take_checksum(reader, CHECKSUM_CRC32C, &file->header);
    else if (folder && json_string_is(key, "array_crc32c"))
        take_arrays(reader, file);
    else if (!folder && json_string_is(key, "version"))
        take_text(reader, "", &file->version);
    else if (!folder && json_string_is(key, "blocks"))
        reader->has_blocks = json_take_string(json, &reader->blocks);
    else if (folder || !json_string_is(key, "tensors"))
        json_skip(json);
    else if (json_begin_object(json))
        while (json_next_key(json, &name))
            take_tensor(reader, &name);
}

/* One string of 8 hex digits per block: kept as text until block_bytes is known, which may stand behind it. */
static int keep_blocks(struct reader *reader, struct manifest_file *file)
{
    struct manifest *manifest = reader->manifest;
    if (!reader->has_blocks)
        return 0;
    if (reader->blocks.length % CRC_CHARS)
        return fail_file(reader, file, "has half a block's checksum");
    file->n_blocks = reader->blocks.length / CRC_CHARS;
    uint32_t *blocks = arena_try_array(&manifest->arena, file->n_blocks + 1, sizeof *blocks, reader->error);
    if (!blocks)
        return -1;
    for (uint64_t i = 0; i < file->n_blocks; i++) {
        char digits[CRC_CHARS + 1] = {0};
        struct checksum sum;
        memcpy(digits, reader->blocks.text + i * CRC_CHARS, CRC_CHARS);
        if (!checksum_parse_hex(CHECKSUM_CRC32C, digits, &sum))
            return fail_file(reader, file, "has blocks that are not in hex");
        blocks[i] = (uint32_t)checksum_crc(&sum);
    }
    file->blocks = blocks;
    return 0;
}

static int take_file(struct reader *reader)
{
    struct manifest *manifest = reader->manifest;
    struct manifest_file file = {.version = ""};
    struct json_string key;
    reader->has_blocks = reader->has_bytes = false;
    if (json_begin_object(&reader->json))
        while (json_next_key(&reader->json, &key))
            take_file_value(reader, &key, &file);
    if (!json_ok(&reader->json))
        return -1;
    size_t length = file.name ? strlen(file.name) : 0;
    if (!length || !(reader->folder ? activation_is_segment(file.name) : part_name_is_below(file.name, length)))
        return fail_file(reader, &file, reader->folder ? "is no segment" : "is to lie in the same folder or below it");
    if (!reader->has_bytes)
        return fail_file(reader, &file, "has no size");
    if (keep_blocks(reader, &file) < 0)
        return -1;
    if (manifest->n_files == MANIFEST_MAX_FILES && !reader->folder)
        return fail_manifest(reader, "too many files");
    if (METADATA_RESERVE(manifest->files, manifest->n_files, *reader->file_room, reader->error) < 0)
        return -1;
    manifest->files[manifest->n_files++] = file;
    return 0;
}

/* --- the document --- */

static int take_value(struct reader *reader, const struct json_string *key)
{
    if (json_string_is(key, "format"))
        json_take_string(&reader->json, &reader->format);
    else if (!reader->folder && json_string_is(key, "version"))
        json_take_u64(&reader->json, &reader->version);
    else if (!reader->folder && json_string_is(key, "block_bytes"))
        json_take_u64(&reader->json, &reader->manifest->block_bytes);
    else if (!json_string_is(key, reader->folder ? "segments" : "files"))
        json_skip(&reader->json);
    else if (reader->manifest->n_files && !reader->folder)
        return fail_manifest(reader, "files occurs twice");
    else if (!json_begin_array(&reader->json))
        return -1;
    else
        while (json_next_item(&reader->json))
            if (take_file(reader) < 0)
                return -1;
    return 0;
}

static int check_blocks(struct reader *reader)
{
    const struct manifest *manifest = reader->manifest;
    uint64_t block_bytes = manifest->block_bytes;
    for (size_t i = 0; i < manifest->n_files; i++) {
        const struct manifest_file *file = &manifest->files[i];
        if (!file->blocks)
            continue;
        if (block_bytes < MANIFEST_MIN_BLOCK_BYTES || block_bytes > MANIFEST_MAX_BLOCK_BYTES ||
            (block_bytes & (block_bytes - 1)) != 0)
            return fail_manifest(reader, "block_bytes is no power of two from 4 KiB to 64 MiB");
        if (file->n_blocks != file->bytes / block_bytes + (file->bytes % block_bytes != 0))
            return fail_file(reader, file, "has another number of blocks than its size has");
    }
    return 0;
}

int manifest_index(struct manifest *manifest, struct error *error)
{
    if (map_init_charged(&manifest->file_by_name, manifest->n_files, error) < 0 ||
        map_init_charged(&manifest->tensor_by_name, manifest->n_tensors, error) < 0)
        return -1;
    for (size_t i = 0; i < manifest->n_files; i++)
        if (map_add(&manifest->file_by_name, manifest->files[i].name, strlen(manifest->files[i].name), (uint32_t)i) !=
            MAP_NONE)
            return fail(error, ERROR_DATA_LOSS, "MALFORMED_MANIFEST", "not a manifest: file %s occurs twice",
                        text_show(manifest->files[i].name));
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const struct manifest_tensor *tensor = &manifest->tensors[i];
        if (map_add(&manifest->tensor_by_name, tensor->name, tensor->name_length, (uint32_t)i) != MAP_NONE)
            return fail(error, ERROR_DATA_LOSS, "MALFORMED_MANIFEST", "not a manifest: tensor %s occurs twice",
                        text_show_bytes(tensor->name, tensor->name_length));
    }
    return 0;
}

static int read_members(struct reader *reader)
{
    struct json_string key;
    char text[JSON_ERROR_CHARS];
    int failed = 0;
    if (json_begin_object(&reader->json))
        while (!failed && json_next_key(&reader->json, &key))
            failed = take_value(reader, &key);
    if (reader->json.is_out_of_memory)
        return -1;
    if (!json_ok(&reader->json) || (!failed && !json_end(&reader->json)))
        return fail_manifest(reader, json_error(&reader->json, text));
    return failed;
}

struct manifest *manifest_create(void)
{
    struct manifest *manifest = memory_alloc(sizeof *manifest);
    manifest->n_refs = 1;
    arena_init(&manifest->arena, 0);
    return manifest;
}

struct manifest *manifest_parse(const char *json, uint64_t json_bytes, struct error *error)
{
    struct manifest *manifest = manifest_create();
    size_t room = 0;
    struct reader reader = {.manifest = manifest, .file_room = &room, .error = error};
    json_init(&reader.json, json, json_bytes, &manifest->arena);
    reader.json.memory_error = error;
    int failed = json_bytes > MANIFEST_MAX_BYTES ? fail_manifest(&reader, "it is too large") : read_members(&reader);
    if (!failed && (!reader.format.text || !json_string_is(&reader.format, MANIFEST_FORMAT)))
        failed = fail_manifest(&reader, "\"format\" is not \"" MANIFEST_FORMAT "\"");
    if (!failed && reader.version != MANIFEST_VERSION)
        failed = fail(error, ERROR_UNIMPLEMENTED, "UNKNOWN_MANIFEST_VERSION",
                      "the manifest has version %llu; this tensorcast knows %d", (unsigned long long)reader.version,
                      MANIFEST_VERSION);
    if (!failed && check_blocks(&reader) == 0 && manifest_index(manifest, error) == 0)
        return manifest;
    manifest_unref(manifest);
    return NULL;
}

int manifest_add_segments(struct manifest *manifest, size_t *room, const char *folder, const char *json, uint64_t json_bytes,
                          struct error *error)
{
    struct reader reader = {.manifest = manifest, .file_room = room, .folder = folder, .error = error};
    size_t before = manifest->n_files;
    json_init(&reader.json, json, json_bytes, &manifest->arena);
    reader.json.memory_error = error;
    int failed = read_members(&reader);
    bool is_other = reader.format.text && !json_string_is(&reader.format, ACTIVATION_MANIFEST_FORMAT);
    if (is_other || (!failed && !reader.format.text)) {
        manifest->n_files = before;
        return 0;
    }
    if (!failed || error->code != ERROR_DATA_LOSS)
        return failed;
    struct error cause = *error;
    return fail(error, ERROR_DATA_LOSS, "BAD_MANIFEST",
                "it is damaged: %s; removed, it is made anew from the segments that are here", cause.message);
}

struct manifest *manifest_ref(struct manifest *manifest)
{
    __atomic_add_fetch(&manifest->n_refs, 1, __ATOMIC_RELAXED);
    return manifest;
}

uint64_t manifest_memory_bytes(const struct manifest *manifest)
{
    return sizeof *manifest + manifest->arena.total_bytes + manifest->n_files * sizeof *manifest->files +
           manifest->n_tensors * sizeof *manifest->tensors;
}

void manifest_unref(struct manifest *manifest)
{
    if (!manifest || __atomic_sub_fetch(&manifest->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    map_fini(&manifest->file_by_name);
    map_fini(&manifest->tensor_by_name);
    metadata_free(manifest->files);
    metadata_free(manifest->tensors);
    arena_fini(&manifest->arena);
    free(manifest);
}

const struct manifest_file *manifest_find_file(const struct manifest *manifest, const char *name)
{
    uint32_t found = map_find(&manifest->file_by_name, name, strlen(name));
    return found == MAP_NONE ? NULL : &manifest->files[found];
}

const struct manifest_tensor *manifest_find_tensor(const struct manifest *manifest, const char *name, size_t name_length)
{
    uint32_t found = map_find(&manifest->tensor_by_name, name, name_length);
    return found == MAP_NONE ? NULL : &manifest->tensors[found];
}

char *manifest_name(const char *file_name)
{
    size_t length = file_name ? strlen(file_name) : 0;
    if (!file_name)
        return memory_copy_text("model" MANIFEST_SUFFIX);
    if (length > strlen(SAFETENSORS_SUFFIX) && source_format_safetensors.is_part(file_name))
        length -= strlen(SAFETENSORS_SUFFIX);
    return memory_print("%.*s" MANIFEST_SUFFIX, (int)length, file_name);
}
