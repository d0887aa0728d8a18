/* PERMISSION_DENIED for files whose rights are not enough: who may not do what with which file, whose it is, what helps. */
#ifndef SOURCE_ACCESS_DENIED_H
#define SOURCE_ACCESS_DENIED_H

#include <stdbool.h>

#include "base/error.h"

/* `verb`: "read", "list" or "enter". `fd` (O_PATH will do) is what refuses. `path` is its absolute name as it was asked for;
 * NULL = the name that the kernel has for it. `is_daemon`: the user is the daemon's and not the reader of the message.
 * Looks users up, which may wait for a directory service: not on the loop. Returns -1. */
int access_denied_fail(struct error *error, const char *verb, const char *path, int fd, bool is_daemon);

#endif
