/* A list of lines behind a mutex. With a thread, the thread alone touches the descriptor; without, the mutex is held while a
 * line is written, so that lines of many threads never mix. A change of the file is an entry of the list like any other. A
 * line that cannot be written is lost: there is no better place to complain than the log itself. */
#include "observe/log_sink.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"
#include "observe/log_limit.h"
#include "observe/log_line.h"

enum { MAX_BYTES_BUT_ERRORS = LOG_SINK_MAX_BYTES / 4 * 3, TELL_MS = 1000 };

struct line {
    struct line *next;
    char *text; /* NULL = from here on, write to fd */
    size_t length;
    int fd;
};

static struct {
    pthread_mutex_t lock; /* for everything but fd, which is the thread's while one runs */
    pthread_cond_t changed;
    struct line *first, **last;
    size_t queued_bytes; /* with the line that is being written */
    uint64_t dropped;
    bool has_thread, is_writing, is_stopping, is_stuck;
    int fd;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .last = &sink.first, .fd = STDERR_FILENO};

static void write_all(int fd, const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(fd, text, length);
        if (n < 0 && errno == EAGAIN) /* somebody made our standard error non-blocking */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (n < 0 && errno != EINTR)
            return;
        if (n < 0)
            continue;
        text += n;
        length -= (size_t)n;
    }
}

static void carry_out(const struct line *line)
{
    if (line->text) {
        write_all(sink.fd, line->text, line->length);
        return;
    }
    if (sink.fd != STDERR_FILENO)
        close(sink.fd);
    sink.fd = line->fd;
}

static void free_line(struct line *line)
{
    free(line->text);
    free(line);
}

static void append_line(struct line *line)
{
    line->next = NULL;
    *sink.last = line;
    sink.last = &line->next;
    sink.queued_bytes += line->length;
    pthread_cond_broadcast(&sink.changed);
}

static struct line *make_line(char *text, size_t length, int fd)
{
    struct line *line = memory_alloc(sizeof *line);
    *line = (struct line){.text = text, .length = length, .fd = fd};
    return line;
}

/* With the lock held. Room was made, so that this one fits. */
static void tell_dropped(void)
{
    size_t length;
    struct log_field lines = LOG_U64("lines", sink.dropped);
    char *text = log_line_format(log_get_form(), LOG_WARN, "log_dropped", &lines, 1, &length);
    sink.dropped = 0;
    append_line(make_line(text, length, -1));
}

/* With the lock held; waits a while for something to do. NULL: nothing. */
static struct line *take_line(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += TELL_MS / 1000;
    if (!sink.first && !sink.is_stopping)
        pthread_cond_clockwait(&sink.changed, &sink.lock, CLOCK_MONOTONIC, &until);
    struct line *line = sink.first;
    if (line) {
        sink.first = line->next;
        if (!sink.first)
            sink.last = &sink.first;
    }
    return line;
}

static void write_one(struct line *line)
{
    sink.is_writing = true;
    pthread_mutex_unlock(&sink.lock);
    carry_out(line);
    pthread_mutex_lock(&sink.lock);
    sink.is_writing = false;
    sink.queued_bytes -= line->length;
    free_line(line);
    if (sink.dropped && sink.queued_bytes < MAX_BYTES_BUT_ERRORS / 2)
        tell_dropped();
    pthread_cond_broadcast(&sink.changed);
}

static void *write_lines(void *unused)
{
    uint64_t told_ns = clock_now_ns();
    (void)unused;
    pthread_mutex_lock(&sink.lock);
    while (!sink.is_stopping || sink.first) {
        struct line *line = take_line();
        if (line)
            write_one(line);
        if (clock_now_ns() - told_ns < TELL_MS * NS_PER_MS)
            continue;
        told_ns = clock_now_ns();
        pthread_mutex_unlock(&sink.lock);
        log_limit_tell(); /* may log */
        pthread_mutex_lock(&sink.lock);
    }
    sink.has_thread = sink.is_stopping = sink.is_stuck = false;
    pthread_cond_broadcast(&sink.changed);
    pthread_mutex_unlock(&sink.lock);
    return NULL;
}

void log_sink_start(void)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, old;
    pthread_mutex_lock(&sink.lock);
    if (!sink.has_thread) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED); /* it may be stuck when the process ends */
        sink.has_thread = pthread_create(&thread, &detached, write_lines, NULL) == 0;
        pthread_attr_destroy(&detached);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    pthread_mutex_unlock(&sink.lock);
}

void log_sink_put(char *text, size_t length, bool is_error)
{
    struct line *line = make_line(text, length, -1);
    pthread_mutex_lock(&sink.lock);
    size_t room = is_error ? LOG_SINK_MAX_BYTES : MAX_BYTES_BUT_ERRORS;
    if (sink.has_thread && !sink.is_stuck && sink.queued_bytes + length <= room) {
        append_line(line);
        line = NULL;
    } else if (sink.has_thread) {
        sink.dropped++;
    } else {
        carry_out(line);
    }
    pthread_mutex_unlock(&sink.lock);
    if (line)
        free_line(line);
}

void log_sink_use(int fd)
{
    struct line *line = make_line(NULL, 0, fd);
    pthread_mutex_lock(&sink.lock);
    if (sink.has_thread) {
        append_line(line);
        line = NULL;
    } else {
        carry_out(line);
    }
    pthread_mutex_unlock(&sink.lock);
    free(line);
}

/* With the lock held. */
static bool wait_until_written(uint64_t timeout_ms)
{
    struct timespec until;
    int failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000 * NS_PER_MS);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (sink.has_thread && (sink.first || sink.is_writing || sink.is_stopping) && failed != ETIMEDOUT)
        failed = pthread_cond_clockwait(&sink.changed, &sink.lock, CLOCK_MONOTONIC, &until);
    return !sink.has_thread || (!sink.first && !sink.is_writing);
}

bool log_sink_flush(uint64_t timeout_ms)
{
    pthread_mutex_lock(&sink.lock);
    bool is_written = wait_until_written(timeout_ms);
    pthread_mutex_unlock(&sink.lock);
    return is_written;
}

void log_sink_stop(uint64_t timeout_ms)
{
    pthread_mutex_lock(&sink.lock);
    sink.is_stopping = sink.has_thread;
    pthread_cond_broadcast(&sink.changed);
    wait_until_written(timeout_ms);
    sink.is_stuck = sink.has_thread;
    pthread_mutex_unlock(&sink.lock);
}
