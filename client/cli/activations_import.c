/* import: every shard is read once to know what is in it, before anything is appended; then again, and a sample is appended
 * when the last shard that has a layer of it is open. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/pickle_shard.h"
#include "activations_commands.h"
#include "activations_gzip.h"
#include "bucket_objects.h"
#include "base/memory.h"
#include "base/text.h"
#include "client/sample_writer.h"
#include "base/followed_link.h"
#include "read_file.h"
#include "shard_metadata.h"
#include "stored_arrays.h"
#include "upload_files.h"

enum { MAX_SHARDS = 1 << 20, MAX_METADATA_BYTES = 256 << 20 };

struct import_shard {
    char *path;    /* or the reference of an object */
    bool is_found; /* in a folder: these say which file it was there, as what another user has linked there counts */
    dev_t device;
    ino_t inode;
    struct shard_text text; /* while one of its samples is still to come */
    struct held_entry {
        struct pickle_entry entry;
        uint64_t shape[SAMPLE_MAX_RANK];
        uint8_t axes[SAMPLE_MAX_RANK];
    } * entries; /* by sample, then layer */
    size_t n_entries, capacity;
    uint64_t n_arrays;                 /* that are in it */
    char sha256[DIGEST_HEX_CHARS + 1]; /* of the file */
    uint32_t last_needed;              /* the shard with which the last of its samples is complete */
};

struct known_entry { /* that there is an array of that sample and layer in that shard */
    uint32_t sample, layer, shard;
};

struct import {
    struct import_shard *shards;
    size_t n_shards, shards_capacity;
    struct known_entry *known; /* by sample, then layer, once all are known */
    size_t n_known, known_capacity;
    uint32_t reading;
    struct stored_arrays *stored; /* of the host, before anything is appended */
    struct sample_writer *writer;
    struct sample_plane *planes;
    size_t planes_capacity;
    uint64_t n_samples, n_skipped;
    struct told_folder { /* by its metadata.json, of the shards from `first` to `end` */
        size_t first, end;
        struct shard_metadata metadata;
    } * told;
    size_t n_told, told_capacity;
    struct bucket_objects *objects;
};

/* --- which files -------------------------------------------------------------------------------------------------------- */

static bool is_shard(const char *name)
{
    size_t length = strlen(name);
    return strncmp(name, "shard_", 6) == 0 &&
           (text_ends_with(name, length, ".pkl") || text_ends_with(name, length, ".pkl.gz"));
}

/* Takes the path; NULL: there are too many. */
static struct import_shard *add_shard(struct import *import, char *path, struct error *error)
{
    if (import->n_shards == MAX_SHARDS) {
        free(path);
        fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_SHARDS", "there are more than %d shards; import some at a time",
             MAX_SHARDS);
        return NULL;
    }
    ARRAY_RESERVE(import->shards, import->n_shards, import->shards_capacity);
    struct import_shard *shard = &import->shards[import->n_shards++];
    *shard = (struct import_shard){.path = path};
    return shard;
}

/* Takes the path. */
static int add_found(struct import *import, int folder_fd, const char *name, char *path, struct error *error)
{
    struct stat found;
    struct import_shard *shard = add_shard(import, path, error);
    if (!shard || followed_link_stat(folder_fd, name, path, &found, error) < 0)
        return -1;
    shard->is_found = true;
    shard->device = found.st_dev;
    shard->inode = found.st_ino;
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct import_shard *)a)->path, ((const struct import_shard *)b)->path);
}

/* Of the shards from `first` on. */
static void add_metadata(struct import *import, size_t first, const char *text, size_t length)
{
    ARRAY_RESERVE(import->told, import->n_told, import->told_capacity);
    struct told_folder *told = &import->told[import->n_told++];
    *told = (struct told_folder){.first = first, .end = import->n_shards};
    shard_metadata_parse(&told->metadata, text, length);
}

/* What it says is only compared. */
static void tell_unread(const struct error *error)
{
    if (error->code != ERROR_NOT_FOUND)
        fprintf(stderr, "tensorcast: metadata.json is not compared: %s\n", error->message);
}

static void read_metadata(struct import *import, size_t first, const char *folder, int folder_fd)
{
    char *path = memory_print("%s/metadata.json", folder), *text = NULL;
    size_t length;
    struct error error;
    if (read_found_file(folder_fd, "metadata.json", path, MAX_METADATA_BYTES, &text, &length, &error) == 0)
        add_metadata(import, first, text, length);
    else
        tell_unread(&error);
    free(text);
    free(path);
}

static void fetch_metadata(struct import *import, size_t first, const char *folder)
{
    char *reference = memory_print("%s/metadata.json", folder);
    struct sink_document document = {0};
    struct error error;
    if (bucket_objects_read(import->objects, reference, MAX_METADATA_BYTES, &document, &error) == 0)
        add_metadata(import, first, document.bytes, document.count);
    else
        tell_unread(&error);
    sink_document_fini(&document);
    free(reference);
}

static int fail_none(const char *folder, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    return fail(error, ERROR_NOT_FOUND, "NO_SHARDS", "%s holds no shard_*.pkl and no shard_*.pkl.gz",
                text_escape(folder, strlen(folder), shown));
}

static void sort_shards(struct import *import, size_t first)
{
    qsort(import->shards + first, import->n_shards - first, sizeof *import->shards, compare_paths);
}

static int list_folder(struct import *import, const char *folder, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    size_t first = import->n_shards;
    DIR *directory = opendir(folder);
    if (!directory)
        return fail_errno(error, errno, "cannot open %s", text_escape(folder, strlen(folder), shown));
    int failed = 0;
    for (const struct dirent *entry; !failed && (entry = readdir(directory)) != NULL;)
        if (is_shard(entry->d_name))
            failed = add_found(import, dirfd(directory), entry->d_name, memory_print("%s/%s", folder, entry->d_name), error);
    if (!failed && import->n_shards == first)
        failed = fail_none(folder, error);
    if (!failed) {
        sort_shards(import, first);
        read_metadata(import, first, folder, dirfd(directory));
    }
    closedir(directory);
    return failed;
}

static int list_bucket_folder(struct import *import, const char *folder, struct error *error)
{
    size_t first = import->n_shards, n_names = 0;
    char **names = NULL;
    int failed = bucket_objects_list(import->objects, folder, &names, &n_names, error);
    for (size_t i = 0; i < n_names; i++) {
        if (!failed && is_shard(names[i]) && !add_shard(import, memory_print("%s/%s", folder, names[i]), error))
            failed = -1;
        free(names[i]);
    }
    free(names);
    if (failed || import->n_shards == first)
        return failed ? failed : fail_none(folder, error);
    sort_shards(import, first);
    fetch_metadata(import, first, folder);
    return 0;
}

/* A shard or a folder of them, by its name. */
static int list_in_bucket(struct import *import, const char *reference, struct error *error)
{
    size_t length = strlen(reference);
    while (length > strlen("gs://") && reference[length - 1] == '/')
        length--;
    char *bare = memory_print("%.*s", (int)length, reference);
    bool is_one = is_shard(strrchr(bare, '/') + 1);
    if (is_one)
        return add_shard(import, bare, error) ? 0 : -1;
    int failed = list_bucket_folder(import, bare, error);
    free(bare);
    return failed;
}

static int list_shards(struct import *import, const struct activations_args *args, struct error *error)
{
    struct stat status;
    char shown[TEXT_NAME_CHARS];
    for (size_t i = 1; i < args->n_operands; i++) {
        const char *path = args->operands[i];
        if (upload_files_is_reference(path)) {
            if (list_in_bucket(import, path, error) < 0)
                return -1;
            continue;
        }
        if (stat(path, &status) < 0)
            return fail_errno(error, errno, "cannot find %s", text_escape(path, strlen(path), shown));
        bool is_folder = S_ISDIR(status.st_mode);
        if (is_folder ? list_folder(import, path, error) < 0 : !add_shard(import, memory_copy_text(path), error))
            return -1;
    }
    return 0;
}

/* --- what is in them ---------------------------------------------------------------------------------------------------- */

static char *describe_text(const struct pickle_entry *entry)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_string(&json, "text_preview", entry->text, entry->text_bytes);
    json_write_close(&json, '}');
    return json.text;
}

/* All that a sample may have is known before the first one is appended. */
static int check_text(const struct pickle_entry *entry, struct error *error)
{
    char *info = describe_text(entry);
    size_t length = strlen(info);
    free(info);
    return length <= SAMPLE_MAX_INFO_BYTES
               ? 0
               : fail(error, ERROR_INVALID_ARGUMENT, "BAD_INFO",
                      "sample %" PRIu32 ": its text takes %zu bytes in a manifest; at most %d are kept", entry->sample,
                      length, SAMPLE_MAX_INFO_BYTES);
}

static int note_entry(void *data, const struct pickle_entry *entry, struct error *error)
{
    struct import *import = data;
    import->shards[import->reading].n_arrays++;
    ARRAY_RESERVE(import->known, import->n_known, import->known_capacity);
    import->known[import->n_known++] = (struct known_entry){entry->sample, entry->layer, import->reading};
    return entry->text_bytes && check_text(entry, error) < 0 ? -1 : stored_arrays_compare(import->stored, entry, error);
}

static int hold_entry(void *data, const struct pickle_entry *entry, struct error *error)
{
    struct import *import = data;
    struct import_shard *shard = &import->shards[import->reading];
    (void)error;
    ARRAY_RESERVE(shard->entries, shard->n_entries, shard->capacity);
    struct held_entry *held = &shard->entries[shard->n_entries++];
    held->entry = *entry;
    for (uint32_t d = 0; d < entry->rank; d++) {
        held->shape[d] = entry->shape[d];
        held->axes[d] = entry->axes[d];
    }
    return 0;
}

static int open_file(struct import_shard *shard, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    struct stat status;
    int fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = 0;
    text_escape(shard->path, strlen(shard->path), shown);
    if (fd < 0 || fstat(fd, &status) < 0)
        failed = fail_errno(error, errno, "cannot open %s", shown);
    else if (!S_ISREG(status.st_mode))
        failed = fail(error, ERROR_INVALID_ARGUMENT, REASON(NOT_A_REGULAR_FILE), "%s is no regular file", shown);
    else if (shard->is_found && (status.st_dev != shard->device || status.st_ino != shard->inode))
        failed = fail(error, ERROR_ABORTED, "FILE_REPLACED", "%s was replaced while it was imported; try again", shown);
    if (!failed)
        return shard_text_unpack(fd, shard->path, &shard->text, error);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Both times that it is read: all of them at once may be more than this disk holds. */
static int open_shard(const struct import *import, struct import_shard *shard, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    uint64_t left_ms;
    uint32_t crc32c;
    int fd;
    if (backend_time_left(import->objects->backend, &left_ms, error) < 0)
        return -1;
    if (!upload_files_is_reference(shard->path))
        return open_file(shard, error);
    if (bucket_objects_fetch(import->objects, shard->path, &fd, &crc32c, error) < 0)
        return error_prefix(error, "%s", text_escape(shard->path, strlen(shard->path), shown));
    return shard_text_unpack(fd, shard->path, &shard->text, error);
}

static int read_shard(struct import *import, uint32_t index,
                      int (*take)(void *data, const struct pickle_entry *entry, struct error *error), struct error *error)
{
    struct import_shard *shard = &import->shards[index];
    char shown[TEXT_NAME_CHARS];
    import->reading = index;
    if (open_shard(import, shard, error) < 0)
        return -1;
    if (pickle_shard_read(shard->text.bytes, shard->text.count, take, import, error) == 0)
        return 0;
    return error_prefix(error, "%s", text_escape(shard->path, strlen(shard->path), shown));
}

static int compare_known(const void *a, const void *b)
{
    const struct known_entry *first = a, *second = b;
    if (first->sample != second->sample)
        return first->sample < second->sample ? -1 : 1;
    if (first->layer != second->layer)
        return first->layer < second->layer ? -1 : 1;
    return first->shard < second->shard ? -1 : first->shard > second->shard;
}

static int compare_held(const void *a, const void *b)
{
    const struct pickle_entry *first = &((const struct held_entry *)a)->entry,
                              *second = &((const struct held_entry *)b)->entry;
    if (first->sample != second->sample)
        return first->sample < second->sample ? -1 : 1;
    return first->layer < second->layer ? -1 : first->layer > second->layer;
}

/* The end of the entries of the sample at `at`, and the last shard that has one. */
static size_t end_of_sample(const struct import *import, size_t at, uint32_t *last_shard)
{
    size_t end = at;
    *last_shard = 0;
    for (; end < import->n_known && import->known[end].sample == import->known[at].sample; end++)
        *last_shard = import->known[end].shard > *last_shard ? import->known[end].shard : *last_shard;
    return end;
}

static int look_at_all(struct import *import, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    for (uint32_t i = 0; i < import->n_shards; i++) {
        int failed = read_shard(import, i, note_entry, error);
        memcpy(import->shards[i].sha256, import->shards[i].text.sha256, sizeof import->shards[i].sha256);
        shard_text_close(&import->shards[i].text);
        if (failed)
            return -1;
    }
    if (import->n_known)
        qsort(import->known, import->n_known, sizeof *import->known, compare_known);
    for (size_t i = 1; i < import->n_known; i++) {
        const struct known_entry *at = &import->known[i];
        const char *path = import->shards[at->shard].path;
        if (at->sample == at[-1].sample && at->layer == at[-1].layer)
            return fail(error, ERROR_INVALID_ARGUMENT, REASON(SAMPLE_TWICE),
                        "%s: sample %" PRIu32 " has layer %" PRIu32 " already", text_escape(path, strlen(path), shown),
                        at->sample, at->layer);
    }
    uint32_t last;
    for (size_t at = 0, end; at < import->n_known; at = end) {
        end = end_of_sample(import, at, &last);
        if (end - at > SAMPLE_MAX_TENSORS)
            return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_LAYERS",
                        "sample %" PRIu32 " has %zu layers; at most %d are supported", import->known[at].sample, end - at,
                        SAMPLE_MAX_TENSORS);
        for (size_t i = at; i < end; i++) {
            struct import_shard *shard = &import->shards[import->known[i].shard];
            shard->last_needed = last > shard->last_needed ? last : shard->last_needed;
        }
        import->n_samples++;
    }
    return 0;
}

static void tell_count(const char *of, uint64_t told, const char *what, uint64_t found)
{
    if (told && told != found)
        fprintf(stderr, "tensorcast: metadata.json tells of %" PRIu64 " %s%s, there are %" PRIu64 "\n", told, what, of,
                found);
}

static bool is_of(const struct told_folder *told, const struct known_entry *entry)
{
    return entry->shard >= told->first && entry->shard < told->end;
}

/* Of the shards of a folder, or of one of them. */
static uint64_t count_samples(const struct import *import, const struct told_folder *of)
{
    uint64_t n = 0;
    for (size_t i = 0, last = SIZE_MAX; i < import->n_known; i++) {
        if (!is_of(of, &import->known[i]))
            continue;
        n += last == SIZE_MAX || import->known[last].sample != import->known[i].sample;
        last = i;
    }
    return n;
}

static const char *name_of(const struct import_shard *shard)
{
    const char *slash = strrchr(shard->path, '/');
    return slash ? slash + 1 : shard->path;
}

static void tell_of_shard(const struct import *import, const struct told_folder *folder, const struct told_shard *told)
{
    char shown[TEXT_NAME_CHARS], of[TEXT_NAME_CHARS + 8];
    size_t at = folder->first;
    while (at < folder->end && strcmp(name_of(&import->shards[at]), told->name) != 0)
        at++;
    text_escape(told->name, strlen(told->name), shown);
    snprintf(of, sizeof of, " in %s", shown);
    if (at == folder->end) {
        fprintf(stderr, "tensorcast: metadata.json lists %s, which is not there\n", shown);
        return;
    }
    const struct told_folder alone = {.first = at, .end = at + 1};
    tell_count(of, told->arrays, "activations", import->shards[at].n_arrays);
    if (told->samples)
        tell_count(of, told->samples, "samples", count_samples(import, &alone));
    if (told->sha256[0] && strcasecmp(told->sha256, import->shards[at].sha256) != 0)
        fprintf(stderr, "tensorcast: metadata.json has another checksum of %s than the file\n", shown);
}

static void tell_contradictions(const struct import *import)
{
    for (size_t i = 0; i < import->n_told; i++) {
        const struct told_folder *folder = &import->told[i];
        uint64_t n_arrays = 0;
        if (folder->metadata.complaint[0])
            fprintf(stderr, "tensorcast: metadata.json is damaged: %s\n", folder->metadata.complaint);
        for (size_t k = folder->first; k < folder->end; k++)
            n_arrays += import->shards[k].n_arrays;
        tell_count("", folder->metadata.shards, "shards", folder->end - folder->first);
        tell_count("", folder->metadata.arrays, "activations", n_arrays);
        if (folder->metadata.samples)
            tell_count("", folder->metadata.samples, "samples", count_samples(import, folder));
        for (size_t k = 0; k < folder->metadata.n_list; k++)
            tell_of_shard(import, folder, &folder->metadata.list[k]);
    }
}

/* --- appending ---------------------------------------------------------------------------------------------------------- */

static const struct held_entry *find_held(const struct import_shard *shard, uint32_t sample, uint32_t layer)
{
    const struct held_entry key = {.entry = {.sample = sample, .layer = layer}};
    return bsearch(&key, shard->entries, shard->n_entries, sizeof key, compare_held);
}

static int append_sample(struct import *import, size_t at, size_t end, struct error *error)
{
    const struct pickle_entry *with_text = NULL;
    size_t n_planes = 0;
    uint32_t sample = import->known[at].sample;
    for (size_t i = at; i < end; i++) {
        const struct held_entry *held = find_held(&import->shards[import->known[i].shard], sample, import->known[i].layer);
        char shown[TEXT_NAME_CHARS];
        const char *path = import->shards[import->known[i].shard].path;
        if (!held)
            return fail(error, ERROR_ABORTED, "SHARD_CHANGED", "%s changed while it was imported",
                        text_escape(path, strlen(path), shown));
        const struct pickle_entry *entry = &held->entry;
        ARRAY_RESERVE(import->planes, n_planes, import->planes_capacity);
        import->planes[n_planes++] = (struct sample_plane){.layer = entry->layer,
                                                           .rank = entry->rank,
                                                           .dtype = entry->dtype,
                                                           .shape = held->shape,
                                                           .bytes = entry->bytes,
                                                           .n_bytes = entry->n_bytes,
                                                           .is_big_endian = entry->is_big_endian,
                                                           .axes = held->axes};
        with_text = !with_text && entry->text_bytes ? entry : with_text;
    }
    char *info = with_text ? describe_text(with_text) : memory_copy_text("");
    int failed = sample_writer_append(import->writer, sample, import->planes, n_planes, info, error);
    free(info);
    if (failed && error->kind == ERROR_KIND_SAMPLE_TWICE) { /* of an import that was interrupted */
        import->n_skipped++;
        return 0;
    }
    return failed;
}

static void let_go(struct import_shard *shard)
{
    shard_text_close(&shard->text);
    free(shard->entries);
    shard->entries = NULL;
    shard->n_entries = shard->capacity = 0;
}

static int append_all(struct import *import, struct error *error)
{
    for (uint32_t index = 0; index < import->n_shards; index++) {
        struct import_shard *shard = &import->shards[index];
        uint32_t last;
        if (read_shard(import, index, hold_entry, error) < 0)
            return -1;
        if (shard->n_entries)
            qsort(shard->entries, shard->n_entries, sizeof *shard->entries, compare_held);
        for (size_t at = 0, end; at < import->n_known; at = end) {
            end = end_of_sample(import, at, &last);
            if (last == index && append_sample(import, at, end, error) < 0)
                return -1;
        }
        for (uint32_t i = 0; i <= index; i++)
            if (import->shards[i].last_needed <= index)
                let_go(&import->shards[i]);
    }
    return 0;
}

static int import_samples(struct import *import, struct activations_run *run, struct error *error)
{
    struct error late;
    uint64_t left_ms;
    if (backend_time_left(import->objects->backend, &left_ms, error) < 0)
        return -1;
    const struct wait wait = wait_begin(left_ms, NULL);
    char *store = memory_print("disk:%s", run->path);
    int failed =
        sample_writer_open(run->client, store, (uint32_t)run->args->partition.host, 0, &wait, &import->writer, error);
    free(store);
    if (failed)
        return -1;
    failed = append_all(import, error);
    if (sample_writer_close(import->writer, &late) < 0 && !failed) {
        *error = late;
        failed = -1;
    }
    return failed ? error_append(error, "; the import is not complete: run it again, what is there is left out") : 0;
}

int activations_import(struct activations_run *run, struct error *error)
{
    struct import import = {.objects = &run->objects};
    int failed = list_shards(&import, run->args, error) < 0 ||
                         stored_arrays_open(run->path, (uint32_t)run->args->partition.host, &import.stored, error) < 0 ||
                         look_at_all(&import, error) < 0
                     ? -1
                     : 0;
    stored_arrays_close(import.stored);
    if (!failed) {
        tell_contradictions(&import);
        failed = import_samples(&import, run, error);
    }
    if (!failed && run->args->json)
        printf("{\"shards\": %zu, \"samples\": %" PRIu64 ", \"skipped\": %" PRIu64 "}\n", import.n_shards, import.n_samples,
               import.n_skipped);
    else if (!failed && !run->args->quiet)
        printf("%" PRIu64 " samples of %zu shards, %" PRIu64 " of which were there already\n", import.n_samples,
               import.n_shards, import.n_skipped);
    for (size_t i = 0; i < import.n_shards; i++) {
        let_go(&import.shards[i]);
        free(import.shards[i].path);
    }
    free(import.shards);
    for (size_t i = 0; i < import.n_told; i++)
        shard_metadata_fini(&import.told[i].metadata);
    free(import.told);
    free(import.known);
    free(import.planes);
    return failed;
}
