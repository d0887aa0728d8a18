/* The queue of uploads; see upload_queue.h. Everything is under the lock but what sends, what listens and nothing else: the log is
 * written under it, so that its lines are in the order of what happened. */
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
#include "sink/sink_document.h"
#include "source/stores.h"
#include "upload/upload_private.h"

enum {
    FIRST_PAUSE_MS = 500,
    DOUBLINGS = 7,
    IDLE_MS = 1000,
    LONGEST_PAUSE_MS = 60000,
    MANIFEST_PAUSE_MS = 10000,
    MAX_TRIES = 1500 /* about a day */
};

/* --- whose turn it is --- */

static size_t count_sending(const struct upload_queue *queue, const struct group *group)
{
    size_t n = 0;
    for (size_t i = 0; i < UPLOAD_QUEUE_THREADS; i++)
        n += queue->sending[i] && queue->sending[i]->group == group;
    return n;
}

/* Behind the others of its group, and now and then where these never end. */
static bool is_manifest_due(const struct group *group, uint64_t now_ns)
{
    return group->counts.pending == 0 || now_ns >= group->manifest_ns + (uint64_t)MANIFEST_PAUSE_MS * 1000000;
}

/* NULL: none may begin; *next_ns then says when to look again. */
static struct entry *next_entry(struct upload_queue *queue, uint64_t now_ns, uint64_t *next_ns)
{
    struct entry *best = NULL;
    size_t best_sending = SIZE_MAX;
    const struct group *last_seen = NULL;
    for (size_t i = 0; i < queue->n_entries; i++) {
        struct entry *entry = queue->entries[i];
        if (entry->state != ENTRY_WAITING || (entry->item.is_manifest && !is_manifest_due(entry->group, now_ns)))
            continue;
        if (entry->next_ns > now_ns) {
            *next_ns = entry->next_ns < *next_ns ? entry->next_ns : *next_ns;
            continue;
        }
        if (best && (entry->group == last_seen || entry->group == best->group))
            continue;
        size_t sending = count_sending(queue, entry->group);
        last_seen = entry->group;
        if (sending >= UPLOAD_QUEUE_THREADS_OF_GROUP)
            continue;
        bool is_turn = sending == best_sending && best->group == queue->last_group; /* groups of equal load take turns */
        if (!best || sending < best_sending || is_turn) {
            best = entry;
            best_sending = sending;
        }
    }
    return best;
}

/* --- sending --- */

static int keep_session(void *data, const char *session, bool is_news, struct error *error)
{
    struct entry *entry = data;
    pthread_mutex_lock(&entry->queue->lock);
    entry_set_session(entry, session);
    int status = entry_log_session(&entry->queue->log, entry, is_news, error);
    pthread_mutex_unlock(&entry->queue->lock);
    return status;
}

static bool is_stopping(void *data)
{
    return atomic_load(&((struct upload_queue *)data)->is_stopping);
}

static int open_file(const struct upload_queue *queue, const struct upload_item *item, bool *is_done, struct error *error)
{
    *is_done = false;
    if (queue->listener.open)
        return queue->listener.open(queue->listener.data, item, is_done, error);
    int fd = open(item->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd < 0 ? fail_errno(error, errno, "cannot open the file that is to be sent") : fd;
}

/* Whoever wrote meanwhile is not overwritten: it is asked again then. */
static int send_manifest(struct upload_queue *queue, const struct upload_item *item, struct sink_upload *upload,
                         struct sink_result *result, struct error *error)
{
    struct sink_document there = {0};
    const struct upload_listener *listener = &queue->listener;
    if (listener->allow && listener->allow(listener->data, queue->stores, item, upload, &there, error) < 0) {
        sink_document_fini(&there);
        return -1;
    }
    upload->replaces = there.bytes || !listener->allow;
    upload->if_version = there.version[0] ? there.version : NULL;
    int status = sink_put(queue->stores, upload, result, error);
    sink_document_fini(&there);
    if (status < 0 && !upload->replaces && error->code == ERROR_ALREADY_EXISTS)
        return fail(error, ERROR_ABORTED, REASON(OBJECT_CHANGED), "another one has just appeared there");
    return status;
}

static int send_entry(struct entry *entry, struct sink_result *result, struct error *error)
{
    const struct upload_item *item = &entry->item;
    const struct cancel cancel = {is_stopping, entry->queue};
    struct stat found;
    bool is_done;
    *result = (struct sink_result){.proof = ""};
    int fd = open_file(entry->queue, item, &is_done, error);
    if (fd < 0)
        return is_done ? 0 : -1;
    if (fstat(fd, &found) < 0) {
        int failure = errno;
        close(fd);
        return fail_errno(error, failure, "cannot look at the file that is to be sent");
    }
    struct sink_upload upload = {.reference = item->reference,
                                 .fd = fd,
                                 .bytes = item->is_manifest ? (uint64_t)found.st_size : item->bytes,
                                 .is_summed = !item->is_manifest,
                                 .crc32c = item->crc32c,
                                 .session = item->is_manifest ? NULL : entry->session,
                                 .keep = item->is_manifest ? NULL : keep_session,
                                 .data = entry,
                                 .cancel = &cancel,
                                 .uid = geteuid()};
    int status = item->is_manifest ? send_manifest(entry->queue, item, &upload, result, error)
                                   : sink_put(entry->queue->stores, &upload, result, error);
    close(fd);
    return status;
}

/* A server that is busy or away; and credentials that have expired, which somebody renews: the file is not to wait for the next
 * start then. */
static bool may_pass(const struct error *error)
{
    return sink_may_pass(error) || error->code == ERROR_PERMISSION_DENIED;
}

/* What was refused is counted as failed while it waits: it needs somebody. */
static void try_later(struct entry *entry, const struct error *error)
{
    uint32_t doublings = entry->n_tries < DOUBLINGS ? entry->n_tries : DOUBLINGS;
    uint64_t pause_ms = (uint64_t)FIRST_PAUSE_MS << doublings;
    bool is_refused = !sink_may_pass(error);
    entry->n_tries++;
    entry->next_ns = clock_now_ns() + (pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS) * 1000000;
    entry_set_state(entry, ENTRY_WAITING);
    entry_set_refused(entry, is_refused);
    if (is_refused || entry->group->counts.failed == 0)
        memcpy(entry->group->counts.error, error->message, sizeof entry->group->counts.error);
}

static const char *advice(const struct error *error)
{
    switch (error->code) {
    case ERROR_NOT_FOUND:
        return "; make the bucket or name another place, and open the store again";
    case ERROR_PERMISSION_DENIED:
        return "; renew the credentials or rights of the daemon: it is tried again";
    case ERROR_ALREADY_EXISTS:
        return "; move it away or name another place, and open the store again";
    default:
        return "";
    }
}

/* Which object, what happened, what to do. */
static void explain(const struct entry *entry, struct error *error)
{
    char shown[REDACT_CHARS];
    redact(entry->item.reference, shown, sizeof shown);
    if (!strstr(error->message, shown))
        error_prefix(error, "%s", shown);
    error_append(error, "%s", advice(error));
}

static void log_outcome(const struct entry *entry, const struct sink_result *result, const struct error *failure,
                        uint64_t began_ns)
{
    char shown[REDACT_CHARS];
    redact(entry->item.reference, shown, sizeof shown);
    if (failure)
        log_at_of(LOG_WARN, "upload_failed", LOG_NOBODY, LOG_TEXT("reference", shown), LOG_TEXT("reason", failure->reason),
                  LOG_TEXT("message", failure->message), LOG_BOOL("again", may_pass(failure)));
    else
        log_work_of("upload_done", LOG_NOBODY, LOG_TEXT("reference", shown), LOG_U64("sent_bytes", result->sent_bytes),
                    LOG_U64("resumed_bytes", result->resumed_bytes), LOG_TEXT("proof", result->proof),
                    LOG_MS("total_ms", clock_now_ns() - began_ns));
}

/* Under the lock, which is not held while somebody listens. */
static void end_entry(struct upload_queue *queue, struct entry *entry, const struct error *failure)
{
    struct error error;
    pthread_mutex_unlock(&queue->lock);
    if (queue->listener.ended)
        queue->listener.ended(queue->listener.data, &entry->item, failure);
    pthread_mutex_lock(&queue->lock);
    if (entry->is_left) /* while somebody listened */
        failure = NULL;
    if (entry_log_end(&queue->log, entry, failure, true, &error) < 0) /* it is told again after the next start */
        log_at_of(LOG_ERROR, "upload_log_failed", LOG_NOBODY, LOG_TEXT("message", error.message));
    if (entry->is_stale) { /* while somebody listened */
        entry_set_state(entry, ENTRY_WAITING);
    } else if (failure) {
        entry_fail(entry, failure);
    } else {
        entry_take_out(entry);
        entries_clear_gone(queue);
    }
}

/* Without the line in the log it is sent once more after the next start. */
static void give_up(struct upload_queue *queue, struct entry *entry)
{
    struct error ignored;
    entry_log_end(&queue->log, entry, NULL, false, &ignored);
    entry_take_out(entry);
}

static void work_on(struct upload_queue *queue, struct entry *entry)
{
    struct error error = {0};
    struct sink_result result;
    uint64_t began_ns = clock_now_ns();
    struct entry **thread = queue->sending;
    while (*thread)
        thread++;
    *thread = entry;
    entry_set_state(entry, ENTRY_SENDING);
    entry->is_stale = entry->is_left = false;
    entry->group->manifest_ns = entry->item.is_manifest ? began_ns : entry->group->manifest_ns;
    queue->last_group = entry->group;
    pthread_mutex_unlock(&queue->lock);
    int status = send_entry(entry, &result, &error);
    if (status < 0)
        explain(entry, &error);
    if (status == 0 || error.code != ERROR_CANCELLED)
        log_outcome(entry, &result, status < 0 ? &error : NULL, began_ns);
    pthread_mutex_lock(&queue->lock);
    if (status < 0 && entry->is_left) {
        give_up(queue, entry);
        entries_clear_gone(queue);
    } else if (status < 0 && may_pass(&error) && entry->n_tries < MAX_TRIES)
        try_later(entry, &error);
    else if (entry->is_stale) {
        entry_set_state(entry, ENTRY_WAITING);
        entry->n_tries = 0;
        entry->next_ns = 0;
    } else
        end_entry(queue, entry, status < 0 ? &error : NULL);
    *thread = NULL;
    entries_shorten_log(queue);
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
    queue->quota = options->quota;
    queue->listener = options->listener;
    queue->prefixes = options->prefixes;
    queue->n_prefixes = options->n_prefixes;
    queue->log = (struct upload_log){.fd = -1};
    pthread_mutex_init(&queue->lock, NULL);
    condition_init(&queue->changed);
    int status = entries_read(queue, options->state_dir, error);
    if (status == 0)
        status = entries_write(queue, options->state_dir, error);
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
        entry_free(queue->entries[i]);
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

int upload_queue_check(struct upload_queue *queue, const char *reference, struct error *error)
{
    char shown[REDACT_CHARS];
    if (sink_check_reference(reference, error) < 0)
        return -1;
    redact(reference, shown, sizeof shown);
    if (strncmp(reference, "disk:", 5) == 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: uploads go to gs:// or s3://", shown);
    pthread_mutex_lock(&queue->lock);
    bool may = queue->n_prefixes == 0;
    for (size_t i = 0; !may && i < queue->n_prefixes; i++)
        may = is_below(reference, queue->prefixes[i]);
    pthread_mutex_unlock(&queue->lock);
    if (!may)
        return fail(error, ERROR_PERMISSION_DENIED, "OUTSIDE_UPLOAD_PREFIXES",
                    "%s is not below any of uploads.prefixes of the daemon's configuration", shown);
    /* stores end before the last segments are sealed; whoever sends asks once more */
    return atomic_load(&queue->is_stopping) ? 0 : stores_check_reference(queue->stores, reference, error);
}

static void add_again(struct entry *entry, const struct upload_item *item)
{
    if (entry->state == ENTRY_SENDING) {
        entry->is_stale |= entry->item.is_manifest;
        entry->is_left = false;
    } else
        entry_begin_anew(entry, item);
}

/* Of n at the end of the entries, whose lines may be in the log or not. */
static void take_back(struct upload_queue *queue, size_t n)
{
    struct error
        ignored; /* a line that is in it all the same is sent once more after the next start, which finds it there */
    for (; n > 0; n--) {
        entry_log_end(&queue->log, queue->entries[queue->n_entries - 1], NULL, false, &ignored);
        entry_drop_last(queue);
    }
}

static int add_new(struct upload_queue *queue, const struct upload_item *items, size_t n, struct error *error)
{
    int status = 0;
    size_t n_before = queue->n_entries;
    for (size_t i = 0; i < n && status == 0; i++) {
        struct entry *same = entry_find(queue, &items[i]);
        if (same) {
            add_again(same, &items[i]);
            continue;
        }
        const struct entry *added = entry_add(queue, queue->last_id + 1, &items[i], error);
        status = added ? entry_log_added(&queue->log, added, error) : -1;
    }
    if (status == 0 && queue->n_entries > n_before)
        status = upload_log_sync(&queue->log, error);
    if (status < 0)
        take_back(queue, queue->n_entries - n_before);
    return status;
}

int upload_queue_add(struct upload_queue *queue, const struct upload_item *items, size_t n_items, struct error *error)
{
    for (size_t i = 0; i < n_items; i++) {
        if (upload_queue_check(queue, items[i].reference, error) < 0)
            return -1;
    }
    pthread_mutex_lock(&queue->lock);
    int status = add_new(queue, items, n_items, error);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

void upload_queue_leave(struct upload_queue *queue, const char *group, const char *prefix)
{
    pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->n_entries; i++) {
        struct entry *entry = queue->entries[i];
        if (strcmp(entry->group->name, group) != 0 || is_below(entry->item.reference, prefix))
            continue;
        if (entry->state == ENTRY_SENDING)
            entry->is_left = true;
        else if (entry->state != ENTRY_GONE)
            give_up(queue, entry);
    }
    entries_clear_gone(queue);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

void upload_queue_counts(struct upload_queue *queue, const char *group_name, struct upload_counts *counts)
{
    *counts = (struct upload_counts){0};
    pthread_mutex_lock(&queue->lock);
    for (const struct group *group = queue->groups; group; group = group->next) {
        if (group_name && strcmp(group->name, group_name) != 0)
            continue;
        counts->pending += group->counts.pending;
        counts->failed += group->counts.failed;
        if (group->counts.error[0])
            memcpy(counts->error, group->counts.error, sizeof counts->error);
    }
    pthread_mutex_unlock(&queue->lock);
}

struct upload_totals upload_queue_totals(const struct upload_queue *queue)
{
    return (struct upload_totals){queue->pending, queue->failed, queue->pending_bytes};
}
