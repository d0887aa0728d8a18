#include "activations/activation_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "activations/writer_private.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/state.h"
#include "base/text.h"
#include "observe/log.h"

enum { POLL_MS = 20, LONGEST_OPEN_MS = 10000 };

static const struct state_row rows[] = {
    [WRITER_WAITING] = {"waiting", STATE_BIT(WRITER_OPENING) | STATE_BIT(WRITER_CLOSED)},
    [WRITER_OPENING] = {"opening", STATE_BIT(WRITER_READY) | STATE_BIT(WRITER_CLOSED)},
    [WRITER_READY] = {"ready", STATE_BIT(WRITER_WORKING) | STATE_BIT(WRITER_CLOSING)},
    [WRITER_WORKING] = {"working", STATE_BIT(WRITER_READY)},
    [WRITER_CLOSING] = {"closing", STATE_BIT(WRITER_CLOSED)},
    [WRITER_CLOSED] = {"closed", 0},
};
static const struct state_machine machine = {"activation writer", rows, sizeof rows / sizeof rows[0]};

static void set_state(struct activation_writer *writer, enum writer_state state)
{
    state_check(&machine, writer->state, state);
    writer->state = state;
}

/* --- steps on helpers --------------------------------------------------------------------------------------------------- */

static void run_step(struct loop_work *work)
{
    struct activation_writer *writer = (struct activation_writer *)((char *)work - offsetof(struct activation_writer, work));
    struct metadata_account before = metadata_enter(writer->account);
    struct writer_call *call = writer->call;
    call->has_failed = writer->step(writer, &call->error) != 0;
    if (writer->folder)
        call->resume = host_folder_resume(writer->folder);
    metadata_enter(before);
}

static void submit_step(struct activation_writer *writer, int (*step)(struct activation_writer *writer, struct error *error),
                        void (*done)(struct loop_work *work))
{
    writer->step = step;
    writer->work = (struct loop_work){.do_work = run_step, .done = done, .pool = LOOP_DISK, .uid = writer->uid};
    /* the call itself was admitted; what it waits for is the disk */
    loop_continue(writer->table->loop, &writer->work);
}

static struct activation_writer *writer_of(struct loop_work *work)
{
    return (struct activation_writer *)((char *)work - offsetof(struct activation_writer, work));
}

static void answer_call(struct activation_writer *writer)
{
    struct writer_call *call = writer->call;
    writer->call = NULL;
    if (call && !writer->table->is_stopped)
        call->done(call);
}

static void fail_call(struct writer_call *call, const struct error *error)
{
    call->has_failed = true;
    if (error != &call->error)
        call->error = *error;
}

/* --- the end ------------------------------------------------------------------------------------------------------------ */

/* A call for what nobody has asked for. */
static void ignore_done(struct writer_call *call)
{
    free(call);
}

static struct writer_call *own_call(void)
{
    struct writer_call *call = memory_alloc(sizeof *call);
    call->done = ignore_done;
    return call;
}

void writer_free(struct activation_writer *writer)
{
    loop_watch_destroy(writer->memory.watch);
    loop_timer_destroy(writer->wait.timer);
    for (size_t i = 0; i < writer->seal.n_queued; i++)
        segment_close(writer->seal.queue[i]); /* the next one to open the folder seals them */
    host_uploads_close(writer->table->uploads, writer->path, writer->options.host, writer->folder);
    if (writer->memory.address)
        munmap(writer->memory.address, writer->memory.region->bytes);
    device_region_close(writer->memory.region);
    quota_charge_end(&writer->descriptors);
    arena_fini(&writer->coming.arena);
    free(writer->path);
    free(writer->upload.reference);
    free(writer);
}

static void end_writer(struct activation_writer *writer)
{
    struct activation_writer **at = &writer->table->writers;
    set_state(writer, WRITER_CLOSED);
    while (*at != writer)
        at = &(*at)->next;
    *at = writer->next;
    table_leave_host(writer);
    answer_call(writer);
    writer_free(writer);
}

static struct known_host known_of(const struct activation_writer *writer)
{
    struct known_host known = host_table_known(writer->host);
    known.upload = writer->upload;
    return known;
}

/* What the queue did not take is queued by the next opening, unless it takes it now. */
static void warn_of_uploads(const struct activation_writer *writer, const struct error *error)
{
    log_warn("activations_not_queued", LOG_TEXT("store", writer->path), LOG_U64("host", writer->options.host),
             LOG_TEXT("message", error->message));
}

static int close_folder(struct activation_writer *writer, struct error *error)
{
    struct host_uploads *uploads = writer->table->uploads;
    const struct known_host known = known_of(writer);
    if (writer->seal.is_unqueued && host_uploads_begin(uploads, &known, writer->folder, false, error) < 0)
        warn_of_uploads(writer, error);
    host_uploads_close(uploads, writer->path, writer->options.host, writer->folder);
    writer->folder = NULL;
    return 0;
}

static void on_folder_closed(struct loop_work *work)
{
    struct activation_writer *writer = writer_of(work);
    struct writer_call *call = writer->call;
    if (writer->seal.has_failed)
        fail_call(call, &writer->seal.error);
    if (call->has_failed)
        log_warn("activations_not_sealed", LOG_TEXT("store", writer->path), LOG_U64("host", writer->options.host),
                 LOG_TEXT("message", call->error.message));
    end_writer(writer);
}

/* What could not be sealed stays for the next one to open the folder. */
static void finish_closing(struct activation_writer *writer)
{
    struct host_resume resume = host_folder_resume(writer->folder);
    struct writer_call *call = writer->call;
    writer_count(writer);
    log_info(writer->is_recovery ? "activations_found" : "activations_closed", LOG_TEXT("store", writer->path),
             LOG_U64("host", writer->options.host), LOG_U64("samples", resume.n_samples),
             LOG_U64("segments", resume.n_segments), LOG_U64("bytes", resume.bytes));
    bool has_failed = call->has_failed;
    struct error error = call->error;
    for (size_t i = 0; i < writer->seal.n_queued; i++)
        segment_close(writer->seal.queue[i]);
    writer->seal.n_queued = 0;
    submit_step(writer, close_folder, on_folder_closed);
    if (has_failed) {
        writer->seal.has_failed = true;
        writer->seal.error = error;
    }
}

/* --- sealing ------------------------------------------------------------------------------------------------------------ */

static void try_append(void *data);

static void run_seal(struct loop_work *work)
{
    struct writer_seal *seal = (struct writer_seal *)work;
    struct activation_writer *writer = (struct activation_writer *)((char *)seal - offsetof(struct activation_writer, seal));
    struct metadata_account before = metadata_enter(writer->account);
    const struct known_host known = known_of(writer);
    struct error error;
    uint32_t number = segment_number(seal->queue[0]);
    seal->has_failed = host_folder_seal(writer->folder, seal->queue[0], &seal->error) != 0;
    if (!seal->has_failed && host_uploads_add(writer->table->uploads, &known, writer->folder, number, &error) < 0) {
        warn_of_uploads(writer, &error);
        seal->is_unqueued = true;
    }
    metadata_enter(before);
}

static void on_sealed(struct loop_work *work);

static void start_sealing(struct activation_writer *writer)
{
    struct writer_seal *seal = &writer->seal;
    if (seal->is_running || !seal->n_queued)
        return;
    seal->is_running = true;
    /* it reads all that was written, and sums take a processor: not among the short work of others */
    seal->work = (struct loop_work){.do_work = run_seal, .done = on_sealed, .pool = LOOP_VERIFY, .uid = writer->uid};
    loop_continue(writer->table->loop, &seal->work);
}

/* After a step, before the next one. */
static void seal_full(struct activation_writer *writer)
{
    struct segment_builder *full = host_folder_take_full(writer->folder);
    if (full)
        writer->seal.queue[writer->seal.n_queued++] = full;
    start_sealing(writer);
}

static void on_sealed(struct loop_work *work)
{
    struct writer_seal *seal = (struct writer_seal *)work;
    struct activation_writer *writer = (struct activation_writer *)((char *)seal - offsetof(struct activation_writer, seal));
    seal->is_running = false;
    writer_count(writer);
    if (!seal->has_failed)
        memmove(seal->queue, seal->queue + 1, --seal->n_queued * sizeof *seal->queue);
    if (!seal->has_failed && seal->n_queued)
        start_sealing(writer);
    if (writer->seal.is_last && !seal->is_running)
        finish_closing(writer);
    else if (writer->wait.is_blocked)
        try_append(writer);
}

/* --- ending by whatever ------------------------------------------------------------------------------------------------- */

static int finish_segment(struct activation_writer *writer, struct error *error)
{
    return host_folder_finish(writer->folder, error);
}

static void on_finished(struct loop_work *work)
{
    struct activation_writer *writer = writer_of(work);
    if (!writer->seal.is_running)
        writer->seal.has_failed = false; /* once more */
    writer->seal.is_last = true;
    seal_full(writer);
    if (!writer->seal.is_running)
        finish_closing(writer);
}

static void begin_closing(struct activation_writer *writer, struct writer_call *call)
{
    set_state(writer, WRITER_CLOSING);
    loop_watch_destroy(writer->memory.watch);
    writer->memory.watch = NULL;
    writer->call = call;
    writer_give_room_back(writer);
    submit_step(writer, finish_segment, on_finished);
}

static void get_ready(struct activation_writer *writer)
{
    set_state(writer, WRITER_READY);
    writer_count(writer);
    answer_call(writer);
    if (writer->is_left)
        begin_closing(writer, own_call());
}

void writer_leave(struct activation_writer *writer)
{
    writer->is_left = true;
    if (writer->state == WRITER_READY)
        begin_closing(writer, own_call());
}

static void on_lease(void *data, int events)
{
    struct activation_writer *writer = data;
    (void)events; /* it may say nothing, so any word is the end as well */
    loop_watch_destroy(writer->memory.watch);
    writer->memory.watch = NULL;
    log_info("activations_writer_left", LOG_TEXT("store", writer->path), LOG_U64("host", writer->options.host));
    writer_leave(writer);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

/* Where uploads go is remembered before anything is queued: a crash between the two loses nothing. What was kept here so far is
 * compared once more with what is there before it goes. */
static int begin_uploads(struct activation_writer *writer, const struct known_host *known, struct host_folder *folder,
                         struct error *error)
{
    const struct activations *table = writer->table;
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

static int open_folder(struct activation_writer *writer, struct error *error)
{
    const struct activations *table = writer->table;
    const struct known_host known = known_of(writer);
    struct host_folder *folder;
    if (!writer->is_recovery && host_uploads_check(table->uploads, &known, error) < 0)
        return -1;
    if (host_uploads_open(table->uploads, &writer->options, &folder, error) < 0) {
        if (writer->is_recovery && error->code == ERROR_NOT_FOUND)
            host_registry_remove(table->state_dir, &known);
        return -1;
    }
    if (begin_uploads(writer, &known, folder, error) < 0) {
        host_uploads_close(table->uploads, writer->path, writer->options.host, folder);
        return -1;
    }
    writer->folder = folder;
    return 0;
}

static void on_opened(struct loop_work *work)
{
    struct activation_writer *writer = writer_of(work);
    struct writer_call *call = writer->call;
    if (call->has_failed) {
        if (writer->is_recovery && call->error.code == ERROR_NOT_FOUND)
            writer->host->is_known = false;
        if (writer->is_recovery)
            log_warn("activations_not_recovered", LOG_TEXT("store", writer->path), LOG_U64("host", writer->options.host),
                     LOG_TEXT("message", call->error.message));
        end_writer(writer);
        return;
    }
    writer->host->is_known = true;
    call->writer = writer;
    if (!writer->is_recovery)
        log_info("activations_opened", LOG_TEXT("store", writer->path), LOG_U64("host", writer->options.host),
                 LOG_U64("uid", writer->uid), LOG_U64("samples", call->resume.n_samples));
    get_ready(writer);
}

static int fail_taken(const struct activation_writer *writer, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(WRITER_EXISTS), "host %" PRIu32 " of %s has a writer already",
                writer->options.host, text_escape(writer->path, strlen(writer->path), text));
}

/* A folder whose writer is on its way out, or that is being looked at after a crash, is free in a moment; and whose the stores
 * are is not known before the registry has been read. */
static void try_open(struct activation_writer *writer)
{
    const struct activation_writer *other = NULL;
    struct error *error = &writer->call->error;
    bool is_late = writer->is_left || clock_now_ns() > writer->wait.until_ns;
    if (writer->table->is_listing && !is_late)
        return;
    int failed = table_take_host(writer, &other, error);
    bool is_going = other && (other->is_left || other->is_recovery || other->state == WRITER_CLOSING);
    if (!failed && !other && !writer->is_left) {
        loop_timer_stop(writer->wait.timer);
        set_state(writer, WRITER_OPENING);
        submit_step(writer, open_folder, on_opened);
    } else if (failed || !is_going || is_late) {
        writer->call->has_failed = true;
        if (!failed)
            fail_taken(writer, error);
        end_writer(writer);
    }
}

static void on_timer(void *data)
{
    struct activation_writer *writer = data;
    if (writer->state == WRITER_WAITING)
        try_open(writer);
    else if (writer->wait.is_blocked)
        try_append(writer);
}

static struct activation_writer *new_writer(struct activations *table, const char *path, uint32_t host, uid_t uid)
{
    struct activation_writer *writer = memory_alloc(sizeof *writer);
    writer->table = table;
    writer->path = memory_copy_text(path);
    writer->uid = uid;
    writer->options = (struct host_folder_options){.roots = table->limits.roots, .path = writer->path, .host = host};
    writer->next = table->writers;
    table->writers = writer;
    return writer;
}

static int prepare_memory(struct activation_writer *writer, struct error *error)
{
    const struct metadata_account account = writer->account;
    writer->descriptors = (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid};
    if (quota_charge_add(&writer->descriptors, WRITER_DESCRIPTORS, error) < 0)
        return -1;
    if (getrandom(writer->id, sizeof writer->id, 0) != sizeof writer->id)
        return fail_errno(error, errno, "getrandom");
    void *memory = mmap(NULL, writer->memory.region->bytes, PROT_READ, MAP_SHARED, writer->memory.region->memory_fd, 0);
    if (memory == MAP_FAILED)
        return fail_errno(error, errno, "cannot map %" PRIu64 " bytes of the client's memory", writer->memory.region->bytes);
    writer->memory.address = memory;
    writer->memory.watch = loop_watch_create(writer->table->loop, writer->memory.region->lease_fd,
                                             LOOP_READABLE | LOOP_HANGUP, on_lease, writer);
    return writer->memory.watch ? 0 : fail(error, ERROR_INTERNAL, "NO_WATCH", "the client's connection cannot be watched");
}

static void set_upload(struct activation_writer *writer, const struct known_upload *upload)
{
    writer->upload = *upload;
    writer->upload.reference = upload->reference ? memory_copy_text(upload->reference) : NULL;
}

void activation_writer_open(struct activations *table, const struct writer_options *options, struct writer_call *call)
{
    struct activation_writer *writer = new_writer(table, options->path, options->host, options->uid);
    *call = (struct writer_call){.done = call->done};
    writer->options.segment_bytes = options->segment_bytes;
    writer->is_member = options->is_member;
    writer->account = options->account;
    set_upload(writer, &options->upload);
    writer->memory.region = options->region;
    writer->call = call;
    writer->is_left = table->is_draining;
    writer->wait.until_ns = clock_now_ns() + (uint64_t)LONGEST_OPEN_MS * NS_PER_MS;
    writer->wait.timer = loop_timer_create(table->loop, on_timer, writer);
    if (prepare_memory(writer, &call->error) < 0) {
        call->has_failed = true;
        end_writer(writer);
        return;
    }
    loop_timer_start(writer->wait.timer, POLL_MS, POLL_MS);
    try_open(writer);
}

void writer_recover(struct activations *table, const struct known_host *host)
{
    const struct activation_writer *other;
    struct error ignored; /* it is in the table already, and nobody has it */
    struct activation_writer *writer = new_writer(table, host->path, host->host, host->uid);
    set_upload(writer, &host->upload);
    writer->options.must_exist = true;
    writer->is_recovery = writer->is_left = true;
    writer->call = own_call();
    table_take_host(writer, &other, &ignored);
    set_state(writer, WRITER_OPENING);
    submit_step(writer, open_folder, on_opened);
}

/* --- calls -------------------------------------------------------------------------------------------------------------- */

const unsigned char *activation_writer_id(const struct activation_writer *writer)
{
    return writer->id;
}

static int append_bytes(struct activation_writer *writer, struct error *error)
{
    const struct append_part *part = &writer->part;
    const char *memory = writer->memory.address;
    if (part->offset == 0 && host_folder_begin(writer->folder, &writer->coming.sample, error) < 0)
        return -1;
    if (host_folder_write(writer->folder, memory + part->memory_offset, part->bytes, error) < 0)
        return -1;
    return part->offset + part->bytes == writer->coming.sample.bytes
               ? host_folder_end(writer->folder, &writer->coming.sample, error)
               : 0;
}

static void drop_sample(struct activation_writer *writer)
{
    writer->coming.is_begun = false;
    writer_give_room_back(writer);
    arena_fini(&writer->coming.arena);
}

static void on_appended(struct loop_work *work)
{
    struct activation_writer *writer = writer_of(work);
    writer->coming.received_bytes += writer->part.bytes;
    if (writer->call->has_failed || writer->coming.received_bytes == writer->coming.sample.bytes)
        drop_sample(writer);
    seal_full(writer);
    get_ready(writer);
}

static void end_append(struct activation_writer *writer, const struct error *error)
{
    fail_call(writer->call, error);
    drop_sample(writer);
    get_ready(writer);
}

static void stop_waiting(struct activation_writer *writer)
{
    loop_timer_stop(writer->wait.timer);
    writer->wait.is_blocked = false;
}

/* Until full segments are sealed, and the disk has room. */
static void try_append(void *data)
{
    struct activation_writer *writer = data;
    struct error error = {0};
    bool is_sealing = writer->seal.n_queued >= MAX_FULL, has_failed = !writer->seal.is_running && writer->seal.has_failed;
    if (has_failed)
        error = writer->seal.error;
    int room = is_sealing && has_failed ? -1 : is_sealing ? 0 : writer_find_room(writer, &error);
    if (room == 0 && !writer->is_left && !writer->table->is_draining)
        return; /* the timer, or the end of sealing */
    stop_waiting(writer);
    if (room > 0) {
        submit_step(writer, append_bytes, on_appended);
        return;
    }
    if (room == 0)
        fail(&error, ERROR_UNAVAILABLE, "DAEMON_STOPPING", "the writer ended while a sample waited for room");
    if (is_sealing) {
        writer->seal.has_failed = false; /* the next call finds out whether there is room now */
        start_sealing(writer);
    }
    end_append(writer, &error);
}

/* False: the call has been answered. */
static bool begin_call(struct activation_writer *writer, struct writer_call *call)
{
    *call = (struct writer_call){.done = call->done};
    if (writer->state == WRITER_READY && !writer->table->is_draining) {
        set_state(writer, WRITER_WORKING);
        writer->call = call;
        return true;
    }
    call->has_failed = true;
    fail(&call->error, ERROR_ABORTED, "WRITER_BUSY", "the writer has another call under way, or ends; one call at a time");
    call->done(call);
    return false;
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

void activation_writer_append(struct activation_writer *writer, struct append_part *part, struct writer_call *call)
{
    struct error error;
    if (!begin_call(writer, call)) {
        arena_fini(&part->arena);
        return;
    }
    if (part->has_sample) {
        drop_sample(writer); /* one that was not sent to its end */
        writer->coming.sample = part->sample;
        writer->coming.arena = part->arena;
        writer->coming.is_begun = true;
        writer->coming.received_bytes = 0;
    }
    writer->part = *part;
    if (check_part(writer, part, &error) < 0) {
        end_append(writer, &error);
        return;
    }
    if (!part->has_sample) {
        submit_step(writer, append_bytes, on_appended);
        return;
    }
    writer->wait.is_blocked = true;
    writer->wait.until_ns = clock_now_ns() + writer->table->limits.quota_timeout_ms * NS_PER_MS;
    loop_timer_start(writer->wait.timer, POLL_MS, POLL_MS);
    try_append(writer);
}

static int commit_folder(struct activation_writer *writer, struct error *error)
{
    return host_folder_commit(writer->folder, error);
}

static void on_committed(struct loop_work *work)
{
    get_ready(writer_of(work));
}

void activation_writer_commit(struct activation_writer *writer, struct writer_call *call)
{
    if (begin_call(writer, call))
        submit_step(writer, commit_folder, on_committed);
}

void activation_writer_close(struct activation_writer *writer, struct writer_call *call)
{
    if (!begin_call(writer, call))
        return;
    set_state(writer, WRITER_READY);
    begin_closing(writer, call);
}
