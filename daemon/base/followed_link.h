/* What a symbolic link leads to, where no user can have made it to lead to what that user may not read: a command that reads a
 * folder of other users for root would copy out whatever they link to. A link of this user or of root is followed; one of
 * another user only to files of that user (a cache that the user filled, say); one on a file system whose server says whose it
 * is (FUSE, NFS, CIFS, 9p) only within that file system. The links are looked at one by one, by descriptors, so none can be
 * exchanged between the look and the use. */
#ifndef BASE_FOLLOWED_LINK_H
#define BASE_FOLLOWED_LINK_H

#include <sys/stat.h>

#include "base/error.h"

/* `name`, a path without a slash at its beginning, from the folder on. What it is, or what it leads to if it is a link.
 * PERMISSION_DENIED, FOREIGN_LINK: it leads where its owner has nothing. `shown`: how messages call it. */
int followed_link_stat(int folder_fd, const char *name, const char *shown, struct stat *found, struct error *error);
/* A descriptor of that, by openat() with these flags and O_NONBLOCK, or -1; ABORTED, FILE_REPLACED, when it was exchanged
 * since it was looked at. */
int followed_link_open(int folder_fd, const char *name, const char *shown, int flags, struct error *error);

#endif
