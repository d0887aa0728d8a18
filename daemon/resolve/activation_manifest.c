/* A host's manifest is replaced by a rename while the store is appended to: one that went meanwhile is looked for again. Segments
 * that it does not list yet are in no manifest for this artifact, which is no error. */
#include "resolve/activation_manifest.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/activation_name.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/metadata.h"

enum { CRC_CHARS = 8, READ_TRIES = 20, PAUSE_MS = 5 };

bool activation_manifest_is_segment(const char *name)
{
    char folder[ACTIVATION_NAME_CHARS] = "";
    const char *slash = strchr(name, '/');
    uint32_t number;
    if (slash && (size_t)(slash - name) < sizeof folder)
        memcpy(folder, name, (size_t)(slash - name));
    return (!slash || activation_parse_host(folder, &number)) &&
           activation_parse_segment(slash ? slash + 1 : name, ACTIVATION_SEALED, &number);
}

/* --- one document --- */

struct reader {
    struct json json;
    struct manifest *manifest;
    size_t *room;
    const char *folder;
    struct json_string format;
    struct error *error;
};

static char *copy_text(struct reader *reader, const char *folder, const struct json_string *text)
{
    size_t before = *folder ? strlen(folder) + 1 : 0;
    char *copy = arena_try_bytes(&reader->manifest->arena, before + text->length + 1, reader->error);
    if (!copy) {
        reader->json.is_out_of_memory = true;
        json_fail(&reader->json, "too much");
        return NULL;
    }
    memcpy(copy, folder, before ? before - 1 : 0);
    if (before)
        copy[before - 1] = '/';
    memcpy(copy + before, text->text, text->length);
    return copy;
}

static bool take_name(struct reader *reader, struct manifest_file *file)
{
    struct json_string text;
    if (!json_take_string(&reader->json, &text))
        return false;
    if (memchr(text.text, '\0', text.length) || memchr(text.text, '/', text.length))
        return json_fail(&reader->json, "a name that is none of a segment");
    file->name = copy_text(reader, reader->folder, &text);
    return file->name &&
           (activation_manifest_is_segment(file->name) || json_fail(&reader->json, "a name that is none of a segment"));
}

static bool take_sum(struct reader *reader, enum checksum_kind kind, struct checksum *sum)
{
    struct json_string text;
    char digits[CHECKSUM_TEXT_CHARS] = "";
    if (!json_take_string(&reader->json, &text))
        return false;
    if (text.length < sizeof digits)
        memcpy(digits, text.text, text.length);
    return checksum_parse_hex(kind, digits, sum) || json_fail(&reader->json, "a checksum that is none");
}

static bool take_arrays(struct reader *reader, struct manifest_file *file)
{
    struct json_string text;
    if (!json_take_string(&reader->json, &text))
        return false;
    if (text.length % CRC_CHARS)
        return json_fail(&reader->json, "half a checksum");
    for (size_t i = 0; i < text.length; i++) {
        if (!memchr("0123456789abcdefABCDEF", text.text[i], 22))
            return json_fail(&reader->json, "checksums that are not in hex");
    }
    file->n_arrays = text.length / CRC_CHARS;
    file->arrays = copy_text(reader, "", &text);
    return file->arrays;
}

static bool take_member(struct reader *reader, const struct json_string *key, struct manifest_file *file, bool *has_bytes)
{
    if (json_string_is(key, "file"))
        return take_name(reader, file);
    if (json_string_is(key, "bytes"))
        return *has_bytes = json_take_u64(&reader->json, &file->bytes);
    if (json_string_is(key, "sha256"))
        return take_sum(reader, CHECKSUM_SHA256, &file->sha256);
    if (json_string_is(key, "crc32c"))
        return take_sum(reader, CHECKSUM_CRC32C, &file->crc32c);
    if (json_string_is(key, "header_crc32c"))
        return take_sum(reader, CHECKSUM_CRC32C, &file->header);
    if (json_string_is(key, "array_crc32c"))
        return take_arrays(reader, file);
    return json_skip(&reader->json);
}

static bool take_segment(struct reader *reader)
{
    struct manifest *manifest = reader->manifest;
    struct manifest_file file = {.version = ""};
    struct json_string key;
    bool has_bytes = false;
    if (!json_begin_object(&reader->json))
        return false;
    while (json_next_key(&reader->json, &key)) {
        if (!take_member(reader, &key, &file, &has_bytes))
            return false;
    }
    if (!json_ok(&reader->json) || !file.name || !has_bytes)
        return json_fail(&reader->json, "a segment without a name or a size");
    if (METADATA_RESERVE(manifest->files, manifest->n_files, *reader->room, reader->error) < 0) {
        reader->json.is_out_of_memory = true;
        return json_fail(&reader->json, "too much");
    }
    manifest->files[manifest->n_files++] = file;
    return true;
}

static bool take_document(struct reader *reader)
{
    struct json *json = &reader->json;
    struct json_string key;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        bool is_good = true;
        if (json_string_is(&key, "format"))
            is_good = json_take_string(json, &reader->format);
        else if (!json_string_is(&key, "segments"))
            is_good = json_skip(json);
        else if (json_begin_array(json))
            while (is_good && json_next_item(json))
                is_good = take_segment(reader);
        if (!is_good || !json_ok(json))
            return false;
    }
    return json_end(json);
}

int activation_manifest_add(struct manifest *manifest, size_t *room, const char *folder, const char *json,
                            uint64_t json_bytes, struct error *error)
{
    struct reader reader = {.manifest = manifest, .room = room, .folder = folder, .error = error};
    size_t before = manifest->n_files;
    char complaint[JSON_ERROR_CHARS];
    json_init(&reader.json, json, json_bytes, &manifest->arena);
    reader.json.memory_error = error;
    bool is_good = take_document(&reader);
    bool is_other = reader.format.text && !json_string_is(&reader.format, ACTIVATION_MANIFEST_FORMAT);
    if (is_other || (is_good && !reader.format.text)) {
        manifest->n_files = before;
        return 0;
    }
    if (is_good)
        return 0;
    if (reader.json.is_out_of_memory)
        return -1;
    return fail(error, ERROR_DATA_LOSS, "BAD_MANIFEST",
                "it is damaged: %s; removed, it is made anew from the segments that are here",
                json_error(&reader.json, complaint));
}

/* --- those of all hosts --- */

/* Of what a document makes of the segments' names, which begin with the folder. */
struct known_key {
    struct source_identity identity;
    char folder[ACTIVATION_NAME_CHARS];
};

struct hosts {
    const struct source *source;
    struct source *beside;
    const struct source_options *options;
    const struct lookup *lookup;
    struct manifest *manifest;
    size_t room;
    bool is_one;  /* all is of one document, which is asked for anew with each run of segments */
    bool is_kept; /* then, where it can be known to be the same, for the next time by ... */
    struct known_key key;
    struct manifest *known; /* from the last time; NULL = it is none */
};

static struct manifest *find_known(struct hosts *hosts, const struct source *beside, size_t file, const char *folder)
{
    struct header_cache *cache = lookup_cache(hosts->lookup, beside, file);
    hosts->is_kept = hosts->is_one && cache && strlen(folder) < sizeof hosts->key.folder;
    if (!hosts->is_kept)
        return NULL;
    memset(&hosts->key, 0, sizeof hosts->key);
    hosts->key.identity = beside->files[file].identity;
    memcpy(hosts->key.folder, folder, strlen(folder));
    return hosts->lookup->fresh ? NULL : header_cache_find_manifest(cache, &hosts->key, sizeof hosts->key);
}

/* 1: there is none. */
static int read_once(struct hosts *hosts, struct source *beside, const char *folder, const char *name, struct error *error)
{
    static const struct document_kind kind = {"a manifest", MANIFEST_MAX_BYTES, "MALFORMED_MANIFEST"};
    struct lookup uncounted = *hosts->lookup;
    struct document text;
    size_t file;
    if (source_add_file(beside, name, &file, error) < 0) {
        bool is_told =
            beside->caps.asks_server ? !source_may_be_absent(beside, error) : error->kind == ERROR_KIND_SOURCE_BEING_WRITTEN;
        return is_told ? -1 : 1;
    }
    if (beside->files[file].size_bytes > MANIFEST_MAX_BYTES)
        return 1;
    hosts->known = find_known(hosts, beside, file, folder);
    if (hosts->known)
        return 0;
    if (document_read(&uncounted, beside, file, &kind, &text, error) < 0)
        return -1;
    int failed = activation_manifest_add(hosts->manifest, &hosts->room, folder, text.text, text.bytes, error);
    if (!failed && beside->caps.reads_are_requests) /* on a disk each sealed segment makes a new one, which is near */
        document_keep(hosts->lookup, beside, file, &text);
    document_free(&text);
    return failed;
}

static bool was_replaced(const struct error *error)
{
    return source_has_changed(error) || error->kind == ERROR_KIND_SOURCE_BEING_WRITTEN;
}

static int read_host(struct hosts *hosts, const char *folder, const char *name, struct error *error)
{
    int status = read_once(hosts, hosts->beside, folder, name, error);
    for (int n = 1; status < 0 && was_replaced(error) && n < READ_TRIES; n++) {
        struct source *again = NULL;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * NS_PER_MS}, NULL);
        if (cancel_is_set(hosts->options->cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while the artifact was resolved");
        status = source_open_beside(hosts->beside, hosts->options, &again, error);
        if (status == 0)
            status = read_once(hosts, again, folder, name, error);
        source_unref(again);
    }
    return status < 0 ? error_prefix(error, "%s", name) : 0;
}

/* Of a file's name; the folder of the store's files that lie beside each other is one behind the other. */
static char *folder_of(const char *name)
{
    const char *slash = strchr(name, '/');
    return memory_print("%.*s", slash ? (int)(slash - name) : 0, name);
}

static size_t list_folders(const struct source *source, char **folders, char **names)
{
    size_t n = 0;
    for (size_t i = 0; i < source->n_files; i++) {
        char *folder = folder_of(source->files[i].name);
        if (n > 0 && strcmp(folders[n - 1], folder) == 0) {
            free(folder);
            continue;
        }
        folders[n] = folder;
        names[n++] = memory_print("%s%s" ACTIVATION_MANIFEST, folder, *folder ? "/" : "");
    }
    return n;
}

static int read_hosts(struct hosts *hosts, struct error *error)
{
    const struct source *source = hosts->source;
    char **folders = memory_alloc_array(source->n_files, sizeof *folders);
    char **names = memory_alloc_array(source->n_files, sizeof *names);
    size_t n = list_folders(source, folders, names);
    hosts->is_one = n == 1;
    int failed = source_expect(hosts->beside, (const char *const *)names, n, error);
    for (size_t i = 0; i < n && !failed; i++)
        failed = read_host(hosts, folders[i], names[i], error);
    for (size_t i = 0; i < n; i++) {
        free(folders[i]);
        free(names[i]);
    }
    free(folders);
    free(names);
    return failed;
}

struct manifest *activation_manifest_read(const struct source *source, struct source *beside,
                                          const struct source_options *options, const struct lookup *lookup,
                                          struct error *problem)
{
    struct hosts hosts = {.source = source, .beside = beside, .options = options, .lookup = lookup};
    for (size_t i = 0; i < source->n_files; i++) {
        if (!activation_manifest_is_segment(source->files[i].name))
            return NULL;
    }
    struct error error;
    hosts.manifest = manifest_create();
    int failed = read_hosts(&hosts, &error) < 0;
    if (hosts.known) {
        manifest_unref(hosts.manifest);
        return hosts.known;
    }
    failed = failed || manifest_index(hosts.manifest, &error) < 0;
    if (!failed && hosts.is_kept)
        header_cache_add_manifest(lookup->cache, &hosts.key, sizeof hosts.key, hosts.manifest);
    if (!failed && hosts.manifest->n_files > 0)
        return hosts.manifest;
    if (failed)
        *problem = error;
    manifest_unref(hosts.manifest);
    return NULL;
}
