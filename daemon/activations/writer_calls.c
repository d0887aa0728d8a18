/* Calls of a writer. An append waits for room, then a helper writes it. With overlapped memory its call is answered as soon as the
 * disk has taken the sample's room, so that the client fills other memory while this is written; the next call waits meanwhile. A
 * write that fails after that is told by every call that follows, and nothing more is appended: what had been durable stays. */
#include <inttypes.h>

#include "activations/writer_private.h"
#include "base/clock.h"

const unsigned char *activation_writer_id(const struct activation_writer *writer)
{
    return writer->id;
}

static void fail_under_way(struct activation_writer *writer, const struct error *error)
{
    writer->call->has_failed = true;
    writer->call->error = *error;
}

/* --- one after the other ------------------------------------------------------------------------------------------------- */

static void refuse_call(struct writer_call *call)
{
    call->has_failed = true;
    fail(&call->error, ERROR_ABORTED, "WRITER_BUSY", "the writer has another call under way, or ends; one call at a time");
    call->done(call);
}

/* `begin` is called now, or when what was answered early has been written. False: the call has been refused. */
static bool submit_call(struct activation_writer *writer, struct writer_call *call, const struct append_part *part,
                        void (*begin)(struct activation_writer *writer))
{
    bool is_ready = writer->state == WRITER_READY;
    bool has_answered = writer->state == WRITER_WORKING && !writer->call && !writer->next_call.call;
    *call = (struct writer_call){.done = call->done};
    if (writer->table->is_draining || (!is_ready && !has_answered)) {
        refuse_call(call);
        return false;
    }
    if (has_answered) {
        writer->next_call = (struct next_call){.call = call, .begin = begin, .part = *part};
        return true;
    }
    writer->part = *part;
    writer_begin_work(writer, call);
    begin(writer);
    return true;
}

/* --- appending ---------------------------------------------------------------------------------------------------------- */

static int append_bytes(struct activation_writer *writer, struct error *error)
{
    const struct append_part *part = &writer->part;
    const char *memory = writer->memory.address;
    if (part->offset == 0 && host_folder_begin(writer->folder, &writer->coming.sample, writer->coming.most_bytes, error) < 0)
        return -1;
    writer->step.block_offset = host_folder_block_offset(writer->folder, part->offset + part->bytes);
    if (writer->memory.is_overlapped && host_folder_is_reserved(writer->folder))
        loop_post(writer->table->loop, &writer->step.accept);
    if (host_folder_write(writer->folder, memory + part->memory_offset, part->bytes, error) < 0)
        return -1;
    return part->offset + part->bytes == writer->coming.sample.bytes
               ? host_folder_end(writer->folder, &writer->coming.sample, error)
               : 0;
}

/* Before on_appended(), since the loop runs what a thread posts in order. */
static void on_accepted(struct loop_task *task)
{
    struct activation_writer *writer =
        (struct activation_writer *)((char *)task - offsetof(struct activation_writer, step.accept));
    writer->call->block_offset = writer->step.block_offset;
    writer_answer(writer);
}

static void drop_sample(struct activation_writer *writer)
{
    writer->coming.is_begun = false;
    writer_give_room_back(writer);
    arena_fini(&writer->coming.arena);
}

/* Whoever waits for an answer gets the error; else it is kept for all that follow. */
static void lose_sample(struct activation_writer *writer)
{
    if (writer->call)
        return;
    writer->lost.is_lost = true;
    writer->lost.error = writer->step.error;
    error_prefix(&writer->lost.error,
                 "sample %" PRIu32 " was not written; open the store again and go on behind what it has",
                 writer->coming.sample.id);
}

static void end_append(struct activation_writer *writer, const struct error *error)
{
    fail_under_way(writer, error);
    drop_sample(writer);
    writer_get_ready(writer);
}

static void stop_waiting(struct activation_writer *writer)
{
    loop_timer_stop(writer->wait.timer);
    writer->wait.is_blocked = false;
}

static void begin_waiting(struct activation_writer *writer)
{
    writer->wait.is_blocked = true;
    loop_timer_start(writer->wait.timer, POLL_MS, POLL_MS);
}

static void wait_for_room(struct activation_writer *writer)
{
    begin_waiting(writer);
    writer_try_append(writer);
}

static int finish_segment(struct activation_writer *writer, struct error *error)
{
    return host_folder_finish(writer->folder, error);
}

static void on_segment_finished(struct activation_writer *writer)
{
    if (writer->step.has_failed) {
        end_append(writer, &writer->step.error);
        return;
    }
    writer_seal_full(writer);
    wait_for_room(writer);
}

/* What is uploaded and then goes from here makes room only once it is sealed: a quota that is smaller than the segments of those who
 * write would otherwise keep all of them waiting for each other. */
static bool seal_to_make_room(struct activation_writer *writer)
{
    bool helps = writer->upload.drop_local && !writer->seal.n_queued && host_folder_is_all_open(writer->folder);
    if (!helps || writer->is_left || writer->table->is_draining)
        return false;
    stop_waiting(writer);
    writer_submit(writer, finish_segment, on_segment_finished);
    return true;
}

/* What is uploaded goes from a full disk as well: then the sample, of which nothing was taken, is begun anew. */
static bool waits_for_disk(const struct activation_writer *writer)
{
    return writer->step.has_failed && writer->step.error.kind == ERROR_KIND_NO_SPACE && writer->call &&
           writer->part.offset == 0 && writer->upload.drop_local && clock_now_ns() < writer->wait.until_ns &&
           !writer->is_left && !writer->table->is_draining;
}

static void on_appended(struct activation_writer *writer)
{
    if (waits_for_disk(writer)) {
        writer_give_room_back(writer);
        writer_seal_full(writer);
        if (!seal_to_make_room(writer))
            begin_waiting(writer);
        return;
    }
    writer->coming.received_bytes += writer->part.bytes;
    if (writer->step.has_failed)
        lose_sample(writer);
    if (writer->step.has_failed || writer->coming.received_bytes == writer->coming.sample.bytes)
        drop_sample(writer);
    writer_seal_full(writer);
    writer_get_ready(writer);
}

/* Until full segments are sealed, and the disk has room. */
void writer_try_append(struct activation_writer *writer)
{
    struct error error = {0};
    bool is_sealing = writer->seal.n_queued >= MAX_FULL, has_failed = !writer->seal.is_running && writer->seal.has_failed;
    if (has_failed)
        error = writer->seal.error;
    int room = is_sealing && has_failed ? -1 : is_sealing ? 0 : writer_find_room(writer, &error);
    if (room == 0 && !is_sealing && seal_to_make_room(writer))
        return;
    if (room == 0 && !writer->is_left && !writer->table->is_draining)
        return; /* the timer, or the end of sealing */
    stop_waiting(writer);
    if (room > 0) {
        writer->step.accept = (struct loop_task){.run = on_accepted};
        writer_submit(writer, append_bytes, on_appended);
        return;
    }
    if (room == 0)
        fail(&error, ERROR_UNAVAILABLE, "DAEMON_STOPPING", "the writer ended while a sample waited for room");
    if (is_sealing) {
        writer->seal.has_failed = false; /* the next call finds out whether there is room now */
        writer_start_sealing(writer);
    }
    end_append(writer, &error);
}

static int check_part(const struct activation_writer *writer, const struct append_part *part, struct error *error)
{
    uint64_t memory_bytes = writer->memory.region->bytes, expected = writer->coming.received_bytes;
    if (part->memory_offset > memory_bytes || part->bytes > memory_bytes - part->memory_offset)
        return fail(error, ERROR_INVALID_ARGUMENT, "OUTSIDE_MEMORY",
                    "%" PRIu64 " bytes at %" PRIu64 " are not inside of the %" PRIu64 " bytes of shared memory", part->bytes,
                    part->memory_offset, memory_bytes);
    if (!writer->coming.is_begun || part->offset != expected || part->bytes > writer->coming.sample.bytes - expected ||
        (!part->bytes && writer->coming.sample.bytes))
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PART",
                    "%" PRIu64 " bytes at %" PRIu64 " of a sample, of which %" PRIu64 " have come", part->bytes,
                    part->offset, expected);
    return 0;
}

static void begin_sample(struct activation_writer *writer)
{
    drop_sample(writer); /* one that was not sent to its end */
    writer->coming.sample = writer->part.sample;
    writer->coming.arena = writer->part.arena;
    writer->coming.is_begun = true;
    writer->coming.received_bytes = 0;
}

static void begin_append(struct activation_writer *writer)
{
    struct error error;
    if (writer->part.has_sample)
        begin_sample(writer);
    if (writer->lost.is_lost) {
        end_append(writer, &writer->lost.error);
        return;
    }
    if (check_part(writer, &writer->part, &error) < 0) {
        end_append(writer, &error);
        return;
    }
    if (!writer->part.has_sample) {
        writer->step.accept = (struct loop_task){.run = on_accepted};
        writer_submit(writer, append_bytes, on_appended);
        return;
    }
    writer->wait.until_ns = clock_now_ns() + writer->table->limits.quota_timeout_ms * NS_PER_MS;
    wait_for_room(writer);
}

void activation_writer_append(struct activation_writer *writer, struct append_part *part, struct writer_call *call)
{
    if (!submit_call(writer, call, part, begin_append))
        arena_fini(&part->arena);
}

/* --- the other calls ----------------------------------------------------------------------------------------------------- */

static int commit_folder(struct activation_writer *writer, struct error *error)
{
    return host_folder_commit(writer->folder, error);
}

static void begin_commit(struct activation_writer *writer)
{
    if (!writer->lost.is_lost) {
        writer_submit(writer, commit_folder, writer_get_ready);
        return;
    }
    fail_under_way(writer, &writer->lost.error);
    writer_get_ready(writer);
}

void activation_writer_commit(struct activation_writer *writer, struct writer_call *call)
{
    submit_call(writer, call, &(const struct append_part){0}, begin_commit);
}

static void begin_close(struct activation_writer *writer)
{
    writer_begin_closing(writer, writer->call);
}

void activation_writer_close(struct activation_writer *writer, struct writer_call *call)
{
    submit_call(writer, call, &(const struct append_part){0}, begin_close);
}
