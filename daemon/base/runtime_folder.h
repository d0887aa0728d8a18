/* The folder for the sockets of a user's own daemon (`tensorcastd --user`), which the daemon makes and every client looks into;
 * the Python client has the same rule (client.py).
 *
 *   $XDG_RUNTIME_DIR/tensorcast    where that is a folder of this user or of root, as after a log-in
 *   /run/user/UID/tensorcast       else, when that folder is the user's
 *   /tmp/tensorcast-UID            else: containers, su, cron
 *
 * Any user can make a folder in /tmp: what is not a folder of this user's, closed to others, is not to be used. */
#ifndef BASE_RUNTIME_FOLDER_H
#define BASE_RUNTIME_FOLDER_H

#include <limits.h>
#include <stdbool.h>

/* False: XDG_RUNTIME_DIR is no absolute path, or too long a one. */
bool runtime_folder(char path[PATH_MAX]);
/* For clients: it is there, no link, and only this user or root may write, so that only they can be listening in it. */
bool runtime_folder_is_trusted(const char *path);

#endif
