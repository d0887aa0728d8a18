/* See tmpfs_folder.h. */
#include "tmpfs_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/path_step.h"
#include "base/process.h"
#include "base/text.h"

enum { TMPFS_TYPE = 0x01021994, HUGETLBFS_TYPE = (int)0x958458f6, FILE_MODE = 0444, MOST_TRIES = 10 };

static int fail_path(const char *path, const char *doing, struct error *error)
{
    int cause = errno;
    return fail_errno(error, cause, "%s %s", doing, text_show(path));
}

/* --- where it is --- */

/* By its text: no part of it may be a link anyway. */
static bool make_absolute(const char *path, char out[PATH_MAX])
{
    size_t used = 0;
    if (path[0] != '/') {
        if (!getcwd(out, PATH_MAX))
            return false;
        used = strcmp(out, "/") == 0 ? 0 : strlen(out);
    }
    for (const char *part = path; *part;) {
        size_t n = strcspn(part, "/");
        if (n == 2 && memcmp(part, "..", 2) == 0) {
            while (used && out[--used] != '/')
                ;
        } else if (n && !(n == 1 && *part == '.')) {
            if (used + n + 2 > PATH_MAX)
                return false;
            out[used++] = '/';
            memcpy(out + used, part, n);
            used += n;
        }
        part += n + (part[n] == '/');
    }
    out[used] = '\0';
    return used > 0;
}

static int open_parent(struct tmpfs_folder *folder, const char *parent, struct error *error)
{
    struct statfs system;
    struct stat status;
    const char *text = text_show(parent);
    folder->parent_fd = path_step_open_folder(parent, O_PATH);
    if (folder->parent_fd < 0 && errno == ELOOP)
        return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_BEHIND_A_LINK",
                    "%s is behind a symbolic link; name the folder by the path that 'realpath' prints", text);
    if (folder->parent_fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_PARENT", "%s, in which the folder is to be made, is no folder",
                    text);
    if (folder->parent_fd < 0 || fstatfs(folder->parent_fd, &system) < 0 || fstat(folder->parent_fd, &status) < 0)
        return fail_path(parent, "cannot open", error);
    folder->device = (uint64_t)status.st_dev;
    if ((int)system.f_type == HUGETLBFS_TYPE)
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_ON_TMPFS",
                    "%s is on hugetlbfs, where files have whole huge pages and cannot have the artifact's bytes; name a "
                    "folder on tmpfs, which has huge pages, too, when it is mounted with huge=within_size",
                    text);
    if ((int)system.f_type != TMPFS_TYPE)
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_ON_TMPFS",
                    "%s is not on tmpfs: the folder is memory, so name one below /dev/shm or another tmpfs; tensorcast "
                    "fetch writes to disks",
                    text);
    return 0;
}

int tmpfs_folder_open(struct tmpfs_folder *folder, const char *path, struct error *error)
{
    char parent[PATH_MAX];
    *folder = (struct tmpfs_folder){.parent_fd = -1};
    char *slash = make_absolute(path, folder->path) ? strrchr(folder->path, '/') : NULL;
    if (!slash || strlen(slash + 1) + sizeof "..tensorcast" > NAME_MAX)
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_NAME", "the folder has no name, or one that is too long");
    snprintf(folder->name, sizeof folder->name, "%s", slash + 1);
    snprintf(folder->hidden, sizeof folder->hidden, ".%s.tensorcast", folder->name);
    snprintf(parent, sizeof parent, "%.*s", slash == folder->path ? 1 : (int)(slash - folder->path), folder->path);
    return open_parent(folder, parent, error);
}

void tmpfs_folder_close(struct tmpfs_folder *folder)
{
    if (folder->parent_fd >= 0)
        close(folder->parent_fd);
    folder->parent_fd = -1;
}

bool tmpfs_folder_exists(const struct tmpfs_folder *folder, uid_t *owner)
{
    struct stat status;
    bool exists = fstatat(folder->parent_fd, folder->name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    *owner = exists ? status.st_uid : 0;
    return exists;
}

int tmpfs_folder_check_room(const struct tmpfs_folder *folder, uint64_t bytes, struct error *error)
{
    struct statvfs room;
    if (fstatvfs(folder->parent_fd, &room) < 0 || room.f_blocks == 0) /* of no limit */
        return 0;
    uint64_t available = (uint64_t)room.f_bavail * room.f_frsize;
    if (bytes <= available)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_ROOM_ON_TMPFS",
                "%s needs %s and its file system has %s left; mount it with a larger size=", text_show(folder->path),
                text_show_amount(bytes), text_show_amount(available));
}

int tmpfs_folder_new_file(const struct tmpfs_folder *folder, int *fd, struct error *error)
{
    *fd = openat(folder->parent_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *fd < 0 ? fail_path(folder->path, "cannot make files for", error) : 0;
}

/* --- what is in it --- */

static bool is_made_file(const struct stat *status, uint64_t stamp_ns)
{
    return S_ISREG(status->st_mode) && (status->st_mode & 07777) == FILE_MODE &&
           (uint64_t)status->st_mtim.tv_sec * 1000000000U + (uint64_t)status->st_mtim.tv_nsec == stamp_ns;
}

int tmpfs_folder_find(const char *path, uint64_t stamp_ns, const struct tmpfs_file *files, size_t n_files,
                      struct error *error)
{
    struct stat status;
    int fd = path_step_open_folder(path, O_RDONLY);
    bool is_whole = fd >= 0;
    const char *wrong = "it is gone";
    for (size_t i = 0; is_whole && i < n_files; i++) {
        is_whole = fstatat(fd, files[i].name, &status, AT_SYMLINK_NOFOLLOW) == 0 && is_made_file(&status, stamp_ns) &&
                   (uint64_t)status.st_size == files[i].bytes;
        wrong = is_whole ? wrong : text_show(files[i].name);
    }
    if (is_whole)
        return fd;
    if (fd >= 0)
        close(fd);
    const char *text = text_show(path);
    return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_CHANGED",
                "%s has changed since it was made (%s); tensorcast release %s, then make it again", text, wrong, text);
}

/* --- the hidden folder --- */

static DIR *open_list(int fd)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return copy < 0 ? NULL : fdopendir(copy);
}

/* Its next file; NULL at the end. */
static const char *next_file(DIR *list)
{
    struct dirent *entry;
    while ((entry = readdir(list)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    return NULL;
}

/* errno. The files stay open until this process ends, so that it takes no time to remove large ones. */
static int empty_folder(int fd)
{
    DIR *list = open_list(fd);
    int failed = 0;
    if (!list)
        return errno;
    process_allow_descriptors();
    for (const char *name; (name = next_file(list));) {
        (void)openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (unlinkat(fd, name, 0) < 0)
            failed = errno;
    }
    closedir(list);
    return failed;
}

/* The folder of that hidden name when no process works in it, locked; -1. */
static int lock_hidden(const struct tmpfs_folder *folder)
{
    struct stat by_name, by_fd;
    int fd = openat(folder->parent_fd, folder->hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &by_fd) == 0 &&
        (by_fd.st_uid == geteuid() || geteuid() == 0) &&
        fstatat(folder->parent_fd, folder->hidden, &by_name, AT_SYMLINK_NOFOLLOW) == 0 && by_name.st_ino == by_fd.st_ino)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* What a killed process has left. errno; EBUSY = a process works in it. */
static int remove_hidden(const struct tmpfs_folder *folder)
{
    int fd = lock_hidden(folder);
    if (fd < 0)
        return EBUSY;
    int cause = empty_folder(fd);
    if (!cause && unlinkat(folder->parent_fd, folder->hidden, AT_REMOVEDIR) < 0)
        cause = errno;
    close(fd);
    return cause;
}

static int make_hidden(const struct tmpfs_folder *folder, int *fd)
{
    for (int i = 0; i < MOST_TRIES; i++) {
        if (mkdirat(folder->parent_fd, folder->hidden, 0755) == 0) {
            *fd = lock_hidden(folder);
            if (*fd >= 0)
                return fchmod(*fd, 0755) < 0 ? errno : 0;
        } else if (errno != EEXIST) {
            return errno;
        } else {
            int cause = remove_hidden(folder);
            if (cause)
                return cause;
        }
    }
    return EBUSY;
}

static int link_files(int hidden_fd, const struct tmpfs_file *files, size_t n_files, int from)
{
    char path[64];
    for (size_t i = 0; i < n_files; i++) {
        int failed;
        snprintf(path, sizeof path, "/proc/self/fd/%d", files[i].fd);
        if (from >= 0)
            failed = linkat(from, files[i].name, hidden_fd, files[i].name, 0);
        else
            failed = linkat(AT_FDCWD, path, hidden_fd, files[i].name, AT_SYMLINK_FOLLOW);
        if (failed)
            return errno;
    }
    return 0;
}

static int rename_to(const struct tmpfs_folder *folder, const char *from, const char *to)
{
    return syscall(SYS_renameat2, folder->parent_fd, from, folder->parent_fd, to, 1U /* RENAME_NOREPLACE */) < 0 ? errno : 0;
}

int tmpfs_folder_publish(const struct tmpfs_folder *folder, const struct tmpfs_file *files, size_t n_files, int from,
                         uint64_t stamp_ns, struct error *error)
{
    const struct timespec times[2] = {
        {.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)(stamp_ns / 1000000000U), .tv_nsec = (long)(stamp_ns % 1000000000U)}};
    int hidden_fd = -1;
    for (size_t i = 0; from < 0 && i < n_files; i++)
        if (fchmod(files[i].fd, FILE_MODE) < 0 || futimens(files[i].fd, times) < 0)
            return fail_path(folder->path, "cannot finish the files of", error);
    int cause = make_hidden(folder, &hidden_fd);
    if (!cause)
        cause = link_files(hidden_fd, files, n_files, from);
    if (!cause && futimens(hidden_fd, times) < 0)
        cause = errno;
    if (!cause)
        cause = rename_to(folder, folder->hidden, folder->name);
    if (cause && hidden_fd >= 0) {
        empty_folder(hidden_fd);
        unlinkat(folder->parent_fd, folder->hidden, AT_REMOVEDIR);
    }
    if (hidden_fd >= 0)
        close(hidden_fd);
    const char *text = text_show(folder->path);
    if (cause == EEXIST || cause == ENOTEMPTY)
        return fail(error, ERROR_ALREADY_EXISTS, "FOLDER_EXISTS", "another process has made %s meanwhile", text);
    if (cause == EBUSY)
        return fail(error, ERROR_ABORTED, "FOLDER_IS_BEING_MADE", "another process is making or removing %s; try again",
                    text);
    errno = cause;
    return cause ? fail_path(folder->path, "cannot make", error) : 0;
}

/* --- removing --- */

/* False = every file in it was made by this program. */
static bool find_foreign(int fd, uint64_t stamp_ns, char found[NAME_MAX + 1])
{
    DIR *list = open_list(fd);
    struct stat status;
    bool is_found = false;
    for (const char *name; list && !is_found && (name = next_file(list));) {
        is_found = fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !is_made_file(&status, stamp_ns);
        snprintf(found, NAME_MAX + 1, "%s", name);
    }
    if (list)
        closedir(list);
    return is_found;
}

int tmpfs_folder_remove(const struct tmpfs_folder *folder, uint64_t stamp_ns, struct error *error)
{
    char name[NAME_MAX + 1];
    int fd = openat(folder->parent_fd, folder->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail_path(folder->path, "cannot open", error);
    bool has_more = find_foreign(fd, stamp_ns, name);
    close(fd);
    if (has_more)
        return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_HAS_MORE",
                    "%s has %s in it, which was changed or put there since the folder was made; move it away first",
                    text_show(folder->path), text_show(name));
    int cause = rename_to(folder, folder->name, folder->hidden);
    while (cause == EEXIST && (cause = remove_hidden(folder)) == 0)
        cause = rename_to(folder, folder->name, folder->hidden);
    if (!cause)
        cause = remove_hidden(folder);
    errno = cause;
    return cause && cause != ENOENT ? fail_path(folder->path, "cannot remove", error) : 0;
}
