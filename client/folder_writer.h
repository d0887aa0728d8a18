/* Puts small files into a folder, each at once: a file appears, or is replaced, when all of its bytes have reached the disk.
 * One file at a time. Names are plain file names that the caller has checked; the folder is opened once, so it is always the
 * same one. One owner at a time. */
#ifndef CLIENT_FOLDER_WRITER_H
#define CLIENT_FOLDER_WRITER_H

#include <stddef.h>

#include "base/error.h"

struct folder_writer {
    const char *folder; /* borrowed; for messages */
    const char *name;   /* borrowed until it is committed; NULL = no file is open */
    char temporary[64]; /* its name until then */
    int folder_fd, fd;
};

/* Makes the folder when only its last part is missing. */
int folder_writer_open(struct folder_writer *writer, const char *folder, struct error *error);
/* In a folder that is open already, whatever has its path by now; folder_fd stays the caller's. */
int folder_writer_open_at(struct folder_writer *writer, const char *folder, int folder_fd, struct error *error);
/* The same in the folder that `name`, "vision/tower.safetensors", lies in below that one: made where it is missing, and never through
 * a link. Nothing changes for a name without a slash. */
int folder_writer_open_for(struct folder_writer *writer, const char *folder, int folder_fd, const char *name,
                           struct error *error);
int folder_writer_begin(struct folder_writer *writer, const char *name, struct error *error);
int folder_writer_add(struct folder_writer *writer, const void *bytes, size_t count, struct error *error);
int folder_writer_commit(struct folder_writer *writer, struct error *error);
void folder_writer_close(struct folder_writer *writer); /* drops a file that was not committed; also after a failed open */

#endif
