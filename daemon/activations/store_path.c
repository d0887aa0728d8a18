#include "activations/store_path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/activation_name.h"
#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"
#include "source/disk/trusted_path.h"

#define SCHEME "disk:"
enum {
    MAX_DEPTH = 64 /* of folders that are made */,
    MAX_PATH_CHARS = 1024 /* remembered for as long as the store is there */
};

char *store_path_parse(const char *reference, struct error *error)
{
    const char *path = reference + (strncmp(reference, SCHEME, strlen(SCHEME)) == 0 ? strlen(SCHEME) : 0);
    bool has_dots = false;
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at++)
        has_dots |= at[3] == '/' || !at[3];
    if (path == reference || path[0] != '/' || has_dots) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE",
             "%s is no store to append to; that is a folder of this host, disk:/absolute/path without \"..\"",
             text_show(reference));
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
    path = *path ? path : "/";
    return fail(error, ERROR_PERMISSION_DENIED, "OUTSIDE_ACTIVATION_ROOTS",
                roots->n ? "%s is not below the folders that the daemon may write to; add its folder to activations.roots"
                         : "%s cannot be written: the daemon writes nowhere until activations.roots names a folder",
                text_show(path));
}

/* For openat() a path descriptor would do, for fsync() it does not. */
static int open_folder(int path_fd, const char *path, struct error *error)
{
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
    return fd >= 0 ? fd : fail_errno(error, failure, "cannot open the folder %s", text_show(path));
}

/* `path` is cut meanwhile. */
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
    bool is_there = mkdirat(parent_fd, slash + 1, 0755) == 0 || errno == EEXIST;
    int failure = errno;
    fsync(parent_fd);
    close(parent_fd);
    if (!is_there)
        return fail_errno(error, failure, "cannot make the folder %s", text_show(path));
    path_fd = trusted_path_open_plain(trusted, path, error);
    return path_fd >= 0 ? open_folder(path_fd, path, error) : -1;
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
    return fd < 0 && error->kind == ERROR_KIND_OUTSIDE_TRUSTED_ROOTS ? fail_outside(path, roots, error) : fd;
}

int store_path_open_host(const struct store_roots *roots, const char *path, uint32_t host, bool makes, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS], *folder = memory_print("%s/%s", path, activation_host_name(host, name));
    struct stat status = {0};
    int fd = store_path_open(roots, folder, makes, error);
    free(folder);
    if (fd < 0 || (fstat(fd, &status) == 0 && quota_is_privileged(status.st_uid)))
        return fd;
    /* a user with rights to a store's parent can put a folder of their own in its place */
    close(fd);
    return fail(error, ERROR_PERMISSION_DENIED, "FOLDER_OF_ANOTHER_USER",
                "%s of the store %s belongs to user %u: the daemon appends to folders of its own user (%u) and root alone; "
                "chown it, or name another host",
                name, text_show(path), (unsigned)status.st_uid, (unsigned)geteuid());
}

int store_path_openat(int folder_fd, const char *name, int flags, mode_t mode)
{
    return openat(folder_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
}
