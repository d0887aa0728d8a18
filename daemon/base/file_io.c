/* See file_io.h. */
#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum { MAX_INTERRUPTIONS = 100 };

bool file_io_is_interrupted(int *n_times)
{
    return errno == EINTR && ++*n_times <= MAX_INTERRUPTIONS;
}

/* offset: NULL = where the descriptor stands */
static ssize_t read_from(int fd, char *bytes, size_t count, const uint64_t *offset)
{
    size_t done = 0;
    int n_interruptions = 0;
    while (done < count) {
        ssize_t n =
            offset ? pread(fd, bytes + done, count - done, (off_t)(*offset + done)) : read(fd, bytes + done, count - done);
        if (n == 0)
            break;
        if (n < 0 && !file_io_is_interrupted(&n_interruptions))
            return -1;
        n_interruptions = n > 0 ? 0 : n_interruptions;
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

static int write_to(int fd, const char *bytes, size_t count, const uint64_t *offset)
{
    int n_interruptions = 0;
    for (size_t done = 0; done < count;) {
        ssize_t n =
            offset ? pwrite(fd, bytes + done, count - done, (off_t)(*offset + done)) : write(fd, bytes + done, count - done);
        if (n == 0) /* POSIX has no meaning for it; without an end it would be a loop */
            errno = EIO;
        if (n == 0 || (n < 0 && !file_io_is_interrupted(&n_interruptions)))
            return -1;
        n_interruptions = n > 0 ? 0 : n_interruptions;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

ssize_t file_io_read(int fd, void *bytes, size_t count)
{
    return read_from(fd, bytes, count, NULL);
}

ssize_t file_io_read_at(int fd, void *bytes, size_t count, uint64_t offset)
{
    return read_from(fd, bytes, count, &offset);
}

int file_io_write(int fd, const void *bytes, size_t count)
{
    return write_to(fd, bytes, count, NULL);
}

int file_io_write_at(int fd, const void *bytes, size_t count, uint64_t offset)
{
    return write_to(fd, bytes, count, &offset);
}

int file_io_make_folders(const char *path, mode_t mode)
{
    char *part = memory_copy_text(path);
    int failure = 0;
    for (char *slash = strchr(part + (*part != 0), '/'); slash && !failure; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        failure = mkdir(part, mode) == 0 || errno == EEXIST ? 0 : errno;
        *slash = '/';
    }
    free(part);
    errno = failure;
    return failure ? -1 : 0;
}

int file_io_replace(int folder_fd, const char *name, const void *bytes, size_t count, bool is_durable)
{
    char *fresh = memory_print("%s.new", name);
    int fd = openat(folder_fd, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool is_written =
        fd >= 0 && fchmod(fd, 0600) == 0 && file_io_write(fd, bytes, count) == 0 && (!is_durable || fsync(fd) == 0);
    int failure = is_written ? 0 : errno;
    if (fd >= 0 && close(fd) < 0 && !failure)
        failure = errno;
    if (!failure && renameat(folder_fd, fresh, folder_fd, name) < 0)
        failure = errno;
    if (failure && fd >= 0)
        unlinkat(folder_fd, fresh, 0);
    free(fresh);
    errno = failure;
    return failure ? -1 : 0;
}

int file_io_reopen(int fd, int flags)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return open(link, flags | O_CLOEXEC | O_NOCTTY);
}

const char *file_io_name(int fd, char name[PATH_MAX])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX - 1);
    name[length > 0 ? length : 0] = '\0';
    return name;
}
