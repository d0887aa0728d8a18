/* What helpers do in a writer's folder, a step at a time; see writer_private.h. */
#include <stdlib.h>
#include <string.h>

#include "activations/writer_private.h"
#include "observe/log.h"

/* What the queue did not take is queued by the next opening, unless it takes it now. */
static void warn_of_uploads(const struct activation_writer *writer, const struct error *error)
{
    log_at_of(LOG_WARN, "activations_not_queued", writer->user.uid, LOG_TEXT("store", writer->known.path),
              LOG_U64("host", writer->options.host), LOG_TEXT("message", error->message));
}

int writer_seal_first(struct activation_writer *writer, struct error *error)
{
    struct segment_builder *segment = writer->seal.queue[0];
    struct error not_queued;
    uint32_t number = segment_number(segment);
    if (host_folder_seal(writer->folder, segment, error) < 0)
        return -1;
    if (host_uploads_add(writer->table->uploads, &writer->known, writer->folder, number, &not_queued) < 0) {
        warn_of_uploads(writer, &not_queued);
        writer->seal.is_unqueued = true;
    }
    return 0;
}

void writer_shift_queue(struct writer_seal *seal)
{
    memmove(seal->queue, seal->queue + 1, --seal->n_queued * sizeof *seal->queue);
}

void writer_take_full(struct activation_writer *writer)
{
    struct segment_builder *full = host_folder_take_full(writer->folder);
    if (full)
        writer->seal.queue[writer->seal.n_queued++] = full;
}

int writer_close_folder(struct activation_writer *writer, struct error *error)
{
    struct host_uploads *uploads = writer->table->uploads;
    struct writer_seal *seal = &writer->seal;
    struct error other;
    int failed = host_folder_finish(writer->folder, error);
    writer_take_full(writer);
    while (seal->n_queued && writer_seal_first(writer, failed ? &other : error) == 0)
        writer_shift_queue(seal);
    if (seal->is_unqueued && host_uploads_begin(uploads, &writer->known, writer->folder, false, &other) < 0)
        warn_of_uploads(writer, &other);
    const struct host_resume resume = host_folder_resume(writer->folder);
    log_at_of(LOG_INFO, writer->is_recovery ? "activations_found" : "activations_closed", writer->user.uid,
              LOG_TEXT("store", writer->known.path), LOG_U64("host", writer->options.host),
              LOG_U64("samples", resume.n_samples), LOG_U64("segments", resume.n_segments), LOG_U64("bytes", resume.bytes));
    failed = failed || seal->n_queued;
    for (; seal->n_queued; writer_shift_queue(seal))
        segment_close(seal->queue[0]);
    writer->step.resume = resume;
    writer->step.disk_bytes = host_folder_disk_bytes(writer->folder);
    host_uploads_close(uploads, writer->known.path, writer->options.host, writer->folder);
    writer->folder = NULL;
    return failed ? -1 : 0;
}

/* Where uploads go is remembered before anything is queued: a crash between the two loses nothing. What was kept here so far is
 * compared once more with what is there before it goes. */
static int begin_uploads(struct activation_writer *writer, struct host_folder *folder, struct error *error)
{
    const struct activations *table = writer->table;
    const struct known_host *known = &writer->known;
    struct known_host before = {0};
    bool recheck = !writer->is_recovery && known->upload.drop_local &&
                   host_registry_find(table->state_dir, known->path, known->host, &before) && !before.upload.drop_local;
    known_host_fini(&before);
    if (!writer->is_recovery && host_registry_add(table->state_dir, known, error) < 0)
        return -1;
    if (host_uploads_begin(table->uploads, known, folder, recheck, error) < 0) {
        warn_of_uploads(writer, error);
        writer->seal.is_unqueued = true;
    }
    return 0;
}

int writer_open_folder(struct activation_writer *writer, struct error *error)
{
    const struct activations *table = writer->table;
    struct host_folder *folder;
    if (!writer->is_recovery && host_uploads_check(table->uploads, &writer->known, error) < 0)
        return -1;
    if (host_uploads_open(table->uploads, &writer->options, &folder, error) < 0) {
        if (writer->is_recovery && error->code == ERROR_NOT_FOUND)
            host_registry_remove(table->state_dir, &writer->known);
        return -1;
    }
    if (begin_uploads(writer, folder, error) < 0) {
        host_uploads_close(table->uploads, writer->known.path, writer->options.host, folder);
        return -1;
    }
    writer->folder = folder;
    return 0;
}

int writer_append_bytes(struct activation_writer *writer, struct error *error)
{
    const struct append_part *part = &writer->part;
    const struct sample *sample = &writer->coming.sample;
    const char *memory = writer->memory.address;
    if (part->offset == 0 && host_folder_begin(writer->folder, sample, writer->coming.most_bytes, error) < 0)
        return -1;
    writer->step.block_offset = host_folder_block_offset(writer->folder, part->offset + part->bytes);
    if (writer->memory.is_overlapped && host_folder_is_reserved(writer->folder))
        loop_post(writer->table->loop, &writer->step.accept);
    if (host_folder_write(writer->folder, memory + part->memory_offset, part->bytes, error) < 0)
        return -1;
    return part->offset + part->bytes == sample->bytes ? host_folder_end(writer->folder, sample, error) : 0;
}
