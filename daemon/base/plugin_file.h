/* Shared objects that a plugin is: found, checked and opened. Loop thread, at the start. */
#ifndef BASE_PLUGIN_FILE_H
#define BASE_PLUGIN_FILE_H

#include <limits.h>

#include "base/error.h"

/* The path of FOLDER/FILE; folder "" = where a build or an installation has plugins, beside the daemon's own file. NO_PLUGIN where there
 * is none. */
int plugin_file_find(const char *folder, const char *file, char path[PATH_MAX], struct error *error);

/* The value of `symbol` in that file. Code that
 * runs as the daemon belongs to root or to the daemon's user, and no other user may write to it. Never closed: its threads and atexit
 * handlers may outlive any moment we could choose. NULL on error. */
const void *plugin_file_open(const char *folder, const char *file, const char *symbol, struct error *error);

#endif
