/* A hidden temporary name beside the real one, then rename(), which also replaces a link instead of following it. */
#include "folder_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <dirent.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/operand.h"
#include "base/text.h"

enum { MAX_ATTEMPTS = 1000 };
#define KEPT_SUFFIX ".part"

static int fail_file(const struct folder_writer *writer, const char *name, struct error *error)
{
    int cause = errno;
    return fail_errno(error, cause, "cannot write %s%s%s", text_show(writer->folder), name ? "/" : "",
                      name ? text_show(name) : "");
}

int folder_writer_open(struct folder_writer *writer, const char *folder, struct error *error)
{
    mode_t mask = umask(0);
    umask(mask);
    *writer = (struct folder_writer){.folder = folder, .folder_fd = -1, .fd = -1, .mode = 0666 & ~mask};
    if (operand_check(folder, error) < 0)
        return -1;
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return fail_file(writer, NULL, error);
    writer->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return writer->folder_fd < 0 ? fail_file(writer, NULL, error) : 0;
}

int folder_writer_open_at(struct folder_writer *writer, const char *folder, int folder_fd, struct error *error)
{
    *writer = (struct folder_writer){.folder = folder, .folder_fd = fcntl(folder_fd, F_DUPFD_CLOEXEC, 0), .fd = -1};
    return writer->folder_fd < 0 ? fail_file(writer, NULL, error) : 0;
}

int folder_writer_open_for(struct folder_writer *writer, const char *folder, int folder_fd, const char *name,
                           struct error *error)
{
    if (folder_writer_open_at(writer, folder, folder_fd, error) < 0)
        return -1;
    for (const char *slash; (slash = strchr(name, '/')) != NULL; name = slash + 1) {
        char part[NAME_MAX + 1];
        snprintf(part, sizeof part, "%.*s", (int)(slash - name), name);
        if (mkdirat(writer->folder_fd, part, 0777) < 0 && errno != EEXIST)
            return fail_file(writer, name, error);
        int below = openat(writer->folder_fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
            return fail_file(writer, name, error);
        close(writer->folder_fd);
        writer->folder_fd = below;
    }
    return 0;
}

int folder_writer_begin(struct folder_writer *writer, const char *name, struct error *error)
{
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        snprintf(writer->temporary, sizeof writer->temporary, ".tensorcast-%d-%d", (int)getpid(), attempt);
        writer->fd =
            openat(writer->folder_fd, writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (writer->fd >= 0 || errno != EEXIST)
            break;
    }
    if (writer->fd < 0)
        return fail_file(writer, name, error);
    writer->name = name;
    return 0;
}

/* --- files that are gone on with --- */

static bool name_kept(char kept[NAME_MAX + 1], const char *name, const char *key)
{
    return snprintf(kept, NAME_MAX + 1, ".%s.%s" KEPT_SUFFIX, name, key) <= NAME_MAX;
}

/* Whether no other user or process can have written it or writes it now. Keeps it locked. */
static bool is_own_and_idle(int folder_fd, const char *name, int fd, struct stat *status)
{
    struct stat named;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, status) == 0 && S_ISREG(status->st_mode) &&
           status->st_uid == geteuid() && (status->st_mode & 077) == 0 && status->st_nlink == 1 &&
           fstatat(folder_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_dev == status->st_dev &&
           named.st_ino == status->st_ino;
}

static int open_kept(int folder_fd, const char *name, struct stat *status)
{
    int fd = openat(folder_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && !is_own_and_idle(folder_fd, name, fd, status)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Begun files of the same name with other content are useless. */
static void remove_stale(const struct folder_writer *writer, const char *name, const char *kept)
{
    struct stat status;
    size_t length = strlen(name);
    int copy = openat(writer->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = copy < 0 ? NULL : fdopendir(copy);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *other = entry->d_name;
        size_t all = strlen(other);
        bool is_stale = other[0] == '.' && all == strlen(kept) && strncmp(other + 1, name, length) == 0 &&
                        other[1 + length] == '.' && strcmp(other + all - strlen(KEPT_SUFFIX), KEPT_SUFFIX) == 0 &&
                        strcmp(other, kept) != 0;
        int fd = is_stale ? open_kept(writer->folder_fd, other, &status) : -1;
        if (fd >= 0) {
            unlinkat(writer->folder_fd, other, 0);
            close(fd);
        }
    }
    if (folder)
        closedir(folder);
}

bool folder_writer_has_begun(const char *path)
{
    DIR *folder = opendir(path);
    bool has_begun = false;
    struct stat status;
    for (const struct dirent *entry; folder && !has_begun && (entry = readdir(folder));) {
        size_t all = strlen(entry->d_name);
        has_begun = entry->d_name[0] == '.' && all > strlen(KEPT_SUFFIX) &&
                    strcmp(entry->d_name + all - strlen(KEPT_SUFFIX), KEPT_SUFFIX) == 0 &&
                    fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode) &&
                    status.st_uid == geteuid();
    }
    if (folder)
        closedir(folder);
    return has_begun;
}

uint64_t folder_writer_find(struct folder_writer *writer, const char *name, const char *key, uint64_t bytes)
{
    struct stat status;
    if (bytes < FOLDER_WRITER_KEPT_BYTES || !name_kept(writer->temporary, name, key))
        return 0;
    remove_stale(writer, name, writer->temporary);
    int fd = open_kept(writer->folder_fd, writer->temporary, &status);
    if (fd < 0)
        return 0;
    uint64_t had = (uint64_t)status.st_size < bytes ? (uint64_t)status.st_size : bytes - 1; /* one at least is to come */
    if (ftruncate(fd, (off_t)had) < 0 || lseek(fd, (off_t)had, SEEK_SET) < 0) {
        close(fd);
        return 0;
    }
    writer->fd = fd;
    writer->name = name;
    writer->is_kept = true;
    return had;
}

int folder_writer_begin_kept(struct folder_writer *writer, const char *name, const char *key, struct error *error)
{
    if (writer->fd >= 0) /* found */
        return 0;
    if (name_kept(writer->temporary, name, key))
        writer->fd = openat(writer->folder_fd, writer->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (writer->fd < 0) /* of another user, or of a run under way */
        return folder_writer_begin(writer, name, error);
    flock(writer->fd, LOCK_EX | LOCK_NB);
    writer->name = name;
    writer->is_kept = true;
    return 0;
}

/* --- any file --- */

int folder_writer_add(struct folder_writer *writer, const void *bytes, size_t count, struct error *error)
{
    return file_io_write(writer->fd, bytes, count) < 0 ? fail_file(writer, writer->name, error) : 0;
}

int folder_writer_commit(struct folder_writer *writer, struct error *error)
{
    if ((writer->is_kept && fchmod(writer->fd, writer->mode) < 0) || fsync(writer->fd) < 0 ||
        renameat(writer->folder_fd, writer->temporary, writer->folder_fd, writer->name) < 0)
        return fail_file(writer, writer->name, error);
    close(writer->fd);
    writer->fd = -1;
    writer->name = NULL;
    return 0;
}

void folder_writer_close(struct folder_writer *writer)
{
    if (writer->fd >= 0) {
        struct stat status;
        bool is_worth =
            writer->is_kept && fstat(writer->fd, &status) == 0 && status.st_size >= (off_t)FOLDER_WRITER_KEPT_BYTES;
        if (!is_worth) /* before the lock goes */
            unlinkat(writer->folder_fd, writer->temporary, 0);
        close(writer->fd);
    }
    if (writer->folder_fd >= 0)
        close(writer->folder_fd);
    writer->fd = writer->folder_fd = -1;
}
