/* See file_io.h. */
#include "base/file_io.h"

#include <errno.h>
#include <unistd.h>

/* offset: NULL = where the descriptor stands */
static ssize_t read_from(int fd, char *bytes, size_t count, const uint64_t *offset)
{
    size_t done = 0;
    while (done < count) {
        ssize_t n =
            offset ? pread(fd, bytes + done, count - done, (off_t)(*offset + done)) : read(fd, bytes + done, count - done);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return (ssize_t)done;
}

static int write_to(int fd, const char *bytes, size_t count, const uint64_t *offset)
{
    for (size_t done = 0; done < count;) {
        ssize_t n =
            offset ? pwrite(fd, bytes + done, count - done, (off_t)(*offset + done)) : write(fd, bytes + done, count - done);
        if (n == 0) /* POSIX has no meaning for it; without an end it would be a loop */
            errno = EIO;
        if (n == 0 || (n < 0 && errno != EINTR))
            return -1;
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
