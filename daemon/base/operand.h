/* Paths that are given to a command of root. They may be, or lead through, links of other users. Root follows such a link only to
 * files of the link's owner (followed_link.h). So another user's link never chooses root's files. Commands of other users are not
 * checked: the kernel checks their rights. */
#ifndef BASE_OPERAND_H
#define BASE_OPERAND_H

#include <limits.h>

#include "base/error.h"

/* PERMISSION_DENIED, FOREIGN_LINK; 0 also for a path that is missing or unreadable: open() tells that. */
int operand_check(const char *path, struct error *error);
/* The same, and realpath(): 1 with `resolved`, 0 with errno, -1. ABORTED, FILE_REPLACED: it changed between the two. */
int operand_resolve(const char *path, char resolved[PATH_MAX], struct error *error);

#endif
