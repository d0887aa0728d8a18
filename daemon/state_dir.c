#include "state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "observe/log.h"

#define KEY "server.state_dir"
enum { MODE = 0700, MODE_ABOVE = 0755 };

static int make_folder(const char *path, mode_t mode, struct error *error)
{
    return mkdir(path, mode) == 0 || errno == EEXIST ? 0
                                                     : fail_errno(error, errno, "%s: cannot make the folder %s", KEY, path);
}

/* In a folder with the sticky bit, as /tmp, each entry is its owner's, except for the owner of the folder. */
static int check_folder(const char *path, bool is_above, struct error *error)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return fail_errno(error, errno, "%s: cannot look at the folder %s", KEY, path);
    bool is_sticky = is_above && (status.st_mode & S_ISVTX);
    if (!is_sticky && (status.st_mode & S_IWOTH))
        log_warn("state_dir_open_to_all", LOG_TEXT("folder", path),
                 LOG_TEXT("message",
                          "every user may write to server.state_dir, or replace it, and the daemon trusts what is "
                          "there; chmod o-w, unless it is a volume that only this container sees"));
    if (status.st_uid == geteuid() || status.st_uid == 0 || is_sticky)
        return 0;
    return fail(
        error, ERROR_FAILED_PRECONDITION, "FOREIGN_STATE_DIR",
        "%s: %s belongs to user %u, who could change what the daemon trusts; name another folder, or set HOME to your "
        "own (sudo -H)",
        KEY, path, (unsigned)status.st_uid);
}

int state_dir_make(const char *path, struct error *error)
{
    char *part = memory_copy_text(path), *last = strrchr(part, '/');
    int result = 0;
    for (char *slash = strchr(part + 1, '/'); slash && result == 0; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        result = make_folder(part, MODE_ABOVE, error);
        *slash = '/';
    }
    if (result == 0)
        result = make_folder(path, MODE, error);
    *(last ? last : part) = '\0';
    if (result == 0 && *part)
        result = check_folder(part, true, error);
    free(part);
    return result == 0 ? check_folder(path, false, error) : -1;
}

/* Of the file; 0 = it is new. */
static unsigned long read_format(int fd)
{
    char text[24] = "";
    return pread(fd, text, sizeof text - 1, 0) > 0 ? strtoul(text, NULL, 10) : 0;
}

int state_dir_own(const char *path, int *fd, struct error *error)
{
    char *name = memory_print("%s/format", path), text[24];
    int result = 0, length = snprintf(text, sizeof text, "%d\n", STATE_DIR_FORMAT);
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    unsigned long format = *fd < 0 ? 0 : read_format(*fd);
    bool is_others = *fd >= 0 && flock(*fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (*fd < 0)
        result = fail_errno(error, errno, "%s: cannot open %s", KEY, name);
    else if (format > STATE_DIR_FORMAT)
        result = fail(error, ERROR_FAILED_PRECONDITION, "STATE_DIR_NEWER",
                      "%s: %s is of a newer daemon (format %lu, this one knows up to %d): start that one, or name another "
                      "folder",
                      KEY, path, format, STATE_DIR_FORMAT);
    else if (!is_others && format < STATE_DIR_FORMAT &&
             (ftruncate(*fd, 0) < 0 || pwrite(*fd, text, (size_t)length, 0) != length))
        result = fail_errno(error, errno, "%s: cannot write %s", KEY, name);
    if (*fd >= 0 && (is_others || result < 0)) {
        close(*fd);
        *fd = -1;
    }
    free(name);
    return result;
}
