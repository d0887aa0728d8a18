#include "activations/store_path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/activation_name.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/path_step.h"
#include "base/quota.h"
#include "base/text.h"
#include "source/disk/trusted_path.h"

#define SCHEME "disk:"
enum {
    MAX_DEPTH = 64 /* of folders that are made */,
    MAX_PATH_CHARS = 1024 /* remembered for as long as the store is there */
};

static bool has_dots(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at++)
        if (at[3] == '/' || !at[3])
            return true;
    return false;
}

char *store_path_parse(const char *reference, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    const char *path = reference + (strncmp(reference, SCHEME, strlen(SCHEME)) == 0 ? strlen(SCHEME) : 0);
    if (path == reference || path[0] != '/' || has_dots(path)) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE",
             "%s is no store to append to; that is a folder of this host, disk:/absolute/path without \"..\"",
             text_escape(reference, strlen(reference), text));
        return NULL;
    }
    if (strlen(path) > MAX_PATH_CHARS) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "the path of a store has at most %d bytes", MAX_PATH_CHARS);
        return NULL;
    }
    return trusted_path_normalize(path);
}

static int fail_outside(const char *path, const struct store_roots *roots, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    path = *path ? path : "/";
    return fail(error, ERROR_PERMISSION_DENIED, "OUTSIDE_ACTIVATION_ROOTS",
                roots->n ? "%s is not below the folders that the daemon may write to; add its folder to activations.roots"
                         : "%s cannot be written: the daemon writes nowhere until activations.roots names a folder",
                text_escape(path, strlen(path), text));
}

/* For openat() a path descriptor would do, for fsync() it does not. */
static int open_folder(int path_fd, const char *path, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    struct statfs filesystem;
    if (fstatfs(path_fd, &filesystem) == 0 && filesystem.f_type == FUSE_SUPER_MAGIC) {
        close(path_fd);
        return fail(
            error, ERROR_FAILED_PRECONDITION, "STORE_ON_FUSE",
            "the store is on a FUSE mount, whose server decides what is durable; choose a folder of a file system of "
            "this kernel");
    }
    int fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), failure = errno;
    close(path_fd);
    return fd >= 0 ? fd : fail_errno(error, failure, "cannot open the folder %s", text_escape(path, strlen(path), text));
}

static int make_folder(int folder_fd, const char *name, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    if (mkdirat(folder_fd, name, 0755) < 0)
        return errno == EEXIST
                   ? 0
                   : fail_errno(error, errno, "cannot make the folder %s", text_escape(name, strlen(name), text));
    fsync(folder_fd);
    return 0;
}

int store_path_openat(int folder_fd, const char *name, int flags, mode_t mode)
{
    int how = flags | O_CLOEXEC | O_NOFOLLOW | (flags & O_PATH ? 0 : O_NONBLOCK);
    int fd = flags & O_CREAT ? openat(folder_fd, name, how | O_EXCL, mode) : -1;
    if (flags & O_CREAT && (fd >= 0 || errno != EEXIST || flags & O_EXCL))
        return fd;
    struct path_step step;
    int path_fd = path_step(folder_fd, name, &step);
    if (path_fd < 0)
        return -1;
    if (step.is_link || step.is_mount)
        errno = step.is_link ? ELOOP : EXDEV;
    else if (flags & O_PATH)
        return path_fd;
    else
        fd = file_io_reopen(path_fd, how & ~(O_CREAT | O_NOFOLLOW));
    int cause = errno;
    close(path_fd);
    errno = cause;
    return fd;
}

int store_path_open_below(int folder_fd, const char *name, bool makes, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    int fd = store_path_openat(folder_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOENT && makes) {
        if (make_folder(folder_fd, name, error) < 0)
            return -1;
        fd = store_path_openat(folder_fd, name, O_RDONLY | O_DIRECTORY, 0);
    }
    if (fd >= 0)
        return fd;
    text_escape(name, strlen(name), text);
    if (errno == EXDEV)
        return fail(error, ERROR_FAILED_PRECONDITION, "MOUNT_IN_STORE",
                    "%s is a mount of its own; a store and its folders are on one file system", text);
    return fail_errno(error, errno, "cannot open the folder %s", text);
}

static int open_or_make(const struct trusted_roots *trusted, char *path, bool makes, int depth, struct error *error)
{
    int path_fd = trusted_path_open_plain(trusted, path, error);
    if (path_fd >= 0)
        return open_folder(path_fd, path, error);
    char *slash = strrchr(path, '/');
    if (error->code != ERROR_NOT_FOUND || !makes || !slash || slash == path || depth == MAX_DEPTH)
        return -1;
    *slash = '\0';
    int parent_fd = open_or_make(trusted, path, makes, depth + 1, error);
    *slash = '/';
    if (parent_fd < 0)
        return -1;
    int fd = store_path_open_below(parent_fd, slash + 1, makes, error);
    close(parent_fd);
    return fd;
}

static int fail_opening(const char *path, const struct store_roots *roots, struct error *error)
{
    if (error->kind == ERROR_KIND_OUTSIDE_TRUSTED_ROOTS)
        return fail_outside(path, roots, error);
    return -1;
}

int store_path_open(const struct store_roots *roots, const char *path, bool makes, struct error *error)
{
    struct trusted_roots trusted;
    if (!roots->n)
        return fail_outside(path, roots, error);
    char *copy = memory_copy_text(path);
    trusted_roots_init(&trusted, roots->list, roots->n);
    int fd = open_or_make(&trusted, copy, makes, 0, error);
    trusted_roots_fini(&trusted);
    free(copy);
    return fd >= 0 ? fd : fail_opening(path, roots, error);
}

/* Whose a file becomes that is made there: where a server says whose files are, as NFS with all_squash, all are another user's. */
static bool makes_files_of(int folder_fd, uid_t uid)
{
    struct stat made;
    char name[32];
    snprintf(name, sizeof name, ".owner.%d", (int)gettid()); /* other threads may ask the same */
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool is_made = fd >= 0 && fstat(fd, &made) == 0;
    if (fd < 0)
        return false;
    close(fd);
    unlinkat(folder_fd, name, 0);
    return is_made && made.st_uid == uid;
}

/* A user with rights to a store's parent can put a folder of their own in its place. */
static int check_owner(int fd, const char *path, const char *name, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    struct stat folder;
    if (fstat(fd, &folder) < 0)
        return fail_errno(error, errno, "cannot look at the folder %s", name);
    if (quota_is_privileged(folder.st_uid) || makes_files_of(fd, folder.st_uid))
        return 0;
    return fail(error, ERROR_PERMISSION_DENIED, "FOLDER_OF_ANOTHER_USER",
                "%s of the store %s belongs to user %u: the daemon appends to folders of its own user (%u) and root alone; "
                "chown it, or name another host",
                name, text_escape(path, strlen(path), text), (unsigned)folder.st_uid, (unsigned)geteuid());
}

int store_path_open_host(const struct store_roots *roots, const char *path, uint32_t host, bool makes, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    int store_fd = store_path_open(roots, path, makes, error);
    if (store_fd < 0)
        return -1;
    int fd = store_path_open_below(store_fd, activation_host_name(host, name), makes, error);
    close(store_fd);
    if (fd < 0 || check_owner(fd, path, name, error) == 0)
        return fd;
    close(fd);
    return -1;
}
