/* What is put into the queue of uploads; see host_uploads.h. */
#include "activations/host_uploads.h"

#include <stdlib.h>
#include <string.h>

#include "activations/uploads_private.h"
#include "base/activation_name.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "sink/sink.h"

static const uint64_t PATIENCE_NS = (uint64_t)60 * 1000000000;

/* --- queueing --------------------------------------------------------------------------------------------------------------- */

struct batch {
    const struct known_host *host;
    char *group, host_name[ACTIVATION_NAME_CHARS];
    struct upload_item *items; /* their texts are malloced, but for the group */
    size_t n, capacity;
    struct quota_charge charge; /* of items: a host has up to a million */
};

static void init_batch(struct batch *batch, const struct known_host *host)
{
    *batch = (struct batch){.host = host, .charge = metadata_charge()};
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
    quota_charge_end(&batch->charge);
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
    uint64_t bytes = strlen(item->file) + strlen(item->reference) + 2;
    if (quota_charge_add(&batch->charge, bytes, error) != 0)
        return NULL;
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
    int failed = manifest ? upload_queue_add(uploads->options.queue, batch->items, batch->n, error) : -1;
    end_batch(batch);
    return failed;
}

int host_uploads_check(struct host_uploads *uploads, const struct known_host *host, struct error *error)
{
    struct batch batch;
    if (!host->upload.reference)
        return 0;
    if (!uploads->options.queue)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_UPLOADS", "nothing is uploaded here");
    init_batch(&batch, host);
    char *reference = reference_of(&batch, ACTIVATION_MANIFEST);
    int failed = upload_queue_check(uploads->options.queue, reference, error);
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
    upload_queue_leave(uploads->options.queue, batch.group, prefix);
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
    if (!uploads->options.queue)
        return;
    char *group = memory_print("disk:%s/%s", path, activation_host_name(host, name));
    upload_queue_counts(uploads->options.queue, group, counts);
    free(group);
}

/* --- folders of writers --- */

struct open_host *uploads_enter_host(struct host_uploads *uploads, const char *path, uint32_t host, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS], shown[TEXT_NAME_CHARS];
    struct open_host *at = open_hosts_enter(uploads->open, path, host, clock_now_ns() + PATIENCE_NS);
    if (!at)
        fail(error, ERROR_UNAVAILABLE, "NO_ANSWER",
             "another request has been at %s of the store %s for a minute; see whether its disk answers",
             activation_host_name(host, name), text_escape(path, strlen(path), shown));
    return at;
}

int host_uploads_open(struct host_uploads *uploads, const struct host_folder_options *options, struct host_folder **folder,
                      struct error *error)
{
    struct open_host *at = uploads_enter_host(uploads, options->path, options->host, error);
    int failed = at ? 0 : -1;
    if (failed)
        return -1;
    failed = host_folder_open(options, folder, error);
    if (!failed)
        at->folder = *folder;
    open_hosts_leave(uploads->open, at);
    return failed;
}

void host_uploads_close(struct host_uploads *uploads, const char *path, uint32_t host, struct host_folder *folder)
{
    if (!folder)
        return;
    struct open_host *at = open_hosts_enter(uploads->open, path, host, 0);
    at->folder = NULL;
    uploads->options.resized(uploads->options.data, path, host, host_folder_disk_bytes(folder));
    host_folder_close(folder);
    open_hosts_leave(uploads->open, at);
}

struct host_uploads *host_uploads_create(const struct host_uploads_options *options)
{
    struct host_uploads *uploads = memory_alloc(sizeof *uploads);
    uploads->state_dir = memory_copy_text(options->state_dir);
    uploads->options = *options;
    uploads->open = open_hosts_create();
    pthread_mutex_init(&uploads->lock, NULL);
    const struct upload_listener listener = {
        .ended = uploads_note_end, .open = uploads_open_file, .allow = uploads_allow_manifest, .data = uploads};
    if (options->queue)
        upload_queue_listen(options->queue, &listener);
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
    if (!uploads)
        return;
    open_hosts_destroy(uploads->open);
    uploads_forget_sent(uploads);
    pthread_mutex_destroy(&uploads->lock);
    free(uploads->state_dir);
    free(uploads);
}
