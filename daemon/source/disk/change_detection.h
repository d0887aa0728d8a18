/* How a change of a local file would be noticed while it is read: by a read lease where kernel, rights and file system grant
 * one (source/file_lease.h), else by its timestamps. What timestamps cannot tell is told apart as in git: a file that was
 * changed a moment ago is "racy", since the next change may leave the same times.
 *
 * begin may wait, a few seconds at most, until a file without a lease has not been changed for CHANGE_SETTLE_NS. */
#ifndef SOURCE_CHANGE_DETECTION_H
#define SOURCE_CHANGE_DETECTION_H

#include <sys/stat.h>

#include "source/disk/file_lease.h"
#include "source/source.h"

/* The coarsest timestamps in use have 2 s (exFAT, old servers); the rest is for clocks of servers that differ from ours. A
 * write call that lasts longer is not noticed without a lease. */
#define CHANGE_SETTLE_NS ((uint64_t)3 * 1000000000)
/* Pages that a mapping has made dirty are written back within 35 s (30 s old, looked at every 5 s) unless the machine is
 * told otherwise; only then does the next write to them show in the times. Replicas of younger files are not used again. */
#define CHANGE_TRUSTED_NS ((uint64_t)60 * 1000000000)

struct change_detection {
    int fd;                   /* opened O_RDONLY, borrowed until the end */
    struct file_lease *lease; /* NULL = none; on a network file system it sees this host's writers only */
};

/* Takes what can be had, then looks at the file: fills all of `file` but its name. On an error nothing is to be ended:
 * FAILED_PRECONDITION, SOURCE_BEING_WRITTEN. *waited_ns is added to: how long all files of a source have waited. */
int change_detection_begin(struct change_detection *detection, struct source_file *file, uint64_t *waited_ns,
                           const struct cancel *cancel, struct error *error);
/* 0 while nothing says that the file was changed since, else FAILED_PRECONDITION, SOURCE_CHANGED. */
int change_detection_check(const struct change_detection *detection, const struct source_file *file, struct error *error);
void change_detection_end(struct change_detection *detection); /* before fd is closed; twice is the same as once */
struct source_identity change_detection_identity(const struct stat *status);
bool change_detection_same(const struct source_identity *a, const struct source_identity *b);
int change_detection_fail(const char *name, const char *how, struct error *error); /* SOURCE_CHANGED */

#endif
