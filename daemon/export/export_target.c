#include "export/export_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/operand.h"

#define WORK_PREFIX "."
#define WORK_SUFFIX ".exporting"
enum { MAX_DEPTH = 128 }; /* of what is removed; each level has a descriptor open */

static int fail_target(const struct export_target *target, const char *what, struct error *error)
{
    int cause = errno;
    return fail_errno(error, cause, "cannot %s %s", what, target->shown);
}

/* --- looking --- */

/* The folder it is in, and its name there; a link is followed. */
static int find_path(struct export_target *target, const char *path, struct error *error)
{
    char copy[PATH_MAX], *resolved = memory_alloc(PATH_MAX);
    int at = operand_resolve(path, resolved, error);
    target->exists = at > 0;
    if (at <= 0) {
        free(resolved);
        if (at < 0)
            return -1;
        size_t length = strlen(path);
        while (length > 1 && path[length - 1] == '/')
            length--;
        if (length == 0 || length >= sizeof copy)
            return fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "%s is no path of a folder", target->shown);
        memcpy(copy, path, length);
        copy[length] = '\0';
        char *slash = strrchr(copy, '/');
        const char *name = slash ? slash + 1 : copy, *parent = slash == copy ? "/" : slash ? copy : ".";
        if (errno != ENOENT || !*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) > NAME_MAX)
            return fail_target(target, "write to", error);
        struct stat link;
        if (lstat(copy, &link) == 0)
            return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_IS_NO_FOLDER", "%s is a link to a missing folder",
                        target->shown);
        strcpy(target->name, name);
        if (slash)
            *slash = '\0';
        resolved = realpath(parent, NULL);
        if (!resolved)
            return fail_target(target, "find the folder around", error);
    } else {
        char *slash = strrchr(resolved, '/');
        snprintf(target->name, sizeof target->name, "%s", slash + 1);
        slash[slash == resolved] = '\0';
    }
    bool is_root = strcmp(resolved, "/") == 0;
    int used = snprintf(target->path, sizeof target->path, "%s/%s", is_root ? "" : resolved, target->name);
    target->parent_fd = open(resolved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(resolved);
    if (used >= (int)sizeof target->path || !*target->name)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "%s is no path of a folder to write to", target->shown);
    return target->parent_fd < 0 ? fail_target(target, "open the folder around", error) : 0;
}

/* 1 = it has entries, 0 = none, -1 = it cannot be read. Takes fd. */
static int has_entries(int fd)
{
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    int found = 0;
    if (!folder)
        return -1;
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;)
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return found;
}

static int check_existing(const struct export_target *target, struct error *error)
{
    struct stat status;
    if (fstatat(target->parent_fd, target->name, &status, 0) < 0)
        return fail_target(target, "look at", error);
    if (!S_ISDIR(status.st_mode))
        return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_IS_NO_FOLDER", "%s is there and no folder", target->shown);
    /* known before anything is written: beside it is another disk, and the rename would fail in the end */
    struct statx mount;
    if (statx(target->parent_fd, target->name, 0, STATX_TYPE, &mount) == 0 && mount.stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_IS_MOUNT_POINT",
                    "something is mounted on %s, so no rename can replace it; name a folder below it that is not there yet",
                    target->shown);
    int found = has_entries(openat(target->parent_fd, target->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (found < 0)
        return fail_target(target, "read", error);
    if (found && !target->has_force)
        return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_NOT_EMPTY", "%s is not empty; --force replaces it as a whole",
                    target->shown);
    return 0;
}

int export_target_open(struct export_target *target, const char *path, bool force, struct error *error)
{
    *target = (struct export_target){.has_force = force, .parent_fd = -1, .work_fd = -1, .content_fd = -1, .journal_fd = -1};
    text_escape(path, strlen(path), target->shown);
    if (find_path(target, path, error) < 0)
        return -1;
    int room = NAME_MAX - (int)strlen(WORK_PREFIX WORK_SUFFIX); /* a name too long for a prefix and a suffix is cut */
    snprintf(target->work_name, sizeof target->work_name, WORK_PREFIX "%.*s" WORK_SUFFIX, room, target->name);
    return target->exists ? check_existing(target, error) : 0;
}

bool export_target_meets(const struct export_target *target, const char *path)
{
    char *resolved = realpath(path, NULL);
    size_t length = strlen(target->path);
    bool meets =
        resolved && strncmp(resolved, target->path, length) == 0 && (resolved[length] == '/' || resolved[length] == '\0');
    free(resolved);
    return meets;
}

/* --- removing --- */

/* Everything below an open folder; never through a link. Takes fd. */
static int remove_entries(int fd, int depth)
{
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    int status = 0;
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(dirfd(folder), name, 0) == 0)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            status = -1;
            continue;
        }
        int inner = openat(dirfd(folder), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (depth == MAX_DEPTH || remove_entries(inner, depth + 1) < 0 || unlinkat(dirfd(folder), name, AT_REMOVEDIR) < 0)
            status = -1;
    }
    closedir(folder);
    return status;
}

int export_target_empty(struct export_target *target, struct error *error)
{
    int fd = openat(target->work_fd, "content", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return remove_entries(fd, 0) < 0 ? fail_target(target, "remove the unfinished export of", error) : 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void export_target_discard(struct export_target *target)
{
    if (target->work_fd < 0)
        return;
    close_fd(&target->content_fd);
    remove_entries(fcntl(target->work_fd, F_DUPFD_CLOEXEC, 0), 0);
    unlinkat(target->parent_fd, target->work_name, AT_REMOVEDIR);
    fsync(target->parent_fd);
    close_fd(&target->journal_fd);
    close_fd(&target->work_fd);
}

/* --- working --- */

/* In a folder that every user may write to, such as /tmp, another user can guess the name and make it. That user could change what is
 * written, or leave half an export that --resume would trust. */
static int check_owner(const struct export_target *target, struct error *error)
{
    struct stat status;
    if (fstat(target->work_fd, &status) < 0)
        return fail_target(target, "look at the folder beside", error);
    if (status.st_uid == geteuid() && !(status.st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    return fail(
        error, ERROR_FAILED_PRECONDITION, "FOREIGN_WORK_FOLDER",
        "%s, in which %s is made, is there already and can be changed by others (it is user %u's, mode %04o); remove it",
        target->work_name, target->shown, (unsigned)status.st_uid, (unsigned)(status.st_mode & 07777));
}

/* The process that had the lock before may have removed the file: then it is made again. */
static int lock_journal(struct export_target *target, struct error *error)
{
    struct stat ours, there;
    if (mkdirat(target->parent_fd, target->work_name, 0700) < 0 && errno != EEXIST)
        return fail_target(target, "make a folder beside", error);
    close_fd(&target->work_fd);
    target->work_fd = openat(target->parent_fd, target->work_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target->work_fd < 0)
        return fail_target(target, "open the folder beside", error);
    if (check_owner(target, error) < 0) {
        close_fd(&target->work_fd); /* nothing in it is ours to remove */
        return -1;
    }
    close_fd(&target->journal_fd);
    target->journal_fd = openat(target->work_fd, "journal", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (target->journal_fd < 0)
        return errno == ENOENT ? 1 : fail_target(target, "make a journal for", error);
    if (flock(target->journal_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return fail_target(target, "lock the journal of", error);
        return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_IN_USE", "another export to %s is running", target->shown);
    }
    bool is_same = fstat(target->journal_fd, &ours) == 0 && fstatat(target->work_fd, "journal", &there, 0) == 0 &&
                   ours.st_ino == there.st_ino;
    return is_same ? 0 : 1;
}

int export_target_begin(struct export_target *target, struct error *error)
{
    int status;
    while ((status = lock_journal(target, error)) > 0)
        continue;
    if (status < 0)
        return -1;
    if (mkdirat(target->work_fd, "content", 0777) < 0 && errno != EEXIST)
        return fail_target(target, "make a folder beside", error);
    target->content_fd = openat(target->work_fd, "content", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (target->content_fd < 0)
        return fail_target(target, "open the folder beside", error);
    snprintf(target->content_path, sizeof target->content_path, "%.*s%s/content",
             (int)(strlen(target->path) - strlen(target->name)), target->path, target->work_name);
    return 0;
}

/* An empty folder in its place is replaced, anything else is exchanged, and only with --force. */
static int rename_content(const struct export_target *target)
{
    int from = target->work_fd, to = target->parent_fd;
    if (target->has_force && renameat2(from, "content", to, target->name, RENAME_EXCHANGE) == 0)
        return 0;
    if (target->has_force && errno != ENOENT)
        return -1;
    if (target->exists && !target->has_force)
        return renameat(from, "content", to, target->name);
    if (renameat2(from, "content", to, target->name, RENAME_NOREPLACE) == 0)
        return 0;
    return errno == EINVAL ? renameat(from, "content", to, target->name) : -1;
}

int export_target_publish(struct export_target *target, struct error *error)
{
    if (fsync(target->content_fd) < 0)
        return fail_target(target, "sync to the disk the content of", error);
    if (rename_content(target) < 0) {
        if (errno == ENOTEMPTY || errno == EEXIST)
            return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_NOT_EMPTY", "%s is not empty any more", target->shown);
        return fail_target(target, "rename the complete folder to", error);
    }
    if (fsync(target->parent_fd) < 0)
        return fail_target(target, "write to the disk the folder around", error);
    export_target_discard(target);
    return 0;
}

void export_target_explain(const struct export_target *target, uint64_t needed_bytes, struct error *error)
{
    struct statvfs status;
    bool is_full = error->kind == ERROR_KIND_NO_SPACE || error->kind == ERROR_KIND_QUOTA_EXCEEDED;
    if (is_full && fstatvfs(target->parent_fd, &status) == 0)
        error_append(error, "; %s needs %" PRIu64 " bytes in all, and the disk has %" PRIu64 " bytes available",
                     target->shown, needed_bytes, (uint64_t)status.f_bavail * status.f_frsize);
}

void export_target_close(struct export_target *target)
{
    close_fd(&target->content_fd);
    close_fd(&target->journal_fd);
    close_fd(&target->work_fd);
    close_fd(&target->parent_fd);
}
