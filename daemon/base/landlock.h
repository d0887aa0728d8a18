/* Landlock: what the files are that this thread, and those it makes from then on, may still touch, see landlock(7). It never gives
 * rights, and never gives back what it took. One thread, before there are others. */
#ifndef BASE_LANDLOCK_H
#define BASE_LANDLOCK_H

#include <stdint.h>

#include "base/error.h"

enum landlock_rights {                        /* a kernel that does not know one of them leaves it alone */
                       LANDLOCK_READ = 1,     /* files, and the names in folders */
                       LANDLOCK_WRITE = 2,    /* into files that are there */
                       LANDLOCK_CREATE = 4,   /* and remove files, except devices and sockets */
                       LANDLOCK_FOLDERS = 8,  /* the same with folders, and move files between them */
                       LANDLOCK_SOCKETS = 16, /* make and remove them */
                       LANDLOCK_EXECUTE = 32,
                       LANDLOCK_DEVICES = 64, /* make device files and FIFOs */
};

int landlock_abi(void); /* of this kernel; 0 = it has none, or it is switched off */

/* A set of rules: a descriptor, closed on exec. Of these rights only what the rules say is left. -1 on error. */
int landlock_create(unsigned confined, struct error *error);
/* What lies at or below `path_fd` (O_PATH). rights: of the confined ones. */
int landlock_allow(int rules, int path_fd, unsigned rights, struct error *error);
/* For good. Closes `rules`. Also gives up gaining privileges by exec. */
int landlock_enforce(int rules, struct error *error);

#endif
