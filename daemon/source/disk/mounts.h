/* Which file system a path leads to, without asking that file system, which may be one that does not answer any more: the
 * kernel's mount table, and the path as text. Links are not followed. Any thread.
 *
 * A system call that a FUSE server has begun to serve and never answers cannot be ended, not even by SIGKILL, and a process
 * with such a thread cannot end either. So the daemon makes none on files of such mounts: a process of its own does for each
 * of them (mount_process.h). Waits for other network file systems end when the process is killed. */
#ifndef SOURCE_MOUNTS_H
#define SOURCE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The mounts that an absolute path passes through, as a number: the OR of a few bits for each, so that sets of them are
 * numbers, too. 0 = not known. */
struct mounts_passed {
    uint64_t all, elsewhere; /* elsewhere: those that this process leaves to others */
};
struct mounts_passed mounts_pass(const char *path);
uint64_t mounts_find(const char *path); /* all */

/* From now on this process makes no system calls on FUSE mounts, but on those in `own`; to be called before there are
 * threads. Without it, it makes all of them. */
void mounts_leave_fuse(uint64_t own);
/* 0, or -1 with the kind FUSE_MOUNT: the path passes through mounts that this process leaves to others. */
int mounts_check(const char *path, struct mounts_passed passed, struct error *error);
/* The same of an O_PATH descriptor, of which nothing else has been asked: what was mounted there since the path was looked at? */
int mounts_check_fd(int fd, const char *shown, struct error *error);
/* Those mounts; 0 for other errors, and in a process that has mounts of its own, which leaves it to who asked. */
uint64_t mounts_elsewhere(const struct error *error);
char *mounts_describe(uint64_t mounts); /* "/mnt/models", for messages; malloced */
bool mounts_is_fuse(const char *type);  /* by the name in the kernel's table */
/* What mounts_elsewhere() would tell of the absolute path and of the mounts below it: up to `room` numbers, each once. */
size_t mounts_list_fuse(const char *path, uint64_t *found, size_t room);

/* realpath() that goes to no mount of others: malloced, or NULL with an error. */
char *mounts_realpath(const char *path, struct error *error);

static inline uint64_t mounts_bits_of(uint64_t device_id)
{
    uint64_t hash = (device_id + 1) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
}

#endif
