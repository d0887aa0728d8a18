/* The queue of uploads; see upload_queue.h. Everything is under the lock but what sends, what listens and nothing else: the
 * log is written under it, so that its lines are in the order of what happened. Entries are in the order of their numbers;
 * those that ended are taken out when a quarter of them have. */
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
#include "base/quota.h"
#include "base/redact.h"
#include "base/state.h"
#include "observe/log.h"
#include "sink/sink_document.h"
#include "source/secret.h"
#include "source/stores.h"
#include "upload/upload_log.h"

enum {
    FIRST_PAUSE_MS = 500,
    DOUBLINGS = 7,
    IDLE_MS = 1000,
    LONGEST_PAUSE_MS = 60000,
    MANIFEST_PAUSE_MS = 10000,
    MAX_TRIES = 1500, /* about a day */
    CHAINS = 4096,
    FLAG_MANIFEST = 1, /* in the log */
    REWRITE_LINES = 512
};

enum entry_state { ENTRY_WAITING, ENTRY_SENDING, ENTRY_FAILED, ENTRY_GONE };

struct group { /* as long as it has entries */
    char *name;
    size_t n_entries;
    struct upload_counts counts;
    uint64_t manifest_ns; /* when a manifest was last begun, or the group was new */
    struct group *next;
};

struct entry {
    struct upload_queue *queue;
    struct entry *chained;   /* the next one of its chain */
    uint64_t id, hash;       /* hash: of the reference */
    struct upload_item item; /* its texts are ours */
    struct group *group;
    enum entry_state state;
    char *session;   /* NULL = none */
    bool is_stale;   /* a manifest that was written anew while it was sent */
    bool is_left;    /* its place was given up while it was sent there: if that fails, it has ended */
    bool is_refused; /* it is tried again, and counted as failed until then */
    uint32_t n_tries;
    uint64_t next_ns;    /* not before */
    struct error *error; /* of a failed one */
    struct quota_charge row;
};

struct upload_queue {
    char *state_dir;
    struct stores *stores;
    struct quota *quota; /* may be NULL */
    struct upload_listener listener;
    const char *const *prefixes;
    size_t n_prefixes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct upload_log log;
    uint64_t rewrite_lines; /* a log of so many is written anew */
    struct entry **entries; /* ascending by id */
    size_t n_entries, capacity, n_gone;
    struct entry *chains[CHAINS]; /* by the upper bits of their hash, which all letters reach; also what is gone */
    struct entry *sending[UPLOAD_QUEUE_THREADS];
    struct group *groups;
    uint64_t last_id;
    const struct group *last_group; /* that was served last */
    _Atomic uint64_t pending, failed, pending_bytes;
    atomic_bool is_stopping;
    bool is_started;
    pthread_t threads[UPLOAD_QUEUE_THREADS];
};

/* --- counts --- */

static struct group *group_of(struct upload_queue *queue, const char *name)
{
    struct group *group = queue->groups;
    while (group && strcmp(group->name, name) != 0)
        group = group->next;
    if (group)
        return group;
    group = memory_alloc(sizeof *group);
    *group = (struct group){.name = memory_copy_text(name), .manifest_ns = clock_now_ns(), .next = queue->groups};
    queue->groups = group;
    return group;
}

static void count_entry(struct entry *entry, uint64_t one)
{
    struct upload_queue *queue = entry->queue;
    struct upload_counts *counts = &entry->group->counts;
    /* a manifest that waits is of its segments, which are counted; one that another file keeps out needs an operator */
    bool is_kept_out = entry->state == ENTRY_FAILED && entry->error && entry->error->code == ERROR_ALREADY_EXISTS;
    if ((entry->item.is_manifest && !is_kept_out) || entry->state == ENTRY_GONE)
        return;
    if (entry->state == ENTRY_FAILED || entry->is_refused) {
        counts->failed += one;
        queue->failed += one;
    } else {
        counts->pending += one;
        queue->pending += one;
        queue->pending_bytes += one * entry->item.bytes;
    }
}

static void set_entry_state(struct entry *entry, enum entry_state state)
{
    static const struct state_row states[] = {
        [ENTRY_WAITING] = {"waiting", STATE_BIT(ENTRY_WAITING) | STATE_BIT(ENTRY_SENDING) | STATE_BIT(ENTRY_FAILED) |
                                          STATE_BIT(ENTRY_GONE)},
        [ENTRY_SENDING] = {"sending", STATE_BIT(ENTRY_WAITING) | STATE_BIT(ENTRY_FAILED) | STATE_BIT(ENTRY_GONE)},
        [ENTRY_FAILED] = {"failed", STATE_BIT(ENTRY_WAITING) | STATE_BIT(ENTRY_FAILED) | STATE_BIT(ENTRY_GONE)},
        [ENTRY_GONE] = {"gone", 0}};
    static const struct state_machine machine = {"upload", states, 4};
    state_check(&machine, entry->state, state);
    entry->state = state;
}

static void entry_set_state(struct entry *entry, enum entry_state state)
{
    count_entry(entry, UINT64_MAX);
    set_entry_state(entry, state);
    count_entry(entry, 1);
}

static void entry_begin_anew(struct entry *entry, const struct upload_item *item)
{
    count_entry(entry, UINT64_MAX);
    entry->item.bytes = item->bytes;
    entry->item.crc32c = item->crc32c;
    entry->is_refused = false;
    entry->n_tries = 0;
    entry->next_ns = 0;
    set_entry_state(entry, ENTRY_WAITING);
    count_entry(entry, 1);
}

static void entry_fail(struct entry *entry, const struct error *error)
{
    struct upload_counts *counts = &entry->group->counts;
    free(entry->error);
    entry->error = memory_copy(error, sizeof *error); /* it waits or is sent: no count rests on the one before */
    entry_set_state(entry, ENTRY_FAILED);
    memcpy(counts->error, error->message, sizeof counts->error);
}

static void entry_take_out(struct entry *entry)
{
    struct upload_counts *counts = &entry->group->counts;
    count_entry(entry, UINT64_MAX); /* one that is gone counts no more */
    set_entry_state(entry, ENTRY_GONE);
    quota_charge_end(&entry->row);
    entry->queue->n_gone++;
    if (counts->failed == 0)
        counts->error[0] = '\0';
}

/* --- entries --- */

static uint64_t hash_of(const char *reference)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a: a quick no, nothing rests on it */
    for (const char *c = reference; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return hash;
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

static struct entry **chain_of(struct upload_queue *queue, uint64_t hash)
{
    return &queue->chains[(hash >> 40) % CHAINS];
}

static struct entry *entry_find(struct upload_queue *queue, const struct upload_item *item)
{
    uint64_t hash = hash_of(item->reference);
    struct entry *entry = *chain_of(queue, hash);
    while (entry && (entry->hash != hash || entry->state == ENTRY_GONE ||
                     strcmp(entry->item.reference, item->reference) != 0 || strcmp(entry->item.file, item->file) != 0))
        entry = entry->chained;
    return entry;
}

/* NULL when there are too many; without `error` it is there already and counts even beyond the quota. */
static struct entry *entry_add(struct upload_queue *queue, uint64_t id, const struct upload_item *item, struct error *error)
{
    struct entry *entry = memory_alloc(sizeof *entry);
    entry->queue = queue;
    entry->row = (struct quota_charge){.quota = queue->quota, .kind = QUOTA_UPLOADS, .uid = geteuid()};
    if (!error)
        quota_charge_force(&entry->row, 1);
    else if (quota_charge_add(&entry->row, 1, error) < 0) {
        free(entry);
        return NULL;
    }
    entry->id = id;
    entry->hash = hash_of(item->reference);
    entry->item = *item;
    entry->item.file = memory_copy_text(item->file);
    entry->item.reference = memory_copy_text(item->reference);
    entry->group = group_of(queue, item->group);
    entry->group->n_entries++;
    entry->item.group = entry->group->name;
    count_entry(entry, 1);
    ARRAY_RESERVE(queue->entries, queue->n_entries, queue->capacity);
    queue->entries[queue->n_entries++] = entry;
    struct entry **chain = chain_of(queue, entry->hash);
    entry->chained = *chain;
    *chain = entry;
    queue->last_id = id > queue->last_id ? id : queue->last_id;
    return entry;
}

static void entry_set_session(struct entry *entry, const char *session)
{
    secret_free(entry->session);
    entry->session = *session ? memory_copy_text(session) : NULL;
}

static void entry_free(struct entry *entry)
{
    struct upload_queue *queue = entry->queue;
    struct group *group = entry->group;
    struct entry **link = chain_of(queue, entry->hash);
    while (*link != entry)
        link = &(*link)->chained;
    *link = entry->chained;
    entry_set_session(entry, "");
    if (--group->n_entries == 0) {
        struct group **at = &queue->groups;
        while (*at != group)
            at = &(*at)->next;
        *at = group->next;
        queue->last_group = queue->last_group == group ? NULL : queue->last_group;
        free(group->name);
        free(group);
    }
    quota_charge_end(&entry->row);
    memory_free_const(entry->item.file);
    memory_free_const(entry->item.reference);
    free(entry->error);
    free(entry);
}

static void entries_clear_gone(struct upload_queue *queue)
{
    size_t n_kept = 0;
    if (queue->n_gone * 4 < queue->n_entries)
        return;
    for (size_t i = 0; i < queue->n_entries; i++) {
        if (queue->entries[i]->state == ENTRY_GONE)
            entry_free(queue->entries[i]);
        else
            queue->entries[n_kept++] = queue->entries[i];
    }
    queue->n_entries = n_kept;
    queue->n_gone = 0;
}

/* --- writing the log --- */

#define LOG_LINE(log, sync, error, ...)                                                                                     \
    upload_log_add(log, (const char *const[]){__VA_ARGS__}, sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *),      \
                   sync, error)

static int entry_log_added(struct upload_log *log, const struct entry *entry, struct error *error)
{
    char id[24], bytes[24], crc[12], flags[12];
    const struct upload_item *item = &entry->item;
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    snprintf(bytes, sizeof bytes, "%" PRIu64, item->bytes);
    snprintf(crc, sizeof crc, "%08x", item->crc32c);
    snprintf(flags, sizeof flags, "%d", item->is_manifest ? FLAG_MANIFEST : 0);
    return LOG_LINE(log, false, error, "A", id, bytes, crc, flags, item->file, item->reference, item->group);
}

static int entry_log_session(struct upload_log *log, const struct entry *entry, bool sync, struct error *error)
{
    char id[24];
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    return LOG_LINE(log, sync, error, "S", id, entry->session ? entry->session : "-");
}

static int entry_log_end(struct upload_log *log, const struct entry *entry, const struct error *failure, bool sync,
                         struct error *error)
{
    char id[24], code[12];
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    if (!failure)
        return LOG_LINE(log, sync, error, "D", id);
    snprintf(code, sizeof code, "%d", (int)failure->code);
    return LOG_LINE(log, sync, error, "F", id, code, failure->reason, failure->message);
}

static int entries_write(struct upload_queue *queue, const char *state_dir, struct error *error)
{
    int status = upload_log_begin(&queue->log, state_dir, error);
    for (size_t i = 0; status == 0 && i < queue->n_entries; i++) {
        const struct entry *entry = queue->entries[i];
        if (entry->state == ENTRY_GONE)
            continue;
        status = entry_log_added(&queue->log, entry, error);
        if (status == 0 && entry->session)
            status = entry_log_session(&queue->log, entry, false, error);
        if (status == 0 && entry->error && entry->state == ENTRY_FAILED)
            status = entry_log_end(&queue->log, entry, entry->error, false, error);
    }
    status = status == 0 ? upload_log_replace(&queue->log, error) : status;
    queue->rewrite_lines = queue->log.n_lines + queue->log.n_lines / 2 + REWRITE_LINES;
    return status;
}

static void entries_shorten_log(struct upload_queue *queue)
{
    struct upload_log before = queue->log;
    struct stat found;
    struct error error;
    if (before.n_lines < queue->rewrite_lines)
        return;
    int status = entries_write(queue, before.folder, &error);
    if (status < 0)
        log_at_of(LOG_ERROR, "upload_log_failed", LOG_NOBODY, LOG_TEXT("message", error.message));
    if (status < 0 && fstat(before.fd, &found) == 0 && found.st_nlink) { /* it still has its name */
        upload_log_close(&queue->log);
        queue->log = before;
        queue->rewrite_lines = 2 * before.n_lines + REWRITE_LINES;
    } else
        upload_log_close(&before);
}

/* --- reading it --- */

static void take_line(void *data, char **fields, size_t n)
{
    struct upload_queue *queue = data;
    char kind = fields[0][0];
    uint64_t id = n >= 2 ? strtoull(fields[1], NULL, 10) : 0;
    struct error error = {0};
    if (kind == 'A' && n == UPLOAD_LOG_FIELDS && id > queue->last_id) {
        const struct upload_item item = {.bytes = strtoull(fields[2], NULL, 10),
                                         .crc32c = (uint32_t)strtoull(fields[3], NULL, 16),
                                         .is_manifest = strtoull(fields[4], NULL, 10) & FLAG_MANIFEST,
                                         .file = fields[5],
                                         .reference = fields[6],
                                         .group = fields[7]};
        entry_add(queue, id, &item, NULL);
    }
    struct entry *entry = n >= 2 && strchr("SDF", kind) ? find_entry(queue, id) : NULL;
    if (!entry || entry->state == ENTRY_GONE)
        return;
    if (kind == 'S' && n == 3) {
        entry_set_session(entry, strcmp(fields[2], "-") == 0 ? "" : fields[2]);
    } else if (kind == 'D') {
        entry_take_out(entry);
    } else if (kind == 'F' && n == 5) {
        /* a daemon that starts anew tries again what its operator may have put right: a bucket, a permission */
        fail(&error, (enum error_code)strtoull(fields[2], NULL, 10), fields[3], "%s", fields[4]);
        if (error.code == ERROR_ALREADY_EXISTS || error.kind == ERROR_KIND_SOURCE_CHANGED)
            entry_fail(entry, &error);
    }
}

/* --- whose turn it is --- */

/* NULL: none may begin; *next_ns then says when to look again. */
static struct entry *next_entry(struct upload_queue *queue, uint64_t now_ns, uint64_t *next_ns)
{
    struct entry *best = NULL;
    size_t best_sending = SIZE_MAX;
    const struct group *last_seen = NULL;
    for (size_t i = 0; i < queue->n_entries; i++) {
        struct entry *entry = queue->entries[i];
        /* a manifest comes behind the others of its group, and now and then where these never end */
        bool waits = entry->item.is_manifest && entry->group->counts.pending > 0 &&
                     now_ns < entry->group->manifest_ns + (uint64_t)MANIFEST_PAUSE_MS * 1000000;
        if (entry->state != ENTRY_WAITING || waits)
            continue;
        if (entry->next_ns > now_ns) {
            *next_ns = entry->next_ns < *next_ns ? entry->next_ns : *next_ns;
            continue;
        }
        if (best && (entry->group == last_seen || entry->group == best->group))
            continue;
        size_t sending = 0;
        for (size_t k = 0; k < UPLOAD_QUEUE_THREADS; k++)
            sending += queue->sending[k] && queue->sending[k]->group == entry->group;
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

/* What another writer put there meanwhile is not overwritten: it is asked again then. */
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
    const struct upload_listener *listener = &entry->queue->listener;
    bool is_done = false;
    *result = (struct sink_result){.proof = ""};
    int fd = listener->open ? listener->open(listener->data, item, &is_done, error)
                            : open(item->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && !listener->open)
        fail_errno(error, errno, "cannot open the file that is to be sent");
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

/* A server that is busy or away; and credentials that have expired, which the operator renews: the file is not to wait for the
 * next start then. */
static bool may_pass(const struct error *error)
{
    return sink_may_pass(error) || error->code == ERROR_PERMISSION_DENIED;
}

/* A refused upload counts as failed while it stays queued, because it needs operator action. */
static void try_later(struct entry *entry, const struct error *error)
{
    uint32_t doublings = entry->n_tries < DOUBLINGS ? entry->n_tries : DOUBLINGS;
    uint64_t pause_ms = (uint64_t)FIRST_PAUSE_MS << doublings;
    bool is_refused = !sink_may_pass(error);
    entry->n_tries++;
    entry->next_ns = clock_now_ns() + (pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS) * 1000000;
    count_entry(entry, UINT64_MAX);
    entry->is_refused = is_refused;
    set_entry_state(entry, ENTRY_WAITING);
    count_entry(entry, 1);
    if (is_refused || entry->group->counts.failed == 0)
        memcpy(entry->group->counts.error, error->message, sizeof entry->group->counts.error);
}

/* Which object, what happened, what to do. */
static void explain(const struct entry *entry, struct error *error)
{
    const char *advice =
        error->code == ERROR_NOT_FOUND           ? "; make the bucket or name another place, and open the store again"
        : error->code == ERROR_PERMISSION_DENIED ? "; renew the credentials or rights of the daemon: it is tried again"
        : error->code == ERROR_ALREADY_EXISTS    ? "; move it away or name another place, and open the store again"
                                                 : "";
    const char *shown = redact_show(entry->item.reference);
    if (!strstr(error->message, shown))
        error_prefix(error, "%s", shown);
    error_append(error, "%s", advice);
}

static void log_outcome(const struct entry *entry, const struct sink_result *result, const struct error *failure,
                        uint64_t began_ns)
{
    const char *shown = redact_show(entry->item.reference);
    if (failure)
        log_at_of(LOG_WARN, "upload_failed", LOG_NOBODY, LOG_TEXT("reference", shown), LOG_TEXT("reason", failure->reason),
                  LOG_TEXT("message", failure->message), LOG_BOOL("again", may_pass(failure)));
    else
        log_work_of("upload_done", LOG_NOBODY, LOG_TEXT("reference", shown), LOG_U64("sent_bytes", result->sent_bytes),
                    LOG_U64("resumed_bytes", result->resumed_bytes), LOG_TEXT("proof", result->proof),
                    LOG_MS("total_ms", clock_now_ns() - began_ns));
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
    struct error error = {0}, log_error;
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
    const struct error *failure = status < 0 ? &error : NULL;
    if (failure)
        explain(entry, &error);
    if (!failure || error.code != ERROR_CANCELLED)
        log_outcome(entry, &result, failure, began_ns);
    pthread_mutex_lock(&queue->lock);
    if (failure && entry->is_left) {
        give_up(queue, entry);
    } else if (failure && may_pass(&error) && entry->n_tries < MAX_TRIES) {
        try_later(entry, &error);
    } else if (entry->is_stale) {
        entry_set_state(entry, ENTRY_WAITING);
        entry->n_tries = 0;
        entry->next_ns = 0;
    } else {
        pthread_mutex_unlock(&queue->lock);
        if (queue->listener.ended)
            queue->listener.ended(queue->listener.data, &entry->item, failure);
        pthread_mutex_lock(&queue->lock);
        failure = entry->is_left ? NULL : failure;                            /* left and stale: while the listener ran */
        if (entry_log_end(&queue->log, entry, failure, true, &log_error) < 0) /* it is told again after the next start */
            log_at_of(LOG_ERROR, "upload_log_failed", LOG_NOBODY, LOG_TEXT("message", log_error.message));
        if (entry->is_stale)
            entry_set_state(entry, ENTRY_WAITING);
        else if (failure)
            entry_fail(entry, failure);
        else
            entry_take_out(entry);
    }
    entries_clear_gone(queue);
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

struct upload_queue *upload_queue_create(const struct upload_options *options)
{
    struct upload_queue *queue = memory_alloc(sizeof *queue);
    queue->state_dir = memory_copy_text(options->state_dir);
    queue->stores = options->stores;
    queue->quota = options->quota;
    queue->listener = options->listener;
    queue->prefixes = options->prefixes;
    queue->n_prefixes = options->n_prefixes;
    queue->log = (struct upload_log){.fd = -1};
    pthread_mutex_init(&queue->lock, NULL);
    condition_init(&queue->changed);
    return queue;
}

int upload_queue_open(struct upload_queue *queue, struct error *error)
{
    pthread_mutex_lock(&queue->lock);
    int status = upload_log_read(queue->state_dir, take_line, queue, error);
    entries_clear_gone(queue);
    status = status == 0 ? entries_write(queue, queue->state_dir, error) : status;
    pthread_mutex_unlock(&queue->lock);
    return status;
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
    free(queue->state_dir);
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
    if (sink_check_reference(reference, error) < 0)
        return -1;
    const char *shown = redact_show(reference);
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
    /* stores end before the last segments are sealed; the sender asks once more */
    return atomic_load(&queue->is_stopping) ? 0 : stores_check_reference(queue->stores, reference, error);
}

static int add_new(struct upload_queue *queue, const struct upload_item *items, size_t n, struct error *error)
{
    int status = 0;
    size_t n_before = queue->n_entries;
    for (size_t i = 0; i < n && status == 0; i++) {
        struct entry *same = entry_find(queue, &items[i]);
        if (same && same->state == ENTRY_SENDING) {
            same->is_stale |= same->item.is_manifest;
            same->is_left = false;
        } else if (same) {
            entry_begin_anew(same, &items[i]);
        }
        if (same)
            continue;
        const struct entry *added = entry_add(queue, queue->last_id + 1, &items[i], error);
        status = added ? entry_log_added(&queue->log, added, error) : -1;
    }
    if (status == 0 && queue->n_entries > n_before)
        status = upload_log_sync(&queue->log, error);
    /* a line that is in the log all the same is sent once more after the next start, which finds it there */
    for (size_t i = n_before; status < 0 && i < queue->n_entries; i++)
        give_up(queue, queue->entries[i]);
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
