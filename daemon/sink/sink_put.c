/* One file into a store.
 *
 *   look -> begin or find what is there -> parts -> complete -> compare -> done
 *     ^                                      |          |          |
 *     +------- the session is gone ----------+----------+          +-- differs: drop, begin anew (ROUNDS in all)
 *
 * The sums of parts that an earlier call has sent are made from the file, so that a file that changed meanwhile is noticed: its
 * parts are sent again, or the whole differs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/md5_lanes.h"
#include "base/memory.h"
#include "base/file_io.h"
#include "base/parallel.h"
#include "base/redact.h"
#include "sink/sink.h"
#include "sink/sink_ops.h"
#include "sink/sink_sum.h"
#include "sink/sink_window.h"
#include "source/disk/filesystem.h"
#include "source/secret.h"

enum {
    ROUNDS = 3,
    DEFAULT_PARALLEL = 8,
    DEFAULT_PART_BYTES = 8 << 20,
    PART_STEP_BYTES = 1 << 20,
    HUGE_PAGE = 2 << 20,
    READ_BYTES = 256 << 10
};

struct put {
    struct sink sink;
    const struct sink_upload *upload;
    struct sink_result *result;
    struct sink_sums sums;
    struct stat before;   /* of the file, when it was opened here */
    bool is_local;        /* its pages come without another host or process */
    pthread_mutex_t lock; /* of the counts, and of ... */
    uint64_t done_bytes;
    struct part_memory *spare; /* ... these, and of ... */
    pthread_cond_t loaded;
    struct part_group {          /* ... parts that are read and summed at once, by the thread that comes first */
        struct sink_part *parts; /* NULL = not yet */
        struct part_bytes {      /* of each, until it is sent: one of the two */
            char *memory;
            struct sink_window *window;
        } * bytes;
        bool is_loaded;
    } * groups;
    uint32_t group_parts;
    bool has_failed; /* one of them could not be, and why */
    struct error error;
};

/* Of a part; kept for the next one, whose bytes then go into pages that are there already. */
struct part_memory {
    struct part_memory *next;
};

/* --- the file --- */

static int fail_changed(const struct put *put, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                "the file that is sent to %s has changed meanwhile", redact_show(put->upload->reference));
}

/* Not proof that it is the same, which the whole's checksum is; it finds a writer before the object is complete. */
static int check_still(const struct put *put, struct error *error)
{
    struct stat now;
    if (fstat(put->upload->fd, &now) < 0)
        return fail_errno(error, errno, "cannot look at the file that is sent");
    bool is_same = now.st_size == put->before.st_size && now.st_mtim.tv_sec == put->before.st_mtim.tv_sec &&
                   now.st_mtim.tv_nsec == put->before.st_mtim.tv_nsec;
    return is_same ? 0 : fail_changed(put, error);
}

static int check_sum(const struct put *put, struct error *error)
{
    if (put->upload->is_summed && sink_sum_crc32c(&put->sums) != put->upload->crc32c)
        return fail_changed(put, error);
    return check_still(put, error);
}

/* --- layout --- */

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

static void lay_out(struct put *put)
{
    struct sink *sink = &put->sink;
    const struct sink_limits *limits = &sink->ops->limits;
    uint64_t bytes = put->upload->bytes, least = put->upload->part_bytes ? put->upload->part_bytes : DEFAULT_PART_BYTES;
    uint64_t most_parts = round_up(bytes / SINK_MAX_PARTS + 1, PART_STEP_BYTES);
    least = least > limits->part_bytes ? least : limits->part_bytes;
    sink->part_bytes = round_up(least > most_parts ? least : most_parts, PART_STEP_BYTES);
    bool is_whole = bytes <= limits->whole_bytes && bytes <= sink->part_bytes;
    sink->part_bytes = is_whole ? bytes : sink->part_bytes;
    sink->n_parts = is_whole ? 1 : (uint32_t)((bytes + sink->part_bytes - 1) / sink->part_bytes);
    sink->stored = memory_alloc_array(sink->n_parts, sizeof *sink->stored);
    put->sums = (struct sink_sums){memory_alloc_array(sink->n_parts, sizeof *put->sums.parts), sink->n_parts};
}

static struct sink_part part_of(const struct put *put, uint32_t number)
{
    const struct sink *sink = &put->sink;
    uint64_t offset = number * sink->part_bytes, left = put->upload->bytes - offset;
    return (struct sink_part){.number = number,
                              .offset = offset,
                              .count = (size_t)(left < sink->part_bytes ? left : sink->part_bytes),
                              .is_last = number + 1 == sink->n_parts};
}

/* --- the session --- */

static int keep_session(struct put *put, bool is_news, struct error *error)
{
    const char *session = put->sink.session ? put->sink.session : "";
    return put->upload->keep ? put->upload->keep(put->upload->data, session, is_news, error) : 0;
}

static void forget_session(struct put *put)
{
    struct error ignored; /* a session that is kept for nothing is found gone by the next call */
    if (!put->sink.session)
        return;
    secret_free(put->sink.session);
    put->sink.session = NULL;
    put->sink.has_whole_crc = false;
    memset(put->sink.stored, 0, put->sink.n_parts * sizeof *put->sink.stored);
    keep_session(put, true, &ignored);
}

static void abort_session(struct put *put)
{
    if (put->sink.session)
        put->sink.ops->abort(&put->sink);
    forget_session(put);
}

/* --- parts --- */

static void count_part(struct put *put, uint64_t count, bool is_sent)
{
    pthread_mutex_lock(&put->lock);
    put->done_bytes += count;
    *(is_sent ? &put->result->sent_bytes : &put->result->resumed_bytes) += count;
    if (put->upload->progress)
        put->upload->progress(put->upload->data, put->done_bytes);
    pthread_mutex_unlock(&put->lock);
}

/* All parts' memory is of one size. NULL: there is none. */
static char *take_memory(struct put *put)
{
    pthread_mutex_lock(&put->lock);
    struct part_memory *memory = put->spare;
    put->spare = memory ? memory->next : NULL;
    pthread_mutex_unlock(&put->lock);
    size_t room = (size_t)put->sink.part_bytes;
    room = room > sizeof *memory ? room : sizeof *memory;
    if (memory || room < HUGE_PAGE)
        return memory ? (char *)memory : malloc(room);
    memory = aligned_alloc(HUGE_PAGE, (room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (memory)
        madvise(memory, room, MADV_HUGEPAGE); /* a kernel without them refuses, and nothing is lost */
    return (char *)memory;
}

static void give_memory(struct put *put, char *bytes)
{
    struct part_memory *memory = (struct part_memory *)bytes;
    if (!memory)
        return;
    pthread_mutex_lock(&put->lock);
    memory->next = put->spare;
    put->spare = memory;
    pthread_mutex_unlock(&put->lock);
}

/* Of parts of the session that is begun, or of a whole. */
static bool needs_md5(const struct put *put)
{
    return put->sink.ops->limits.has_md5 && !put->sink.has_whole_crc;
}

/* Into memory of its own, with its CRC-32C, of pieces that the processor's caches still have. */
static int read_part(struct put *put, struct sink_part *part, char **memory, struct error *error)
{
    char *bytes = *memory = take_memory(put);
    if (!bytes)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a part of %zu bytes", part->count);
    part->bytes = bytes;
    part->crc32c = 0;
    for (size_t at = 0, count; at < part->count; at += count) {
        count = part->count - at < READ_BYTES ? part->count - at : READ_BYTES;
        ssize_t n = file_io_read_at(put->upload->fd, bytes + at, count, part->offset + at);
        if (n < 0)
            return fail_errno(error, errno, "cannot read the file that is sent");
        if ((size_t)n < count)
            return fail_changed(put, error);
        part->crc32c = crc32c_update(part->crc32c, bytes + at, count);
    }
    return 0;
}

static int load_part(struct put *put, struct sink_part *part, bool with_md5, char **bytes, struct error *error)
{
    if (read_part(put, part, bytes, error) < 0)
        return -1;
    sink_sum_parts(&put->sums, part, 1, with_md5);
    return 0;
}

/* MD5 of one part is bound by the latency of its steps, so that eight take as long as one. */
static int load_group(struct put *put, size_t at, const struct part_group *group, struct error *error)
{
    struct sink_part *parts = group->parts;
    uint32_t first = (uint32_t)at * put->group_parts, n = put->sink.n_parts - first;
    n = n < put->group_parts ? n : put->group_parts;
    for (uint32_t i = 0; i < n; i++) {
        parts[i] = part_of(put, first + i);
        if (i > 0 && cancel_is_set(put->upload->cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
        /* it is sent as it lies in the page cache where what the store compares is the one sum that is made of it */
        struct sink_window *window = NULL;
        if (put->is_local && put->sink.has_whole_crc)
            window = group->bytes[i].window = sink_window_open(put->upload->fd, parts[i].offset, parts[i].count);
        if (!window && read_part(put, &parts[i], &group->bytes[i].memory, error) < 0)
            return -1;
        if (window) {
            parts[i].bytes = sink_window_bytes(window);
            parts[i].crc32c = crc32c_update(0, parts[i].bytes, parts[i].count);
            if (!sink_window_is_whole(window))
                return fail_changed(put, error);
        }
    }
    sink_sum_parts(&put->sums, parts, n, needs_md5(put));
    return 0;
}

/* The part, read and summed; NULL on error. */
static struct sink_part *await_part(struct put *put, size_t i, struct error *error)
{
    struct part_group *group = &put->groups[i / put->group_parts];
    pthread_mutex_lock(&put->lock);
    if (!group->parts && !put->has_failed) {
        group->parts = memory_alloc_array(put->group_parts, sizeof *group->parts);
        group->bytes = memory_alloc_array(put->group_parts, sizeof *group->bytes);
        pthread_mutex_unlock(&put->lock);
        int failed = load_group(put, i / put->group_parts, group, error);
        pthread_mutex_lock(&put->lock);
        group->is_loaded = !failed;
        if (failed && !put->has_failed)
            put->error = *error;
        put->has_failed |= failed;
        pthread_cond_broadcast(&put->loaded);
    }
    while (!group->is_loaded && !put->has_failed)
        pthread_cond_wait(&put->loaded, &put->lock);
    bool is_loaded = group->is_loaded;
    if (!is_loaded)
        *error = put->error;
    pthread_mutex_unlock(&put->lock);
    return is_loaded ? &group->parts[i % put->group_parts] : NULL;
}

static void give_part(struct put *put, struct part_bytes *bytes)
{
    give_memory(put, bytes->memory);
    sink_window_close(bytes->window);
    *bytes = (struct part_bytes){0};
}

static int send_part(void *data, size_t i, struct error *error)
{
    struct put *put = data;
    if (cancel_is_set(put->upload->cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
    struct sink_part *part = await_part(put, i, error);
    if (!part)
        return -1;
    struct part_bytes *bytes = &put->groups[i / put->group_parts].bytes[i % put->group_parts];
    int status = 0;
    struct error changed; /* says more than that the store refuses a part, or is not sent all of it */
    bool is_there = sink_sum_is_stored(part, &put->sink.stored[i]);
    if (!is_there) {
        put->sink.stored[i] = (struct sink_stored){0};
        status = put->sink.ops->put_part(&put->sink, part, error);
        if (status < 0 && bytes->window && check_still(put, &changed) < 0)
            *error = changed;
        if (status == 0 && put->sink.ops->limits.in_order)
            status = keep_session(put, false, error);
    }
    if (status == 0) {
        put->sink.stored[i].crc32c = part->crc32c;
        count_part(put, part->count, !is_there);
    }
    give_part(put, bytes);
    return status;
}

static int run_parts(struct put *put, uint32_t parallel, struct error *error)
{
    bool is_grouped = needs_md5(put) && parallel > MD5_LANES;
    put->group_parts = is_grouped ? MD5_LANES : 1;
    size_t n_groups = (put->sink.n_parts + put->group_parts - 1) / put->group_parts;
    put->groups = memory_alloc_array(n_groups, sizeof *put->groups);
    put->has_failed = false;
    int status = parallel_run(put->sink.n_parts, parallel, send_part, put, error);
    for (size_t i = 0; i < n_groups; i++) {
        for (uint32_t k = 0; put->groups[i].parts && k < put->group_parts; k++)
            give_part(put, &put->groups[i].bytes[k]); /* what was not sent */
        free(put->groups[i].parts);
        free(put->groups[i].bytes);
    }
    free(put->groups);
    return status;
}

static int send_parts(struct put *put, struct sink_object *made, struct error *error)
{
    const struct sink_limits *limits = &put->sink.ops->limits;
    uint32_t parallel = put->upload->parallel ? put->upload->parallel : DEFAULT_PARALLEL;
    parallel = limits->in_order ? 1 : parallel < SINK_MAX_PARALLEL ? parallel : SINK_MAX_PARALLEL;
    if (put->sink.session ? put->sink.ops->find_parts(&put->sink, error)
                          : put->sink.ops->begin(&put->sink, error) || keep_session(put, true, error))
        return -1;
    if (!needs_md5(put) && parallel > DEFAULT_PARALLEL)
        parallel = DEFAULT_PARALLEL;                  /* more are for reading and summing some while others are sent */
    put->done_bytes = put->result->resumed_bytes = 0; /* of an earlier round, whose object was another one */
    if (run_parts(put, parallel, error) < 0 || check_sum(put, error) < 0)
        return -1;
    return put->sink.ops->complete(&put->sink, made, error);
}

static int send_whole(struct put *put, struct sink_object *made, struct error *error)
{
    struct sink_part part = part_of(put, 0);
    char *bytes;
    part.is_last = true;
    int status = load_part(put, &part, needs_md5(put), &bytes, error);
    if (status == 0 && check_sum(put, error) == 0)
        status = put->sink.ops->put_whole(&put->sink, &part, made, error);
    else
        status = -1;
    give_memory(put, bytes);
    if (status == 0)
        count_part(put, part.count, true);
    return status;
}

/* --- comparing --- */

static int sum_file(struct put *put, bool with_md5, struct error *error)
{
    for (uint32_t i = 0; i < put->sink.n_parts; i++) {
        struct sink_part part = part_of(put, i);
        char *bytes;
        int status = load_part(put, &part, with_md5, &bytes, error);
        give_memory(put, bytes);
        if (status < 0)
            return -1;
        if (cancel_is_set(put->upload->cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
    }
    return check_sum(put, error);
}

/* What the answer does not say is asked for, and what the store never says is read back. */
static int compare_sums(struct put *put, struct sink_object *object, bool *is_same, struct error *error)
{
    enum sink_match match = sink_sum_compare(&put->sums, object, &put->result->proof);
    if (match == SINK_UNKNOWN) {
        if (put->sink.ops->look(&put->sink, object, error) < 0)
            return -1;
        match = sink_sum_compare(&put->sums, object, &put->result->proof);
    }
    if (match == SINK_UNKNOWN) {
        uint32_t crc = 0;
        if (put->sink.ops->read_back(&put->sink, object, NULL, &crc, error) < 0)
            return -1;
        put->result->proof = "read back";
        match = crc == sink_sum_crc32c(&put->sums) ? SINK_SAME : SINK_DIFFERENT;
    }
    *is_same = match == SINK_SAME;
    return 0;
}

/* 1: the very bytes are there; 0: nothing is, or may be replaced. */
static int look_before(struct put *put, struct error *error)
{
    struct sink_object object = {0};
    bool is_same = false;
    if (put->sink.ops->look(&put->sink, &object, error) < 0) {
        if (error->code == ERROR_NOT_FOUND && put->upload->if_version)
            return sink_fail_exists(&put->sink, error);
        return error->code == ERROR_NOT_FOUND ? 0 : -1;
    }
    bool with_md5 = needs_md5(put) && object.checksum.kind != CHECKSUM_CRC32C;
    if (object.size_bytes == put->upload->bytes &&
        (sum_file(put, with_md5, error) < 0 || compare_sums(put, &object, &is_same, error) < 0))
        return -1;
    if (is_same)
        return 1;
    const char *version = put->upload->if_version;
    bool may_replace = version ? strcmp(version, object.version) == 0 : put->upload->replaces;
    return may_replace ? 0 : sink_fail_exists(&put->sink, error);
}

/* 1: there and right; 0: has to be done anew. */
static int one_round(struct put *put, struct error *error)
{
    struct sink_object made = {0};
    bool is_same;
    int found = look_before(put, error);
    if (found != 0) {
        put->result->was_there |= found > 0 && put->result->sent_bytes == 0;
        if (found > 0)
            abort_session(put);
        return found;
    }
    bool is_whole = put->sink.n_parts == 1 && put->upload->bytes <= put->sink.ops->limits.whole_bytes;
    int status = is_whole ? send_whole(put, &made, error) : send_parts(put, &made, error);
    if (status < 0) {
        if (error->kind == ERROR_KIND_UPLOAD_GONE)
            forget_session(put);
        return error->kind == ERROR_KIND_UPLOAD_GONE || sink_is_refused(error) ? 0 : -1;
    }
    forget_session(put);
    if (compare_sums(put, &made, &is_same, error) < 0)
        return -1;
    if (is_same)
        return 1;
    put->sink.ops->drop(&put->sink, &made);
    fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH", "the store's checksum does not match the sent bytes (%s)",
         put->result->proof);
    return 0;
}

static int open_put(struct put *put, struct error *error)
{
    const struct sink_upload *upload = put->upload;
    char byte;
    if (sink_open(&put->sink, error) < 0)
        return -1;
    if (upload->needs_condition && !sink_has_condition(&put->sink)) /* the store gave no version */
        return sink_fail_conditions(&put->sink, error);
    if (fstat(upload->fd, &put->before) < 0)
        return fail_errno(error, errno, "cannot look at the file that is sent");
    if (!S_ISREG(put->before.st_mode))
        return fail(error, ERROR_INVALID_ARGUMENT, REASON(NOT_A_REGULAR_FILE), "the source is no regular file");
    if ((uint64_t)put->before.st_size != upload->bytes)
        return fail_changed(put, error);
    /* Files of /proc say that they have 0 bytes, and are made while they are read: what is sent of one would be nothing, or no
     * two readings the same. */
    ssize_t n = upload->bytes > 0 ? 0 : file_io_read_at(upload->fd, &byte, 1, 0);
    if (n < 0)
        return fail_errno(error, errno, "cannot read the file that is sent");
    if (n > 0)
        return fail(
            error, ERROR_FAILED_PRECONDITION, "SIZE_NOT_TOLD",
            "the file that is sent to %s has bytes, and its size is said to be 0, as those of /proc are: copy it, and "
            "send the copy",
            redact_show(upload->reference));
    put->is_local = filesystem_traits_of(upload->fd).kind == SOURCE_LOCAL;
    lay_out(put);
    if (upload->session && *upload->session && strlen(upload->session) < SINK_MAX_SESSION_CHARS && put->sink.n_parts > 0)
        put->sink.session = memory_copy_text(upload->session);
    return 0;
}

int sink_put(struct stores *stores, const struct sink_upload *upload, struct sink_result *result, struct error *error)
{
    struct put put = {.sink = {.stores = stores, .upload = upload}, .upload = upload, .result = result};
    *result = (struct sink_result){.proof = ""};
    pthread_mutex_init(&put.lock, NULL);
    pthread_cond_init(&put.loaded, NULL);
    int status = open_put(&put, error), done = 0;
    if (status == 0) {
        for (uint32_t round = 0; round < ROUNDS && done == 0; round++)
            done = one_round(&put, error);
        status = done > 0 ? 0 : -1; /* the error is that of the last round */
        /* it can go on also once the operator has renewed the credentials, without which nothing could be aborted either */
        if (status < 0 && !(upload->keep && (sink_may_pass(error) || error->code == ERROR_PERMISSION_DENIED))) {
            struct error kept = *error;
            abort_session(&put);
            *error = kept;
        }
        result->crc32c = status < 0 ? 0 : sink_sum_crc32c(&put.sums);
    }
    while (put.spare) {
        struct part_memory *memory = put.spare;
        put.spare = memory->next;
        free(memory);
    }
    free(put.sums.parts);
    sink_fini(&put.sink);
    pthread_cond_destroy(&put.loaded);
    pthread_mutex_destroy(&put.lock);
    return status;
}

void sink_abort(struct stores *stores, const char *reference, const char *session)
{
    struct error ignored; /* a reference that cannot be read has begun nothing */
    const struct sink_upload upload = {.reference = reference};
    struct sink sink = {.stores = stores, .upload = &upload};
    if (strlen(session) < SINK_MAX_SESSION_CHARS && sink_parse(&sink, reference, &ignored) == 0) {
        sink.session = memory_copy_text(session);
        sink.ops->abort(&sink);
    }
    sink_fini(&sink);
}
