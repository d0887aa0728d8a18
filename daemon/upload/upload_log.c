/* The log of uploads; see upload_log.h. */
#include "upload/upload_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"
#include "source/secret.h"

static const char name[] = "uploads.log", fresh_name[] = "uploads.log.new";

int upload_log_read(const char *folder, void (*take)(void *data, char **fields, size_t n_fields), void *data,
                    struct error *error)
{
    char *path = memory_print("%s/%s", folder, name), *line = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), failure = errno;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    size_t room = 0;
    ssize_t length;
    free(path);
    if (!file)
        return failure == ENOENT ? 0 : fail_errno(error, failure, "cannot open %s in the state folder", name);
    while ((length = getline(&line, &room, file)) > 0) {
        char *fields[UPLOAD_LOG_FIELDS], *rest = line;
        size_t n = 0;
        if (line[length - 1] != '\n' || length - 1 > UPLOAD_LOG_MAX_LINE_BYTES)
            continue;
        line[length - 1] = '\0';
        while (rest && n < UPLOAD_LOG_FIELDS) {
            fields[n] = strsep(&rest, " ");
            if (!text_percent_decode(fields[n++]))
                n = UPLOAD_LOG_FIELDS + 1; /* not a line of ours */
        }
        if (n <= UPLOAD_LOG_FIELDS && !rest && strlen(fields[0]) == 1)
            take(data, fields, n);
    }
    failure = ferror(file) ? errno : 0;
    fclose(file);
    free(line);
    return failure ? fail_errno(error, failure, "cannot read %s in the state folder", name) : 0;
}

int upload_log_begin(struct upload_log *log, const char *folder, struct error *error)
{
    log->n_lines = 0;
    log->folder = memory_copy_text(folder);
    log->path = memory_print("%s/%s", folder, fresh_name);
    unlink(log->path);
    log->fd = open(log->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return log->fd < 0 ? fail_errno(error, errno, "cannot write %s in the state folder", fresh_name) : 0;
}

int upload_log_replace(struct upload_log *log, struct error *error)
{
    char *path = memory_print("%s/%s", log->folder, name);
    int failed = fsync(log->fd) < 0 || rename(log->path, path) < 0 ? errno : 0;
    int folder = failed ? -1 : open(log->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!failed && (folder < 0 || fsync(folder) < 0))
        failed = errno;
    if (folder >= 0)
        close(folder);
    free(path);
    return failed ? fail_errno(error, failed, "cannot write %s in the state folder", name) : 0;
}

int upload_log_add(struct upload_log *log, const char *const *fields, size_t n_fields, bool sync, struct error *error)
{
    char *line = NULL;
    size_t length;
    FILE *stream = open_memstream(&line, &length);
    for (size_t i = 0; i < n_fields; i++) {
        char *text = url_encode(fields[i], strlen(fields[i]), true);
        fprintf(stream, "%s%c", text, i + 1 < n_fields ? ' ' : '\n');
        secret_free(text);
    }
    fclose(stream);
    int failure = file_io_write(log->fd, line, length) < 0 ? errno : 0;
    if (failure) /* half a line would spoil the next one */
        (void)!write(log->fd, "\n", 1);
    if (!failure && sync && fdatasync(log->fd) < 0)
        failure = errno;
    log->n_lines++;
    secret_free(line);
    return failure ? fail_errno(error, failure, "cannot write %s in the state folder", name) : 0;
}

int upload_log_sync(const struct upload_log *log, struct error *error)
{
    return fdatasync(log->fd) < 0 ? fail_errno(error, errno, "cannot write %s in the state folder", name) : 0;
}

void upload_log_close(struct upload_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    free(log->path);
    free(log->folder);
    *log = (struct upload_log){.fd = -1};
}
