/* What a host's folder and the queue of uploads know of each other; see host_uploads.h. */
#include "activations/host_uploads.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "activations/host_manifest.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "observe/log.h"
#include "sink/sink_document.h"

static const uint64_t PATIENCE_NS = (uint64_t)60 * 1000000000;

struct open_host { /* a folder that was open once: one thread at a time is at it */
    char *path;    /* of the store */
    uint32_t host;
    struct host_folder *folder; /* a writer's; NULL = no writer has it open. Its thread may change it */
    struct open_host *next;
    bool is_taken;
};

struct sent_manifest { /* one that is on its way, and which local segments it lists */
    char *file;
    uint32_t *numbers;
    size_t n, capacity;
    struct sent_manifest *next;
};

struct host_uploads {
    char *state_dir;
    struct upload_queue *queue; /* borrowed; NULL = nothing is uploaded */
    pthread_mutex_t lock;       /* of the following */
    pthread_cond_t left;
    struct open_host *open;
    struct store_roots roots;
    struct sent_manifest *sent;
};

/* --- folders, one thread at a time -------------------------------------------------------------------------------------- */

/* NULL: another thread has been at it for a minute, as on a disk that does not answer; `waits`: however long that takes. */
static struct open_host *enter_host(struct host_uploads *uploads, const char *path, uint32_t host, bool waits,
                                    struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    uint64_t until_ns = clock_now_ns() + PATIENCE_NS;
    pthread_mutex_lock(&uploads->lock);
    struct open_host *at = uploads->open;
    while (at && (at->host != host || strcmp(at->path, path) != 0))
        at = at->next;
    if (!at) {
        at = memory_alloc(sizeof *at);
        *at = (struct open_host){.path = memory_copy_text(path), .host = host, .next = uploads->open};
        uploads->open = at;
    }
    while (at->is_taken && (waits || clock_now_ns() < until_ns))
        condition_wait_until(&uploads->left, &uploads->lock, waits ? clock_now_ns() + PATIENCE_NS : until_ns);
    bool is_ours = !at->is_taken;
    at->is_taken = true;
    pthread_mutex_unlock(&uploads->lock);
    if (!is_ours)
        fail(error, ERROR_UNAVAILABLE, "NO_ANSWER",
             "another request has been at %s of the store %s for a minute; see whether its disk answers",
             activation_host_name(host, name), text_show(path));
    return is_ours ? at : NULL;
}

static void leave_host(struct host_uploads *uploads, struct open_host *at)
{
    pthread_mutex_lock(&uploads->lock);
    at->is_taken = false;
    pthread_cond_broadcast(&uploads->left);
    pthread_mutex_unlock(&uploads->lock);
}

int host_uploads_open(struct host_uploads *uploads, const struct host_folder_options *options, struct host_folder **folder,
                      struct error *error)
{
    struct open_host *at = enter_host(uploads, options->path, options->host, false, error);
    if (!at)
        return -1;
    int failed = host_folder_open(options, folder, error);
    if (!failed)
        at->folder = *folder;
    leave_host(uploads, at);
    return failed;
}

void host_uploads_close(struct host_uploads *uploads, const char *path, uint32_t host, struct host_folder *folder)
{
    if (!folder)
        return;
    struct open_host *at = enter_host(uploads, path, host, true, NULL);
    at->folder = NULL;
    host_folder_close(folder);
    leave_host(uploads, at);
}

/* --- queueing ----------------------------------------------------------------------------------------------------------- */

struct batch {
    const struct known_host *host;
    char *group, host_name[ACTIVATION_NAME_CHARS];
    struct upload_item *items; /* their texts are malloced, except for the group */
    size_t n, capacity;
};

static void init_batch(struct batch *batch, const struct known_host *host)
{
    *batch = (struct batch){.host = host};
    activation_host_name(host->host, batch->host_name);
    batch->group = memory_print("disk:%s/%s", host->path, batch->host_name);
}

static void end_batch(struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        memory_free_const(batch->items[i].file);
        memory_free_const(batch->items[i].reference);
    }
    metadata_free(batch->items);
    free(batch->group);
}

static char *reference_of(const struct batch *batch, const char *name)
{
    char *below = memory_print("%s/%s", batch->host_name, name);
    char *reference = sink_join(batch->host->upload.reference, below);
    free(below);
    return reference;
}

/* NULL: too much metadata. */
static struct upload_item *add_file(struct batch *batch, const char *name, struct error *error)
{
    if (METADATA_RESERVE(batch->items, batch->n, batch->capacity, error) < 0)
        return NULL;
    struct upload_item *item = &batch->items[batch->n++];
    *item = (struct upload_item){.file = memory_print("%s/%s/%s", batch->host->path, batch->host_name, name),
                                 .reference = reference_of(batch, name),
                                 .group = batch->group};
    return item;
}

static int add_segment(struct batch *batch, const struct sealed_segment *segment, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    struct upload_item *item = add_file(batch, name, error);
    if (!item)
        return -1;
    item->bytes = segment->file_bytes;
    item->crc32c = segment->crc32c;
    return 0;
}

static int take_missing(void *data, const struct sealed_segment *segment, struct error *error)
{
    struct batch *batch = data;
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    char *reference = reference_of(batch, name);
    bool is_there = segment->uploaded && strcmp(segment->uploaded, reference) == 0;
    free(reference);
    return segment->is_local && !is_there ? add_segment(batch, segment, error) : 0;
}

static int queue_batch(struct host_uploads *uploads, struct batch *batch, struct error *error)
{
    struct upload_item *manifest = add_file(batch, ACTIVATION_MANIFEST, error);
    if (manifest)
        manifest->is_manifest = true;
    int failed = manifest ? upload_queue_add(uploads->queue, batch->items, batch->n, error) : -1;
    end_batch(batch);
    return failed;
}

int host_uploads_check(struct host_uploads *uploads, const struct known_host *host, struct error *error)
{
    struct batch batch;
    if (!host->upload.reference)
        return 0;
    if (!uploads->queue)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_UPLOADS", "nothing is uploaded here");
    init_batch(&batch, host);
    char *reference = reference_of(&batch, ACTIVATION_MANIFEST);
    int failed = upload_queue_check(uploads->queue, reference, error);
    free(reference);
    end_batch(&batch);
    return failed;
}

int host_uploads_begin(struct host_uploads *uploads, const struct known_host *host, struct host_folder *folder, bool recheck,
                       struct error *error)
{
    struct batch batch;
    if (!host->upload.reference)
        return 0;
    init_batch(&batch, host);
    char *prefix = reference_of(&batch, "");
    upload_queue_leave(uploads->queue, batch.group, prefix);
    free(prefix);
    if (recheck && host_folder_forget_uploads(folder, error) < 0) {
        end_batch(&batch);
        return -1;
    }
    int failed = host_folder_each(folder, take_missing, &batch, error);
    if (!failed && host_folder_resume(folder).n_segments)
        return queue_batch(uploads, &batch, error);
    end_batch(&batch);
    return failed;
}

int host_uploads_add(struct host_uploads *uploads, const struct known_host *host, struct host_folder *folder,
                     uint32_t number, struct error *error)
{
    struct batch batch;
    struct sealed_segment segment;
    if (!host->upload.reference || !host_folder_find(folder, number, &segment))
        return 0;
    init_batch(&batch, host);
    if (add_segment(&batch, &segment, error) == 0)
        return queue_batch(uploads, &batch, error);
    end_batch(&batch);
    return -1;
}

void host_uploads_counts(struct host_uploads *uploads, const char *path, uint32_t host, struct upload_counts *counts)
{
    char name[ACTIVATION_NAME_CHARS];
    *counts = (struct upload_counts){0};
    if (!uploads->queue)
        return;
    char *group = memory_print("disk:%s/%s", path, activation_host_name(host, name));
    upload_queue_counts(uploads->queue, group, counts);
    free(group);
}

/* --- files that are sent, on threads of the queue ----------------------------------------------------------------------- */

struct place {  /* of an item's file */
    char *path; /* of the store; malloced, with the following behind it */
    const char *host_name, *file;
    uint32_t host, segment; /* segment 0: the manifest */
};

/* False: it is no file of a store. */
static bool find_place(const char *file, struct place *place)
{
    char *path = memory_copy_text(file), *name = strrchr(path, '/'), *host_name = NULL;
    if (name) {
        *name++ = '\0';
        host_name = strrchr(path, '/');
    }
    if (host_name)
        *host_name++ = '\0';
    *place = (struct place){.path = path, .host_name = host_name, .file = name};
    if (host_name && activation_parse_host(host_name, &place->host) &&
        (strcmp(name, ACTIVATION_MANIFEST) == 0 || activation_parse_segment(name, ACTIVATION_SEALED, &place->segment)))
        return true;
    free(path);
    return false;
}

static struct store_roots roots_of(struct host_uploads *uploads)
{
    pthread_mutex_lock(&uploads->lock);
    struct store_roots roots = uploads->roots;
    pthread_mutex_unlock(&uploads->lock);
    return roots;
}

/* A descriptor of its host's folder, or -1. */
static int open_place(struct host_uploads *uploads, const struct upload_item *item, struct place *place, struct error *error)
{
    struct store_roots roots = roots_of(uploads);
    if (!find_place(item->file, place))
        return fail(error, ERROR_INVALID_ARGUMENT, "NOT_OF_A_STORE", "the file is none of an activation store");
    int fd = store_path_open_host(&roots, place->path, place->host, false, error);
    if (fd < 0)
        free(place->path);
    return fd;
}

static struct sent_manifest *take_sent(struct host_uploads *uploads, const char *file)
{
    pthread_mutex_lock(&uploads->lock);
    struct sent_manifest **link = &uploads->sent;
    while (*link && strcmp((*link)->file, file) != 0)
        link = &(*link)->next;
    struct sent_manifest *sent = *link;
    if (sent)
        *link = sent->next;
    pthread_mutex_unlock(&uploads->lock);
    return sent;
}

static void free_sent(struct sent_manifest *sent)
{
    if (!sent)
        return;
    free(sent->file);
    free(sent->numbers);
    free(sent);
}

struct listing {
    const char *folder; /* the reference of the manifest, without its name */
    size_t folder_chars, n;
    struct sent_manifest *sent;
};

static bool lists(void *data, const struct manifest_segment *segment)
{
    struct listing *listing = data;
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    if (!segment->uploaded || strncmp(segment->uploaded, listing->folder, listing->folder_chars) != 0 ||
        strcmp(segment->uploaded + listing->folder_chars, name) != 0)
        return false;
    listing->n++;
    if (segment->is_local) {
        ARRAY_RESERVE(listing->sent->numbers, listing->sent->n, listing->sent->capacity);
        listing->sent->numbers[listing->sent->n++] = segment->number;
    }
    return true;
}

/* A copy of the manifest that lists only segments which the bucket has. Without any, nothing is written, and a manifest that
 * another writer left stays. */
static int open_manifest(struct host_uploads *uploads, int folder_fd, const struct place *place,
                         const struct upload_item *item, bool *is_done, struct error *error)
{
    struct host_manifest manifest = {0};
    struct sent_manifest *sent = memory_alloc(sizeof *sent);
    struct listing listing = {item->reference, (size_t)(strrchr(item->reference, '/') + 1 - item->reference), .sent = sent};
    sent->file = memory_copy_text(item->file);
    int fd = memfd_create("manifest", MFD_CLOEXEC);
    int failed = fd < 0 ? fail_errno(error, errno, "cannot make a copy of " ACTIVATION_MANIFEST) : 0;
    if (!failed)
        failed = host_manifest_read(&manifest, place->host, folder_fd, NULL, NULL, NULL, error);
    if (!failed)
        failed = host_manifest_print(&manifest, fd, lists, &listing, error);
    host_manifest_fini(&manifest);
    *is_done = !failed && listing.n == 0;
    if (!failed && !*is_done) {
        free_sent(take_sent(uploads, sent->file)); /* of an earlier try */
        pthread_mutex_lock(&uploads->lock);
        sent->next = uploads->sent;
        uploads->sent = sent;
        pthread_mutex_unlock(&uploads->lock);
        return fd;
    }
    free_sent(sent);
    if (fd >= 0)
        close(fd);
    return -1;
}

static int open_file(void *data, const struct upload_item *item, bool *is_done, struct error *error)
{
    struct place place;
    int folder_fd = open_place(data, item, &place, error), fd;
    if (folder_fd < 0)
        return -1;
    if (item->is_manifest) {
        fd = open_manifest(data, folder_fd, &place, item, is_done, error);
    } else {
        fd = store_path_openat(folder_fd, place.file, O_RDONLY, 0);
        *is_done = false;
        if (fd < 0)
            fail_errno(error, errno, "cannot open %s/%s, which is to be uploaded", place.host_name, place.file);
        /* what the manifest on the disk says: it is durable before a file goes */
        struct host_manifest manifest = {0};
        struct error ignored; /* then the file is missing, which is what is told */
        if (fd < 0 && error->code == ERROR_NOT_FOUND &&
            host_manifest_read(&manifest, place.host, folder_fd, NULL, NULL, NULL, &ignored) == 0) {
            const struct manifest_segment *found = host_manifest_find(&manifest, place.segment);
            *is_done = found && found->uploaded && strcmp(found->uploaded, item->reference) == 0;
        }
        host_manifest_fini(&manifest);
    }
    close(folder_fd);
    free(place.path);
    return fd;
}

/* What an entry there may have beyond ours, which lists all that it lists: where the segment lies. */
enum { PLACE_BYTES = SINK_MAX_KEY_CHARS + 256 };

static int fail_stranger(const char *complaint, struct error *error)
{
    return fail(error, ERROR_ALREADY_EXISTS, "MANIFEST_OF_ANOTHER_STORE", "the manifest that is there %s", complaint);
}

/* All its segments must be ours. This daemon wrote it, or the store's previous daemon. */
static int check_document(const struct host_manifest *ours, const struct sink_document *there, struct error *error)
{
    struct host_manifest theirs = {0};
    char complaint[ACTIVATION_NAME_CHARS + 64], name[ACTIVATION_NAME_CHARS];
    int failed = host_manifest_parse(&theirs, ours->host, there->bytes, there->count, NULL, NULL, error);
    if (failed && error->code == ERROR_DATA_LOSS)
        fail_stranger("is no manifest of this host", error);
    for (size_t i = 0; !failed && i < theirs.n_segments; i++) {
        const struct manifest_segment *listed = &theirs.segments[i], *own = host_manifest_find(ours, listed->number);
        if (own && own->file_bytes == listed->file_bytes && own->crc32c == listed->crc32c)
            continue;
        activation_segment_name(listed->number, ACTIVATION_SEALED, name);
        snprintf(complaint, sizeof complaint, "lists a %s that is none of this store's", name);
        failed = fail_stranger(complaint, error);
    }
    host_manifest_fini(&theirs);
    return failed;
}

/* Two stores with one place are told apart by what they hold: a manifest that lists what is not of this store is another one's. */
static int allow_manifest(void *data, struct stores *stores, const struct upload_item *item, const struct sink_upload *where,
                          struct sink_document *there, struct error *error)
{
    struct place place;
    struct host_manifest ours = {0};
    int folder_fd = open_place(data, item, &place, error);
    if (folder_fd < 0)
        return -1;
    int failed = host_manifest_read(&ours, place.host, folder_fd, NULL, NULL, NULL, error);
    close(folder_fd);
    free(place.path);
    if (!failed) {
        uint64_t max_bytes = 2 * ours.text_bytes + (ours.n_segments + 1) * PLACE_BYTES;
        if (sink_document_read(stores, where, max_bytes, there, error) == 0)
            failed = check_document(&ours, there, error);
        else if (error->kind == ERROR_KIND_DOCUMENT_TOO_LARGE)
            failed = fail_stranger("lists more than this store has", error);
        else
            failed = error->code == ERROR_NOT_FOUND ? 0 : -1;
    }
    host_manifest_fini(&ours);
    return failed;
}

/* The manifest beside a segment, here and there. */
static void add_manifest(struct host_uploads *uploads, const struct upload_item *segment)
{
    struct error error;
    int file_chars = (int)(strrchr(segment->file, '/') - segment->file);
    int reference_chars = (int)(strrchr(segment->reference, '/') - segment->reference);
    char *file = memory_print("%.*s/" ACTIVATION_MANIFEST, file_chars, segment->file);
    char *reference = memory_print("%.*s/" ACTIVATION_MANIFEST, reference_chars, segment->reference);
    const struct upload_item item = {.file = file, .reference = reference, .group = segment->group, .is_manifest = true};
    if (upload_queue_add(uploads->queue, &item, 1, &error) < 0)
        log_at_of(LOG_WARN, "activations_not_queued", LOG_NOBODY, LOG_TEXT("group", segment->group),
                  LOG_TEXT("message", error.message));
    free(file);
    free(reference);
}

/* A segment: the manifest says that it is there. A manifest: what it lists may go from here. */
static int note(struct host_uploads *uploads, const struct place *place, const char *reference,
                const struct sent_manifest *drops, struct error *error)
{
    struct open_host *at = enter_host(uploads, place->path, place->host, false, error);
    if (!at)
        return -1;
    const struct host_folder_options options = {
        .roots = roots_of(uploads), .path = place->path, .host = place->host, .must_exist = true};
    struct host_folder *folder = at->folder;
    int failed = folder ? 0 : host_folder_open(&options, &folder, error);
    if (!failed)
        failed = place->segment ? host_folder_uploaded(folder, place->segment, reference, error)
                                : host_folder_drop_local(folder, drops->numbers, drops->n, error);
    if (!at->folder)
        host_folder_close(folder);
    leave_host(uploads, at);
    return failed;
}

/* What cannot be noted is found by the next opening: it is queued again, and the same bytes are there. */
static void note_end(void *data, const struct upload_item *item, const struct error *failure)
{
    struct host_uploads *uploads = data;
    struct place place;
    struct error error;
    struct sent_manifest *sent = item->is_manifest ? take_sent(uploads, item->file) : NULL;
    if (failure || !find_place(item->file, &place)) {
        free_sent(sent);
        return;
    }
    bool changes = place.segment;
    struct known_host known;
    if (!changes && sent && sent->n && host_registry_find(uploads->state_dir, place.path, place.host, &known)) {
        /* the last opening says what is wanted; files go only to where that wants them */
        char *name = memory_print("%s/%s", place.host_name, place.file);
        char *wanted = known.upload.reference ? sink_join(known.upload.reference, name) : NULL;
        changes = known.upload.drop_local && wanted && strcmp(wanted, item->reference) == 0;
        known_host_fini(&known);
        free(wanted);
        free(name);
    }
    if (changes && note(uploads, &place, item->reference, sent, &error) < 0)
        log_at_of(LOG_WARN, "activations_not_noted", LOG_NOBODY, LOG_TEXT("store", place.path), LOG_U64("host", place.host),
                  LOG_TEXT("file", place.file), LOG_TEXT("message", error.message));
    else if (changes)
        add_manifest(uploads, item);
    free_sent(sent);
    free(place.path);
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

struct host_uploads *host_uploads_create(const char *state_dir, struct upload_queue *queue)
{
    struct host_uploads *uploads = memory_alloc(sizeof *uploads);
    uploads->state_dir = memory_copy_text(state_dir);
    uploads->queue = queue;
    pthread_mutex_init(&uploads->lock, NULL);
    condition_init(&uploads->left);
    const struct upload_listener listener = {.ended = note_end, .open = open_file, .allow = allow_manifest, .data = uploads};
    if (queue)
        upload_queue_listen(queue, &listener);
    return uploads;
}

void host_uploads_configure(struct host_uploads *uploads, const struct store_roots *roots)
{
    pthread_mutex_lock(&uploads->lock);
    uploads->roots = *roots;
    pthread_mutex_unlock(&uploads->lock);
}

void host_uploads_destroy(struct host_uploads *uploads)
{
    while (uploads->open) {
        struct open_host *next = uploads->open->next;
        free(uploads->open->path);
        free(uploads->open);
        uploads->open = next;
    }
    while (uploads->sent)
        free_sent(take_sent(uploads, uploads->sent->file));
    pthread_mutex_destroy(&uploads->lock);
    pthread_cond_destroy(&uploads->left);
    free(uploads->state_dir);
    free(uploads);
}
