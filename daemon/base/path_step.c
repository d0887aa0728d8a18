#include "base/path_step.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By number: files of an overlay and subvolumes have devices of their own. Sandboxes that number no mounts tell devices at least. */
static bool is_same_mount(const struct statx *folder, const struct statx *found)
{
    if (folder->stx_mask & found->stx_mask & STATX_MNT_ID)
        return folder->stx_mnt_id == found->stx_mnt_id;
    bool is_same_device = folder->stx_dev_major == found->stx_dev_major && folder->stx_dev_minor == found->stx_dev_minor;
    return is_same_device || !S_ISDIR(found->stx_mode);
}

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
    *step = (struct path_step){.is_link = S_ISLNK(found.stx_mode), .is_mount = !is_same_mount(&folder, &found)};
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

/* Takes folder_fd. */
static int step_into(int folder_fd, const char *name)
{
    struct path_step step = {0};
    int fd = path_step(folder_fd, name, &step), cause = errno;
    close(folder_fd);
    if (fd >= 0 && step.is_link) {
        close(fd);
        fd = -1;
        cause = ELOOP;
    }
    errno = cause;
    return fd;
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
        at = step_into(at, name);
    }
    if (at < 0)
        return -1;
    int fd = openat(at, ".", flags | O_DIRECTORY | O_CLOEXEC), cause = errno;
    close(at);
    errno = cause;
    return fd;
}
