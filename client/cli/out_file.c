#include "out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/operand.h"

/* /dev/stdout, /dev/fd/1, a link to them, the file that the shell redirects to. Not /dev/null, which keeps nothing apart. */
bool out_file_is_stdout(const char *path)
{
    struct stat named, out;
    if (strcmp(path, "-") == 0)
        return true;
    if (stat(path, &named) < 0 || fstat(STDOUT_FILENO, &out) < 0 || (S_ISCHR(out.st_mode) && !isatty(STDOUT_FILENO)))
        return false;
    return named.st_dev == out.st_dev && named.st_ino == out.st_ino;
}

static mode_t new_file_mode(void)
{
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

/* Finds out what is at the path, without changing it. */
static int examine(struct out_file *out, const char *path, struct error *error)
{
    struct stat found;
    int at;
    *out = (struct out_file){.fd = -1, .is_stdout = out_file_is_stdout(path)};
    text_escape(path, strlen(path), out->shown);
    if (out->is_stdout) {
        out->in_place = true;
        return 0;
    }
    if (operand_check(path, error) < 0)
        return -1;
    if (stat(path, &found) == 0) {
        out->in_place = !S_ISREG(found.st_mode);
        /* what another user has put there, with rights for all or that of its owner, is no wish of this one's */
        out->mode = found.st_uid == geteuid() ? found.st_mode & 0777 : new_file_mode();
        if (S_ISDIR(found.st_mode))
            return fail_errno(error, EISDIR, "cannot write %s", out->shown);
        if (out->in_place && strlen(path) < sizeof out->path)
            strcpy(out->path, path); /* what /dev/stdout leads to has no path of its own */
        else if ((at = operand_resolve(path, out->path, error)) <= 0)
            return at < 0 ? -1 : fail_errno(error, errno, "cannot write %s", out->shown);
    } else {
        out->in_place = false;
        out->mode = new_file_mode();
        if (errno != ENOENT || strlen(path) >= sizeof out->path)
            return fail_errno(error, errno == ENOENT ? ENAMETOOLONG : errno, "cannot write %s", out->shown);
        strcpy(out->path, path);
    }
    /* The last component's folder is the longest prefix that ends in '/'. */
    const char *slash = strrchr(out->path, '/');
    if (slash)
        snprintf(out->folder, sizeof out->folder, "%.*s", (int)(slash - out->path + 1), out->path);
    else
        strcpy(out->folder, ".");
    if (!out->in_place && access(out->folder, W_OK | X_OK) < 0)
        return fail_errno(error, errno, "cannot write %s into its folder", out->shown);
    return 0;
}

/* A hidden name beside the path, unused so far. */
static int open_hidden(struct out_file *out)
{
    int length = snprintf(out->temporary, sizeof out->temporary, "%s/.tensorcast-XXXXXX", out->folder);
    if (length >= (int)sizeof out->temporary) {
        out->temporary[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkostemp(out->temporary, O_CLOEXEC);
    if (fd < 0)
        out->temporary[0] = '\0';
    return fd;
}

int out_file_open(struct out_file *out, const char *path, struct error *error)
{
    if (examine(out, path, error) < 0)
        return -1;
    if (out->is_stdout) {
        fflush(stdout);
        out->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    } else if (out->in_place) {
        out->fd = open(out->path, O_WRONLY | O_CLOEXEC);
    } else {
        out->fd = open(out->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (out->fd < 0) /* NFS, FUSE and old overlay file systems have no unnamed files */
            out->fd = open_hidden(out);
    }
    return out->fd < 0 ? fail_errno(error, errno, "cannot write %s", out->shown) : 0;
}

/* rename() needs a name, so an unnamed file gets a hidden one for that moment. */
static int give_name(struct out_file *out)
{
    char unnamed[64];
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", out->fd);
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        int length =
            snprintf(out->temporary, sizeof out->temporary, "%s/.tensorcast-%d-%u", out->folder, (int)getpid(), attempt);
        if (length >= (int)sizeof out->temporary)
            errno = ENAMETOOLONG;
        else if (linkat(AT_FDCWD, unnamed, AT_FDCWD, out->temporary, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    out->temporary[0] = '\0';
    return -1;
}

/* Everything is written: puts it where it belongs. The data reaches the disk before the name does. */
int out_file_commit(struct out_file *out, struct error *error)
{
    bool done = out->in_place || (fchmod(out->fd, out->mode) == 0 && fsync(out->fd) == 0 &&
                                  (out->temporary[0] || give_name(out) == 0) && rename(out->temporary, out->path) == 0);
    if (!done)
        return fail_errno(error, errno, "cannot write %s", out->shown);
    out->temporary[0] = '\0';
    return 0;
}

int out_file_check(const char *path, struct error *error)
{
    struct out_file out;
    return examine(&out, path, error);
}

int out_file_write(struct out_file *out, const void *bytes, size_t count, struct error *error)
{
    if (file_io_write(out->fd, bytes, count) < 0)
        return fail_errno(error, errno, "cannot write %s", out->shown);
    return 0;
}

void out_file_close(struct out_file *out)
{
    if (out->fd >= 0)
        close(out->fd);
    if (out->temporary[0])
        unlink(out->temporary);
    out->fd = -1;
}

int out_file_put(const char *path, const char *text, struct error *error)
{
    struct out_file out;
    int failed = out_file_open(&out, path, error) < 0 || out_file_write(&out, text, strlen(text), error) < 0 ||
                 out_file_commit(&out, error) < 0;
    out_file_close(&out);
    return failed ? -1 : 0;
}
