/* What becomes of the files that the queue of uploads sends: how they are opened, what the manifest says of them when they have
 * arrived, and when they go from here; see host_uploads.h. Threads of the queue. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "activations/host_manifest.h"
#include "activations/uploads_private.h"
#include "base/activation_name.h"
#include "base/memory.h"
#include "observe/log.h"
#include "sink/sink_document.h"

static struct store_roots roots_of(struct host_uploads *uploads)
{
    pthread_mutex_lock(&uploads->lock);
    struct store_roots roots = uploads->roots;
    pthread_mutex_unlock(&uploads->lock);
    return roots;
}

struct place {  /* of an item's file */
    char *path; /* of the store; malloced */
    char host_name[ACTIVATION_NAME_CHARS], file[ACTIVATION_NAME_CHARS];
    uint32_t host, segment; /* segment 0: the manifest */
};

/* False: it is no file of a store. */
static bool find_place(const char *file, struct place *place)
{
    *place = (struct place){.path = memory_copy_text(file)};
    char *name = strrchr(place->path, '/'), *host_name = NULL;
    if (name) {
        *name++ = '\0';
        host_name = strrchr(place->path, '/');
    }
    if (host_name)
        *host_name++ = '\0';
    bool is_good =
        host_name && strlen(host_name) < ACTIVATION_NAME_CHARS && strlen(name) < ACTIVATION_NAME_CHARS &&
        activation_parse_host(host_name, &place->host) &&
        (strcmp(name, ACTIVATION_MANIFEST) == 0 || activation_parse_segment(name, ACTIVATION_SEALED, &place->segment));
    if (is_good) {
        strcpy(place->host_name, host_name);
        strcpy(place->file, name);
        return true;
    }
    free(place->path);
    return false;
}

static int open_host_folder(struct host_uploads *uploads, const struct place *place, struct error *error)
{
    struct store_roots roots = roots_of(uploads);
    return store_path_open_host(&roots, place->path, place->host, false, error);
}

static int take_any(void *data, uint32_t segment, uint32_t sample, struct error *error)
{
    (void)data;
    (void)segment;
    (void)sample;
    (void)error;
    return 0;
}

/* What the manifest on the disk says: it is durable before a file goes. */
static bool is_uploaded(int folder_fd, const struct place *place, const char *reference)
{
    struct host_manifest manifest = {0};
    struct error ignored; /* then the file is missing, which is what is told */
    bool is_there;
    const struct manifest_segment *found = NULL;
    if (host_manifest_read(&manifest, place->host, folder_fd, &is_there, take_any, NULL, &ignored) == 0)
        found = host_manifest_find(&manifest, place->segment);
    bool is_same = found && found->uploaded && strcmp(found->uploaded, reference) == 0;
    host_manifest_fini(&manifest);
    return is_same;
}

/* --- the manifest that is sent ---------------------------------------------------------------------------------------------- */

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

static void keep_sent(struct host_uploads *uploads, struct sent_manifest *sent)
{
    free_sent(take_sent(uploads, sent->file)); /* of an earlier try */
    pthread_mutex_lock(&uploads->lock);
    sent->next = uploads->sent;
    uploads->sent = sent;
    pthread_mutex_unlock(&uploads->lock);
}

void uploads_forget_sent(struct host_uploads *uploads)
{
    while (uploads->sent)
        free_sent(take_sent(uploads, uploads->sent->file));
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

/* A copy with the segments that are there: the bucket is never told of one that it has not. Without any there is nothing to say,
 * and a manifest that somebody else wrote is not replaced by that. */
static int open_manifest(struct host_uploads *uploads, int folder_fd, const struct place *place,
                         const struct upload_item *item, bool *is_done, struct error *error)
{
    struct host_manifest manifest = {0};
    bool is_there;
    struct sent_manifest *sent = memory_alloc(sizeof *sent);
    struct listing listing = {item->reference, (size_t)(strrchr(item->reference, '/') + 1 - item->reference), .sent = sent};
    sent->file = memory_copy_text(item->file);
    int fd = memfd_create("manifest", MFD_CLOEXEC);
    int failed = fd < 0 ? fail_errno(error, errno, "cannot make a copy of " ACTIVATION_MANIFEST) : 0;
    if (!failed)
        failed = host_manifest_read(&manifest, place->host, folder_fd, &is_there, take_any, NULL, error);
    if (!failed)
        failed = host_manifest_print(&manifest, fd, lists, &listing, error);
    host_manifest_fini(&manifest);
    *is_done = !failed && listing.n == 0;
    if (!failed && !*is_done) {
        keep_sent(uploads, sent);
        return fd;
    }
    free_sent(sent);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* No link is followed: a store may lie in a folder of somebody who could put one there. */
int uploads_open_file(void *data, const struct upload_item *item, bool *is_done, struct error *error)
{
    struct place place;
    int fd = -1;
    if (!find_place(item->file, &place))
        return fail(error, ERROR_INVALID_ARGUMENT, "NOT_OF_A_STORE", "the file is none of an activation store");
    int folder_fd = open_host_folder(data, &place, error);
    if (folder_fd >= 0 && item->is_manifest) {
        fd = open_manifest(data, folder_fd, &place, item, is_done, error);
    } else if (folder_fd >= 0) {
        fd = store_path_openat(folder_fd, place.file, O_RDONLY, 0);
        if (fd < 0)
            fail_errno(error, errno, "cannot open %s/%s, which is to be uploaded", place.host_name, place.file);
        *is_done = fd < 0 && error->code == ERROR_NOT_FOUND && is_uploaded(folder_fd, &place, item->reference);
    }
    if (folder_fd >= 0)
        close(folder_fd);
    free(place.path);
    return fd;
}

/* --- the manifest that is there ----------------------------------------------------------------------------------------------- */

/* What an entry there may have beyond ours, which lists all that it lists: where the segment lies. */
enum { PLACE_BYTES = SINK_MAX_KEY_CHARS + 256 };

static int fail_stranger(const char *complaint, struct error *error)
{
    return fail(error, ERROR_ALREADY_EXISTS, "MANIFEST_OF_ANOTHER_STORE", "the one that is there %s", complaint);
}

/* One whose segments are all ours, whatever wrote it: this daemon, or the one that had the store before. */
static int check_listed(const struct host_manifest *ours, const struct host_manifest *theirs, struct error *error)
{
    char complaint[ACTIVATION_NAME_CHARS + 64], name[ACTIVATION_NAME_CHARS];
    for (size_t i = 0; i < theirs->n_segments; i++) {
        const struct manifest_segment *listed = &theirs->segments[i], *own = host_manifest_find(ours, listed->number);
        if (own && own->file_bytes == listed->file_bytes && own->crc32c == listed->crc32c)
            continue;
        activation_segment_name(listed->number, ACTIVATION_SEALED, name);
        snprintf(complaint, sizeof complaint, "lists a %s that is none of this store's", name);
        return fail_stranger(complaint, error);
    }
    return 0;
}

static int check_document(const struct host_manifest *ours, const struct sink_document *there, struct error *error)
{
    struct host_manifest theirs = {0};
    int failed = host_manifest_parse(&theirs, ours->host, there->bytes, there->count, take_any, NULL, error);
    if (!failed)
        failed = check_listed(ours, &theirs, error);
    else if (error->code == ERROR_DATA_LOSS)
        failed = fail_stranger("is no manifest of this host", error);
    host_manifest_fini(&theirs);
    return failed;
}

static int read_there(struct stores *stores, const struct host_manifest *ours, const struct sink_upload *where,
                      struct sink_document *there, struct error *error)
{
    uint64_t max_bytes = 2 * ours->text_bytes + (ours->n_segments + 1) * PLACE_BYTES;
    if (sink_document_read(stores, where, max_bytes, there, error) == 0)
        return check_document(ours, there, error);
    if (error->kind == ERROR_KIND_DOCUMENT_TOO_LARGE)
        return fail_stranger("lists more than this store has", error);
    return error->code == ERROR_NOT_FOUND ? 0 : -1;
}

/* Two stores with one place are told apart by what they hold: a manifest that lists what is not of this store is another one's. */
int uploads_allow_manifest(void *data, struct stores *stores, const struct upload_item *item,
                           const struct sink_upload *where, struct sink_document *there, struct error *error)
{
    struct place place;
    struct host_manifest ours = {0};
    bool is_there;
    if (!find_place(item->file, &place))
        return fail(error, ERROR_INVALID_ARGUMENT, "NOT_OF_A_STORE", "the file is none of an activation store");
    int folder_fd = open_host_folder(data, &place, error);
    int failed = folder_fd < 0 ? -1 : host_manifest_read(&ours, place.host, folder_fd, &is_there, take_any, NULL, error);
    if (folder_fd >= 0)
        close(folder_fd);
    if (!failed)
        failed = read_there(stores, &ours, where, there, error);
    host_manifest_fini(&ours);
    free(place.path);
    return failed;
}

/* --- the end of an upload --------------------------------------------------------------------------------------------------- */

/* The last opening says what is wanted; a file goes only to where that wants it. */
static bool keeps_local(struct host_uploads *uploads, const struct place *place, const char *reference)
{
    struct known_host known;
    if (!host_registry_find(uploads->state_dir, place->path, place->host, &known))
        return true;
    char *file = memory_print("%s/%s", place->host_name, place->file);
    char *wanted = known.upload.reference ? sink_join(known.upload.reference, file) : NULL;
    bool keeps = !known.upload.drop_local || !wanted || strcmp(wanted, reference) != 0;
    known_host_fini(&known);
    free(wanted);
    free(file);
    return keeps;
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
    if (upload_queue_add(uploads->options.queue, &item, 1, &error) < 0)
        log_at_of(LOG_WARN, "activations_not_queued", LOG_NOBODY, LOG_TEXT("group", segment->group),
                  LOG_TEXT("message", error.message));
    free(file);
    free(reference);
}

/* A segment: the manifest says that it is there. A manifest: what it lists may go from here. */
static int note_folder(struct host_folder *folder, const struct place *place, const char *reference,
                       const struct sent_manifest *drops, struct error *error)
{
    if (place->segment)
        return host_folder_uploaded(folder, place->segment, reference, error);
    return host_folder_drop_local(folder, drops->numbers, drops->n, error);
}

static int note(struct host_uploads *uploads, const struct place *place, const char *reference,
                const struct sent_manifest *drops, struct error *error)
{
    struct open_host *at = uploads_enter_host(uploads, place->path, place->host, error);
    if (!at)
        return -1;
    const struct host_folder_options options = {
        .roots = roots_of(uploads), .path = place->path, .host = place->host, .must_exist = true};
    struct host_folder *folder = at->folder;
    int failed = at->folder ? 0 : host_folder_open(&options, &folder, error);
    if (!failed)
        failed = note_folder(folder, place, reference, drops, error);
    if (folder)
        uploads->options.resized(uploads->options.data, place->path, place->host, host_folder_disk_bytes(folder));
    if (!at->folder)
        host_folder_close(folder);
    open_hosts_leave(uploads->open, at);
    return failed;
}

/* What cannot be noted is found by the next opening: it is queued again, and the same bytes are there. */
void uploads_note_end(void *data, const struct upload_item *item, const struct error *failure)
{
    struct host_uploads *uploads = data;
    struct place place;
    struct error error;
    struct sent_manifest *sent = item->is_manifest ? take_sent(uploads, item->file) : NULL;
    if (failure || !find_place(item->file, &place)) {
        free_sent(sent);
        return;
    }
    bool changes = place.segment || (sent && sent->n && !keeps_local(uploads, &place, item->reference));
    if (changes && note(uploads, &place, item->reference, sent, &error) < 0)
        log_at_of(LOG_WARN, "activations_not_noted", LOG_NOBODY, LOG_TEXT("store", place.path), LOG_U64("host", place.host),
                  LOG_TEXT("file", place.file), LOG_TEXT("message", error.message));
    else if (changes)
        add_manifest(uploads, item);
    free_sent(sent);
    free(place.path);
}
