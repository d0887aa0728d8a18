/* What --out names: a file, a device, a pipe, or standard output.
 *
 * A regular file appears or changes only when it is complete: the bytes go to an unnamed file (or, where the file system
 * has none, a hidden one) in the same folder, which is then renamed over the path; a symbolic link stays and what it leads
 * to is replaced. "-", whatever leads to what standard output is, a device and a pipe are written straight. Blocks. */
#ifndef CLI_OUT_FILE_H
#define CLI_OUT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/text.h"

struct out_file {
    char shown[TEXT_NAME_CHARS]; /* the path as the user wrote it, escaped */
    char path[PATH_MAX];         /* what is replaced: the end of all symbolic links */
    char folder[PATH_MAX];
    char temporary[PATH_MAX]; /* "" while the file has no name */
    bool in_place, is_stdout;
    mode_t mode;
    int fd;
};

/* Is it "-", or does it lead to the file, pipe or terminal that standard output is? Then nothing else may be printed there.
 */
bool out_file_is_stdout(const char *path);
/* Would a file be accepted there? Asked before long work; writes nothing. */
int out_file_check(const char *path, struct error *error);
int out_file_open(struct out_file *out, const char *path, struct error *error);
int out_file_write(struct out_file *out, const void *bytes, size_t count, struct error *error);
int out_file_commit(struct out_file *out, struct error *error);
int out_file_put(const char *path, const char *text, struct error *error); /* all of it at once */
void out_file_close(struct out_file *out); /* the path is as it was, unless it was committed; also after a failed open */

#endif
