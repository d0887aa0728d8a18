/* A folder on tmpfs that appears with all of its files, or goes with all of them, by one rename (docs/folder.md).
 *
 *   PARENT/NAME              what is made: files 0444 of the caller's; they and the folder have the same time of change, the stamp
 *   PARENT/.NAME.tensorcast  while it is put together from files that are whole, or taken apart: for a few system calls. Locked
 *                            by the process that works in it; one without a lock is left over of a kill, and goes with the
 *                            next folder of that name.
 *
 * Files have no name until then, so that they go with the process that writes them. Everything is done relative to the parent,
 * which is reached without symbolic links and opened once, with the caller's own rights. Main thread; blocks. */
#ifndef CLI_TMPFS_FOLDER_H
#define CLI_TMPFS_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct tmpfs_folder {
    char path[PATH_MAX]; /* absolute */
    char name[NAME_MAX + 1], hidden[NAME_MAX + 1];
    int parent_fd;   /* -1 = not open */
    uint64_t device; /* the parent's */
};

struct tmpfs_file {
    const char *name;
    uint64_t bytes;
    int fd; /* without a name until the folder is put together; -1 = none, or it is linked from another folder */
};

/* Writes nothing. FAILED_PRECONDITION where the parent is missing, no tmpfs, or behind a symbolic link. */
int tmpfs_folder_open(struct tmpfs_folder *folder, const char *path, struct error *error);
void tmpfs_folder_close(struct tmpfs_folder *folder); /* also after a failed open */

bool tmpfs_folder_exists(const struct tmpfs_folder *folder, uid_t *owner); /* owner: of what is there */
/* RESOURCE_EXHAUSTED when the file system has no room for so much. */
int tmpfs_folder_check_room(const struct tmpfs_folder *folder, uint64_t bytes, struct error *error);
int tmpfs_folder_new_file(const struct tmpfs_folder *folder, int *fd, struct error *error);

/* A descriptor of the folder at `path` when it holds these files, unchanged since the stamp; -1. */
int tmpfs_folder_find(const char *path, uint64_t stamp_ns, const struct tmpfs_file *files, size_t n_files,
                      struct error *error);

/* Puts it together: from the files' descriptors, or, with `from` (the folder that has them; else -1), as links to its files,
 * which have that stamp. ALREADY_EXISTS when there is something by that name. */
int tmpfs_folder_publish(const struct tmpfs_folder *folder, const struct tmpfs_file *files, size_t n_files, int from,
                         uint64_t stamp_ns, struct error *error);
/* 0 also when it is gone already. FAILED_PRECONDITION naming a file in it that has not that stamp: then nothing is removed. */
int tmpfs_folder_remove(const struct tmpfs_folder *folder, uint64_t stamp_ns, struct error *error);

#endif
