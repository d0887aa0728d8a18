/* The state directory: what is in it decides what is believed of files (headers/), which uploads go on, and whose folders and
 * activation stores there are. So it, and the folder around it, are this user's or root's. If every user may write to them, the daemon
 * warns and does not refuse: volumes of containers (emptyDir) are like that, and no other user sees them.
 *
 * One daemon at a time owns it, by a lock on the file `format`, which has the number of STATE_DIR_FORMAT. */
#ifndef DAEMON_STATE_DIR_H
#define DAEMON_STATE_DIR_H

#include "base/error.h"

/* Makes it, and what is missing above it. FAILED_PRECONDITION, FOREIGN_STATE_DIR: it, or the folder around it, is
 * another user's, who could change or replace it. */
int state_dir_make(const char *path, struct error *error);

/* Raised when a daemon from before the change would do harm to what is there. */
enum { STATE_DIR_FORMAT = 1 };
/* *fd: what owns it, until it is closed; -1 = another daemon does. FAILED_PRECONDITION, STATE_DIR_NEWER: a daemon wrote there
 * that this one does not understand. */
int state_dir_own(const char *path, int *fd, struct error *error);

#endif
