#include "activations/activation_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "activations/writer_private.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/state.h"
#include "base/text.h"
#include "observe/log.h"

enum { LONGEST_OPEN_MS = 10000 };

static const struct state_row rows[] = {
    [WRITER_WAITING] = {"waiting", STATE_BIT(WRITER_OPENING) | STATE_BIT(WRITER_CLOSED)},
    [WRITER_OPENING] = {"opening", STATE_BIT(WRITER_READY) | STATE_BIT(WRITER_CLOSED)},
    [WRITER_READY] = {"ready", STATE_BIT(WRITER_WORKING) | STATE_BIT(WRITER_CLOSING)},
    [WRITER_WORKING] = {"working", STATE_BIT(WRITER_READY) | STATE_BIT(WRITER_CLOSING)},
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

static struct activation_writer *writer_of(struct loop_work *work)
{
    return (struct activation_writer *)((char *)work - offsetof(struct activation_writer, step.work));
}

static void run_step(struct loop_work *work)
{
    struct activation_writer *writer = writer_of(work);
    struct writer_step *step = &writer->step;
    struct metadata_account before = metadata_enter(writer->user.account);
    step->has_failed = step->run(writer, &step->error) != 0;
    if (writer->folder)
        step->resume = host_folder_resume(writer->folder);
    metadata_enter(before);
}

static void on_step(struct loop_work *work)
{
    struct activation_writer *writer = writer_of(work);
    const struct writer_step *step = &writer->step;
    struct writer_call *call = writer->call;
    if (call) {
        call->has_failed = step->has_failed;
        call->error = step->error;
        call->resume = step->resume;
        call->block_offset = step->block_offset;
    }
    step->done(writer);
}

void writer_submit(struct activation_writer *writer, int (*run)(struct activation_writer *writer, struct error *error),
                   void (*done)(struct activation_writer *writer))
{
    writer->step.run = run;
    writer->step.done = done;
    writer->step.work = (struct loop_work){.do_work = run_step, .done = on_step, .pool = LOOP_DISK, .uid = writer->user.uid};
    /* the call itself was admitted; what it waits for is the disk */
    loop_continue(writer->table->loop, &writer->step.work);
}

void writer_answer(struct activation_writer *writer)
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
    quota_charge_end(&writer->user.descriptors);
    arena_fini(&writer->coming.arena);
    if (writer->next_call.call)
        arena_fini(&writer->next_call.part.arena); /* the daemon ends: nobody is answered */
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
    writer_answer(writer);
    writer_free(writer);
}

static struct known_host known_of(const struct activation_writer *writer)
{
    return (struct known_host){.path = writer->path, .host = writer->options.host, .upload = writer->upload};
}

/* What the queue did not take is queued by the next opening, unless it takes it now. */
static void warn_of_uploads(const struct activation_writer *writer, const struct error *error)
{
    log_at_of(LOG_WARN, "activations_not_queued", writer->user.uid, LOG_TEXT("store", writer->path),
              LOG_U64("host", writer->options.host), LOG_TEXT("message", error->message));
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

static void on_folder_closed(struct activation_writer *writer)
{
    struct writer_call *call = writer->call;
    if (writer->seal.has_failed)
        fail_call(call, &writer->seal.error);
    if (call->has_failed)
        log_at_of(LOG_WARN, "activations_not_sealed", writer->user.uid, LOG_TEXT("store", writer->path),
                  LOG_U64("host", writer->options.host), LOG_TEXT("message", call->error.message));
    else if (writer->lost.is_lost)
        fail_call(call, &writer->lost.error);
    end_writer(writer);
}

/* What could not be sealed stays for the next one to open the folder. */
static void finish_closing(struct activation_writer *writer)
{
    struct host_resume resume = host_folder_resume(writer->folder);
    struct writer_call *call = writer->call;
    writer_count(writer);
    log_at_of(LOG_INFO, writer->is_recovery ? "activations_found" : "activations_closed", writer->user.uid,
              LOG_TEXT("store", writer->path), LOG_U64("host", writer->options.host), LOG_U64("samples", resume.n_samples),
              LOG_U64("segments", resume.n_segments), LOG_U64("bytes", resume.bytes));
    bool has_failed = call->has_failed;
    struct error error = call->error;
    for (size_t i = 0; i < writer->seal.n_queued; i++)
        segment_close(writer->seal.queue[i]);
    writer->seal.n_queued = 0;
    writer_submit(writer, close_folder, on_folder_closed);
    if (has_failed) {
        writer->seal.has_failed = true;
        writer->seal.error = error;
    }
}

/* --- sealing ------------------------------------------------------------------------------------------------------------ */

static void run_seal(struct loop_work *work)
{
    struct writer_seal *seal = (struct writer_seal *)work;
    struct activation_writer *writer = (struct activation_writer *)((char *)seal - offsetof(struct activation_writer, seal));
    struct metadata_account before = metadata_enter(writer->user.account);
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

void writer_start_sealing(struct activation_writer *writer)
{
    struct writer_seal *seal = &writer->seal;
    if (seal->is_running || !seal->n_queued)
        return;
    seal->is_running = true;
    /* it reads all that was written, and sums take a processor: not among the short work of others */
    seal->work = (struct loop_work){.do_work = run_seal, .done = on_sealed, .pool = LOOP_VERIFY, .uid = writer->user.uid};
    loop_continue(writer->table->loop, &seal->work);
}

/* After a step, before the next one. */
void writer_seal_full(struct activation_writer *writer)
{
    struct segment_builder *full = host_folder_take_full(writer->folder);
    if (full)
        writer->seal.queue[writer->seal.n_queued++] = full;
    writer_start_sealing(writer);
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
        writer_start_sealing(writer);
    if (writer->seal.is_last && !seal->is_running)
        finish_closing(writer);
    else if (writer->wait.is_blocked)
        writer_try_append(writer);
}

/* --- ending by whatever ------------------------------------------------------------------------------------------------- */

static int finish_segment(struct activation_writer *writer, struct error *error)
{
    return host_folder_finish(writer->folder, error);
}

static void on_finished(struct activation_writer *writer)
{
    if (!writer->seal.is_running)
        writer->seal.has_failed = false; /* once more */
    writer->seal.is_last = true;
    writer_seal_full(writer);
    if (!writer->seal.is_running)
        finish_closing(writer);
}

void writer_begin_closing(struct activation_writer *writer, struct writer_call *call)
{
    set_state(writer, WRITER_CLOSING);
    loop_watch_destroy(writer->memory.watch);
    writer->memory.watch = NULL;
    writer->call = call;
    writer_give_room_back(writer);
    writer_submit(writer, finish_segment, on_finished);
}

void writer_begin_work(struct activation_writer *writer, struct writer_call *call)
{
    set_state(writer, WRITER_WORKING);
    writer->call = call;
}

static void refuse_next(const struct activations *table, struct next_call *next)
{
    next->call->has_failed = true;
    fail(&next->call->error, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
         "the writer ended while a call waited for the one before");
    arena_fini(&next->part.arena);
    if (!table->is_stopped)
        next->call->done(next->call);
}

void writer_get_ready(struct activation_writer *writer)
{
    struct next_call next = writer->next_call;
    writer->next_call = (struct next_call){0};
    set_state(writer, WRITER_READY);
    writer_count(writer);
    writer_answer(writer);
    if (next.call && !writer->is_left) {
        writer->part = next.part;
        writer_begin_work(writer, next.call);
        next.begin(writer);
        return;
    }
    if (next.call)
        refuse_next(writer->table, &next);
    if (writer->is_left)
        writer_begin_closing(writer, own_call());
}

void writer_leave(struct activation_writer *writer)
{
    writer->is_left = true;
    if (writer->state == WRITER_READY)
        writer_begin_closing(writer, own_call());
}

static void on_lease(void *data, int events)
{
    struct activation_writer *writer = data;
    (void)events; /* it may say nothing, so any word is the end as well */
    loop_watch_destroy(writer->memory.watch);
    writer->memory.watch = NULL;
    log_at_of(LOG_INFO, "activations_writer_left", writer->user.uid, LOG_TEXT("store", writer->path),
              LOG_U64("host", writer->options.host));
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

static void on_opened(struct activation_writer *writer)
{
    struct writer_call *call = writer->call;
    if (call->has_failed) {
        if (writer->is_recovery && call->error.code == ERROR_NOT_FOUND)
            writer->host->is_known = false;
        if (writer->is_recovery)
            log_at_of(LOG_WARN, "activations_not_recovered", writer->user.uid, LOG_TEXT("store", writer->path),
                      LOG_U64("host", writer->options.host), LOG_TEXT("message", call->error.message));
        end_writer(writer);
        return;
    }
    writer->host->is_known = true;
    host_table_identify(writer->table->hosts, writer->host, host_folder_identity(writer->folder));
    call->writer = writer;
    if (!writer->is_recovery)
        log_at_of(LOG_INFO, "activations_opened", writer->user.uid, LOG_TEXT("store", writer->path),
                  LOG_U64("host", writer->options.host), LOG_U64("samples", call->resume.n_samples));
    writer_get_ready(writer);
}

static int fail_taken(const struct activation_writer *writer, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(WRITER_EXISTS), "host %" PRIu32 " of %s has a writer already",
                writer->options.host, text_escape(writer->path, strlen(writer->path), text));
}

/* A folder whose writer is on its way out, or that is being looked at after a crash, is free in a moment. */
static void try_open(struct activation_writer *writer)
{
    const struct activation_writer *other = NULL;
    struct error *error = &writer->call->error;
    bool is_late = writer->is_left || clock_now_ns() > writer->wait.until_ns;
    int failed = table_take_host(writer, &other, error);
    bool is_going = other && (other->is_left || other->is_recovery || other->state == WRITER_CLOSING);
    if (!failed && !other && !writer->is_left) {
        loop_timer_stop(writer->wait.timer);
        set_state(writer, WRITER_OPENING);
        writer_submit(writer, open_folder, on_opened);
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
        writer_try_append(writer);
}

static struct activation_writer *new_writer(struct activations *table, const char *path, uint32_t host, uid_t uid)
{
    struct activation_writer *writer = memory_alloc(sizeof *writer);
    writer->table = table;
    writer->path = memory_copy_text(path);
    writer->user.uid = uid;
    writer->options = (struct host_folder_options){.roots = table->limits.roots, .path = writer->path, .host = host};
    writer->next = table->writers;
    table->writers = writer;
    return writer;
}

static int prepare_memory(struct activation_writer *writer, struct error *error)
{
    const struct metadata_account account = writer->user.account;
    writer->user.descriptors = (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid};
    if (quota_charge_add(&writer->user.descriptors, WRITER_DESCRIPTORS, error) < 0)
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
    writer->user.account = options->account;
    set_upload(writer, &options->upload);
    writer->memory.region = options->region;
    writer->memory.is_overlapped = options->is_overlapped;
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
    struct activation_writer *writer = new_writer(table, host->path, host->host, geteuid());
    set_upload(writer, &host->upload);
    writer->options.must_exist = true;
    writer->is_recovery = writer->is_left = true;
    writer->call = own_call();
    table_take_host(writer, &other, &ignored);
    set_state(writer, WRITER_OPENING);
    writer_submit(writer, open_folder, on_opened);
}
