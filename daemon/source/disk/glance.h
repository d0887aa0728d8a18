/* Looks at what lies at an absolute path of this host, links followed, for caches with a layout of their own: no trusted roots,
 * no leases, nothing stays open. What is on a FUSE mount is looked at by the mount's process; a server that does not answer
 * within ten seconds has nothing. Any thread. */
#ifndef SOURCE_GLANCE_H
#define SOURCE_GLANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"

struct source_format;

enum glance_kind {
    GLANCE_EXISTS,   /* 0 */
    GLANCE_IS_FILE,  /* a regular one: 0 */
    GLANCE_IS_WHOLE, /* a folder, by the format: 0 */
    GLANCE_TEXT,     /* how many bytes of a file's beginning were put into `bytes` */
    GLANCE_LINK,     /* the same of the target of a link */
    GLANCE_KINDS,
};

struct glance {
    const struct source_format *format; /* may be NULL: then no folder is whole */
    const struct cancel *cancel;        /* may be NULL */
    uid_t uid;
};

/* -1: it is not there. */
ssize_t glance_at(const struct glance *glance, enum glance_kind kind, const char *path, char *bytes, size_t room);
/* The same by this process, whatever mount it is on. */
ssize_t glance_here(const struct source_format *format, enum glance_kind kind, const char *path, char *bytes, size_t room);

#endif
