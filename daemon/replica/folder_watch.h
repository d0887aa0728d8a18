/* Looks every few seconds which of the kept folders are still there: who removes one by himself, or reboots the host, gets the
 * charge back. One that this process cannot see, in another mount namespace or behind a folder that it may not enter, stays until
 * it is released. Loop thread; helpers look. */
#ifndef REPLICA_FOLDER_WATCH_H
#define REPLICA_FOLDER_WATCH_H

#include "replica/folders.h"

struct folder_watch;

/* Restores what the state directory has records of. */
struct folder_watch *folder_watch_create(struct loop *loop, struct folders *folders);
void folder_watch_now(struct folder_watch *watch); /* soon, instead of in a few seconds */
/* Drops it, and its record from the state directory. */
void folder_watch_drop(struct folder_watch *watch, struct folder *folder);

enum folder_sight { SIGHT_NONE, SIGHT_THERE, SIGHT_GONE };
/* Whether that very folder of this user lies there. The path is the user's word, and the daemon looks with its own rights: what
 * belongs to another user is told as nothing is, a FUSE mount is not asked, and no link followed. Blocks. */
enum folder_sight folder_watch_look(const char *path, uid_t uid, uint64_t device, uint64_t inode);

void folder_watch_stop(struct folder_watch *watch);    /* from here on it changes nothing; accepts NULL */
void folder_watch_destroy(struct folder_watch *watch); /* stopped, and the loop has ended; accepts NULL */

#endif
