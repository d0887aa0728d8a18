/* Reads and writes that go on after signals and short counts, so that a caller has two outcomes instead of four.
 * On -1 errno says why, and how much was moved before that is not known. Any thread. */
#ifndef BASE_FILE_IO_H
#define BASE_FILE_IO_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How many bytes came: `count`, or less where the file ends. */
ssize_t file_io_read(int fd, void *bytes, size_t count);
ssize_t file_io_read_at(int fd, void *bytes, size_t count, uint64_t offset);
/* 0 when all of it was taken. */
int file_io_write(int fd, const void *bytes, size_t count);
int file_io_write_at(int fd, const void *bytes, size_t count, uint64_t offset);

/* Whether a call that failed is to be made again: a signal interrupted it. Servers of mounts may say so for ever, so not more than
 * a hundred times; *n_times begins with 0. */
bool file_io_is_interrupted(int *n_times);

/* mkdir -p of the folders that are named before a slash of `path`: for a folder itself, with one behind it. */
int file_io_make_folders(const char *path, mode_t mode);

/* The file of that name in the folder (AT_FDCWD: by its path), of this user alone: a crash leaves the old one or the new one,
 * which is written beside it as "NAME.new" and, when is_durable, is on the disk before it gets the name. */
int file_io_replace(int folder_fd, const char *name, const void *bytes, size_t count, bool is_durable);

/* open() of what a descriptor stands for, O_PATH or not, without walking its name again. */
int file_io_reopen(int fd, int flags);

/* What the kernel calls the open file, which it knows without asking a file system; "" where it cannot tell. Returns name. */
const char *file_io_name(int fd, char name[PATH_MAX]);

#endif
