/* Puts small files into a folder, each at once: a file appears, or is replaced, when all of its bytes have reached the disk.
 * One file at a time. Names are plain file names that the caller has checked; the folder is opened once, so it is always the
 * same one. One owner at a time. */
#ifndef CLIENT_FOLDER_WRITER_H
#define CLIENT_FOLDER_WRITER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct folder_writer {
    const char *folder;           /* borrowed; for messages */
    const char *name;             /* borrowed until it is committed; NULL = no file is open */
    char temporary[NAME_MAX + 1]; /* its name until then */
    int folder_fd, fd;
    mode_t mode;  /* of new files */
    bool is_kept; /* under a name that the next run finds, unless it is small or spoiled */
};

/* A file of so many bytes at least is gone on with, after it was cut off. */
#define FOLDER_WRITER_KEPT_BYTES ((uint64_t)16 << 20)

/* Makes the folder when only its last part is missing. */
int folder_writer_open(struct folder_writer *writer, const char *folder, struct error *error);
/* In a folder that is open already, whatever has its path by now; folder_fd stays the caller's. */
int folder_writer_open_at(struct folder_writer *writer, const char *folder, int folder_fd, struct error *error);
/* The same in the folder that `name`, "vision/tower.safetensors", lies in below that one: made where it is missing, and never through
 * a link. Nothing changes for a name without a slash. */
int folder_writer_open_for(struct folder_writer *writer, const char *folder, int folder_fd, const char *name,
                           struct error *error);
/* A large file that may be gone on with: a hidden name that says of which content it is (`key`: file name characters, of this boot of
 * the host), which only this user may read, and locked while it is written. find: begins `name` where an earlier run has left it and
 * returns how many bytes it has, less than `bytes`; 0 = nothing was begun. begin_kept: from its first byte, unless it is begun. */
bool folder_writer_has_begun(const char *folder); /* it holds such a file of this user's, of any name */
uint64_t folder_writer_find(struct folder_writer *writer, const char *name, const char *key, uint64_t bytes);
int folder_writer_begin_kept(struct folder_writer *writer, const char *name, const char *key, struct error *error);
int folder_writer_begin(struct folder_writer *writer, const char *name, struct error *error);
int folder_writer_add(struct folder_writer *writer, const void *bytes, size_t count, struct error *error);
int folder_writer_commit(struct folder_writer *writer, struct error *error);
void folder_writer_close(struct folder_writer *writer); /* drops a file that was not committed; also after a failed open */

#endif
