/* Folders that clients make of artifacts on a tmpfs of the host (docs/folder.md): which there are, and what of the host budget
 * they take.
 *
 *     begin -> being made --> there -> dropped: released, or two looks in a row did not find it
 *                  +--------- the client's call ends before: one look decides which
 *
 * All are recorded in STATE/folders.json before their client may begin, so that the next daemon knows them. A folder that is
 * being made is known by its stamp, which is the time of change of its files and, until something is put into it, its own.
 *
 * A path is one user's claim and tells others nothing: the file system decides who gets it. Folders with the same identity of
 * one user share their files' memory, which is charged once. Folders that root has made are there for all users.
 * Loop thread only. */
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
    uint64_t copy;   /* folders with the same number share their memory */
    uint64_t device; /* of the file system, as the client says */
    uint64_t stamp_ns;
    bool is_there;              /* it has its name */
    bool is_seen;               /* this process, or one before, has found it: it is not in another mount namespace */
    const void *maker;          /* whose call is open; NULL = none */
    unsigned n_missed;          /* how many looks in a row did not find it */
    struct folder_look *look;   /* in progress */
    struct quota_charge charge; /* one of QUOTA_FOLDERS, which bounds the texts, too: they are paths */
};

struct folders;

/* quota: counts them (QUOTA_FOLDERS); NULL = no limits. */
struct folders *folders_create(struct loop *loop, struct replica_table *host, struct quota *quota, const char *state_dir);
void folders_restore(struct folders *folders); /* what the state directory has; before the first one is begun */
bool folders_are_restored(const struct folders *folders);
void folders_stop(struct folders *folders);    /* nothing is looked at or written from here on; accepts NULL */
void folders_destroy(struct folders *folders); /* stopped, and the loop has ended; accepts NULL; the record stays */

enum folder_turn { FOLDER_WAIT, FOLDER_THERE, FOLDER_SHARE, FOLDER_MAKE };

struct folder_wish { /* texts are copied */
    const char *path, *artifact, *identity;
    uid_t uid;
    uint64_t bytes, device;
    bool alone; /* shares with no other */
};

/* *folder: THERE the one there is, SHARE and MAKE a new one; WAIT: another call is making it, or a copy to share. -1: the path is
 * wrong or belongs to another state of an artifact, or the budget or the number of folders does not allow it. */
int folders_begin(struct folders *folders, const struct folder_wish *wish, enum folder_turn *turn, struct folder **folder,
                  struct error *error);
/* Another folder that is there and shares this one's memory; NULL. */
const struct folder *folders_copy_of(const struct folders *folders, const struct folder *folder);
struct folder *folders_find(const struct folders *folders, uid_t uid, const char *path); /* NULL = this user claims none */
/* The user's own, else root's; for root, else any user's, one that was seen before one that is only claimed. */
struct folder *folders_find_for(const struct folders *folders, uid_t uid, const char *path);
struct folder *folders_first(const struct folders *folders);

struct folder_wait { /* first in what the caller keeps */
    struct folder_wait *next;
    void (*done)(struct folder_wait *wait, const struct error *error); /* NULL = recorded */
};
void folders_record(struct folders *folders, struct folder_wait *wait);
/* Its client says that it has its name; `wait` is told after a look and a record. */
void folders_confirm(struct folders *folders, struct folder *folder, struct folder_wait *wait);
void folders_leave(struct folders *folders, struct folder *folder); /* its maker's call has ended */
/* Gives its charge back when no other folder shares its memory; frees it. */
void folders_drop(struct folders *folders, struct folder *folder);

#endif
