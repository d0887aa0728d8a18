/* The checked wrappers: contracts that every backend relies on are kept here. */
#include "source/source.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/digest.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "source/http/http_fence.h"
#include "source/stores.h"

enum { PAGE_BYTES = 4096 };

static int fail_reference(const char *reference, enum error_code code, const char *complaint, struct error *error)
{
    char *shown = redact_copy(reference);
    fail(error, code, code == ERROR_UNIMPLEMENTED ? "UNKNOWN_SCHEME" : "BAD_REFERENCE", "%s: %s", text_show(shown),
         complaint);
    free(shown);
    return -1;
}

/* Offers what there is. */
static int fail_scheme(const char *reference, struct error *error)
{
    char complaint[256];
    size_t used = (size_t)snprintf(complaint, sizeof complaint, "no such kind of source is built in; there are");
    for (const struct store *const *store = store_table; *store && used < sizeof complaint; store++)
        used += (size_t)snprintf(complaint + used, sizeof complaint - used, "%s %s:", store == store_table ? "" : ",",
                                 (*store)->scheme);
    return fail_reference(reference, ERROR_UNIMPLEMENTED, complaint, error);
}

void source_place_work(const char *reference, struct loop_work *work)
{
    const char *colon = strchr(reference, ':'), *authority = strstr(reference, "://");
    const struct store *store = store_find(reference);
    if (store && store->is_remote) {
        size_t length = authority ? (size_t)(authority + 3 - reference) : 0;
        uint64_t hash = 0xcbf29ce484222325; /* FNV-1a: users who make two servers collide share helpers of their own */
        for (const char *at = reference; at < reference + length + strcspn(reference + length, "/?#"); at++)
            hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
        work->pool = LOOP_REMOTE;
        work->lane = loop_lane_of(hash);
    } else {
        work->pool = LOOP_DISK;
        work->lane = (store && store->lane ? store->lane(colon + 1) : 0) | (uint64_t)1 << 63;
    }
}

bool source_is_remote(const char *reference)
{
    const struct store *store = store_find(reference);
    return store && store->is_remote;
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
    char *whole = without_slashes(reference), *shown = redact_copy(whole);
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
    opened->reference = redact_copy(whole);
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
    if (!source->ops->close_files)
        return source_open(source->reference, options, beside, error);
    const struct source fresh = {.ops = source->ops,
                                 .of = source_ref(source_owner(source)),
                                 .reference = memory_copy_text(source->reference),
                                 .format = source->format,
                                 .is_single_file = source->is_single_file,
                                 .file_name = source->file_name,
                                 .caps = source->caps,
                                 .cancel = source->cancel,
                                 .uid = source->uid,
                                 .references = 1};
    *beside = memory_copy(&fresh, sizeof fresh);
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
    if (source->ops->close_files)
        source->ops->close_files(source);
    if (!source->of)
        source->ops->close(source);
    source_unref(source->of);
    for (size_t i = 0; i < source->n_files; i++)
        file_clear(&source->files[i]);
    free(source->files);
    free(source->handles);
    memory_free_const(source->reference);
    free(source);
}

int source_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error)
{
    *names = NULL;
    *n_names = 0;
    return source->ops->list(source, folder, names, n_names, error);
}

int source_expect(struct source *source, const char *const *names, size_t n_names, struct error *error)
{
    return source->ops->expect ? source->ops->expect(source, names, n_names, error) : 0;
}

int source_add_file(struct source *source, const char *name, size_t *file, struct error *error)
{
    struct source_file fresh = {.name = memory_copy_text(name), .fd = -1};
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
        return fail(error, ERROR_DATA_LOSS, "BEYOND_END_OF_FILE", "%s: bytes %llu to %llu of a file of %llu bytes",
                    text_show(file->name), (unsigned long long)read->offset, (unsigned long long)(read->offset + bytes),
                    (unsigned long long)file->size_bytes);
    }
    return source->ops->read(source, read, error);
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
    return fail(error, ERROR_FAILED_PRECONDITION, "NOT_ON_THIS_HOST",
                "%s is fetched from a store, which can change it; only files on a disk of this host can be mapped",
                text_show(source->files[file].name));
}

void *source_map(const struct source *source, size_t file, uint64_t offset, uint64_t bytes, uint64_t *mapped_bytes)
{
    assert(file < source->n_files);
    int fd = source->files[file].fd;
    uint64_t first = offset / PAGE_BYTES * PAGE_BYTES;
    *mapped_bytes = offset + bytes - first;
    void *address = fd < 0 ? MAP_FAILED : mmap(NULL, *mapped_bytes, PROT_READ, MAP_SHARED, fd, (off_t)first);
    return address == MAP_FAILED ? NULL : address;
}

const char *immutability_name(enum immutability proof)
{
    static const char *const names[] = {"", "fs_verity", "read_only_superblock", "immutable_attribute", "immutable_root"};
    return names[proof];
}

int source_check_unchanged(struct source *source, size_t file, struct error *error)
{
    assert(file < source->n_files);
    return source->ops->check_unchanged(source, file, true, error);
}

int source_check_still(struct source *source, size_t file, struct error *error)
{
    assert(file < source->n_files);
    return source->ops->check_unchanged(source, file, false, error);
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
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: %s", text_show(source->reference), complaint);
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

/* --- the table of stores --- */

static bool is_scheme(const char *scheme, const char *reference, size_t length)
{
    return scheme && strlen(scheme) == length && memcmp(scheme, reference, length) == 0;
}

const struct store *store_find(const char *reference)
{
    size_t length = strcspn(reference, ":");
    for (const struct store *const *store = store_table; reference[length] && *store; store++) {
        if (is_scheme((*store)->scheme, reference, length) || is_scheme((*store)->alias, reference, length))
            return *store;
    }
    return NULL;
}

static const struct config_section *store_section(size_t index)
{
    for (const struct store *const *store = store_table; *store; store++) {
        if ((*store)->section && index-- == 0)
            return (*store)->section;
    }
    return NULL;
}

/* The configuration is told of them: it knows no store. */
__attribute__((constructor)) static void hand_over_sections(void)
{
    schema_set_sections(store_section);
}
