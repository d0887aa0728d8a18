/* See glance.h. */
#include "source/disk/glance.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "source/disk/mounts.h"
#include "source/disk/source_forward.h"
#include "source/source.h"

static bool is_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static ssize_t read_text(const char *path, char *bytes, size_t room)
{
    int fd = is_file(path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    ssize_t n_bytes = fd >= 0 ? read(fd, bytes, room) : -1;
    if (fd >= 0)
        close(fd);
    return n_bytes;
}

ssize_t glance_here(const struct source_format *format, enum glance_kind kind, const char *path, char *bytes, size_t room)
{
    switch (kind) {
    case GLANCE_EXISTS:
        return access(path, F_OK);
    case GLANCE_IS_FILE:
        return is_file(path) ? 0 : -1;
    case GLANCE_IS_WHOLE:
        return format && format->is_whole(path) ? 0 : -1;
    case GLANCE_TEXT:
        return read_text(path, bytes, room);
    case GLANCE_LINK:
        return readlink(path, bytes, room);
    default:
        return -1;
    }
}

/* The mounts that have to be asked; 0 = none. Of a link: those of its folder. */
static uint64_t find_mounts(enum glance_kind kind, const char *path)
{
    struct error error;
    char *at = memory_copy_text(path), *slash = strrchr(at, '/');
    if (kind == GLANCE_LINK && slash)
        *slash = '\0';
    char *found = mounts_realpath(at, &error);
    uint64_t mounts = found ? 0 : mounts_elsewhere(&error);
    free(found);
    free(at);
    return mounts;
}

ssize_t glance_at(const struct glance *glance, enum glance_kind kind, const char *path, char *bytes, size_t room)
{
    uint64_t mounts = find_mounts(kind, path);
    return mounts ? source_forward_glance(mounts, glance, kind, path, bytes, room)
                  : glance_here(glance->format, kind, path, bytes, room);
}
