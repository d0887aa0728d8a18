/* The checked wrappers: contracts that every backend relies on are kept here. */
#include "source/source.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "source/http/http_fence.h"
#include "source/stores.h"

static int fail_reference(const char *reference, enum error_code code, const char *complaint, struct error *error)
{
    char *shown = redact_copy(reference), name[TEXT_NAME_CHARS];
    fail(error, code, code == ERROR_UNIMPLEMENTED ? "UNKNOWN_SCHEME" : "BAD_REFERENCE", "%s: %s",
         text_escape(shown, strlen(shown), name), complaint);
    free(shown);
    return -1;
}

/* Offers what there is: "there are disk:, https: and s3:". */
static int fail_scheme(const char *reference, struct error *error)
{
    char *list = memory_copy_text(""), *complaint;
    const char *last = NULL;
    for (const struct store *const *store = store_table; *store; store++) {
        if ((*store)->is_internal)
            continue;
        char *longer = last ? memory_print("%s%s%s:", list, *list ? ", " : " ", last) : memory_copy_text("");
        free(list);
        list = longer;
        last = (*store)->scheme;
    }
    complaint = memory_print("no such kind of source is built in; there are%s%s %s:", list, *list ? " and" : "", last);
    fail_reference(reference, ERROR_UNIMPLEMENTED, complaint, error);
    free(complaint);
    free(list);
    return -1;
}

/* FNV-1a: who makes two servers collide has them share helpers of their own. */
static uint64_t hash_text(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3;
    return hash;
}

void source_place_work(const char *reference, struct loop_work *work)
{
    const char *colon = strchr(reference, ':'), *authority = strstr(reference, "://");
    const struct store *store = store_find(reference);
    if (store && store->is_remote) {
        size_t length = authority ? (size_t)(authority + 3 - reference) : 0;
        work->pool = LOOP_REMOTE;
        work->lane = loop_lane_of(hash_text(reference, length + strcspn(reference + length, "/?#")));
    } else {
        work->pool = LOOP_DISK;
        work->lane = (store && store->source->lane ? store->source->lane(colon + 1) : 0) | (uint64_t)1 << 63;
    }
}

bool source_is_remote(const char *reference)
{
    const struct store *store = store_find(reference);
    return store && store->is_remote;
}

char *source_shown(const char *reference)
{
    return redact_copy(reference);
}

static const struct store *find_store(const char *reference, struct error *error)
{
    const char *colon = strchr(reference, ':');
    const struct store *store = store_find(reference);
    if (!colon || colon == reference)
        fail_reference(reference, ERROR_INVALID_ARGUMENT, "an artifact reference looks like disk:/models/llama", error);
    else if (!store)
        fail_scheme(reference, error);
    else if (!colon[1])
        fail_reference(reference, ERROR_INVALID_ARGUMENT, "the path is empty", error);
    else
        return store;
    return NULL;
}

/* "disk:/a/b//" -> "disk:/a/b"; "disk:/" stays. The caller frees. */
static char *without_slashes(const char *reference)
{
    const char *colon = strchr(reference, ':');
    char *whole = memory_copy_text(reference);
    for (size_t length = strlen(whole); length > (size_t)(colon + 2 - reference) && whole[length - 1] == '/'; length--)
        whole[length - 1] = '\0';
    return whole;
}

char *source_listed(const char *reference, struct error *error)
{
    if (!find_store(reference, error))
        return NULL;
    char *whole = without_slashes(reference), *shown = source_shown(whole);
    free(whole);
    return shown;
}

int source_open(const char *reference, const struct source_options *options, struct source **source, struct error *error)
{
    const char *colon = strchr(reference, ':');
    const struct store *store = find_store(reference, error);
    if (!store)
        return -1;
    if (store->is_remote && options->stores && stores_check_reference(options->stores, reference, error) < 0)
        return -1;
    struct source *opened = memory_alloc(store->source->source_size);
    char *whole = without_slashes(reference);
    opened->ops = store->source;
    opened->references = 1;
    opened->format = options->format;
    opened->cancel = options->cancel;
    opened->uid = options->uid;
    opened->reference = source_shown(whole);
    int failed = store->source->open(opened, whole + (colon + 1 - reference), options, error);
    free(whole);
    if (failed) {
        source_unref(opened);
        return -1;
    }
    *source = opened;
    return 0;
}

int source_open_beside(struct source *source, const struct source_options *options, struct source **beside,
                       struct error *error)
{
    if (!source->ops->beside)
        return source_open(source->reference, options, beside, error);
    *beside = source->ops->beside(source);
    (*beside)->references = 1;
    (*beside)->reference = memory_copy_text(source->reference);
    return 0;
}

struct source *source_ref(struct source *source)
{
    __atomic_add_fetch(&source->references, 1, __ATOMIC_RELAXED);
    return source;
}

static void file_clear(struct source_file *file)
{
    memory_free_const(file->name);
    memory_free_const(file->version);
    memory_free_const(file->pin);
}

void source_unref(struct source *source)
{
    if (!source || __atomic_sub_fetch(&source->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    source->ops->close(source);
    for (size_t i = 0; i < source->n_files; i++)
        file_clear(&source->files[i]);
    free(source->files);
    free(source->handles);
    memory_free_const(source->reference);
    free(source);
}

int source_list(struct source *source, char ***names, size_t *n_names, struct error *error)
{
    return source->ops->list(source, names, n_names, error);
}

int source_list_folders(struct source *source, char ***names, size_t *n_names, struct error *error)
{
    *names = NULL;
    *n_names = 0;
    return source->ops->list_folders ? source->ops->list_folders(source, names, n_names, error)
                                     : fail(error, ERROR_UNIMPLEMENTED, "NO_LISTING", "folders are listed one by one");
}

int source_expect(struct source *source, const char *const *names, size_t n_names, struct error *error)
{
    return source->ops->expect ? source->ops->expect(source, names, n_names, error) : 0;
}

int source_add_file(struct source *source, const char *name, size_t *file, struct error *error)
{
    struct source_file fresh = {.name = memory_copy_text(name)};
    void *handle = NULL;
    if (source->ops->open_file(source, name, &fresh, &handle, error) < 0) {
        file_clear(&fresh);
        return -1;
    }
    if ((source->n_files & (source->n_files - 1)) == 0) { /* a power of two: full */
        size_t capacity = source->n_files ? 2 * source->n_files : 1;
        source->files = memory_grow(source->files, capacity, sizeof *source->files);
        source->handles = memory_grow(source->handles, capacity, sizeof *source->handles);
    }
    source->files[source->n_files] = fresh;
    source->handles[source->n_files] = handle;
    *file = source->n_files++;
    return 0;
}

int source_read(struct source *source, struct source_read *read, struct error *error)
{
    assert(read->file < source->n_files);
    assert(!read->direct || source->caps.direct_reads);
    const struct source_file *file = &source->files[read->file];
    uint64_t total = 0;
    for (int i = 0; i < read->n_iov; i++)
        total += read->iov[i].iov_len;
    uint64_t bytes = total;
    if (read->offset > file->size_bytes || (!read->direct && bytes > file->size_bytes - read->offset)) {
        char name[TEXT_NAME_CHARS];
        return fail(error, ERROR_DATA_LOSS, "BEYOND_END_OF_FILE", "%s: bytes %llu to %llu of a file of %llu bytes",
                    text_escape(file->name, strlen(file->name), name), (unsigned long long)read->offset,
                    (unsigned long long)(read->offset + bytes), (unsigned long long)file->size_bytes);
    }
    return source->ops->read(source, read, error);
}

int source_read_bytes(struct source *source, size_t file, uint64_t offset, void *bytes, uint64_t count, struct error *error)
{
    struct iovec iov = {.iov_base = bytes, .iov_len = count};
    struct source_read read = {.file = file, .offset = offset, .iov = &iov, .n_iov = 1};
    return source_read(source, &read, error);
}

uint64_t source_resident_extents(struct source *source, size_t file, const struct source_extent *extents, size_t n_extents)
{
    assert(file < source->n_files && n_extents <= SOURCE_MAX_EXTENTS);
    return source->ops->resident_bytes ? source->ops->resident_bytes(source, file, extents, n_extents) : 0;
}

uint64_t source_resident_bytes(struct source *source, size_t file, uint64_t offset, uint64_t bytes)
{
    return source_resident_extents(source, file, &(struct source_extent){offset, bytes}, 1);
}

int source_open_immutable(struct source *source, size_t file, enum immutability *proof, struct error *error)
{
    assert(file < source->n_files);
    if (source->ops->open_immutable)
        return source->ops->open_immutable(source, file, proof, error);
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_ON_THIS_HOST",
                "%s is fetched from a store, which can change it; only files on a disk of this host can be mapped",
                text_escape(source->files[file].name, strlen(source->files[file].name), name));
}

void *source_map(struct source *source, size_t file, uint64_t offset, uint64_t bytes, uint64_t *mapped_bytes)
{
    assert(file < source->n_files);
    return source->ops->map ? source->ops->map(source, file, offset, bytes, mapped_bytes) : NULL;
}

const char *immutability_name(enum immutability proof)
{
    static const char *const names[] = {"", "fs_verity", "read_only_superblock", "immutable_attribute", "immutable_root"};
    return names[proof];
}

int source_check_unchanged(struct source *source, size_t file, const struct cancel *cancel, struct error *error)
{
    assert(file < source->n_files);
    return source->ops->check_unchanged(source, file, cancel, error);
}

int source_check_still(struct source *source, size_t file, struct error *error)
{
    assert(file < source->n_files);
    return source->ops->check_still ? source->ops->check_still(source, file, error) : 0;
}

const char *change_detector_name(enum change_detector detector)
{
    static const char *const names[] = {"version", "lease", "timestamps", "racy"};
    return names[detector];
}

bool source_is_part(const struct source *source, const char *name)
{
    return source->format && source->format->is_part(name);
}

int source_fail_reference(const struct source *source, const char *complaint, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: %s",
                text_escape(source->reference, strlen(source->reference), text), complaint);
}

bool source_may_be_absent(const struct source *source, const struct error *error)
{
    bool is_servers_answer = error->kind != ERROR_KIND_PROXY_FAILED && !http_fence_has_refused(error);
    bool is_hidden = error->code == ERROR_PERMISSION_DENIED && source->caps.asks_server && is_servers_answer;
    return error->code == ERROR_NOT_FOUND || is_hidden;
}

bool source_has_changed(const struct error *error)
{
    return error->kind == ERROR_KIND_SOURCE_CHANGED || error->kind == ERROR_KIND_OBJECT_CHANGED;
}

void source_speed(struct source *source, struct source_speed *speed)
{
    *speed = (struct source_speed){0};
    if (source->ops->speed)
        source->ops->speed(source, speed);
}

struct source_identity source_identity_of(const char *text, uint64_t size_bytes)
{
    union {
        unsigned char bytes[DIGEST_BYTES];
        uint64_t words[4];
    } sum;
    struct digest *digest = digest_create();
    digest_add_text(digest, text);
    digest_finish(digest, sum.bytes);
    return (struct source_identity){sum.words[0], sum.words[1], size_bytes, sum.words[2], sum.words[3], 0};
}
