/* Levels, and the way of a line: formatted by its caller (log_line.c), then handed to whoever writes (log_sink.c). */
#include "observe/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "observe/log_limit.h"
#include "observe/log_line.h"
#include "observe/log_sink.h"

static _Atomic(enum log_level) lowest_level = LOG_INFO;
static _Atomic(struct log_form) form = (struct log_form){LOG_LOGFMT, false};

/* O_NONBLOCK: a FIFO without a reader is an error, not a wait. */
int log_open_file(const char *path, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    if (!*path)
        return STDERR_FILENO;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
    if (fd >= 0)
        return fd;
    const char *name = text_escape(path, strlen(path), shown);
    if (errno == ENXIO)
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_READER", "the log file %s is a FIFO that nobody reads", name);
    return fail_errno(error, errno, "cannot open the log file %s", name);
}

bool log_is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM"); /* see systemd.exec(5) */
    struct stat status;
    unsigned long long device, inode;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(fd, &status) == 0 &&
           status.st_dev == device && status.st_ino == inode;
}

void log_use(int fd, enum log_level level, enum log_format format)
{
    atomic_store(&lowest_level, level);
    atomic_store(&form, ((struct log_form){format, log_is_journal(fd)}));
    log_sink_use(fd);
}

int log_open(const char *path, enum log_level level, enum log_format format, struct error *error)
{
    int fd = log_open_file(path, error);
    if (fd < 0)
        return -1;
    log_use(fd, level, format);
    return 0;
}

void log_start(void)
{
    log_sink_start();
}

bool log_flush(uint64_t timeout_ms)
{
    log_limit_tell();
    return log_sink_flush(timeout_ms);
}

void log_stop(uint64_t timeout_ms)
{
    log_limit_tell();
    log_sink_stop(timeout_ms);
}

void log_set_level(enum log_level level)
{
    atomic_store(&lowest_level, level);
}

bool log_enabled(enum log_level level)
{
    return level >= atomic_load_explicit(&lowest_level, memory_order_relaxed);
}

enum log_level log_level_of_error(const struct error *error)
{
    switch (error->code) {
    case ERROR_INTERNAL:
    case ERROR_DATA_LOSS:
        return LOG_ERROR;
    case ERROR_CANCELLED:
    case ERROR_INVALID_ARGUMENT:
    case ERROR_NOT_FOUND:
    case ERROR_ALREADY_EXISTS:
    case ERROR_PERMISSION_DENIED:
    case ERROR_UNIMPLEMENTED:
        return LOG_INFO;
    default:
        return LOG_WARN;
    }
}

bool log_allows(enum log_level level, enum log_rate rate, const char *event, uid_t uid)
{
    return log_enabled(level) && log_limit_allows(level, rate, event, uid);
}

struct log_form log_get_form(void)
{
    return atomic_load_explicit(&form, memory_order_relaxed);
}

void log_fields(enum log_level level, const char *event, const struct log_field *fields, size_t n_fields)
{
    size_t length;
    if (!log_enabled(level))
        return;
    int callers_errno = errno;
    char *line = log_line_format(log_get_form(), level, event, fields, n_fields, &length);
    log_sink_put(line, length, level >= LOG_ERROR);
    errno = callers_errno;
}
