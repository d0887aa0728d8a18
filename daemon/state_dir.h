/* The state directory: what is in it decides what is believed of files (headers/), which uploads go on, and whose folders and
 * activation stores there are. So it, and the folder around it, are this user's or root's. That everybody may write to them is told
 * and not refused: volumes of containers (emptyDir) are like that, and nobody else sees them. */
#ifndef DAEMON_STATE_DIR_H
#define DAEMON_STATE_DIR_H

#include "base/error.h"

/* Makes it, and what is missing above it. FAILED_PRECONDITION, FOREIGN_STATE_DIR: it, or the folder around it, is
 * another user's, who could change it or put his own there. */
int state_dir_make(const char *path, struct error *error);

#endif
