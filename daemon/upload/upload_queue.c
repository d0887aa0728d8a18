/* The queue of uploads; see upload_queue.h. Entries are in the order of their numbers, and those that ended are taken out when a
 * quarter of them have. Everything is under the lock but what sends, what listens and nothing else: the log is written under it,
 * so that its lines are in the order of what happened. */
#include "upload/upload_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/redact.h"
#include "observe/log.h"
#include "sink/sink.h"
#include "source/stores.h"
#include "upload/upload_log.h"

enum {
    FIRST_PAUSE_MS = 500,
    DOUBLINGS = 7,
    IDLE_MS = 1000,
    LONGEST_PAUSE_MS = 60000,
    FLAG_MANIFEST = 1,
    REWRITE_LINES = 512
};

enum entry_state { ENTRY_WAITING, ENTRY_SENDING, ENTRY_FAILED, ENTRY_GONE };

struct group {
    char *name;
    struct upload_counts counts;
    struct group *next;
};

struct entry {
    struct upload_queue *queue;
    uint64_t id;
    struct upload_item item; /* its texts are ours */
    struct group *group;
    enum entry_state state;
    char *session; /* NULL = none */
    bool is_stale; /* a manifest that was written anew while it was sent */
    uint32_t n_tries;
    uint64_t next_ns;    /* not before */
    struct error *error; /* of a failed one */
};

struct upload_queue {
    struct stores *stores;
    struct upload_listener listener;
    const char *const *prefixes;
    size_t n_prefixes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct upload_log log;
    uint64_t rewrite_lines; /* a log of so many is written anew */
    struct entry **entries; /* ascending by id */
    size_t n_entries, capacity, n_gone;
    struct group *groups;
    uint64_t last_id;
    uid_t last_uid; /* who was served last */
    atomic_bool is_stopping;
    bool is_started;
    pthread_t threads[UPLOAD_QUEUE_THREADS];
};

/* --- entries --- */

static struct group *group_of(struct upload_queue *queue, const char *name)
{
    for (struct group *group = queue->groups; group; group = group->next) {
        if (strcmp(group->name, name) == 0)
            return group;
    }
    struct group *group = memory_alloc(sizeof *group);
    group->name = memory_copy_text(name);
    group->next = queue->groups;
    queue->groups = group;
    return group;
}

static struct entry *find_entry(const struct upload_queue *queue, uint64_t id)
{
    size_t low = 0, high = queue->n_entries;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (queue->entries[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < queue->n_entries && queue->entries[low]->id == id ? queue->entries[low] : NULL;
}

static struct entry *add_entry(struct upload_queue *queue, uint64_t id, const struct upload_item *item)
{
    struct entry *entry = memory_alloc(sizeof *entry);
    entry->queue = queue;
    entry->id = id;
    entry->item = *item;
    entry->item.file = memory_copy_text(item->file);
    entry->item.reference = memory_copy_text(item->reference);
    entry->group = group_of(queue, item->group);
    entry->item.group = entry->group->name;
    entry->group->counts.pending += !item->is_manifest;
    ARRAY_RESERVE(queue->entries, queue->n_entries, queue->capacity);
    queue->entries[queue->n_entries++] = entry;
    queue->last_id = id > queue->last_id ? id : queue->last_id;
    return entry;
}

static void set_session(struct entry *entry, const char *session)
{
    if (entry->session)
        explicit_bzero(entry->session, strlen(entry->session));
    free(entry->session);
    entry->session = *session ? memory_copy_text(session) : NULL;
}

static void free_entry(struct entry *entry)
{
    set_session(entry, "");
    memory_free_const(entry->item.file);
    memory_free_const(entry->item.reference);
    free(entry->error);
    free(entry);
}

static void take_out_gone(struct upload_queue *queue)
{
    size_t n_kept = 0;
    if (queue->n_gone * 4 < queue->n_entries)
        return;
    for (size_t i = 0; i < queue->n_entries; i++) {
        if (queue->entries[i]->state == ENTRY_GONE)
            free_entry(queue->entries[i]);
        else
            queue->entries[n_kept++] = queue->entries[i];
    }
    queue->n_entries = n_kept;
    queue->n_gone = 0;
}

static void end_done(struct entry *entry)
{
    struct upload_counts *counts = &entry->group->counts;
    counts->pending -= !entry->item.is_manifest && entry->state != ENTRY_FAILED;
    counts->failed -= !entry->item.is_manifest && entry->state == ENTRY_FAILED;
    counts->done += !entry->item.is_manifest;
    entry->state = ENTRY_GONE;
    entry->queue->n_gone++;
    if (counts->failed == 0)
        counts->error[0] = '\0';
}

static void end_failed(struct entry *entry, const struct error *error)
{
    struct upload_counts *counts = &entry->group->counts;
    counts->pending -= !entry->item.is_manifest;
    counts->failed += !entry->item.is_manifest;
    entry->state = ENTRY_FAILED;
    entry->error = memory_copy(error, sizeof *error);
    memcpy(counts->error, error->message, sizeof counts->error);
}

/* --- the log --- */

static int add_line(struct upload_log *log, bool sync, struct error *error, size_t n, const char *const *fields)
{
    return upload_log_add(log, fields, n, sync, error);
}
#define LOG_LINE(log, sync, error, ...)                                                                                     \
    add_line(log, sync, error, sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *), (const char *const[]){__VA_ARGS__})

static int log_added(struct upload_log *log, const struct entry *entry, bool sync, struct error *error)
{
    char id[24], uid[24], bytes[24], crc[12], flags[12];
    const struct upload_item *item = &entry->item;
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    snprintf(uid, sizeof uid, "%u", (unsigned)item->uid);
    snprintf(bytes, sizeof bytes, "%" PRIu64, item->bytes);
    snprintf(crc, sizeof crc, "%08x", item->crc32c);
    snprintf(flags, sizeof flags, "%d", item->is_manifest ? FLAG_MANIFEST : 0);
    return LOG_LINE(log, sync, error, "A", id, uid, bytes, crc, flags, item->file, item->reference, item->group);
}

static int log_session(struct upload_log *log, const struct entry *entry, bool sync, struct error *error)
{
    char id[24];
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    return LOG_LINE(log, sync, error, "S", id, entry->session ? entry->session : "-");
}

static int log_end(struct upload_log *log, const struct entry *entry, const struct error *failure, bool sync,
                   struct error *error)
{
    char id[24], code[12];
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    if (!failure)
        return LOG_LINE(log, sync, error, "D", id);
    snprintf(code, sizeof code, "%d", (int)failure->code);
    return LOG_LINE(log, sync, error, "F", id, code, failure->reason, failure->message);
}

static uint64_t number_in(const char *text, int base)
{
    return strtoull(text, NULL, base);
}

static void take_added(struct upload_queue *queue, char **fields)
{
    uint64_t id = number_in(fields[1], 10);
    if (id <= queue->last_id) /* not a line of ours */
        return;
    const struct upload_item item = {.uid = (uid_t)number_in(fields[2], 10),
                                     .bytes = number_in(fields[3], 10),
                                     .crc32c = (uint32_t)number_in(fields[4], 16),
                                     .is_manifest = number_in(fields[5], 10) & FLAG_MANIFEST,
                                     .file = fields[6],
                                     .reference = fields[7],
                                     .group = fields[8]};
    add_entry(queue, id, &item);
}

/* A daemon that starts anew tries again what somebody may have put right: a bucket, a permission. */
static void take_failed(struct entry *entry, char **fields)
{
    struct error error = {0};
    fail(&error, (enum error_code)number_in(fields[2], 10), fields[3], "%s", fields[4]);
    if (error.code == ERROR_ALREADY_EXISTS || error.kind == ERROR_KIND_SOURCE_CHANGED)
        end_failed(entry, &error);
}

static void take_line(void *data, char **fields, size_t n)
{
    struct upload_queue *queue = data;
    char kind = fields[0][0];
    if (kind == 'A' && n == UPLOAD_LOG_FIELDS)
        take_added(queue, fields);
    if (kind == 'C' && n == 3)
        group_of(queue, fields[1])->counts.done = number_in(fields[2], 10);
    struct entry *entry = n >= 2 && strchr("SDF", kind) ? find_entry(queue, number_in(fields[1], 10)) : NULL;
    if (!entry || entry->state != ENTRY_WAITING)
        return;
    if (kind == 'S' && n == 3)
        set_session(entry, strcmp(fields[2], "-") == 0 ? "" : fields[2]);
    else if (kind == 'D')
        end_done(entry);
    else if (kind == 'F' && n == 5)
        take_failed(entry, fields);
}

static int write_log(struct upload_queue *queue, const char *state_dir, struct error *error)
{
    char done[24];
    int status = upload_log_begin(&queue->log, state_dir, error);
    for (struct group *group = queue->groups; status == 0 && group; group = group->next) {
        snprintf(done, sizeof done, "%" PRIu64, group->counts.done);
        if (group->counts.done)
            status = LOG_LINE(&queue->log, false, error, "C", group->name, done);
    }
    for (size_t i = 0; status == 0 && i < queue->n_entries; i++) {
        const struct entry *entry = queue->entries[i];
        if (entry->state == ENTRY_GONE)
            continue;
        status = log_added(&queue->log, entry, false, error);
        if (status == 0 && entry->session)
            status = log_session(&queue->log, entry, false, error);
        if (status == 0 && entry->error)
            status = log_end(&queue->log, entry, entry->error, false, error);
    }
    status = status == 0 ? upload_log_replace(&queue->log, error) : status;
    queue->rewrite_lines = queue->log.n_lines + queue->log.n_lines / 2 + REWRITE_LINES;
    return status;
}

/* Sessions and ends of what is gone would fill it, and one longer than UPLOAD_LOG_MAX_BYTES keeps the next daemon from starting. */
static void shorten_log(struct upload_queue *queue)
{
    struct upload_log before = queue->log;
    struct stat found;
    struct error error;
    if (before.n_lines < queue->rewrite_lines)
        return;
    int status = write_log(queue, before.folder, &error);
    if (status < 0)
        log_error("upload_log_failed", LOG_TEXT("message", error.message));
    if (status < 0 && fstat(before.fd, &found) == 0 && found.st_nlink) { /* it still has its name */
        upload_log_close(&queue->log);
        queue->log = before;
        queue->rewrite_lines = 2 * before.n_lines + REWRITE_LINES;
    } else
        upload_log_close(&before);
}

/* --- whose turn it is --- */

static size_t count_sending(const struct upload_queue *queue, uid_t uid)
{
    size_t n = 0;
    for (size_t i = 0; i < queue->n_entries; i++)
        n += queue->entries[i]->state == ENTRY_SENDING && queue->entries[i]->item.uid == uid;
    return n;
}

/* NULL: none may begin; *next_ns then says when to look again. */
static struct entry *next_entry(struct upload_queue *queue, uint64_t now_ns, uint64_t *next_ns)
{
    struct entry *best = NULL;
    size_t best_sending = SIZE_MAX;
    uid_t last_seen = (uid_t)-1;
    for (size_t i = 0; i < queue->n_entries; i++) {
        struct entry *entry = queue->entries[i];
        if (entry->state != ENTRY_WAITING || (entry->item.is_manifest && entry->group->counts.pending > 0))
            continue;
        if (entry->next_ns > now_ns) {
            *next_ns = entry->next_ns < *next_ns ? entry->next_ns : *next_ns;
            continue;
        }
        if (best && (entry->item.uid == last_seen || entry->item.uid == best->item.uid))
            continue;
        size_t sending = count_sending(queue, entry->item.uid);
        bool is_turn = sending == best_sending && best->item.uid == queue->last_uid; /* users of equal load take turns */
        if (!best || sending < best_sending || is_turn) {
            best = entry;
            best_sending = sending;
        }
        last_seen = entry->item.uid;
    }
    return best;
}

/* --- sending --- */

static int keep_session(void *data, const char *session, bool is_news, struct error *error)
{
    struct entry *entry = data;
    pthread_mutex_lock(&entry->queue->lock);
    set_session(entry, session);
    int status = log_session(&entry->queue->log, entry, is_news, error);
    pthread_mutex_unlock(&entry->queue->lock);
    return status;
}

static bool is_stopping(void *data)
{
    return atomic_load(&((struct upload_queue *)data)->is_stopping);
}

static int send_entry(struct entry *entry, struct sink_result *result, struct error *error)
{
    const struct upload_item *item = &entry->item;
    const struct cancel cancel = {is_stopping, entry->queue};
    struct stat found;
    int fd = open(item->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &found) < 0) {
        int failure = errno;
        if (fd >= 0)
            close(fd);
        return fail_errno(error, failure, "cannot open the file that is to be sent");
    }
    const struct sink_upload upload = {.reference = item->reference,
                                       .fd = fd,
                                       .bytes = item->is_manifest ? (uint64_t)found.st_size : item->bytes,
                                       .is_summed = !item->is_manifest,
                                       .crc32c = item->crc32c,
                                       .replaces = item->is_manifest,
                                       .session = item->is_manifest ? NULL : entry->session,
                                       .keep = item->is_manifest ? NULL : keep_session,
                                       .data = entry,
                                       .cancel = &cancel,
                                       .uid = item->uid};
    int status = sink_put(entry->queue->stores, &upload, result, error);
    close(fd);
    return status;
}

static void try_later(struct entry *entry, const struct error *error)
{
    uint32_t doublings = entry->n_tries < DOUBLINGS ? entry->n_tries : DOUBLINGS;
    uint64_t pause_ms = (uint64_t)FIRST_PAUSE_MS << doublings;
    entry->n_tries++;
    entry->state = ENTRY_WAITING;
    entry->next_ns = clock_now_ns() + (pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS) * 1000000;
    if (entry->group->counts.failed == 0)
        memcpy(entry->group->counts.error, error->message, sizeof entry->group->counts.error);
}

/* Credentials that have expired are renewed by somebody, and the file is not to wait for the next start then. */
static bool may_pass(const struct error *error)
{
    return sink_may_pass(error) || error->code == ERROR_PERMISSION_DENIED;
}

static void log_outcome(const struct entry *entry, const struct sink_result *result, const struct error *failure,
                        uint64_t began_ns)
{
    char shown[REDACT_CHARS];
    redact(entry->item.reference, shown, sizeof shown);
    if (failure)
        log_at_of(LOG_WARN, "upload_failed", entry->item.uid, LOG_TEXT("reference", shown),
                  LOG_TEXT("reason", failure->reason), LOG_TEXT("message", failure->message),
                  LOG_BOOL("again", may_pass(failure)));
    else
        log_at_of(LOG_INFO, "upload_done", entry->item.uid, LOG_TEXT("reference", shown),
                  LOG_U64("sent_bytes", result->sent_bytes), LOG_U64("resumed_bytes", result->resumed_bytes),
                  LOG_TEXT("proof", result->proof), LOG_MS("total_ms", clock_now_ns() - began_ns));
}

/* Under the lock, which is not held while somebody listens. */
static void end_entry(struct upload_queue *queue, struct entry *entry, const struct error *failure)
{
    struct error error;
    pthread_mutex_unlock(&queue->lock);
    if (queue->listener.ended)
        queue->listener.ended(queue->listener.data, &entry->item, failure);
    pthread_mutex_lock(&queue->lock);
    if (log_end(&queue->log, entry, failure, true, &error) < 0) /* it is told again after the next start */
        log_error("upload_log_failed", LOG_TEXT("message", error.message));
    if (failure)
        end_failed(entry, failure);
    else
        end_done(entry);
    take_out_gone(queue);
}

static void work_on(struct upload_queue *queue, struct entry *entry)
{
    struct error error = {0};
    struct sink_result result;
    uint64_t began_ns = clock_now_ns();
    entry->state = ENTRY_SENDING;
    entry->is_stale = false;
    queue->last_uid = entry->item.uid;
    pthread_mutex_unlock(&queue->lock);
    int status = send_entry(entry, &result, &error);
    if (status == 0 || error.code != ERROR_CANCELLED)
        log_outcome(entry, &result, status < 0 ? &error : NULL, began_ns);
    pthread_mutex_lock(&queue->lock);
    if (status < 0 && may_pass(&error))
        try_later(entry, &error);
    else if (entry->is_stale) {
        entry->state = ENTRY_WAITING;
        entry->n_tries = 0;
        entry->next_ns = 0;
    } else
        end_entry(queue, entry, status < 0 ? &error : NULL);
    shorten_log(queue);
    pthread_cond_broadcast(&queue->changed);
}

static void *send_files(void *data)
{
    struct upload_queue *queue = data;
    pthread_mutex_lock(&queue->lock);
    while (!atomic_load(&queue->is_stopping)) {
        uint64_t now_ns = clock_now_ns(), next_ns = now_ns + (uint64_t)IDLE_MS * 1000000;
        struct entry *entry = next_entry(queue, now_ns, &next_ns);
        if (entry)
            work_on(queue, entry);
        else
            condition_wait_until(&queue->changed, &queue->lock, next_ns);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* --- life --- */

int upload_queue_create(const struct upload_options *options, struct upload_queue **made, struct error *error)
{
    struct upload_queue *queue = memory_alloc(sizeof *queue);
    queue->stores = options->stores;
    queue->listener = options->listener;
    queue->prefixes = options->prefixes;
    queue->n_prefixes = options->n_prefixes;
    queue->log = (struct upload_log){.fd = -1};
    pthread_mutex_init(&queue->lock, NULL);
    condition_init(&queue->changed);
    int status = upload_log_read(options->state_dir, take_line, queue, error);
    take_out_gone(queue);
    if (status == 0)
        status = write_log(queue, options->state_dir, error);
    if (status < 0) {
        upload_queue_destroy(queue);
        return -1;
    }
    *made = queue;
    return 0;
}

void upload_queue_listen(struct upload_queue *queue, const struct upload_listener *listener)
{
    queue->listener = *listener;
}

void upload_queue_start(struct upload_queue *queue)
{
    size_t n = 0;
    while (n < UPLOAD_QUEUE_THREADS && pthread_create(&queue->threads[n], NULL, send_files, queue) == 0)
        n++;
    queue->is_started = n == UPLOAD_QUEUE_THREADS;
    if (n < UPLOAD_QUEUE_THREADS) {
        fprintf(stderr, "tensorcast: no room for a thread\n");
        abort();
    }
}

void upload_queue_stop(struct upload_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    atomic_store(&queue->is_stopping, true);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    for (size_t i = 0; queue->is_started && i < UPLOAD_QUEUE_THREADS; i++)
        pthread_join(queue->threads[i], NULL);
    queue->is_started = false;
}

void upload_queue_destroy(struct upload_queue *queue)
{
    if (!queue)
        return;
    upload_queue_stop(queue);
    for (size_t i = 0; i < queue->n_entries; i++)
        free_entry(queue->entries[i]);
    for (struct group *group = queue->groups, *next; group; group = next) {
        next = group->next;
        free(group->name);
        free(group);
    }
    free(queue->entries);
    upload_log_close(&queue->log);
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->changed);
    free(queue);
}

/* --- adding --- */

void upload_queue_set_prefixes(struct upload_queue *queue, const char *const *prefixes, size_t n_prefixes)
{
    pthread_mutex_lock(&queue->lock);
    queue->prefixes = prefixes;
    queue->n_prefixes = n_prefixes;
    pthread_mutex_unlock(&queue->lock);
}

/* References are checked before: no empty part and no ".." in them. */
static bool is_below(const char *reference, const char *prefix)
{
    size_t length = strlen(prefix);
    while (length && prefix[length - 1] == '/')
        length--;
    return length > 0 && strncmp(reference, prefix, length) == 0 && (reference[length] == '/' || reference[length] == '\0');
}

int upload_queue_check(struct upload_queue *queue, const char *reference, uid_t uid, struct error *error)
{
    char shown[REDACT_CHARS];
    bool may = uid == 0 || uid == geteuid();
    if (sink_check_reference(reference, error) < 0)
        return -1;
    redact(reference, shown, sizeof shown);
    if (strncmp(reference, "disk:", 5) == 0) /* the daemon's rights are not everybody's: no file is written for anybody */
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: uploads go to gs:// or s3://", shown);
    pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; !may && i < queue->n_prefixes; i++)
        may = is_below(reference, queue->prefixes[i]);
    pthread_mutex_unlock(&queue->lock);
    if (!may)
        return fail(error, ERROR_PERMISSION_DENIED, "OUTSIDE_UPLOAD_PREFIXES",
                    "%s is not below any of uploads.prefixes of the daemon's configuration", shown);
    /* stores end before the last segments are sealed; whoever sends asks once more */
    return atomic_load(&queue->is_stopping) ? 0 : stores_check_reference(queue->stores, reference, error);
}

static struct entry *find_same(const struct upload_queue *queue, const struct upload_item *item)
{
    for (size_t i = 0; i < queue->n_entries; i++) {
        struct entry *entry = queue->entries[i];
        if ((entry->state == ENTRY_WAITING || entry->state == ENTRY_SENDING) &&
            strcmp(entry->item.reference, item->reference) == 0 && strcmp(entry->item.file, item->file) == 0)
            return entry;
    }
    return NULL;
}

static int check_room(const struct upload_queue *queue, uid_t uid, struct error *error)
{
    size_t n_own = 0;
    for (size_t i = 0; i < queue->n_entries; i++)
        n_own += queue->entries[i]->item.uid == uid && queue->entries[i]->state != ENTRY_GONE;
    if (queue->n_entries - queue->n_gone < UPLOAD_QUEUE_MAX && n_own < UPLOAD_QUEUE_MAX_OF_USER)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_UPLOADS",
                "%zu uploads of user %u are waiting or have failed: no more are taken", n_own, (unsigned)uid);
}

static int add_new(struct upload_queue *queue, const struct upload_item *item, struct error *error)
{
    if (check_room(queue, item->uid, error) < 0)
        return -1;
    struct entry *entry = add_entry(queue, queue->last_id + 1, item);
    if (log_added(&queue->log, entry, true, error) == 0)
        return 0;
    entry->group->counts.pending -= !item->is_manifest;
    queue->n_entries--;
    free_entry(entry);
    return -1;
}

int upload_queue_add(struct upload_queue *queue, const struct upload_item *item, struct error *error)
{
    if (upload_queue_check(queue, item->reference, item->uid, error) < 0)
        return -1;
    int status = 0;
    pthread_mutex_lock(&queue->lock);
    struct entry *same = find_same(queue, item);
    if (same)
        same->is_stale |= item->is_manifest && same->state == ENTRY_SENDING;
    else
        status = add_new(queue, item, error);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

void upload_queue_counts(struct upload_queue *queue, const char *group_name, struct upload_counts *counts)
{
    *counts = (struct upload_counts){0};
    pthread_mutex_lock(&queue->lock);
    for (const struct group *group = queue->groups; group; group = group->next) {
        if (group_name && strcmp(group->name, group_name) != 0)
            continue;
        counts->pending += group->counts.pending;
        counts->done += group->counts.done;
        counts->failed += group->counts.failed;
        if (group->counts.error[0])
            memcpy(counts->error, group->counts.error, sizeof counts->error);
    }
    pthread_mutex_unlock(&queue->lock);
}
