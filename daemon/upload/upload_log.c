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

static const char name[] = "uploads.log", fresh_name[] = "uploads.log.new";

enum { LINES_BYTES = 2 * UPLOAD_LOG_MAX_LINE_BYTES };

static void take_line(char *line, void (*take)(void *data, char **fields, size_t n_fields), void *data)
{
    char *fields[UPLOAD_LOG_FIELDS], *rest = line;
    size_t n = 0;
    while (rest && n < UPLOAD_LOG_FIELDS) {
        fields[n] = strsep(&rest, " ");
        if (!text_percent_decode(fields[n++]))
            return;
    }
    if (n > 0 && !rest && strlen(fields[0]) == 1)
        take(data, fields, n);
}

struct reader {
    char *bytes; /* the beginning of a line, and what comes next */
    size_t count;
    bool is_too_long; /* the line whose beginning was left out */
};

static void take_lines(struct reader *reader, void (*take)(void *data, char **fields, size_t n_fields), void *data)
{
    char *at = reader->bytes, *past = reader->bytes + reader->count, *end;
    for (; (end = memchr(at, '\n', (size_t)(past - at))) != NULL; at = end + 1) {
        *end = '\0';
        if (!reader->is_too_long && end - at <= UPLOAD_LOG_MAX_LINE_BYTES)
            take_line(at, take, data);
        reader->is_too_long = false;
    }
    reader->count = (size_t)(past - at);
    if (reader->count > UPLOAD_LOG_MAX_LINE_BYTES) {
        reader->is_too_long = true;
        reader->count = 0;
    }
    memmove(reader->bytes, at, reader->count);
}

int upload_log_read(const char *folder, void (*take)(void *data, char **fields, size_t n_fields), void *data,
                    struct error *error)
{
    char *path = memory_print("%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), failure = errno;
    free(path);
    if (fd < 0)
        return failure == ENOENT ? 0 : fail_errno(error, failure, "cannot open %s in the state folder", name);
    struct reader reader = {.bytes = memory_alloc(LINES_BYTES)};
    ssize_t got;
    while ((got = file_io_read(fd, reader.bytes + reader.count, LINES_BYTES - reader.count)) > 0) {
        reader.count += (size_t)got;
        take_lines(&reader, take, data);
    }
    failure = errno;
    close(fd);
    free(reader.bytes);
    return got < 0 ? fail_errno(error, failure, "cannot read %s in the state folder", name) : 0;
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
    char *line = memory_copy_text("");
    for (size_t i = 0; i < n_fields; i++) {
        char *text = url_encode(fields[i], strlen(fields[i]), true);
        char *longer = memory_print("%s%s%s", line, text, i + 1 < n_fields ? " " : "\n");
        explicit_bzero(text, strlen(text));
        free(text);
        free(line);
        line = longer;
    }
    size_t length = strlen(line), done = 0;
    int failure = 0;
    while (done < length && !failure) {
        ssize_t n = write(log->fd, line + done, length - done);
        failure = n < 0 && errno != EINTR ? errno : 0;
        done += n > 0 ? (size_t)n : 0;
    }
    if (failure && done > 0) /* half a line would spoil the next one */
        (void)!write(log->fd, "\n", 1);
    if (!failure && sync && fdatasync(log->fd) < 0)
        failure = errno;
    log->n_lines++;
    explicit_bzero(line, length);
    free(line);
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
