/* Writers, their calls, and whether a sample has room on the disk; see activation_writer.h.
 *
 * An append waits for room, then a helper writes it. With overlapped memory its call is answered as soon as the disk has taken the
 * sample's room, so that the client fills other memory while this is written; the next call waits meanwhile. Every later call reports
 * a write that fails after that, and nothing more is appended: what had been durable stays. */
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

enum {
    LONGEST_OPEN_MS = 10000,
    MAX_RECOVERIES = 32,
    POLL_MS = 20,
    WRITER_DESCRIPTORS = 11, /* its folder and lock; segment and journal of the open and the full ones; what sealing opens */
};

/* `run` on a helper, then `done` on the loop with what came of it in the call under way. */
struct step_row {
    enum loop_pool pool;
    int (*run)(struct activation_writer *writer, struct error *error);
    void (*done)(struct activation_writer *writer);
};
static const struct step_row steps[STEP_CLOSE + 1];

static void recover_some(struct activations *table);
static void try_append(struct activation_writer *writer);
static void start_sealing(struct activation_writer *writer);

static void set_state(struct activation_writer *writer, enum writer_state state)
{
    static const struct state_row rows[] = {
        [WRITER_WAITING] = {"waiting", STATE_BIT(WRITER_OPENING) | STATE_BIT(WRITER_CLOSED)},
        [WRITER_OPENING] = {"opening", STATE_BIT(WRITER_READY) | STATE_BIT(WRITER_CLOSED)},
        [WRITER_READY] = {"ready", STATE_BIT(WRITER_WORKING) | STATE_BIT(WRITER_CLOSING)},
        [WRITER_WORKING] = {"working", STATE_BIT(WRITER_READY) | STATE_BIT(WRITER_CLOSING)},
        [WRITER_CLOSING] = {"closing", STATE_BIT(WRITER_CLOSED)},
        [WRITER_CLOSED] = {"closed", 0},
    };
    static const struct state_machine machine = {"activation writer", rows, sizeof rows / sizeof rows[0]};
    state_check(&machine, writer->state, state);
    writer->state = state;
}

/* --- the disk quota ----------------------------------------------------------------------------------------------------- */

/* May the sample that is coming be begun? 1 = yes, and its bytes are reserved; 0 = not yet; -1 = never. */
static int find_room(struct activation_writer *writer, struct error *error)
{
    struct activations *table = writer->table;
    struct coming_sample *coming = &writer->coming;
    uint64_t limit = table->limits.disk_quota_bytes, segment_bytes = writer->options.segment_bytes;
    /* its header and journal, and what the manifest will say of it, twice while it is replaced */
    uint64_t needed = segment_cost(&coming->sample) + 2 * (coming->sample.info_bytes + 64);
    for (struct activation_writer *other = table->writers; limit && other; other = other->next)
        if (other->state == WRITER_READY || other->state == WRITER_WORKING)
            host_table_count(table->hosts, other->host,
                             host_folder_disk_bytes(other->folder) + other->coming.reserved_bytes);
    uint64_t taken = host_table_bytes(table->hosts), room = !limit ? UINT64_MAX : taken < limit ? limit - taken : 0;
    if (needed <= room) {
        coming->most_bytes = room;
        coming->reserved_bytes = needed;
        if (limit) { /* and the segment that it may begin, whose header has its room from then on */
            uint64_t head = segment_room(segment_bytes < room ? segment_bytes : room, &coming->sample);
            coming->reserved_bytes += head < room - needed ? head : room - needed;
        }
        return 1;
    }
    host_table_measure(table->hosts, &table->limits.roots);
    if (clock_now_ns() < writer->wait.until_ns)
        return 0;
    char has[TEXT_SIZE_CHARS], most[TEXT_SIZE_CHARS], wants[TEXT_SIZE_CHARS];
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "DISK_QUOTA",
                "sample %u has no room: it takes %s, and the stores have %s of activations.disk_quota %s; what was "
                "appended before is kept",
                coming->sample.id, text_people_bytes(needed, wants), text_people_bytes(taken, has),
                text_people_bytes(limit, most));
}

/* --- steps on helpers --------------------------------------------------------------------------------------------------- */

#define WRITER_OF(member, name) ((struct activation_writer *)((char *)(member)-offsetof(struct activation_writer, name)))

static void run_step(struct loop_work *work)
{
    struct activation_writer *writer = WRITER_OF(work, step.work);
    struct writer_step *step = &writer->step;
    struct metadata_account before = metadata_enter(writer->user.account);
    step->has_failed = steps[step->kind].run(writer, &step->error) != 0;
    if (writer->folder)
        step->resume = host_folder_resume(writer->folder);
    metadata_enter(before);
}

static void on_step(struct loop_work *work)
{
    struct activation_writer *writer = WRITER_OF(work, step.work);
    const struct writer_step *step = &writer->step;
    struct writer_call *call = writer->call;
    if (call) {
        call->has_failed = step->has_failed;
        call->error = step->error;
        call->resume = step->resume;
        call->block_offset = step->block_offset;
    }
    steps[step->kind].done(writer);
}

static void answer_call(struct activation_writer *writer)
{
    struct writer_call *call = writer->call;
    writer->call = NULL;
    if (call && !writer->table->is_stopped)
        call->done(call);
}

/* Before on_appended(), since the loop runs what a thread posts in order. */
static void on_accepted(struct loop_task *task)
{
    struct activation_writer *writer = WRITER_OF(task, step.accept);
    writer->call->block_offset = writer->step.block_offset;
    answer_call(writer);
}

static void submit_step(struct activation_writer *writer, enum step_kind kind)
{
    writer->step.kind = kind;
    writer->step.work =
        (struct loop_work){.do_work = run_step, .done = on_step, .pool = steps[kind].pool, .uid = writer->user.uid};
    /* the call itself was admitted; what it waits for is the disk */
    loop_continue(writer->table->loop, &writer->step.work);
}

static void fail_call(struct writer_call *call, const struct error *error)
{
    call->has_failed = true;
    call->error = *error;
}

/* --- sealing and the end ------------------------------------------------------------------------------------------------ */

static void free_writer(struct activation_writer *writer)
{
    loop_watch_destroy(writer->memory.watch);
    loop_timer_destroy(writer->wait.timer);
    for (size_t i = 0; i < writer->seal.n_queued; i++)
        segment_close(writer->seal.queue[i]); /* the next one to open the folder seals them */
    host_uploads_close(writer->table->uploads, writer->known.path, writer->options.host, writer->folder);
    if (writer->memory.address)
        munmap(writer->memory.address, writer->memory.region->bytes);
    device_region_close(writer->memory.region);
    quota_charge_end(&writer->user.descriptors);
    arena_fini(&writer->coming.arena);
    if (writer->next_call.call)
        arena_fini(&writer->next_call.part.arena); /* the daemon ends: no call is answered */
    known_host_fini(&writer->known);
    free(writer);
}

static void end_writer(struct activation_writer *writer)
{
    struct activations *table = writer->table;
    struct activation_writer **at = &table->writers;
    bool is_recovery = writer->is_recovery;
    set_state(writer, WRITER_CLOSED);
    while (*at != writer)
        at = &(*at)->next;
    *at = writer->next;
    if (writer->host)
        writer->host->writer = NULL;
    answer_call(writer);
    free_writer(writer);
    if (is_recovery) {
        table->n_recoveries--;
        recover_some(table);
    }
}

static void on_closed(struct activation_writer *writer)
{
    host_table_count(writer->table->hosts, writer->host, writer->step.disk_bytes);
    if (writer->step.has_failed)
        log_at_of(LOG_WARN, "activations_not_sealed", writer->user.uid, LOG_TEXT("store", writer->known.path),
                  LOG_U64("host", writer->options.host), LOG_TEXT("message", writer->step.error.message));
    else if (writer->lost.is_lost && writer->call)
        fail_call(writer->call, &writer->lost.error);
    end_writer(writer);
}

/* call NULL: the writer ends by itself. */
static void begin_closing(struct activation_writer *writer, struct writer_call *call)
{
    set_state(writer, WRITER_CLOSING);
    loop_watch_destroy(writer->memory.watch);
    writer->memory.watch = NULL;
    writer->call = call;
    writer->coming.reserved_bytes = 0;
    if (!writer->seal.is_running) /* else on_sealed() does */
        submit_step(writer, STEP_CLOSE);
}

static void run_seal(struct loop_work *work)
{
    struct activation_writer *writer = WRITER_OF(work, seal.work);
    struct metadata_account before = metadata_enter(writer->user.account);
    writer->seal.has_failed = writer_seal_first(writer, &writer->seal.error) != 0;
    metadata_enter(before);
}

static void on_sealed(struct loop_work *work)
{
    struct activation_writer *writer = WRITER_OF(work, seal.work);
    struct writer_seal *seal = &writer->seal;
    seal->is_running = false;
    if (!seal->has_failed)
        writer_shift_queue(seal);
    if (writer->state == WRITER_CLOSING) {
        submit_step(writer, STEP_CLOSE);
        return;
    }
    if (!seal->has_failed)
        start_sealing(writer);
    if (writer->wait.is_blocked)
        try_append(writer);
}

/* Beside the calls: it reads all that was written, and sums take a processor, so not among the short work of others. */
static void start_sealing(struct activation_writer *writer)
{
    struct writer_seal *seal = &writer->seal;
    if (seal->is_running || !seal->n_queued)
        return;
    seal->is_running = true;
    seal->work = (struct loop_work){.do_work = run_seal, .done = on_sealed, .pool = LOOP_VERIFY, .uid = writer->user.uid};
    loop_continue(writer->table->loop, &seal->work);
}

/* After a step, before the next one. */
static void seal_full(struct activation_writer *writer)
{
    writer_take_full(writer);
    start_sealing(writer);
}

/* Answers, and goes on with what waits. */
static void get_ready(struct activation_writer *writer)
{
    struct next_call next = writer->next_call;
    writer->next_call = (struct next_call){0};
    set_state(writer, WRITER_READY);
    answer_call(writer);
    if (next.call && !writer->is_left) {
        writer->part = next.part;
        writer->call = next.call;
        set_state(writer, WRITER_WORKING);
        next.begin(writer);
        return;
    }
    if (next.call) {
        next.call->has_failed = true;
        fail(&next.call->error, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
             "the writer ended while a call waited for the one before");
        arena_fini(&next.part.arena);
        writer->call = next.call;
        answer_call(writer);
    }
    if (writer->is_left)
        begin_closing(writer, NULL);
}

static void leave_writer(struct activation_writer *writer)
{
    writer->is_left = true;
    if (writer->state == WRITER_READY)
        begin_closing(writer, NULL);
}

static void on_lease(void *data, int events)
{
    struct activation_writer *writer = data;
    (void)events; /* it may say nothing, so any word is the end as well */
    loop_watch_destroy(writer->memory.watch);
    writer->memory.watch = NULL;
    log_at_of(LOG_INFO, "activations_writer_left", writer->user.uid, LOG_TEXT("store", writer->known.path),
              LOG_U64("host", writer->options.host));
    leave_writer(writer);
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static void on_opened(struct activation_writer *writer)
{
    const struct writer_step *step = &writer->step;
    if (step->has_failed) {
        writer->host->is_known &= !writer->is_recovery || step->error.code != ERROR_NOT_FOUND;
        if (writer->is_recovery)
            log_at_of(LOG_WARN, "activations_not_recovered", writer->user.uid, LOG_TEXT("store", writer->known.path),
                      LOG_U64("host", writer->options.host), LOG_TEXT("message", step->error.message));
        end_writer(writer);
        return;
    }
    writer->host->is_known = true;
    if (!writer->is_recovery) {
        writer->call->writer = writer;
        log_at_of(LOG_INFO, "activations_opened", writer->user.uid, LOG_TEXT("store", writer->known.path),
                  LOG_U64("host", writer->options.host), LOG_U64("samples", step->resume.n_samples));
    }
    get_ready(writer);
}

/* A folder whose writer is on its way out, or that is being looked at after a crash, is free in a moment. */
static void try_open(struct activation_writer *writer)
{
    struct table_host *host = host_table_add(writer->table->hosts, writer->known.path, writer->options.host);
    const struct activation_writer *other = host->writer;
    if (!writer->table->is_begun && !writer->is_left) {
        writer->wait.until_ns = clock_now_ns() + (uint64_t)LONGEST_OPEN_MS * NS_PER_MS;
        return;
    }
    if (!other && (!writer->is_left || writer->is_recovery)) {
        if (writer->wait.timer)
            loop_timer_stop(writer->wait.timer);
        writer->host = host;
        host->writer = writer;
        set_state(writer, WRITER_OPENING);
        submit_step(writer, STEP_OPEN);
        return;
    }
    bool is_going = other && (other->is_left || other->is_recovery || other->state == WRITER_CLOSING);
    if (is_going && !writer->is_left && clock_now_ns() <= writer->wait.until_ns)
        return;
    writer->call->has_failed = true;
    fail(&writer->call->error, ERROR_FAILED_PRECONDITION, REASON(WRITER_EXISTS),
         "host %" PRIu32 " of %s has a writer already", writer->options.host, text_show(writer->known.path));
    end_writer(writer);
}

static void on_timer(void *data)
{
    struct activation_writer *writer = data;
    if (writer->state == WRITER_WAITING)
        try_open(writer);
    else if (writer->wait.is_blocked)
        try_append(writer);
}

static struct activation_writer *new_writer(struct activations *table, const struct writer_options *options)
{
    struct activation_writer *writer = memory_alloc(sizeof *writer);
    writer->table = table;
    writer->step.accept.run = on_accepted;
    writer->known = (struct known_host){memory_copy_text(options->path), options->host, options->upload};
    if (options->upload.reference)
        writer->known.upload.reference = memory_copy_text(options->upload.reference);
    writer->options = (struct host_folder_options){.roots = table->limits.roots,
                                                   .path = writer->known.path,
                                                   .host = options->host,
                                                   .segment_bytes = options->segment_bytes};
    writer->user.uid = options->uid;
    writer->user.account = options->account;
    writer->memory.region = options->region;
    writer->memory.is_overlapped = options->is_overlapped;
    writer->next = table->writers;
    table->writers = writer;
    return writer;
}

static int prepare_memory(struct activation_writer *writer, struct error *error)
{
    const struct metadata_account account = writer->user.account;
    const struct device_region *region = writer->memory.region;
    writer->user.descriptors = (struct quota_charge){.quota = account.quota, .kind = QUOTA_DESCRIPTORS, .uid = account.uid};
    if (quota_charge_add(&writer->user.descriptors, WRITER_DESCRIPTORS, error) < 0)
        return -1;
    if (getrandom(writer->id, sizeof writer->id, 0) != sizeof writer->id)
        return fail_errno(error, errno, "getrandom");
    void *memory = mmap(NULL, region->bytes, PROT_READ, MAP_SHARED, region->memory_fd, 0);
    if (memory == MAP_FAILED)
        return fail_errno(error, errno, "cannot map %" PRIu64 " bytes of the client's memory", region->bytes);
    writer->memory.address = memory;
    writer->memory.watch =
        loop_watch_create(writer->table->loop, region->lease_fd, LOOP_READABLE | LOOP_HANGUP, on_lease, writer);
    return writer->memory.watch ? 0 : fail(error, ERROR_INTERNAL, "NO_WATCH", "the client's connection cannot be watched");
}

void activation_writer_open(struct activations *table, const struct writer_options *options, struct writer_call *call)
{
    struct activation_writer *writer = new_writer(table, options);
    *call = (struct writer_call){.done = call->done};
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

static void free_listed(struct activations *table)
{
    for (size_t i = 0; i < table->n_listed; i++)
        known_host_fini(&table->listed[i]);
    free(table->listed);
    table->listed = NULL;
    table->n_listed = table->n_begun = 0;
}

static void recover_some(struct activations *table)
{
    bool is_ending = table->is_draining || table->is_stopped;
    while (!is_ending && table->n_begun < table->n_listed && table->n_recoveries < MAX_RECOVERIES) {
        const struct known_host *known = &table->listed[table->n_begun++];
        if (host_table_add(table->hosts, known->path, known->host)
                ->writer) /* a writer that has opened it since has made it whole */
            continue;
        struct activation_writer *writer = new_writer(
            table,
            &(struct writer_options){.path = known->path, .host = known->host, .uid = geteuid(), .upload = known->upload});
        writer->options.must_exist = true;
        writer->is_recovery = writer->is_left = true;
        table->n_recoveries++;
        try_open(writer);
    }
    if (is_ending || table->n_begun == table->n_listed)
        free_listed(table);
}

/* --- calls -------------------------------------------------------------------------------------------------------------- */

const unsigned char *activation_writer_id(const struct activation_writer *writer)
{
    return writer->id;
}

/* `begin` is called now, or when what was answered early has been written. False: the call has been refused. */
static bool submit_call(struct activation_writer *writer, struct writer_call *call, const struct append_part *part,
                        void (*begin)(struct activation_writer *writer))
{
    bool is_ready = writer->state == WRITER_READY;
    bool has_answered = writer->state == WRITER_WORKING && !writer->call && !writer->next_call.call;
    *call = (struct writer_call){.done = call->done};
    if (writer->table->is_draining || (!is_ready && !has_answered)) {
        call->has_failed = true;
        fail(&call->error, ERROR_ABORTED, "WRITER_BUSY",
             "the writer has another call under way, or ends; one call at a time");
        call->done(call);
        return false;
    }
    if (has_answered) {
        writer->next_call = (struct next_call){.call = call, .begin = begin, .part = *part};
        return true;
    }
    writer->part = *part;
    writer->call = call;
    set_state(writer, WRITER_WORKING);
    begin(writer);
    return true;
}

static void drop_sample(struct activation_writer *writer)
{
    writer->coming.is_begun = false;
    writer->coming.reserved_bytes = 0;
    arena_fini(&writer->coming.arena);
}

static void end_append(struct activation_writer *writer, const struct error *error)
{
    fail_call(writer->call, error);
    drop_sample(writer);
    get_ready(writer);
}

static void set_waiting(struct activation_writer *writer, bool is_blocked)
{
    writer->wait.is_blocked = is_blocked;
    if (is_blocked)
        loop_timer_start(writer->wait.timer, POLL_MS, POLL_MS);
    else
        loop_timer_stop(writer->wait.timer);
}

static bool is_ending(const struct activation_writer *writer)
{
    return writer->is_left || writer->table->is_draining;
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
    seal_full(writer);
    set_waiting(writer, true);
    try_append(writer);
}

/* What is uploaded and then goes from here makes room only once it is sealed: a quota that is smaller than the segments of all
 * writers would otherwise keep all of them waiting for each other. */
static bool seal_to_make_room(struct activation_writer *writer)
{
    if (!writer->known.upload.drop_local || writer->seal.n_queued || !host_folder_is_all_open(writer->folder) ||
        is_ending(writer))
        return false;
    set_waiting(writer, false);
    submit_step(writer, STEP_FINISH);
    return true;
}

static void on_appended(struct activation_writer *writer)
{
    const struct writer_step *step = &writer->step;
    struct coming_sample *coming = &writer->coming;
    bool is_full_disk = step->has_failed && step->error.kind == ERROR_KIND_NO_SPACE && writer->call;
    if (is_full_disk && writer->part.offset == 0 && writer->known.upload.drop_local &&
        clock_now_ns() < writer->wait.until_ns && !is_ending(writer)) {
        /* uploads make room on a full disk as well: then the sample, of which nothing was taken, is begun anew */
        coming->reserved_bytes = 0;
        seal_full(writer);
        if (!seal_to_make_room(writer))
            set_waiting(writer, true);
        return;
    }
    coming->received_bytes += writer->part.bytes;
    if (step->has_failed && !writer->call) { /* its call was answered: all that follow get the error */
        writer->lost.is_lost = true;
        writer->lost.error = step->error;
        error_prefix(&writer->lost.error,
                     "sample %" PRIu32 " was not written; open the store again and go on behind what it has",
                     coming->sample.id);
    }
    if (step->has_failed || coming->received_bytes == coming->sample.bytes)
        drop_sample(writer);
    seal_full(writer);
    get_ready(writer);
}

/* Until full segments are sealed, and the disk has room. */
static void try_append(struct activation_writer *writer)
{
    struct writer_seal *seal = &writer->seal;
    struct error error = {0};
    bool is_sealing = seal->n_queued >= MAX_FULL, has_failed = !seal->is_running && seal->has_failed;
    if (has_failed)
        error = seal->error;
    int room = is_sealing && has_failed ? -1 : is_sealing ? 0 : find_room(writer, &error);
    if (room == 0 && !is_sealing && seal_to_make_room(writer))
        return;
    if (room == 0 && !is_ending(writer))
        return; /* the timer, or the end of sealing */
    set_waiting(writer, false);
    if (room > 0) {
        submit_step(writer, STEP_APPEND);
        return;
    }
    if (room == 0)
        fail(&error, ERROR_UNAVAILABLE, "DAEMON_STOPPING", "the writer ended while a sample waited for room");
    if (is_sealing) {
        seal->has_failed = false; /* the next call finds out whether there is room now */
        start_sealing(writer);
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

static void begin_append(struct activation_writer *writer)
{
    struct error error;
    if (writer->part.has_sample) {
        drop_sample(writer); /* one that was not sent to its end */
        writer->coming.sample = writer->part.sample;
        writer->coming.arena = writer->part.arena;
        writer->coming.is_begun = true;
        writer->coming.received_bytes = 0;
    }
    if (writer->lost.is_lost) {
        end_append(writer, &writer->lost.error);
    } else if (check_part(writer, &writer->part, &error) < 0) {
        end_append(writer, &error);
    } else if (!writer->part.has_sample) {
        submit_step(writer, STEP_APPEND);
    } else {
        writer->wait.until_ns = clock_now_ns() + writer->table->limits.quota_timeout_ms * NS_PER_MS;
        set_waiting(writer, true);
        try_append(writer);
    }
}

void activation_writer_append(struct activation_writer *writer, struct append_part *part, struct writer_call *call)
{
    if (!submit_call(writer, call, part, begin_append))
        arena_fini(&part->arena);
}

static int commit_folder(struct activation_writer *writer, struct error *error)
{
    return host_folder_commit(writer->folder, error);
}

static void begin_commit(struct activation_writer *writer)
{
    if (!writer->lost.is_lost) {
        submit_step(writer, STEP_COMMIT);
        return;
    }
    fail_call(writer->call, &writer->lost.error);
    get_ready(writer);
}

void activation_writer_commit(struct activation_writer *writer, struct writer_call *call)
{
    submit_call(writer, call, &(const struct append_part){0}, begin_commit);
}

static void begin_close(struct activation_writer *writer)
{
    begin_closing(writer, writer->call);
}

void activation_writer_close(struct activation_writer *writer, struct writer_call *call)
{
    submit_call(writer, call, &(const struct append_part){0}, begin_close);
}

static const struct step_row steps[] = {
    [STEP_OPEN] = {LOOP_DISK, writer_open_folder, on_opened},
    [STEP_APPEND] = {LOOP_DISK, writer_append_bytes, on_appended},
    [STEP_FINISH] = {LOOP_DISK, finish_segment, on_segment_finished},
    [STEP_COMMIT] = {LOOP_DISK, commit_folder, get_ready},
    [STEP_CLOSE] = {LOOP_VERIFY, writer_close_folder, on_closed},
};

/* --- the table ----------------------------------------------------------------------------------------------------------- */

struct activations *activations_create(struct loop *loop, const char *state_dir, struct upload_queue *uploads)
{
    struct activations *table = memory_alloc(sizeof *table);
    table->loop = loop;
    table->state_dir = memory_copy_text(state_dir);
    table->hosts = host_table_create(loop);
    table->uploads = host_uploads_create(state_dir, uploads);
    return table;
}

void activations_configure(struct activations *table, const struct activation_limits *limits)
{
    table->limits = *limits;
    host_uploads_configure(table->uploads, &limits->roots);
}

static void list_hosts(struct loop_work *work)
{
    struct activations *table = (struct activations *)((char *)work - offsetof(struct activations, list));
    table->listed = host_registry_list(table->state_dir, &table->n_listed);
}

static void on_listed(struct loop_work *work)
{
    struct activations *table = (struct activations *)((char *)work - offsetof(struct activations, list));
    table->is_listing = false;
    for (size_t i = 0; i < table->n_listed; i++)
        host_table_add(table->hosts, table->listed[i].path, table->listed[i].host)->is_known = true;
    recover_some(table);
}

void activations_recover(struct activations *table)
{
    table->is_begun = table->is_listing = true;
    table->list = (struct loop_work){.do_work = list_hosts, .done = on_listed, .pool = LOOP_LOCAL};
    loop_continue(table->loop, &table->list);
}

void activations_upload_counts(const struct activations *table, const char *path, uint32_t host,
                               struct upload_counts *counts)
{
    host_uploads_counts(table->uploads, path, host, counts);
}

size_t activations_hosts(const struct activations *table, const char *path, struct store_host **hosts)
{
    const struct table_host *host;
    size_t n = 0, capacity = 0;
    *hosts = NULL;
    for (size_t i = 0; (host = host_table_at(table->hosts, i)) != NULL; i++) {
        if ((!host->is_known && !host->writer) || strcmp(host->path, path) != 0)
            continue;
        ARRAY_RESERVE(*hosts, n, capacity);
        (*hosts)[n++] = (struct store_host){host->host, host->writer && !host->writer->is_recovery};
    }
    return n;
}

/* The number is no secret that guards anything: a writer answers its own user alone. */
struct activation_writer *activation_writer_find(const struct activations *table, const void *id, size_t id_bytes, uid_t uid)
{
    struct activation_writer *found = NULL;
    for (struct activation_writer *writer = table->writers; writer && id_bytes == WRITER_ID_BYTES; writer = writer->next)
        if (writer->user.uid == uid && !writer->is_recovery && memcmp(writer->id, id, WRITER_ID_BYTES) == 0)
            found = writer;
    return found;
}

void activations_drain(struct activations *table)
{
    table->is_draining = true;
    struct activation_writer *next;
    for (struct activation_writer *writer = table->writers; writer; writer = next) {
        next = writer->next;
        leave_writer(writer);
    }
}

bool activations_idle(const struct activations *table)
{
    return !table->writers && !table->is_listing; /* a measurement of folders may hang, and nothing is lost with it */
}

void activations_stop(struct activations *table)
{
    table->is_stopped = true;
    for (struct activation_writer *writer = table->writers; writer; writer = writer->next) {
        loop_watch_destroy(writer->memory.watch);
        loop_timer_destroy(writer->wait.timer);
        writer->memory.watch = NULL;
        writer->wait.timer = NULL;
    }
}

void activations_destroy(struct activations *table)
{
    if (!table)
        return;
    while (table->writers) {
        struct activation_writer *next = table->writers->next;
        free_writer(table->writers);
        table->writers = next;
    }
    host_uploads_destroy(table->uploads);
    host_table_destroy(table->hosts);
    free_listed(table);
    free(table->state_dir);
    free(table);
}
