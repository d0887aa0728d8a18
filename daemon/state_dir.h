/* The state directory: what is in it decides what is believed of files (headers/), which uploads go on, and whose folders and
 * activation stores there are. So nobody but this user and root may write to it, or put another one in its place. */
#ifndef DAEMON_STATE_DIR_H
#define DAEMON_STATE_DIR_H

#include "base/error.h"

/* Makes it, and what is missing above it. FAILED_PRECONDITION, FOREIGN_STATE_DIR: another user could change it. */
int state_dir_make(const char *path, struct error *error);

#endif
