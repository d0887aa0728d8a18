/* Entries of the queue: what is counted of them, and what the log keeps. In the order of their numbers; those that ended are
 * taken out when a quarter of them have. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/state.h"
#include "observe/log.h"
#include "upload/upload_private.h"

enum { FLAG_MANIFEST = 1, REWRITE_LINES = 512 };

/* --- counts --- */

static struct group *group_of(struct upload_queue *queue, const char *name)
{
    for (struct group *group = queue->groups; group; group = group->next) {
        if (strcmp(group->name, name) == 0)
            return group;
    }
    struct group *group = memory_alloc(sizeof *group);
    group->name = memory_copy_text(name);
    group->manifest_ns = clock_now_ns();
    group->next = queue->groups;
    queue->groups = group;
    return group;
}

static void leave_group(struct upload_queue *queue, struct group *group)
{
    struct group **link = &queue->groups;
    if (--group->n_entries)
        return;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    queue->last_group = queue->last_group == group ? NULL : queue->last_group;
    free(group->name);
    free(group);
}

static void count_entry(struct entry *entry, uint64_t one)
{
    struct upload_queue *queue = entry->queue;
    struct upload_counts *counts = &entry->group->counts;
    /* a manifest that waits is of its segments, which are counted; one that somebody else's keeps out needs somebody */
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

void entry_set_state(struct entry *entry, enum entry_state state)
{
    count_entry(entry, UINT64_MAX);
    set_entry_state(entry, state);
    count_entry(entry, 1);
}

void entry_begin_anew(struct entry *entry, const struct upload_item *item)
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

void entry_set_refused(struct entry *entry, bool is_refused)
{
    count_entry(entry, UINT64_MAX);
    entry->is_refused = is_refused;
    count_entry(entry, 1);
}

void entry_fail(struct entry *entry, const struct error *error)
{
    struct upload_counts *counts = &entry->group->counts;
    if (!entry->error)
        quota_charge_force(&entry->memory, sizeof *error);
    free(entry->error);
    entry->error = memory_copy(error, sizeof *error); /* it waits or is sent: no count rests on the one before */
    entry_set_state(entry, ENTRY_FAILED);
    memcpy(counts->error, error->message, sizeof counts->error);
}

void entry_take_out(struct entry *entry)
{
    struct upload_counts *counts = &entry->group->counts;
    entry_set_state(entry, ENTRY_GONE);
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
    return &queue->chains[(hash >> 40) % UPLOAD_CHAINS];
}

struct entry *entry_find(struct upload_queue *queue, const struct upload_item *item)
{
    uint64_t hash = hash_of(item->reference);
    struct entry *entry = *chain_of(queue, hash);
    while (entry && (entry->hash != hash || entry->state == ENTRY_GONE ||
                     strcmp(entry->item.reference, item->reference) != 0 || strcmp(entry->item.file, item->file) != 0))
        entry = entry->chained;
    return entry;
}

static int charge(struct quota_charge *charge, uint64_t amount, struct error *error)
{
    if (error)
        return quota_charge_add(charge, amount, error);
    quota_charge_force(charge, amount);
    return 0;
}

/* As long as it waits; what a store's answers add to it is counted when it comes. */
static int charge_entry(struct entry *entry, uint64_t bytes, struct error *error)
{
    struct quota *quota = entry->queue->quota;
    entry->row = (struct quota_charge){.quota = quota, .kind = QUOTA_UPLOADS, .uid = geteuid()};
    entry->memory = (struct quota_charge){.quota = quota, .kind = QUOTA_METADATA, .uid = geteuid()};
    if (charge(&entry->row, 1, error) < 0)
        return -1;
    if (charge(&entry->memory, bytes, error) == 0)
        return 0;
    quota_charge_end(&entry->row);
    return -1;
}

struct entry *entry_add(struct upload_queue *queue, uint64_t id, const struct upload_item *item, struct error *error)
{
    struct entry *entry = memory_alloc(sizeof *entry);
    entry->queue = queue;
    if (charge_entry(entry, sizeof *entry + strlen(item->file) + strlen(item->reference) + 2, error) < 0) {
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

void entry_drop_last(struct upload_queue *queue)
{
    struct entry *entry = queue->entries[--queue->n_entries];
    entry_set_state(entry, ENTRY_GONE);
    entry_free(entry);
}

void entry_set_session(struct entry *entry, const char *session)
{
    size_t before = entry->session ? strlen(entry->session) : 0, bytes = strlen(session);
    if (entry->session)
        explicit_bzero(entry->session, before);
    free(entry->session);
    entry->session = bytes ? memory_copy_text(session) : NULL;
    quota_charge_force(&entry->memory, bytes);
    quota_charge_subtract(&entry->memory, before);
}

void entry_free(struct entry *entry)
{
    struct entry **link = chain_of(entry->queue, entry->hash);
    while (*link != entry)
        link = &(*link)->chained;
    *link = entry->chained;
    entry_set_session(entry, "");
    leave_group(entry->queue, entry->group);
    quota_charge_end(&entry->row);
    quota_charge_end(&entry->memory);
    memory_free_const(entry->item.file);
    memory_free_const(entry->item.reference);
    free(entry->error);
    free(entry);
}

void entries_clear_gone(struct upload_queue *queue)
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

static int add_line(struct upload_log *log, bool sync, struct error *error, size_t n, const char *const *fields)
{
    return upload_log_add(log, fields, n, sync, error);
}
#define LOG_LINE(log, sync, error, ...)                                                                                     \
    add_line(log, sync, error, sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *), (const char *const[]){__VA_ARGS__})

int entry_log_added(struct upload_log *log, const struct entry *entry, struct error *error)
{
    char id[24], bytes[24], crc[12], flags[12];
    const struct upload_item *item = &entry->item;
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    snprintf(bytes, sizeof bytes, "%" PRIu64, item->bytes);
    snprintf(crc, sizeof crc, "%08x", item->crc32c);
    snprintf(flags, sizeof flags, "%d", item->is_manifest ? FLAG_MANIFEST : 0);
    return LOG_LINE(log, false, error, "A", id, bytes, crc, flags, item->file, item->reference, item->group);
}

int entry_log_session(struct upload_log *log, const struct entry *entry, bool sync, struct error *error)
{
    char id[24];
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    return LOG_LINE(log, sync, error, "S", id, entry->session ? entry->session : "-");
}

int entry_log_end(struct upload_log *log, const struct entry *entry, const struct error *failure, bool sync,
                  struct error *error)
{
    char id[24], code[12];
    snprintf(id, sizeof id, "%" PRIu64, entry->id);
    if (!failure)
        return LOG_LINE(log, sync, error, "D", id);
    snprintf(code, sizeof code, "%d", (int)failure->code);
    return LOG_LINE(log, sync, error, "F", id, code, failure->reason, failure->message);
}

int entries_write(struct upload_queue *queue, const char *state_dir, struct error *error)
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

void entries_shorten_log(struct upload_queue *queue)
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

static uint64_t number_in(const char *text, int base)
{
    return strtoull(text, NULL, base);
}

static void take_added(struct upload_queue *queue, char **fields)
{
    uint64_t id = number_in(fields[1], 10);
    if (id <= queue->last_id) /* not a line of ours */
        return;
    const struct upload_item item = {.bytes = number_in(fields[2], 10),
                                     .crc32c = (uint32_t)number_in(fields[3], 16),
                                     .is_manifest = number_in(fields[4], 10) & FLAG_MANIFEST,
                                     .file = fields[5],
                                     .reference = fields[6],
                                     .group = fields[7]};
    entry_add(queue, id, &item, NULL);
}

/* A daemon that starts anew tries again what somebody may have put right: a bucket, a permission. */
static void take_failed(struct entry *entry, char **fields)
{
    struct error error = {0};
    fail(&error, (enum error_code)number_in(fields[2], 10), fields[3], "%s", fields[4]);
    if (error.code == ERROR_ALREADY_EXISTS || error.kind == ERROR_KIND_SOURCE_CHANGED)
        entry_fail(entry, &error);
}

static void take_line(void *data, char **fields, size_t n)
{
    struct upload_queue *queue = data;
    char kind = fields[0][0];
    if (kind == 'A' && n == UPLOAD_LOG_FIELDS)
        take_added(queue, fields);
    struct entry *entry = n >= 2 && strchr("SDF", kind) ? find_entry(queue, number_in(fields[1], 10)) : NULL;
    if (!entry || entry->state == ENTRY_GONE)
        return;
    if (kind == 'S' && n == 3)
        entry_set_session(entry, strcmp(fields[2], "-") == 0 ? "" : fields[2]);
    else if (kind == 'D')
        entry_take_out(entry);
    else if (kind == 'F' && n == 5)
        take_failed(entry, fields);
}

int entries_read(struct upload_queue *queue, const char *state_dir, struct error *error)
{
    int status = upload_log_read(state_dir, take_line, queue, error);
    entries_clear_gone(queue);
    return status;
}
