#include "base/path_step.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int stat_mount(int fd, struct statx *found)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, found);
}

int path_step(int folder_fd, const char *name, struct path_step *step)
{
    struct statx folder, found;
    int fd = openat(folder_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (stat_mount(folder_fd, &folder) < 0 || stat_mount(fd, &found) < 0) {
        int cause = errno;
        close(fd);
        errno = cause;
        return -1;
    }
    /* by number: files of an overlay and subvolumes have devices of their own; sandboxes that number no mounts tell devices */
    bool is_other_device = folder.stx_dev_major != found.stx_dev_major || folder.stx_dev_minor != found.stx_dev_minor;
    *step = (struct path_step){.is_link = S_ISLNK(found.stx_mode),
                               .is_mount = folder.stx_mask & found.stx_mask & STATX_MNT_ID
                                               ? folder.stx_mnt_id != found.stx_mnt_id
                                               : is_other_device && S_ISDIR(found.stx_mode)};
    return fd;
}

int path_step_at_once(int folder_fd, const char *path)
{
    static const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                                        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    return (int)syscall(SYS_openat2, folder_fd, path, &how, sizeof how);
}

int path_step_refused(void)
{
    int folder_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = folder_fd < 0 ? -1 : path_step_at_once(folder_fd, "."), cause = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (folder_fd >= 0)
        close(folder_fd);
    return cause;
}

int path_step_open_folder(const char *path, int flags)
{
    char name[NAME_MAX + 1];
    int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t length; at >= 0 && (path += strspn(path, "/"), length = strcspn(path, "/")) != 0; path += length) {
        if (length > NAME_MAX) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        struct path_step step = {0};
        int next = path_step(at, name, &step), cause = errno;
        close(at);
        if (next >= 0 && step.is_link) {
            close(next);
            next = -1;
            cause = ELOOP;
        }
        errno = cause;
        at = next;
    }
    if (at < 0)
        return -1;
    int fd = openat(at, ".", flags | O_DIRECTORY | O_CLOEXEC), cause = errno;
    close(at);
    errno = cause;
    return fd;
}
