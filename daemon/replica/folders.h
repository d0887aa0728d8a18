/* Folders that clients make of artifacts on a tmpfs of the host (docs/folder.md): which there are, and what of the host budget
 * they take.
 *
 *     begin -> being made --keep--> recorded --confirm--> there -> dropped: released, or nobody finds it any more
 *                  +--------------------+-- the client's call ends before, and it is not found --> dropped
 *
 * A path is one user's claim and says nothing to others: which of two users gets it is the file system's to decide, by the rename
 * that each tries with his own rights, and not who asked here first. Only what root has made is there for everybody.
 *
 * Folders with the same identity that one user has made share their files' memory, which is charged once. Who asks for a path,
 * or a copy, that he, or root, is just making, waits for what becomes of that. Records in the state directory outlive the daemon
 * (folder_record.h). Loop thread only. */
#ifndef REPLICA_FOLDERS_H
#define REPLICA_FOLDERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/quota.h"
#include "replica/replica.h"

enum { FOLDERS_MAX = 4096, FOLDERS_MAX_PER_UID = 1024 }; /* limits of QUOTA_FOLDERS */

struct folder {
    struct folder *next;
    char *path, *artifact, *identity;
    uid_t uid;
    uint64_t bytes;
    uint64_t copy;                    /* folders with the same number share their memory */
    uint64_t device, inode, stamp_ns; /* of a kept one, see FolderStatus in store_daemon.proto */
    bool is_kept;
    bool is_open;                   /* its client's call is */
    bool is_confirmed;              /* it has its name */
    bool is_seen;                   /* this process, or one before, has found it: it is not in another mount namespace */
    unsigned n_missed;              /* how many times in a row it was not found */
    struct quota_charge row, texts; /* texts: QUOTA_METADATA */
    struct folder_waiter *waiters, **last_waiter;
};

struct folders;

/* quota: counts them (QUOTA_FOLDERS) and their texts; NULL = nobody does. */
struct folders *folders_create(struct replica_table *host, struct quota *quota, const char *state_dir);
void folders_destroy(struct folders *folders); /* accepts NULL; the records stay */

enum folder_turn { FOLDER_WAIT, FOLDER_THERE, FOLDER_SHARE, FOLDER_MAKE };

struct folder_wish { /* texts are copied */
    const char *path, *artifact, *identity;
    uid_t uid;
    uint64_t bytes;
    bool alone; /* shares with no other */
};

/* *folder: WAIT the one that is being made, THERE the one there is, SHARE and MAKE a new one; *other: whose files are to be
 * shared. -1: the path is no good or belongs to another state of an artifact, the budget or the number of folders does not
 * allow it. */
int folders_begin(struct folders *folders, const struct folder_wish *wish, enum folder_turn *turn, struct folder **folder,
                  const struct folder **other, struct error *error);
/* As read from a record: kept, and charged whatever the budget is, but not confirmed. Takes the texts. */
void folders_restore(struct folders *folders, const struct folder *record);
struct folder *folders_find(const struct folders *folders, uid_t uid, const char *path); /* NULL = he claims none */
/* For whom is asked: his own, else root's; for root, else anybody's, one that was seen there before one that is only claimed. */
struct folder *folders_find_for(const struct folders *folders, uid_t uid, const char *path);
/* It was recorded, and will be complete under its path in a moment, unless its client dies. */
void folders_keep(struct folders *folders, struct folder *folder);
/* It is: its client says so, or it was seen. Only then it is there for others. */
void folders_confirm(struct folders *folders, struct folder *folder);
/* Gives its charge back when no other folder shares its memory; frees it. */
void folders_drop(struct folders *folders, struct folder *folder);
struct folder *folders_first(const struct folders *folders);
const char *folders_state_dir(const struct folders *folders);

/* Told once, when what it waits for was confirmed or dropped; may wait again then. Many may wait for one folder, and most of them do
 * again when it is dropped, for what the first of them makes: these are not told, but moved. */
struct folder_waiter {
    struct folder_waiter *next, **link; /* link NULL = it does not wait */
    struct folder *awaited;
    struct folder_wish wish;
    void (*retry)(struct folder_waiter *waiter);
};
void folders_wait(struct folder *folder, struct folder_waiter *waiter);
void folders_wait_no_more(struct folder_waiter *waiter); /* accepts one that does not wait */

#endif
