/* Paths that a command of root is given, which may be, or lead through, links of other users. Root follows such a link only to what is
 * its owner's own (followed_link.h): whoever may put a link where root reads or writes does not choose root's files. Of other users'
 * commands nothing is refused; what they may do, they may do anyway. */
#ifndef BASE_OPERAND_H
#define BASE_OPERAND_H

#include <limits.h>

#include "base/error.h"

/* PERMISSION_DENIED, FOREIGN_LINK; 0 also for what is not there or cannot be looked at, which whoever opens it tells. */
int operand_check(const char *path, struct error *error);
/* The same, and realpath(): 1 with `resolved`, 0 with errno, -1. ABORTED, FILE_REPLACED: it changed between the two. */
int operand_resolve(const char *path, char resolved[PATH_MAX], struct error *error);

#endif
