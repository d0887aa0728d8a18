/* Shared by upload_queue.c and upload_entries.c. */
#ifndef UPLOAD_UPLOAD_PRIVATE_H
#define UPLOAD_UPLOAD_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/quota.h"
#include "upload/upload_log.h"
#include "upload/upload_queue.h"

enum entry_state { ENTRY_WAITING, ENTRY_SENDING, ENTRY_FAILED, ENTRY_GONE };

enum { UPLOAD_CHAINS = 4096 };

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
    struct quota_charge row, memory;
};

struct upload_queue {
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
    struct entry *chains[UPLOAD_CHAINS]; /* by the upper bits of their hash, which all letters reach; also what is gone */
    struct entry *sending[UPLOAD_QUEUE_THREADS];
    struct group *groups;
    uint64_t last_id;
    const struct group *last_group; /* that was served last */
    _Atomic uint64_t pending, failed, pending_bytes;
    atomic_bool is_stopping;
    bool is_started;
    pthread_t threads[UPLOAD_QUEUE_THREADS];
};

/* All of them under the lock. */
/* NULL when there are too many; without `error` it is there already and counts even beyond the quota. */
struct entry *entry_add(struct upload_queue *queue, uint64_t id, const struct upload_item *item, struct error *error);
struct entry *entry_find(struct upload_queue *queue, const struct upload_item *item); /* NULL = none that is not gone */
void entry_drop_last(struct upload_queue *queue);
void entry_set_session(struct entry *entry, const char *session);
/* Its group's counts follow. */
void entry_set_state(struct entry *entry, enum entry_state state);
void entry_begin_anew(struct entry *entry,
                      const struct upload_item *item); /* one that is not being sent: it waits, as if new */
void entry_set_refused(struct entry *entry, bool is_refused);
void entry_fail(struct entry *entry, const struct error *error);
void entry_take_out(struct entry *entry); /* it is freed by the next entries_clear_gone() */
void entry_free(struct entry *entry);
void entries_clear_gone(struct upload_queue *queue);

/* Lines of the log. */
int entry_log_added(struct upload_log *log, const struct entry *entry, struct error *error); /* not durable yet */
int entry_log_session(struct upload_log *log, const struct entry *entry, bool sync, struct error *error);
int entry_log_end(struct upload_log *log, const struct entry *entry, const struct error *failure, bool sync,
                  struct error *error);
int entries_read(struct upload_queue *queue, const char *state_dir, struct error *error);
int entries_write(struct upload_queue *queue, const char *state_dir, struct error *error);
/* Sessions and ends of what is gone would fill it, and the disk. */
void entries_shorten_log(struct upload_queue *queue);

#endif
