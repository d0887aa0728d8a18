/* A hidden temporary name beside the real one, then rename(), which also replaces a link instead of following it. */
#include "folder_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/operand.h"
#include "base/text.h"

enum { MAX_ATTEMPTS = 1000 };

static int fail_file(const struct folder_writer *writer, const char *name, struct error *error)
{
    char folder[TEXT_NAME_CHARS], file[TEXT_NAME_CHARS];
    int cause = errno;
    return fail_errno(error, cause, "cannot write %s%s%s", text_escape(writer->folder, strlen(writer->folder), folder),
                      name ? "/" : "", name ? text_escape(name, strlen(name), file) : "");
}

int folder_writer_open(struct folder_writer *writer, const char *folder, struct error *error)
{
    *writer = (struct folder_writer){.folder = folder, .folder_fd = -1, .fd = -1};
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

int folder_writer_add(struct folder_writer *writer, const void *bytes, size_t count, struct error *error)
{
    return file_io_write(writer->fd, bytes, count) < 0 ? fail_file(writer, writer->name, error) : 0;
}

int folder_writer_commit(struct folder_writer *writer, struct error *error)
{
    if (fsync(writer->fd) < 0 || renameat(writer->folder_fd, writer->temporary, writer->folder_fd, writer->name) < 0)
        return fail_file(writer, writer->name, error);
    close(writer->fd);
    writer->fd = -1;
    writer->name = NULL;
    return 0;
}

void folder_writer_close(struct folder_writer *writer)
{
    if (writer->fd >= 0) {
        close(writer->fd);
        unlinkat(writer->folder_fd, writer->temporary, 0);
    }
    if (writer->folder_fd >= 0)
        close(writer->folder_fd);
    writer->fd = writer->folder_fd = -1;
}
